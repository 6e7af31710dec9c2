"""GROWTH: the steps of an operation grow with what it touches, and not with the square of it.

For sessions whose requests double in length, from some blocks to hundreds. Where twice the tokens take more than three
times the steps, twice in a row, it is no longer a matter of so much for each block. Steps are calls and lines of
Python: what C does in one of them (a copy of all tokens before each block) is not seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from reference import Growth

from ..target import Capability
from .law import AtWalks, Seen
from .steps import Steps

__all__ = ["Sizes"]

_FACTOR = 3
_LEAST = 2000
"""Steps below which it does not matter."""


class Sizes(AtWalks):
    """It counts from the first walk of a session on."""

    needs: frozenset[Capability] = frozenset()
    excludes: frozenset[Capability] = frozenset()

    def __init__(self) -> None:
        self._begun = False

    def walk(self, seen: Seen, operations: int) -> None:
        if self._begun:
            return
        self._begun = True
        steps = Steps()
        taken: defaultdict[tuple[str, int], int] = defaultdict(int)
        last = 0

        def around(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
            counted = steps.around(act)

            def sized(operation: Any) -> Any:
                nonlocal last
                before = _size(seen, operation)
                outcome = counted(operation)
                last = max(before, _size(seen, operation)) or last  # to complete a step is of its dispatch's size
                key = operation.op, last
                taken[key] = max(taken[key], steps.last)
                first, second, third = (taken.get((operation.op, size), 0) for size in (last // 4, last // 2, last))
                if third > max(_LEAST, _FACTOR * second) and second > _FACTOR * first > 0:
                    raise Growth(
                        f"{operation.op} takes {first}, {second} and {third} steps for {last // 4}, {last // 2} and "
                        f"{last} tokens"
                    )
                return outcome

            return sized

        seen.around(around)


def _size(seen: Seen, operation: Any) -> int:
    """Tokens that the operation names or whose requests it names."""
    live = seen.judge.sequences
    known = [len(live[request].tokens) for request in operation.requests() if request in live]
    return max([len(getattr(operation, "tokens", ())), *known])
