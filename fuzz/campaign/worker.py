"""A worker: does tasks, one after the other, in whatever process it is made; and the executors of this machine, in
which workers work.

`hunt`, `settle` and `recording` say what each kind of task does. A task is a function of its values and of files that
it names, so that any executor can run it anywhere.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from properties.targets import load

from ..runs.output import print_to
from ..runs.processes import LOST_DEVICE, NO_DISK, OUT_OF_MEMORY, THREADS_LEFT, follow_parent, limit_memory, say_where
from ..runs.recording import recording
from . import settle
from .executor import Executor, Making, TaskResult
from .hunt import Hunter
from .plan import CampaignPlan
from .spool import Says, Spool, output_of
from .supervisor import Workers
from .tasks import LostDevice, Task
from .threads import left

__all__ = ["Worker", "executor_of", "main", "perform_task", "supervised"]


class Worker:
    """Does tasks in this process. device: what the process was given; "" for none."""

    def __init__(self, device: str = "") -> None:
        self._hunter = Hunter(device)
        self._do: dict[str, Callable[[Task, TaskResult, Says], None]] = {
            "hunt": self._hunter.hunt,
            "settle": settle.settle_task,
            "verify": settle.verify,
            "interpret": settle.interpret,
            "reduce": settle.reduce,
            "reproduce": self._reproduce,
        }

    def perform(self, task: Task, says: Says | None = None, result: TaskResult | None = None) -> TaskResult:
        """Do it. Raises LostDevice and MemoryError; what else goes wrong is in the result's `error`. says: told of
        every unit. result: filled as the task goes on, for who wants what there was of a task that is interrupted."""
        result = result or TaskResult(task, following=task.first)
        began, cpu = monotonic(), process_time()
        try:
            self._do[task.kind](task, result, says or Spool(None))
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:
            if _lost(error):
                raise LostDevice(f"{type(error).__name__}: {error}") from error
            result.error = traceback.format_exc(limit=-8)
        result.seconds, result.cpu = monotonic() - began, process_time() - cpu
        return result

    def _reproduce(self, task: Task, result: TaskResult, says: Says) -> None:
        """Do one unit again, writing down every operation before it is applied. If it leaves threads behind, that ends
        it."""
        assert task.stream is not None
        before = threading.active_count()
        with recording(Path(task.path), load(task.stream.target)) as factory:
            stream = replace(task.stream, database="")  # which is not the unit's doing
            self._hunter.hunt(replace(task, kind="hunt", count=1, stream=stream), result, says, factory)
        if left(before):
            os._exit(THREADS_LEFT)


def perform_task(task: Task, says: Says | None = None) -> TaskResult:
    """Do one task as a process does its first. Raises LostDevice and MemoryError."""
    return Worker().perform(task, says)


def _lost(error: BaseException | None) -> bool:
    """Has a CUDA error ended what this process can do?"""
    while error is not None:
        if type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def main(connection: Any, spool: str, memory: int, device: str) -> None:
    """A worker process: takes tasks from `connection` and gives results until there are no more."""
    follow_parent()
    print_to(output_of(Path(spool)))
    say_where()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if device:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    limit_memory(memory)
    process = os.getpid()
    worker = Worker(f"CUDA device {device}" if device else "")
    try:
        says = Spool(Path(spool))
    except OSError:  # ours, and no fault of any target
        os._exit(NO_DISK)
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        if task is None:
            return
        try:
            result = worker.perform(task, says)
            if os.getpid() != process:
                os._exit(0)  # the target has forked, and this is the other one
            connection.send(result)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except LostDevice as error:
            print(f"worker: {error}", file=sys.stderr)
            os._exit(LOST_DEVICE)
        except (BrokenPipeError, ConnectionResetError):
            return


def supervised(
    folder: Path, count: int = 1, *, memory: int = 0, hang: float = 120.0, devices: Sequence[str] = ()
) -> Workers:
    """Worker processes on this machine, under supervision, that have begun."""
    return Workers(count, folder, monotonic, main, memory=memory, hang=hang, devices=devices).__enter__()


def executor_of(plan: CampaignPlan) -> Making:
    """What a plan runs on where it is of this machine: worker processes."""

    def make(spool: Path) -> Executor:
        return supervised(spool, plan.processes, memory=plan.memory, hang=plan.hang, devices=plan.devices)

    return make
