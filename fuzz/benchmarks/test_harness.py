"""Checked operations a second: the swarm walk and the Hypothesis machine, every property on, one core."""

from __future__ import annotations

from time import perf_counter, process_time
from typing import Any

from hypothesis import Phase, settings

from fuzz.engines.engine import Assignment
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.runs.perform import perform
from fuzz.runs.values import Judging
from fuzz.show.layout import layout
from fuzz.show.picture import picture
from fuzz.tools.pictures import large
from properties.machines.allocator import run_machine
from properties.machines.profiles import settings_for
from properties.targets import load


def test_the_swarm_walk(benchmark: Any) -> None:
    """Pools of at most 64 blocks, every property on, drains included. Goal: at least 30,000 a second."""
    factory = load("kvcore")
    tally = Tally()
    first = 0

    def run() -> None:
        nonlocal first
        _, first = WalkEngine().hunt(
            Assignment(
                factory,
                "kvcore",
                "bench",
                Judging(),
                tally,
                clock=perf_counter,
                deadline=perf_counter() + 4,
                first=first,
            )
        )

    began = perf_counter()
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    rate = tally.operations / (perf_counter() - began)
    total = sum(tally.kinds.values())
    mix = {kind: f"{count / total:.1%}" for kind, count in sorted(tally.kinds.items(), key=lambda item: -item[1])}
    refused = sum(tally.refused.values()) / total
    benchmark.extra_info.update(operations_per_second=round(rate), mix=mix, refused=f"{refused:.1%}")
    print(f"\nswarm walk: {rate:,.0f} checked operations a second; mix {mix}, of these refused {refused:.1%}")


def test_the_hypothesis_machine(benchmark: Any) -> None:
    """50 steps an example, generation only, every property on. Goal: at least 2,000 a second."""
    chosen = settings(settings_for("nightly"), max_examples=150, phases=(Phase.generate,))
    operations = 0
    seconds = 0.0
    seed = 0

    def run() -> None:
        nonlocal operations, seconds, seed
        seed += 1
        report = run_machine(load("kvcore"), chosen, seed)
        assert report.violation is None
        operations += report.operations
        seconds += report.seconds

    benchmark.pedantic(run, rounds=4, warmup_rounds=1)
    rate = operations / seconds
    benchmark.extra_info.update(operations_per_second=round(rate))
    print(f"\nHypothesis machine: {rate:,.0f} checked operations a second")


def test_the_picture_of_a_large_finding(benchmark: Any) -> None:
    """300 operations on 1,000 blocks, against the same replay without a picture. Goal: at most twice its time."""
    found = large()
    factory = load(found.target)

    def replay() -> float:
        began = process_time()
        perform(factory, found.configuration, found.operations, found.judging, strict=True)
        return process_time() - began

    def draw() -> float:
        began = process_time()
        layout(picture(found, factory))
        return process_time() - began

    replay()
    pairs = [(replay(), draw()) for _ in range(3)]
    benchmark.pedantic(draw, rounds=1)
    ratio = sorted(drawn / replayed for replayed, drawn in pairs)[1]
    benchmark.extra_info.update(ratio=round(ratio, 2))
    print(f"\npicture of a large finding: {ratio:.2f} times the time of its replay")
    assert ratio < 3
