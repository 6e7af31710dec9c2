"""`attention` and `compiled`: kernels alone, interpreted or as the compiler makes them, checked case by case."""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from properties.attention.cases import Case, MalformedCase

from ..engines.attention import AttentionPlan, finding_text, run_attention, shrink_case, write_finding
from ..engines.bench import COMPILED, Failed, NoKernels, check_one
from ..runs.bounds import TooMuch, json_of, text_of
from ..runs.files import put
from ..runs.status import CLEAN, HARNESS, INTERRUPTED, NOTHING, VIOLATION
from .common import complaints, console, duration, kernels_of, lost, usage
from .out import take

__all__ = ["attention", "compiled"]


class Dot(str, Enum):
    sequential = "sequential"
    hopper = "hopper"
    ampere = "ampere"


def attention(
    context: typer.Context,
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
    max_findings: Annotated[int, typer.Option(min=0, help="Stop after so many findings; 0: never.")] = 1,
    hang: Annotated[
        str, typer.Option(help="A case that takes longer than this is a finding, and the next has its turn; 0: never.")
    ] = "2m",
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
    same = "attention" + ("" if dot is Dot.sequential else f" --dot {dot.value}")
    _checked(
        context,
        _Cases(
            kernels,
            cases,
            workers,
            seed,
            budget,
            dot.value,
            tiles,
            out,
            shrink,
            max_findings,
            hang,
            case,
            as_json,
            same,
        ),
    )


class Sm(str, Enum):
    sm_80 = "80"
    sm_90 = "90"
    sm_100 = "100"


def compiled(
    context: typer.Context,
    sm: Annotated[Sm, typer.Option(help="The GPU that kernels are compiled for; 100 as far as it goes.")] = Sm.sm_90,
    kernels: Annotated[
        str, typer.Option(help="Kernels under test: kvcore, vllm, sglang, or package.module:factory.")
    ] = "kvcore",
    cases: Annotated[int, typer.Option(min=1, help="How many cases.")] = 20,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    seed: Annotated[str, typer.Option(help="Repeat the run with this seed; a fresh one by default.")] = "",
    budget: Annotated[str, typer.Option(help="Stop after this time: 45s, 10m, 2h.")] = "",
    tiles: Annotated[int, typer.Option(min=4, help="Size of a case: tiles of its base run.")] = 12,
    out: Annotated[Path, typer.Option(help="Folder for findings and attention.json.")] = Path("fuzz-out"),
    shrink: Annotated[str, typer.Option(help="Time to shrink a finding; 0 leaves it as found.")] = "5m",
    max_findings: Annotated[int, typer.Option(min=0, help="Stop after so many findings; 0: never.")] = 1,
    hang: Annotated[
        str, typer.Option(help="A case that takes longer than this is a finding, and the next has its turn; 0: never.")
    ] = "10m",
    case: Annotated[str, typer.Option(help="Check this one case: its JSON, or the file of a finding.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Check attention kernels as the compiler makes them: their PTX is run by an emulator, which needs no GPU. The same
    cases, properties and axes as `attention`; besides them, races between barriers, shared memory that nothing has
    written, and copies and products that nobody has waited for.

    Examples:

      python -m fuzz compiled

      python -m fuzz compiled --sm 80 --cases 100 --workers 2

      python -m fuzz compiled --case '{"sequences": [[40, 3]], "dtype": "bfloat16", "axes": ["rows"]}'
    """
    os.environ.pop("TRITON_INTERPRET", None)  # of the processes that this one starts: they compile
    same = "compiled" + ("" if sm is Sm.sm_90 else f" --sm {sm.value}")
    dot = f"{COMPILED}{sm.value}"
    _checked(
        context,
        _Cases(kernels, cases, workers, seed, budget, dot, tiles, out, shrink, max_findings, hang, case, as_json, same),
    )


@dataclass(frozen=True)
class _Cases:
    """What the commands that check kernels alone are given; budget, shrink and hang as the user typed them. same: the
    command, with what it takes to check the same again."""

    kernels: str
    cases: int
    workers: int
    seed: str
    budget: str
    dot: str
    tiles: int
    out: Path
    shrink: str
    max_findings: int
    hang: str
    case: str
    as_json: bool
    same: str


def _checked(context: typer.Context, given: _Cases) -> NoReturn:
    """Do it, say what came of it, and exit with its status."""
    kernels, dot, out, as_json = given.kernels, given.dot, given.out, given.as_json
    kernels_of(kernels, made=False)
    longest = duration(given.hang)
    if given.case:
        _one_case(kernels, given.case, dot, as_json, longest)
    take(context, out)
    plan = AttentionPlan(
        kernels, given.seed or str(secrets.randbits(32)), given.cases, given.workers, dot, given.tiles,
        given.max_findings, longest,
    )  # fmt: skip
    limit = duration(given.budget) if given.budget else float("inf")
    began = time.monotonic()
    quiet = as_json or not console.is_terminal
    if not as_json:
        console.print(
            f"{given.cases} attention cases on [bold]{escape(kernels)}[/], {given.workers} workers, seed {plan.seed}"
        )
    bar = Progress(
        BarColumn(bar_width=28),
        TextColumn("{task.completed:>6,} of {task.total:,} cases  {task.fields[compared]:>11,} row-heads bit by bit"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet,
    )
    with bar:
        row = bar.add_task("", total=given.cases, compared=0)
        said = 0.0

        def progress(counts: Any) -> None:
            nonlocal said
            done, compared = counts.cases + sum(counts.skipped.values()), sum(counts.compared.values())
            bar.update(row, completed=done, compared=compared)
            elapsed = time.monotonic() - began
            if quiet and not as_json and elapsed - said >= 10:
                said = elapsed
                console.print(f"{elapsed:6.0f} s  {done:,} cases, {compared:,} row-heads bit by bit")

        try:
            result = run_attention(plan, late=lambda: time.monotonic() - began > limit, progress=progress)
        except NoKernels as error:
            usage(str(error))
    paths: list[Path | None] = []
    for number, found in enumerate(result.findings):
        try:
            path: Path | None = write_finding(found, out / "findings")
        except OSError as error:
            path = None
            lost(" ".join(finding_text(found).split()), error)
        if duration(given.shrink) and not result.interrupted:
            if not as_json:
                console.print(f"[red]{found.property_id}[/] in case {found.number}; shrinking")
            over = partial(_after, time.monotonic() + duration(given.shrink))
            with suppress(Failed, NoKernels):  # as it was found it stays
                result.findings[number] = shrink_case(kernels, found, dot=dot, late=over, hang=longest)
            if path is not None:
                with suppress(OSError):  # as it was found it is there
                    put(path, finding_text(result.findings[number]) + "\n")
        paths.append(path)
    summary = result.to_json(plan, time.monotonic() - began)
    complaint = ""
    try:
        put(out / "attention.json", json.dumps(summary, indent=2) + "\n")
    except OSError as error:
        complaint = f"cannot write to {out}: {error}"
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _say_cases(summary)
        for path, found in zip(paths, result.findings, strict=True):
            console.print(f"[bold red]{found.property_id}[/]: {escape(found.message)}", soft_wrap=True)
            same = given.same + ("" if kernels == "kvcore" else f" --kernels {kernels}")
            console.print(f"  {escape(found.case.to_json())}", soft_wrap=True)
            if path is not None:
                console.print(f"  python -m fuzz {same} --case {path}", soft_wrap=True)
    for text in filter(None, (complaint, result.failure)):
        complaints.print(f"[bold red]{escape(text)}[/]", soft_wrap=True)
    if result.interrupted:
        complaints.print("interrupted")
        raise typer.Exit(INTERRUPTED)
    if result.findings:
        raise typer.Exit(VIOLATION)
    raise typer.Exit(HARNESS if complaint or result.failure else CLEAN if summary["cases"] else NOTHING)


def _after(moment: float) -> bool:
    return time.monotonic() > moment


def _one_case(kernels: str, text: str, dot: str, as_json: bool, hang: float) -> NoReturn:
    if not text.lstrip().startswith("{"):
        try:
            text = json.dumps(json_of(text_of(Path(text)))["case"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            usage(f"--case {text}: neither a JSON object nor the file of a finding ({error})")
    try:
        json_of(text)
        case = Case.from_json(text)
    except json.JSONDecodeError as error:
        usage(f"--case: not JSON: {error}")
    except (MalformedCase, TooMuch) as error:
        usage(str(error))
    from properties.attention.kernels import AXES  # torch

    if unknown := [axis for axis in case.axes if axis not in AXES]:
        usage(f"--case: there are no axes {unknown!r:.80}; there are {', '.join(AXES)}")
    try:
        found = check_one(kernels, case, dot, hang)
    except NoKernels as error:
        usage(str(error))
    except Failed as error:
        complaints.print(f"[bold red]{escape(str(error))}[/]", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
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
        whole = not (summary.get("failure") or summary.get("interrupted"))
        clean = "[bold green]clean[/]: no property broken" if whole else "[yellow]no property broken so far[/]"
        console.print(clean if summary["cases"] else "[red]no case was checked[/]")
