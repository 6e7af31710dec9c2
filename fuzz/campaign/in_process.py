"""A campaign: engines take turns on one target until the budget is spent; what they find is written, shrunk and summed
up.

A finding is on disk before anything else is done with it. A campaign that is given a seed does the same operations
again, in the same order; only how far it gets depends on the machine.

This room may not know: the terminal (a `Display` is told what happens), any core.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from properties.coverage import unchecked
from properties.ledger import EVENTS, THRESHOLD
from properties.operations import REUSES, Configuration
from properties.target import TargetFactory
from reference import PROPERTIES

from ..engines.engine import Assignment, Clock, Engine
from ..engines.registry import engine_of, on_kernels, shares, thorough
from ..engines.tally import Tally
from ..findings.shrink import shrink
from ..findings.signature import signature_of
from ..runs.counterexample import Counterexample, versions, write
from ..runs.perform import LONG, Judging, kernel_laws, perform
from ..runs.state_coverage import SAMPLED
from ..runs.status import CLEAN, HARNESS, INTERRUPTED, NOTHING, VIOLATION

__all__ = [
    "Display",
    "Finding",
    "Plan",
    "Result",
    "run",
]

_ROUND = 5.0
"""Seconds in which every engine has one turn, of its share; less where the budget is short."""

_UNSHARED = 30.0
"""Part of a round, in percent, of an engine that has none of its own."""

_REPLAYS = 3

_LEAST = 0.1
"""Seconds that an engine's first turn has at least."""


class Display(Protocol):
    """Is told what happens, and shows it or not."""

    def turn(self, engine: str) -> None: ...

    def progress(self, tally: Tally, elapsed: float, findings: int) -> None: ...

    def found(self, finding: Finding) -> None: ...

    def shrinking(self, operations: int, replays: int) -> None: ...

    def shrunk(self, finding: Finding) -> None: ...


@dataclass(frozen=True)
class Plan:
    """What to do. budget and shrink are seconds; max_findings ends the campaign (each property is one finding).

    kernels: what engines that need kernels run each step on; without any, those do nothing. profile: how long
    Hypothesis's runs are, nightly (mostly 50 steps) or soak (200). trace: a file; "" for the built-in one.
    """

    target: str
    seed: str
    budget: float
    out: Path
    engines: tuple[str, ...] = field(default_factory=lambda: tuple(shares()))
    judging: Judging = Judging()
    kernels: str = ""
    profile: str = "nightly"
    shrink: float = 10.0
    max_findings: int = 1
    trace: str = ""


@dataclass(frozen=True)
class Finding:
    """One counterexample on disk, shrunk if there was time. replays: "3 of 3", or fewer of them: flaky."""

    path: Path
    counterexample: Counterexample
    found_after: int
    length_found: int
    replays: str = "not replayed"


@dataclass
class Result:
    """How it ended. `status` is an exit status."""

    plan: Plan
    status: int = CLEAN
    seconds: float = 0.0
    tally: Tally = field(default_factory=Tally)
    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)
    complaint: str = ""
    timeline: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "schema": 1,
            "status": self.status,
            "complaint": self.complaint,
            "target": self.plan.target,
            "seed": self.plan.seed,
            "judging": asdict(self.plan.judging),
            "profile": self.plan.profile,
            "budget_seconds": self.plan.budget,
            "seconds": round(self.seconds, 3),
            **tally.to_json(),
            "properties": {name: self.unchecked.get(name, "checked") for name in PROPERTIES},
            "sometimes": {name: tally.ledger.counts.get(name, 0) for name in EVENTS},
            "never_happened": self.missing,
            "coverage": tally.coverage.to_json(),
            "coverage_sampled": SAMPLED,
            "timeline": self.timeline,
            "trace": tally.figures.get("trace"),
            "findings": [
                {
                    "file": finding.path.name,
                    "property": finding.counterexample.property_id,
                    "message": finding.counterexample.message,
                    "operations": len(finding.counterexample.operations),
                    "operations_when_found": finding.length_found,
                    "found_after_operations": finding.found_after,
                    "engine": finding.counterexample.engine,
                    "seed": finding.counterexample.seed,
                    "replay": f"python -m fuzz replay {finding.path}",
                    # As in a campaign on workers, which compares with a baseline and has a directory for each.
                    "signature": signature_of(finding.counterexample).to_json(),
                    "status": "new",
                    "hits": 1,
                    "replays": finding.replays,
                    "directory": str(finding.path.parent),
                }
                for finding in self.findings
            ],
            "versions": versions(),
        }


def run(plan: Plan, factory: TargetFactory, clock: Clock, display: Display) -> Result:
    """Run the campaign; writes findings and summary.json under plan.out. A KeyboardInterrupt ends it, with all that
    it has.
    """
    result = Result(plan)
    start = clock()
    session = plan.judging.session(factory, Configuration())
    capabilities, policy = session.capabilities, session.judge.policy
    policies = [plan.judging.session(factory, Configuration(reuse=reuse)).judge.policy for reuse in REUSES]
    result.unchecked = unchecked(capabilities, policy, bool(plan.kernels) and on_kernels(plan.engines))
    try:
        _take_turns(result, factory, clock, start, display)
    except KeyboardInterrupt:
        result.status, result.complaint = INTERRUPTED, "interrupted"
    result.seconds = clock() - start
    _sample(result, result.seconds)
    tally = result.tally
    result.missing = tally.ledger.missing(capabilities, policies)
    if plan.kernels and not on_kernels(name for name, count in tally.by_engine.items() if count):
        result.unchecked = unchecked(capabilities, policy)
    if result.status == CLEAN:
        if result.findings:
            result.status = VIOLATION
        elif not tally.operations:
            result.status, result.complaint = NOTHING, "no operation was executed; give a larger budget"
        elif result.missing and thorough(tally.by_engine) >= THRESHOLD:
            result.status = HARNESS
            result.complaint = f"{tally.operations:,} operations, and never: {', '.join(result.missing)}"
    plan.out.mkdir(parents=True, exist_ok=True)
    (plan.out / "summary.json").write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    return result


def _sample(result: Result, elapsed: float) -> None:
    """One point of the timeline."""
    tally = result.tally
    result.timeline.append(
        {
            "seconds": round(elapsed, 2),
            "operations": tally.operations,
            "by_engine": dict(tally.by_engine),
            "findings": len(result.findings),
        }
    )


def _take_turns(result: Result, factory: TargetFactory, clock: Clock, start: float, display: Display) -> None:
    plan, tally = result.plan, result.tally
    deadline = start + plan.budget
    every = [engine_of(name) for name in plan.engines]
    turns = [
        engine for engine in every if not engine.once and engine.fits(factory) and (plan.kernels or not engine.kernels)
    ]
    following = {engine.name: 0 for engine in every}  # the next unit of each
    known: set[str | None] = set()

    def progress() -> None:
        elapsed = clock() - start
        if not result.timeline or elapsed - result.timeline[-1]["seconds"] >= max(1.0, plan.budget / 200):
            _sample(result, elapsed)
        display.progress(tally, elapsed, len(result.findings))

    def turn(engine: Engine, until: float) -> None:
        display.turn(engine.name)
        began = clock()
        found, following[engine.name] = engine.hunt(
            Assignment(
                factory,
                plan.target,
                plan.seed,
                replace(plan.judging, kernels=plan.kernels) if engine.kernels else plan.judging,
                tally,
                clock=clock,
                deadline=until,
                first=following[engine.name],
                count=None if engine.sliced else engine.units,
                progress=progress,
                profile=plan.profile,
                trace=plan.trace,
                folder=plan.out / "hits",
                kept=plan.out,
            )
        )
        tally.seconds[engine.name] = tally.seconds.get(engine.name, 0.0) + clock() - began
        progress()
        if found is not None:
            _settle(result, found, factory, clock, display, known)

    for engine in every:
        if engine.once:
            turn(engine, float("inf"))
    if plan.budget <= 0:
        return
    # Every engine has one turn, however long the trace took; then turns until the deadline.
    had_turn: set[str] = set()
    while turns and len(result.findings) < plan.max_findings:
        for engine in turns:
            if engine.kernels and engine.name not in had_turn:
                kernel_laws(plan.kernels)  # imports torch and Triton: seconds that its first turn should not pay for
            began = clock()
            turn_of = (engine.share or _UNSHARED) / 100 * min(_ROUND, plan.budget / 2)
            until = min(deadline, began + turn_of) if engine.sliced else deadline
            if engine.name not in had_turn:
                had_turn.add(engine.name)
                until = max(until, began + _LEAST)
            elif began >= deadline:
                return
            if len(result.findings) >= plan.max_findings:
                return
            turn(engine, until)
        turns = [engine for engine in turns if not engine.ended(following[engine.name])]


def _settle(
    result: Result,
    found: Counterexample,
    factory: TargetFactory,
    clock: Clock,
    display: Display,
    known: set[str | None],
) -> None:
    """Write a finding as it is, then shrink it and write it again. One finding a property."""
    if found.property_id in known:
        return
    known.add(found.property_id)
    plan = result.plan
    path = plan.out / "findings" / f"{found.property_id}-{len(result.findings) + 1}.json"
    finding = Finding(write(found, path), found, result.tally.operations, len(found.operations))
    result.findings.append(finding)
    display.found(finding)
    if plan.shrink > 0:
        shrunk = shrink(found, factory, clock=clock, seconds=plan.shrink, progress=display.shrinking)
        smaller = shrunk.counterexample
        final = path.with_name(f"{smaller.property_id}-{len(result.findings)}.json")
        write(smaller, final)
        if final != path:
            path.unlink()
        known.add(smaller.property_id)
        finding = replace(finding, path=final, counterexample=smaller)
        result.findings[-1] = finding
    final_form = finding.counterexample
    # Strictly, as it was shrunk; not what is as long as a trace, where that takes minutes.
    strict = plan.shrink > 0 and len(final_form.operations) <= LONG
    count = 0
    for _ in range(_REPLAYS):
        run = perform(factory, final_form.configuration, final_form.operations, final_form.judging, strict=strict)
        count += run.violation is not None and run.violation.id == final_form.property_id
    result.findings[-1] = finding = replace(finding, replays=f"{count} of {_REPLAYS}")
    if plan.shrink > 0:
        display.shrunk(finding)
