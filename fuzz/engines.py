"""Engines: what turns a seed and a time budget into checked operations and, with luck, a counterexample.

Each engine adds to a `Tally` as it goes and returns at the first violation or at its deadline; the campaign decides what to
do next. An engine's work is a function of its seed; the clock only says when to stop.

This room may not know: files, terminals, any core. Hypothesis is imported only when its engine is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from properties.ledger import Ledger
from properties.target import TargetFactory

from .counterexample import Counterexample, versions
from .run import Judging, perform
from .walk import Limits, Walk

__all__ = ["Clock", "Tally", "swarm"]

Clock = Callable[[], float]


@dataclass
class Tally:
    """What has been done so far, over all engines of a campaign. Plain counts."""

    operations: int = 0
    episodes: int = 0
    by_engine: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)

    def add(
        self,
        engine: str,
        operations: int,
        kinds: Mapping[str, int],
        refused: Mapping[str, int],
        skipped: Mapping[str, int],
        events: Mapping[str, int],
        episodes: int = 1,
    ) -> None:
        self.operations += operations
        self.episodes += episodes
        self.by_engine[engine] = self.by_engine.get(engine, 0) + operations
        for own, new in ((self.kinds, kinds), (self.refused, refused), (self.skipped, skipped)):
            for name, count in new.items():
                own[name] = own.get(name, 0) + count
        self.ledger.add(events)


def swarm(
    factory: TargetFactory,
    target: str,
    seed: str,
    judging: Judging,
    tally: Tally,
    *,
    clock: Clock,
    deadline: float,
    first: int = 0,
    episodes: int | None = None,
    progress: Callable[[], None] | None = None,
    limits: Limits = Limits(),
) -> tuple[Counterexample | None, int]:
    """Episodes `first`, `first` + 1, ... of `seed` until `deadline` (or so many `episodes`).

    Returns (the counterexample or None, the number of the next episode).
    """
    from properties.operations import Configuration

    capabilities = factory(Configuration()).capabilities
    number = first
    last = None if episodes is None else first + episodes
    while clock() < deadline and (last is None or number < last):
        walk = Walk(f"{seed}/{number}", capabilities, limits)
        run = perform(factory, walk.configuration, walk.operations, judging)
        session = run.session
        tally.add("walk", session.applied, session.kinds, session.refused, session.skipped, run.events)
        number += 1
        if run.violation is not None:
            found = Counterexample(
                configuration=walk.configuration,
                operations=tuple(run.operations),
                target=target,
                property_id=run.violation.id,
                message=run.violation.message,
                at=run.at,
                judging=judging,
                engine="walk",
                seed=f"{seed}/{number - 1}",
                versions=versions(),
            )
            return found, number
        if progress is not None and number % 16 == 0:
            progress()
    return None, number
