"""Triage: turns hits into findings, and replays what was known before.

A worker writes the *hit* to the spool before it does anything else with it. The first hit of a kind is *settled* by a
worker: shrunk, replayed, named; then it is a *finding* with a directory, and later hits of that kind are counted. Now
and then one of those is settled all the same, in case another bug looks alike at first. What the baseline knows, and
what the folder has, is replayed; what was found on a device is replayed without one.

What triage wants done it puts on the queue, and it is told what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from properties.operations import Operation
from reference import PROPERTIES, Crash

from ..findings.baseline import Baseline
from ..findings.signature import Signature, Symptom, signature_of
from ..findings.statuses import FIXED, KNOWN, NEW
from ..findings.store import NOT_REPLAYED, Finding, Findings
from ..runs.counterexample import write
from ..runs.replayed import FATAL, NOT_RUN, Replayed
from ..runs.values import Counterexample
from .executor import Hit, Settled, TaskResult
from .folder import Folder, forget
from .queue import Queue
from .spool import unsettled
from .tasks import Stream, Task

__all__ = ["KINDS", "Counts", "Tells", "Triage"]

KINDS = ("settle", "reduce", "verify", "interpret")
"""Tasks that triage asks for, and is given back."""

_AGAIN = 4
"""From the 4th hit of a kind on, then from the 16th, the 64th, ..., one is settled although its kind is known: another
bug may look alike at first."""

_OWN = "own "
"""Begins the key of a replay of what the folder has and no baseline knows."""


class Tells(Protocol):
    """Is told what becomes of hits. after: about how many operations had been done by then."""

    def found(self, hit: Hit, stream: Stream | None, after: int) -> None: ...

    def filed(self, finding: Finding, first: bool) -> None: ...

    def said(self, text: str) -> None: ...


class Counts(Protocol):
    """What triage adds to: hits of properties that were not asked for, what is known and no longer fails, and what is
    known and still does."""

    not_counted: dict[str, int]
    fixed: list[Signature]
    still: list[Signature]


def _rank(hit: Hit) -> int:
    """The lower, the more harmful."""
    kind = PROPERTIES.get(hit.key.property_id)
    return len(PROPERTIES) if kind is None else kind.rank


@dataclass(slots=True)
class _Kind:
    """Hits that look alike. waiting: counted while the first is being settled. again: see `_AGAIN`."""

    count: int = 0
    again: int = _AGAIN
    waiting: int = 0
    settling: bool = False
    finding: Finding | None = None


class Triage:
    """Of one campaign."""

    def __init__(
        self,
        findings: Findings,
        baseline: Baseline,
        folder: Folder,
        queue: Queue,
        properties: Collection[str],
        targets: Collection[str],
        distrusted: Callable[[Counterexample], str],
        counts: Counts,
        show: Tells,
    ) -> None:
        """properties: those whose violations count. targets: the campaign's. distrusted: why a
        file may not be replayed, "" if it may: what a folder has, somebody else may have written."""
        self._findings = findings
        self._baseline = baseline
        self._folder = folder
        self._queue = queue
        self._properties = properties
        self._targets = targets
        self._distrusted = distrusted
        self._counts = counts
        self._show = show
        self._kinds: dict[Signature, _Kind] = {}
        self._settles: dict[int, tuple[Hit, int]] = {}  # by task: the hit, and operations when it was found
        self._looks: set[Signature] = set()  # of hits, wherever they were met
        self._turns: dict[int, tuple[bool, int]] = {}  # by task: what looks like nothing before first, then by harm
        self._interpreting: list[tuple[str, tuple[Operation, ...]]] = []  # what has been asked for
        self._dirty: dict[str, Finding] = {}

    # ---- the beginning, the end, and between -------------------------------------------------------------------------

    def adopt(self, paths: Iterable[Path]) -> None:
        """Hits that earlier campaigns have left."""
        for path in paths:
            found = unsettled(path)
            if found is not None and (why := self._distrusted(found)):
                self._show.said(f"{path} is passed over: it {why}")
            elif found is not None:
                self.hit(Hit(signature_of(found), found.message, 0, len(found.operations), str(path)), None)
            else:
                path.rename(path.with_suffix(".unreadable"))
                self._show.said(f"{path} is no counterexample; it is left as {path.stem}.unreadable")

    def settle_late(self) -> None:
        """What an earlier campaign had no time to shrink or replay is a hit once more: alone it may be anything, and it
        is often another way to meet what is known. Raises OSError."""
        for id, finding in sorted(self._findings.by_id.items()):
            found = finding.counterexample
            late = finding.replays == NOT_REPLAYED and not found.message.startswith(FATAL)
            if late and finding.status == NEW and found.target in self._targets:
                # On disk first, then gone: if this process is killed between the two, it is there twice, not never.
                path = write(found, self._folder.hits / f"{found.property_id}-late-{id}.json")
                self._findings.drop(finding)
                self.hit(Hit(signature_of(found), found.message, 0, len(found.operations), str(path)), None)

    def verify(self) -> None:
        """Have replayed what was found before. Raises OSError."""
        first, make = self._queue.first, self._queue.make
        for id, entry in sorted(self._baseline.entries.items()):
            if why := self._distrusted(entry.counterexample):
                if entry.counterexample.target not in self._targets:
                    continue  # of another target, whose campaign replays it
                self._show.said(f"{entry.signature.name}, which is known, is not replayed: it {why}")
                continue
            path = write(entry.counterexample, self._folder.spool / "baseline" / f"{id}.json")
            first.append(make("verify", None, path=str(path), key=id))
        for id, finding in sorted(self._findings.by_id.items()):
            # What is met now may be another way to meet what an earlier campaign has found, if that is there still.
            fatal = finding.counterexample.message.startswith(FATAL)
            ours = finding.signature.target in self._targets and id not in self._baseline.entries
            if ours and finding.status != FIXED and not fatal and not self._distrusted(finding.counterexample):
                first.append(make("verify", None, path=str(finding.path), key=_OWN + id))

    def note(self) -> None:
        """Bring the directories of what was hit since the last time up to date. Raises OSError."""
        for finding in self._dirty.values():
            self._findings.write(finding)
        self._dirty.clear()

    def end(self) -> None:
        """Whatever was not settled in time is kept as it was found."""
        for task in self._queue.running:
            if task.kind in ("hunt", "reproduce"):
                self.collect(task)
        running = [task for task in self._queue.running if task.kind == "settle"]
        for task in (*running, *self._queue.first):
            if task.number in self._settles:
                self._file_as_found(task, "there was no time to shrink or replay it")
        for task in self._queue.rest:
            forget(self._settles.pop(task.number)[0].path)

    def judge(self) -> None:
        """The statuses of this campaign's findings, now that all is known that the baseline's replays have shown."""
        for finding in self._findings.now():
            before = finding.status, finding.known_as
            finding.status, finding.known_as = self._status(finding.symptoms[0])
            if before != (finding.status, finding.known_as):
                self._dirty[finding.signature.id] = finding

    def _status(self, symptom: Symptom) -> tuple[str, str]:
        """By the baseline, less what this campaign has seen run clean."""
        return self._baseline.status(symptom, [signature.id for signature in self._counts.fixed])

    # ---- hits --------------------------------------------------------------------------------------------------------

    def hit(self, hit: Hit, stream: Stream | None, before: int = 0) -> None:
        """One more. before: operations when its task was given out."""
        if hit.key.property_id not in self._properties:
            counted = self._counts.not_counted
            counted[hit.key.property_id] = counted.get(hit.key.property_id, 0) + 1
            forget(hit.path)
            return
        if hit.inline is not None:
            self._folder.full(hit.error)
            path = self._folder.hits / f"{hit.key.property_id}-saved-{self._queue.number}-{hit.unit}.json"
            hit = replace(hit, path=self._folder.save_hit(hit.inline, path))
        kind = self._kinds.setdefault(hit.key, _Kind())
        kind.count += 1
        task = self._queue.make("settle", None, path=hit.path)
        if kind.finding is not None:
            self.hit_again(kind.finding)
            if hit.path and kind.count >= kind.again:
                while kind.again <= kind.count:
                    kind.again *= _AGAIN
                self._settle(task, hit, before, self._queue.rest)
            else:
                forget(hit.path)
        elif kind.settling:
            kind.waiting += 1
            forget(hit.path)
        elif hit.path:
            kind.settling = True
            self._settle(task, hit, before, self._queue.first)
            self._show.found(hit, stream, before + hit.operations)
        else:
            kind.waiting += 1  # seen before in that worker, which has written it down then

    def _settle(self, task: Task, hit: Hit, before: int, tasks: list[Task]) -> None:
        look = replace(hit.key, operation="", configuration="")
        turn = look in self._looks, _rank(hit)
        self._looks.add(look)
        self._settles[task.number] = hit, before + hit.operations
        self._turns[task.number] = turn
        later = (place for place, other in enumerate(tasks) if self._turns.get(other.number, turn) > turn)
        tasks.insert(next(later, len(tasks)), task)

    def alike(self, task: Task) -> bool:
        """Does it settle what looks like something that has its turn before? If there is no time, it joins that."""
        return self._turns.get(task.number, (False, 0))[0]

    def hit_again(self, finding: Finding) -> None:
        self._findings.hit(finding, 1)
        self._dirty[finding.signature.id] = finding

    def collect(self, task: Task) -> None:
        """What a worker had written down before it died, or was ended, and could not say."""
        for path in sorted(self._folder.hits.glob(f"*-{task.number}-*.json")):
            found = unsettled(path)
            if found is not None and not path.name.startswith(f"{Crash.id}-death-"):
                self.hit(Hit(signature_of(found), found.message, 0, 0, str(path)), task.stream)

    # ---- what comes back ---------------------------------------------------------------------------------------------

    def done(self, task: Task, result: TaskResult) -> None:
        """One of its tasks came to its end."""
        if task.kind == "settle":
            assert result.settled is not None
            self._settled(task, result.settled)
        elif task.kind == "verify":
            self._verified(task.key, bool(result.fails), result.shows)
        elif task.kind == "interpret":
            assert result.interpreted is not None
            self._interpreted(task.key, result.interpreted)
        elif result.settled is not None:
            self._reduced(task.key, result.settled)

    def failed(self, task: Task, error: str) -> None:
        """The harness failed at one of its tasks. error: a traceback."""
        last = error.strip().splitlines()[-1]
        if task.kind == "settle":
            self._file_as_found(task, f"settling it failed: {last}")
            self._show.said(f"settling {task.path} failed; it is kept as it was found\n{error}")
        elif task.kind == "verify":
            self._show.said(f"what is known as {task.key.removeprefix(_OWN)} cannot be replayed: {error.strip()}")
        elif task.kind == "interpret":
            self._interpreted(task.key, Replayed(NOT_RUN, last))
        else:
            self._show.said(f"{task.path} could not be shrunk, and is kept as it was found: {error.strip()}")

    def died(self, task: Task, how: str) -> None:
        """A worker died of one of its tasks."""
        if task.kind == "settle":
            self._file_as_found(task, f"a worker {how} while shrinking it")
        elif task.kind == "verify":
            self._verified(task.key, fails=True)
        elif task.kind == "interpret":
            self._interpreted(task.key, Replayed(NOT_RUN, f"a worker {how} at it"))
        else:
            self._show.said(f"{task.path} is kept as it was found: a worker {how} while shrinking it")

    def _settled(self, task: Task, settled: Settled) -> None:
        hit, after = self._settles.pop(task.number)
        self._keep(
            self._kinds[hit.key],
            settled.symptom,
            settled.counterexample,
            settled.found,
            replays=f"{settled.replays} of {settled.tried}",
            state=settled.state,
            after=after,
            harm=settled.harm,
        )
        finding = self._findings.like(settled.symptom)
        if finding is not None and hit.key not in finding.looked:
            finding.looked.append(hit.key)
        forget(hit.path)

    def _file_as_found(self, task: Task, why: str) -> None:
        """Without shrinking or replay: there was no time, or it could not be done."""
        hit, after = self._settles.pop(task.number)
        found = unsettled(Path(hit.path))
        if found is None:
            return
        found = replace(found, note=why)
        self._keep(self._kinds[hit.key], Symptom(hit.key), found, found, replays="not replayed", after=after)
        forget(hit.path)

    def _reduced(self, id: str, settled: Settled) -> None:
        finding = self._findings.by_id[id]
        best = settled.counterexample
        if settled.replays == settled.tried and len(best.operations) < len(finding.counterexample.operations):
            self._folder.saved(lambda: self._findings.shorten(finding, best, settled.symptom), best)
            self._show.filed(finding, first=False)
            self.without_device(finding)

    def _interpreted(self, id: str, told: Replayed) -> None:
        finding = self._findings.by_id[id]
        finding.interpreted = told
        self._dirty[id] = finding
        if finding.interpreter is not None:
            self._show.said(f"{finding.signature.name} {finding.interpreter['told']}")

    def _verified(self, id: str, fails: bool, shows: Signature | None = None) -> None:
        if id.startswith(_OWN):
            finding = self._findings.by_id[id.removeprefix(_OWN)]
            finding.stale = not fails
            if shows is not None:
                self._folder.saved(lambda: self._findings.note_wording(finding, shows), finding.counterexample)
            return
        if shows is not None:
            self._baseline.note_wording(id, shows)
        entry = self._baseline.entries[id]
        if not fails:
            if entry.status == KNOWN:
                self._counts.fixed.append(entry.signature)
            return
        if entry.status == KNOWN:
            self._counts.still.append(entry.signature)
            return
        found = entry.counterexample
        self._show.said(f"[regressed] {entry.signature}")
        kind = self._kinds.setdefault(entry.signature, _Kind())
        self._keep(kind, entry.symptoms[0], found, found, replays="1 of 1")

    # ---- findings ----------------------------------------------------------------------------------------------------

    def _keep(
        self,
        kind: _Kind,
        symptom: Symptom,
        counterexample: Counterexample,
        found: Counterexample,
        *,
        replays: str,
        state: str = "",
        after: int = 0,
        harm: Counterexample | None = None,
    ) -> None:
        again = kind.finding is not None  # its hit has been counted
        known = self._findings.like(symptom)
        first = known is None or not known.hits
        another = known is not None and all(one.signature != symptom.signature for one in known.symptoms)
        hits = (0 if known is kind.finding else 1) if again else 1 + kind.waiting
        finding = self.file(
            symptom, counterexample, found, replays=replays, state=state, hits=hits, after=after, harm=harm
        )
        if finding is None:
            return
        if kind.finding is None:
            kind.finding, kind.waiting, kind.settling = finding, 0, False
        if first:
            self._show.filed(finding, first=True)
        self.without_device(finding)
        if another:
            self._show.said(f"{finding.signature.name} was met in another way: {symptom.signature}")

    def file(
        self,
        symptom: Symptom,
        counterexample: Counterexample,
        found: Counterexample,
        *,
        replays: str,
        hits: int,
        after: int,
        state: str = "",
        harm: Counterexample | None = None,
    ) -> Finding | None:
        """Keep it in the folder of findings, with its status; None if no disk would take it."""
        status, known_as = self._status(symptom)
        return self._folder.saved(
            lambda: self._findings.file(
                symptom,
                counterexample,
                found,
                status=status,
                known_as=known_as,
                replays=replays,
                state=state,
                hits=hits,
                found_after=after,
                harm=harm,
            ),
            counterexample,
        )

    def without_device(self, finding: Finding) -> None:
        """Have what was found on a device replayed without one, once for each counterexample."""
        asked = finding.signature.id, finding.counterexample.operations
        if finding.counterexample.device and finding.interpreted is None and asked not in self._interpreting:
            self._interpreting.append(asked)
            self._ask("interpret", finding)

    def reduce(self, finding: Finding) -> None:
        """Have what dies every time shrunk, in forked processes."""
        self._ask("reduce", finding)

    def _ask(self, kind: str, finding: Finding) -> None:
        self._queue.first.append(self._queue.make(kind, None, path=str(finding.path), key=finding.signature.id))
