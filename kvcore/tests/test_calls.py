"""What users call: bad tensors are named before anything moves, and the numbers are those of a small float64 softmax.

Numbers are checked twice. As the kernels, in Triton's interpreter: there float32 and float16 alone, and FP8 caches by
the integer steps, since the interpreter computes wrongly with bfloat16 and with its own FP8. And as the torch path, in
all dtypes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from kvcore import BlockManager, CacheConfig, CacheError, InvalidAttention, InvalidTensor, ReusePolicy, Step
from kvcore.attention import PagedAttention
from kvcore.kernels import (
    AttentionSpec,
    DevicePlan,
    Plan,
    Room,
    Tiling,
    Tree,
    audit,
    calls,
    make_plan,
    paged_attention,
    store_kv,
)
from kvcore.storage import DTYPES, KVStorage, StorageConfig

from .test_plan import batch_of

try:
    import triton
    import triton.language as tl

    from kvcore.kernels import attention as attention_kernels
    from kvcore.kernels import cache as cache_kernels
except ImportError:  # a laptop: the torch path is all there is
    triton = None

CPU = torch.device("cpu")
FP8 = torch.float8_e4m3fn
TREE = Tree(tile=16, leaf=32)
TILINGS = (Tiling(16), Tiling(32))
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

needs_interpreter = pytest.mark.skipif(not calls._launches(CPU), reason="Triton's interpreter is off")


@pytest.fixture(params=["kernel", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(calls, "_launches", lambda device: False)
    elif not calls._launches(CPU):
        pytest.skip("Triton's interpreter is off")
    monkeypatch.setattr(calls, "_has_fp8", lambda device: False)  # the integer steps; the interpreter's FP8 is wrong
    return request.param


@pytest.fixture
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets as far as to ask where to run fails the test."""
    monkeypatch.setattr(calls, "_launches", lambda device: pytest.fail("something was launched"))


# ---- the reference ---------------------------------------------------------------------------------------------------


def exact(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec
) -> tuple[torch.Tensor, torch.Tensor]:
    """(result, mean distance of the values from it), float64 [rows, heads, dim], of contiguous K/V [context, kv heads,
    dim]; the queries are the last positions. The distance is what rounded weights are multiplied with."""
    context, rows = len(keys), len(queries)
    position = torch.arange(context - rows, context)[:, None]
    place = torch.arange(context)
    hidden = place > position
    if spec.window is not None:
        hidden = hidden | (place <= position - spec.window)
    results, spreads = [], []
    for head in range(spec.num_heads):
        k, v = (tensor[:, head // spec.group].double() for tensor in (keys, values))
        score = queries[:, head].double() @ k.T * (spec.scale or 1 / math.sqrt(spec.head_dim))
        if spec.softcap is not None:
            score = spec.softcap * torch.tanh(score / spec.softcap)
        if spec.slopes is not None:
            score = score + spec.slopes[head] * (place - position)
        weight = torch.softmax(score.masked_fill(hidden, float("-inf")), 1)
        results.append(weight @ v)
        spreads.append((weight[:, :, None] * (v[None] - results[-1][:, None]).abs()).sum(1))
    return torch.stack(results, 1), torch.stack(spreads, 1)


def stored(data: torch.Tensor, dtype: torch.dtype, scale: torch.Tensor | None) -> torch.Tensor:
    """[tokens, kv heads, dim] as the cache gives it back, float64. scale [kv heads], for FP8."""
    if scale is None:
        return data.to(dtype).double()
    return (data.float() / scale[:, None]).clamp(-448, 448).to(FP8).double() * scale[:, None].double()


class World:
    """Sequences of (context, scheduled) in a poisoned cache of shuffled blocks, and their K/V once more, contiguous.

    What is not scheduled has been stored; the step's own K/V are in `keys` and `values`, its queries in `queries`.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        lengths: Sequence[tuple[int, int]],
        *,
        dtype: torch.dtype = torch.float32,
        cached: torch.dtype | None = None,
        block_size: int = 4,
        schedule: Any = "auto",
        seed: int = 0,
        rows: int = 0,
    ) -> None:
        self.spec, self.lengths, self.dtype = spec, lengths, dtype
        cached = cached or dtype
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        needed = [-(-context // block_size) for context, _ in lengths]
        self.num_blocks = sum(needed) + 2  # two remain unused, often block 0
        free = torch.randperm(self.num_blocks, generator=generator).tolist()
        tables = [[free.pop() for _ in range(blocks)] for blocks in needed]
        config = StorageConfig(1, self.num_blocks, block_size, spec.num_kv_heads, spec.head_dim, cached)
        self.storage = KVStorage(config, "cpu", poison=True, tags=True)
        self.scales = None
        if self.storage.scales is not None:
            self.storage.scales.copy_(torch.rand(self.storage.scales.shape, generator=generator) / 64 + 1 / 256)
            self.scales = self.storage.scales[0]
        self.cache = (self.storage.keys(0), self.storage.values(0))
        self.whole = [
            tuple(normal(context, spec.num_kv_heads, spec.head_dim) for _ in range(2)) for context, _ in lengths
        ]
        self.batch = batch_of(
            [(table, context, scheduled) for table, (context, scheduled) in zip(tables, lengths, strict=True)],
            block_size,
            rows=rows,
        )
        self.queries = normal(self.batch.num_tokens, spec.num_heads, spec.head_dim)
        more = normal(rows, spec.num_kv_heads, spec.head_dim)
        self.keys, self.values = (
            torch.cat([*(pair[plane][c - s :] for pair, (c, s) in zip(self.whole, lengths, strict=True)), more])
            for plane in range(2)
        )
        self.schedule = schedule
        self.plan = self.device_plan()
        history = batch_of(
            [(table, c - s, c - s) for table, (c, s) in zip(tables, lengths, strict=True)], block_size
        )
        old = [torch.cat([p[plane][: c - s] for p, (c, s) in zip(self.whole, lengths, strict=True)]) for plane in (0, 1)]
        if lengths:
            store_kv(*old, *self.cache, torch.from_numpy(history.slot_mapping), scales=self.scales)

    def host_plan(self, **changes: Any) -> Plan:
        options = {
            "block_size": self.storage.config.block_size,
            "num_blocks": self.num_blocks,
            "tree": TREE,
            "tilings": TILINGS,
            "schedule": self.schedule,
        }
        batch = changes.pop("batch", self.batch)
        return make_plan(batch, changes.pop("spec", self.spec), **{**options, **changes})

    def device_plan(self, **changes: Any) -> DevicePlan:
        return DevicePlan(self.host_plan(**changes), "cpu", self.dtype)

    def store(self) -> None:
        store_kv(self.keys, self.values, *self.cache, self.plan.slots, scales=self.scales)

    def attend(self, **options: Any) -> torch.Tensor:
        plan = options.pop("plan", self.plan)
        queries = options.pop("queries", self.queries)
        return paged_attention(queries, *self.cache, plan, scales=self.scales, **options)

    def verify(self, out: torch.Tensor, path: str) -> None:
        """Every row within what rounding allows, and 0 for rows that belong to nobody."""
        begin = 0
        for (_, scheduled), pair in zip(self.lengths, self.whole, strict=True):
            end = begin + scheduled
            data = [
                stored(one, self.storage.config.torch_dtype, None if self.scales is None else self.scales[plane])
                for plane, one in enumerate(pair)
            ]
            result, spread = exact(self.queries[begin:end], *data, self.spec)
            bound = ROUNDING[out.dtype] * result.abs()
            if path == "torch":
                bound = bound + 1e-5 * (1 + spread)  # float32 sums
            elif self.dtype is torch.float16:
                bound = bound + ROUNDING[self.dtype] * spread + 1e-5  # rounded weights
            else:
                bound = bound + 1e-12
            worst = ((out[begin:end].double() - result).abs() / bound).amax().item() if end > begin else 0
            assert worst <= 1.01, f"rows {begin} to {end}: {worst:.3g} times what is allowed"
            begin = end
        assert bool((out[begin:] == 0).all())


def by_formula(
    new: torch.Tensor, cache: torch.Tensor, slots: list[int], scale: torch.Tensor | None
) -> torch.Tensor:
    """What the cache holds after a store, token by token, as bytes."""
    block_size = cache.shape[2]
    after = cache.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            data = new[token]
            if scale is not None:
                data = (data.float() / scale[:, None]).clamp(-448, 448)
            after[slot // block_size, :, slot % block_size] = data.to(cache.dtype)
    return after.contiguous().view(torch.uint8)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


# ---- attention -------------------------------------------------------------------------------------------------------

LENGTHS = [(70, 9), (1, 1), (0, 0), (33, 1), (17, 17), (5, 0)]
"""Contexts below, at and above the edges of tiles (16), leaves (32) and blocks; sequences without rows among them."""

FEATURES: dict[str, tuple[AttentionSpec, int]] = {  # and a block size
    "plain": (AttentionSpec(2, 2, 16), 4),
    "three heads to a kv head": (AttentionSpec(6, 2, 16), 1),
    "five heads to one": (AttentionSpec(5, 1, 20), 7),
    "seventeen heads": (AttentionSpec(17, 1, 16), 16),
    "one dim": (AttentionSpec(1, 1, 1), 3),
    "scale": (AttentionSpec(2, 1, 16, scale=0.9), 5),
    "window of itself": (AttentionSpec(2, 1, 16, window=1), 4),
    "window": (AttentionSpec(2, 1, 16, window=15), 4),
    "window of a leaf and one": (AttentionSpec(2, 1, 16, window=33), 16),
    "window beyond everything": (AttentionSpec(2, 1, 16, window=2**40), 4),
    "softcap": (AttentionSpec(2, 1, 16, scale=1.0, softcap=2.0), 4),
    "alibi": (AttentionSpec(4, 2, 16, slopes=(0.5, 0.0, 0.01, -0.1)), 4),
    "everything": (AttentionSpec(6, 2, 24, 0.5, window=21, softcap=3.0, slopes=(0.5, 0.25, 0.1, 0, 0.02, 1)), 3),
}


@needs_interpreter
@pytest.mark.parametrize("feature", FEATURES)
def test_the_kernels_are_exact_for_float32(feature: str):
    spec, block_size = FEATURES[feature]
    tilings = TILINGS if spec.group <= 16 else (Tiling(32), Tiling(64))
    world = World(spec, [], block_size=block_size)
    schedule = [True, False, True, True, False, True]
    lengths = LENGTHS
    world = World.__new__(World)
    del tilings, schedule, lengths, world
