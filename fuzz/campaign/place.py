"""A worker's place on a machine of a Ray cluster: what runs there (`cluster` is what runs here).

A place is an actor with *one supervised process on its own machine*, and a folder for what that reads and writes: files
come along with tasks and go back with answers, and no storage is shared.

Also imports: ray.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import sleep

from ..runs.values import Counterexample
from .executor import Done, Executor
from .spool import Spool, unsettled
from .tasks import Died, Task

__all__ = ["Answer", "Here", "Place", "fetched"]


@dataclass(frozen=True, slots=True)
class Here:
    """Where an actor is."""

    node: str
    folder: str
    pid: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a task, with what it left. hits: by the name of their file. written: of an recording, its file."""

    event: Done | Died
    hits: Mapping[str, Counterexample] = field(default_factory=dict)
    written: str | None = None


class Place:
    """An actor: one supervised process, and a folder of its own. Plain Python, which Ray makes an actor of."""

    def __init__(self, make: Callable[[Path], Executor]) -> None:
        # A process that is spawned imports its parent's main module: here one of Ray's, which takes a second.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._folder = Path(tempfile.mkdtemp(prefix="kv-worker-"))
        self._workers = make(self._folder)

    def here(self) -> Here:
        import ray

        return Here(ray.get_runtime_context().get_node_id(), str(self._folder), os.getpid())

    def perform(self, task: Task, sent: str | None) -> Answer:
        """Do the task, of which `sent` is the file that it reads. Ends when its process has done it, or died of it."""
        local = localized(task, self._folder, sent)
        while not self._workers.idle():  # a process that has just died is not replaced at once
            sleep(0.02)
        self._workers.submit(local)
        while True:
            for event in self._workers.events(0.5):
                return answer_of(event, task, self._folder)

    def end(self) -> None:
        self._workers.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def localized(task: Task, folder: Path, sent: str | None) -> Task:
    """The task, with paths of this machine. The corpus of the coverage-guided engine is beside the hits, two up."""
    hits = folder / "hits" / "0"
    hits.mkdir(parents=True, exist_ok=True)
    path = folder / "task.json"
    if sent is not None:
        path.write_text(sent, encoding="utf-8")
    if task.kind == "hunt":
        if sent is not None and task.stream is not None:
            task = replace(task, stream=replace(task.stream, trace=str(path)))
        return replace(task, folder=str(hits))
    return replace(task, folder=str(hits), path=str(path))


def answer_of(event: Done | Died, task: Task, folder: Path) -> Answer:
    """The event with what its process has left in `folder`, which is emptied of it."""
    hits = {}
    for path in sorted((folder / "hits" / "0").glob("*.json")):
        hit = unsettled(path)
        if hit is not None:
            hits[path.name] = hit
        path.unlink()
    written = folder / "task.json"
    recording = written.read_text(encoding="utf-8") if task.kind == "reproduce" and written.exists() else None
    if isinstance(event, Done):
        event.result.task = task
    return Answer(replace(event, task=task), hits, recording)


def fetched(task: Task, folder: str, how: str) -> Answer:
    """Of an actor that is dead: what its process was at, from the folder that it has left. The process itself ends with
    its actor."""
    place = Path(folder)
    word = Spool.read(place / "worker-0.json")
    begun = word.get("task") == task.number
    died = Died(task, how, word["unit"] if begun else -1, word["operations"] if begun else 0, 0.0, 0)
    answer = answer_of(died, task, place)
    shutil.rmtree(place, ignore_errors=True)
    return answer
