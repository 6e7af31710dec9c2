"""Which block a core with the stated order of blocks has to choose.

With the order "free_first" new blocks come from the free ones in the order in which they became free (at first 0 to
N - 1), then from the cached ones, least recently released first. The other two orders have one queue, `free`, for
both; see `Policy`. The predictor only watches what becomes free, cached and active; it decides nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice

__all__ = ["Predictor"]


class Predictor:
    """The two queues. Every method O(blocks given), and O(free) for a block from the middle of `free`."""

    def __init__(self, blocks: Iterable[int], order: str = "free_first") -> None:
        self.order = order
        self.free = deque(blocks)
        self.cached: OrderedDict[int, None] = OrderedDict()
        self._front: list[int] = []  # released together, to go before all others

    def clone(self) -> Predictor:
        """A copy that shares nothing. O(blocks)."""
        other = Predictor(self.free, self.order)
        other.cached = self.cached.copy()
        return other

    def next(self, count: int) -> list[int]:
        """The next `count` blocks (fewer if there are not so many), without taking them."""
        chosen = list(islice(self.free, count))
        if len(chosen) < count:
            chosen += islice(self.cached, count - len(chosen))
        return chosen

    def taken(self, block: int) -> None:
        """`block` became active."""
        if self.free and self.free[0] == block:
            self.free.popleft()
        elif block in self.cached:
            del self.cached[block]
        elif block in self.free:  # not the predicted one
            self.free.remove(block)

    def released(self, block: int, published: bool) -> None:
        """`block` has no holder any more."""
        if self.order == "unpublished_first" and not published:
            self._front.append(block)
        elif published and self.order == "free_first":
            self.cached[block] = None
        else:
            self.free.append(block)

    def settle(self) -> None:
        """All that one operation releases has been released."""
        if self._front:
            self.free.extendleft(reversed(self._front))
            self._front.clear()

    def refreshed(self, block: int) -> None:
        """A cached block counts as released now."""
        if self.order == "free_first":
            self.cached.move_to_end(block)

    def reset(self) -> None:
        """Nothing is published any more."""
        self.free.extend(self.cached)
        self.cached.clear()
