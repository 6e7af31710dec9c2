"""nano-vllm's adapter: on stand-ins everywhere, on the real package where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.engines.engine import Assignment
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.findings.shrink import shrink
from fuzz.runs.values import Counterexample, Judging
from properties.operations import Allocate, Append, Complete, Configuration, Dispatch, Free, Operation
from properties.session import Session
from properties.target import TargetFactory
from properties.targets import nano_vllm
from properties.targets.nano_vllm import CurrentTarget, OlderTarget
from reference import Admission, Violation

from . import nano

SMALL = Configuration(num_blocks=6, block_size=2)


def current(core: SimpleNamespace) -> TargetFactory:
    return lambda configuration: CurrentTarget(configuration, core)


def older(configuration: Configuration) -> OlderTarget:
    return OlderTarget(configuration, nano.OLDER)


def hunt(factory: TargetFactory, episodes: int, seed: str = "nano") -> tuple[Counterexample | None, Tally]:
    tally = Tally()
    found, _ = WalkEngine().hunt(
        Assignment(factory, "nano", seed, Judging(), tally, clock=lambda: 0.0, deadline=1.0, count=episodes)
    )
    return found, tally


def play(factory: TargetFactory, *operations: Operation) -> Session:
    session = Session(factory(SMALL), walk_every=1)
    for operation in operations:
        assert session.apply(operation).status == "done", operation
    return session


@pytest.mark.parametrize("factory", [current(nano.FIXED), older], ids=["current", "older"])
def test_a_right_core_of_either_interface_passes_the_walk_exactly(factory: TargetFactory) -> None:
    found, tally = hunt(factory, 400)
    assert found is None
    assert tally.operations > 10_000
    assert not {"no capability REFUSES", "no capability OVERLAP"} & set(tally.skipped)
    assert factory(SMALL).policy.exact


@pytest.mark.parametrize(
    ("core", "expected", "longest"),
    [
        # Another prefix's block, since the mapping is stale; its own tokens are the same.
        (nano.STALE_MAPPING, {"HISTORY", "OWNERSHIP", "FRESHNESS", "CONSERVATION"}, 16),
        (nano.RESTARTED_CHAIN, {"OWNERSHIP", "COMPLETENESS", "HISTORY", "CONSERVATION"}, 12),
        (nano.IN_FLIGHT, {"PUBLISH", "FRESHNESS", "OWNERSHIP"}, 2),
    ],
    ids=["NV-1", "NV-2", "NV-7"],
)
@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
def test_an_old_defect_is_found_and_told_in_a_few_operations(
    core: SimpleNamespace, expected: set[str], longest: int, outside: bool
) -> None:
    factory, tally = current(core), Tally()
    judging = Judging(outside=outside, exact=not outside)
    found, _ = WalkEngine().hunt(
        Assignment(factory, "nano", "1", judging, tally, clock=lambda: 0.0, deadline=1.0, count=2000)
    )
    assert found is not None
    least = shrink(found, factory, clock=lambda: 0.0, episodes=300).counterexample
    assert least.property_id in expected
    assert len(least.operations) <= longest


def test_the_current_interface_publishes_when_a_step_is_complete() -> None:
    session = play(current(nano.FIXED), Allocate("a", (1, 2, 3)), Allocate("b", (1, 2, 3)))
    assert session.judge.sequences["b"].computed == 0
    for operation in (Dispatch(1, (("a", 3),)), Complete(1), Allocate("c", (1, 2, 3))):
        session.apply(operation)
    assert session.judge.sequences["c"].computed == 2


def test_the_older_interface_takes_blocks_and_publishes_by_the_step() -> None:
    session = play(older, Allocate("a", (1, 2, 3)), Allocate("b", (1, 2, 4)))
    assert session.target.table("a") == []
    session.apply(Dispatch(1, (("a", 3), ("b", 3))))
    # b hits, in the same step, what a is computing.
    assert session.target.table("a") == [0, 1]
    assert session.target.table("b") == [0, 2]
    assert session.judge.sequences["b"].tables[0].written_from == 2


def test_a_step_is_cut_short_where_the_next_request_does_not_fit() -> None:
    session = play(older, Allocate("a", (1,) * 8), Allocate("b", (2,) * 6), Allocate("c", (3,)))
    session.apply(Dispatch(1, (("a", 8), ("b", 6), ("c", 1))))
    assert [line.request for line, _, _ in session.judge.in_flight[0].spans] == ["a"]
    for operation in (Complete(1), Free("a"), Dispatch(2, (("b", 6), ("c", 1)))):
        assert session.apply(operation).status == "done"
    assert session.target.table("b") and session.target.table("c")


def test_a_step_that_leaves_out_what_fits_is_accused() -> None:
    class Shy(OlderTarget):
        def dispatch(self, work: Any) -> Any:
            return super().dispatch(work[:1])

    with pytest.raises(Admission, match="leaves out 'b'"):
        play(
            lambda configuration: Shy(configuration, nano.OLDER),
            *(Allocate("a", (1,)), Allocate("b", (2,)), Dispatch(1, (("a", 1), ("b", 1)))),
        )


def test_appended_while_waiting_is_part_of_the_prompt_that_is_looked_up() -> None:
    session = play(older, Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)), Complete(1), Allocate("b", (1,)))
    for operation in (Append("b", (2, 3)), Dispatch(2, (("b", 3),))):
        assert session.apply(operation).status == "done"
    assert session.target.table("b")[0] == session.target.table("a")[0]


# ---- the real package ------------------------------------------------------------------------------------------------

real = pytest.mark.skipif(
    find_spec("nanovllm") is None, reason="nano-vllm is not installed: pip install --no-deps nano-vllm-fork"
)


@real
@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ((Allocate("a", (0, 0)), Dispatch(1, (("a", 2),)), Complete(1), Free("a")), "OWNERSHIP"),
        ((Allocate("a", (0, 0)), Allocate("b", (0, 0)), Dispatch(1, (("a", 2), ("b", 2)))), "RECOMPUTE"),
        ((Allocate("a", (0, 0)), Allocate("b", (0, 0, 0)), Dispatch(1, (("a", 2), ("b", 3)))), "ADMISSION"),
    ],
    ids=["the cache is lost when it is freed", "nothing is left to compute", "shared blocks count as new"],
)
def test_what_is_wrong_in_the_fork(operations: tuple[Operation, ...], expected: str) -> None:
    session = Session(nano_vllm.make(Configuration(num_blocks=2, block_size=2)), walk_every=1)
    assert [session.apply(operation).status for operation in operations[:-1]] == ["done"] * (len(operations) - 1)
    with pytest.raises(Violation) as caught:
        session.apply(operations[-1])
    assert caught.value.id == expected


@real
def test_the_engine_is_not_imported() -> None:
    import sys

    assert nano_vllm.make(SMALL).manager is not None
    assert not [name for name in sys.modules if name.partition(".")[0] == "nanovllm"]
