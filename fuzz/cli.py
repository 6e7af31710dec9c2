"""The command line: `python -m fuzz run | attention | replay | explore | trace | audit | gpu`, and what
`campaign_cli` adds.

Exit statuses, of every command: 0 clean, 1 violation (of a campaign: a new one), 2 usage (also unreadable files), 3 the
harness itself failed, 4 nothing was executed, 5 only known findings, 130 interrupted.

This room may not know: how things are done; it reads arguments, shows progress, and picks the exit status.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from properties.attention.cases import Case, MalformedCase
from properties.operations import Configuration, Malformed, Operation
from properties.target import Capability, Target, TargetFactory
from properties.targets import UnknownTarget, load
from reference import PROPERTIES

from . import audit_show, campaign, campaign_cli
from .attention import AttentionPlan, check_one, run_attention, shrink_case, write_finding
from .audit import Plan as AuditPlan
from .audit import Trial
from .audit import audit as run_audit
from .bisect import bisected
from .campaign import CLEAN, HARNESS, INTERRUPTED, NOTHING, USAGE, VIOLATION, Finding, Plan, Result
from .compare import compare as run_compare
from .compare import keep, markdown
from .compare import render as render_comparison
from .counterexample import Counterexample, Unreadable, read, versions, write
from .engines import Tally
from .engines import trace as run_checked
from .explore import KINDS, BadSpace, CannotResume, Changed, Explored, Space
from .explore import Plan as ExplorePlan
from .explore import explore as explore_space
from .gpu import parts, report
from .page import render
from .plans import READY, BadPlan, CampaignPlan, Variant, properties_of
from .planting import DoesNotApply
from .record import Recorder
from .run import Judging, Run, kernel_laws, perform
from .section import replace_section
from .show import Timeline, describe, hard_states
from .shrink import shrink
from .trace import Request, TraceError, cannot_trace, read_trace, run_trace
from .zoo import Bug, InvalidBug, allocator_bugs, find, kernel_bugs

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Break a paged KV-cache core: campaigns, replay of counterexamples, exploration, request traces.\n\n"
    "Examples:\n\n"
    "  python -m fuzz run --budget 10m\n\n"
    "  python -m fuzz run --campaign nightly --out night\n\n"
    "  python -m fuzz replay fuzz-out/findings/OWNERSHIP-1.json\n\n"
    "  python -m fuzz explore --blocks 3 --block-size 1 --max-tokens 2\n\n"
    "  python -m fuzz trace --block-size 16 --num-blocks 512\n\n"
    "  python -m fuzz audit --bug NV-1\n\n"
    "  python -m fuzz gpu\n\n"
    "Exit status: 0 clean, 1 violation, 2 usage, 3 the harness failed, 4 nothing was executed, 5 only known findings, "
    "130 interrupted.",
)
console = Console(highlight=False)
complaints = Console(stderr=True, highlight=False)
campaign_cli.register(app)


class Engine(str, Enum):
    all = "all"
    trace = "trace"
    walk = "walk"
    hypothesis = "hypothesis"
    kernels = "kernels"
    ray = "ray"


class Profile(str, Enum):
    nightly = "nightly"
    soak = "soak"


class Reuse(str, Enum):
    last_block = "last_block"
    last_token = "last_token"


def _usage(message: str) -> NoReturn:
    complaints.print(f"[red]error:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(USAGE)


def _factory(target: str) -> TargetFactory:
    """The factory, tried once, so that a core that is not installed is said before anything begins."""
    try:
        factory = load(target)
        factory(Configuration())
    except (UnknownTarget, ImportError) as error:
        _usage(str(error))
    return factory


def _seconds(text: str) -> float:
    """45, 45s, 10m or 2h."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; give seconds or 45s, 10m, 2h") from None
    if seconds < 0:
        raise typer.BadParameter(f"{text!r} is negative; give a time from 0 on")
    return seconds


def _kernels(name: str, targets: Sequence[str] = ()) -> str:
    """The kernels to run steps on: "" for "none", and for "auto" where torch or Triton is not installed, or one of
    `targets` does not show what to run."""
    if name == "none":
        return ""
    if name == "auto" and any(Capability.BATCH not in _factory(one)(Configuration()).capabilities for one in targets):
        return ""
    missing = [package for package in ("torch", "triton") if find_spec(package) is None]
    if name == "auto":
        return "" if missing else "kvcore"
    if missing:
        _usage(f"--kernels {name} needs {' and '.join(missing)}: pip install 'kvcore[cuda]', or give --kernels none")
    try:
        kernel_laws(name)
    except UnknownTarget as error:
        _usage(str(error))
    return name


TargetOption = Annotated[str, typer.Option(help="A file of properties/targets (kvcore), or package.module:factory.")]
OutsideOption = Annotated[
    bool, typer.Option("--outside", help="Judge from the outside only: do not look into the core.")
]
SafetyOption = Annotated[
    bool, typer.Option("--safety", help="Do not predict which blocks are chosen; judge harm alone.")
]


def _requests(file: Path | None) -> list[Request]:
    """The trace in `file`; the built-in one without."""
    try:
        return read_trace(file if file is not None else str(resources.files("fuzz") / "traces" / "multi_turn.jsonl"))
    except TraceError as error:
        _usage(str(error))


# ---- run -------------------------------------------------------------------------------------------------------------


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
        _list(found)
        console.print(f"  python -m fuzz replay {finding.path}", style="bold", soft_wrap=True)


def _list(found: Counterexample) -> None:
    """The violation, the configuration, and an operation a line."""
    console.print(f"[bold red]{found.property_id}[/] {escape(found.message)}", soft_wrap=True)
    console.print(f"  {found.configuration}", style="dim")
    for number, operation in enumerate(found.operations):
        mark = "[bold red]" if number == found.at else ""
        console.print(f"  {mark}{number + 1:>2}  {escape(describe(operation))}", soft_wrap=True)


class _Interruptible:
    """The campaign's clock, and where Ctrl-C is honoured: at the next look at it, many times a second.

    Raised wherever it arrives, a KeyboardInterrupt is lost if that is in a weak reference's callback, whose exceptions
    Python ignores. A second Ctrl-C before the next look is raised at once.
    """

    def __init__(self) -> None:
        self._pressed = False

    def __call__(self) -> float:
        if self._pressed:
            self._pressed = False
            raise KeyboardInterrupt
        return time.monotonic()

    def __enter__(self) -> _Interruptible:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _press(self, *_: object) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True


@app.command()
def run(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Option(
            help="A file of properties/targets (kvcore), or package.module:factory; of a campaign several, with commas."
        ),
    ] = "kvcore",
    engine: Annotated[
        list[Engine] | None,
        typer.Option(
            help="An engine; may be repeated; all of them in turn without. `ray` beside or without others: the workers "
            "are on a Ray cluster (an extra)."
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
    on_ray = Engine.ray in (engine or ())
    engines = tuple(dict.fromkeys(one.value for one in engine or () if one is not Engine.ray))
    if Engine.all in engines:
        engines = ()
    if not on_ray and (wrong := given & {"ray_address", "ray_gpus"}):
        _usage(f"--{min(wrong).replace('_', '-')} says where --engine ray has its workers; give that too")
    if name or workers != 1 or devices or resume or on_ray or database:
        flags: dict[str, Any] = {
            "targets": tuple(part.strip() for part in target.split(",")),
            "budget": _seconds(budget),
            "seed": seed,
            "workers": workers,
            "profile": profile.value,
            "shrink": _seconds(shrink),
            "kernels": kernels,
            "trace": str(trace_file),
            "devices": tuple(part.strip() for part in devices.split(",")),
            "hang": _seconds(hang or "0"),
            "memory": _bytes(memory or "0"),
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
            _factory(one)
        if "trace_file" in given:
            _requests(trace_file)
        campaign_cli.campaign(
            name,
            {flag: value for flag, value in flags.items() if flag in chosen_flags},
            out,
            _Interruptible,
            baseline,
            resume,
            CampaignPlan("run", budget=_seconds(budget), engines=_AS_ALONE),
            _kernels,
            campaign_cli.OnRay("" if ray_address == "local" else ray_address, ray_gpus) if on_ray else None,
        )
    factory = _factory(target)
    chosen = seed or str(secrets.randbits(32))
    requests = _requests(trace_file)
    plan = Plan(
        target=target,
        seed=chosen,
        budget=_seconds(budget),
        out=out,
        engines=engines or campaign.ENGINES,
        judging=Judging(outside=outside, exact=not safety),
        kernels=_kernels(kernels, [target]) if not engines or "kernels" in engines else "",
        profile=profile.value,
        shrink=_seconds(shrink),
        max_findings=max_findings,
        requests=requests,
    )
    console.print(
        f"Campaign on [bold]{escape(target)}[/]: {', '.join(plan.engines)} for {plan.budget:g} s, seed {escape(chosen)}"
    )
    with _Display(plan.budget) as display, _Interruptible() as clock:
        result = campaign.run(plan, factory, clock, display)
    summary = result.to_json()
    page = render(summary, [finding.counterexample for finding in result.findings], out / "report.html")
    _summarize(result, summary)
    console.print(f"\nreport: {page}   summary: {out / 'summary.json'}", soft_wrap=True)
    raise typer.Exit(result.status)


_AS_ALONE = {"trace": 1.0, "walk": 50.0, "hypothesis": 30.0, "kernels": 20.0}
"""Engines of a run on several workers that names no campaign: those of a run without."""


def _given(context: typer.Context) -> set[str]:
    """Names of the options that were on the command line."""
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return {name for name, source in sources if source is not None and source.name == "COMMANDLINE"}


def _properties(text: str) -> tuple[str, ...]:
    try:
        return properties_of("--properties", [part.strip() for part in text.split(",") if part.strip()])
    except BadPlan as error:
        _usage(str(error))


def _summarize(result: Result, summary: dict[str, Any]) -> None:
    table = Table(title="What ran", title_justify="left", box=None, pad_edge=False)
    for name in ("engine", "checked operations", "seconds", "a second"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for engine, row in summary["engines"].items():
        table.add_row(
            engine, f"{row['operations']:,}", f"{row['seconds']:.1f}", f"{row['operations_per_second'] or 0:,}"
        )
    console.print(table)
    if result.trace is not None:
        console.print(f"trace: {_trace_line(campaign.trace_figures(result.trace))}", soft_wrap=True)
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


# ---- attention -------------------------------------------------------------------------------------------------------


class Dot(str, Enum):
    sequential = "sequential"
    hopper = "hopper"
    ampere = "ampere"


@app.command()
def attention(
    kernels: Annotated[
        str, typer.Option(help="Kernels under test: kvcore, vllm, sglang, or package.module:factory.")
    ] = "kvcore",
    cases: Annotated[int, typer.Option(min=1, help="How many cases.")] = 200,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    seed: Annotated[str, typer.Option(help="Repeat the run with this seed; a fresh one by default.")] = "",
    budget: Annotated[str, typer.Option(help="Stop after this time: 45s, 10m, 2h.")] = "",
    dot: Annotated[
        Dot,
        typer.Option(help="How the interpreter sums products: one by one, or as a tensor core of Hopper or Ampere."),
    ] = Dot.sequential,
    tiles: Annotated[int, typer.Option(min=4, help="Size of a case: tiles of its base run.")] = 48,
    out: Annotated[Path, typer.Option(help="Folder for findings and attention.json.")] = Path("fuzz-out"),
    shrink: Annotated[str, typer.Option(help="Time to shrink a finding; 0 leaves it as found.")] = "60s",
    case: Annotated[str, typer.Option(help="Check this one case: its JSON, or the file of a finding.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Check attention kernels alone, in Triton's interpreter: generated cases against the float64 oracle, bit for bit
    along every axis of scheduling, every access sanitized.

    Examples:

      python -m fuzz attention

      python -m fuzz attention --cases 2000 --workers 2

      python -m fuzz attention --dot hopper --seed 7

      python -m fuzz attention --case '{"sequences": [[40, 3]], "dtype": "bfloat16", "axes": ["schedule"]}'
    """
    _kernels(kernels)
    if case:
        _one_case(kernels, case, dot.value, as_json)
    plan = AttentionPlan(kernels, seed or str(secrets.randbits(32)), cases, workers, dot.value, tiles)
    limit = _seconds(budget) if budget else float("inf")
    began = time.monotonic()
    quiet = as_json or not console.is_terminal
    if not as_json:
        console.print(f"{cases} attention cases on [bold]{escape(kernels)}[/], {workers} workers, seed {plan.seed}")
    bar = Progress(
        BarColumn(bar_width=28),
        TextColumn("{task.completed:>6,} of {task.total:,} cases  {task.fields[compared]:>11,} row-heads bit by bit"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet,
    )
    with bar:
        row = bar.add_task("", total=cases, compared=0)
        said = 0.0

        def progress(counts: Any) -> None:
            nonlocal said
            done, compared = counts.cases + sum(counts.skipped.values()), sum(counts.compared.values())
            bar.update(row, completed=done, compared=compared)
            elapsed = time.monotonic() - began
            if quiet and not as_json and elapsed - said >= 10:
                said = elapsed
                console.print(f"{elapsed:6.0f} s  {done:,} cases, {compared:,} row-heads bit by bit")

        result = run_attention(plan, late=lambda: time.monotonic() - began > limit, progress=progress)
    paths = []
    for number, found in enumerate(result.findings):
        write_finding(found, out / "findings")
        if _seconds(shrink):
            if not as_json:
                console.print(f"[red]{found.property_id}[/] in case {found.number}; shrinking")
            over = partial(_after, time.monotonic() + _seconds(shrink))
            result.findings[number] = shrink_case(kernels, found, dot=dot.value, late=over)
        paths.append(write_finding(result.findings[number], out / "findings"))
    summary = result.to_json(plan, time.monotonic() - began)
    out.mkdir(parents=True, exist_ok=True)
    (out / "attention.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _say_cases(summary)
        for path, found in zip(paths, result.findings, strict=True):
            console.print(f"[bold red]{found.property_id}[/]: {escape(found.message)}", soft_wrap=True)
            same = ("" if kernels == "kvcore" else f" --kernels {kernels}") + (
                "" if dot is Dot.sequential else f" --dot {dot.value}"
            )
            console.print(f"  {escape(found.case.to_json())}", soft_wrap=True)
            console.print(f"  python -m fuzz attention{same} --case {path}", soft_wrap=True)
    if result.findings:
        raise typer.Exit(VIOLATION)
    raise typer.Exit(CLEAN if summary["cases"] else NOTHING)


def _after(moment: float) -> bool:
    return time.monotonic() > moment


def _one_case(kernels: str, text: str, dot: str, as_json: bool) -> NoReturn:
    if not text.lstrip().startswith("{"):
        try:
            text = json.dumps(json.loads(Path(text).read_text(encoding="utf-8"))["case"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            _usage(f"--case {text}: neither a JSON object nor the file of a finding ({error})")
    try:
        case = Case.from_json(text)
    except MalformedCase as error:
        _usage(str(error))
    found = check_one(kernels, case, dot)
    if as_json:
        answer = None if found is None else {"property": found.property_id, "message": found.message}
        typer.echo(json.dumps({"case": json.loads(case.to_json()), "violation": answer}, indent=2))
    elif found is None:
        console.print("[bold green]clean[/]: the case breaks no property")
    else:
        console.print(f"[bold red]{found.property_id}[/]: {escape(found.message)}", soft_wrap=True)
    raise typer.Exit(CLEAN if found is None else VIOLATION)


def _say_cases(summary: dict[str, Any]) -> None:
    table = Table(title="Compared bit by bit, in float32", title_justify="left", box=None, pad_edge=False)
    table.add_column("axis")
    table.add_column("row-heads", justify="right")
    for axis, count in summary["compared"].items():
        table.add_row(axis, f"{count:,}")
    table.add_row("[bold]all[/]", f"[bold]{summary['compared_row_heads']:,}[/]")
    console.print(table)
    parts = ", ".join(f"{name} {part:.2f}" for name, part in sorted(summary["worst"].items()))
    console.print(
        f"{summary['cases']:,} cases in {summary['seconds']:.0f} s: {summary['row_heads']:,} row-heads against the "
        f"oracle, largest error as a part of what is allowed: {parts}; {summary['accesses']:,} accesses sanitized",
        soft_wrap=True,
    )
    for reason, count in summary["skipped"].items():
        console.print(f"[yellow]skipped:[/] {count:,} cases, {reason}", soft_wrap=True)
    if summary["off"]:
        parts = ", ".join(f"{what} ({count:,})" for what, count in sorted(summary["off"].items()))
        console.print(f"[yellow]not checked:[/] {parts}: these cases ran without", soft_wrap=True)
    if not summary["findings"]:
        console.print("[bold green]clean[/]: no property broken" if summary["cases"] else "[red]no case was checked[/]")


# ---- replay ----------------------------------------------------------------------------------------------------------


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A counterexample or scenario file.")],
    target: Annotated[str, typer.Option(help="Replay on another target than the file names.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the run as JSON instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the verdict only.")] = False,
    bisect: Annotated[
        bool,
        typer.Option(
            "--bisect",
            help="For `git bisect run`: 1 if it fails with the same property, 0 if it is clean, 125 (skip) for "
            "anything else.",
        ),
    ] = False,
    timeout: Annotated[str, typer.Option(help="With --bisect: how long the replay may take.")] = "5m",
    least: Annotated[
        Path | None,
        typer.Option("--shrink", help="If it fails, write the fewest operations that still do to this file."),
    ] = None,
    budget: Annotated[str, typer.Option(help="With --shrink: how long it may take.")] = "1m",
) -> None:
    """Replay a counterexample, or a recording, step by step, with the blocks after each operation. Exit status 1 if it
    (still) fails.

    Examples:

      python -m fuzz replay fuzz-out/findings/OWNERSHIP-1.json

      python -m fuzz replay incident.jsonl --quiet --shrink least.json

      git bisect run .venv/bin/python -m fuzz replay --bisect OWNERSHIP-1.json
    """
    if bisect:
        status, said = bisected(file, target, _seconds(timeout))
        console.print(escape(said), soft_wrap=True)
        raise typer.Exit(status)
    try:
        stored = read(file)
    except Unreadable as error:
        _usage(str(error))
    name = target or stored.target
    factory = _factory(name)
    timeline = Timeline(f"{file.name} on {name}: {stored.configuration}", drain_from=len(stored.operations))

    def watch(run: Run, operation: Operation) -> None:
        timeline.add(run.session, operation, run.outcomes[-1] if run.outcomes else None)

    silent = quiet and not as_json
    result = perform(
        factory, stored.configuration, stored.operations, stored.judging, strict=True, watch=None if silent else watch
    )
    if not silent:
        last = result.outcomes[-1] if result.outcomes else None
        broken = result.violation is not None and result.at < len(result.operations)
        timeline.settle(result.session, None if broken else last, result.violation.id if result.violation else "")
    skipped = sum(1 for outcome in result.outcomes[: len(stored.operations)] if outcome.status == "skipped")
    status = VIOLATION if result.violation is not None else CLEAN if result.operations else NOTHING
    if as_json:
        print(
            json.dumps(
                {
                    "file": file.name,
                    "target": name,
                    "status": status,
                    "expected": stored.property_id,
                    "property": result.violation.id if result.violation else None,
                    "message": result.violation.message if result.violation else None,
                    "at": result.at if result.violation else None,
                    "skipped": skipped,
                    "steps": timeline.steps,
                },
                indent=2,
            )
        )
        raise typer.Exit(status)
    if not quiet:
        timeline.finish(console, result.violation, result.at)
    if stored.note and not quiet:
        console.print(escape(stored.note), soft_wrap=True)
    if skipped:
        console.print(f"[yellow]{skipped} operations skipped[/]: they no longer apply, or the target cannot do them")
    if result.violation is None:
        expected = f" ({stored.property_id} no longer fails)" if stored.property_id else ""
        console.print(f"[bold green]clean[/]{expected}")
    else:
        found = result.violation
        console.print(f"[bold red]{found.id}[/]: {escape(found.message)}", soft_wrap=True)
        console.print(f"[dim]{escape((type(found).__doc__ or '').strip())}[/]", soft_wrap=True)
        if stored.property_id not in (None, found.id):
            console.print(f"[yellow]the file was written for {stored.property_id}[/]")
        if least is not None:
            _shrink_to(least, stored, factory, name, _seconds(budget))
    raise typer.Exit(status)


def _shrink_to(path: Path, stored: Counterexample, factory: TargetFactory, name: str, seconds: float) -> None:
    """Write the fewest operations of `stored` that still fail to `path`, and say them."""
    with console.status("shrinking") as status:
        shrunk = shrink(
            replace(stored, target=name, versions=versions()),
            factory,
            clock=time.monotonic,
            seconds=seconds,
            progress=lambda left, tried: status.update(f"shrinking: {left} operations left, {tried} replays"),
        )
    write(shrunk.counterexample, path)
    _list(shrunk.counterexample)
    if not shrunk.finished:
        console.print(f"[yellow]--budget ended the shrinking after {seconds:.0f} s; it may get shorter[/]")
    console.print(f"  python -m fuzz replay {path}", soft_wrap=True)


# ---- explore ---------------------------------------------------------------------------------------------------------


class _Depths:
    """Progress of an exploration: a bar on a terminal, elsewhere a line now and then. Every way out closes it."""

    def __init__(self, quiet: bool) -> None:
        self._began = self._said = time.monotonic()
        self._quiet = quiet
        self._bar = Progress(
            TextColumn("depth {task.fields[depth]:>3}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:>9,} of {task.total:,} expanded"),
            TextColumn("{task.fields[states]:>11,} states  {task.fields[transitions]:>12,} transitions"),
            TextColumn("{task.fields[rate]:>6,}/s"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._task: TaskID = self._bar.add_task("", total=1, depth=0, states=0, transitions=0, rate=0)
        self._first: int | None = None

    def __enter__(self) -> _Depths:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, figures: Explored, done: int, total: int) -> None:
        if self._first is None:
            self._first = figures.transitions  # those of an earlier run took no time now
        now = time.monotonic()
        rate = int((figures.transitions - self._first) / max(now - self._began, 1e-9))
        depth = figures.depth + 1
        self._bar.update(
            self._task,
            completed=done,
            total=total,
            depth=depth,
            states=figures.states,
            transitions=figures.transitions,
            rate=rate,
        )
        if not self._quiet and not console.is_terminal and now - self._said >= 10:
            self._said = now
            console.print(
                f"  {now - self._began:5.0f} s  depth {depth:>3}, {done:,} of {total:,} expanded  "
                f"{figures.states:>11,} states  {figures.transitions:>12,} transitions  {rate:,}/s",
                soft_wrap=True,
            )


def _bytes(text: str) -> int:
    """4GiB, 500MiB, or bytes."""
    number, unit = text, 1
    for suffix, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if text.endswith(suffix):
            number, unit = text.removesuffix(suffix), size
    try:
        value = int(float(number) * unit)
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        _usage(f"--memory {text!r} is not a size; give 4GiB, 500MiB, or 0 for no bound")
    return value


@app.command()
def explore(
    target: TargetOption = "kvcore",
    blocks: Annotated[int, typer.Option(min=1, help="Blocks in the pool.")] = 3,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per block.")] = 1,
    alphabet: Annotated[int, typer.Option(help="Different tokens.")] = 2,
    requests: Annotated[int, typer.Option(help="Requests alive at a time.")] = 2,
    steps: Annotated[int, typer.Option(help="Steps in flight at a time.")] = 1,
    max_tokens: Annotated[int, typer.Option(help="Longest sequence; 0: as long as the pool.")] = 2,
    reuse: Annotated[Reuse, typer.Option(help="Which end of a prompt is computed again.")] = Reuse.last_block,
    caching: Annotated[bool, typer.Option("--caching/--no-caching", help="Prefix reuse.")] = True,
    hash_bits: Annotated[int, typer.Option(help="128, or 0: all keys equal.")] = 128,
    namespaces: Annotated[int, typer.Option(help="Different namespaces, 1 to 8.")] = 1,
    drafts: Annotated[int, typer.Option(help="Most tokens of one append.")] = 1,
    placeholders: Annotated[bool, typer.Option("--placeholders", help="Append unnamed tokens, too.")] = False,
    whole_steps: Annotated[
        bool,
        typer.Option("--whole-steps", help="A step carries one request, or all that is unscheduled; else any mix."),
    ] = False,
    without: Annotated[str, typer.Option(help=f"Kinds to leave out, with commas: {', '.join(KINDS)}.")] = "",
    drain: Annotated[bool, typer.Option("--drain/--no-drain", help="In each state, also finish everything.")] = True,
    outside: OutsideOption = False,
    safety: SafetyOption = False,
    max_states: Annotated[int, typer.Option(min=0, help="Stop at so many states; 0: no bound.")] = 0,
    max_depth: Annotated[int, typer.Option(min=0, help="Stop at so many operations; 0: no bound.")] = 0,
    memory: Annotated[str, typer.Option(help="Stop where the states take so much; 0: no bound.")] = "4GiB",
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for levels, summary.json and a finding.")] = Path(
        "fuzz-out/explore"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the exploration in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Do every sequence of operations over a small configuration, breadth first: a violation is a shortest one.

    States that are equal up to names of blocks, tokens and requests are one. Without bounds it ends when the space is
    closed: no operation leads to a new state. Exit status 0 without a violation, closed or not; interrupted (130), or
    stopped at a bound, it goes on with --resume. See docs/explore.md.

    Examples:

      python -m fuzz explore

      python -m fuzz explore --blocks 2 --block-size 2 --alphabet 1 --max-tokens 3 --out fuzz-out/two

      python -m fuzz explore --blocks 4 --block-size 2 --max-states 1000000 --out fuzz-out/four

      python -m fuzz explore --target my_package.adapter:make --outside --max-depth 6
    """
    factory = _factory(target)
    try:
        configuration = Configuration(
            num_blocks=blocks, block_size=block_size, hash_bits=hash_bits, reuse=reuse.value, caching=caching
        )
        space = Space(
            configuration,
            alphabet=alphabet,
            requests=requests,
            steps=steps,
            max_tokens=max_tokens,
            namespaces=namespaces,
            drafts=drafts,
            placeholders=placeholders,
            whole_steps=whole_steps,
            without=tuple(sorted({kind.strip() for kind in without.split(",")} - {""})),
        )
    except (Malformed, BadSpace) as error:
        _usage(str(error))
    if Capability.CLONE not in factory(configuration).capabilities:
        _usage(f"target {target!r} has no capability CLONE: its states can be neither copied nor compared; use `run`")
    plan = ExplorePlan(
        target,
        space,
        out,
        Judging(outside=outside, exact=not safety),
        drain=drain,
        max_states=max_states,
        max_depth=max_depth,
        memory=_bytes(memory),
        workers=workers or os.cpu_count() or 1,
        resume=resume,
    )
    if not as_json:
        console.print(
            f"Exploring [bold]{escape(target)}[/]: {configuration}; {alphabet} tokens, {requests} requests, {steps} "
            f"steps in flight, sequences up to {space.longest}, on {plan.workers} processes",
            soft_wrap=True,
        )
    try:
        with _Depths(as_json) as progress, _Interruptible() as clock:
            result = explore_space(plan, factory, clock, progress)
    except CannotResume as error:
        _usage(str(error))
    except Changed as error:
        complaints.print(f"[bold red]the harness itself failed:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
    summary = result.to_json()
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        _explored(result)
    raise typer.Exit(result.status)


def _explored(result: Explored) -> None:
    """What was explored, and what was found."""
    table = Table(title="What happened", title_justify="left", box=None, pad_edge=False)
    table.add_column("event or refusal")
    table.add_column("transitions", justify="right")
    for name, count in sorted(result.events.items()):
        table.add_row(escape(name), f"{count:,}")
    for name, count in sorted(result.refused.items()):
        table.add_row(f"refused: {escape(name)}", f"{count:,}")
    console.print(table)
    rate = result.transitions / result.seconds if result.seconds and not result.plan.resume else 0
    console.print(
        f"{result.states:,} states, {result.transitions:,} transitions, {result.lookups:,} lookups, {result.drains:,} "
        f"drain phases, depth {result.depth}, {result.seconds:.1f} s"
        + (f" ({rate:,.0f} transitions/s)" if rate else ""),
        soft_wrap=True,
    )
    found = result.counterexample
    if found is not None:
        console.print(f"[bold red]{found.property_id}[/]: {escape(found.message)}", soft_wrap=True)
        for number, operation in enumerate(found.operations):
            mark = "[bold red]" if number == found.at else ""
            console.print(f"  {mark}{number + 1:>2}  {escape(describe(operation))}", soft_wrap=True)
        if found.at == len(found.operations):
            console.print("  [bold red]then, in the drain phase[/]")
        console.print(f"  python -m fuzz replay {result.path}", style="bold", soft_wrap=True)
    if result.complaint:
        console.print(f"[yellow]{escape(result.complaint)}[/]", soft_wrap=True)
    if result.status == CLEAN:
        said = "closed: every sequence of operations" if result.closed else "not closed: every sequence so far"
        console.print(f"[bold green]clean[/], {said} within these bounds holds every property", soft_wrap=True)


# ---- trace -----------------------------------------------------------------------------------------------------------


def _trace_line(figures: dict[str, Any]) -> str:
    evicted = "unknown" if figures["evictions"] is None else f"{figures['evictions']:,}"
    share = figures["hit_tokens"] / figures["prompt_tokens"] if figures["prompt_tokens"] else 0.0
    return (
        f"{figures['requests']:,} requests ({figures['dropped']} dropped), {figures['prompt_tokens']:,} prompt tokens, "
        f"{figures['hit_tokens']:,} prefix-hit tokens ({share:.1%}), {figures['output_tokens']:,} output tokens, "
        f"{evicted} evictions, {figures['refusals']:,} refusals, {figures['preemptions']:,} preemptions, "
        f"{figures['steps']:,} steps, {figures['operations']:,} operations in {figures['seconds']:.1f} s "
        f"({figures['operations_per_second']:,}/s)"
    )


@app.command()
def trace(
    file: Annotated[
        Path | None, typer.Argument(help="A trace in Mooncake's format, plain or gzip; built-in by default.")
    ] = None,
    target: TargetOption = "kvcore",
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per block.")] = 16,
    num_blocks: Annotated[int, typer.Option(min=1, help="Blocks in the pool.")] = 512,
    reuse: Annotated[Reuse, typer.Option(help="Which end of a prompt is computed again.")] = Reuse.last_block,
    max_output: Annotated[int, typer.Option(min=1, help="Cut outputs to so many tokens.")] = 64,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests alive at a time.")] = 32,
    chunk: Annotated[int, typer.Option(min=1, help="Tokens scheduled in a step.")] = 2048,
    overlap: Annotated[int, typer.Option(min=1, help="Steps in flight.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many requests.")] = None,
    checks: Annotated[
        bool, typer.Option("--checks/--no-checks", help="Off: the target alone, for its own speed.")
    ] = True,
    outside: OutsideOption = False,
    record: Annotated[
        Path | None,
        typer.Option(help="With --no-checks: write every operation to this file, as a recorder in an engine does."),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="With --record: rename tokens, requests and namespaces.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for a finding.")] = Path("fuzz-out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Run a production request trace through the target, with every property on.

    Examples:

      python -m fuzz trace

      python -m fuzz trace conversation_trace.jsonl.gz --block-size 512 --num-blocks 16384

      python -m fuzz trace conversation_trace.jsonl.gz --block-size 512 --num-blocks 16384 --no-checks

      python -m fuzz trace --target mycore.testing:make --no-checks --record incident.jsonl --private
    """
    if (record is not None and checks) or (private and record is None):
        _usage("--record goes with --no-checks, and --private with --record")
    factory = _factory(target)
    requests = _requests(file)
    configuration = Configuration(num_blocks=num_blocks, block_size=block_size, reuse=reuse.value)
    if reason := cannot_trace(factory(configuration).policy):
        _usage(f"{target} cannot run a request trace: {reason}")
    options: dict[str, Any] = {
        "max_output": max_output,
        "concurrency": concurrency,
        "chunk": chunk,
        "overlap": overlap,
        "limit": limit,
    }
    bar = Progress(
        TextColumn("trace"),
        BarColumn(bar_width=28),
        TextColumn("{task.completed:>7,} of {task.total:,} requests  {task.fields[operations]:>10,} operations"),
        TimeElapsedColumn(),
        console=console,
        disable=as_json or not console.is_terminal,
        transient=True,
    )
    total = len(requests) if limit is None else min(limit, len(requests))
    with bar:
        task = bar.add_task("", total=total, operations=0)

        def progress(done: int, _total: int, operations: int) -> None:
            bar.update(task, completed=done, operations=operations)

        if checks:
            found, report = run_checked(
                factory,
                target,
                requests,
                Judging(outside),
                Tally(),
                configuration=configuration,
                progress=progress,
                **options,
            )
        else:
            found = None
            core: Target = factory(configuration)
            if record is not None:
                core = Recorder(core, configuration, record, name=target, private=private)
            report = run_trace(requests, core, checks=False, progress=progress, **options)
    assert report is not None
    figures = campaign.trace_figures(report)
    if as_json:
        print(json.dumps({"checks": checks, "configuration": configuration.to_json(), **figures}, indent=2))
    else:
        console.print(f"{_trace_line(figures)}{'' if checks else ', no checks'}", soft_wrap=True)
    if found is None:
        if not as_json:
            said = f"every property held after each of {report.operations:,} operations" if checks else "not checked"
            console.print(f"[bold green]clean[/]: {said}" if checks else f"[yellow]{said}[/]")
        raise typer.Exit(CLEAN if report.operations else NOTHING)
    path = write(found, out / "findings" / f"{found.property_id}-trace.json")
    complaints.print(f"[bold red]{found.property_id}[/]: {escape(found.message)}", soft_wrap=True)
    complaints.print(f"  python -m fuzz replay {path}", soft_wrap=True)
    raise typer.Exit(VIOLATION)


# ---- compare ---------------------------------------------------------------------------------------------------------


@app.command()
def compare(
    targets: Annotated[list[str], typer.Argument(help="Targets; the first is what speed is compared with.")],
    budget: Annotated[str, typer.Option(help="Time for each: 30s, 10m, 1h30m.")] = "1m",
    seed: Annotated[str, typer.Option(help="The same for all.")] = "compare",
    speed: Annotated[
        bool, typer.Option("--speed", help="Also time them on the allocator's benchmark, in turn.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the table, the page, and each core's campaign.")] = Path(
        "fuzz-out/compare"
    ),
    into: Annotated[
        list[Path] | None,
        typer.Option(help="Put the table between the marks in this Markdown file, too. Repeatable."),
    ] = None,
    kept: Annotated[
        Path | None, typer.Option("--keep", help="Copy each counterexample to this folder; --into links to it.")
    ] = None,
) -> None:
    """Compare cores: the same campaign for each, in a process of its own; a table of cores and properties.

    Exit status 1 if any property is violated, 4 if nothing was executed.

    Examples:

      python -m fuzz compare kvcore nano_vllm --budget 2m --speed

      python -m fuzz compare kvcore mycore.testing:make --into README.md
    """
    _seconds(budget)
    result = run_compare(
        targets,
        out,
        budget=budget,
        seed=seed,
        speed=speed,
        say=lambda text: console.print(escape(text), soft_wrap=True),
    )
    copies = keep(result, out, kept) if kept is not None else {}
    for path in into or ():
        try:
            replace_section(path, "compare", markdown(result, partial(_link, copies, path.parent)))
        except (OSError, ValueError) as error:
            _usage(str(error))
    table = Table(title="", box=None)
    table.add_column("property")
    for column in result.columns:
        table.add_column(column.name)
    for name in PROPERTIES:
        cells = [column.cells.get(name) for column in result.columns]
        table.add_row(name, *(_VERDICTS[cell.verdict] if cell is not None else "[yellow]not run[/]" for cell in cells))
    console.print(table)
    for column in result.columns:
        if column.missing:
            console.print(f"[yellow]{column.name}[/]: {escape(column.missing)}", soft_wrap=True)
    console.print(f"page: {render_comparison(result, out)}   table: {out / 'compare.json'}", soft_wrap=True)
    raise typer.Exit(VIOLATION if result.violated else CLEAN if result.executed else NOTHING)


def _link(copies: Mapping[str, Path], base: Path, file: str) -> str:
    return os.path.relpath(copies[file], base) if file in copies else ""


_VERDICTS = {
    "pass": "[green]pass[/]",
    "violated": "[bold red]violated[/]",
    "not supported": "[dim]–[/]",
    "not checked": "[dim]not checked[/]",
}


# ---- audit -----------------------------------------------------------------------------------------------------------


class Hunter(str, Enum):
    both = "both"
    walk = "walk"
    hypothesis = "hypothesis"


@app.command()
def audit(
    bug: Annotated[list[str] | None, typer.Option(help="Only this bug, in detail; may be repeated.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--class", help="Only this class of bugs; may be repeated.")] = None,
    kernels: Annotated[bool, typer.Option("--kernels", help="The kernel bugs instead of the allocator's.")] = False,
    engine: Annotated[Hunter, typer.Option(help="Which engines hunt.")] = Hunter.both,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for each engine: 1, 2, ...")] = 3,
    limit: Annotated[int, typer.Option(min=1, help="Operations after which a hunt gives up.")] = 200_000,
    cases: Annotated[
        int, typer.Option(min=1, help="Attention cases after which a hunt for a kernel bug gives up.")
    ] = 200,
    outside: OutsideOption = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder for trials, counterexamples and reports.")] = Path("fuzz-out/audit"),
    resume: Annotated[bool, typer.Option("--resume", help="Keep the trials that the folder has.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the zoo and hunt nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print audit.json instead of tables.")] = False,
) -> None:
    """Test the tester: plant every bug of the zoo in kvcore, hunt for it, say what kills it and how well.

    Exit status 1 if a bug survives a seed of both engines, 3 if the canary is not reported or a bug does not apply.

    Examples:

      python -m fuzz audit

      python -m fuzz audit --bug NV-1

      python -m fuzz audit --class rollback --seeds 10 --engine walk

      python -m fuzz audit --kernels --seeds 1
    """
    try:
        chosen = _zoo(bug or (), kind or (), kernels)
    except InvalidBug as error:
        _usage(str(error))
    if listed:
        audit_show.list_zoo(chosen, console)
        raise typer.Exit(CLEAN)
    engines = ("walk", "hypothesis") if engine is Hunter.both else (engine.value,)
    plan = AuditPlan(
        tuple(one.id for one in chosen),
        out,
        engines,
        tuple(str(number) for number in range(1, seeds + 1)),
        limit,
        cases,
        workers,
        outside,
        canary=not bug and not kernels,
    )
    bar = Progress(
        BarColumn(bar_width=28),
        TextColumn("{task.completed:>5,} of {task.total:,} trials  {task.fields[last]}"),
        TimeElapsedColumn(),
        console=complaints,
        transient=True,
        disable=as_json or not complaints.is_terminal,
    )
    with bar:
        row = bar.add_task("", total=len(chosen) * seeds, last="")
        began = said = time.monotonic()

        def progress(done: int, total: int, trial: Trial) -> None:
            nonlocal said
            last = f"{trial.bug} by {trial.engine}: {trial.property_id or 'not found'}"
            bar.update(row, completed=done, total=total, last=last)
            if bar.disable and not as_json and time.monotonic() - said >= 10:
                said = time.monotonic()
                console.print(f"{said - began:6.0f} s  {done:,} of {total:,} trials  {last}")

        try:
            result = run_audit(plan, resume=resume, progress=progress)
        except DoesNotApply as error:
            complaints.print(f"[bold red]a bug of the zoo no longer applies:[/] {escape(str(error))}", soft_wrap=True)
            raise typer.Exit(HARNESS) from None
        except KeyboardInterrupt:
            complaints.print(f"interrupted; `--resume --out {escape(str(out))}` goes on from here", soft_wrap=True)
            raise typer.Exit(INTERRUPTED) from None
    data = result.to_json()
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    page = audit_show.render(result, out / "audit.html")
    audit_show.markdown(result, out / "table.md")
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        audit_show.tables(result, console)
        for one in result.rows if bug else ():
            audit_show.detail(one, out, console)
        console.print(f"\nreport: {page}   figures: {out / 'audit.json'}", soft_wrap=True)
    if not result.canary_reported:
        complaints.print("[bold red]the canary was not reported[/]: findings are lost on the way to this table")
        raise typer.Exit(HARNESS)
    raise typer.Exit(VIOLATION if result.survivors else CLEAN)


def _zoo(ids: Sequence[str], kinds: Sequence[str], kernels: bool) -> list[Bug]:
    if ids:
        return [find(one) for one in ids]
    bugs = [one for one in kernel_bugs() if one.by == "cases"] if kernels else list(allocator_bugs())
    known = list(dict.fromkeys(one.kind for one in bugs))
    if unknown := [kind for kind in kinds if kind not in known]:
        raise InvalidBug(f"no class {', '.join(map(repr, unknown))}; there are: {'; '.join(known)}")
    return [one for one in bugs if not kinds or one.kind in kinds]


# ---- gpu -------------------------------------------------------------------------------------------------------------


@app.command()
def gpu(
    out: Annotated[Path, typer.Option(help="Folder for results.json and plots.")] = Path("fuzz-out/gpu"),
    minutes: Annotated[
        float, typer.Option(min=0, help="Time to spend; what it does not suffice for is skipped, and said.")
    ] = 8,
    only: Annotated[list[parts.Name] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Only draw plots of a results.json, on any machine.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")] = False,
) -> None:
    """Check and measure the kernels on a CUDA device. Exit status 1 if a check fails, 4 without a device.

    Correctness against float64, equal bits for every schedule, speed beside torch's own attention.

    Examples:

      python -m fuzz gpu

      python -m fuzz gpu --minutes 3 --only correctness --only bits

      python -m fuzz gpu --plots fuzz-out/gpu/results.json
    """
    from .gpu import supervise
    from .gpu.results import BadResults, Results

    if plots is not None:
        try:
            _draw(Results.load(plots), plots.parent)
        except BadResults as error:
            _usage(str(error))
        raise typer.Exit(CLEAN)
    try:
        results = supervise.watch(
            out / "results.json", parts.chosen(only or ()), minutes, quiet=as_json, say=complaints.print
        )
    except supervise.NoDevice:
        raise typer.Exit(NOTHING) from None
    except KeyboardInterrupt:
        complaints.print(f"interrupted; what was found is in {escape(str(out))}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    except supervise.WorkerFailed as error:
        complaints.print(f"[bold red]the harness itself failed:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
    if as_json:
        print(json.dumps(results.data, indent=2))
    else:
        report.show(results, console)
        console.print(f"results: {results.path}", soft_wrap=True)
        _draw(results, out)
    ran = any(part["status"] in ("done", "cut") for part in results.data["parts"])
    raise typer.Exit(VIOLATION if results.broken else HARNESS if results.failed else CLEAN if ran else NOTHING)


def _draw(results: Any, folder: Path) -> None:
    from .gpu.plots import NoMatplotlib, draw

    try:
        for path in draw(results, folder):
            console.print(f"plot: {path}", soft_wrap=True)
    except NoMatplotlib:
        command = f"python -m fuzz gpu --plots {results.path}"
        console.print(f"plots: matplotlib is not installed; run `{escape(command)}` where it is", soft_wrap=True)


def main() -> None:
    """Run the command line; turns whatever else goes wrong into an exit status with a sentence."""
    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        complaints.print("interrupted")
        sys.exit(INTERRUPTED)
    except Exception:
        complaints.print_exception(show_locals=False)
        complaints.print(
            "[bold red]the harness itself failed[/]: this is a defect here, not in the target; please report it"
        )
        sys.exit(HARNESS)
