"""A campaign on many workers: how it begins, which task is next, who is told what came of each, and the sum.

`Lanes` say which range of which stream is hunted, the `Agenda` what else there is to do. What is found goes to the
`Keeper`, what dies to the `Autopsies`. The `Folder` has room for it all, and the `Journal` says how far it is.

Unit n of a seed is the same everywhere: how far a campaign gets depends on the machine, what it does does not. What a
campaign leaves in the spool, the next one on the same folder settles first.

This room may not know: the terminal (a `Show` is told what happens), any core, how processes are made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import monotonic

from properties.coverage import KERNELS, unchecked
from properties.operations import REUSES, Configuration
from properties.target import Capability
from properties.targets import load
from reference import Policy

from ..engines.engine import Clock
from ..engines.registry import on_kernels
from ..findings.baseline import NEW, REGRESSED, Baseline
from ..findings.store import Findings
from ..runs.files import put
from ..runs.status import CLEAN, HARNESS, NOTHING, ONLY_KNOWN
from . import ci
from .crashes import Autopsies
from .folder import Folder, taken
from .history import BadHistory, History
from .journal import Journal
from .outcome import CampaignResult, Figures, Show
from .plans import CampaignPlan
from .queue import Agenda
from .streams import Lanes
from .supervisor import Died, Done, Executor, ExecutorLost, Workers
from .triage import KINDS, Keeper
from .worker import Task

__all__ = ["Nightly"]

_GRACE = 8.0
"""Seconds after the budget in which running tasks may end and hits may still be settled."""

_LAST = 14.0
"""Seconds after the budget when whatever still runs is ended."""

_NOTED = 5.0
"""Seconds between notes on disk of how far the campaign is."""

_FUTILE = 6
"""Processes in a row that die in every worker's place before they have done anything: the harness has failed."""

_INTERPRETING = 60.0
"""Seconds that a replay in the interpreter may take; importing torch is a good part of that."""


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
        self.plan = plan
        self.out = out
        self._clock = clock
        self._show = show
        self._now = now
        self._baseline_path = baseline or out / "baseline.json"
        self._resume = resume
        self._executor = executor or _workers
        self.result = CampaignResult(plan, command=command)
        self._folder = Folder(out, self.result)
        self._journal = Journal(out, plan)
        self._settled_last = False

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
            workers = self._executor(self.plan, self._folder.spool)
            try:
                self._loop(workers)
            except KeyboardInterrupt:
                interrupted = True
            except ExecutorLost as error:
                result.stop(str(error))
            finally:
                self._busy_at_end = workers.busy()
                workers.close()
            self._finish(interrupted)
            return result

    # ---- before and after --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        out, result = self.out, self.result
        baseline = Baseline.load(self._baseline_path)
        streams = None
        if self._resume:
            self.plan, streams = self._journal.resume()
        plan = result.plan = self.plan
        self._lanes = Lanes(plan.streams())
        if streams is not None:
            self._lanes.go_on(streams)
        self._folder.prepare()
        self.findings = Findings(out / "findings", plan.keep, self._now())
        self._history = History(out / "history.sqlite")
        self._campaign = self._history.begin(result.to_json(), self._now().isoformat(timespec="seconds"))
        adopted = self._folder.begin(self._campaign)
        self._what_is_checked()
        self._agenda = Agenda(self._folder.hits)
        self._keeper = Keeper(self.findings, baseline, self._folder, self._agenda, result, self._show)
        self._autopsies = Autopsies(self._keeper, self._folder, self._agenda, result, self._show)
        self._keeper.adopt(adopted)
        self._keeper.verify()
        self._note()
        self._show.began(plan, len(adopted))

    def _what_is_checked(self) -> None:
        """Per property: checked if any target's sessions check it."""
        capabilities: frozenset[Capability] = frozenset()
        reasons: list[dict[str, str]] = []
        self._policies: list[Policy] = []
        named = (name for name, share in self.plan.engines.items() if share > 0)
        with_kernels = bool(self.plan.kernels) and on_kernels(named)
        for target in self.plan.targets:
            factory = load(target)
            for variant in self.plan.configurations:
                judging = variant.judging()
                session = judging.session(factory, Configuration())
                capabilities |= session.capabilities
                reasons.append(unchecked(session.capabilities, session.judge.policy, with_kernels))
                self._policies += [
                    judging.session(factory, Configuration(reuse=reuse)).judge.policy for reuse in REUSES
                ]
        self._capabilities = capabilities
        self.result.unchecked = {
            name: reason for name, reason in reasons[0].items() if all(name in each for each in reasons)
        }

    def _note(self, ended: bool = False) -> None:
        """Keep on disk how far it is, should this process be killed. Raises OSError, BadHistory."""
        seconds = self._journal.before + monotonic() - self._began
        self._journal.note(seconds, self._lanes.noted(self._agenda.running), ended)
        self._keeper.note()
        if not ended:
            self._history.progress(self._campaign, self.result.tally.operations, seconds)

    def _finish(self, interrupted: bool) -> None:
        result, plan = self.result, self.plan
        result.seconds = monotonic() - self._began
        result.busy = self._busy_at_end / (plan.processes * result.seconds) if result.seconds else 0.0
        self._keeper.end()
        self._autopsies.end()
        self._folder.end()
        self._keeper.judge()
        result.findings = self.findings.now()
        met = {id for finding in result.findings for id in (finding.signature.id, finding.known_as)}
        result.still = [one for one in result.still if one.id not in met]
        result.fixed = [one for one in result.fixed if one.id not in met]
        tally = result.tally
        result.missing = tally.ledger.missing(self._capabilities, self._policies)
        if not on_kernels(name for name, count in tally.by_engine.items() if count):
            for name in KERNELS:
                result.unchecked.setdefault(name, "no kernels were run beside the allocator (--kernels)")
        result.conclude(interrupted)
        self._sample(force=True)
        ended = self._now().isoformat(timespec="seconds")
        try:
            self._folder.give_up_reserve()
            result.gone = self.findings.tidy()
            self._note(ended=not interrupted)
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
        end = self._began + self.plan.budget
        noted = said = self._began
        while True:
            self._clock()  # where an interruption is raised
            now = monotonic()
            if self.result.stopped or now >= end + _LAST or self._enough():
                return
            for _ in range(workers.idle()):
                task = self._next(workers, now, end)
                if task is None:
                    break
                workers.submit(task)
            if not workers.running() and not self._open(now, end):
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

    def _enough(self) -> bool:
        most = self.plan.max_findings
        if any(task.kind in ("reduce", "interpret") for task in (*self._agenda.first, *self._agenda.running)):
            return False  # that belongs to what was found
        return bool(most) and self._open_findings() >= most

    def _open_findings(self) -> int:
        return sum(finding.status in (NEW, REGRESSED) for finding in self.findings.now())

    def _open(self, now: float, end: float) -> bool:
        """Is there anything left to do?"""
        lost = self._agenda.lost
        if self._agenda.first or self._autopsies.waiting or any(task.kind != "hunt" for task in lost):
            return now < end + _GRACE
        return now < end and (bool(lost) or self._lanes.open)

    def _figures(self, workers: Executor, now: float) -> Figures:
        seconds = now - self._began
        operations, processes = self.result.tally.operations, self.plan.processes
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

    def _next(self, workers: Executor, now: float, end: float) -> Task | None:
        """What an idle worker does now. Settling takes half of the workers at most while there is time to hunt."""
        agenda = self._agenda
        for lost in agenda.lost:
            if now < (end if lost.kind == "hunt" else end + _GRACE):
                agenda.lost.remove(lost)
                return replace(lost, seconds=min(lost.seconds, end - now)) if lost.kind == "hunt" else lost
        hunting = now < end and self._lanes.open
        others = sum(task.kind != "hunt" for task in workers.running())
        half = max(1, self.plan.processes // 2)
        room = not hunting or (others < half and not (self.plan.processes == 1 and self._settled_last))
        task: Task | None = None
        if room and now < end + _GRACE:
            if self._autopsies.waiting:
                task = self._autopsies.next()
            elif agenda.first or (agenda.rest and hunting):
                task = (agenda.first or agenda.rest).pop(0)
                # At the end what is left is named and replayed, and shrunk as far as that goes in a second or two.
                seconds = min(self.plan.shrink, max(1.5, end + 3.0 - now))
                if task.kind == "interpret":
                    seconds = min(_INTERPRETING, end + _LAST - 1.0 - now)
                task = replace(task, seconds=seconds)
        self._settled_last = task is not None
        if task is None and hunting:
            task = self._hunt(end - now)
        if task is not None:
            agenda.given(task, self.result.tally.operations)
        return task

    def _hunt(self, left: float) -> Task:
        part = self._lanes.next(left)
        return self._agenda.make("hunt", part.stream, first=part.first, count=part.count, seconds=part.seconds)

    # ---- what comes back ---------------------------------------------------------------------------------------------

    def _take(self, event: Done | Died) -> None:
        task = event.task
        before = self._agenda.back(task)
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
                self._keeper.failed(task, result.error)
            else:
                self._keeper.done(task, result)
            return
        if result.error:  # the campaign cannot be believed
            assert task.stream is not None
            self.result.stopped = f"the harness failed in a worker ({task.kind} of {task.stream.name})\n{result.error}"
            return
        self.result.tally.merge(result.tally)
        if task.kind == "hunt":
            self._lanes.done(task, result)
        for hit in result.hits:
            self._keeper.hit(hit, task.stream, before)
        if task.kind == "autopsy":
            self._autopsies.done(task, "")

    def _take_death(self, died: Died, before: int) -> None:
        task = died.task
        self._show.died(died)
        self.result.note_death(died)
        if died.lost and self._agenda.lose(task, before):
            return
        if task.kind in KINDS:
            self._keeper.died(task, died.how)
        elif task.kind == "autopsy":
            self._autopsies.done(task, died.how)
        else:
            self._take_dead_hunter(died)

    def _take_dead_hunter(self, died: Died) -> None:
        task, tally = died.task, self.result.tally
        assert task.stream is not None
        self._keeper.collect(task)
        engine = task.stream.engine
        tally.operations += died.operations
        tally.by_engine[engine] = tally.by_engine.get(engine, 0) + died.operations
        why = self._lanes.died(died)
        if why and died.unit < 0:  # nothing can be done with what the stream is on
            self.result.stop(why)
        elif why:
            self._show.said(why)
        self._autopsies.died(died)


def _workers(plan: CampaignPlan, spool: Path) -> Workers:
    workers = Workers(plan.processes, spool, monotonic, memory=plan.memory, hang=plan.hang, devices=plan.devices)
    return workers.__enter__()
