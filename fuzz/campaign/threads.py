"""Threads that targets leave behind: one that is no longer used must have ended its own.

A core may start a few, the first time that it is used. What is at fault is that there are more after every unit.
"""

from __future__ import annotations

import gc
import threading
from time import monotonic, sleep

__all__ = ["Threads", "left"]

_IN_A_ROW = 8
"""Units, one after the other, after each of which there were more threads than ever before."""

_PATIENCE = 0.2
"""Seconds in which a thread that was told to end may do so."""


class Threads:
    """Of this process. O(1) a look."""

    def __init__(self) -> None:
        self._most = threading.active_count()
        self._grown = 0

    def look(self) -> bool:
        """Between two units: do they leave threads behind?"""
        now = threading.active_count()
        if now <= self._most:
            self._grown = 0
            return False
        self._most = now
        self._grown += 1
        return self._grown >= _IN_A_ROW and left(now - _IN_A_ROW) > 0


def left(before: int) -> int:
    """How many threads there are beyond `before`, once those had time to end that are about to."""
    until = monotonic() + _PATIENCE
    while (more := threading.active_count() - before) > 0 and monotonic() < until:
        gc.collect()
        sleep(0.02)
    return max(0, more)
