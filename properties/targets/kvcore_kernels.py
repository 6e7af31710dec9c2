"""kvcore's kernels as a target: every axis, and the work list as the chooser of the sequence.

The core is given as a module, as to the allocator's adapter, so that the same file drives a copy with a planted fault.

Also imports: kvcore, numpy, torch.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import kvcore
from reference import Bounds

from ..attention.host import compiled_for
from ..attention.kernels import AXES, Cache, How, Spec, Step, Watch

__all__ = ["KvcoreKernels", "make"]


class KvcoreKernels:
    """`kvcore.kernels` through the protocol."""

    axes = frozenset(AXES)
    limits: Mapping[str, tuple[Any, ...]] = {}
    arithmetic: frozenset[str] = frozenset()

    def __init__(self, core: ModuleType = kvcore) -> None:
        self.name = core.__name__
        self.core = core
        self.kernels: Any = importlib.import_module(".kernels", core.__name__)
        self.calls: Any = importlib.import_module(".kernels.calls", core.__name__)
        self.storage: Any = importlib.import_module(".storage", core.__name__)
        vars(self.calls)["host_capability"] = compiled_for()

    def supports(self, spec: Spec, dtype: str, block_size: int) -> str | None:
        return None

    def store(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        cache: Cache,
        slots: Sequence[int],
        watch: Watch,
        *,
        tags: torch.Tensor | None = None,
        token_tags: Sequence[int] | None = None,
    ) -> None:
        device = keys.device
        where = torch.tensor(list(slots), dtype=torch.int64, device=device)
        own = {"slots": where}
        given = None
        if tags is not None and token_tags is not None:
            given = torch.tensor(list(token_tags), dtype=torch.int64, device=device)
            own |= {"tags": tags, "token tags": given}
        if cache.scales is not None:
            own["scales"] = cache.scales
        with watch(own, ()):
            self.kernels.store_kv(
                keys, values, cache.keys, cache.values, where, scales=cache.scales, tags=tags, token_tags=given
            )

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, spec: Spec, how: How, out: torch.Tensor, watch: Watch
    ) -> None:
        plan = self._plan(cache, step, spec, how, queries.dtype)
        rows = len(queries)
        if how.padded:
            wide = torch.zeros((plan.num_tokens, *queries.shape[1:]), dtype=queries.dtype, device=queries.device)
            wide[:rows] = queries
            full = torch.full((plan.num_tokens, *out.shape[1:]), float("nan"), dtype=out.dtype, device=out.device)
        else:
            wide, full = queries, out
        own = {
            "tables": plan.tables,
            "cu_seqlens": plan.cu_seqlens,
            "contexts": plan.contexts,
            "slopes": plan.slopes,
            "constants": plan.constants,
        }
        for number, (work, merges, workspace) in enumerate(zip(plan.works, plan.merges, plan.workspaces, strict=True)):
            own |= {f"work {number}": work, f"merges {number}": merges}
            for name, tensor in zip(("peaks", "totals", "mixed"), workspace, strict=True):
                # What was never written must not be read: a NaN that would show.
                tensor.fill_(float("nan"))
                own[f"{name} {number}"] = tensor
        if cache.scales is not None:
            own["scales"] = cache.scales
        if how.padded:
            own |= {"queries": wide, "out": full}
        with watch(own, (*plan.works, *plan.merges)):
            self.kernels.paged_attention(
                wide, cache.keys, cache.values, plan, scales=cache.scales, out=full, native_fp8=how.native_fp8
            )
        if how.padded:
            if full[rows:].any():
                raise Bounds("rows that belong to no sequence are not 0")
            out.copy_(full[:rows])

    def copy(self, cache: Cache, pairs: Sequence[tuple[int, int]], watch: Watch) -> None:
        self.storage.check_copies(pairs, cache.keys.shape[0])
        index = torch.tensor(pairs, dtype=torch.int64, device=cache.keys.device)
        with watch({"pairs": index}, ()):
            for plane in (cache.keys, cache.values):
                self.calls.copy_planes(plane[None], index)

    def audit(
        self,
        tags: torch.Tensor,
        tables: npt.NDArray[np.int32],
        block_size: int,
        expected: Sequence[Sequence[int]],
        watch: Watch,
    ) -> list[int]:
        flat = torch.tensor([tag for own in expected for tag in own], dtype=torch.int64, device=tags.device)
        begins = torch.tensor(np.cumsum([0, *map(len, expected)]), dtype=torch.int64, device=tags.device)
        where = torch.tensor(tables, device=tags.device)
        # The call makes the answer itself: the kernel may write a tensor that is not known here yet.
        found: list[int] = self.kernels.audit(tags, where, flat, begins, block_size=block_size).tolist()
        return found

    def _host_plan(self, cache: Cache, step: Step, spec: Spec, how: How) -> Any:
        blocks, _, block_size, _ = cache.keys.shape
        kernels = self.kernels
        count = len(step.lengths)
        schedule: Any = how.schedule
        if schedule == "mixed":
            schedule = [number % 2 == 0 for number in range(count)]
        return kernels.make_plan(
            self._batch(step, block_size),
            kernels.AttentionSpec(
                spec.num_heads,
                spec.num_kv_heads,
                spec.head_dim,
                scale=spec.scale,
                window=spec.window,
                softcap=spec.softcap,
                slopes=spec.slopes,
            ),
            block_size=block_size,
            num_blocks=blocks,
            tree=kernels.Tree(how.tile, how.leaf),
            tilings=tuple(kernels.Tiling(rows) for rows in how.rows),
            schedule=schedule,
        )

    def _plan(self, cache: Cache, step: Step, spec: Spec, how: How, dtype: torch.dtype) -> Any:
        kernels, device = self.kernels, cache.keys.device
        plan = self._host_plan(cache, step, spec, how)
        if how.shuffle is not None:
            rng = random.Random(how.shuffle)
            # The order of items may not matter, nor that of merges.
            for items in (items for lane in plan.lanes for items in (lane.work, lane.merges)):
                order = list(range(len(items)))
                rng.shuffle(order)
                items[:] = items[order]
        if not how.padded:
            return kernels.DevicePlan(plan, device, dtype)
        # As a captured graph is fed: made for another step, the first rows alone, and loaded with this one.
        lengths = [min(length, 1) for length in step.lengths]
        contexts = [
            context - length + first
            for context, length, first in zip(step.contexts, step.lengths, lengths, strict=True)
        ]
        other = self._host_plan(cache, Step(step.tables, contexts, lengths, [-1] * sum(lengths)), spec, how)
        room = kernels.Room(
            len(step.lengths) + 2,
            step.tables.shape[1] + 1,
            plan.batch.num_tokens + 3,
            tuple(
                (
                    max(len(one.work), len(two.work)) + 2,
                    max(len(one.merges), len(two.merges)) + 1,
                    max(one.partials, two.partials) + 1,
                )
                for one, two in zip(plan.lanes, other.lanes, strict=True)
            ),
        )
        captured = kernels.DevicePlan(other, device, dtype, room)
        captured.load(plan)
        return captured

    def _batch(self, step: Step, block_size: int) -> Any:
        lengths = np.array(step.lengths, dtype=np.int64)
        contexts = np.array(step.contexts, dtype=np.int32)
        cu_seqlens = np.array(step.cu_seqlens, dtype=np.int32)
        total = int(cu_seqlens[-1])
        owners = np.repeat(np.arange(len(lengths)), lengths)
        packed = np.arange(total)
        return self.core.Batch(
            block_tables=step.tables,
            context_lengths=contexts,
            cu_seqlens=cu_seqlens,
            packed_rows=packed.astype(np.int32),
            row_sequences=owners.astype(np.int32),
            positions=(contexts[owners] - lengths[owners] + packed - cu_seqlens[:-1][owners]).astype(np.int64),
            slot_mapping=np.array(list(step.slots), dtype=np.int64),
        )


def make() -> KvcoreKernels:
    """The factory that `--kernels kvcore` names."""
    return KvcoreKernels()
