"""What a campaign tells: `Figures` while it runs, and a `CampaignResult` at its end, with its exit status."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from properties.ledger import EVENTS, THRESHOLD
from properties.state_coverage import SAMPLED
from reference import PROPERTIES

from ..engines.registry import thorough
from ..engines.tally import Tally
from ..findings.signature import Signature
from ..findings.statuses import FIXED, KNOWN, NEW, REGRESSED
from ..findings.store import Finding
from ..runs.status import CLEAN, HARNESS, INTERRUPTED, NOTHING, ONLY_KNOWN, VIOLATION
from ..runs.values import versions
from .plan import CampaignPlan
from .summary import SCHEMA
from .tasks import Died

__all__ = ["CampaignResult", "Figures"]


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


@dataclass
class CampaignResult:
    """How it ended. `status` is an exit status; `findings` those that were hit, `fixed` what the baseline knows and no
    longer fails, `still` what it knows and was not met, though it fails, `unsaved` counterexamples that no disk would
    take, as text, `traces` the figures of each target's request trace, `command` what a person types to repeat the
    campaign, `stopped` why it ended before its time, if it did, `unrun` targets that could not be made, and why,
    `policies` what was believed of each target."""

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
    traces: dict[str, dict[str, Any]] = field(default_factory=dict)
    unrun: dict[str, str] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    complaint: str = ""
    command: str = ""
    stopped: str = ""

    def stop(self, why: str) -> None:
        """The campaign cannot go on. What stopped it first is what is said."""
        self.stopped = self.stopped or why

    def note_death(self, died: Died) -> None:
        task = died.task
        self.deaths.append(
            {
                "how": died.how,
                "task": task.kind,
                "stream": task.stream.name if task.stream else "",
                "seed": task.stream.seed if task.stream else "",
                "unit": died.unit,
                "seconds": round(died.seconds, 3),
            }
        )

    def sample(self, seconds: float, findings: int, force: bool = False) -> None:
        """One point of the timeline, now and then."""
        timeline, tally = self.timeline, self.tally
        if not force and timeline and seconds - timeline[-1]["seconds"] < max(1.0, self.plan.budget / 200):
            return
        timeline.append(
            {
                "seconds": round(seconds, 2),
                "operations": tally.operations,
                "by_engine": dict(tally.by_engine),
                "findings": findings,
            }
        )

    def conclude(self, interrupted: bool) -> None:
        """Status and complaint, now that all else is here."""
        self.status, complaint = self._conclusion(interrupted)
        self.complaint = self.complaint or complaint

    def _conclusion(self, interrupted: bool) -> tuple[int, str]:
        """What is new outweighs what went wrong, which outweighs what is known."""
        operations = self.tally.operations
        if interrupted:
            return INTERRUPTED, "interrupted; --resume goes on from here"
        if self.unsaved or any(finding.status in (NEW, REGRESSED) for finding in self.findings):
            return VIOLATION, self.stopped
        if self.stopped:
            return HARNESS, self.stopped
        if self.unrun:
            return HARNESS, f"not run: {'; '.join(self.unrun.values())}"
        if self.findings or self.still:
            return ONLY_KNOWN, ""
        if not operations:
            return NOTHING, "no operation was executed; give a larger budget"
        if self.missing and thorough(self.tally.by_engine) >= THRESHOLD:
            return HARNESS, f"{operations:,} operations, and never: {', '.join(self.missing)}"
        return CLEAN, ""

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
            "schema": SCHEMA,
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
            "trace": next(iter(self.traces.values()), None),
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
            "targets_not_run": self.unrun,
            "policies": self.policies,
            "plan": plan.to_json(),
            "versions": versions(),
        }
