"""`audit`: the bugs of the zoo, planted and hunted."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..audit import show as audit_show
from ..audit.audit import Plan, Trial
from ..audit.audit import audit as run_audit
from ..engines.registry import audited
from ..runs.status import CLEAN, HARNESS, INTERRUPTED, VIOLATION
from ..zoo import Bug, InvalidBug, allocator_bugs, find, kernel_bugs
from ..zoo.planting import DoesNotApply
from .common import OutsideOption, complaints, console, usage

__all__ = ["audit"]


_BOTH = "both"
"""Every engine that hunts bugs of the zoo."""


def audit(
    bug: Annotated[list[str] | None, typer.Option(help="Only this bug, in detail; may be repeated.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--class", help="Only this class of bugs; may be repeated.")] = None,
    kernels: Annotated[bool, typer.Option("--kernels", help="The kernel bugs instead of the allocator's.")] = False,
    engine: Annotated[str, typer.Option(help="The engine that hunts; both: all that can.")] = _BOTH,
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
        usage(str(error))
    if listed:
        audit_show.list_zoo(chosen, console)
        raise typer.Exit(CLEAN)
    engines = audited()
    if engine != _BOTH:
        if engine not in engines:
            usage(f"--engine: there is no {engine!r} that hunts bugs; give {_BOTH}, or one of {', '.join(engines)}")
        engines = (engine,)
    plan = Plan(
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
