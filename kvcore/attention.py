"""Attention for engines: write a step's K/V and attend. There is one object for a model and one plan for a step.

An engine's loop:

    manager = BlockManager(CacheConfig(num_blocks, block_size))
    storage = KVStorage(StorageConfig(layers, num_blocks, block_size, kv_heads, head_dim), "cuda")
    attention = PagedAttention(AttentionSpec(heads, kv_heads, head_dim), storage)

    step = manager.dispatch([("a", 17), ("b", 1)])
    storage.copy(step.copies)
    plan = attention.plan(step.batch)
    for layer in range(layers):
        ...                                             # q, k, v of the step's tokens, [tokens, heads, head_dim]
        out = attention(layer, q, k, v, plan)
    manager.complete(step)                              # when the device has run it, or in stream order

Also imports: torch.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch

from .batch import Batch
from .errors import InvalidAttention
from .kernels import (
    AttentionSpec,
    DevicePlan,
    Plan,
    Room,
    Schedule,
    Tiling,
    Tree,
    default_tree,
    make_plan,
    tilings,
)
from .kernels.calls import capability_of, check_attention, check_store, launch_attention, launch_store
from .storage import KVStorage

__all__ = ["PagedAttention"]


class PagedAttention:
    """Attention over one storage.

    dtype: of queries; by default the cache's, bfloat16 for an FP8 cache. tree, tiles: for tests and tuning; by default
    what suits the device (the tree is part of the numeric contract, the tiling is not).

    Raises InvalidAttention if spec and storage do not fit.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        storage: KVStorage,
        *,
        dtype: torch.dtype | None = None,
        tree: Tree | None = None,
        tiles: tuple[Tiling, ...] | None = None,
    ) -> None:
        config = storage.config
        if (spec.num_kv_heads, spec.head_dim) != (config.num_kv_heads, config.head_dim):
            raise InvalidAttention(
                f"the spec has {spec.num_kv_heads} kv heads of {spec.head_dim} dims, the storage "
                f"{config.num_kv_heads} of {config.head_dim}"
            )
        self.spec = spec
        self.storage = storage
        cached = config.torch_dtype
        eight = cached is torch.float8_e4m3fn
        self.dtype = dtype or (torch.bfloat16 if eight else cached)
        fitting = (torch.float32, torch.float16, torch.bfloat16) if eight else (cached,)
        if self.dtype not in fitting:
            raise InvalidAttention(
                f"queries over a {cached} cache can be {' or '.join(map(str, fitting))}, not {self.dtype}"
            )
        device = storage.device
        processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        width = self.dtype.itemsize
        self.tree = tree or default_tree(spec.head_dim, width)
        self.tiles = tiles or tilings(spec.head_dim, width, spec.group, capability_of(device))
        self.programs = 2 * processors

    def prepare(self, batch: Batch, *, schedule: Schedule = "auto") -> Plan:
        """The plan of one step on the host, for `DevicePlan.load`. Raises InvalidBatch. See `make_plan`."""
        config = self.storage.config
        return make_plan(
            batch,
            self.spec,
            block_size=config.block_size,
            num_blocks=config.num_blocks,
            tree=self.tree,
            tilings=self.tiles,
            programs=self.programs,
            schedule=schedule,
        )

    def plan(self, batch: Batch, *, schedule: Schedule = "auto", room: Room | None = None) -> DevicePlan:
        """The plan of one step, for all its layers; with `room`, one that can be loaded again: of the next step,
        `plan.load(attention.prepare(batch))`. Raises InvalidBatch. See `make_plan` and `DevicePlan`."""
        storage = self.storage
        return DevicePlan(self.prepare(batch, schedule=schedule), storage.device, self.dtype, room, storage.staging)

    def __call__(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        plan: DevicePlan,
        *,
        out: torch.Tensor | None = None,
        token_tags: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write this step's K/V of `layer` to the plan's slots, then attend. [T, query heads, D].

        queries [T, query heads, D], keys and values [T, kv heads, D]. token_tags: see `store_kv`; the storage keeps one
        tag a slot, so give them for one layer alone. Raises InvalidTensor before anything is written, or IndexError
        if there is no such layer.
        """
        storage = self.storage
        if not 0 <= layer < storage.config.num_layers:
            raise IndexError(f"layer {layer}: the storage has layers 0 to {storage.config.num_layers - 1}")
        key_cache, value_cache = storage.keys(layer), storage.values(layer)
        scales = None if storage.scales is None else storage.scales[layer]
        tags = None if token_tags is None else storage.tags
        facts = tuple(map(_facts, (key_cache, queries, keys, values, out, scales, tags, token_tags)))
        if (
            not isinstance(plan, DevicePlan) or facts not in plan.checked
        ):  # one layer is like the next, and all that is checked are facts
            check_attention(queries, key_cache, value_cache, plan, scales, out)
            check_store(keys, values, key_cache, value_cache, plan.slots, scales, tags, token_tags)
            plan.checked.add(facts)
        launch_store(keys, values, key_cache, value_cache, plan.slots, scales, tags, token_tags)
        return launch_attention(queries, key_cache, value_cache, plan, scales, out)


def _facts(tensor: torch.Tensor | None) -> Hashable:
    """All that is checked of a tensor. O(1)."""
    if not isinstance(tensor, torch.Tensor):
        return type(tensor).__name__
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
