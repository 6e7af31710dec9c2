"""`run`: one campaign, in this process; what asks for workers is handed to `campaigns.py`.

This room may not know: how an engine works, or what a campaign on workers does.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..campaign import in_process as campaign
from ..campaign.in_process import Finding, Plan, Result
from ..campaign.plans import READY, BadPlan, CampaignPlan, Variant, properties_of
from ..engines.registry import ENGINES, UnknownEngine, engine_of, on_kernels, shares
from ..engines.tally import Tally
from ..runs.perform import Judging
from ..runs.status import CLEAN, VIOLATION
from ..show.page import render
from ..show.timeline import hard_states
from . import campaigns
from .common import (
    Interruptible,
    OutsideOption,
    SafetyOption,
    console,
    duration,
    factory_of,
    kernels_of,
    memory_of,
    requests_of,
    show_counterexample,
    show_engines,
    trace_line,
    usage,
)

__all__ = ["run"]


_ALL, _RAY = "all", "ray"
"""What may stand where an engine's name does."""


class Profile(str, Enum):
    nightly = "nightly"
    soak = "soak"


class _Display:
    """Progress on a terminal as a bar, elsewhere as a line now and then."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._engine = ""
        self._said = 0.0
        self._bar = Progress(
            TextColumn("[bold]{task.fields[engine]:<11}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[operations]:>12,} checked operations  {task.fields[rate]:>7,}/s"),
            TextColumn("{task.fields[findings]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=budget or 1, engine="", operations=0, rate=0, findings="")

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def turn(self, engine: str) -> None:
        self._engine = engine
        self._bar.update(self._task, engine=engine)

    def progress(self, tally: Tally, elapsed: float, findings: int) -> None:
        spent = sum(tally.seconds.values()) or elapsed
        rate = int(tally.operations / spent) if spent else 0
        said = f"[red]{findings} found[/]" if findings else "[green]clean[/]"
        self._bar.update(
            self._task, completed=min(elapsed, self.budget), operations=tally.operations, rate=rate, findings=said
        )
        if not console.is_terminal and elapsed - self._said >= 10:
            self._said = elapsed
            console.print(f"  {elapsed:5.0f} s  {self._engine:<10} {tally.operations:>12,} checked operations  {said}")

    def found(self, finding: Finding) -> None:
        found = finding.counterexample
        console.print(
            f"[bold red]{found.property_id}[/] by {found.engine} after {finding.found_after:,} operations: "
            f"{escape(found.message)}",
            soft_wrap=True,
        )
        console.print(f"  kept in {finding.path} ({finding.length_found} operations), shrinking ...", soft_wrap=True)

    def shrinking(self, operations: int, replays: int) -> None:
        self._bar.update(self._task, engine="shrinking", findings=f"[red]{operations} operations, {replays} replays[/]")

    def shrunk(self, finding: Finding) -> None:
        found = finding.counterexample
        show_counterexample(found)
        console.print(f"  python -m fuzz replay {finding.path}", style="bold", soft_wrap=True)


def run(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Option(
            help="A file of properties/targets (kvcore), or package.module:factory; of a campaign several, with commas."
        ),
    ] = "kvcore",
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar=f"[{'|'.join((_ALL, *ENGINES, _RAY))}]",
            help="An engine; may be repeated; the usual ones in turn without. `ray` beside or without others: the "
            "workers are on a Ray cluster (an extra).",
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time to spend: 45s, 10m, 2h.")] = "45s",
    seed: Annotated[str, typer.Option(help="Repeat the campaign with this seed; a fresh one by default.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for findings, summary.json and report.html.")] = Path("fuzz-out"),
    trace_file: Annotated[
        Path | None, typer.Option("--trace", help="Request trace for the trace engine; the built-in one by default.")
    ] = None,
    outside: OutsideOption = False,
    safety: SafetyOption = False,
    kernels: Annotated[
        str,
        typer.Option(
            help="What the engine `kernels` runs every step on: kvcore, package.module:factory, or none. "
            "auto is kvcore where torch and Triton are installed and the target shows its steps."
        ),
    ] = "auto",
    profile: Annotated[
        Profile, typer.Option(help="Hypothesis's runs: mostly of 50 steps, or for a long soak of 200.")
    ] = Profile.nightly,
    shrink: Annotated[str, typer.Option(help="Time to shrink a finding; 0 leaves it as found.")] = "10s",
    max_findings: Annotated[
        int,
        typer.Option(
            min=1, help="Go on until so many properties are found broken; a campaign on workers always goes on."
        ),
    ] = 1,
    name: Annotated[
        str, typer.Option("--campaign", help=f"A ready campaign ({', '.join(READY)}), or a TOML file; see docs.")
    ] = "",
    workers: Annotated[
        int, typer.Option(min=0, help="Processes, supervised; 0: one for each core. 1 without --campaign: this one.")
    ] = 1,
    devices: Annotated[str, typer.Option(help="One worker for each of these CUDA devices, with commas: 0,1,2,3.")] = "",
    properties: Annotated[
        str, typer.Option(help="Of a campaign: only violations of these count, with commas; all by default.")
    ] = "",
    memory: Annotated[str, typer.Option(help="Of a campaign: what one worker may write to: 4GiB; 0: no limit.")] = "",
    hang: Annotated[
        str, typer.Option(help="Of a campaign: a worker that says nothing for so long is ended and is a finding.")
    ] = "",
    ray_address: Annotated[
        str,
        typer.Option(
            envvar="RAY_ADDRESS",
            help="With --engine ray: the cluster, as host:port or auto; without, one is started here.",
        ),
    ] = "",
    ray_gpus: Annotated[
        float, typer.Option(min=0.0, help="With --engine ray: GPUs of each worker; Ray says to each which.")
    ] = 0.0,
    database: Annotated[
        str,
        typer.Option(
            help="Of a campaign: Hypothesis's database, shared by all workers: redis://host:port/0, or a folder."
        ),
    ] = "",
    baseline: Annotated[
        Path | None, typer.Option(help="Of a campaign: the file of known findings; baseline.json in --out by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the campaign in --out that was interrupted or killed.")
    ] = False,
) -> None:
    """Run a campaign: engines take turns on the target, every property is checked after every operation.

    With --campaign or several --workers, worker processes under supervision: docs/campaigns.md.

    Exit status: 0 clean, 1 a new finding, 2 usage, 3 the harness failed, 4 nothing executed, 5 only known findings, 130
    interrupted.

    Examples:

      python -m fuzz run

      python -m fuzz run --campaign nightly --budget 10m --workers 2 --out night

      python -m fuzz run --campaign night.toml --baseline fuzz/baseline.json --resume

      python -m fuzz run --budget 10m --engine walk --seed 7

      python -m fuzz run --budget 1h --engine hypothesis --profile soak

      python -m fuzz run --target my_package.adapter:make --outside

      python -m fuzz run --engine ray --ray-address head:6379 --workers 16 --campaign nightly

      python -m fuzz run --engine ray --engine walk --workers 2 --budget 5m
    """
    given = _given(context)
    on_ray = _RAY in (engine or ())
    engines = _engines(engine or ())
    if not on_ray and (wrong := given & {"ray_address", "ray_gpus"}):
        usage(f"--{min(wrong).replace('_', '-')} says where --engine ray has its workers; give that too")
    if name or workers != 1 or devices or resume or on_ray or database:
        flags: dict[str, Any] = {
            "targets": tuple(part.strip() for part in target.split(",")),
            "budget": duration(budget),
            "seed": seed,
            "workers": workers,
            "profile": profile.value,
            "shrink": duration(shrink),
            "kernels": kernels,
            "trace": str(trace_file),
            "devices": tuple(part.strip() for part in devices.split(",")),
            "hang": duration(hang or "0"),
            "memory": memory_of(memory or "0"),
            "properties": _properties(properties),
            "max_findings": max_findings,
            "database": database,
            "engines": dict.fromkeys(engines, 1.0),
            "configurations": (Variant("flags", outside=outside, exact=not safety),),
        }
        names = {
            "target": "targets",
            "trace_file": "trace",
            "engine": "engines",
            "outside": "configurations",
            "safety": "configurations",
        }
        chosen_flags = {names.get(flag, flag) for flag in given}
        if not engines:
            chosen_flags.discard("engines")
        for one in flags["targets"] if "target" in given or not name else ():
            factory_of(one)
        if "trace_file" in given:
            requests_of(trace_file)
        campaigns.campaign(
            name,
            {flag: value for flag, value in flags.items() if flag in chosen_flags},
            out,
            baseline,
            resume,
            CampaignPlan("run", budget=duration(budget), engines=shares()),
            campaigns.OnRay("" if ray_address == "local" else ray_address, ray_gpus) if on_ray else None,
        )
    factory = factory_of(target)
    chosen = seed or str(secrets.randbits(32))
    requests_of(trace_file)  # what is wrong with it is said before anything begins
    plan = Plan(
        target=target,
        seed=chosen,
        budget=duration(budget),
        out=out,
        engines=engines or tuple(shares()),
        judging=Judging(outside=outside, exact=not safety),
        kernels=kernels_of(kernels, [target]) if on_kernels(engines or shares()) else "",
        profile=profile.value,
        shrink=duration(shrink),
        max_findings=max_findings,
        trace=str(trace_file or ""),
    )
    console.print(
        f"Campaign on [bold]{escape(target)}[/]: {', '.join(plan.engines)} for {plan.budget:g} s, seed {escape(chosen)}"
    )
    with _Display(plan.budget) as display, Interruptible() as clock:
        result = campaign.run(plan, factory, clock, display)
    summary = result.to_json()
    page = render(summary, [finding.counterexample for finding in result.findings], out / "report.html")
    _summarize(result, summary)
    console.print(f"\nreport: {page}   summary: {out / 'summary.json'}", soft_wrap=True)
    raise typer.Exit(result.status)


def _engines(names: Sequence[str]) -> tuple[str, ...]:
    """Those named, each once; none if all are meant."""
    found = tuple(dict.fromkeys(name for name in names if name not in (_ALL, _RAY)))
    for name in found:
        try:
            missing = engine_of(name).missing()
        except UnknownEngine as error:
            usage(f"--engine: {error}; {_ALL} and {_RAY} are words of their own")
        if missing:
            usage(missing)
    return () if _ALL in names else found


def _given(context: typer.Context) -> set[str]:
    """Names of the options that were on the command line."""
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return {name for name, source in sources if source is not None and source.name == "COMMANDLINE"}


def _properties(text: str) -> tuple[str, ...]:
    try:
        return properties_of("--properties", [part.strip() for part in text.split(",") if part.strip()])
    except BadPlan as error:
        usage(str(error))


def _summarize(result: Result, summary: dict[str, Any]) -> None:
    show_engines(summary, "seconds")
    if summary["trace"] is not None:
        console.print(f"trace: {trace_line(summary['trace'])}", soft_wrap=True)
    checked = [name for name in summary["properties"] if name not in result.unchecked]
    console.print(f"properties checked after every operation: {', '.join(checked)}", soft_wrap=True)
    for name, reason in result.unchecked.items():
        console.print(f"[yellow]not checked:[/] {name}, since {reason}", soft_wrap=True)
    for reason, count in summary["skipped"].items():
        console.print(f"[yellow]skipped:[/] {count:,} operations, {reason}", soft_wrap=True)
    console.print(hard_states(summary), soft_wrap=True)
    if result.missing and not result.findings:
        console.print(f"[yellow]never happened:[/] {', '.join(result.missing)}", soft_wrap=True)
    operations = f"{result.tally.operations:,} checked operations"
    if result.status == CLEAN:
        console.print(f"[bold green]clean[/]: no violation in {operations}")
    elif result.status == VIOLATION:
        names = ", ".join(str(finding.counterexample.property_id) for finding in result.findings)
        console.print(f"[bold red]violated[/]: {names}")
    else:
        console.print(f"[bold red]{escape(result.complaint)}[/] after {operations}", soft_wrap=True)
