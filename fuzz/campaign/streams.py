"""Which range of which stream is hunted next.

Streams (engine x target x configuration) share the time by their parts: the one that is farthest behind its part is
next. A stream's units are numbered; its *lane* says which have been given out, which ranges were cut short, and whether
it is closed: a stream that ends, or that kills its workers, is left alone.

This room may not know: findings, files, the clock. It is told how long things took.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engines.registry import engine_of
from .supervisor import Died
from .worker import Stream, Task, TaskResult

__all__ = ["Lanes", "Range"]

_SLICE = 4.0
"""Seconds of one task, so that progress moves, of an engine whose units are short; others get what they need."""

_DEATHS = 25
"""Deaths after which a stream is left alone; of hangs, each of which costs minutes, fewer."""

_HANGS = 3
_STILLBORN = 3


@dataclass(frozen=True, slots=True)
class Range:
    """Units `first` to `first + count` of `stream`, within `seconds`."""

    stream: Stream
    first: int
    count: int
    seconds: float


@dataclass(slots=True)
class _Lane:
    """A stream's part, what it has had, and what is next. again: ranges that were cut short."""

    stream: Stream
    share: float
    spent: float = 0.0
    following: int = 0
    again: list[tuple[int, int]] = field(default_factory=list)
    last: float = 2.0
    closed: bool = False
    deaths: int = 0
    hangs: int = 0
    stillborn: int = 0

    @property
    def ready(self) -> bool:
        return not self.closed or bool(self.again)


class Lanes:
    """One for each stream, with its part of the time."""

    def __init__(self, streams: Iterable[tuple[Stream, float]]) -> None:
        self._lanes = [_Lane(stream, share) for stream, share in streams]

    @property
    def open(self) -> bool:
        """Is there anything left to hunt?"""
        return any(lane.ready for lane in self._lanes)

    def next(self, left: float) -> Range:
        """What is hunted now, with `left` seconds to go. Only while something is `open`. O(lanes)."""
        lane = min((lane for lane in self._lanes if lane.ready), key=lambda one: one.spent / one.share)
        engine = engine_of(lane.stream.engine)
        if lane.again:
            first, count = lane.again.pop(0)
        else:
            first, count = lane.following, engine.units
            lane.following += count
            if engine.ended(lane.following):
                lane.closed = True
        lane.spent += lane.last  # until it is known
        seconds = min(left, _SLICE) if engine.sliced else left
        return Range(lane.stream, first, count, seconds)

    def done(self, task: Task, result: TaskResult) -> None:
        """A range came to its end, or to the end of its time."""
        lane = self._lane(task.stream)
        lane.spent += result.seconds - lane.last
        lane.last = result.seconds
        lane.closed = lane.closed or result.exhausted
        if result.following < task.first + task.count and not result.exhausted:
            lane.again.insert(0, (result.following, task.first + task.count - result.following))

    def died(self, died: Died) -> str:
        """A worker died of a range; the unit that it was at is not done again. Why the stream is left alone from here
        on, or ""."""
        task = died.task
        lane = self._lane(task.stream)
        lane.spent += died.seconds - lane.last
        if died.unit < 0:  # of loading the target, perhaps, or of nothing that it did
            lane.stillborn += 1
            lane.again.insert(0, (task.first, task.count))
            if lane.stillborn >= _STILLBORN:
                lane.closed, lane.again = True, []
                return f"workers die before they begin with {lane.stream.name}: one {died.how}"
            return ""
        lane.deaths += 1
        lane.hangs += died.how.startswith("hung")
        left = task.first + task.count - died.unit - 1
        if left > 0:
            lane.again.insert(0, (died.unit + 1, left))
        if lane.deaths >= _DEATHS or lane.hangs >= _HANGS:
            lane.closed, lane.again = True, []
            return f"{lane.stream.name} is left alone from here on: {lane.deaths} workers died of it"
        return ""

    def noted(self, running: Iterable[Task]) -> dict[str, Any]:
        """For the journal. What is `running` is to be done again, should this process be killed."""
        hunts = [task for task in running if task.kind == "hunt"]
        streams = {}
        for lane in self._lanes:
            cut = [[task.first, task.count] for task in hunts if task.stream is lane.stream]
            streams[lane.stream.name] = {
                "following": lane.following,
                "seconds": round(lane.spent, 3),
                "closed": lane.closed,
                "again": [*map(list, lane.again), *cut],
            }
        return streams

    def go_on(self, streams: Mapping[str, Any]) -> None:
        """From where `noted` has said that it was."""
        for lane in self._lanes:
            before = streams.get(lane.stream.name)
            if before is not None:
                lane.following, lane.spent, lane.closed = before["following"], before["seconds"], before["closed"]
                lane.again = [(first, count) for first, count in before["again"]]

    def _lane(self, stream: Stream | None) -> _Lane:
        return next(lane for lane in self._lanes if lane.stream == stream)
