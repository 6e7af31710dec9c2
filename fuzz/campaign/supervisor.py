"""Worker processes under supervision: one task at a time each, replaced where they die or hang.

    with Workers(2, folder, monotonic, main) as workers:
        workers.submit(task)
        for event in workers.events(0.2): ...      # Done(task, result) or Died(task, how, unit, operations)

A worker that was killed, ran out of memory, lost its device or did not say a word for too long is an event with the
unit that it was at, and the last that its process wrote. What it writes goes to a file, which is kept short. Its place
gets a new process, at once the first time, later and later if they keep dying before they have done anything. What a
process does with its tasks is given as its `main`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ..engines.engine import Clock
from ..runs.output import Output
from ..runs.processes import WHERE, ended
from .executor import BACK_OFF, Done
from .spool import Spool, output_of
from .tasks import Died, Task

__all__ = ["Main", "Workers"]

Main = Callable[[Any, str, int, str], None]
"""What a process does: with its connection, its spool, the bytes that it may write to, and its device."""


_SAYING = 0.3
"""Seconds in which a process that hangs may say where."""

_ASLEEP = 5.0
"""Seconds between two looks after which this process must have been stopped meanwhile."""

_RENEWED = 400
"""Tasks after which a process is replaced by a new one: libraries keep a little of everything that they ever ran, and a
night is long."""


@dataclass(slots=True)
class _Place:
    """One worker's place: its process, if there is one, and what that is doing."""

    number: int
    spool: Path
    device: str
    process: BaseProcess | None = None
    connection: Connection | None = None
    task: Task | None = None
    since: float = 0.0
    word: tuple[int, ...] = ()
    spoken: float = 0.0
    deaths: int = 0
    done: int = 0
    not_before: float = 0.0
    output: Output = field(init=False)

    def __post_init__(self) -> None:
        self.output = Output(output_of(self.spool))


class Workers:
    """`count` processes on this machine. memory: bytes that each may write to, 0 for no limit. hang: seconds without a
    word after which one is ended. devices: a value of CUDA_VISIBLE_DEVICES for each; then `count` is theirs."""

    def __init__(
        self,
        count: int,
        folder: Path,
        clock: Clock,
        main: Main,
        *,
        memory: int = 0,
        hang: float = 120.0,
        devices: Sequence[str] = (),
        renewed: int = _RENEWED,
    ) -> None:
        self._clock = clock
        self._main = main
        self._memory = memory
        self._hang = hang
        self._renewed = renewed
        self._context = multiprocessing.get_context("spawn")
        self._places = [
            _Place(number, folder / f"worker-{number}.json", devices[number] if devices else "")
            for number in range(len(devices) or count)
        ]
        self._busy = 0.0
        self._looked = clock()

    def __enter__(self) -> Workers:
        for place in self._places:
            self._start(place)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def busy(self) -> float:
        """Seconds that workers have spent on tasks, all together."""
        now = self._clock()
        return self._busy + sum(now - place.since for place in self._places if place.task is not None)

    def pids(self) -> list[int]:
        """Of the living."""
        return [
            place.process.pid
            for place in self._places
            if place.process is not None and place.process.is_alive() and place.process.pid is not None
        ]

    def deaths(self) -> int:
        """The least number of processes in a row that any place has seen die before they had begun anything."""
        return min(place.deaths for place in self._places)

    def idle(self) -> int:
        """How many tasks can be submitted now. Starts processes whose time has come."""
        now = self._clock()
        for place in self._places:
            if (
                place.process is not None
                and place.connection is not None
                and place.task is None
                and place.done >= self._renewed
            ):
                with suppress(OSError):
                    place.connection.send(None)
                place.connection.close()
                place.process.join(1.0)
                place.process.kill()
                place.process = place.connection = None
            if place.process is None and now >= place.not_before:
                self._start(place)
        return sum(place.process is not None and place.task is None for place in self._places)

    def running(self) -> list[Task]:
        return [place.task for place in self._places if place.task is not None]

    def under_way(self) -> list[tuple[Task, int]]:
        """The running tasks, and the operations that they have done so far."""
        found = []
        for place in self._places:
            if place.task is not None:
                word = Spool.read(place.spool)
                found.append((place.task, word["operations"] if word.get("task") == place.task.number else 0))
        return found

    def submit(self, task: Task) -> None:
        """Give it to an idle worker; there must be one."""
        place = next(place for place in self._places if place.process is not None and place.task is None)
        assert place.connection is not None
        place.task, place.since = task, self._clock()
        place.word, place.spoken = self._word(place), place.since
        with suppress(OSError):  # it is dead; `events` will notice
            place.connection.send(task)

    def events(self, timeout: float) -> list[Done | Died]:
        """What has happened since; waits for something for at most `timeout` seconds."""
        busy = [place for place in self._places if place.process is not None and place.connection is not None]
        ready = set(
            wait(
                [place.connection for place in busy if place.connection is not None]
                + [place.process.sentinel for place in busy if place.process is not None],
                timeout,
            )
        )
        found: list[Done | Died] = []
        now = self._clock()
        if now - self._looked > max(_ASLEEP, 2 * timeout):
            for place in busy:
                place.spoken = now  # this process was stopped, and perhaps all of them: nobody could say a word
        self._looked = now
        for place in busy:
            place.output.look()
        for place in busy:
            assert place.process is not None and place.connection is not None
            result = None
            if place.connection in ready:
                with suppress(EOFError, OSError):
                    result = place.connection.recv()
            if result is not None and place.task is not None:
                self._busy += now - place.since
                found.append(Done(place.task, result))
                place.task, place.deaths = None, 0
                place.done += 1
                continue
            if not place.process.is_alive():
                place.process.join()
                found += self._bury(place, ended(place.process.exitcode))
            elif place.task is not None:
                word = self._word(place)
                if word != place.word or _stopped(place.process.pid or 0):
                    place.word, place.spoken = word, now
                elif now - place.spoken > self._hang:
                    with suppress(OSError):
                        os.kill(place.process.pid or 0, WHERE)
                    place.process.join(_SAYING)
                    place.process.kill()
                    place.process.join()
                    found += self._bury(place, f"hung: not a word for {self._hang:g} seconds")
        return found

    def close(self, patience: float = 0.0) -> None:
        """End all: the idle at once, the others after `patience` seconds."""
        for place in self._places:
            if place.connection is not None:
                with suppress(OSError):
                    place.connection.send(None)
        for place in self._places:
            if place.process is None:
                continue
            place.process.join(0.5 if place.task is None else patience)
            if place.process.is_alive():
                place.process.kill()
                place.process.join()
            if place.task is not None:
                self._busy += self._clock() - place.since
            if place.connection is not None:
                place.connection.close()
            place.output.look()
            place.process = place.connection = place.task = None

    def _start(self, place: _Place) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=self._main, args=(theirs, str(place.spool), self._memory, place.device), daemon=True
        )
        # A Ctrl-C while the child still imports would end it with a traceback: it is the main process that decides.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        place.process, place.connection, place.task, place.done = process, ours, None, 0

    def _word(self, place: _Place) -> tuple[int, ...]:
        word = Spool.read(place.spool)
        return (word.get("task", -1), word.get("unit", -1), word.get("beat", -1))

    def _bury(self, place: _Place, how: str) -> list[Died]:
        """Its process is dead."""
        task, word = place.task, Spool.read(place.spool)
        assert place.process is not None and place.connection is not None
        pid = place.process.pid or 0
        place.connection.close()
        place.process = place.connection = place.task = None
        begun = task is not None and word.get("task") == task.number
        place.deaths = 0 if begun else place.deaths + 1  # to die of what one is at is no failure of the harness
        place.not_before = self._clock() + BACK_OFF[min(place.deaths, len(BACK_OFF) - 1)]
        if task is None:
            return []
        spent = self._clock() - place.since
        self._busy += spent
        unit, operations = (word["unit"], word["operations"]) if begun else (-1, 0)
        return [Died(task, how, unit, operations, spent, pid, said=place.output.last_words())]


def _stopped(process: int) -> bool:
    """Has somebody stopped it (SIGSTOP), so that it cannot say a word? On Linux; elsewhere nobody knows."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"
