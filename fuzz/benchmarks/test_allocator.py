"""kvcore's allocator against the floor, and against itself in a pool a thousand times as large."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import pytest

from kvcore import BlockManager

from . import workload

ROUNDS = 9


@pytest.fixture(scope="module")
def prompts() -> Iterator[list[list[int]]]:
    """All prompts, kept out of garbage collection: walking 4 million tokens that nobody frees is not the allocator's
    cost.
    """
    made = workload.requests()
    gc.collect()
    gc.freeze()
    yield made
    gc.unfreeze()


def _paired(benchmark: Any, prompts: list[list[int]], run: Any) -> None:
    """Time floor and `run` in turn; report the median of the ratios pair by pair."""
    floors: list[float] = []
    times: list[float] = []

    def setup() -> None:
        floors.append(workload.floor(prompts))

    def timed() -> None:
        times.append(run(prompts))

    benchmark.pedantic(timed, setup=setup, rounds=ROUNDS, warmup_rounds=1)
    ratios = [time / floor for time, floor in zip(times[1:], floors[1:], strict=True)]
    count = len(prompts)
    benchmark.extra_info.update(
        ratio_to_floor=round(median(ratios), 2),
        ratios=[round(ratio, 2) for ratio in ratios],
        floor_us=round(median(floors) / count * 1e6, 1),
        request_us=round(median(times) / count * 1e6, 1),
        requests_per_second=round(count / median(times)),
    )
    print(f"\n{benchmark.name}: {benchmark.extra_info}")


def test_a_block_tables_only_one_request_at_a_time(benchmark: Any, prompts: list[list[int]]) -> None:
    """Figure (a). Goal: at most 3 times the floor."""
    _paired(benchmark, prompts, lambda given: workload.one_at_a_time(given)[0])
    _, hits = workload.one_at_a_time(prompts)
    assert hits == (len(prompts) // 2 - 1) * workload.SHARED


def test_b_like_an_engine(benchmark: Any, prompts: list[list[int]]) -> None:
    """Figure (b). Goal: at most 5 times the floor."""
    _paired(benchmark, prompts, workload.engine)
    parts = workload.Parts()
    workload.engine(prompts, parts)
    shares = {name: round(seconds / len(prompts) * 1e6, 1) for name, seconds in parts.seconds.items()}
    benchmark.extra_info["us_per_request"] = shares
    print(f"  us a request: {shares}")


def _cycle(manager: BlockManager, number: int) -> None:
    """One small request from lookup to free, in a full pool: every new block evicts."""
    tokens = array("i", range(number, number + 256))
    match = manager.lookup(tokens)
    sequence = manager.allocate(number, tokens, match=match)
    manager.complete(manager.dispatch([(number, 256 - sequence.computed)]))
    manager.append(number, [1])
    manager.complete(manager.dispatch([(number, 1)]))
    manager.truncate(number, 256)
    manager.free(number)


def test_c_a_thousand_times_the_blocks(benchmark: Any) -> None:
    """Time an operation from 1,000 to 1,000,000 blocks. Goal: less than 2.5 times."""
    managers = dict(workload.pools())
    times: dict[int, list[float]] = {blocks: [] for blocks in managers}
    numbers = iter(range(1 << 24, 1 << 30, 512))

    def both() -> None:
        for blocks, manager in managers.items():
            began = perf_counter()
            for _ in range(400):
                _cycle(manager, next(numbers))
            times[blocks].append(perf_counter() - began)

    benchmark.pedantic(both, rounds=9, warmup_rounds=2)
    small, large = (median(series) / 400 * 1e6 for series in times.values())
    benchmark.extra_info.update(small_us=round(small, 1), large_us=round(large, 1), growth=round(large / small, 2))
    print(f"\n{benchmark.name}: {benchmark.extra_info}")
