"""Performs one run: a configuration and a list of operations on a fresh target. Replay, shrinking and engines share it.

torch and Triton are imported only when a judging asks for kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from properties.laws import Law
from properties.operations import Configuration, Operation
from properties.session import Outcome, Session
from properties.target import TargetFactory
from properties.targets import load_kernels
from reference import Violation

__all__ = ["LONG", "Judging", "Run", "kernel_laws", "perform"]


LONG = 2000
"""A longer run is repeated strictly only if it must be: that costs ten times as much."""


@functools.cache
def kernel_laws(name: str) -> Callable[[Configuration], Sequence[Law]]:
    """The laws that run a session's steps on the kernels called `name`. Raises UnknownTarget."""
    from properties.attention.interpret import prepare

    prepare()
    from properties.attention.law import kernel_laws as laws

    return laws(load_kernels(name)())


@dataclass(frozen=True, slots=True)
class Judging:
    """How to judge.

    outside: as if the core could not be inspected. exact: predict choices of blocks where possible. kernels: also run
    each step on these kernels (a name for `properties.targets.load_kernels`); needs torch and Triton.
    """

    outside: bool = False
    exact: bool = True
    kernels: str = ""

    def session(self, factory: TargetFactory, configuration: Configuration, strict: bool = False) -> Session:
        """`strict` compares everything after every operation, which names the operation at fault, at ten times the
        cost.
        """
        target = factory(configuration)
        every = {"walk_every": 1, "contents_every": 1, "check_every": 1} if strict else {}
        laws = kernel_laws(self.kernels)(configuration) if self.kernels else ()
        return Session(target, outside=self.outside, exact=self.exact, laws=laws, **every)


@dataclass(slots=True)
class Run:
    """What happened: the session, the operations that were applied (including the drain phase), and their outcomes.

    `at` is the index of the operation that broke the property; len(operations) if the state after all of them does.
    events: the judge's counts before the drain phase.
    """

    session: Session
    operations: list[Operation] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    violation: Violation | None = None
    at: int = -1
    events: dict[str, int] = field(default_factory=dict)


def perform(
    factory: TargetFactory,
    configuration: Configuration,
    operations: Iterable[Operation] | Callable[[Session], Iterable[Operation]],
    judging: Judging = Judging(),
    *,
    strict: bool = False,
    drain: bool = True,
    watch: Callable[[Run, Operation], None] | None = None,
) -> Run:
    """Apply `operations` (or what they yield for the session) to a fresh target, then drain it. Stops at a violation.

    `watch` is called before each operation. An exception that is not a Violation is a failure of the harness and
    passes through."""
    session = judging.session(factory, configuration, strict)
    run = Run(session)
    recorded, outcomes, apply = run.operations, run.outcomes, session.apply

    def act(operation: Operation) -> None:
        if watch is not None:
            watch(run, operation)
        recorded.append(operation)
        outcomes.append(apply(operation))

    drained = False
    try:
        for operation in operations(session) if callable(operations) else operations:
            act(operation)
        run.events = {**session.judge.events, **session.target.noticed()}
        drained = True
        if drain:
            session.drain(act)
    except Violation as violation:
        run.violation = violation
        run.at = len(outcomes)
        if not drained:
            run.events = {**session.judge.events, **session.target.noticed()}
    return run
