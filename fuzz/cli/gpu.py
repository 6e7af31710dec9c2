"""`gpu`: the kernels on a CUDA device, checked and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..gpu import parts, report
from ..runs.status import CLEAN, HARNESS, INTERRUPTED, NOTHING, VIOLATION
from .common import complaints, console, usage

__all__ = ["gpu"]


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
    from ..gpu import supervise
    from ..gpu.results import BadResults, Results

    if plots is not None:
        try:
            _draw(Results.load(plots), plots.parent)
        except BadResults as error:
            usage(str(error))
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
    from ..gpu.plots import NoMatplotlib, draw

    try:
        for path in draw(results, folder):
            console.print(f"plot: {path}", soft_wrap=True)
    except NoMatplotlib:
        command = f"python -m fuzz gpu --plots {results.path}"
        console.print(f"plots: matplotlib is not installed; run `{escape(command)}` where it is", soft_wrap=True)
