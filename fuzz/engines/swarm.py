"""The engine `walk`: episodes of the swarm walk, for volume."""

from __future__ import annotations

from properties.boundary import made
from properties.operations import Configuration
from properties.state_coverage import SAMPLED

from ..runs.perform import perform
from ..runs.values import Counterexample
from .engine import Assignment, Engine, with_violation
from .walk import Walk

__all__ = ["WalkEngine", "walked"]


class WalkEngine(Engine):
    """A unit is an episode."""

    name = "walk"
    about = "a seeded random walk over operations, for volume"
    share = 50.0
    planned = 60.0
    units = 512
    thorough = True
    audited = 16

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        return walked(assignment, self.name)


def walked(assignment: Assignment, engine: str) -> tuple[Counterexample | None, int]:
    """Episodes `first`, `first` + 1, ... of the seed until the deadline, or so many: what `Engine.hunt` returns, found
    by `engine`. O(operations)."""
    factory, judging, tally = assignment.factory, assignment.judging, assignment.tally
    clock, deadline, seed, limits = assignment.clock, assignment.deadline, assignment.seed, assignment.limits
    begin, last = assignment.begin, assignment.last
    capabilities = made(factory, Configuration()).capabilities
    if judging.kernels:
        capabilities = judging.session(factory, Configuration()).capabilities
    number = assignment.first
    while clock() < deadline and number < last:
        begin(number)
        walk = Walk(f"{seed}/{number}", capabilities, limits)
        watch = tally.coverage.watch() if number % SAMPLED == 0 else None
        run = perform(factory, walk.configuration, walk.operations, judging, watch=watch)
        session = run.session
        tally.add(engine, session.applied, session.kinds, session.refused, session.skipped, run.events)
        number += 1
        if run.violation is not None:
            where = Counterexample(
                walk.configuration,
                (),
                assignment.target,
                judging=judging,
                engine=engine,
                seed=f"{seed}/{number - 1}",
            )
            return with_violation(where, run.violation, run.operations, run.at), number
        if number % 16 == 0:
            assignment.progress()
    return None, number
