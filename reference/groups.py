"""Groups of layers: which blocks a query still needs, and which blocks a hit needs.

Each group has block tables of its own, from the one pool. A new kind of group is one more class with these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

__all__ = ["FullAttention", "Group", "SlidingWindow", "group_of"]

Owners = Mapping[int, list[int]]
"""By history: the blocks that it is published in, earliest first."""


class Group(Protocol):
    """What the judge asks of a group of layers."""

    needs_all: ClassVar[bool]
    """Whether every query needs all blocks before it."""

    def first_needed_block(self, position: int) -> int:
        """The first logical block that the query at `position`, or any after it, needs."""
        ...

    def longest_hit(self, histories: Sequence[int], most: int, owners: Owners) -> int:
        """How many blocks can be hit at most, up to `most`. histories: after 0, 1, ... blocks. O(most)."""
        ...

    def hit(self, histories: Sequence[int], length: int, choose: Callable[[int], int]) -> list[int]:
        """The blocks of a hit of `length` blocks that is possible. choose: which block of a history. O(length)."""
        ...


class FullAttention:
    """A query attends to all before it; a hit needs every block."""

    needs_all: ClassVar[bool] = True

    def first_needed_block(self, position: int) -> int:
        return 0

    def longest_hit(self, histories: Sequence[int], most: int, owners: Owners) -> int:
        for length in range(most):
            if histories[length + 1] not in owners:
                return length
        return most

    def hit(self, histories: Sequence[int], length: int, choose: Callable[[int], int]) -> list[int]:
        return [*map(choose, histories[1 : length + 1])]


class SlidingWindow:
    """A query attends to itself and the `window` - 1 positions before it. A hit needs the blocks in the window of the
    first token after it; the reserved block `null` stands for those before them."""

    needs_all: ClassVar[bool] = False

    def __init__(self, window: int, block_size: int, null: int) -> None:
        self.window = window
        self._size = block_size
        self._null = null

    def first_needed_block(self, position: int) -> int:
        return max(0, position + 1 - self.window) // self._size

    def longest_hit(self, histories: Sequence[int], most: int, owners: Owners) -> int:
        while most and not all(history in owners for history in histories[self._first(most) + 1 : most + 1]):
            most -= 1
        return most

    def hit(self, histories: Sequence[int], length: int, choose: Callable[[int], int]) -> list[int]:
        first = self._first(length)
        return [self._null] * first + [*map(choose, histories[first + 1 : length + 1])]

    def _first(self, length: int) -> int:
        """The first block that the token after a hit of `length` blocks needs."""
        return self.first_needed_block(length * self._size)


def group_of(window: int | None, block_size: int, null: int) -> Group:
    """The group whose queries attend to `window` tokens; None for all."""
    return FullAttention() if window is None else SlidingWindow(window, block_size, null)
