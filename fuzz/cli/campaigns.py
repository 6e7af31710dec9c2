"""`run` on workers: `--campaign`, `--workers`, `--devices`, `--resume`, `--engine ray`.

This room may not know: how a campaign runs; it places the workers, shows progress, and picks the exit status.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..campaign import ci
from ..campaign.campaign import Nightly
from ..campaign.cluster import NoCluster, NoRay, RayWorkers, connected
from ..campaign.folder import Busy
from ..campaign.history import BadHistory
from ..campaign.journal import NothingToResume, journal_of
from ..campaign.outcome import CampaignResult, Figures
from ..campaign.plans import BadPlan, CampaignPlan, overruled, ready
from ..campaign.supervisor import Died, Executor
from ..campaign.worker import Hit, Stream
from ..engines.engine import Clock
from ..engines.registry import engine_of, on_kernels
from ..findings.baseline import NEW, REGRESSED, BadBaseline
from ..findings.store import Finding
from ..runs.status import CLEAN, HARNESS, NOTHING, ONLY_KNOWN
from ..show.page import render
from ..show.timeline import hard_states
from .common import Interruptible, complaints, console, kernels_of, now, show_engines, show_operations, usage

__all__ = ["OnRay", "campaign"]


class _Lines:
    """Progress on a terminal as a bar, elsewhere as a line every ten seconds; what happens, as it happens."""

    def __init__(self, budget: float) -> None:
        self._said = -10.0
        self._budget = budget
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.fields[line]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=budget or 1, line="")

    def __enter__(self) -> _Lines:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def began(self, plan: CampaignPlan, adopted: int) -> None:
        if adopted:
            self.said(f"{adopted} hits of an earlier campaign that was cut short are settled first")

    def progress(self, figures: Figures) -> None:
        found = f"{figures.findings} found" if figures.findings else "clean"
        line = (
            f"{figures.operations:>13,} checked operations  {figures.rate:>8,.0f}/s  {figures.workers} workers "
            f"{figures.busy:.0%} busy  [{'red' if figures.findings else 'green'}]{found}[/]"
        )
        self._bar.update(self._task, completed=min(figures.seconds, self._budget), line=line)
        if not console.is_terminal and figures.seconds - self._said >= 10:
            self._said = figures.seconds
            console.print(f"  {figures.seconds:6.0f} s {line}  {', '.join(figures.engines)}", soft_wrap=True)

    def found(self, hit: Hit, stream: Stream | None) -> None:
        by = f" by {stream.engine}" if stream is not None else ""
        console.print(f"[bold red]{hit.key.property_id}[/]{by}: {escape(hit.message)}", soft_wrap=True)
        console.print(f"  kept in {escape(hit.path)}; it is shrunk and replayed next", soft_wrap=True)

    def filed(self, finding: Finding, first: bool) -> None:
        found = finding.counterexample
        colour = "red" if finding.status in (NEW, REGRESSED) else "yellow"
        console.print(
            f"[bold {colour}]{finding.status} {finding.signature.name}[/] ({finding.replays}): {escape(found.message)}",
            soft_wrap=True,
        )
        console.print(f"  {found.configuration}", style="dim")
        before = len(found.operations) - 10 if len(found.operations) > 20 else 0
        if before:
            console.print(f"  ... {before} operations before these")
        show_operations(found, before)
        console.print(f"  python -m fuzz replay {finding.path}", style="bold", soft_wrap=True)

    def died(self, died: Died) -> None:
        what = f"{died.task.kind} of {died.task.stream.name}" if died.task.stream is not None else died.task.kind
        where = f", at unit {died.unit}" if died.unit >= 0 else ""
        console.print(
            f"[bold red]a worker {escape(died.how)}[/] ({escape(what)}{where}); another takes its place", soft_wrap=True
        )

    def said(self, text: str) -> None:
        console.print(escape(text), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class OnRay:
    """A campaign's workers are on a Ray. address: "" starts one on this machine. gpus: of each worker."""

    address: str = ""
    gpus: float = 0.0


def _placed(plan: CampaignPlan, ray: OnRay, open: ExitStack) -> tuple[CampaignPlan, Callable[..., Executor]]:
    """The plan with as many workers as it will have on `ray`, and what makes them. Exits with 2 or 3."""
    if plan.devices:
        usage("devices are of this machine; with --engine ray give --ray-gpus, the GPUs of each worker")
    try:
        cluster = open.enter_context(connected(ray.address, plan.processes))
    except NoRay as error:
        usage(str(error))
    except NoCluster as error:
        complaints.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
    room = cluster.room(ray.gpus)
    plan = replace(plan, workers=plan.workers or max(1, room))
    if room < plan.workers:
        each = f"a CPU and {ray.gpus:g} GPUs" if ray.gpus else "a CPU"
        if cluster.own:
            usage(f"{plan.workers} workers with {each} each, and this machine has room for {room}")
        console.print(
            f"[yellow]the Ray cluster has room for {room} of {plan.workers} workers now ({each} each); the others wait "
            "until it has grown[/]",
            soft_wrap=True,
        )

    def workers(plan: CampaignPlan, spool: Path) -> Executor:
        return RayWorkers(cluster, plan.processes, monotonic, gpus=ray.gpus, memory=plan.memory, hang=plan.hang)

    return plan, workers


def campaign(
    name: str,
    flags: Mapping[str, Any],
    out: Path,
    baseline: Path | None,
    resume: bool,
    base: CampaignPlan,
    ray: OnRay | None = None,
) -> NoReturn:
    """`run --campaign name` with `flags` that were given (by the plan's own names); without a name, `base`. Ends with
    the exit status. ray: where the workers are, if not here."""
    try:
        plan = ready(name) if name else base
        if resume and not name:
            plan = CampaignPlan.from_json(journal_of(out)["plan"])
        plan = overruled(plan, flags)
        if on_kernels(engine for engine, share in plan.engines.items() if share > 0):
            plan = replace(plan, kernels=kernels_of(plan.kernels, plan.targets))
        else:
            plan = replace(plan, kernels="")
        plan = overruled(plan, {"seed": plan.seed or str(secrets.randbits(32))})
    except (BadPlan, NothingToResume) as error:
        usage(str(error))
    with ExitStack() as open:
        executor = None
        if ray is not None:
            plan, executor = _placed(plan, ray, open)
        try:
            with _Lines(plan.budget) as lines, Interruptible() as clock:
                before = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
                try:
                    command = "" if resume and not name else _again(name, flags, plan, ray)
                    result = _run(plan, out, clock, lines, baseline, resume, executor, command)
                finally:
                    signal.signal(signal.SIGTERM, before)
        except (Busy, NothingToResume, BadBaseline, BadHistory) as error:
            usage(str(error))
    _summarize(result, out)
    raise typer.Exit(result.status)


_OPTIONS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "targets": ("--target", ",".join),
    "profile": ("--profile", str),
    "shrink": ("--shrink", lambda seconds: f"{seconds:g}s"),
    "kernels": ("--kernels", lambda name: name or "none"),
    "trace": ("--trace", str),
    "devices": ("--devices", ",".join),
    "hang": ("--hang", lambda seconds: f"{seconds:g}s"),
    "memory": ("--memory", str),
    "properties": ("--properties", ",".join),
    "max_findings": ("--max-findings", str),
}
"""The flag for each of a plan's names that can be given by one, and its value as it is typed."""


def _again(name: str, flags: Mapping[str, Any], plan: CampaignPlan, ray: OnRay | None) -> str:
    """What to type to repeat a campaign that was given by `name` and `flags`: also its seed, its budget and as many
    workers, which may have been chosen for it."""
    words = ["python", "-m", "fuzz", "run", *(["--campaign", name] if name else [])]
    for flag, (option, typed) in _OPTIONS.items():
        if flags.get(flag) is not None:
            words += [option, typed(flags[flag])]
    for engine in flags.get("engines") or ():
        words += ["--engine", engine]
    if ray is not None:
        words += ["--engine", "ray", *(["--ray-address", ray.address] if ray.address else [])]
        words += ["--ray-gpus", f"{ray.gpus:g}"] * (ray.gpus > 0)
    for variant in flags.get("configurations") or ():
        words += ["--outside"] * variant.outside + ["--safety"] * (not variant.exact)
    if "devices" not in flags:  # one worker without a name would be a run of one process, which is another thing
        words += ["--workers", str(plan.processes if name or plan.processes > 1 else 0)]
    return shlex.join([*words, "--budget", f"{plan.budget:g}s", "--seed", plan.seed])


def _run(
    plan: CampaignPlan,
    out: Path,
    clock: Clock,
    lines: _Lines,
    baseline: Path | None,
    resume: bool,
    executor: Callable[..., Executor] | None,
    command: str,
) -> CampaignResult:
    nightly = Nightly(
        plan, out, clock, lines, now=now, baseline=baseline, resume=resume, executor=executor, command=command
    )
    engines = ", ".join(
        engine for engine, share in plan.engines.items() if share and (plan.kernels or not engine_of(engine).kernels)
    )
    console.print(
        f"Campaign [bold]{escape(plan.name)}[/] on {escape(', '.join(plan.targets))}: {engines} on {plan.processes} "
        f"{'Ray ' if executor is not None else ''}workers for {plan.budget:g} s, seed {escape(plan.seed)}",
        soft_wrap=True,
    )
    result = nightly.run()
    if result.findings or result.tally.operations:
        summary = result.to_json()
        try:
            render(summary, [finding.counterexample for finding in result.findings], out / "report.html")
        except OSError as error:
            result.complaint = result.complaint or f"cannot write {out / 'report.html'}: {error}"
            result.status = HARNESS if result.status == CLEAN else result.status
    return result


def _summarize(result: CampaignResult, out: Path) -> None:
    summary = result.to_json()
    show_engines(summary, "worker seconds")
    console.print(
        f"{summary['operations']:,} checked operations in {summary['seconds']:.1f} s on {summary['workers']} workers, "
        f"{summary['busy']:.0%} busy; seed {escape(summary['seed'])}",
        soft_wrap=True,
    )
    for name, reason in result.unchecked.items():
        console.print(f"[yellow]not checked:[/] {name}, since {escape(reason)}", soft_wrap=True)
    for name, count in result.not_counted.items():
        console.print(f"[yellow]not counted:[/] {count:,} hits of {name}, which was not asked for", soft_wrap=True)
    console.print(hard_states(summary), soft_wrap=True)
    if result.findings:
        _table(result.findings)
    for signature in result.fixed:
        console.print(f"[green]fixed:[/] {escape(str(signature))}", soft_wrap=True)
    for signature in result.still:
        console.print(f"[yellow]known, not met, still fails:[/] {escape(str(signature))}", soft_wrap=True)
    for line in result.gone:
        console.print(f"[dim]tidied: {escape(line)}[/]", soft_wrap=True)
    for text in result.unsaved:
        # A line that no disk would take: whoever reads the log still has it.
        complaints.print("a counterexample that could not be written:", style="bold red")
        print(text, flush=True)
    if result.complaint and result.complaint != result.verdict:
        complaints.print(f"[bold red]{escape(result.complaint)}[/]", soft_wrap=True)
    colour = "green" if result.status == CLEAN else "yellow" if result.status in (ONLY_KNOWN, NOTHING) else "red"
    console.print(f"[bold {colour}]{escape(result.verdict)}[/]", soft_wrap=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in ci.annotated(summary):
            print(line)
    console.print(
        f"\nreport: {out / 'report.html'}   summary: {out / 'summary.json'}, {out / 'summary.md'}   "
        f"JUnit: {out / 'junit.xml'}   history: {out / 'history.sqlite'}",
        soft_wrap=True,
    )


def _table(findings: list[Finding]) -> None:
    table = Table(title="Findings", title_justify="left", box=None, pad_edge=False)
    for name in ("status", "signature", "hits", "replays", "operations", "what"):
        table.add_column(name, justify="right" if name in ("hits", "operations") else "left", overflow="fold")
    for finding in findings:
        found = finding.counterexample
        table.add_row(
            finding.status,
            finding.signature.name,
            f"{finding.hits:,}",
            finding.replays,
            str(len(found.operations)),
            escape(found.message),
        )
        if finding.interpreter is not None:
            table.add_row("", "", "", "", "", f"found on {escape(found.device)}: {escape(finding.interpreter['told'])}")
        for variant in finding.variants:
            table.add_row("", "", "", "", "", f"[dim]also met as {escape(str(variant.signature))}[/]")
    console.print(table)
