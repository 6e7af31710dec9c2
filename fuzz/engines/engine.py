"""What an engine is: it turns a seed and a time budget into checked operations and, with luck, a counterexample.

An engine is a class in a file of its own, and one line of `registry.ENGINES`. Plans, workers, the command line and the
audit ask it for what they need to know; none of them knows it by name. What it needs to hunt comes as one value, an
`Assignment`. Its work is a function of the seed and of the units' numbers; the clock only says when to stop.

What a module of this kind needs beyond the standard library (Hypothesis, Atheris, torch) it imports when it hunts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from properties.boundary import made
from properties.operations import Configuration, Operation
from properties.target import Capability, TargetFactory
from reference import Violation

from ..runs.values import Counterexample, Judging, versions
from .tally import Tally
from .walk import Limits

__all__ = ["SCRATCH", "Assignment", "Clock", "Engine", "with_violation"]

Clock = Callable[[], float]

SCRATCH = "explore-"
"""How a folder in an assignment's folder begins that is needed only while the assignment runs: whoever finds one that
nobody works on may delete it. Called after the engine that was the first to need one."""


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an engine hunts with. Seconds are those of `clock`.

    target: the factory's name, as counterexamples give it. seed: of the engine's own stream. first, count: which units;
    count is None for as many as there is time for.

    begin: called with the number of each unit before it is run, and within long ones now and then. progress: called
    when something has been added to `tally`. warn: given a sentence about what the engine does without. also: given
    what was found besides what `hunt` returns.

    limits, profile, trace (a file; "" for the built-in one), max_states, database ("" for none) and variant (the name
    of the configuration) are a plan's. folder: for files while the assignment runs. kept: for what a later one on the
    same target goes on with.
    """

    factory: TargetFactory
    target: str
    seed: str
    judging: Judging
    tally: Tally
    clock: Clock
    deadline: float
    first: int = 0
    count: int | None = None
    begin: Callable[[int], None] = _nothing
    progress: Callable[[], None] = _nothing
    warn: Callable[[str], None] = _nothing
    also: Callable[[Counterexample], None] = _nothing
    limits: Limits = Limits()
    profile: str = "nightly"
    trace: str = ""
    max_states: int = 3000
    database: str = ""
    variant: str = "all"
    folder: Path = Path()
    kept: Path = Path()

    @property
    def last(self) -> float:
        """The first unit that is not the assignment's; infinity if there is none."""
        return float("inf") if self.count is None else self.first + self.count


class Engine(ABC):
    """One engine. An object of it keeps nothing between two calls.

    about: one line of help. share: its part of the time in a run that names no engine. planned: its part in a plan that
    names none. Both are 0 for engines that run only where they are named.

    units: of one task: a few seconds on a quiet machine, so that progress moves and ends come on time. total: units in
    all; None: there is no end. sliced: a unit is short, so that turns of a few seconds are enough; otherwise one gets
    all the time that is left.

    extra: the optional extra that has the package which it needs; "" for none. package: that, if its name is another.
    capability: what a target must have; None for nothing. kernels: it needs `judging.kernels`. reads_trace: it reads
    the file `trace`.

    thorough: it draws every kind of operation, so that what it never meets in long runs is a fault of the harness.
    checks: properties that only it and engines that name them too can check.
    audited: units after which an audit looks at its limit; 0 for engines that hunt no bugs of the zoo.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    share: ClassVar[float] = 0.0
    planned: ClassVar[float] = 0.0
    units: ClassVar[int] = 1
    total: ClassVar[int | None] = None
    sliced: ClassVar[bool] = True
    extra: ClassVar[str] = ""
    package: ClassVar[str] = ""
    capability: ClassVar[Capability | None] = None
    kernels: ClassVar[bool] = False
    reads_trace: ClassVar[bool] = False
    thorough: ClassVar[bool] = False
    checks: ClassVar[frozenset[str]] = frozenset()
    audited: ClassVar[int] = 0

    @property
    def once(self) -> bool:
        """Does it run once a target, whatever the configurations and the time?"""
        return self.total == 1

    @abstractmethod
    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        """Do units up to the first violation, the deadline, or the last: (the counterexample or None, the number of the
        next unit). The seed of the counterexample says where it comes from. Raises what the harness itself does wrong.
        """

    def recall(self, assignment: Assignment) -> Counterexample | None:
        """A counterexample that earlier campaigns have left, if the engine keeps any. For once a process."""
        return None

    def ended(self, following: int) -> bool:
        """Is there nothing left to do when unit `following` is next?"""
        return self.total is not None and following >= self.total

    def fits(self, factory: TargetFactory) -> bool:
        """Can it do anything with this target?"""
        return self.capability is None or self.capability in made(factory, Configuration()).capabilities

    def missing(self) -> str:
        """What has to be installed for it, as a sentence; "" for nothing."""
        if not self.extra or find_spec(self.package or self.extra) is not None:
            return ""
        return f"the engine {self.name} needs an extra: pip install 'kvcore[{self.extra}]'"


def with_violation(
    where: Counterexample, violation: Violation, operations: Sequence[Operation], at: int | None
) -> Counterexample:
    """`where` something was found, with what: the operations, and which of them breaks the property."""
    return replace(
        where,
        operations=tuple(operations),
        property_id=violation.id,
        message=violation.message,
        traceback=violation.traceback,
        at=at,
        versions=versions(),
    )
