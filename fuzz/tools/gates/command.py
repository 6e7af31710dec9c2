"""The command: compile, judge, compare with the committed table, write it anew."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from .configurations import ARCHITECTURES, CONFIGURATIONS
from .examining import examine_all
from .judging import GATES, drifts, failures, known
from .machine_code import missing_tools
from .reports import Report, from_json, label, to_json, versions
from .tables import markdown, show

__all__ = ["app"]

_DOCS = Path(__file__).resolve().parents[3] / "docs" / "generated"


CLEAN, FAILED, USAGE = 0, 1, 2

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
# A pipe has no width of its own, and 80 columns would break every row.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
complaints = Console(stderr=True, highlight=False)


def _refuse(message: str) -> typer.Exit:
    complaints.print(f"[red]error:[/] {escape(message)}")
    return typer.Exit(USAGE)


@app.command(
    help="Compile every kernel launch of kvcore for GPUs that need not be there, and judge the code.\n\n"
    "Examples:\n\n"
    "  python -m fuzz.tools.gates --hot   what matters most\n\n"
    "  python -m fuzz.tools.gates --check   all, against docs/generated/gates.json\n\n"
    "  python -m fuzz.tools.gates --write   after a change that is meant\n\n"
    "  python -m fuzz.tools.gates --compile-only   for another Triton\n\n"
    "Exit status: 0 all gates passed, 1 a gate failed or a number drifted, 2 usage, or nothing could be compiled."
)
def main(
    sm: Annotated[str, typer.Option(help="Compute capabilities, of 80, 90, 100.")] = "80,90,100",
    hot: Annotated[bool, typer.Option("--hot", help="Only the hot configurations.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with docs/generated/gates.json.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Rewrite gates.json and gates.md in docs/generated.")] = False,
    compile_only: Annotated[bool, typer.Option("--compile-only", help="Compile, and read no machine code.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the reports to this file.")] = None,
    docs: Annotated[
        Path, typer.Option(help="Where gates.json and gates.md are.", show_default="of this checkout")
    ] = _DOCS,
    processes: Annotated[int, typer.Option(min=1, help="Compile so many launches at once.")] = os.cpu_count() or 1,
) -> None:
    architectures = _architectures(sm)
    whole = not hot and architectures == list(ARCHITECTURES)
    if write and not whole:
        raise _refuse("--write writes the whole table: not with --hot or a part of --sm")
    if compile_only and (write or check):
        raise _refuse("--compile-only reads no numbers: not with --check or --write")
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        raise _refuse("TRITON_INTERPRET is set: Triton then interprets and compiles nothing. Unset it for this command")
    made_with, before = _table(docs) if check else ({}, [])
    if not _reads_code() and not compile_only:
        if check or write:
            raise _refuse("nothing to compare or to write then")
        compile_only = True
    current = versions()
    if check and made_with != current:
        raise _refuse(f"the table was made with {made_with}, this is {current}")

    chosen = [entry for entry in CONFIGURATIONS if entry.hot or not hot]
    reports = examine_all(chosen, architectures, compile_only=compile_only, processes=processes, console=complaints)
    if json_file is not None:
        json_file.write_text(to_json(current, reports))
    if compile_only:
        what = f"{len(reports)} launches, compiled with Triton {current['triton']}"
        broken = _uncompiled(reports, current["triton"])
    else:
        what = f"{len(reports)} launches, {len(GATES)} gates"
        broken = failures(reports)
        show(reports, console)
    if check:
        left_out = {entry.name for entry in CONFIGURATIONS} - {entry.name for entry in chosen}
        wanted = [entry for entry in before if entry.configuration not in left_out and entry.sm in architectures]
        broken += drifts(reports, wanted)
        what += f", compared with {docs / 'gates.json'}"
    if write:
        (docs / "gates.json").write_text(to_json(current, reports))
        (docs / "gates.md").write_text(markdown(current, reports))
        what += f", written to {docs}"
    for line in broken:
        complaints.print(f"[red]FAILED[/] {escape(line)}", soft_wrap=True)
    console.print(f"{what}: {f'{len(broken)} failures' if broken else 'all passed'}", soft_wrap=True)
    raise typer.Exit(FAILED if broken else CLEAN)


def _architectures(names: str) -> list[int]:
    with contextlib.suppress(ValueError):
        found = sorted({int(part) for part in names.split(",")})
        if set(found) <= set(ARCHITECTURES):
            return found
    raise _refuse(f"--sm takes numbers from {ARCHITECTURES}, got {names!r}")


def _table(docs: Path) -> tuple[dict[str, str], list[Report]]:
    try:
        return from_json((docs / "gates.json").read_text())
    except (OSError, ValueError, KeyError) as error:
        raise _refuse(f"cannot read {docs / 'gates.json'}: {error}") from None


def _reads_code() -> bool:
    """Whether Triton brings the tools to read what it compiled. Refuses to go on if it cannot even compile."""
    try:
        import triton
    except ImportError:
        raise _refuse("Triton is not installed; pip install 'kvcore[cuda]'") from None
    if missing := missing_tools(("ptxas",)):
        raise _refuse(f"{missing[0]} is not in this Triton ({triton.__file__}): nothing can be compiled")
    missing = missing_tools(("cuobjdump", "nvdisasm"))
    if missing:
        complaints.print(f"[yellow]not in this Triton: {', '.join(missing)}. Compiling, and reading no machine code[/]")
    return not missing


def _uncompiled(reports: Iterable[Report], triton: str) -> list[str]:
    broken = []
    for report in reports:
        if report.error is None:
            continue
        if reason := known(report, triton):
            complaints.print(f"[yellow]known[/] {escape(label(report.key))}: {reason}", soft_wrap=True)
        else:
            broken.append(f"{label(report.key)}: {report.error}")
    return broken
