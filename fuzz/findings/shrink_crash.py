"""Shrinks what takes its process along: each candidate runs in a process forked for it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from properties.target import TargetFactory

from ..runs.forked import Deaths, forked
from ..runs.values import Counterexample
from .shrink import shrink

__all__ = ["shrunk_crash"]


def shrunk_crash(
    found: Counterexample, factory: TargetFactory, seconds: float, beat: Callable[[], None], replays: int
) -> tuple[Counterexample, int, bool] | None:
    """(the fewest operations that still end the process as `found` does, in how many of `replays` they do, whether
    shrinking came to its end); None if `found` itself does not. Not for processes with a device. A fork, some
    milliseconds, for each candidate."""
    beat()
    status, begun, _ = forked(factory, found.configuration, found.operations, found.judging, strict=True, drain=True)
    if not status or not begun:
        return None
    deaths = Deaths(status, found.message)
    shrunk = shrink(
        found,
        factory,
        clock=monotonic,
        seconds=seconds,
        episodes=0,
        progress=lambda *_: beat(),
        perform=deaths,
    )
    best, count = shrunk.counterexample, 0
    for _ in range(replays):
        run = deaths(factory, best.configuration, best.operations, best.judging, strict=True)
        count += run.violation is not None
        beat()
    return best, count, shrunk.finished
