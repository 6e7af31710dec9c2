"""Which range of which stream is hunted next.

Streams (engine x target x configuration) share the time by their parts: the one that is farthest behind its part is
next. A stream's units are numbered. Its *progress* says which have been given out, which ranges were cut short, and
whether it is closed: a stream that ends, or that kills its workers, is left alone.

Nothing here reads a clock: `Streams` is told how long things took.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..engines.registry import engine_of
from .executor import TaskResult
from .plan import CampaignPlan, Variant
from .tasks import Died, Stream, Task

__all__ = ["Range", "Streams", "outside_of", "streams_of"]

_SLICE = 4.0
"""Seconds of one task, so that progress moves, of an engine whose units are short; others get what they need."""

_LEAST = 0.1
"""Seconds that a turn has at least, however small the stream's part is and however little time is left."""

_DEATHS = 25
"""Deaths after which a stream is left alone; of hangs, each of which costs minutes, fewer."""

_HANGS = 3
_STILLBORN = 3


def streams_of(plan: CampaignPlan) -> list[tuple[Stream, float]]:
    """Each engine on each target under each configuration, and its part of the time. An engine that runs once does
    so under the first configuration; those that run on kernels are left out where there are none.

    A stream's seed is the plan's, target and configuration: "7/kvcore/blind". A configuration without a name adds
    nothing: the seed is the plan's own, and a run on one core does the same operations as on another.
    """
    found = []
    for target in plan.targets:
        for variant in plan.configurations:
            for engine, share in plan.engines.items():
                first, kind = variant is plan.configurations[0], engine_of(engine)
                if share <= 0 or (kind.kernels and not plan.kernels) or (kind.once and not first):
                    continue
                found.append(
                    (
                        Stream(
                            target,
                            engine,
                            variant.name,
                            f"{plan.seed}/{target}/{variant.name}" if variant.name else plan.seed,
                            variant.judging(plan.kernels if kind.kernels else ""),
                            variant.limits(),
                            plan.profile,
                            plan.trace,
                            plan.max_states,
                            plan.database,
                        ),
                        share * variant.share,
                    )
                )
    return found


_OUTSIDE = Variant("outside", outside=True, exact=False)


def outside_of(plan: CampaignPlan, inspected: Collection[str]) -> list[tuple[Stream, float]]:
    """What is hunted besides once something has been found, or where not every property counts: the plan's engines
    that draw operations, judged from outside, on those of its targets that can be inspected. A wrong count or a wrong
    index ends every episode that meets it; what harm it does shows only where nobody looks at it.

    None if the plan judges something from outside anyhow. A stream's seed is "7/kvcore/outside", whenever it begins."""
    if any(variant.outside or variant.name == _OUTSIDE.name for variant in plan.configurations):
        return []
    engines = {name: share for name, share in plan.engines.items() if engine_of(name).audited}
    targets = tuple(target for target in plan.targets if target in inspected)
    streams = streams_of(replace(plan, targets=targets, engines=engines, configurations=(_OUTSIDE,)))
    return [(stream, share) for stream, share in streams if not stream.judging.kernels]


@dataclass(frozen=True, slots=True)
class Range:
    """Units `first` to `first + count` of `stream`, within `seconds`."""

    stream: Stream
    first: int
    count: int
    seconds: float


@dataclass(slots=True)
class _Progress:
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


class Streams:
    """All streams of a campaign, each with its part of the time.

    round: seconds in which each stream is to have one turn, of its part. That is for one worker alone, which has to
    take turns; with 0 every turn has the same few seconds.
    """

    def __init__(self, streams: Iterable[tuple[Stream, float]], round: float = 0.0) -> None:
        self._streams = [_Progress(stream, share) for stream, share in streams]
        self._round = round
        self._shares = sum(one.share for one in self._streams) or 1.0

    def add(self, streams: Iterable[tuple[Stream, float]]) -> None:
        """More of them, from now on: none is owed the time of before. Those that it has stay as they are."""
        streams = [one for one in streams if all(one[0] != known.stream for known in self._streams)]
        level = min((one.spent / one.share for one in self._streams if one.ready), default=0.0)
        new = [_Progress(stream, share, spent=level * share) for stream, share in streams]
        self._streams += new
        self._shares += sum(one.share for one in new)

    @property
    def open(self) -> bool:
        """Is there anything left to hunt?"""
        return any(one.ready for one in self._streams)

    @property
    def waiting(self) -> set[str]:
        """Engines that have something left to hunt."""
        return {one.stream.engine for one in self._streams if one.ready}

    def next(self, left: float) -> Range:
        """What is hunted now, with `left` seconds to go. Only while something is `open`. O(streams)."""
        one = min((one for one in self._streams if one.ready), key=lambda each: each.spent / each.share)
        engine = engine_of(one.stream.engine)
        if one.again:
            first, count = one.again.pop(0)
        else:
            first, count = one.following, engine.units
            one.following += count
            if engine.ended(one.following):
                one.closed = True
        one.spent += one.last  # until it is known
        if not engine.sliced:
            return Range(one.stream, first, count, max(left, _LEAST))
        turn = min(_SLICE, self._round * one.share / self._shares) if self._round else _SLICE
        return Range(one.stream, first, count, max(min(left, turn), _LEAST))

    def done(self, task: Task, result: TaskResult) -> None:
        """A range came to its end, or to the end of its time."""
        one = self._of(task.stream)
        one.spent += result.seconds - one.last
        one.last = result.seconds
        one.closed = one.closed or result.exhausted
        if result.following < task.first + task.count and not result.exhausted:
            one.again.insert(0, (result.following, task.first + task.count - result.following))

    def died(self, died: Died) -> str:
        """A worker died of a range; the unit that it was at is not done again. Why the stream is left alone from here
        on, or ""."""
        task = died.task
        one = self._of(task.stream)
        one.spent += died.seconds - one.last
        if died.unit < 0:  # of loading the target, perhaps, or of nothing that it did
            one.stillborn += 1
            one.again.insert(0, (task.first, task.count))
            if one.stillborn >= _STILLBORN:
                one.closed, one.again = True, []
                return f"workers die before they begin with {one.stream.name}: one {died.how}"
            return ""
        one.deaths += 1
        one.hangs += died.how.startswith("hung")
        left = task.first + task.count - died.unit - 1
        if left > 0:
            one.again.insert(0, (died.unit + 1, left))
        if one.deaths >= _DEATHS or one.hangs >= _HANGS:
            one.closed, one.again = True, []
            return f"{one.stream.name} is left alone from here on: {one.deaths} workers died of it"
        return ""

    def noted(self, running: Iterable[Task]) -> dict[str, Any]:
        """For the journal. What is `running` is to be done again, should this process be killed."""
        hunts = [task for task in running if task.kind == "hunt"]
        streams = {}
        for one in self._streams:
            cut = [[task.first, task.count] for task in hunts if task.stream is one.stream]
            streams[one.stream.name] = {
                "following": one.following,
                "seconds": round(one.spent, 3),
                "closed": one.closed,
                "again": [*map(list, one.again), *cut],
            }
        return streams

    def go_on(self, streams: Mapping[str, Any]) -> None:
        """From where `noted` has said that it was."""
        for one in self._streams:
            before = streams.get(one.stream.name)
            if before is not None:
                one.following, one.spent, one.closed = before["following"], before["seconds"], before["closed"]
                one.again = [(first, count) for first, count in before["again"]]

    def _of(self, stream: Stream | None) -> _Progress:
        return next(one for one in self._streams if one.stream == stream)
