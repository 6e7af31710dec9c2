"""Processes that expand states. With one, this process does it.

Every worker loads the target by its name. One that is done gets the next chunk; answers come in order.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet

from properties.targets import load

from ..runs.processes import follow_parent
from ..runs.values import Judging
from .expand import Expander, Expansion, Task
from .space import Space

__all__ = ["CHUNK", "Clock", "Workers"]

Clock = Callable[[], float]

CHUNK = 32
"""States handed to a worker at a time. The same whatever the number of workers, so that the figures are, too."""


class Workers:
    """Expands chunks, in this process or in several, and gives the answers in order."""

    def __init__(
        self, count: int, target: str, space: Space, judging: Judging, drain: bool, expander: Expander, clock: Clock
    ) -> None:
        """`expander` is this process's own; each of `count`, if there are several, makes itself one like it."""
        self._count = count
        self._begin = (target, space, judging, drain)
        self._expander = expander
        self._clock = clock
        self._pool: ProcessPoolExecutor | None = None
        self.drains_only = False

    def __enter__(self) -> Workers:
        if self._count > 1:
            self._pool = ProcessPoolExecutor(
                self._count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=self._begin,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def expand(self, chunks: Iterator[tuple[int, list[Task]]], total: int) -> Iterator[tuple[int, Expansion]]:
        """(first state, what came of the chunk), in order."""
        if self._pool is None or total <= CHUNK:
            for start, tasks in chunks:
                self._clock()
                yield start, self._expander.expand(tasks, self.drains_only)
            return
        waiting: deque[tuple[int, Future[Expansion]]] = deque()
        ahead = 4 * self._count
        try:
            while True:
                while len(waiting) < ahead and (chunk := next(chunks, None)) is not None:
                    start, tasks = chunk
                    waiting.append((start, self._pool.submit(_expand, tasks, self.drains_only)))
                if not waiting:
                    return
                start, future = waiting.popleft()
                yield start, self._wait(future)
        finally:
            for _, future in waiting:
                future.cancel()

    def _wait(self, future: Future[Expansion]) -> Expansion:
        while True:
            self._clock()  # where an interruption is raised
            try:
                return future.result(timeout=0.2)
            except NotYet:
                if future.done():
                    raise


_expanders: list[Expander] = []
"""The one of a worker process."""


def _begin(target: str, space: Space, judging: Judging, drain: bool) -> None:
    follow_parent()
    _expanders.append(Expander(load(target), space, judging, drain))


def _expand(tasks: list[Task], drains_only: bool) -> Expansion:
    return _expanders[0].expand(tasks, drains_only)
