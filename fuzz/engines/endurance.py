"""The engine `endurance`: one core that lives long, for what grows with its age (GROWTH).

An episode of the walk on a small pool, with 100,000 operations instead of some hundred. Nothing in it comes back for
ever, as it does not in production either: each request has a name of its own, and now and then there are other tokens
and another namespace. What a core keeps of each of them is what would grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from properties.moves import Moves, Swarm
from properties.operations import Configuration, Operation
from properties.session import Session
from properties.target import Capability

from ..runs.perform import perform
from ..runs.values import Counterexample
from .engine import Assignment, Engine, with_violation
from .walk import Limits, Walk

__all__ = ["EnduranceEngine"]

_LENGTH = 100_000
_LIMITS = Limits(max_blocks=16, max_block_size=4)
_BEAT = 512
_STAY = 12
"""Requests between two changes of the tokens, and of one of the two namespaces."""


class _Fresh(Moves):
    """Moves whose names, tokens and namespaces do not come back."""

    def __init__(self, session: Session, swarm: Swarm) -> None:
        super().__init__(session, swarm)
        self._names = 0
        self._first = 0

    def new_name(self) -> str:
        self._names += 1
        turn, rest = divmod(self._names, _STAY)
        if not rest:
            self._first = turn * self.swarm.alphabet
            if Capability.NAMESPACES in self.capabilities:
                self.spaces = [self.spaces[-1], (("salt", f"s{turn}"),)]
        return f"r{self._names}"

    def tokens(self, count: int, value: int) -> tuple[int, ...]:
        first = self._first
        return tuple([first + token for token in super().tokens(count, value)])


class EnduranceEngine(Engine):
    """A unit is one core."""

    name = "endurance"
    about = "one core for 100,000 operations: what grows with its age"
    planned = 3.0
    sliced = False
    capability = Capability.FOOTPRINT
    checks = frozenset({"GROWTH"})

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        """What the deadline cuts short is a unit, too."""
        factory, judging, tally = assignment.factory, assignment.judging, assignment.tally
        if not self.fits(factory):
            return None, assignment.first + 1
        seed = f"{assignment.seed}/endurance/{(unit := assignment.first)}"
        walk = Walk(seed, factory(Configuration()).capabilities, _LIMITS, moves=_Fresh)
        walk.length = _LENGTH
        configuration = replace(walk.configuration, num_blocks=max(8, walk.configuration.num_blocks))

        def operations(session: Session) -> Iterator[Operation]:
            for number, operation in enumerate(walk.operations(session)):
                if number % _BEAT == 0:
                    assignment.begin(unit)
                    if assignment.clock() >= assignment.deadline:
                        return
                yield operation

        run = perform(factory, configuration, operations, judging)
        session = run.session
        tally.add(self.name, session.applied, session.kinds, session.refused, session.skipped, run.events)
        assignment.progress()
        if run.violation is None:
            return None, unit + 1
        where = Counterexample(configuration, (), assignment.target, judging=judging, engine=self.name, seed=seed)
        return with_violation(where, run.violation, run.operations, run.at), unit + 1
