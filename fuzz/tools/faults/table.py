"""Runs the faults and makes the table of what came of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...show.markdown_section import replace_section
from .fault import Cannot, Fault, Place, Wrong

__all__ = ["FAULTS", "KINDS", "Row", "attempt", "main"]

KINDS: tuple[str, ...] = (
    "targets",
    "disk",
    "blame",
    "kernels",
    "worst",
    "behind",
    "files",
    "recorder",
    "counted",
    "names",
    "pages",
)
"""The files of this folder that have faults, in the order of the table."""

FAULTS: tuple[Fault, ...] = tuple(
    value
    for kind in KINDS
    for value in vars(import_module(f".{kind}", __package__)).values()
    if isinstance(value, Fault) and value.kind == kind
)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one fault. status: of its command; None if it was not tried. wrong: why that is not right, ""."""

    name: str
    kind: str
    what: str
    status: int | None
    came: str
    wrong: str
    seconds: float


def attempt(fault: Fault, folder: Path) -> Row:
    """Try one in `folder`, which is empty."""
    began = monotonic()
    status: int | None = None
    came = wrong = ""
    try:
        result = fault.attempt(Place(folder))
        status, came = result.status, result.said
    except Wrong as error:
        wrong = str(error)
    except Cannot as error:
        came = f"not tried: {error}"
    except Exception as error:  # of the fault itself: the others are tried all the same
        wrong = f"{type(error).__name__}: {error}"
    return Row(fault.name, fault.kind, fault.what, status, came, wrong, monotonic() - began)


def _markdown(rows: Sequence[Row]) -> str:
    lines = ["| fault | what is done | status | what came of it |", "|---|---|---|---|"]
    for row in rows:
        came = f"**{row.wrong}**" if row.wrong else row.came
        cells = (row.name, row.what, "" if row.status is None else str(row.status), came)
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _run(
    names: Annotated[list[str] | None, typer.Argument(help="Only these, or the kinds of that name.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only those that take a second or two.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="How many at a time.")] = 2,
    write: Annotated[Path | None, typer.Option(help="Put the table between the marks in this Markdown file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Try each fault, and say what came of it. Status 1 if one went wrong.

    Examples:

      python -m fuzz.tools.faults --quick

      python -m fuzz.tools.faults disk --workers 1
    """
    console = Console(highlight=False, emoji=False)
    known = {fault.name for fault in FAULTS} | set(KINDS)
    for name in set(names or ()) - known:
        raise typer.BadParameter(f"{name!r} is no fault and no kind; there are {', '.join(sorted(known))}")
    chosen = [
        fault for fault in FAULTS if (not names or {fault.name, fault.kind} & set(names)) and (fault.quick or not quick)
    ]
    with TemporaryDirectory(prefix="faults-") as folder, ThreadPoolExecutor(workers) as pool:
        places = [Path(folder) / fault.name for fault in chosen]
        for place in places:
            place.mkdir()
        rows = []
        for row in pool.map(attempt, chosen, places):
            rows.append(row)
            if not as_json:
                mark = "[red]wrong[/]" if row.wrong else "[yellow]-[/]" if row.status is None else "[green]right[/]"
                console.print(
                    f"{mark} {row.name} ({row.seconds:.1f} s): {escape(row.wrong or row.came)}", soft_wrap=True
                )
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        table = Table(title="Faults", title_justify="left", box=None, pad_edge=False)
        for name in ("kind", "tried", "right", "wrong", "not tried"):
            table.add_column(name, justify="left" if name == "kind" else "right")
        for kind in KINDS:
            of = [row for row in rows if row.kind == kind]
            wrong, untried = sum(bool(row.wrong) for row in of), sum(row.came.startswith("not tried") for row in of)
            table.add_row(kind, str(len(of)), str(len(of) - wrong - untried), str(wrong), str(untried))
        console.print(table)
    if write is not None:
        replace_section(write, "faults", _markdown(rows))
    if any(row.wrong for row in rows):
        raise typer.Exit(1)


def main() -> None:
    typer.run(_run)
