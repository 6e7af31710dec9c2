"""A campaign: how it begins, which task is next, who is told what came of each, and the sum.

`Streams` say which range of which stream is hunted, the `Queue` what else there is to do. An `Executor` performs the
tasks: on worker processes, or on a cluster. What is found goes to the `Triage`, what dies to the
`Crashes`. The `Folder` has room for it all, and the `Journal` says how far it is.

Unit n of a seed is the same everywhere: how far a campaign gets depends on the machine, what it does does not. What a
campaign leaves in the spool, the next one on the same folder settles first.

The terminal is told what happens through a `Show`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol

from properties.coverage import KERNELS
from reference import PROPERTIES, believed

from ..engines.engine import Clock
from ..engines.registry import not_hunted, on_kernels
from ..findings.baseline import Baseline, DamagedBaseline
from ..findings.statuses import NEW, REGRESSED
from ..findings.store import Findings
from ..runs.files import put, set_aside
from ..runs.processes import FROM_OUTSIDE, NO_DISK, ended
from ..runs.status import CLEAN, HARNESS, NOTHING, ONLY_KNOWN
from ..runs.trust import distrusted
from . import ci
from .checks import checks_of
from .crashes import Crashes
from .executor import Done, Executor, ExecutorLost, Making
from .folder import Folder, taken
from .history import BadHistory, DamagedHistory, History
from .journal import Journal
from .outcome import CampaignResult, Figures
from .pace import Pace
from .plan import CampaignPlan
from .probe import Probed, probe
from .queue import Queue
from .streams import Streams, outside_of, streams_of
from .tasks import Died, Task
from .triage import KINDS, Tells, Triage

__all__ = ["Campaign", "Show"]

_LAST_RESULTS = 6.0
"""Seconds in which workers may say what they have found, when the campaign cannot go on."""

_NOTED = 5.0
"""Seconds between notes on disk of how far the campaign is."""

_FUTILE = 6
"""Processes in a row that die in every worker's place before they have done anything: the harness has failed."""


class Show(Tells, Protocol):
    """Is told what happens, and shows it or not."""

    def began(self, plan: CampaignPlan, adopted: int) -> None: ...

    def progress(self, figures: Figures) -> None: ...

    def died(self, died: Died) -> None: ...


class Campaign:
    """One campaign in one folder. `run` does it."""

    def __init__(
        self,
        plan: CampaignPlan,
        out: Path,
        clock: Clock,
        show: Show,
        executor: Making,
        *,
        now: Callable[[], datetime],
        baseline: Path | None = None,
        resume: bool = False,
        command: str = "",
        probed: Mapping[str, Probed] | None = None,
    ) -> None:
        """clock: where an interruption is raised. executor: makes what the tasks run on (see `worker.executor_of`).
        now: for dates in findings and history only. command: what repeats the campaign, for people. probed: what is
        known of its targets already."""
        self.plan = plan
        self.out = out
        self._clock = clock
        self._show = show
        self._now = now
        self._baseline_path = baseline or out / "baseline.json"
        self._resume = resume
        self._executor = executor
        self._probed = probed
        self.result = CampaignResult(plan, command=command)
        self._folder = Folder(out, self.result.stop, self.result.unsaved.append)
        self._journal = Journal(out, plan)
        self._settled_last = False
        self._goes_on = False

    def run(self) -> CampaignResult:
        """Run it. Raises Busy, NothingToResume, BadBaseline, BadHistory before anything is done; a folder that cannot
        be written is a complaint of the result. A KeyboardInterrupt ends it with all that it has."""
        result = self.result
        with taken(self.out):
            self._began = monotonic()
            try:
                self._prepare()
            except OSError as error:
                result.status, result.complaint = HARNESS, f"cannot write to {self.out}: {error}"
                return result
            interrupted = False
            workers = self._executor(self._folder.spool)
            try:
                self._loop(workers)
            except KeyboardInterrupt:
                interrupted = True
            except ExecutorLost as error:
                result.stop(str(error))
            finally:
                self._last_results(workers)
                for task, operations in workers.under_way():
                    self._count(task, operations)
                self._busy_at_end = workers.busy()
                workers.close()
            self._finish(interrupted)
            return result

    # ---- before and after --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        out, result = self.out, self.result
        baseline = self._baseline()
        streams = None
        if self._resume:
            self.plan, streams = self._journal.resume()
        plan = result.plan = self.plan
        probed = self._probed or probe(plan.targets)
        result.unrun = {target: probed[target].error for target in plan.targets if probed[target].error}
        result.policies = {
            target: believed(known.policy) for target in plan.targets if (known := probed[target]).policy is not None
        }
        plan = self.plan = replace(plan, targets=tuple(one for one in plan.targets if one not in result.unrun))
        self._streams = Streams(streams_of(plan), plan.round)
        self._folder.prepare()
        self.findings = Findings(out / "findings", plan.keep, self._now())
        self._history = History(out / "history.sqlite")
        self._campaign = self._begun()
        adopted = self._folder.begin(self._campaign)
        self._checks = checks_of(plan, probed)
        result.unchecked = dict(self._checks.unchecked)
        if len(plan.properties) < len(PROPERTIES):  # an episode ends at those that do not count, too
            self._streams.add(outside_of(plan, self._checks.inspected))
        if streams is not None:
            self._streams.go_on(streams)
        self._queue = Queue(self._folder.hits)
        folder, queue = self._folder, self._queue
        strange = partial(distrusted, targets=plan.targets, kernels=(plan.kernels,))
        self._triage = Triage(
            self.findings, baseline, folder, queue, plan.properties, plan.targets, strange, result, self._show
        )
        self._crashes = Crashes(self._triage, folder, queue, plan.hang, plan.devices, self._show.filed)
        self._triage.adopt(adopted)
        self._triage.settle_late()
        self._triage.verify()
        self._note()
        self._show.began(plan, len(adopted))

    def _baseline(self) -> Baseline:
        """What is known. A damaged file is moved aside, and the night goes on. Raises BadBaseline for a newer one."""
        try:
            return Baseline.load(self._baseline_path)
        except DamagedBaseline as error:
            self._move_aside(self._baseline_path, f"{error}; without it every known finding counts as new")
            return Baseline({})

    def _begun(self) -> int:
        """This campaign's number in the history. A damaged one is moved aside. Raises BadHistory for a newer one."""
        began = self._now().isoformat(timespec="seconds")
        try:
            return self._history.begin(self.result.to_json(), began)
        except DamagedHistory as error:
            self._move_aside(self._history.path, f"{error}; the history begins anew")
            return self._history.begin(self.result.to_json(), began)

    def _move_aside(self, path: Path, why: str) -> None:
        said = f"{why}; it is kept as {set_aside(path)}"
        self.result.warnings.append(said)
        self._show.said(said)

    def _note(self, ended: bool = False) -> None:
        """Keep on disk how far it is, should this process be killed. Raises OSError, BadHistory."""
        seconds = self._journal.before + monotonic() - self._began
        self._journal.note(seconds, self._streams.noted(self._queue.running), ended)
        self._triage.note()
        if not ended:
            self._history.progress(self._campaign, self.result.tally.operations, seconds)

    def _finish(self, interrupted: bool) -> None:
        result, plan = self.result, self.plan
        result.seconds = monotonic() - self._began
        result.busy = self._busy_at_end / (plan.processes * result.seconds) if result.seconds else 0.0
        self._triage.end()
        self._crashes.end(self.result.tally.operations)
        self._folder.end()
        self._triage.judge()
        result.findings = self.findings.now()
        met = {id for finding in result.findings for id in (finding.signature.id, finding.known_as)}
        result.still = [one for one in result.still if one.id not in met]
        result.fixed = [one for one in result.fixed if one.id not in met]
        tally = result.tally
        result.missing = tally.ledger.missing(self._checks.capabilities, self._checks.policies)
        ran = [name for name, count in tally.by_engine.items() if count]
        for name, reason in not_hunted(ran).items():
            result.unchecked.setdefault(name, reason)
        if not on_kernels(ran):
            due = on_kernels(self._streams.waiting)
            late = "the run ended before the kernels had their turn; give a larger --budget"
            for name in KERNELS:
                result.unchecked.setdefault(
                    name, late if due else "no kernels were run beside the allocator (--kernels)"
                )
        result.conclude(interrupted)
        self._sample(force=True)
        ended = self._now().isoformat(timespec="seconds")
        try:
            self._folder.give_up_reserve()
            result.gone = self.findings.tidy()
            self._note(ended=not interrupted and not result.stopped)
            summary = result.to_json()
            put(self.out / "summary.json", json.dumps(summary, indent=2) + "\n")
            put(self.out / "summary.md", ci.markdown(summary))
            ci.junit(summary, self.out / "junit.xml")
            self._history.end(self._campaign, summary, ended)
        except (OSError, BadHistory) as error:
            result.complaint = f"cannot write to {self.out}: {error}"
            if result.status in (CLEAN, ONLY_KNOWN, NOTHING):
                result.status = HARNESS

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self, workers: Executor) -> None:
        self._pace = Pace(self.plan, self._began)
        noted = said = self._began
        while True:
            self._clock()  # where an interruption is raised
            now = monotonic()
            if self.result.stopped or self._enough() or self._pace.over(now):
                return
            for _ in range(workers.idle()):
                task = self._next(workers, now)
                if task is None:
                    break
                workers.submit(task)
            if not workers.running() and not self._open(now):
                return
            if workers.deaths() >= _FUTILE:
                self.result.stopped = f"{_FUTILE} worker processes in a row died before they had done anything"
                return
            for event in workers.events(0.1):
                self._take(event)
            if now - noted >= _NOTED:
                noted = now
                self._folder.saved(self._note)
            if now - said >= 0.5:
                said = now
                self._show.progress(self._figures(workers, now))
            self._sample()

    def _last_results(self, workers: Executor) -> None:
        """If the campaign could not go on, what its workers have found until then: a hit that no disk would take is in
        their memory alone."""
        until = monotonic() + _LAST_RESULTS
        with suppress(ExecutorLost):
            while self.result.stopped and workers.running() and monotonic() < until:
                for event in workers.events(0.1):
                    self._take(event)

    def _enough(self) -> bool:
        most = self.plan.max_findings
        if any(task.kind in ("reduce", "interpret") for task in (*self._queue.first, *self._queue.running)):
            return False  # that belongs to what was found
        if not most or self._open_findings() < most:
            return False
        now, seconds = monotonic(), self.plan.go_on * self.plan.budget
        if seconds and not self._goes_on and self._hunting(now):
            self._goes_on = True
            left = self._pace.ends_within(seconds, now)
            outside = outside_of(self.plan, self._checks.inspected)
            self._streams.add(outside)
            also = ", from outside too" if outside else ""
            self._show.said(f"worse may lie behind it: hunting goes on for {left:.0f} s{also} (--go-on 0 ends it here)")
        return not self._goes_on

    def _open_findings(self) -> int:
        return sum(finding.status in (NEW, REGRESSED) for finding in self.findings.now())

    def _open(self, now: float) -> bool:
        """Is there anything left to do?"""
        lost = self._queue.lost
        if self._settles(now) or self._crashes.waiting or any(task.kind != "hunt" for task in lost):
            return self._pace.settling(now)
        return self._hunting(now) or (now < self._pace.end and bool(lost))

    def _settles(self, now: float) -> bool:
        """Is there something to settle, and not only what looks like something else while a run waits to end?"""
        first = self._queue.first
        ending = self._goes_on and not self._pace.hunting(now)
        return bool(first) and not (ending and self._triage.alike(first[0]))

    def _hunting(self, now: float) -> bool:
        return self._streams.open and self._pace.hunting(now)

    def _figures(self, workers: Executor, now: float) -> Figures:
        seconds = now - self._began
        operations, processes = self.result.tally.operations, self.plan.processes
        operations += sum(done for _, done in workers.under_way())
        return Figures(
            seconds,
            operations,
            operations / seconds if seconds else 0.0,
            workers.busy() / (processes * seconds) if seconds else 0.0,
            processes,
            len(self.findings.now()),
            self._open_findings(),
            tuple(
                task.stream.engine if task.kind == "hunt" and task.stream else task.kind for task in workers.running()
            ),
        )

    def _sample(self, force: bool = False) -> None:
        self.result.sample(monotonic() - self._began, len(self.findings.now()), force)

    # ---- which task is next ------------------------------------------------------------------------------------------

    def _next(self, workers: Executor, now: float) -> Task | None:
        """What an idle worker does now. Settling takes half of the workers at most while there is time to hunt."""
        queue = self._queue
        for lost in queue.lost:
            if now < self._pace.end if lost.kind == "hunt" else self._pace.settling(now):
                queue.lost.remove(lost)
                left = self._pace.end - now
                return replace(lost, seconds=min(lost.seconds, left)) if lost.kind == "hunt" else lost
        hunting = self._hunting(now)
        others = sum(task.kind != "hunt" for task in workers.running())
        half = max(1, self.plan.processes // 2)
        room = not hunting or (others < half and not (self.plan.processes == 1 and self._settled_last))
        task: Task | None = None
        if room and self._pace.settling(now):
            if self._crashes.waiting:
                task = self._crashes.next()
            elif self._settles(now) or (queue.rest and hunting):
                task = (queue.first or queue.rest).pop(0)
                task = replace(task, seconds=self._pace.seconds(task, now))
        self._settled_last = task is not None
        if task is None and hunting:
            task = self._hunt(self._pace.end - now)
        if task is not None:
            queue.given(task, self.result.tally.operations)
        return task

    def _hunt(self, left: float) -> Task:
        part = self._streams.next(left)
        return self._queue.make(
            "hunt", part.stream, first=part.first, count=part.count, seconds=part.seconds, most=self._pace.most
        )

    # ---- what comes back ---------------------------------------------------------------------------------------------

    def _take(self, event: Done | Died) -> None:
        task = event.task
        before = self._queue.back(task)
        if isinstance(event, Died):
            self._take_death(event, before)
            return
        result = event.result
        self.result.cpu += result.cpu
        for warning in result.warnings:
            if warning not in self.result.warnings:
                self.result.warnings.append(warning)
                self._show.said(warning)
        if task.kind in KINDS:
            if result.error:
                self._triage.failed(task, result.error)
            else:
                self._triage.done(task, result)
            return
        if result.error:  # the campaign cannot be believed
            assert task.stream is not None
            self.result.stopped = f"the harness failed in a worker ({task.kind} of {task.stream.name})\n{result.error}"
            return
        self.result.tally.merge(result.tally)
        if task.stream is not None and (figures := result.tally.figures.get("trace")):
            self.result.traces[task.stream.target] = figures
        if task.kind == "hunt":
            self._streams.done(task, result)
        for hit in result.hits:
            self._triage.hit(hit, task.stream, before)
        if task.kind == "reproduce":
            self._crashes.done(task, "", self.result.tally.operations)

    def _take_death(self, died: Died, before: int) -> None:
        task = died.task
        self._show.died(died)
        self.result.note_death(died)
        if died.how == ended(NO_DISK):
            self._folder.full("a worker found no room there")
            return
        if (died.lost or died.how in FROM_OUTSIDE) and self._queue.lose(task, before):
            return
        if task.kind in KINDS:
            self._triage.died(task, died.how)
        elif task.kind == "reproduce":
            self._crashes.done(task, died.how, self.result.tally.operations)
        else:
            self._take_dead_hunter(died)

    def _count(self, task: Task, operations: int) -> None:
        """Operations of a task that has no result."""
        if task.kind == "hunt" and task.stream is not None:
            tally, engine = self.result.tally, task.stream.engine
            tally.operations += operations
            tally.by_engine[engine] = tally.by_engine.get(engine, 0) + operations

    def _take_dead_hunter(self, died: Died) -> None:
        task = died.task
        assert task.stream is not None
        self._triage.collect(task)
        self._count(task, died.operations)
        why = self._streams.died(died)
        if why and died.unit < 0:  # nothing can be done with what the stream is on
            self.result.stop(why)
        elif why:
            self._show.said(why)
        self._crashes.died(died)
