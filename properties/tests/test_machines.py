"""The machine itself: it finds what is broken, says what it is, hands over what replays, and is the same run again.

Broken targets are kvcore's adapter with one method that lies, or kvcore with one method replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.stateful import run_state_machine_as_test

from kvcore.state import inside
from properties.laws import Law
from properties.machines import (
    PROFILES,
    AllocatorMachine,
    MachineReport,
    UnknownProfile,
    load,
    machine_for,
    run_machine,
    seed_for,
    settings_for,
)
from properties.machines.allocator import SHARD
from properties.machines.profiles import PREFIX
from properties.machines.strategies import restrict
from properties.moves import KINDS, MOVES, OPTIONAL, Moves, Swarm
from properties.operations import Configuration, Namespace, Operation, Tokens, decode, encode
from properties.session import Session
from properties.target import Capability
from properties.targets.kvcore import KvcoreTarget, make
from reference import Violation

ROOT = Path(__file__).parents[2]


def quick(examples: int = 30, steps: int = 30, shrink: bool = False) -> settings:
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    return settings(settings_for("commit"), max_examples=examples, stateful_step_count=steps, phases=phases)


# ---- broken targets --------------------------------------------------------------------------------------------------


class BoastsOfHits(KvcoreTarget):
    """Says that the whole prompt was hit, where all but its last token was."""

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        hits = super().allocate(request, tokens, namespace, handle)
        return len(tokens) if hits and hits == len(tokens) - 1 else hits


class PublishesEarly(KvcoreTarget):
    """What is dispatched counts as computed."""

    def dispatch(self, work: Sequence[tuple[str, int]]) -> Any:
        view = super().dispatch(work)
        for sequence, end in zip(view.handle.sequences, view.handle.ends, strict=True):
            before = sequence.computed
            sequence.computed = end
            self.manager._publish(sequence)
            sequence.computed = before
        return view


class ForgetsAReference(KvcoreTarget):
    """A fork does not count as a holder of its first block."""

    def fork(self, request: str, child: str) -> None:
        super().fork(request, child)
        block = inside(self.manager).sequences[child].table[0]
        if inside(self.manager).pool.references[block] > 1:
            inside(self.manager).pool.references[block] -= 1


class FreesTwice(KvcoreTarget):
    """A double free is accepted."""

    def free(self, request: str) -> None:
        if request in inside(self.manager).sequences:
            super().free(request)


class LosesBlocks(KvcoreTarget):
    """A freed request keeps its blocks, and the core can hide that: only the drain tells from outside."""

    capabilities = frozenset(Capability) - {Capability.INSPECT, Capability.CHECK}

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.manager._release = lambda sequence: None


class Crashes(KvcoreTarget):
    def truncate(self, request: str, length: int) -> None:
        super().truncate(request, length)
        raise KeyError(request)


BROKEN: dict[type[KvcoreTarget], set[str]] = {
    BoastsOfHits: {"RECOMPUTE"},
    PublishesEarly: {"PUBLISH", "OWNERSHIP"},
    ForgetsAReference: {"REFERENCES", "CONSERVATION"},
    FreesTwice: {"RELEASE"},
    Crashes: {"CRASH"},
}


def replay(
    factory: Callable[[Configuration], Any], configuration: Configuration, operations: Sequence[Operation]
) -> Violation | None:
    """Without Hypothesis, through JSON, as a stored counterexample would."""
    session = Session(factory(Configuration.from_json(configuration.to_json())))
    try:
        for operation in operations:
            session.apply(decode(encode(operation)))
        session.drain()
    except Violation as violation:
        return violation
    return None


# ---- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_target_is_found_and_replays(broken: type[KvcoreTarget]) -> None:
    handed: list[tuple[Configuration, list[Operation], Violation]] = []
    report = run_machine(broken, quick(150), 7, lambda *found: handed.append(found))
    assert report.violation is not None
    assert report.violation.id in BROKEN[broken]
    assert handed
    configuration, operations, violation = handed[-1]
    assert (configuration, operations, violation) == (report.configuration, report.counterexample, report.violation)
    again = replay(broken, configuration, operations)
    assert type(again) is type(violation)
    assert str(again) == str(violation)
    assert replay(make, configuration, operations) is None
    assert not report.flaky


def test_shrinking_keeps_the_property_and_ends_small() -> None:
    found: list[Violation] = []
    report = run_machine(FreesTwice, quick(60, 6, shrink=True), 3, lambda c, o, violation: found.append(violation))
    assert {violation.id for violation in found} == {"RELEASE"}
    assert len(report.counterexample) <= 8
    assert report.counterexample[-1].op == "free"
    assert type(replay(FreesTwice, report.configuration or Configuration(), report.counterexample)) is type(found[0])


def test_what_only_the_drain_shows_is_recorded_before_the_drain() -> None:
    report = run_machine(LosesBlocks, quick(20, 3), 1)
    assert report.violation is not None
    assert report.configuration is not None
    assert not any("drain" in str(operation) for operation in report.counterexample)
    again = replay(LosesBlocks, report.configuration, report.counterexample)
    assert type(again) is type(report.violation)


def test_the_first_property_is_kept_where_there_are_several() -> None:
    """Two faults in one target: whichever is met first is reported, from first to last."""

    class Both(FreesTwice):
        truncate = Crashes.truncate

    for number in range(2):
        found: list[str] = []
        chosen = quick(60, 6, shrink=number == 0)
        report = run_machine(Both, chosen, number, lambda _, operations, violation, ids=found: ids.append(violation.id))
        assert report.violation is not None
        assert set(found) == {report.violation.id}


def test_machine_for_raises_as_hypothesis_does() -> None:
    handed: list[list[Operation]] = []
    machine = machine_for(Crashes, record=lambda c, operations, v: handed.append(operations))
    with pytest.raises(Violation, match="CRASH"):
        run_state_machine_as_test(machine, settings=quick(100))
    assert handed[-1][-1].op == "truncate"


def test_the_harness_own_errors_are_raised() -> None:
    def broken(configuration: Configuration) -> list[Law]:
        raise ZeroDivisionError("in the laws")

    with pytest.raises(ZeroDivisionError):
        run_machine(KvcoreTarget, quick(5), 0, laws=broken)


def test_a_factory_that_fails_is_a_crash_with_its_configuration() -> None:
    def broken(configuration: Configuration) -> KvcoreTarget:
        raise ZeroDivisionError("in the factory")

    report = run_machine(broken, quick(5), 0)
    assert report.violation is not None and report.violation.id == "CRASH"
    assert "in the factory" in report.violation.message
    assert len(report.counterexample) == 1


def test_the_real_target_holds() -> None:
    report = run_machine(make, quick(30, 40), 5)
    assert report.violation is None, f"{report.violation} {report.configuration} {report.counterexample}"
    assert report.counterexample == []


# ---- what is run -----------------------------------------------------------------------------------------------------


def recorded(seed: int, examples: int = 10) -> list[tuple[Configuration, list[Operation]]]:
    """Every example's operations."""
    kept: list[tuple[Configuration, list[Operation]]] = []

    class Watched(KvcoreTarget):
        pass

    from hypothesis import seed as seeded
    from hypothesis.stateful import get_state_machine_test

    def tally(machine: AllocatorMachine) -> None:
        kept.append((machine.configuration, machine.operations))

    test = get_state_machine_test(machine_for(Watched, tally=tally), settings=quick(examples))
    seeded(seed)(test)()
    return kept


def test_the_same_seed_is_the_same_run() -> None:
    first = recorded(11)
    assert recorded(11) == first
    assert recorded(12) != first


def test_no_example_is_empty() -> None:
    runs = recorded(13, 50)
    assert len(runs) >= 50
    assert all(operations for _, operations in runs)
    assert sum(len(operations) > 10 for _, operations in runs) > 45


def test_reports_add_up_and_are_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    def counted(report: MachineReport) -> tuple[Any, ...]:
        return report.examples, report.operations, report.events, report.kinds, report.refused, report.skipped

    report = run_machine(make, quick(2 * SHARD), 21)
    assert counted(run_machine(make, quick(2 * SHARD), 21)) == counted(report)
    assert counted(run_machine(make, quick(2 * SHARD), 22)) != counted(report)
    assert report.examples >= 2 * SHARD
    assert report.operations == sum(report.kinds.values())
    assert report.fewest > 0
    assert report.seconds > 0
    assert capsys.readouterr() == ("", "")


def test_hard_states_are_met() -> None:
    """Not a proof, a floor: what one commit's worth of examples must reach."""
    report = run_machine(make, settings(settings_for("commit"), phases=(Phase.generate,)), 4)
    for event in (
        "evicted",
        "hit on a cached block",
        "hit on an active block",
        "hash collision",
        "copy-on-write",
        "freed while in flight",
        "truncated while in flight",
        "published a duplicate",
        "refused for one block",
        "allocated with an earlier match",
        "placeholder dispatched",
        "reset with live requests",
        "several steps of one request in flight",
    ):
        assert report.events.get(event), f"never met: {event}"
    kinds = "lookup allocate append fill dispatch complete truncate fork free reset"
    assert set(report.kinds) == set(kinds.split())
    refusals = (
        "OutOfBlocks NeverFits InvalidTokens UnknownRequest DuplicateRequest InvalidCount EmptyDispatch "
        "RepeatedRequest AlreadyCompleted OutOfOrder InvalidLength NotComputed InvalidFill MatchMismatch"
    )
    assert set(refusals.split()) <= set(report.refused)


def test_a_target_with_few_capabilities_is_not_asked_for_more() -> None:
    class Plain(KvcoreTarget):
        capabilities = frozenset({Capability.INSPECT})

    report = run_machine(Plain, quick(), 2)
    assert report.violation is None
    assert not report.skipped
    assert not {"lookup", "fill", "truncate", "fork", "reset"} & set(report.kinds)
    assert restrict(Configuration(hash_bits=3), Plain.capabilities).hash_bits == 128


# ---- moves -----------------------------------------------------------------------------------------------------------


def test_moves_are_in_percent() -> None:
    assert sum(KINDS.values()) == 100
    assert set(OPTIONAL) <= set(KINDS)


def test_the_simplest_moves_are_valid_operations() -> None:
    session = Session(make(Configuration()))
    moves = Moves(session, Swarm())
    for _ in range(60):
        assert session.apply(moves.operation((0, 0, 0, 0))).status == "done"
    session.drain()


@pytest.mark.parametrize("bit", range(len(OPTIONAL)))
def test_a_swarm_leaves_a_kind_out(bit: int) -> None:
    session = Session(make(Configuration()))
    moves = Moves(session, Swarm(off=1 << bit))
    drawn = set(moves.draws.values())
    assert MOVES[OPTIONAL[bit]].draw not in drawn
    assert set(moves.draws) == set(KINDS)
    assert {MOVES[kind].draw for kind in ("allocate", "dispatch", "complete")} <= drawn


# ---- profiles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_loads(name: str) -> None:
    before = settings.get_current_profile_name()
    try:
        chosen = load(name)
        assert settings.get_current_profile_name() == PREFIX + name
        assert str(settings.default) == str(chosen) == str(settings_for(name))
    finally:
        settings.load_profile(before)
    assert chosen.deadline is None
    assert chosen.database is None
    assert not chosen.derandomize
    assert seed_for(name) >= 0


def test_only_nightly_takes_a_database(tmp_path: Path) -> None:
    assert settings_for("nightly", tmp_path).database is not None
    assert settings_for("commit", tmp_path).database is None
    assert seed_for("commit") == seed_for("commit")


def test_what_a_database_keeps_is_tried_first() -> None:
    database = InMemoryExampleDatabase()
    keeps = settings(quick(SHARD), database=database)
    found = run_machine(PublishesEarly, keeps, 5)
    assert found.violation is not None
    assert any(database.data.values())
    tries = settings(keeps, phases=(Phase.reuse,))
    again = run_machine(PublishesEarly, tries, 6)
    assert (again.counterexample, again.examples <= 3) == (found.counterexample, True)
    assert run_machine(make, tries, 6).violation is None
    assert not any(database.data.values()), "what does not fail any more is deleted"


def test_an_unknown_profile_is_named() -> None:
    for call in (settings_for, load, seed_for):
        with pytest.raises(UnknownProfile, match="commit, nightly, soak"):
            call("ci")


def test_ci_does_not_change_a_profile() -> None:
    """Hypothesis loads a profile of its own where CI is set. Nothing of it is inherited."""
    program = (
        "from hypothesis import settings\n"
        "from properties.machines import load, settings_for, PROFILES\n"
        "print(settings.get_current_profile_name() == 'ci')\n"
        "for name in PROFILES: print(load(name), settings_for(name))\n"
    )
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT") if name in os.environ}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**plain, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n", 1)
        for more in ({}, {"CI": "1"})
    ]
    assert [first for first, _ in outputs] == ["False", "True"]
    assert outputs[0][1] == outputs[1][1]
