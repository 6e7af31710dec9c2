"""GROWTH: what the core holds, and the steps of its operations, do not grow with its age.

Both are sampled at walks of a long session, once the pool has been used over and over. What is bounded goes up and down
between bounds. What grows without a bound is in the end always above what it ever was in the beginning. So the least of
the last third of the samples is compared with the most of the first. Of the steps a sample is the operation that took
most, among some; not each sample has one of the kind that grows, so half of the last third must be above.

Nothing is measured by the clock. What a core holds is what its target says (`footprint`), and a step is a call or a
line of Python outside of this harness. A short session, of less than some thousand operations, is not sampled.
"""

from __future__ import annotations

from reference import Growth

from ..target import Capability
from .law import AtWalks, Seen
from .steps import Steps

__all__ = ["Growing"]

_WARM = 4096
"""Operations before the first sample; and more for each block of a large pool."""

_WARM_BLOCK = 64
_EVERY = 256
_SAMPLES = 48
"""From so many on they are compared."""

_WINDOW = 32
"""Operations whose steps are counted for one sample."""

_ENTRIES, _ENTRIES_BLOCK = 64, 8
"""By how much the footprint may seem to grow: what one request more or less makes."""

_STEPS, _FACTOR = 64, 1.5
"""The same for the steps of an operation."""


class Growing(AtWalks):
    """It samples from the beginning of a session, so that a session that is a clone has none."""

    needs = frozenset({Capability.FOOTPRINT})
    excludes: frozenset[Capability] = frozenset()

    def __init__(self) -> None:
        self._operations = 0
        self._next = _WARM
        self._sizes: list[int] = []
        self._steps: list[int] = []
        self._window: Steps | None = None

    def walk(self, seen: Seen, operations: int) -> None:
        self._operations += operations
        if self._operations < self._next:
            if self._window is not None and self._window.operations >= _WINDOW:
                self._close(seen, self._window)
            return
        blocks = seen.judge.blocks.num_blocks
        if self._operations < blocks * _WARM_BLOCK:
            self._next = blocks * _WARM_BLOCK
            return
        self._next = self._operations + max(_EVERY, 4 * blocks)
        self._sizes.append(seen.see(seen.target.footprint))
        before, after = _ends(self._sizes)
        if after > before + _ENTRIES + _ENTRIES_BLOCK * blocks:
            raise Growth(
                f"after {self._operations} operations the core holds at least {after} entries, and at first it held at "
                f"most {before}; the pool has {blocks} blocks"
            )
        if self._window is None:
            self._window = Steps()
            seen.around(self._window.around)

    def _close(self, seen: Seen, window: Steps) -> None:
        seen.around(None)
        self._window = None
        self._steps.append(window.most)
        before, after = _ends(self._steps, part=0.5)
        if after > _FACTOR * before + _STEPS:
            raise Growth(
                f"after {self._operations} operations one of {_WINDOW} takes the core {after} steps or more, half the "
                f"time; at first none took more than {before}"
            )


def _ends(samples: list[int], part: float = 1.0) -> tuple[int, int]:
    """The most of the first third, and what at least this part of the last third reaches; 0 while there are too few.
    O(samples)."""
    if len(samples) < _SAMPLES:
        return 0, 0
    third = len(samples) // 3
    return max(samples[:third]), sorted(samples[-third:], reverse=True)[int(part * third) - 1]
