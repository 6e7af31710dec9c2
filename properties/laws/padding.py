"""MAPPING, of a step's arrays with room for more: a captured CUDA graph has a fixed size, and what fills it up must
write nothing and read nothing. Asked at few steps, since it costs as much as an operation: those of 5, 21, 37, ...
rows, and one in 64 steps at most.
"""

from __future__ import annotations

from reference import Mapping, padding_faults

from ..boundary import PADDED, wrong
from ..target import Capability, StepArrays
from .law import AtSteps, Seen

__all__ = ["Padding"]

_EVERY = 64
_ROWS, _FIRST = 16, 5

_ROOM = ((3, 2), (1, 0), (0, 1), (8, 5))
"""Rows and sequences that are added, in turn."""


class Padding(AtSteps):
    needs = frozenset({Capability.BATCH, Capability.PADDING})
    excludes: frozenset[Capability] = frozenset()

    def __init__(self) -> None:
        self._wait = 0
        self._asked = 0

    def after(self, seen: Seen) -> None:
        assert seen.step is not None
        self._wait -= 1
        _, _, arrays, pad = seen.step
        if self._wait > 0 or len(arrays.positions) % _ROWS != _FIRST:
            return
        rows, sequences = _ROOM[self._asked % len(_ROOM)]
        self._wait = _EVERY
        self._asked += 1
        if not callable(pad):
            raise wrong(seen.target, "dispatch", pad, PADDED, "padded")
        padded = seen.see(pad, len(arrays.positions) + rows, len(arrays.context_lengths) + sequences)
        if not isinstance(padded, StepArrays):
            raise wrong(seen.target, "dispatch", padded, "StepArrays", "padded()")
        for fault in padding_faults(arrays, padded, rows, sequences):
            raise Mapping(fault)
