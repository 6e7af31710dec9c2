"""What a campaign's workers do: plain functions of a task, which any executor can run in any process.

A *hunt* does a range of an engine's units (episodes of the walk, chunks of Hypothesis, spaces to explore): a function
of the stream's seed and of the units' numbers; the clock only says when to stop. It goes on after a violation, since a
bug that is hit a thousand times must not hide the next one. Each hit is on disk before anything else is done with it,
the first few of a kind in full, the others counted. A *settle* shrinks one hit, replays it three times and says what it
is. An *autopsy* does one unit again with every operation written down before it is applied, after a worker has died of
it; a *reduce* shrinks what that has told. A *verify* replays what the baseline knows; an *interpret* replays on the CPU
what was found on a device.

Before each unit a line is put over the one before in a file of fixed size, the *spool*: if the process dies, that is
what it was doing; while it changes, the process is alive.

This room may not know: other processes, folders of findings, the terminal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from rich.console import Console

from properties.operations import Configuration, Malformed, Operation, decode, encode
from properties.session import Outcome, Session
from properties.target import Target, TargetFactory
from properties.targets import load
from reference import Crash, Release

from ..engines.engine import Assignment
from ..engines.registry import engine_of
from ..engines.tally import Tally
from ..engines.walk import Limits
from ..findings.shrink import shrink, slipped
from ..findings.signature import Signature, Symptom, signature_of, symptom_of
from ..runs.counterexample import Counterexample, Unreadable, read, versions, write
from ..runs.forked import Deaths, forked
from ..runs.isolated import INTERPRETED, Replayed, replayed
from ..runs.perform import LONG, Judging, Run, kernel_laws, perform
from ..runs.processes import follow_parent
from ..show.timeline import Timeline

__all__ = [
    "LOST_DEVICE",
    "OUT_OF_MEMORY",
    "Hit",
    "LostDevice",
    "Settled",
    "Spool",
    "Stream",
    "Task",
    "TaskResult",
    "main",
    "on_device",
    "perform_task",
    "recorded",
    "unsettled",
]

SPOOL = 512
"""Bytes of a spool: written in full once, so that later lines need no new room on a full disk."""

KEPT = 4
"""Hits of one kind that a worker writes down in full; after that the 16th, the 64th, ..."""

REPLAYS = 3

_device = ""
"""The device that this process was given; "" for none."""


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
        return f"{self.engine} on {self.target} ({self.configuration})"


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do. hunt: units `first` to `first + count` of `stream`, within `seconds`. settle: the hit in `path`,
    shrinking for at most `seconds`. autopsy: unit `first`. verify: `path`. interpret: `path`, which was found on a
    device, on the CPU. reduce: `path`, which takes its process along, for at most `seconds`. folder: where hits go.
    number: its own.
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
    violation, with the blocks, as text. finished: shrinking came to its end.
    """

    counterexample: Counterexample
    symptom: Symptom
    replays: int
    tried: int
    found: Counterexample
    state: str
    finished: bool


@dataclass(slots=True)
class TaskResult:
    """What came of a task. following: the first unit that was not done. interpreted: what became of a replay without
    the device. error: a traceback, if the harness failed. warnings: sentences about what it had to do without."""

    task: Task
    tally: Tally = field(default_factory=Tally)
    following: int = 0
    hits: list[Hit] = field(default_factory=list)
    settled: Settled | None = None
    interpreted: Replayed | None = None
    fails: str | None = None
    exhausted: bool = False
    seconds: float = 0.0
    cpu: float = 0.0
    error: str = ""
    warnings: list[str] = field(default_factory=list)


class Spool:
    """The line that says what a worker is doing."""

    def __init__(self, path: Path | None) -> None:
        self._file = -1
        self._beat = 0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            os.pwrite(self._file, b" " * SPOOL, 0)

    def say(self, task: int, unit: int, operations: int) -> None:
        """`task` is at `unit`, with so many operations done. A microsecond or two."""
        self._beat += 1
        if self._file >= 0:
            line = f'{{"task": {task}, "unit": {unit}, "operations": {operations}, "beat": {self._beat}}}'
            os.pwrite(self._file, line.ljust(SPOOL - 1).encode() + b"\n", 0)

    @staticmethod
    def read(path: Path) -> dict[str, int]:
        """The line in `path`; {} if there is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}


def perform_task(task: Task, spool: Spool | None = None) -> TaskResult:
    """Do it, in this process. Raises LostDevice and MemoryError; what else goes wrong is in the result's `error`."""
    result = TaskResult(task, following=task.first)
    began, cpu = monotonic(), process_time()
    try:
        _DO[task.kind](task, result, spool or Spool(None))
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:
        if _lost(error):
            raise LostDevice(f"{type(error).__name__}: {error}") from error
        result.error = traceback.format_exc(limit=-8)
    result.seconds, result.cpu = monotonic() - began, process_time() - cpu
    return result


def _lost(error: BaseException | None) -> bool:
    """Has a CUDA error ended what this process can do?"""
    while error is not None:
        if type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


# ---- hunting ---------------------------------------------------------------------------------------------------------

_LATER = frozenset(4**power for power in range(2, 12))

_seen: dict[Signature, tuple[int, Signature]] = {}
"""Hits of this process by what they looked like at first: how many, and the key that the last one had."""


def _hunt(task: Task, result: TaskResult, spool: Spool, factory: TargetFactory | None = None) -> None:
    stream = task.stream
    assert stream is not None
    factory = factory or load(stream.target)
    if stream.judging.kernels:
        kernel_laws(stream.judging.kernels)  # imports torch and Triton, which is not hunting
    deadline = monotonic() + task.seconds
    last = task.first + task.count

    def begin(unit: int) -> None:
        spool.say(task.number, unit, result.tally.operations)

    engine = engine_of(stream.engine)
    assignment = Assignment(
        factory,
        stream.target,
        stream.seed,
        stream.judging,
        result.tally,
        clock=monotonic,
        deadline=deadline,
        begin=begin,
        warn=result.warnings.append,
        limits=stream.limits,
        profile=stream.profile,
        trace=stream.trace,
        max_states=stream.max_states,
        database=stream.database,
        variant=stream.configuration,
        folder=Path(task.folder),
        kept=Path(task.folder).parent.parent,
    )
    begin(task.first)
    began = monotonic()
    if stream not in _recalled:
        _recalled.add(stream)
        if (found := engine.recall(assignment)) is not None:
            result.hits.append(_hit(found, factory, task, -1, result.tally.operations))
    result.exhausted = not engine.fits(factory)
    while result.following < last and monotonic() < deadline and not result.exhausted:
        first = result.following
        found, result.following = engine.hunt(replace(assignment, first=first, count=last - first))
        result.exhausted = engine.ended(result.following)
        if found is not None:
            result.hits.append(_hit(found, factory, task, result.following - 1, result.tally.operations))
    spent = monotonic() - began
    result.tally.seconds[stream.engine] = result.tally.seconds.get(stream.engine, 0.0) + spent


_recalled: set[Stream] = set()
"""Streams of which this process has tried what earlier campaigns left: once, for a unit shall do the same everywhere.
"""


def _hit(found: Counterexample, factory: TargetFactory, task: Task, unit: int, operations: int) -> Hit:
    """Write it down, then look at it once more, strictly."""
    found = replace(found, device=_device)
    loose = signature_of(found)
    count, key = _seen.get(loose, (0, loose))
    path, inline, error = "", None, ""
    if count < KEPT or count + 1 in _LATER:
        place = Path(task.folder) / f"{found.property_id}-{task.number}-{unit}.json"
        try:
            path = str(write(found, place))
        except OSError as failure:
            inline, error = found, str(failure)
        key = _strictly(found, factory)
    _seen[loose] = (count + 1, key)
    return Hit(key, found.message, unit, operations, path, inline, error)


def _strictly(found: Counterexample, factory: TargetFactory) -> Signature:
    """Its signature where everything is compared after every operation, so that the one at fault is named. If it does
    not fail again, or is very long, as it was found."""
    if len(found.operations) > LONG:
        return signature_of(found)
    run = perform(factory, found.configuration, found.operations, found.judging, strict=True)
    if run.violation is None:
        return signature_of(found)
    return signature_of(_as(found, run))


def _as(found: Counterexample, run: Run) -> Counterexample:
    assert run.violation is not None
    return replace(
        found,
        operations=tuple(run.operations),
        property_id=run.violation.id,
        message=run.violation.message,
        at=run.at,
    )


# ---- settling --------------------------------------------------------------------------------------------------------


def _settle(task: Task, result: TaskResult, spool: Spool) -> None:
    found = read(Path(task.path))
    factory = load(found.target)
    spool.say(task.number, 0, 0)
    result.settled = settle(found, factory, task.seconds, lambda: spool.say(task.number, 0, 0))


def settle(
    found: Counterexample, factory: TargetFactory, seconds: float, beat: Callable[[], None] = lambda: None
) -> Settled:
    """Shrink within `seconds`, replay three times, and say what it is. A hit that does not fail every time is kept as
    it was found."""
    original = _replays(found, factory, strict=False)
    # What is not shrunk has no sure signature: another operation may have met the same fault.
    finished, best, count = False, found, original
    if original == REPLAYS and seconds > 0:
        shrunk = shrink(found, factory, clock=monotonic, seconds=seconds, progress=lambda *_: beat())
        beat()
        smaller = _plainest(shrunk.counterexample, factory)
        count = _replays(smaller, factory, strict=True)
        if count == REPLAYS:
            best, finished = smaller, shrunk.finished
        else:
            count = original
    beat()
    symptom = Symptom(signature_of(best))
    if best is not found:
        symptom = symptom_of(best, end=slipped(best, factory, clock=monotonic), shrunk=finished)
    beat()
    state = _state(best, factory)
    return Settled(best, symptom, count, REPLAYS, found, state, finished)


def _replays(found: Counterexample, factory: TargetFactory, strict: bool) -> int:
    """How many of three replays, each on a fresh target, break the same property."""
    count = 0
    strict = strict and len(found.operations) <= LONG
    for _ in range(REPLAYS):
        run = perform(factory, found.configuration, found.operations, found.judging, strict=strict)
        count += run.violation is not None and run.violation.id == found.property_id
    return count


def _plainest(found: Counterexample, factory: TargetFactory) -> Counterexample:
    """Under the plainest class of configuration that it fails alike under: shrinking may have had no time for it."""
    for change in ({"reuse": "last_block", "caching": True}, {"reuse": "last_block"}, {"caching": True}):
        configuration = replace(found.configuration, **change)
        if configuration == found.configuration:
            continue
        run = perform(
            factory,
            configuration,
            found.operations,
            found.judging,
            strict=True,
            drain=found.property_id == Release.id or (found.at or 0) >= len(found.operations),
        )
        if run.violation is None or run.violation.id != found.property_id:
            continue
        plainer = replace(_as(found, run), configuration=configuration)
        if signature_of(plainer).alike(signature_of(found)):
            return plainer
    return found


def _state(found: Counterexample, factory: TargetFactory) -> str:
    """The run as a table, each block after each operation, up to the violation. Long runs: the last operations."""
    text = StringIO()
    console = Console(file=text, width=120, highlight=False, color_system=None)
    timeline = Timeline(f"{found.property_id}: {found.configuration}", drain_from=len(found.operations))
    at = found.at if found.at is not None else len(found.operations)
    before: Outcome | None = None

    def watch(run: Run, operation: Operation) -> None:
        nonlocal before
        before = run.outcomes[-1] if run.outcomes else None
        if len(run.operations) >= at - _SHOWN:
            timeline.add(run.session, operation, before)

    run = perform(factory, found.configuration, found.operations, found.judging, strict=True, watch=watch)
    violation = run.violation
    broken = violation is not None and run.at < len(run.operations)
    last = run.outcomes[-1] if run.outcomes else None
    timeline.settle(run.session, None if broken else last, violation.id if violation is not None else "")
    skipped = max(0, at - _SHOWN)
    if skipped:
        console.print(f"({skipped} operations before these)")
    timeline.finish(console, violation, run.at - skipped)
    console.print(f"{violation.id}: {violation.message}" if violation is not None else "clean in this replay")
    return text.getvalue()


_SHOWN = 40
"""Operations before the violation that are shown with their blocks."""


def _verify(task: Task, result: TaskResult, spool: Spool) -> None:
    """Which property the file's operations break now; "" for none."""
    spool.say(task.number, 0, 0)
    stored = read(Path(task.path))
    run = perform(load(stored.target), stored.configuration, stored.operations, stored.judging, strict=True)
    result.fails = run.violation.id if run.violation is not None else ""


def _interpret(task: Task, result: TaskResult, spool: Spool) -> None:
    """Replay what was found on a device in a process that has none, with Triton's interpreter."""
    spool.say(task.number, 0, 0)
    result.interpreted = replayed(
        Path(task.path), timeout=task.seconds, environment=INTERPRETED, beat=lambda: spool.say(task.number, 0, 0)
    )


def _reduce(task: Task, result: TaskResult, spool: Spool) -> None:
    """Shrink what takes its process along, each candidate in a process forked for it. Nothing is settled if it does not
    die there."""
    found = read(Path(task.path))
    factory = load(found.target)
    spool.say(task.number, 0, 0)
    status, begun, _ = forked(factory, found.configuration, found.operations, found.judging, strict=True, drain=True)
    if not status or not begun:
        return
    deaths = Deaths(status, found.message)
    shrunk = shrink(
        found,
        factory,
        clock=monotonic,
        seconds=task.seconds,
        episodes=0,
        progress=lambda *_: spool.say(task.number, 0, 0),
        perform=deaths,
    )
    best, count = shrunk.counterexample, 0
    for _ in range(REPLAYS):
        run = deaths(factory, best.configuration, best.operations, best.judging, strict=True)
        count += run.violation is not None
        spool.say(task.number, 0, 0)
    symptom = symptom_of(best, shrunk=shrunk.finished)
    result.settled = Settled(best, symptom, count, REPLAYS, found, "", shrunk.finished)


# ---- an autopsy ------------------------------------------------------------------------------------------------------


def _autopsy(task: Task, result: TaskResult, spool: Spool) -> None:
    """Do one unit again, writing down every operation before it is applied. What is left in `task.path` if the process
    dies is read by `recorded`."""
    assert task.stream is not None
    with _recording(Path(task.path), load(task.stream.target)) as factory:
        stream = replace(task.stream, database="")  # which is not the unit's doing
        _hunt(replace(task, kind="hunt", count=1, stream=stream), result, spool, factory)


@contextmanager
def _recording(path: Path, factory: TargetFactory) -> Iterator[TargetFactory]:
    """While this lasts, the last session of this process has its operations in `path`, its configuration before them.
    For a process that does nothing else and may die: nothing is paid for it elsewhere. Gives the factory to use."""
    begin, apply, clone = Session.__init__, Session.apply, Session.clone
    configuration = Configuration()
    last: Session | None = None

    def make(chosen: Configuration) -> Target:
        nonlocal configuration
        configuration = chosen
        return factory(chosen)

    with path.open("w", encoding="utf-8", buffering=1) as file:

        def put(session: Session, line: str) -> None:
            nonlocal last
            lines: list[str] = vars(session).setdefault("recorded", [])
            lines.append(line)
            if session is not last:
                last = session
                file.seek(0)
                file.truncate()
                line = "".join(lines)
            file.write(line)

        def begun(self: Session, *arguments: Any, **options: Any) -> None:
            begin(self, *arguments, **options)
            put(self, json.dumps(configuration.to_json()) + "\n")

        def applied(self: Session, operation: Operation) -> Outcome:
            put(self, json.dumps(encode(operation)) + "\n")
            return apply(self, operation)

        def cloned(self: Session) -> Session:
            other = clone(self)
            vars(other)["recorded"] = list(vars(self)["recorded"])
            return other

        Session.__init__ = begun  # type: ignore[method-assign]
        Session.apply = applied  # type: ignore[method-assign]
        Session.clone = cloned  # type: ignore[method-assign]
        try:
            yield make
        finally:
            Session.__init__ = begin  # type: ignore[method-assign]
            Session.apply = apply  # type: ignore[method-assign]
            Session.clone = clone  # type: ignore[method-assign]


def recorded(path: Path, stream: Stream, unit: int, message: str) -> Counterexample:
    """What the process was doing when it died: the operations in `path`, the last of them at fault, if there is one."""
    configuration, operations = Configuration(), []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for number, line in enumerate(lines):
        try:
            data = json.loads(line)
            if number:
                operations.append(decode(data))
            else:
                configuration = Configuration.from_json(data)
        except (ValueError, Malformed, TypeError):
            break  # the line that it died in
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


_DO: dict[str, Callable[[Task, TaskResult, Spool], None]] = {
    "hunt": _hunt,
    "settle": _settle,
    "verify": _verify,
    "interpret": _interpret,
    "reduce": _reduce,
    "autopsy": _autopsy,
}


# ---- a process -------------------------------------------------------------------------------------------------------

OUT_OF_MEMORY, LOST_DEVICE = 71, 70
"""Exit statuses of a worker process."""


def _limit(memory: int) -> None:
    import resource

    # Of memory that a process writes to; address space alone is no matter, and CUDA reserves a great deal of it.
    if memory:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))


def on_device(device: str) -> None:
    """From now on what this process finds was found on `device`, a value of CUDA_VISIBLE_DEVICES; "" for the CPU."""
    global _device
    _device = f"CUDA device {device}" if device else ""


def main(connection: Any, spool: str, memory: int, device: str) -> None:
    """A worker process: takes tasks from `connection` and gives results until there are no more."""
    follow_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if device:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
        on_device(device)
    _limit(memory)
    place = Spool(Path(spool))
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        if task is None:
            return
        try:
            connection.send(perform_task(task, place))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except LostDevice as error:
            print(f"worker: {error}", file=sys.stderr)
            os._exit(LOST_DEVICE)
        except (BrokenPipeError, ConnectionResetError):
            return


def unsettled(path: Path) -> Counterexample | None:
    """A hit that an earlier campaign left, or None if it cannot be read."""
    try:
        return read(path)
    except (Unreadable, ValueError, KeyError):
        return None
