"""The engine `endurance`: one core that lives long, for what grows with its age, and one with ever longer requests, for
what grows with the square of them (GROWTH).

An episode of the walk on a small pool, with 100,000 operations instead of some hundred. Nothing in it comes back for
ever, as it does not in production either: each request has a name of its own, and now and then there are other tokens
and another namespace. What a core keeps of each of them is what would grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from properties.moves import Moves, Swarm
from properties.operations import (
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fork,
    Free,
    Lookup,
    Operation,
    Truncate,
)
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


_BLOCKS = 512
_SIZES = (4, 8, 16, 32, 64, 128, 256)
"""Blocks of a prompt."""


def _longer(session: Session) -> Iterator[Operation]:
    """Short requests until the state has been compared for the first time, then each twice as long as the last."""
    size, limit = session.judge.policy.block_size, session.judge.max_tokens
    capabilities = session.capabilities
    # All blocks are used first, so that whatever is taken later has had other content.
    yield Allocate("all", tuple(range(limit)))
    yield Dispatch(1, (("all", limit),))
    yield Complete(1)
    yield Free("all")
    step = 1
    for number, blocks in enumerate((*(1,) * 12, *_SIZES), 1):
        prompt = tuple(range(number << 20, (number << 20) + blocks * size))
        if len(prompt) > limit // 2:
            break
        if Capability.LOOKUP in capabilities:
            yield Lookup(prompt)
        for name in ("cold", "warm"):
            yield Allocate(name, prompt)
            step += 1
            yield Dispatch(step, ((name, len(prompt) - session.judge.sequences[name].scheduled),))
            yield Complete(step)
            if Capability.FORK in capabilities:
                yield Fork(name, "child")
                yield Append("child", (0,))
                yield Free("child")
            if name == "cold":
                yield Free(name)
        yield Append("warm", prompt)
        if Capability.TRUNCATE in capabilities and session.judge.policy.truncates == "tokens":
            yield Truncate("warm", len(prompt))
            yield Append("warm", prompt)
        step += 1
        yield Dispatch(step, (("warm", len(prompt)),))
        yield Complete(step)
        yield Free("warm")


class EnduranceEngine(Engine):
    """A unit is one core. The first is the one with ever longer requests."""

    name = "endurance"
    about = "one core for 100,000 operations: what grows with its age, or with the square of a request"
    planned = 3.0
    sliced = False
    capability = Capability.FOOTPRINT
    checks = frozenset({"GROWTH"})

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        """What the deadline cuts short is a unit, too."""
        unit, factory = assignment.first, assignment.factory
        if not self.fits(factory):
            return None, unit + 1
        seed = f"{assignment.seed}/endurance/{unit}"
        if unit == 0:
            configuration = Configuration(num_blocks=_BLOCKS, block_size=2)
            operations: Callable[[Session], Iterator[Operation]] = _longer
        else:
            walk = Walk(seed, factory(Configuration()).capabilities, _LIMITS, moves=_Fresh)
            walk.length = _LENGTH
            configuration = replace(walk.configuration, num_blocks=max(8, walk.configuration.num_blocks))
            operations = walk.operations
        judging = replace(assignment.judging, sizes=unit == 0)

        def until(session: Session) -> Iterator[Operation]:
            for number, operation in enumerate(operations(session)):
                if number % _BEAT == 0:
                    assignment.begin(unit)
                    if assignment.clock() >= assignment.deadline:
                        return
                yield operation

        run = perform(factory, configuration, until, judging)
        session, tally = run.session, assignment.tally
        tally.add(self.name, session.applied, session.kinds, session.refused, session.skipped, run.events)
        assignment.progress()
        if run.violation is None:
            return None, unit + 1
        where = Counterexample(configuration, (), assignment.target, judging=judging, engine=self.name, seed=seed)
        return with_violation(where, run.violation, run.operations, run.at), unit + 1
