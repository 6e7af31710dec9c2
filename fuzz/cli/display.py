"""The terminal of a campaign, wherever it runs: progress, what happens as it happens, and the summary at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..campaign import ci
from ..campaign.executor import Hit
from ..campaign.outcome import CampaignResult, Figures
from ..campaign.plan import CampaignPlan
from ..campaign.tasks import Died, Stream
from ..engines.registry import engine_of
from ..findings.statuses import NEW, REGRESSED
from ..findings.store import NOT_REPLAYED, Finding
from ..runs.believe import in_words
from ..runs.status import CLEAN, NOTHING, ONLY_KNOWN
from ..runs.trust import replay_command
from ..show.timeline import hard_states
from .common import complaints, console, lost, show_counterexample, show_engines, trace_line

__all__ = ["Display", "announce", "summarize"]

_EVERY = 10.0
"""Seconds between lines of progress, where there is no terminal for a bar."""

_SHOWN = 20
"""Operations of a finding that are shown."""


class Display:
    """A `Show`: a bar on a terminal, elsewhere a line every ten seconds; what is found, as it is found."""

    def __init__(self, budget: float) -> None:
        self._said = 0.0
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

    def __enter__(self) -> Display:
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
            f"{figures.operations:>13,} checked operations  {figures.rate:>8,.0f}/s  "
            f"{_workers(figures.workers)} {figures.busy:.0%} busy  "
            f"[{'red' if figures.findings else 'green'}]{found}[/]"
        )
        doing = ", ".join(figures.engines)
        self._bar.update(self._task, completed=min(figures.seconds, self._budget), line=f"{line}  {doing}")
        if not console.is_terminal and figures.seconds - self._said >= _EVERY:
            self._said = figures.seconds
            console.print(f"  {figures.seconds:6.0f} s {line}  {doing}", soft_wrap=True)

    def found(self, hit: Hit, stream: Stream | None, after: int) -> None:
        by = f" by {stream.engine} after {after:,} operations" if stream is not None else ""
        console.print(f"[bold red]{hit.key.property_id}[/]{by}: {escape(hit.message)}", soft_wrap=True)
        console.print(f"  kept in {escape(hit.path)}, shrinking ...", soft_wrap=True)

    def filed(self, finding: Finding, first: bool) -> None:
        colour = "red" if finding.status in (NEW, REGRESSED) else "yellow"
        what = f"[bold {colour}]{finding.status} {finding.signature.name}[/]"
        said = finding.replays if finding.replays == NOT_REPLAYED else f"fails in {finding.replays} replays"
        console.print(f"{what}, {said}:", soft_wrap=True)
        show_counterexample(finding.counterexample, most=_SHOWN)
        console.print(f"  {escape(replay_command(finding.path, finding.counterexample))}", style="bold", soft_wrap=True)
        if (harm := finding.harm) is not None:
            console.print(f"  leads to [bold red]{harm.property_id}[/]: {escape(harm.message)}", soft_wrap=True)
            console.print(f"  {escape(replay_command(finding.harm_path, harm))}", style="bold", soft_wrap=True)

    def died(self, died: Died) -> None:
        what = f"{died.task.kind} of {died.task.stream.name}" if died.task.stream is not None else died.task.kind
        where = f", at unit {died.unit}" if died.unit >= 0 else ""
        console.print(
            f"[bold red]a worker {escape(died.how)}[/] ({escape(what)}{where}); another takes its place", soft_wrap=True
        )

    def said(self, text: str) -> None:
        console.print(escape(text), soft_wrap=True)


def _workers(count: int, kind: str = "") -> str:
    return f"{count} {kind}worker{'' if count == 1 else 's'}"


def announce(plan: CampaignPlan, ray: bool) -> None:
    """What begins now: the campaign's name, where it runs, and its seed."""
    engines = ", ".join(
        engine for engine, share in plan.engines.items() if share and (plan.kernels or not engine_of(engine).kernels)
    )
    where = f"on {_workers(plan.processes, 'Ray ' if ray else '')}"
    console.print(
        f"Campaign [bold]{escape(plan.name)}[/] on {escape(', '.join(plan.targets))}: {engines} {where} for "
        f"{plan.budget:g} s, seed {escape(plan.seed)}",
        soft_wrap=True,
    )


def summarize(result: CampaignResult, out: Path) -> None:
    """What ran, what was checked and met, what was found, and where it is."""
    summary = result.to_json()
    show_engines(summary, "worker seconds")
    where = f" on {_workers(summary['workers'])}, {summary['busy']:.0%} busy"
    console.print(
        f"{summary['operations']:,} checked operations in {summary['seconds']:.1f} s{where}; seed "
        f"{escape(summary['seed'])}",
        soft_wrap=True,
    )
    for target, figures in result.traces.items():
        of = f" of {escape(target)}" if len(result.traces) > 1 else ""
        console.print(f"trace{of}: {trace_line(figures)}", soft_wrap=True)
    _what_was_checked(result, summary)
    if result.findings:
        _table(result.findings)
    for signature in result.fixed:
        console.print(f"[green]fixed:[/] {escape(str(signature))}", soft_wrap=True)
    for signature in result.still:
        console.print(f"[yellow]known, not met, still fails:[/] {escape(str(signature))}", soft_wrap=True)
    for line in result.gone:
        console.print(f"[dim]tidied: {escape(line)}[/]", soft_wrap=True)
    for line in result.unsaved:
        lost(line, out)
    if result.complaint and result.complaint != result.verdict:
        complaints.print(f"[bold red]{escape(result.complaint)}[/]", soft_wrap=True)
    colour = "green" if result.status == CLEAN else "yellow" if result.status in (ONLY_KNOWN, NOTHING) else "red"
    clean = "clean: " if result.status == CLEAN else ""
    console.print(f"[bold {colour}]{clean}{escape(result.verdict)}[/]", soft_wrap=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in ci.annotated(summary):
            print(line)
    files = ("report.html", "summary.json", "summary.md", "junit.xml", "history.sqlite")
    if left := [str(out / name) for name in files if (out / name).exists()]:
        console.print(f"\n{'   '.join(left)}", soft_wrap=True)


def _what_was_checked(result: CampaignResult, summary: dict[str, Any]) -> None:
    checked = [name for name, state in summary["properties"].items() if state == "checked"]
    console.print(f"properties checked after every operation: {', '.join(checked)}", soft_wrap=True)
    for target, policy in result.policies.items():
        console.print(f"believed of {escape(target)}: {escape(in_words(policy))}", soft_wrap=True)
    for name, reason in result.unchecked.items():
        console.print(f"[yellow]not checked:[/] {name}, since {escape(reason)}", soft_wrap=True)
    for name, count in result.not_counted.items():
        console.print(f"[yellow]not counted:[/] {count:,} hits of {name}, which was not asked for", soft_wrap=True)
    for reason, count in summary["skipped"].items():
        console.print(f"[yellow]skipped:[/] {count:,} operations, {escape(reason)}", soft_wrap=True)
    console.print(hard_states(summary), soft_wrap=True)
    if result.missing and not result.findings:
        console.print(f"[yellow]never happened:[/] {', '.join(result.missing)}", soft_wrap=True)


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
        if finding.harm is not None:
            harm = f"leads to [bold red]{finding.harm.property_id}[/]: {escape(finding.harm.message)}"
            table.add_row("", "", "", "", str(len(finding.harm.operations)), harm)
        if finding.interpreter is not None:
            table.add_row("", "", "", "", "", f"found on {escape(found.device)}: {escape(finding.interpreter['told'])}")
        for variant in finding.variants:
            table.add_row("", "", "", "", "", f"[dim]also met as {escape(str(variant.signature))}[/]")
    console.print(table)
