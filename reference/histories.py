"""Histories as numbers: interned, so that "the same whole history" is one comparison.

A history is a namespace, or a history followed by a full block of tokens. Exact by construction: a dictionary from
(history, tokens) to the next number, no hashing of our own, nothing ever dropped.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable

__all__ = ["Histories"]


_TOLD = 16
"""Tokens of a history that are told, the last ones."""


class Histories:
    """Interns histories. `extend` and `root` are O(block); memory O(distinct blocks of tokens ever seen)."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._parents: list[int] = []
        self._parts: list[Hashable] = []

    def root(self, namespace: Hashable) -> int:
        """The empty history of a namespace."""
        return self._intern(-1, namespace)

    def extend(self, history: int, tokens: bytes) -> int:
        """`history` followed by one block of tokens (int32 bytes)."""
        return self._intern(history, tokens)

    def along(self, tokens: array[int], namespace: Hashable, size: int) -> list[int]:
        """The histories after 0, 1, ... full blocks of `size` tokens. O(tokens)."""
        history = self.root(namespace)
        histories = [history]
        for start in range(0, len(tokens) - size + 1, size):
            history = self._intern(history, tokens[start : start + size].tobytes())
            histories.append(history)
        return histories

    def parent(self, history: int) -> int:
        return self._parents[history]

    def describe(self, history: int) -> tuple[Hashable, tuple[int, ...]]:
        """(namespace, all tokens). O(tokens)."""
        pieces = []
        while self._parents[history] >= 0:
            pieces.append(self._parts[history])
            history = self._parents[history]
        tokens: array[int] = array("i")
        for piece in reversed(pieces):
            assert isinstance(piece, bytes)
            tokens.frombytes(piece)
        return self._parts[history], tuple(tokens)

    def told(self, history: int) -> str:
        """What comes before something, as the rest of a sentence; "" for the beginning of the default namespace."""
        if history < 0:
            return ", after nothing that was written"
        namespace, tokens = self.describe(history)
        text = f", after {list(tokens[-_TOLD:])}" + (f" ({len(tokens)} tokens)" if len(tokens) > _TOLD else "")
        return text + (f" in namespace {namespace}" if namespace else "")

    def _intern(self, parent: int, part: Hashable) -> int:
        number = self._numbers.get((parent, part))
        if number is None:
            number = self._numbers[parent, part] = len(self._parents)
            self._parents.append(parent)
            self._parts.append(part)
        return number
