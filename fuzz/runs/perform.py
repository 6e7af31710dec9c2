"""Performs one run: a configuration and a list of operations on a fresh target. Replay, shrinking and engines share it.

torch and Triton are imported only when a judging asks for kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from properties.operations import Configuration, Operation
from properties.session import Outcome, Session
from properties.target import TargetFactory
from reference import Violation

from .values import Judging

__all__ = ["LONG", "Judging", "Run", "perform"]


LONG = 2000
"""A longer run is repeated strictly only if it must be: that costs ten times as much."""


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
        run.events = {**session.judge.events, **session.noticed()}
        drained = True
        if drain:
            session.drain(act)
    except Violation as violation:
        run.violation = violation
        run.at = len(outcomes)
        if not drained:
            run.events = dict(session.judge.events)
            with suppress(Violation):
                run.events |= session.noticed()
    return run
