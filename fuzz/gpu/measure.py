"""How long a call takes on the device: events, warm-up, medians, cold caches, graphs.

- Every time is a median over rounds. Calls that are compared take turns in the same rounds, so that a drifting clock
  drifts for all of them.
- A short call is captured into a CUDA graph, often enough for a replay of a few milliseconds. Otherwise the launches of
  the host would be timed. A call that cannot be captured is launched behind a spinning kernel, which gives the host a
  lead.
- A cache must not hide the memory. A caller gives several calls on different data, and they run in turn. If they touch
  less than 200 MB together, 256 MB are written before each measurement.

On the CPU it is a wall clock around one call: enough to run through all the code.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Call", "Stopwatch", "Timing"]

Call = Callable[[], object]

_COLD = 200 * 10**6
"""Bytes from which no cache of a GPU holds what it needs."""

_FLUSH = 2**28
_LONG = 5e-3
"""Seconds from which a launch does not matter."""

_REPLAY = 2e-3
"""Seconds that a graph's replay should take."""

_MOST_CALLS = 256
_FEWEST, _MOST = 7, 60
"""Rounds."""

_SPIN = 2_000_000
"""Cycles that the device waits for the host, about a millisecond."""


@dataclass(frozen=True, slots=True)
class Timing:
    """seconds: of one call, the median of `rounds`; low and high: the fastest and the slowest round. how: in words."""

    seconds: float
    low: float
    high: float
    rounds: int
    how: str

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "low": self.low,
            "high": self.high,
            "rounds": self.rounds,
            "how": self.how,
        }


class _Entrant:
    """One unit of measurement: calls in turn, or the graph of them."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.count = len(calls)
        self.graph: Any = None
        self.times: list[tuple[Any, Any]] = []
        self.how = "events"

    def go(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        for call in self.calls:
            call()


class Stopwatch:
    """Times calls on one device.

    seconds: about how long one measurement may take. complaints: sentences about what did not work.
    """

    def __init__(self, device: torch.device, seconds: float = 0.4) -> None:
        self.device = device
        self.seconds = seconds
        self.complaints: list[str] = []
        self._scratch: torch.Tensor | None = None

    def time(self, calls: Sequence[Call], *, working_set: int, graph: bool = True) -> Timing:
        """How long one of `calls` takes. working_set: bytes that one call touches, each other ones. See `race`."""
        return self.race({"": calls}, working_set=working_set, graph=graph)[""]

    def race(
        self, entrants: Mapping[str, Sequence[Call]], *, working_set: int, graph: bool = True
    ) -> dict[str, Timing]:
        """How long a call of each takes, in turns.

        entrants: for each name, calls that do the same on different data. working_set: bytes that each call touches.
        graph: whether they may be captured. An exception of a call passes through. A few times `seconds` for each
        entrant, and compilation.
        """
        if self.device.type != "cuda":
            return {name: self._by_the_wall(calls) for name, calls in entrants.items()}
        running = {name: _Entrant(calls) for name, calls in entrants.items()}
        cold = working_set * min(entrant.count for entrant in running.values()) >= _COLD
        total = 0.0
        for entrant in running.values():
            entrant.go()  # compiles
            torch.cuda.synchronize(self.device)
            each = self._once(entrant) / entrant.count
            if graph and each < _LONG:
                self._capture(entrant, each, repeat=cold)
            total += each * entrant.count
        rounds = min(max(int(self.seconds * len(running) / max(total, 1e-6)), _FEWEST), _MOST)
        for _ in range(rounds):
            for entrant in running.values():
                entrant.times.append(self._record(entrant, flush=not cold))
        torch.cuda.synchronize(self.device)
        result = {}
        for name, entrant in running.items():
            each_round = [start.elapsed_time(end) / 1000 / entrant.count for start, end in entrant.times]
            how = entrant.how if cold else f"{entrant.how}, 256 MB written before"
            result[name] = Timing(statistics.median(each_round), min(each_round), max(each_round), len(each_round), how)
            entrant.graph = None
        return result

    def _by_the_wall(self, calls: Sequence[Call]) -> Timing:
        start = time.perf_counter()
        for call in calls:
            call()
        each = (time.perf_counter() - start) / len(calls)
        return Timing(each, each, each, 1, "wall clock")

    def _once(self, entrant: _Entrant) -> float:
        """Seconds of one run, warm, roughly."""
        start, end = self._record(entrant, flush=False)
        torch.cuda.synchronize(self.device)
        return float(start.elapsed_time(end)) / 1000

    def _record(self, entrant: _Entrant, flush: bool) -> tuple[Any, Any]:
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        if flush:
            if self._scratch is None:
                self._scratch = torch.empty(_FLUSH, dtype=torch.uint8, device=self.device)
            self._scratch.fill_(1)
        if entrant.graph is None:
            spin = getattr(torch.cuda, "_sleep", None)
            if spin is not None:
                spin(_SPIN)
        start.record()
        entrant.go()
        end.record()
        return start, end

    def _capture(self, entrant: _Entrant, each: float, repeat: bool) -> None:
        """Replace the entrant's calls by a graph of them; without one if that does not work."""
        passes = 1
        if repeat:
            wanted = _REPLAY / max(each * entrant.count, 1e-7)
            passes = max(min(round(wanted), _MOST_CALLS // entrant.count), 1)
        try:
            # On another stream first, as torch demands: lazy allocations then happen before the capture.
            make: Any = torch.cuda.Stream
            stream = make(self.device)
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                for call in entrant.calls:
                    call()
            torch.cuda.current_stream(self.device).wait_stream(stream)
            torch.cuda.synchronize(self.device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(passes):
                    for call in entrant.calls:
                        call()
            graph.replay()
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            self.complaints.append(f"no CUDA graph: {str(error).splitlines()[0]}; launched one by one instead")
            torch.cuda.synchronize(self.device)
            return
        entrant.graph = graph
        entrant.count *= passes
        entrant.how = f"events, graph of {entrant.count} calls" if entrant.count > 1 else "events, graph"
