"""What is done with a hit that is on disk: shrink it, replay it, and say what it is.

A *settle* shrinks one hit, replays it three times and names it. A *verify* replays what the baseline knows, an
*interpret* replays on the CPU what was found on a device, and a *reduce* shrinks what takes its process along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from time import monotonic

from rich.console import Console

from properties.operations import Operation
from properties.session import Outcome
from properties.target import TargetFactory
from properties.targets import load
from reference import Release

from ..engines.engine import with_violation
from ..findings.harm import harm_of, rank_of
from ..findings.places import places_of
from ..findings.shrink import shrink, slipped
from ..findings.signature import Symptom, signature_of, symptom_of
from ..runs.believe import as_believed, had
from ..runs.counterexample import read
from ..runs.foreign import visible
from ..runs.forked import Deaths, forked
from ..runs.isolated import INTERPRETED, replayed
from ..runs.perform import LONG, Run, perform
from ..runs.values import Counterexample
from ..show.timeline import Timeline
from .executor import REPLAYS, Settled, TaskResult
from .spool import Says
from .tasks import Task

__all__ = ["interpret", "plainest", "reduce", "settle", "settle_task", "shortened", "verify"]


def settle_task(task: Task, result: TaskResult, says: Says) -> None:
    """Settle the hit in the task's file."""
    found = read(Path(task.path))
    factory = load(found.target)
    says.say(task.number, 0, 0)
    result.settled = settle(found, factory, task.seconds, lambda: says.say(task.number, 0, 0))


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
        smaller = plainest(shrunk.counterexample, factory)
        count = _replays(smaller, factory, strict=True)
        if count == REPLAYS:
            best, finished = smaller, shrunk.finished
        else:
            count = original
    beat()
    symptom = Symptom(signature_of(best))
    if best is not found:
        end = slipped(best, factory, clock=monotonic)
        beat()
        symptom = symptom_of(best, end=end, shrunk=finished, places=places_of(best, factory))
    beat()
    state, best = _state(best, factory)
    harm = None
    if original == REPLAYS and seconds > 0:
        harm = _harm(best, found, factory, min(_HARM, seconds / 4), beat)
    return Settled(best, symptom, count, REPLAYS, found, state, finished, harm)


def _harm(
    best: Counterexample, found: Counterexample, factory: TargetFactory, seconds: float, beat: Callable[[], None]
) -> Counterexample | None:
    """Something worse that it leads to, shrunk, in twice `seconds`."""
    try:
        worse = harm_of(best, found, factory, clock=monotonic, seconds=seconds, beat=beat)
    except MemoryError:  # the target takes all; what was found is known already
        worse = None
    if worse is None:
        return None
    shrunk = shrink(worse, factory, clock=monotonic, seconds=seconds, progress=lambda *_: beat()).counterexample
    return shrunk if rank_of(shrunk) <= rank_of(worse) else worse


def _replays(found: Counterexample, factory: TargetFactory, strict: bool) -> int:
    """How many of three replays, each on a fresh target, break the same property."""
    count = 0
    strict = strict and len(found.operations) <= LONG
    for _ in range(REPLAYS):
        run = perform(factory, found.configuration, found.operations, found.judging, strict=strict)
        count += run.violation is not None and run.violation.id == found.property_id
    return count


def plainest(found: Counterexample, factory: TargetFactory) -> Counterexample:
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
        plainer = replace(
            found,
            configuration=configuration,
            operations=tuple(run.operations),
            property_id=run.violation.id,
            message=run.violation.message,
            traceback=run.violation.traceback,
            at=run.at,
        )
        if signature_of(plainer).alike(signature_of(found)):
            return plainer
    return found


def _state(found: Counterexample, factory: TargetFactory) -> tuple[str, Counterexample]:
    """(the run as a table, each block after each operation, up to the violation, of long runs the last operations; the
    counterexample, with the policy that was believed)."""
    text = StringIO()
    console = Console(file=text, width=120, highlight=False, emoji=False, color_system=None)
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
    return visible(text.getvalue()), as_believed(found, factory)


_HARM = 2.0
"""Seconds in which it is looked for what worse a finding leads to, and again in which that is shrunk."""

_SHOWN = 40
"""Operations before the violation that are shown with their blocks."""


def verify(task: Task, result: TaskResult, says: Says) -> None:
    """Which property the file's operations break now; "" for none. And the signature that they have now: messages
    change, the target's and ours, and one bug shall not be two for that."""
    says.say(task.number, 0, 0)
    stored = read(Path(task.path))
    run = perform(load(stored.target), stored.configuration, stored.operations, stored.judging, strict=True)
    result.fails = run.violation.id if run.violation is not None else ""
    if run.violation is not None:
        configuration = had(stored.configuration, run.session.judge.policy)
        now = replace(stored, configuration=configuration)
        result.shows = signature_of(with_violation(now, run.violation, run.operations, run.at))


def interpret(task: Task, result: TaskResult, says: Says) -> None:
    """Replay what was found on a device in a process that has none, with Triton's interpreter."""
    says.say(task.number, 0, 0)
    found = read(Path(task.path))  # of this campaign
    result.interpreted = replayed(
        Path(task.path),
        target=found.target,
        timeout=task.seconds,
        environment=INTERPRETED,
        beat=lambda: says.say(task.number, 0, 0),
        kernels=found.judging.kernels,
    )


def reduce(task: Task, result: TaskResult, says: Says) -> None:
    """Shrink what takes its process along, each candidate in a process forked for it. Nothing is settled if it does not
    die there."""
    found = read(Path(task.path))
    shrunk = shrunk_crash(found, load(found.target), task.seconds, lambda: says.say(task.number, 0, 0))
    if shrunk is not None:
        best, count, finished = shrunk
        result.settled = Settled(best, symptom_of(best, shrunk=finished), count, REPLAYS, found, "", finished)


def shrunk_crash(
    found: Counterexample, factory: TargetFactory, seconds: float, beat: Callable[[], None]
) -> tuple[Counterexample, int, bool] | None:
    """(the fewest operations that still end the process as `found` does, in how many of `REPLAYS` they do, whether
    shrinking came to its end); None if `found` itself does not. Not for processes with a device. A fork, some
    milliseconds, for each candidate."""
    beat()
    status, begun, _ = forked(factory, found.configuration, found.operations, found.judging, strict=True, drain=True)
    if status is None or not begun:
        return None
    deaths = Deaths(status, found.message)
    shrunk = shrink(
        found,
        factory,
        clock=monotonic,
        seconds=seconds,
        episodes=0,
        progress=lambda *_: beat(),
        perform=deaths,
    )
    best, count = shrunk.counterexample, 0
    for _ in range(REPLAYS):
        run = deaths(factory, best.configuration, best.operations, best.judging, strict=True)
        count += run.violation is not None
        beat()
    return best, count, shrunk.finished


def shortened(given: tuple[Counterexample, float]) -> Counterexample | None:
    """Of what takes its process along, the fewest operations that still do every time, found in so many seconds; None
    if it does not. For a process that this may end."""
    found, seconds = given
    shrunk = shrunk_crash(found, load(found.target), seconds, lambda: None)
    return shrunk[0] if shrunk is not None and shrunk[1] == REPLAYS else None
