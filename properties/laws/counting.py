"""COUNTERS: what a core counts is what the judge has seen happen. Compared at walks, so after every refusal, too."""

from __future__ import annotations

from reference import Counters
from reference.events import COPY_ON_WRITE, EVICTED
from reference.refusals import NO_ROOM

from ..target import Capability
from .law import AtWalks, Seen

__all__ = ["Counting"]


class Counting(AtWalks):
    """It counts from the beginning of a session, so that a session that is a clone has none."""

    needs = frozenset({Capability.COUNTERS})
    excludes: frozenset[Capability] = frozenset()

    def walk(self, seen: Seen, operations: int) -> None:
        judge, shown = seen.judge, seen.see(seen.target.counters)
        for name, count, right in (
            ("queried tokens", shown.queried, judge.counted.queried),
            ("hit tokens", shown.hit, judge.counted.hit),
            ("evicted blocks", shown.evicted, judge.events.get(EVICTED, 0)),
            ("refusals for want of blocks", shown.refused, sum(seen.refused.get(name, 0) for name in NO_ROOM)),
            ("copied blocks", shown.copied, judge.events.get(COPY_ON_WRITE, 0)),
        ):
            if count is not None and count != right:
                raise Counters(f"the core counts {count} {name}; there were {right}")
