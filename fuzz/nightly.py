"""A campaign on many workers: which task is next, what becomes of every hit and of every worker that dies, and the sum.

Streams (engine x target x configuration) share the time by their parts: the one that is farthest behind its part is
next. A stream's units are numbered, and unit n of a seed is the same everywhere; how far a campaign gets depends on the
machine, what it does does not.

What is found goes through three stages. A worker writes the *hit* to `spool/hits` before it does anything else with it.
The first hit of a kind is *settled* by a worker: shrunk, replayed, named; then it is a *finding* with a directory, and
later hits of that kind are counted. Now and then one of those is settled all the same, in case another bug looks alike
at first. What a campaign leaves in the spool, the next one on the same folder settles first.

This room may not know: the terminal (a `Show` is told what happens), any core, how processes are made.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import IO, Any, Protocol

from properties.coverage import unchecked
from properties.ledger import EVENTS, THRESHOLD
from properties.operations import Configuration, Operation, encode
from properties.target import Capability
from properties.targets import load
from reference import PROPERTIES, Crash

from . import ci
from .apart import FATAL, NOT_RUN, Replayed
from .baseline import FIXED, KNOWN, NEW, REGRESSED, Baseline
from .campaign import CLEAN, HARNESS, INTERRUPTED, NOTHING, VIOLATION
from .counterexample import Counterexample, versions, write
from .engines import Clock, Tally
from .findings import Finding, Findings
from .history import BadHistory, History
from .plans import CampaignPlan
from .signature import Signature, Symptom, signature_of
from .supervisor import Died, Done, Executor, ExecutorLost, Workers
from .touched import SAMPLED
from .worker import REPLAYS, SCRATCH, UNITS, Hit, Settled, Stream, Task, recorded, unsettled

__all__ = ["ONLY_KNOWN", "Busy", "CampaignResult", "Nightly", "NothingToResume", "Show", "journal_of"]

ONLY_KNOWN = 5
"""Exit status: violations, all of them in the baseline."""

_GRACE = 8.0
"""Seconds after the budget in which running tasks may end and hits may still be settled."""

_LAST = 14.0
"""Seconds after the budget when whatever still runs is ended."""

_NOTED = 5.0
"""Seconds between notes on disk of how far the campaign is."""

_SLICE = 4.0
"""Seconds of one task, so that progress moves; a space to explore begins from nothing again, and gets what it needs."""

_AGAIN = 4
"""From the 4th hit of a kind on, then from the 16th, the 64th, ..., one is settled although its kind is known: another
bug may look alike at first."""

_AUTOPSIES = 2
"""Deaths alike whose operations are looked for; later ones are counted."""

_DEATHS = 25
"""Deaths after which a stream is left alone; of hangs, each of which costs minutes, fewer."""

_HANGS = 3
_STILLBORN = 3

_FUTILE = 6
"""Processes in a row that die in every worker's place before they have done anything: the harness has failed."""

_OWN = "own "
"""Begins the key of a replay of what the folder has and no baseline knows."""

_INTERPRETING = 60.0
"""Seconds that a replay in the interpreter may take; importing torch is a good part of that."""

_RESERVE = 1 << 20
"""Bytes kept back on the disk, and given up for findings when it is full."""

_LEAST_DISK = 4 << 20


class Busy(Exception):
    """Another campaign writes to this folder."""


class NothingToResume(Exception):
    """No campaign in this folder was cut short."""


class Show(Protocol):
    """Is told what happens, and shows it or not."""

    def began(self, plan: CampaignPlan, adopted: int) -> None: ...

    def progress(self, figures: Figures) -> None: ...

    def found(self, hit: Hit, stream: Stream | None) -> None: ...

    def filed(self, finding: Finding, first: bool) -> None: ...

    def died(self, died: Died) -> None: ...

    def said(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Figures:
    """How far it is. engines: what the workers are at."""

    seconds: float
    operations: int
    rate: float
    busy: float
    workers: int
    findings: int
    open: int
    engines: tuple[str, ...]


@dataclass(slots=True)
class _Lane:
    """A stream's part, what it has had, and what is next. again: ranges that were cut short."""

    stream: Stream
    share: float
    spent: float = 0.0
    following: int = 0
    again: list[tuple[int, int]] = field(default_factory=list)
    last: float = 2.0
    closed: bool = False
    deaths: int = 0
    hangs: int = 0
    stillborn: int = 0


@dataclass(slots=True)
class _Kind:
    """Hits that look alike. waiting: counted while the first is being settled. again: see `_AGAIN`."""

    count: int = 0
    again: int = _AGAIN
    waiting: int = 0
    settling: bool = False
    finding: Finding | None = None


@dataclass(slots=True)
class _Death:
    """A unit that a worker died of. died, tried: how many autopsies ended like it, and how many there were."""

    lane: _Lane
    unit: int
    how: str
    file: Path
    hit: Path
    died: int = 0
    tried: int = 0
    waiting: int = 1


@dataclass
class CampaignResult:
    """How it ended. `status` is an exit status; `findings` those that were hit, `fixed` what the baseline knows and no
    longer fails, `still` what it knows and was not met, though it fails, `unsaved` counterexamples that no disk would
    take, as text, `command` what a person types to repeat the campaign."""

    plan: CampaignPlan
    status: int = CLEAN
    seconds: float = 0.0
    cpu: float = 0.0
    busy: float = 0.0
    tally: Tally = field(default_factory=Tally)
    findings: list[Finding] = field(default_factory=list)
    fixed: list[Signature] = field(default_factory=list)
    still: list[Signature] = field(default_factory=list)
    timeline: list[dict[str, Any]] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    not_counted: dict[str, int] = field(default_factory=dict)
    deaths: list[dict[str, Any]] = field(default_factory=list)
    unsaved: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    complaint: str = ""
    command: str = ""

    @property
    def verdict(self) -> str:
        if self.status == CLEAN:
            return f"no violation in {self.tally.operations:,} checked operations"
        open = [finding for finding in self.findings if finding.status in (NEW, REGRESSED)]
        if open or self.findings or self.still:
            return f"{len(open)} new or regressed, {len(self.findings) - len(open) + len(self.still)} known findings"
        return self.complaint

    def to_json(self) -> dict[str, Any]:
        plan, tally = self.plan, self.tally
        return {
            "schema": 2,
            "name": plan.name,
            "status": self.status,
            "verdict": self.verdict,
            "complaint": self.complaint,
            "target": ", ".join(plan.targets),
            "targets": list(plan.targets),
            "seed": plan.seed,
            "profile": plan.profile,
            "workers": plan.processes,
            "budget_seconds": plan.budget,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu, 3),
            "busy": round(self.busy, 4),
            **tally.to_json(),
            "properties": {
                name: self.unchecked.get(name, "checked" if name in plan.properties else "not asked for")
                for name in PROPERTIES
            },
            "not_counted": dict(sorted(self.not_counted.items())),
            "sometimes": {name: tally.ledger.counts.get(name, 0) for name in EVENTS},
            "never_happened": self.missing,
            "coverage": tally.coverage.to_json(),
            "coverage_sampled": SAMPLED,
            "timeline": self.timeline,
            "trace": None,
            "findings": [finding.to_json() for finding in self.findings],
            "fixed": [str(signature) for signature in self.fixed],
            "known_not_met": [str(signature) for signature in self.still],
            "replayed": [
                {"signature": one.id, "property": one.property_id, "message": one.divergence, "status": status}
                for status, signatures in ((FIXED, self.fixed), (KNOWN, self.still))
                for one in signatures
            ],
            "command": self.command,
            "dead_workers": self.deaths,
            "tidied": self.gone,
            "warnings": self.warnings,
            "plan": plan.to_json(),
            "versions": versions(),
        }


class Nightly:
    """One campaign in one folder. `run` does it."""

    def __init__(
        self,
        plan: CampaignPlan,
        out: Path,
        clock: Clock,
        show: Show,
        *,
        now: Callable[[], datetime],
        baseline: Path | None = None,
        resume: bool = False,
        executor: Callable[[CampaignPlan, Path], Executor] | None = None,
        command: str = "",
    ) -> None:
        """clock: where an interruption is raised. now: for dates in findings and history only. command: what repeats
        the campaign, for people."""
        self.plan = self._whole = plan
        self.out = out
        self._clock = clock
        self._show = show
        self._now = now
        self._baseline_path = baseline or out / "baseline.json"
        self._resume = resume
        self._executor = executor or _workers
        self.result = CampaignResult(plan, command=command)
        self._spool = out / "spool"
        self._hits = self._spool / "hits"
        self._lanes: list[_Lane] = []
        self._kinds: dict[Signature, _Kind] = {}
        self._first: list[Task] = []  # hits of kinds that are not known yet, and what the baseline knows
        self._rest: list[Task] = []  # hits of known kinds
        self._deaths: list[_Death] = []
        self._deaths_alike: dict[tuple[str, str, str], list[Any]] = {}
        self._of: dict[int, tuple[Task, int]] = {}  # running tasks: what they are for, and operations when found
        self._dirty: dict[str, Finding] = {}
        self._settles: dict[int, tuple[Hit, int]] = {}  # by task: the hit, and operations when it was found
        self._interpreting: list[tuple[str, tuple[Operation, ...]]] = []  # what has been asked for
        self._dying: dict[int, _Death] = {}  # by task
        self._lost: list[Task] = []  # their machine went: to be given out once more
        self._lost_once: set[int] = set()
        self._number = 0
        self._spent_before = 0.0
        self._stop = ""
        self._lock: IO[str] | None = None
        self._settled_last = False

    # ---- before and after --------------------------------------------------------------------------------------------

    def run(self) -> CampaignResult:
        """Run it. Raises Busy, NothingToResume, BadBaseline, BadHistory before anything is done; a folder that cannot
        be written is a complaint of the result. A KeyboardInterrupt ends it with all that it has."""
        result = self.result
        self._take_folder()
        try:
            self._began = monotonic()
            try:
                self._prepare()
            except OSError as error:
                result.status, result.complaint = HARNESS, f"cannot write to {self.out}: {error}"
                return result
            interrupted = False
            workers = self._executor(self.plan, self._spool)
            try:
                self._loop(workers)
            except KeyboardInterrupt:
                interrupted = True
            except ExecutorLost as error:
                self._stop = self._stop or str(error)
            finally:
                self._busy_at_end = workers.busy()
                workers.close()
            self._finish(interrupted)
            return result
        finally:
            self.close()

    def close(self) -> None:
        """Let others write to the folder."""
        if self._lock is not None:
            self._lock.close()

    def _take_folder(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        self._lock = (self.out / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            holder = self._lock.read().strip()
            self.close()
            raise Busy(
                f"another campaign (process {holder}) writes to {self.out}; wait for it, or give another --out"
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _prepare(self) -> None:
        plan, out = self.plan, self.out
        self.baseline = Baseline.load(self._baseline_path)
        if self._resume:
            plan = self.plan = self.result.plan = self._resumed(plan)
        self._lanes = [_Lane(stream, share) for stream, share in plan.streams()]
        if self._resume:
            self._go_on()
        free = shutil.disk_usage(out).free
        if free < _LEAST_DISK:
            raise OSError(f"only {free:,} bytes are free, and findings need room: {_LEAST_DISK:,} at least")
        self._spool.mkdir(parents=True, exist_ok=True)
        (out / "reserve").write_bytes(b"\0" * _RESERVE)
        self.findings = Findings(out / "findings", plan.keep, self._now())
        self.history = History(out / "history.sqlite")
        self._campaign = self.history.begin(self.result.to_json(), self._now().isoformat(timespec="seconds"))
        self._clear()
        adopted = sorted(self._hits.glob("*/*.json"))
        self._hits = self._hits / str(self._campaign)
        self._hits.mkdir(parents=True, exist_ok=True)
        self._what_is_checked()
        for path in adopted:
            found = unsettled(path)
            if found is not None:
                self._take_hit(Hit(signature_of(found), found.message, 0, len(found.operations), str(path)), None)
            else:
                path.rename(path.with_suffix(".unreadable"))
                self._show.said(f"{path} is no counterexample; it is left as {path.stem}.unreadable")
        known = self._spool / "baseline"
        for id, entry in sorted(self.baseline.entries.items()):
            path = write(entry.counterexample, known / f"{id}.json")
            self._first.append(self._task("verify", None, path=str(path), key=id))
        for id, finding in sorted(self.findings.by_id.items()):
            # What is met now may be another way to meet what an earlier campaign has found, if that is there still.
            fatal = finding.counterexample.message.startswith(FATAL)
            ours = finding.signature.target in plan.targets and id not in self.baseline.entries
            if ours and finding.status != FIXED and not fatal:
                self._first.append(self._task("verify", None, path=str(finding.path), key=_OWN + id))
        self._note(force=True)
        self._show.began(plan, len(adopted))

    def _what_is_checked(self) -> None:
        """Per property: checked if any target's sessions check it."""
        capabilities: frozenset[Capability] = frozenset()
        reasons: list[dict[str, str]] = []
        with_kernels = bool(self.plan.kernels) and self.plan.engines.get("kernels", 0) > 0
        for target in self.plan.targets:
            factory = load(target)
            for variant in self.plan.configurations:
                judging = variant.judging()
                session = judging.session(factory, Configuration())
                capabilities |= session.capabilities
                reasons.append(unchecked(session.capabilities, session.judge.policy, with_kernels))
        self._capabilities = capabilities
        self.result.unchecked = {
            name: reason for name, reason in reasons[0].items() if all(name in each for each in reasons)
        }

    def _resumed(self, plan: CampaignPlan) -> CampaignPlan:
        journal = self._journal = journal_of(self.out)
        self._spent_before = float(journal["seconds"])
        self._whole = replace(plan, seed=journal["seed"])
        return replace(self._whole, budget=max(0.0, plan.budget - self._spent_before))

    def _go_on(self) -> None:
        for lane in self._lanes:
            before = self._journal["streams"].get(lane.stream.name)
            if before is not None:
                lane.following, lane.spent, lane.closed = before["following"], before["seconds"], before["closed"]
                lane.again = [(first, count) for first, count in before["again"]]

    def _note(self, force: bool = False, ended: bool = False) -> None:
        """Keep on disk how far it is, should this process be killed."""
        running = [task for task, _ in self._of.values()]
        streams = {}
        for lane in self._lanes:
            cut = [[task.first, task.count] for task in running if task.stream is lane.stream and task.kind == "hunt"]
            streams[lane.stream.name] = {
                "following": lane.following,
                "seconds": round(lane.spent, 3),
                "closed": lane.closed,
                "again": [*map(list, lane.again), *cut],
            }
        seconds = self._spent_before + monotonic() - self._began
        journal = {
            "seed": self.plan.seed,
            "name": self.plan.name,
            "seconds": round(seconds, 3),
            "ended": ended,
            "plan": self._whole.to_json(),
            "streams": streams,
        }
        partial = self.out / "campaign.json.partial"
        partial.write_text(json.dumps(journal, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.out / "campaign.json")
        for finding in self._dirty.values():
            self.findings.write(finding)
        self._dirty.clear()
        if not ended:
            self.history.progress(self._campaign, self.result.tally.operations, seconds)

    def _finish(self, interrupted: bool) -> None:
        result, plan = self.result, self.plan
        result.seconds = monotonic() - self._began
        result.busy = self._busy_at_end / (plan.processes * result.seconds) if result.seconds else 0.0
        self._file_the_rest()
        self._judge()
        result.findings = self.findings.now()
        met = {id for finding in result.findings for id in (finding.signature.id, finding.known_as)}
        result.still = [one for one in result.still if one.id not in met]
        result.fixed = [one for one in result.fixed if one.id not in met]
        tally = result.tally
        result.missing = tally.ledger.missing(self._capabilities)
        if not tally.by_engine.get("kernels"):
            for name in ("BOUNDS", "EQUIVALENCE"):
                result.unchecked.setdefault(name, "no kernels were run beside the allocator (--kernels)")
        result.status, complaint = self._status(interrupted)
        result.complaint = result.complaint or complaint
        self._sample(force=True)
        ended = self._now().isoformat(timespec="seconds")
        try:
            (self.out / "reserve").unlink(missing_ok=True)
            result.gone = self.findings.tidy()
            self._note(force=True, ended=not interrupted)
            summary = result.to_json()
            _write(self.out / "summary.json", json.dumps(summary, indent=2) + "\n")
            _write(self.out / "summary.md", ci.markdown(summary))
            ci.junit(summary, self.out / "junit.xml")
            self.history.end(self._campaign, summary, ended)
        except (OSError, BadHistory) as error:
            result.complaint = f"cannot write to {self.out}: {error}"
            if result.status in (CLEAN, ONLY_KNOWN, NOTHING):
                result.status = HARNESS

    def _status(self, interrupted: bool) -> tuple[int, str]:
        """What is new outweighs what went wrong, which outweighs what is known."""
        result = self.result
        operations = result.tally.operations
        if interrupted:
            return INTERRUPTED, "interrupted; --resume goes on from here"
        if result.unsaved or any(finding.status in (NEW, REGRESSED) for finding in result.findings):
            return VIOLATION, self._stop
        if self._stop:
            return HARNESS, self._stop
        if result.findings or result.still:
            return ONLY_KNOWN, ""
        if not operations:
            return NOTHING, "no operation was executed; give a larger budget"
        if result.missing and result.tally.by_engine.get("walk", 0) >= THRESHOLD:
            return HARNESS, f"{operations:,} operations, and never: {', '.join(result.missing)}"
        return CLEAN, ""

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self, workers: Executor) -> None:
        plan = self.plan
        end = self._began + plan.budget
        noted = said = self._began
        while True:
            self._clock()  # where an interruption is raised
            now = monotonic()
            if self._stop or now >= end + _LAST or self._enough():
                return
            for _ in range(workers.idle()):
                task = self._next(workers, now, end)
                if task is None:
                    break
                workers.submit(task)
            if not workers.running() and not self._open(now, end):
                return
            if workers.deaths() >= _FUTILE:
                self._stop = f"{_FUTILE} worker processes in a row died before they had done anything"
                return
            for event in workers.events(0.1):
                self._take(event, now)
            if now - noted >= _NOTED:
                noted = now
                self._saved(self._note)
            if now - said >= 0.5:
                said = now
                self._show.progress(self._figures(workers, now))
            self._sample()

    def _enough(self) -> bool:
        most = self.plan.max_findings
        tasks = [*self._first, *(task for task, _ in self._of.values())]
        if any(task.kind in ("reduce", "interpret") for task in tasks):
            return False  # that belongs to what was found
        return bool(most) and sum(one.status in (NEW, REGRESSED) for one in self.findings.now()) >= most

    def _open(self, now: float, end: float) -> bool:
        """Is there anything left to do?"""
        if self._first or self._deaths or any(task.kind != "hunt" for task in self._lost):
            return now < end + _GRACE
        return now < end and (bool(self._lost) or any(not lane.closed or lane.again for lane in self._lanes))

    def _figures(self, workers: Executor, now: float) -> Figures:
        seconds = now - self._began
        findings = self.findings.now()
        return Figures(
            seconds,
            self.result.tally.operations,
            self.result.tally.operations / seconds if seconds else 0.0,
            workers.busy() / (self.plan.processes * seconds) if seconds else 0.0,
            self.plan.processes,
            len(findings),
            sum(finding.status in (NEW, REGRESSED) for finding in findings),
            tuple(
                task.stream.engine if task.kind == "hunt" and task.stream else task.kind for task in workers.running()
            ),
        )

    def _sample(self, force: bool = False) -> None:
        """One point of the timeline, now and then."""
        seconds = monotonic() - self._began
        timeline, tally = self.result.timeline, self.result.tally
        if not force and timeline and seconds - timeline[-1]["seconds"] < max(1.0, self.plan.budget / 200):
            return
        timeline.append(
            {
                "seconds": round(seconds, 2),
                "operations": tally.operations,
                "by_engine": dict(tally.by_engine),
                "findings": len(self.findings.now()),
            }
        )

    def _task(self, kind: str, stream: Stream | None, **options: Any) -> Task:
        self._number += 1
        return Task(kind, self._number, stream, str(self._hits), options.pop("seconds", 0.0), **options)

    def _next(self, workers: Executor, now: float, end: float) -> Task | None:
        """What an idle worker does now. Settling takes half of the workers at most while there is time to hunt."""
        for lost in self._lost:
            if now < (end if lost.kind == "hunt" else end + _GRACE):
                self._lost.remove(lost)
                return replace(lost, seconds=min(lost.seconds, end - now)) if lost.kind == "hunt" else lost
        hunting = now < end and any(not lane.closed or lane.again for lane in self._lanes)
        others = sum(task.kind != "hunt" for task in workers.running())
        half = max(1, self.plan.processes // 2)
        room = not hunting or (others < half and not (self.plan.processes == 1 and self._settled_last))
        task: Task | None = None
        if room and now < end + _GRACE:
            if self._deaths:
                task = self._autopsy()
            elif self._first or (self._rest and hunting):
                task = (self._first or self._rest).pop(0)
                # At the end what is left is named and replayed, and shrunk as far as that goes in a second or two.
                seconds = min(self.plan.shrink, max(1.5, end + 3.0 - now))
                if task.kind == "interpret":
                    seconds = min(_INTERPRETING, end + _LAST - 1.0 - now)
                task = replace(task, seconds=seconds)
        self._settled_last = task is not None
        if task is None and hunting:
            task = self._hunt(end - now)
        if task is not None and task.number not in self._of:
            self._of[task.number] = (task, self.result.tally.operations)
        return task

    def _hunt(self, left: float) -> Task | None:
        ready = [lane for lane in self._lanes if not lane.closed or lane.again]
        if not ready:
            return None
        lane = min(ready, key=lambda one: one.spent / one.share)
        if lane.again:
            first, count = lane.again.pop(0)
        else:
            first, count = lane.following, UNITS[lane.stream.engine]
            lane.following += count
            if lane.stream.engine == "trace":
                lane.closed = True
        lane.spent += lane.last
        seconds = left if lane.stream.engine in ("explore", "trace", "atheris") else min(left, _SLICE)
        task = self._task("hunt", lane.stream, first=first, count=count, seconds=seconds)
        self._of[task.number] = (task, self.result.tally.operations)
        return task

    def _autopsy(self) -> Task:
        death = self._deaths[0]
        task = self._task(
            "autopsy", death.lane.stream, first=death.unit, seconds=2 * self.plan.hang, path=str(death.file)
        )
        self._of[task.number] = (task, self.result.tally.operations)
        # One at a time: the next is begun when this one has ended.
        self._deaths.pop(0)
        self._dying[task.number] = death
        return task

    def _lane(self, stream: Stream | None) -> _Lane | None:
        return next((lane for lane in self._lanes if lane.stream == stream), None)

    # ---- what comes back ---------------------------------------------------------------------------------------------

    def _take(self, event: Done | Died, now: float) -> None:
        task = event.task
        _, before = self._of.pop(task.number, (task, 0))
        if isinstance(event, Died):
            if event.lost and task.number not in self._lost_once:
                self._show.died(event)
                self._note_death(event)
                self._lost_once.add(task.number)
                self._lost.append(task)
                self._of[task.number] = (task, before)
            else:
                self._take_death(event, before)
            return
        result = event.result
        self.result.cpu += result.cpu
        for warning in result.warnings:
            if warning not in self.result.warnings:
                self.result.warnings.append(warning)
                self._show.said(warning)
        if result.error:
            self._take_error(task, result.error)
            return
        if task.kind == "settle":
            assert result.settled is not None
            self._take_settled(task, result.settled)
        elif task.kind == "verify":
            self._take_verified(task.key, bool(result.fails))
        elif task.kind == "interpret":
            assert result.interpreted is not None
            self._take_interpreted(task.key, result.interpreted)
        elif task.kind == "reduce":
            if result.settled is not None:
                self._take_reduced(task.key, result.settled)
        else:
            self.result.tally.merge(result.tally)
            lane = self._lane(task.stream)
            if lane is not None and task.kind == "hunt":
                lane.spent += result.seconds - lane.last
                lane.last = result.seconds
                lane.closed = lane.closed or result.exhausted
                if result.following < task.first + task.count and not result.exhausted:
                    lane.again.insert(0, (result.following, task.first + task.count - result.following))
            for hit in result.hits:
                self._take_hit(hit, task.stream, before)
            if task.kind == "autopsy":
                self._take_autopsy(task, "")

    def _take_error(self, task: Task, error: str) -> None:
        """The harness failed in a worker: the campaign cannot be believed."""
        where = f"{task.kind} of {task.stream.name}" if task.stream is not None else f"{task.kind} of {task.path}"
        if task.kind == "settle":
            self._file_as_found(task, f"settling it failed: {error.strip().splitlines()[-1]}")
            self._show.said(f"settling {task.path} failed; it is kept as it was found\n{error}")
            return
        if task.kind == "reduce":
            self._show.said(f"{task.path} could not be shrunk, and is kept as it was found: {error.strip()}")
            return
        if task.kind == "interpret":
            self._take_interpreted(task.key, Replayed(NOT_RUN, error.strip().splitlines()[-1]))
            return
        if task.kind == "verify":
            self._show.said(f"what is known as {task.key.removeprefix(_OWN)} cannot be replayed: {error.strip()}")
            return
        self._stop = f"the harness failed in a worker ({where})\n{error}"

    def _take_hit(self, hit: Hit, stream: Stream | None, before: int = 0) -> None:
        if hit.key.property_id not in self.plan.properties:
            counted = self.result.not_counted
            counted[hit.key.property_id] = counted.get(hit.key.property_id, 0) + 1
            _forget(hit.path)
            return
        if hit.inline is not None:
            self._full(hit.error)
            path = self._hits / f"{hit.key.property_id}-saved-{self._number}-{hit.unit}.json"
            hit = replace(hit, path=self._save_hit(hit.inline, path))
        kind = self._kinds.setdefault(hit.key, _Kind())
        kind.count += 1
        task = self._task("settle", None, path=hit.path)
        if kind.finding is not None:
            self.findings.hit(kind.finding, 1)
            self._dirty[kind.finding.signature.id] = kind.finding
            if hit.path and kind.count >= kind.again:
                while kind.again <= kind.count:
                    kind.again *= _AGAIN
                self._rest.append(self._for(task, hit, before))
            else:
                _forget(hit.path)
        elif kind.settling:
            kind.waiting += 1
            _forget(hit.path)
        elif hit.path:
            kind.settling = True
            self._first.append(self._for(task, hit, before))
            self._show.found(hit, stream)
        else:
            kind.waiting += 1  # seen before in that worker, which has written it down then

    def _for(self, task: Task, hit: Hit, before: int) -> Task:
        self._settles[task.number] = hit, before + hit.operations
        return task

    def _take_settled(self, task: Task, settled: Settled) -> None:
        hit, after = self._settles.pop(task.number)
        kind = self._kinds[hit.key]
        self._keep(
            kind,
            settled.symptom,
            settled.counterexample,
            settled.found,
            replays=f"{settled.replays} of {settled.tried}",
            state=settled.state,
            after=after,
        )
        _forget(hit.path)

    def _file_as_found(self, task: Task, why: str = "") -> None:
        """Without shrinking or replay: there was no time, or it could not be done."""
        hit, after = self._settles.pop(task.number)
        found = unsettled(Path(hit.path))
        if found is None:
            return
        found = replace(found, note=why or found.note)
        self._keep(self._kinds[hit.key], Symptom(hit.key), found, found, replays="not replayed", after=after)
        _forget(hit.path)

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
    ) -> None:
        again = kind.finding is not None  # its hit has been counted
        known = self.findings.like(symptom)
        first = known is None or not known.hits
        another = known is not None and all(one.signature != symptom.signature for one in known.symptoms)

        def file() -> Finding:
            status, known_as = self.baseline.status(symptom, self._mended())
            return self.findings.file(
                symptom,
                counterexample,
                found,
                status=status,
                known_as=known_as,
                replays=replays,
                state=state,
                hits=(0 if known is kind.finding else 1) if again else 1 + kind.waiting,
                found_after=after,
            )

        finding = self._saved(file, counterexample)
        if finding is None:
            return
        if kind.finding is None:
            kind.finding, kind.waiting, kind.settling = finding, 0, False
        if first:
            self._show.filed(finding, first=True)
        self._without_device(finding)
        if another:
            self._show.said(f"{finding.signature.name} was met in another way: {symptom.signature}")

    def _without_device(self, finding: Finding) -> None:
        """Have what was found on a device replayed without one, once for each counterexample."""
        asked = finding.signature.id, finding.counterexample.operations
        if finding.counterexample.device and finding.interpreted is None and asked not in self._interpreting:
            self._interpreting.append(asked)
            self._first.append(self._task("interpret", None, path=str(finding.path), key=finding.signature.id))

    def _take_reduced(self, id: str, settled: Settled) -> None:
        finding = self.findings.by_id[id]
        best = settled.counterexample
        if settled.replays == settled.tried and len(best.operations) < len(finding.counterexample.operations):
            self._saved(lambda: self.findings.shorten(finding, best, settled.symptom), best)
            self._show.filed(finding, first=False)
            self._without_device(finding)

    def _take_interpreted(self, id: str, told: Replayed) -> None:
        finding = self.findings.by_id[id]
        finding.interpreted = told
        self._dirty[id] = finding
        if finding.interpreter is not None:
            self._show.said(f"{finding.signature.name} {finding.interpreter['told']}")

    def _mended(self) -> list[str]:
        """What the baseline knows and this campaign has seen run clean."""
        return [signature.id for signature in self.result.fixed]

    def _judge(self) -> None:
        """The statuses of this campaign's findings, now that all is known that the baseline's replays have shown."""
        for finding in self.findings.now():
            before = finding.status, finding.known_as
            finding.status, finding.known_as = self.baseline.status(finding.symptoms[0], self._mended())
            if before != (finding.status, finding.known_as):
                self._dirty[finding.signature.id] = finding

    def _take_verified(self, id: str, fails: bool) -> None:
        if id.startswith(_OWN):
            self.findings.by_id[id.removeprefix(_OWN)].stale = not fails
            return
        entry = self.baseline.entries[id]
        if not fails:
            if entry.status == KNOWN:
                self.result.fixed.append(entry.signature)
            return
        if entry.status == KNOWN:
            self.result.still.append(entry.signature)
            return
        found = entry.counterexample
        self._show.said(f"[regressed] {entry.signature}")
        kind = self._kinds.setdefault(entry.signature, _Kind())
        self._keep(kind, entry.symptoms[0], found, found, replays="1 of 1")

    # ---- what dies ---------------------------------------------------------------------------------------------------

    def _take_death(self, died: Died, before: int) -> None:
        task = died.task
        self._show.died(died)
        self._note_death(died)
        if task.kind == "settle":
            self._file_as_found(task, f"a worker {died.how} while shrinking it")
        elif task.kind == "verify":
            self._take_verified(task.key, fails=True)
        elif task.kind == "interpret":
            self._take_interpreted(task.key, Replayed(NOT_RUN, f"a worker {died.how} at it"))
        elif task.kind == "reduce":
            self._show.said(f"{task.path} is kept as it was found: a worker {died.how} while shrinking it")
        elif task.kind == "autopsy":
            self._take_autopsy(task, died.how)
        else:
            self._take_dead_hunter(died, before)

    def _note_death(self, died: Died) -> None:
        task = died.task
        self.result.deaths.append(
            {
                "how": died.how,
                "task": task.kind,
                "stream": task.stream.name if task.stream else "",
                "seed": task.stream.seed if task.stream else "",
                "unit": died.unit,
                "seconds": round(died.seconds, 3),
            }
        )

    def _take_dead_hunter(self, died: Died, before: int) -> None:
        task, tally = died.task, self.result.tally
        lane = self._lane(task.stream)
        assert lane is not None and task.stream is not None
        lane.spent += died.seconds - lane.last
        self._collect(task)
        tally.operations += died.operations
        engine = task.stream.engine
        tally.by_engine[engine] = tally.by_engine.get(engine, 0) + died.operations
        if died.unit < 0:  # of loading the target, perhaps, or of nothing that it did
            lane.stillborn += 1
            lane.again.insert(0, (task.first, task.count))
            if lane.stillborn >= _STILLBORN:
                lane.closed, lane.again = True, []
                self._stop = self._stop or f"workers die before they begin with {lane.stream.name}: one {died.how}"
        else:
            lane.deaths += 1
            lane.hangs += died.how.startswith("hung")
            left = task.first + task.count - died.unit - 1
            if left > 0:
                lane.again.insert(0, (died.unit + 1, left))
            if lane.deaths >= _DEATHS or lane.hangs >= _HANGS:
                lane.closed, lane.again = True, []
                self._show.said(f"{lane.stream.name} is left alone from here on: {lane.deaths} workers died of it")
        unit = max(died.unit, task.first)
        message = f"{FATAL}{died.how}"
        alike = self._deaths_alike.setdefault((task.stream.target, engine, died.how), [])
        if len(alike) < _AUTOPSIES:
            # On disk before anything else, though as yet without its operations: the seed and the unit give them.
            hit = self._hits / f"{Crash.id}-death-{task.number}-{unit}.json"
            found = recorded(Path(os.devnull), task.stream, unit, message)
            self._save_hit(found, hit)
            death = _Death(lane, unit, died.how, self._spool / f"autopsy-{task.number}.jsonl", hit)
            alike.append(death)
            self._deaths.append(death)
            return
        first = alike[0]
        if isinstance(first, Finding):
            self.findings.hit(first, 1)
            self._dirty[first.signature.id] = first
        else:
            first.waiting += 1

    def _take_autopsy(self, task: Task, how: str) -> None:
        death: _Death = self._dying.pop(task.number)
        death.tried += 1
        death.died += how == death.how
        if how == death.how and death.file.exists():  # it may have died before it could begin
            shutil.copyfile(death.file, death.file.with_suffix(".died"))
        if death.tried < REPLAYS:
            self._deaths.insert(0, death)
        else:
            self._file_death(death)

    def _file_death(self, death: _Death) -> None:
        """What is known of a death, as a finding."""
        stream = death.lane.stream
        reproduced = death.file.with_suffix(".died")
        message = f"{FATAL}{death.how}"
        found = recorded(reproduced if death.died else death.file, stream, death.unit, message)
        if self.plan.devices:
            found = replace(found, device=f"one of the CUDA devices {', '.join(self.plan.devices)}")
        if not death.died:
            # All that the unit did; which operation it was is not known.
            found = replace(found, at=None, note="the worker's process died once, and not when the unit was run again")
        signature = signature_of(found)
        if not death.died:
            signature = replace(signature, operation="unknown")
        status, known_as = self.baseline.status(Symptom(signature), self._mended())
        finding = self._saved(
            lambda: self.findings.file(
                Symptom(signature),
                found,
                found,
                status=status,
                known_as=known_as,
                replays=f"{death.died} of {death.tried}" if death.tried else "not replayed",
                hits=death.waiting,
                found_after=self.result.tally.operations,
            ),
            found,
        )
        if finding is not None:
            if finding.hits == death.waiting:
                self._show.filed(finding, first=True)
            self._without_device(finding)
            # What dies every time is shrunk in forked processes; what hangs would cost seconds for each of hundreds.
            sure = death.died == REPLAYS and finding.counterexample == found and len(found.operations) > 1
            if sure and not self.plan.devices and not death.how.startswith("hung"):
                path = str(finding.path)
                self._first.append(self._task("reduce", None, path=path, key=finding.signature.id))
            for alike in self._deaths_alike.values():
                alike[:] = [finding if one is death else one for one in alike]
        _forget(str(death.hit))
        _forget(str(death.file))
        _forget(str(reproduced))

    # ---- the disk ----------------------------------------------------------------------------------------------------

    def _full(self, error: object) -> None:
        """A write failed. Give up what was kept back, and end the campaign: it could not keep what it finds."""
        (self.out / "reserve").unlink(missing_ok=True)
        self._stop = self._stop or f"cannot write to {self.out}: {error}; make room there, then start again"

    def _saved(self, save: Callable[[], Any], found: Counterexample | None = None) -> Any:
        """What `save` returns. If the disk is full: once more with what was kept back; what still cannot be written is
        said on the terminal at the end."""
        for last in (False, True):
            try:
                return save()
            except (OSError, BadHistory) as error:
                self._full(error)
                if last and found is not None:
                    self.result.unsaved.append(_as_text(found))
        return None

    def _save_hit(self, found: Counterexample, path: Path) -> str:
        saved = self._saved(lambda: write(found, path), found)
        return str(saved) if saved is not None else ""

    def _file_the_rest(self) -> None:
        """Whatever was not settled in time is kept as it was found."""
        for task, _ in [*self._of.values()]:
            if task.kind in ("hunt", "autopsy"):
                self._collect(task)
        running = [task for task, _ in self._of.values() if task.kind == "settle"]
        for task in (*running, *self._first):
            if task.number in self._settles:
                self._file_as_found(task, "there was no time to shrink or replay it")
        for task in self._rest:
            _forget(self._settles.pop(task.number)[0].path)
        for death in (*self._deaths, *self._dying.values()):
            self._file_death(death)
        self._clear()
        if self._hits.exists() and not any(self._hits.iterdir()):
            self._hits.rmdir()

    def _clear(self) -> None:
        """What killed workers have left of their own."""
        for left in (self._spool / "hits").glob(f"*/{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)

    def _collect(self, task: Task) -> None:
        """What a worker had written down before it died, or was ended, and could not say."""
        for path in sorted(self._hits.glob(f"*-{task.number}-*.json")):
            found = unsettled(path)
            if found is not None and not path.name.startswith(f"{Crash.id}-death-"):
                self._take_hit(Hit(signature_of(found), found.message, 0, 0, str(path)), task.stream)


def journal_of(out: Path) -> dict[str, Any]:
    """How far the campaign in `out` was when it was cut short; "plan" is what it was to do. Raises NothingToResume."""
    try:
        journal = json.loads((out / "campaign.json").read_text(encoding="utf-8"))
        if not journal["ended"]:
            return dict(journal)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise NothingToResume(f"no campaign in {out} was cut short; start one without --resume")


def _workers(plan: CampaignPlan, spool: Path) -> Workers:
    workers = Workers(plan.processes, spool, monotonic, memory=plan.memory, hang=plan.hang, devices=plan.devices)
    return workers.__enter__()


def _forget(path: str) -> None:
    if path:
        Path(path).unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _as_text(found: Counterexample) -> str:
    """The counterexample in one line, for where no file can be written."""
    return json.dumps(
        {
            "schema": 1,
            "target": found.target,
            "property": found.property_id,
            "message": found.message,
            "configuration": found.configuration.to_json(),
            "judging": asdict(found.judging),
            "operations": [encode(operation) for operation in found.operations],
        }
    )
