"""The tester, tested: every planted fault is found by the swarm walk and shrunk to its minimum.

Judged fully, and blind: from the outside, with no prediction, as if model and core shared the mistake. The clock stands
still, so that the result depends on the seed alone; `fuzz run` searches five times as long.
"""

from __future__ import annotations

import pytest

from fuzz.counterexample import Counterexample
from fuzz.engines import Tally, swarm
from fuzz.planting import Change, DoesNotApply, plant, planted
from fuzz.run import Judging, perform
from fuzz.shrink import shrink
from properties.target import TargetFactory
from properties.targets import load

from .faults import FAULTS, Fault

MODES = {"full": Judging(), "blind": Judging(outside=True, exact=False)}
WITHIN = 40_000
"""Checked operations in which every fault must be found: about a second."""


def hunt(factory: TargetFactory, judging: Judging, seed: str = "1") -> tuple[Counterexample, Tally]:
    tally = Tally()
    found, _ = swarm(factory, "planted", seed, judging, tally, clock=lambda: 0.0, deadline=1.0, episodes=2000)
    assert found is not None, "not found"
    return found, tally


@pytest.mark.parametrize(
    ("fault", "mode"),
    [pytest.param(fault, mode, id=f"{fault.name}: {mode}") for fault in FAULTS for mode in MODES],
)
def test_a_planted_fault_is_found_and_shrunk(fault: Fault, mode: str) -> None:
    factory = planted(fault.changes)
    found, tally = hunt(factory, MODES[mode], fault.seed)
    assert tally.operations <= WITHIN
    small = shrink(found, factory, clock=lambda: 0.0, seconds=1.0, episodes=300).counterexample
    assert small.property_id in getattr(fault, mode), small.message
    assert len(small.operations) <= fault.minimum[mode == "blind"], small.operations

    again = perform(factory, small.configuration, small.operations, small.judging, strict=True)
    assert again.violation is not None
    assert (again.violation.id, again.violation.message) == (small.property_id, small.message)
    assert perform(load("kvcore"), small.configuration, small.operations, small.judging, strict=True).violation is None


def test_the_same_seed_finds_and_shrinks_the_same() -> None:
    factory = planted(FAULTS[0].changes)
    results = []
    for _ in range(2):
        found, _ = hunt(factory, Judging())
        results.append(shrink(found, factory, clock=lambda: 0.0, seconds=1.0, episodes=20).counterexample)
    assert results[0] == results[1]


def test_a_fault_that_does_not_apply_is_an_error() -> None:
    with pytest.raises(DoesNotApply, match="occurs 0 times, not once"):
        plant([Change("pool.py", "no such text", "")])
    with pytest.raises(DoesNotApply, match=r"kvcore/none\.py"):
        plant([Change("none.py", "x", "y")])


def test_a_planted_copy_leaves_the_real_core_alone() -> None:
    import kvcore

    core = plant(FAULTS[0].changes)
    assert core.BlockManager is not kvcore.BlockManager
    assert core.__name__ != "kvcore"
    assert plant(FAULTS[0].changes) is core


def test_the_shrinker_stops_at_its_deadline() -> None:
    factory = planted(FAULTS[0].changes)
    found, _ = hunt(factory, Judging())
    ticks = iter(range(10_000))
    result = shrink(found, factory, clock=lambda: float(next(ticks)), seconds=30.0)
    assert not result.finished
    assert result.replays <= 32
    small = result.counterexample
    run = perform(factory, small.configuration, small.operations, small.judging, strict=True)
    assert run.violation is not None
    assert run.violation.id == small.property_id


def test_what_does_not_fail_comes_back_unchanged() -> None:
    found, _ = hunt(planted(FAULTS[0].changes), Judging())
    result = shrink(found, load("kvcore"), clock=lambda: 0.0, seconds=1.0)
    assert result.counterexample == found
