"""What engines have done: plain counts, which processes and campaigns add up and summaries show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from properties.ledger import Ledger
from properties.state_coverage import Coverage

__all__ = ["Tally"]


@dataclass
class Tally:
    """What has been done so far, over all engines of a campaign. Plain counts.

    coverage: which blocks each kind of operation met, of one episode in `SAMPLED`. figures: what an engine has to say
    besides counts, by its name, ready for JSON: of its last unit.
    """

    operations: int = 0
    episodes: int = 0
    by_engine: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    coverage: Coverage = field(default_factory=Coverage)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What was done, as a summary says it: how much, by which engine at what rate, and operations by kind."""
        return {
            "operations": self.operations,
            "episodes": self.episodes,
            "engines": {
                engine: {
                    "operations": count,
                    "seconds": round(self.seconds.get(engine, 0.0), 3),
                    "operations_per_second": round(count / self.seconds[engine]) if self.seconds.get(engine) else None,
                }
                for engine, count in self.by_engine.items()
            },
            "kinds": dict(sorted(self.kinds.items())),
            "refused": dict(sorted(self.refused.items())),
            "skipped": dict(sorted(self.skipped.items())),
        }

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
        """Add what `engine` has done. O(counts)."""
        self.operations += operations
        self.episodes += episodes
        self.by_engine[engine] = self.by_engine.get(engine, 0) + operations
        for own, new in ((self.kinds, kinds), (self.refused, refused), (self.skipped, skipped)):
            for name, count in new.items():
                own[name] = own.get(name, 0) + count
        self.ledger.add(events)

    def merge(self, other: Tally) -> None:
        """Add what another process has counted. O(counts)."""
        self.operations += other.operations
        self.episodes += other.episodes
        for own, new in (
            (self.by_engine, other.by_engine),
            (self.kinds, other.kinds),
            (self.refused, other.refused),
            (self.skipped, other.skipped),
        ):
            for name, count in new.items():
                own[name] = own.get(name, 0) + count
        for engine, seconds in other.seconds.items():
            self.seconds[engine] = self.seconds.get(engine, 0.0) + seconds
        self.ledger.add(other.ledger.counts)
        self.coverage.merge(other.coverage)
        self.figures.update(other.figures)
