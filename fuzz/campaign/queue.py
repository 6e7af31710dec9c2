"""A campaign's tasks: their numbers, those that wait, and those that workers are at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .tasks import Stream, Task

__all__ = ["Queue"]


class Queue:
    """What is to be done besides hunting, and what is being done. folder: where tasks write their hits.

    first: hits of kinds that are not known yet, and what the baseline knows. rest: hits of known kinds. lost: their
    machine went; to be given out once more. number: the last task's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.number = 0
        self.first: list[Task] = []
        self.rest: list[Task] = []
        self.lost: list[Task] = []
        self._lost_once: set[int] = set()
        self._running: dict[int, tuple[Task, int]] = {}

    def make(self, kind: str, stream: Stream | None, *, seconds: float = 0.0, **options: Any) -> Task:
        """A task with a number of its own, which nobody has been given yet."""
        self.number += 1
        return Task(kind, self.number, stream, self._folder, seconds, **options)

    @property
    def running(self) -> list[Task]:
        """What workers are at, and what is `lost`."""
        return [task for task, _ in self._running.values()]

    def given(self, task: Task, operations: int) -> None:
        """A worker has it. operations: how many had been done in all by then."""
        self._running[task.number] = task, operations

    def back(self, task: Task) -> int:
        """It came back, one way or the other. Returns the operations that `given` was told."""
        return self._running.pop(task.number, (task, 0))[1]

    def lose(self, task: Task, operations: int) -> bool:
        """Its machine went: it is put among the `lost`. False if that has happened to it before: then it may be the
        task's own doing."""
        if task.number in self._lost_once:
            return False
        self._lost_once.add(task.number)
        self.lost.append(task)
        self.given(task, operations)
        return True
