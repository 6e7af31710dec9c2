"""The engine `explore`: small spaces, each explored in full or up to a bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from properties.operations import Configuration
from properties.target import Capability

from ..explore.search import Plan, explore
from ..explore.space import Space
from ..runs.status import INTERRUPTED
from ..runs.values import Counterexample
from .engine import SCRATCH, Assignment, Engine

__all__ = ["ExploreEngine", "spaces"]


def spaces() -> Iterator[Space]:
    """Small spaces to explore, each of another shape. The same list for everybody."""
    for blocks, size in ((1, 1), (2, 1), (1, 2), (3, 1), (2, 2), (4, 1), (3, 2), (2, 3)):
        for bits in (128, 0):
            for reuse in ("last_block", "last_token"):
                yield Space(
                    Configuration(num_blocks=blocks, block_size=size, hash_bits=bits, reuse=reuse),
                    max_tokens=min(blocks * size, 3),
                )


_SPACES = tuple(spaces())


class ExploreEngine(Engine):
    """A unit is a space, as far as its bound or the deadline lets it."""

    name = "explore"
    about = "small spaces in full, breadth first"
    planned = 10.0
    total = len(_SPACES)
    sliced = False
    capability = Capability.CLONE

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        unit = assignment.first
        assignment.begin(unit)
        if self.ended(unit) or not self.fits(assignment.factory):
            return None, self.total
        ended = False

        def clock() -> float:
            nonlocal ended
            assignment.begin(unit)
            now = assignment.clock()
            if now > assignment.deadline and not ended:
                ended = True
                raise KeyboardInterrupt  # how an exploration is told to end
            return now

        # In the campaign's own folder, which clears what a process leaves that is killed here.
        folder = assignment.folder
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=SCRATCH, dir=folder) as states:
            plan = Plan(
                assignment.target,
                _SPACES[unit],
                Path(states),
                assignment.judging,
                max_states=assignment.max_states,
                memory=0,
            )
            explored = explore(plan, assignment.factory, clock, lambda *_: None)
        assignment.tally.add(self.name, explored.transitions, explored.kinds, explored.refused, {}, explored.events)
        assignment.progress()
        if explored.status == INTERRUPTED and not ended:
            raise KeyboardInterrupt
        found = explored.counterexample
        return found and replace(found, seed=f"space {unit}"), unit + 1
