"""The allocator machine: every property, as one Hypothesis state machine over any target.

One rule. It draws a short burst of moves and applies each as an operation through the session, which checks everything;
so an operation is checked and recorded one at a time, though several share the cost of one Hypothesis step. An
`initialize` rule draws the configuration and the swarm and admits the first requests, so that no example is empty.
`teardown` is the second phase: it drains.

What is found is handed on as (configuration, operations, violation). The list ends with the operation that broke the
property, or, where only the drain did, with the last one before it; so to replay it is to apply it to a fresh session
and then to drain that. Hypothesis's own way to reproduce (blobs, database keys) breaks when a rule changes; the list
does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar

from hypothesis import Phase, Verbosity, reject, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test, initialize, rule

from reference import Violation

from ..boundary import made
from ..laws import Law
from ..moves import Moves, Swarm
from ..operations import Configuration, Operation
from ..session import Session
from ..target import TargetFactory
from .strategies import BURSTS, CONFIGURATIONS, OPENINGS, SWARMS, restrict

__all__ = ["AllocatorMachine", "MachineReport", "Record", "machine_for", "run_machine"]

Record = Callable[[Configuration, list[Operation], Violation], None]
"""Takes a counterexample. Called for the first violation, for each smaller one, and last for the smallest."""

SHARD = 10
"""Examples a seed. After its first ten, Hypothesis spends five of six examples on copying parts of an earlier one over
others of it, under the same configuration. Measured on 35 planted faults, two searches each: 150 examples a seed missed
9 of 70 (8 s each) and needed 4,100 operations a find; ten a seed missed 4 (6 s each) and needed 2,200."""

Tally = Callable[["AllocatorMachine"], None]


@dataclass(frozen=True, slots=True)
class Binding:
    """What a machine is bound to: see `machine_for`."""

    factory: TargetFactory
    record: Record | None = None
    tally: Tally | None = None
    outside: bool = False
    exact: bool = True
    laws: Callable[[Configuration], Sequence[Law]] | None = None
    passed: frozenset[str] = frozenset()


class AllocatorMachine(RuleBasedStateMachine):
    """One episode on one session. `machine_for` binds it to a target.

    operations: what was applied, the drain's left out. events: the ledger's counts, the drain's left out.
    """

    binding: ClassVar[Binding]

    def __init__(self) -> None:
        super().__init__()
        self.configuration = Configuration()
        self.session: Session | None = None
        self.operations: list[Operation] = []
        self.events: dict[str, int] = {}
        self._passed = False

    @initialize(configuration=CONFIGURATIONS, swarm=SWARMS, opening=OPENINGS)
    def start(self, configuration: Configuration, swarm: Swarm, opening: list[tuple[int, int, int, int]]) -> None:
        binding = self.binding
        target = made(binding.factory, configuration)
        self.configuration = restrict(configuration, target.capabilities)
        if self.configuration is not configuration:
            target = made(binding.factory, self.configuration)
        laws = binding.laws(self.configuration) if binding.laws is not None else ()
        session = self.session = Session(target, outside=binding.outside, exact=binding.exact, laws=laws)
        self._moves = Moves(session, swarm)
        self._run(self._moves.admission, opening)

    @rule(burst=BURSTS)
    def burst(self, burst: list[tuple[int, int, int, int]]) -> None:
        self._run(self._moves.operation, burst)

    def _run(
        self, choose: Callable[[tuple[int, int, int, int]], Operation], moves: list[tuple[int, int, int, int]]
    ) -> None:
        session = self.session
        assert session is not None
        if self._passed:
            return
        try:
            for move in moves:
                operation = choose(move)
                self.operations.append(operation)
                session.apply(operation)
        except Violation as violation:
            if violation.id in self.binding.passed:
                self._passed = True
                return
            self._found(violation)
            raise

    def teardown(self) -> None:
        """Drain, unless the episode was cut short: by a violation, or by Hypothesis, which had no more bytes for it."""
        session = self.session
        if session is None:
            return
        # Before the drain, which makes some of them happen every time.
        self.events = dict(session.judge.events)
        try:
            self.events |= session.noticed()
            if sys.exc_info()[0] is None and not self._passed:
                session.drain()
        except Violation as violation:
            if violation.id in self.binding.passed:
                return
            self._found(violation)
            raise
        finally:
            if self.binding.tally is not None:
                self.binding.tally(self)

    def _found(self, violation: Violation) -> None:
        if self.binding.record is not None:
            self.binding.record(self.configuration, list(self.operations), violation)


def machine_for(
    factory: TargetFactory,
    *,
    record: Record | None = None,
    outside: bool = False,
    exact: bool = True,
    tally: Tally | None = None,
    laws: Callable[[Configuration], Sequence[Law]] | None = None,
    passed: frozenset[str] = frozenset(),
) -> type[AllocatorMachine]:
    """The machine that drives targets made by `factory`, for `run_state_machine_as_test` or as a `TestCase`.

    record: given every counterexample. outside, exact: as for `Session`. laws: more laws for each session (the
    kernels'). tally: given every machine when it is done. passed: properties whose violation ends an episode, and is no
    finding.
    Hypothesis keeps a small entry for each machine class that was ever run. O(1).
    """
    binding = Binding(factory, record, tally, outside, exact, laws, passed)
    return type("AllocatorMachine", (AllocatorMachine,), {"binding": binding})


@dataclass(slots=True)
class MachineReport:
    """What one run of the machine did, shrinking included.

    examples, operations, seconds: machines run, operations applied (done or refused, drains included), time. fewest:
    the least number of operations in any completed machine. events: the ledger, of the judge and of the target, without
    the drains. kinds, refused, skipped: operations by kind, refusals by error, skips by reason. violation: the first
    property found broken, or None; with it the smallest counterexample: `configuration` and `counterexample`. flaky:
    the violation did not come back when Hypothesis tried it again.
    """

    seed: int
    examples: int = 0
    operations: int = 0
    seconds: float = 0.0
    fewest: int = 0
    events: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    violation: Violation | None = None
    configuration: Configuration | None = None
    counterexample: list[Operation] = field(default_factory=list)
    flaky: bool = False


def run_machine(
    factory: TargetFactory,
    chosen: settings,
    seed_number: int,
    record: Record | None = None,
    *,
    outside: bool = False,
    exact: bool = True,
    laws: Callable[[Configuration], Sequence[Law]] | None = None,
    passed: frozenset[str] = frozenset(),
) -> MachineReport:
    """Run the machine under these settings and this seed. Prints nothing; may be called again and again.

    The examples come in shards of `SHARD`, each with a seed derived from `seed_number`; see there for why.

    A violation is reported, not raised; only violations of the same property count from then on, so that shrinking
    keeps it. Whatever else goes wrong is raised. record: given each counterexample as soon as it is found. O(examples *
    steps).
    """
    report = MachineReport(seed_number)

    def keep(configuration: Configuration, operations: list[Operation], violation: Violation) -> None:
        if report.violation is not None and type(violation) is not type(report.violation):
            reject()
        report.violation, report.configuration, report.counterexample = violation, configuration, operations
        if record is not None:
            record(configuration, operations, violation)

    def tally(machine: AllocatorMachine) -> None:
        session = machine.session
        assert session is not None
        report.operations += session.applied
        report.fewest = min(report.fewest, session.applied) if report.examples else session.applied
        report.examples += 1
        for total, counts in (
            (report.events, machine.events),
            (report.kinds, session.kinds),
            (report.refused, session.refused),
            (report.skipped, session.skipped),
        ):
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count

    machine = machine_for(factory, record=keep, tally=tally, outside=outside, exact=exact, laws=laws, passed=passed)
    quiet: dict[str, Any] = {"verbosity": Verbosity.quiet, "print_blob": False, "report_multiple_bugs": False}
    generated = [phase for phase in chosen.phases if phase is not Phase.reuse]
    begun = perf_counter()
    for shard, first in enumerate(range(0, chosen.max_examples, SHARD)):
        # What an earlier run has stored is tried once, not by every shard.
        phases = generated if shard else chosen.phases
        size = min(SHARD, chosen.max_examples - first)
        # The machine is seeded, not the test: that would take the test's database away.
        seed(seed_number << 16 | shard)(machine)
        test = get_state_machine_test(machine, settings=settings(chosen, max_examples=size, phases=phases, **quiet))
        try:
            test()
        except Violation:
            if report.violation is None:
                raise
        except Flaky:
            if report.violation is None:
                raise
            report.flaky = True
        if report.violation is not None:
            break
    report.seconds = perf_counter() - begun
    if report.violation is not None:
        # Neither the frames of the run nor Hypothesis's notes: the counterexample says it all.
        report.violation.with_traceback(None)
        report.violation.__dict__.pop("__notes__", None)
    return report
