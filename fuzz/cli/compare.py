"""`compare`: the same campaign for each of several cores, and a table of what came of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from reference import PROPERTIES

from ..campaign.compare import compare as run_compare
from ..campaign.compare import keep, markdown, render
from ..campaign.probe import probe
from ..runs.status import CLEAN, NOTHING, VIOLATION
from ..show.markdown_section import replace_section
from .common import console, duration, usage
from .out import take

__all__ = ["compare"]


def compare(
    context: typer.Context,
    targets: Annotated[list[str], typer.Argument(help="Targets; the first is what speed is compared with.")],
    budget: Annotated[str, typer.Option(help="Time for each: 30s, 10m, 2h.")] = "1m",
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

    Exit status 1 if any property is violated, 4 if nothing was executed of one of them.

    Examples:

      python -m fuzz compare kvcore nano_vllm --budget 2m --speed

      python -m fuzz compare kvcore mycore.testing:make --into README.md
    """
    duration(budget)
    for name, probed in probe(targets).items():
        if probed.unknown:
            usage(f"{name}: {probed.error}")
    take(context, out)
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
            usage(str(error))
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
    console.print(f"page: {render(result, out)}   table: {out / 'compare.json'}", soft_wrap=True)
    whole = result.executed and not any(column.missing for column in result.columns)
    raise typer.Exit(VIOLATION if result.violated else CLEAN if whole else NOTHING)


def _link(copies: Mapping[str, Path], base: Path, file: str) -> str:
    return os.path.relpath(copies[file], base) if file in copies else ""


_VERDICTS = {
    "pass": "[green]pass[/]",
    "violated": "[bold red]violated[/]",
    "not supported": "[dim]–[/]",
    "not checked": "[dim]not checked[/]",
}
