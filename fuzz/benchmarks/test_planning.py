"""What a step and a layer of attention cost the host, beside one pass of numpy over the same arrays.

A *step* is planning and loading the plan; a *layer* is all that `PagedAttention.__call__` does before the driver has
the launches. Kernels are recorded and not run, so that no device is needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any
from unittest import mock

import pytest
import torch

from kvcore import batch
from kvcore.attention import PagedAttention
from kvcore.batch import Batch
from kvcore.kernels import attention, cache, calls
from kvcore.kernels.calls import Room
from kvcore.kernels.spec import AttentionSpec
from kvcore.storage import KVStorage, StorageConfig

ROUNDS, INNER = 15, 20
BLOCK_SIZE = 16
SHAPES = {"1 x 1k": (1, 1024), "32 x 4k": (32, 4096), "256 x 8k": (256, 8192), "512 x 8k": (512, 8192)}
"""Sequences that decode one token, and their contexts."""


class _Recorder:
    """Stands in for a kernel: takes a launch's arguments and does nothing."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments, **keywords: None


def _step(sequences: int, context: int) -> tuple[Batch, int]:
    """A decode step, and the blocks that its pool needs."""
    columns = context // BLOCK_SIZE
    tables = [array("i", range(at * columns, (at + 1) * columns)) for at in range(sequences)]
    return batch.build(tables, [context - 1] * sequences, [context] * sequences, (), BLOCK_SIZE), columns * sequences


def _attention(blocks: int) -> PagedAttention:
    """Eight kv heads of 32 dims. The pool's memory is never touched, so it takes none."""
    made = PagedAttention(AttentionSpec(32, 8, 32), KVStorage(StorageConfig(1, blocks, BLOCK_SIZE, 8, 32), "cpu"))
    made.programs = 264
    return made


def _microseconds(run: Callable[[], object]) -> float:
    began = perf_counter()
    for _ in range(INNER):
        run()
    return (perf_counter() - began) / INNER * 1e6


def _in_turn(benchmark: Any, run: Callable[[], object], arrays: list[Any]) -> None:
    """Time one pass over `arrays` and `run` in turn; report medians, and the median of the ratios pair by pair."""
    floors: list[float] = []
    times: list[float] = []

    def floor() -> None:
        floors.append(_microseconds(lambda: [each.copy() for each in arrays]))

    benchmark.pedantic(lambda: times.append(_microseconds(run)), setup=floor, rounds=ROUNDS, warmup_rounds=2)
    ratios = [time / floor for time, floor in zip(times, floors, strict=True)]
    benchmark.extra_info.update(
        microseconds=round(median(times), 1), pass_microseconds=round(median(floors), 1), ratio=round(median(ratios), 1)
    )
    print(f"\n{benchmark.name}: {benchmark.extra_info}")


def _arrays(step: Batch) -> list[Any]:
    return [step.block_tables, step.context_lengths, step.cu_seqlens, step.slot_mapping]


@pytest.mark.parametrize("shape", SHAPES)
def test_planning_a_step(benchmark: Any, shape: str) -> None:
    """Plan and load, in place, as for a captured graph."""
    step, blocks = _step(*SHAPES[shape])
    made = _attention(blocks)
    host = made.prepare(step)
    lanes = tuple((len(lane.work), len(lane.merges), lane.partials) for lane in host.lanes)
    room = Room(step.num_sequences, step.block_tables.shape[1], step.num_tokens, lanes)
    plan = made.plan(step, room=room)
    _in_turn(benchmark, lambda: plan.load(made.prepare(step)), _arrays(step))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer(benchmark: Any, shape: str) -> None:
    """From the call to the driver, Triton's own part left out."""
    step, blocks = _step(*SHAPES[shape])
    made = _attention(blocks)
    tokens = step.num_tokens
    queries = torch.empty(tokens, 32, 32, dtype=torch.bfloat16)
    new = torch.empty(tokens, 8, 32, dtype=torch.bfloat16)
    out = torch.empty_like(queries)
    recorded = [
        mock.patch.object(module, name, _Recorder()) for module in (attention, cache) for name in module.__all__
    ]
    with mock.patch.object(calls, "_launches", return_value=True):
        for each in recorded:
            each.start()
        try:
            plan = made.plan(step)
            _in_turn(benchmark, lambda: made(0, queries, new, new, plan, out=out), _arrays(step))
        finally:
            for each in recorded:
                each.stop()
