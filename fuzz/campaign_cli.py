"""Campaigns on the command line: `run --campaign`, and what is done with their folder: accept, promote, tidy, report.

This room may not know: how a campaign runs; it reads arguments, shows progress, and picks the exit status.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import ci
from .baseline import FIXED, KNOWN, NEW, REGRESSED, BadBaseline, Baseline
from .campaign import CLEAN, HARNESS, NOTHING, USAGE
from .cluster import NoCluster, NoRay, RayWorkers, connected
from .engines import Clock
from .findings import Finding, Findings, NotAFinding, promote
from .history import BadHistory, History, bars
from .nightly import ONLY_KNOWN, Busy, CampaignResult, Figures, Nightly, NothingToResume, journal_of
from .page import render, render_history
from .plans import BadPlan, CampaignPlan, Keep, bytes_of, overruled, ready, seconds_of
from .show import describe, hard_states
from .supervisor import Died, Executor
from .worker import Hit, Stream

__all__ = ["OnRay", "campaign", "register"]

console = Console(highlight=False)
complaints = Console(stderr=True, highlight=False)


def _usage(message: str) -> NoReturn:
    complaints.print(f"[red]error:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(USAGE)


def _now() -> datetime:
    return datetime.now().astimezone().replace(microsecond=0)


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
        shown = list(enumerate(found.operations))
        if len(shown) > 20:
            console.print(f"  ... {len(shown) - 10} operations before these")
            shown = shown[-10:]
        for number, operation in shown:
            mark = "[bold red]" if number == found.at else ""
            console.print(f"  {mark}{number + 1:>2}  {escape(describe(operation))}", soft_wrap=True)
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
        _usage("devices are of this machine; with --engine ray give --ray-gpus, the GPUs of each worker")
    try:
        cluster = open.enter_context(connected(ray.address, plan.processes))
    except NoRay as error:
        _usage(str(error))
    except NoCluster as error:
        complaints.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
    room = cluster.room(ray.gpus)
    plan = replace(plan, workers=plan.workers or max(1, room))
    if room < plan.workers:
        each = f"a CPU and {ray.gpus:g} GPUs" if ray.gpus else "a CPU"
        if cluster.own:
            _usage(f"{plan.workers} workers with {each} each, and this machine has room for {room}")
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
    interruptible: Callable[[], Any],
    baseline: Path | None,
    resume: bool,
    base: CampaignPlan,
    kernels: Callable[[str, Sequence[str]], str],
    ray: OnRay | None = None,
) -> NoReturn:
    """`run --campaign name` with `flags` that were given (by the plan's own names); without a name, `base`. Ends with
    the exit status. interruptible: the clock, as a context. kernels: makes a name of kernels of "auto" and the like,
    for these targets. ray: where the workers are, if not here."""
    try:
        plan = ready(name) if name else base
        if resume and not name:
            plan = CampaignPlan.from_json(journal_of(out)["plan"])
        plan = overruled(plan, flags)
        if plan.engines.get("kernels", 0) > 0:
            plan = replace(plan, kernels=kernels(plan.kernels, plan.targets))
        else:
            plan = replace(plan, kernels="")
        plan = overruled(plan, {"seed": plan.seed or str(secrets.randbits(32))})
    except (BadPlan, NothingToResume) as error:
        _usage(str(error))
    with ExitStack() as open:
        executor = None
        if ray is not None:
            plan, executor = _placed(plan, ray, open)
        try:
            with _Lines(plan.budget) as lines, interruptible() as clock:
                before = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
                try:
                    command = "" if resume and not name else _again(name, flags, plan, ray)
                    result = _run(plan, out, clock, lines, baseline, resume, executor, command)
                finally:
                    signal.signal(signal.SIGTERM, before)
        except (Busy, NothingToResume, BadBaseline, BadHistory) as error:
            _usage(str(error))
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
        plan, out, clock, lines, now=_now, baseline=baseline, resume=resume, executor=executor, command=command
    )
    engines = ", ".join(
        engine for engine, share in plan.engines.items() if share and (engine != "kernels" or plan.kernels)
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
    table = Table(title="What ran", title_justify="left", box=None, pad_edge=False)
    for name in ("engine", "checked operations", "worker seconds", "a second"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for engine, row in summary["engines"].items():
        table.add_row(
            engine, f"{row['operations']:,}", f"{row['seconds']:.1f}", f"{row['operations_per_second'] or 0:,}"
        )
    console.print(table)
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


# ---- what is done with a campaign's folder ---------------------------------------------------------------------------

OutOption = Annotated[Path, typer.Option(help="The campaigns' folder.")]
BaselineOption = Annotated[
    Path | None, typer.Option(help="The file of known findings; baseline.json in --out without.")
]


def _summary(out: Path) -> dict[str, Any]:
    path = out / "summary.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != 2:
            raise ValueError(f"its schema is {data['schema']}: it is of a run without --campaign or --workers")
    except (OSError, ValueError, KeyError, TypeError) as error:
        _usage(f"{path}: not the summary of a campaign ({error}); run one with `python -m fuzz run --campaign NAME`")
    assert isinstance(data, dict)
    return data


def accept(
    out: OutOption = Path("fuzz-out"),
    baseline: BaselineOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this signature's id; may be repeated.")] = None,
) -> None:
    """Accept the last campaign's findings as the baseline: from now on they are known, and what no longer fails, fixed.

    Examples:

      python -m fuzz accept

      python -m fuzz accept --out night --baseline fuzz/baseline.json --only 1a2b3c4d
    """
    summary = _summary(out)
    path = baseline or out / "baseline.json"
    try:
        known = Baseline.load(path)
    except BadBaseline as error:
        _usage(str(error))
    findings = Findings(out / "findings", Keep(), _now())
    ids = [entry["signature"]["id"] for entry in summary["findings"]]
    if unknown := [id for id in only or () if id not in ids]:
        _usage(f"--only: the last campaign has no finding {', '.join(unknown)}; it has {', '.join(ids) or 'none'}")
    accepted = [findings.by_id[id] for id in ids if id in findings.by_id and (not only or id in only)]
    for finding in accepted:
        known.accept(finding.symptoms, finding.counterexample, finding.known_as)
        finding.status = KNOWN
        findings.write(finding)
    fixed = [] if only else summary["fixed"]
    mended = [id for id, entry in known.entries.items() if str(entry.signature) in fixed]
    known.mend(mended)
    known.write(path)
    console.print(f"{len(accepted)} accepted as known, {len(mended)} noted as fixed: {path}", soft_wrap=True)


def promoted(
    finding: Annotated[Path, typer.Argument(help="A finding's directory, or a counterexample file.")],
    to: Annotated[Path, typer.Option(help="Folder of regressions, which `make test` replays.")] = Path(
        "fuzz/regressions"
    ),
    target: Annotated[str, typer.Option(help="The target that must stay clean, if not the one it was found on.")] = "",
    name: Annotated[str, typer.Option(help="What to call the file; by default property and signature.")] = "",
    note: Annotated[str, typer.Option(help="A sentence to keep in the file: what was wrong.")] = "",
) -> None:
    """Make a finding a regression test: copy its counterexample to a folder that the tests replay.

    Examples:

      python -m fuzz promote fuzz-out/findings/OWNERSHIP-1a2b3c4d --name stale_mapping --note "mended in 3f2a"

      python -m fuzz promote OWNERSHIP-1.json --to tests/regressions
    """
    try:
        path = promote(finding, to, target, name, note)
    except NotAFinding as error:
        _usage(str(error))
    console.print(f"{path}: replayed by `make test`, and red until the bug is mended", soft_wrap=True)


def tidy(
    out: OutOption = Path("fuzz-out"),
    keep: Annotated[str, typer.Option(help="Age from which a finding that is known or fixed goes: 30d, 12h.")] = "30d",
    disk: Annotated[str, typer.Option(help="Bytes that the findings may take: 500MiB, 2GiB.")] = "500MiB",
) -> None:
    """Delete what is old or too much: findings that are fixed or known, the longest unseen
    first; never new ones.

    Examples:

      python -m fuzz tidy --keep 14d --disk 100MiB
    """
    try:
        kept = Keep(days=seconds_of(keep) / 86400, disk=bytes_of(disk))
    except (ValueError, OverflowError):
        _usage(f"--keep {keep!r} --disk {disk!r}: give a time like 30d or 12h, and a size like 500MiB")
    gone = Findings(out / "findings", kept, _now()).tidy()
    for line in gone:
        console.print(escape(line), soft_wrap=True)
    console.print(f"{len(gone)} directories deleted")


def report(
    history: Annotated[bool, typer.Option("--history", help="Rates and findings over all campaigns.")] = False,
    out: OutOption = Path("fuzz-out"),
    last: Annotated[int, typer.Option(min=0, help="Only the last so many campaigns; 0: all.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="With --history: write it as a page to this file.")] = None,
) -> None:
    """Show the last campaign again, or, with --history, rates and findings over time.

    Examples:

      python -m fuzz report --out night

      python -m fuzz report --history --last 90

      python -m fuzz report --history --json

      python -m fuzz report --history --html history.html
    """
    if html is not None and not history:
        _usage("--html is for --history; the last campaign has its page, report.html, in its folder")
    if not history:
        summary = _summary(out)
        print(json.dumps(summary, indent=2) if as_json else ci.markdown(summary))
        raise typer.Exit(CLEAN)
    path = out / "history.sqlite"
    if not path.exists():
        _usage(f"{path}: there is no history; campaigns (`python -m fuzz run --campaign NAME`) write it")
    try:
        rows = History(path).campaigns(last)
    except (OSError, BadHistory) as error:
        _usage(str(error))
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
        raise typer.Exit(CLEAN if rows else NOTHING)
    if html is not None:
        try:
            console.print(f"history: {render_history([row.to_json() for row in rows], html)}", soft_wrap=True)
        except OSError as error:
            _usage(f"{html}: cannot be written: {error.strerror}")
        raise typer.Exit(CLEAN if rows else NOTHING)
    table = Table(title="Campaigns", title_justify="left", box=None, pad_edge=False)
    for name in ("began", "name", "seed", "status", "seconds", "workers", "busy", "operations", "a second", "findings"):
        table.add_column(name, justify="right" if name in ("seconds", "workers", "busy", "operations") else "left")
    for row in rows:
        counts = {
            status: sum(one["status"] == status for one in row.findings) for status in (NEW, REGRESSED, KNOWN, FIXED)
        }
        found = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "-"
        status = "killed or running" if row.status is None else str(row.status)
        table.add_row(
            row.began[:16].replace("T", " "),
            escape(row.name),
            escape(row.seed),
            status,
            f"{row.seconds:.0f}",
            str(row.workers),
            f"{row.busy:.0%}",
            f"{row.operations:,}",
            f"{row.rate:,.0f}",
            found,
        )
    console.print(table)
    _curves(
        [
            ("operations a second", [row.rate for row in rows]),
            ("findings", [sum(one["status"] != FIXED for one in row.findings) for row in rows]),
        ]
    )
    for engine in sorted({engine for row in rows for engine in row.rates}):
        rates = [row.rates.get(engine, (0, 0.0)) for row in rows]
        _curves([(f"{engine}, a second and worker", [done / spent if spent else 0.0 for done, spent in rates])])
    raise typer.Exit(CLEAN if rows else NOTHING)


def _curves(curves: list[tuple[str, list[float]]]) -> None:
    for name, values in curves:
        console.print(f"{name:<34} {bars(values)}  last {values[-1] if values else 0:,.0f}", soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `python -m fuzz`."""
    app.command()(accept)
    app.command("promote")(promoted)
    app.command()(tidy)
    app.command()(report)
