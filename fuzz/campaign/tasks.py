"""The values that a campaign's tasks are made of: what there is to hunt in, what to do, and what a death at it tells.

Plain and frozen: they go to workers and come back, to whatever machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.walk import Limits
from ..runs.values import Judging

__all__ = ["Died", "LostDevice", "Stream", "Task"]


class LostDevice(Exception):
    """The CUDA context of this process is gone: nothing more can be run in it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A source of units: one engine on one target under one configuration, with a seed of its own.

    configuration: its name. trace: a file for the trace engine; "" for the built-in one. database: where Hypothesis
    keeps what it finds; "" for nowhere.
    """

    target: str
    engine: str
    configuration: str
    seed: str
    judging: Judging = Judging()
    limits: Limits = Limits()
    profile: str = "nightly"
    trace: str = ""
    max_states: int = 3000
    database: str = ""

    @property
    def name(self) -> str:
        return f"{self.engine} on {self.target}" + (f" ({self.configuration})" if self.configuration else "")


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do.

    - hunt: units `first` to `first + count` of `stream`, within `seconds`
    - settle: the hit in `path`, shrinking for at most `seconds`
    - verify: replay `path`, which the baseline or the folder knows
    - interpret: replay `path`, which was found on a device, on the CPU
    - reproduce: unit `first` of `stream`, of which a worker died, with its operations written to `path`
    - reduce: shrink `path`, which takes its process along, for at most `seconds`

    folder: where hits go. number: its own. key: what the task is about, for who gave it out. most: hits that a hunt
    writes down before it ends; 0: it goes on.
    """

    kind: str
    number: int
    stream: Stream | None
    folder: str
    seconds: float
    first: int = 0
    count: int = 1
    path: str = ""
    key: str = ""
    most: int = 0


@dataclass(frozen=True, slots=True)
class Died:
    """A worker died of a task, or had to be ended. how: a sentence's rest, without numbers that change from run to run.
    unit, operations: what it had begun, and how many of this task it had done; unit is -1 if it had begun nothing.
    lost: it went with its machine, which says nothing of the task. said: the last that its process wrote."""

    task: Task
    how: str
    unit: int
    operations: int
    seconds: float
    pid: int
    lost: bool = False
    said: str = ""
