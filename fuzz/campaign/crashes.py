"""What workers die of: the unit that one was at is done again, with its operations written down, and becomes a finding.

Of deaths alike, the first few are looked at and the others counted. Each is a hit on disk before anything else, though
as yet without its operations: the seed and the unit give them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from reference import Crash

from ..findings.signature import Symptom, signature_of
from ..findings.store import Finding
from ..runs.processes import FROM_OUTSIDE
from ..runs.recording import operations_in
from ..runs.replayed import FATAL
from ..runs.values import Counterexample, versions
from .executor import REPLAYS
from .folder import Folder, forget
from .queue import Queue
from .tasks import Died, Stream, Task

__all__ = ["Crashes"]

_REPRODUCED = 2
"""Deaths alike whose operations are looked for; later ones are counted."""


@dataclass(slots=True)
class _Death:
    """A unit that a worker died of. file: where its operations are written down. hit: what stands for it until then.
    said: the last that its process printed. died, tried: how many attempts ended like it, and how many there were.
    hits: of this and of those alike."""

    stream: Stream
    unit: int
    how: str
    file: Path
    hit: Path
    died: int = 0
    tried: int = 0
    hits: int = 1
    said: str = ""

    @property
    def reproduced(self) -> Path:
        """The operations of an attempt that ended like it."""
        return self.file.with_suffix(".died")


class Files(Protocol):
    """Keeps findings (`triage.Triage`)."""

    def file(
        self,
        symptom: Symptom,
        counterexample: Counterexample,
        found: Counterexample,
        *,
        replays: str,
        hits: int,
        after: int,
    ) -> Finding | None: ...

    def hit_again(self, finding: Finding) -> None: ...

    def without_device(self, finding: Finding) -> None: ...

    def reduce(self, finding: Finding) -> None: ...


class Crashes:
    """The crashes of one campaign, and their reproduction. hang: as in its plan. devices: its workers'. filed: told of
    each new finding."""

    def __init__(
        self,
        findings: Files,
        folder: Folder,
        queue: Queue,
        hang: float,
        devices: Sequence[str],
        filed: Callable[[Finding, bool], None],
    ) -> None:
        self._findings = findings
        self._folder = folder
        self._queue = queue
        self._hang = hang
        self._devices = devices
        self._filed = filed
        self._waiting: list[_Death] = []
        self._under_way: dict[int, _Death] = {}  # by task
        self._alike: dict[tuple[str, str, str], list[_Death | Finding]] = {}

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def next(self) -> Task:
        """The first that is waiting. One at a time of each death: the next is begun when this one has
        ended."""
        death = self._waiting.pop(0)
        seconds = 2 * self._hang
        task = self._queue.make("reproduce", death.stream, first=death.unit, seconds=seconds, path=str(death.file))
        self._under_way[task.number] = death
        return task

    def died(self, died: Died) -> None:
        """A worker died of a hunt."""
        task = died.task
        assert task.stream is not None
        unit = max(died.unit, task.first)
        alike = self._alike.setdefault((task.stream.target, task.stream.engine, died.how), [])
        if len(alike) < _REPRODUCED:
            hit = self._folder.hits / f"{Crash.id}-death-{task.number}-{unit}.json"
            self._folder.save_hit(recorded(Path(os.devnull), task.stream, unit, f"{FATAL}{died.how}"), hit)
            file = self._folder.spool / f"reproduce-{task.number}.jsonl"
            death = _Death(task.stream, unit, died.how, file, hit, said=died.said)
            alike.append(death)
            self._waiting.append(death)
            return
        first = alike[0]
        if isinstance(first, Finding):
            self._findings.hit_again(first)
        else:
            first.hits += 1

    def done(self, task: Task, how: str, after: int) -> None:
        """An attempt has ended; how: what its worker died of, "" if it did not. after: operations so far."""
        death = self._under_way.pop(task.number)
        death.tried += 1
        death.died += how == death.how
        if how == death.how and death.file.exists():  # it may have died before it could begin
            shutil.copyfile(death.file, death.reproduced)
        if death.tried < REPLAYS:
            self._waiting.insert(0, death)
        else:
            self._file(death, after)

    def end(self, after: int) -> None:
        """What is known of those that there was no time for is kept."""
        for death in (*self._waiting, *self._under_way.values()):
            self._file(death, after)

    def _file(self, death: _Death, after: int) -> None:
        """What is known of a death, as a finding. If somebody else may have made it, and nothing that the target does
        makes it again, it is none."""
        if not death.died and death.how in FROM_OUTSIDE:
            for alike in self._alike.values():
                alike[:] = [one for one in alike if one is not death]
            self._forget(death)
            return
        devices = self._devices
        message = f"{FATAL}{death.how}"
        found = recorded(death.reproduced if death.died else death.file, death.stream, death.unit, message)
        found = replace(found, traceback=death.said)
        if devices:
            found = replace(found, device=f"one of the CUDA devices {', '.join(devices)}")
        if not death.died:
            # All that the unit did; which operation it was is not known.
            found = replace(found, at=None, note="the worker's process died once, and not when the unit was run again")
        signature = signature_of(found)
        if not death.died:
            signature = replace(signature, operation="unknown")
        finding = self._findings.file(
            Symptom(signature),
            found,
            found,
            replays=f"{death.died} of {death.tried}" if death.tried else "not replayed",
            hits=death.hits,
            after=after,
        )
        if finding is not None:
            if finding.hits == death.hits:
                self._filed(finding, True)
            self._findings.without_device(finding)
            # What dies every time is shrunk in forked processes; what hangs would cost seconds for each of hundreds.
            sure = death.died == REPLAYS and finding.counterexample == found and len(found.operations) > 1
            if sure and not devices and not death.how.startswith("hung"):
                self._findings.reduce(finding)
            for alike in self._alike.values():
                alike[:] = [finding if one is death else one for one in alike]
        self._forget(death)

    @staticmethod
    def _forget(death: _Death) -> None:
        forget(death.hit)
        forget(death.file)
        forget(death.reproduced)


def recorded(path: Path, stream: Stream, unit: int, message: str) -> Counterexample:
    """What the process was doing when it died: the operations in `path`, the last of them at fault, if there is one."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    configuration, operations = operations_in(text)
    return Counterexample(
        configuration,
        tuple(operations),
        stream.target,
        property_id=Crash.id,
        message=message,
        at=max(0, len(operations) - 1),
        judging=stream.judging,
        engine=stream.engine,
        seed=f"{stream.seed}/{unit}",
        versions=versions(),
    )
