"""What a campaign asks of whatever runs its tasks, and what it is given back.

`supervisor` and `cluster` each have an executor: worker processes here, and actors on a Ray. There is none in this
process, on purpose: what a target does to its process must not happen to the one whose exit status people act on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..engines.tally import Tally
from ..findings.signature import Signature, Symptom
from ..runs.replayed import Replayed
from ..runs.values import Counterexample
from .tasks import Died, Task

__all__ = ["BACK_OFF", "REPLAYS", "Done", "Executor", "ExecutorLost", "Hit", "Making", "Settled", "TaskResult"]

BACK_OFF = (0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before a place's next process, by how many in a row have died before they finished a task."""

REPLAYS = 3
"""How often what was found is tried again."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One violation. key: its first signature, judged strictly. unit: -1 for what a database had. path: where it is; ""
    if it was only counted, or if it could not be written: then `inline` is the counterexample and `error` says why.
    """

    key: Signature
    message: str
    unit: int
    operations: int
    path: str = ""
    inline: Counterexample | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a hit turned out to be. replays: how many of `tried` broke the property again. state: the run up to the
    violation, with the blocks, as text. finished: shrinking came to its end. harm: something worse that it leads to.
    """

    counterexample: Counterexample
    symptom: Symptom
    replays: int
    tried: int
    found: Counterexample
    state: str
    finished: bool
    harm: Counterexample | None = None


@dataclass(slots=True)
class TaskResult:
    """What came of a task. following: the first unit that was not done. interpreted: what became of a replay without
    the device. fails: which property a replay broke, "" for none; shows: the signature of that. error: a traceback, if
    the harness failed. warnings: sentences about what it had to do without."""

    task: Task
    tally: Tally = field(default_factory=Tally)
    following: int = 0
    hits: list[Hit] = field(default_factory=list)
    settled: Settled | None = None
    interpreted: Replayed | None = None
    fails: str | None = None
    shows: Signature | None = None
    exhausted: bool = False
    seconds: float = 0.0
    cpu: float = 0.0
    error: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """A task came to its end."""

    task: Task
    result: TaskResult


class ExecutorLost(Exception):
    """Nothing will run tasks any more. Says why."""


class Executor(Protocol):
    """What runs tasks. Any method may raise ExecutorLost."""

    def idle(self) -> int:
        """How many tasks can be submitted now."""

    def busy(self) -> float:
        """Seconds that have been spent on tasks, of all workers together."""

    def deaths(self) -> int:
        """The least number of processes in a row that any worker's place has seen die before they had begun."""

    def running(self) -> list[Task]:
        """Tasks that were submitted and have not come back."""

    def under_way(self) -> list[tuple[Task, int]]:
        """Of the running tasks that can be asked: the operations that they have done so far."""

    def submit(self, task: Task) -> None:
        """Begin with it. Only while something is idle."""

    def events(self, timeout: float) -> Sequence[Done | Died]:
        """What has happened since; waits for something for at most `timeout` seconds."""

    def close(self, patience: float = 0.0) -> None:
        """End all: the idle at once, the others after `patience` seconds."""


Making = Callable[[Path], Executor]
"""Makes an executor. The path is a folder in which its processes say what they are at."""
