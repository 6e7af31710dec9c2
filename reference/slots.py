"""The slot oracle: what every slot of the pool was last written with.

For each block it remembers the history before the block and the tokens written into it, in the order of the stream:
copies and writes take effect when a step is dispatched, since later steps may read what earlier ones write. Whole
blocks are kept as blocks; a slot's full history is the history before its block and the block's tokens up to it.

A block keeps what was written until it is overwritten, whoever owns it by then: that is how a real pool behaves, and
why a stale read gives somebody else's tokens and not an error.

Who may read or write is asked in `stream`, not here.
"""

from __future__ import annotations

from array import array

__all__ = ["Slots"]


class Slots:
    """Contents of all slots. Every method is O(the part of the block it touches)."""

    def __init__(self, num_blocks: int) -> None:
        self._before = [-1] * num_blocks
        self._tokens: list[array[int]] = [array("i") for _ in range(num_blocks)]

    def clone(self) -> Slots:
        """A copy that shares nothing. O(slots written)."""
        other = Slots(0)
        other._before = self._before.copy()
        other._tokens = [own[:] for own in self._tokens]
        return other

    def write(self, block: int, offset: int, before: int, tokens: array[int]) -> None:
        """Slots `offset` and on of `block` now hold `tokens`, after the history `before` and what is in slots below."""
        if offset == 0:
            self._before[block] = before
            self._tokens[block] = tokens
        else:
            own = self._tokens[block]
            own[offset : offset + len(tokens)] = tokens

    def copy(self, source: int, destination: int) -> None:
        self._before[destination] = self._before[source]
        self._tokens[destination] = self._tokens[source][:]

    def rename(self, block: int, before: int) -> None:
        """The history before what is written in `block` turns out to be `before`, since a placeholder got its name."""
        self._before[block] = before

    def name(self, block: int, offset: int, token: int) -> None:
        """The placeholder written there turns out to be `token`."""
        if offset < len(self._tokens[block]):
            self._tokens[block][offset] = token

    def holds(self, block: int, before: int, tokens: array[int]) -> bool:
        """Whether the first slots of `block` hold exactly `tokens` after the history `before`."""
        if self._before[block] != before:
            return False
        own = self._tokens[block]
        return own == tokens if len(own) == len(tokens) else own[: len(tokens)] == tokens

    def content(self, block: int) -> tuple[int, array[int]]:
        """(history before the block or -1, tokens in its slots from the first on)."""
        return self._before[block], self._tokens[block]
