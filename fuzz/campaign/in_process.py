"""The executor in this process: one task at a time, with no process beside it.

So breakpoints and coverage work, and what a target prints or breaks is seen at once. What kills a process kills the
campaign, too; for that there are worker processes (`supervisor.Workers`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from .executor import Done, ExecutorLost, TaskResult
from .spool import Says
from .tasks import Died, LostDevice, Task

__all__ = ["InProcess"]


class InProcess:
    """An `Executor`. alive: called with the task's operations so far, as often as the task begins with something; it
    shows progress, and may raise KeyboardInterrupt. perform: does a task and fills the result (`Worker.perform`).

    `events` performs the task and returns when it has ended. If it was interrupted, what a hunt has done until then is
    handed over first, and the KeyboardInterrupt is raised at the next call of any method.
    """

    def __init__(self, alive: Callable[[int], None], perform: Callable[[Task, Says, TaskResult], object]) -> None:
        self._alive = alive
        self._task: Task | None = None
        self._busy = 0.0
        self._interrupted = False
        self._perform = perform

    def idle(self) -> int:
        self._raise()
        return int(self._task is None)

    def busy(self) -> float:
        return self._busy

    def deaths(self) -> int:
        return 0

    def running(self) -> list[Task]:
        return [] if self._task is None else [self._task]

    def submit(self, task: Task) -> None:
        self._task = task

    def events(self, timeout: float) -> list[Done | Died]:
        self._raise()
        task = self._task
        if task is None:
            sleep(timeout)
            return []
        began, result = monotonic(), TaskResult(task, following=task.first)
        try:
            self._perform(task, self, result)
        except (LostDevice, MemoryError) as error:
            raise ExecutorLost(f"{type(error).__name__} in this process ({task.kind}): {error}") from error
        except KeyboardInterrupt:
            if task.kind != "hunt":
                raise
            self._interrupted = True
            result.seconds = monotonic() - began
        finally:
            self._busy += monotonic() - began
        self._task = None
        return [Done(task, result)]

    def close(self, patience: float = 0.0) -> None:
        self._task = None

    def say(self, task: int, unit: int, operations: int) -> None:
        """Where a worker would write down what it is at. Raises KeyboardInterrupt."""
        try:
            self._alive(operations)
        except KeyboardInterrupt:
            # Who is told may take it for its own (an exploration ends by it); then it is raised afterwards.
            self._interrupted = True
            raise

    def _raise(self) -> None:
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt
