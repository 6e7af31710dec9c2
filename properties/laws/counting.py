"""COUNTERS: what a core counts is what the judge has seen happen. A refused operation counts as refused, and as nothing
else; since counters only grow, that shows at the next comparison, too."""

from __future__ import annotations

from reference import Counters
from reference.events import COPY_ON_WRITE, EVICTED
from reference.refusals import NEVER_FITS, OUT_OF_BLOCKS

from ..boundary import counted
from ..target import Capability, Counts
from .law import AtWalks, Seen

__all__ = ["Counting"]


class Counting(AtWalks):
    """every: operations between two comparisons, at least. It counts from the beginning of a session, so that a session
    that is a clone has none."""

    needs = frozenset({Capability.COUNTERS})
    excludes: frozenset[Capability] = frozenset()

    def __init__(self, every: int) -> None:
        self._every = every
        self._since = 0

    def walk(self, seen: Seen, operations: int) -> None:
        self._since += operations
        if self._since < self._every:
            return
        self._since = 0
        judge, refused = seen.judge, seen.refused
        right = Counts(
            judge.counted.queried,
            judge.counted.hit,
            judge.events.get(EVICTED, 0),
            refused.get(OUT_OF_BLOCKS, 0) + refused.get(NEVER_FITS, 0),
            judge.events.get(COPY_ON_WRITE, 0),
        )
        shown = seen.see(seen.target.counters)
        if shown == right:
            return
        for name, count, due in zip(_NAMES, counted(seen.target, shown), right, strict=True):
            if count is not None and count != due:
                raise Counters(f"the core counts {count} {name}; there were {due}")


_NAMES = (
    "queried tokens",
    "hit tokens",
    "evicted blocks",
    "refusals for want of blocks",
    "copied blocks",
)
"""Of the fields of `Counts`, in their order."""
