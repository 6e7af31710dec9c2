"""`replay`: a counterexample or a recording, step by step, and shrunk or bisected where that is asked for."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from properties.operations import Operation
from properties.target import TargetFactory
from reference import believed

from ..findings.shrink import shrink
from ..runs.believe import had, in_words
from ..runs.bisect import bisected
from ..runs.counterexample import Unreadable, read, write
from ..runs.guard import about, beat
from ..runs.perform import Run, perform
from ..runs.status import CLEAN, NOTHING, VIOLATION
from ..runs.trust import distrusted, replay_command
from ..runs.values import Counterexample, versions
from ..show.timeline import Timeline
from .common import console, duration, factory_of, kernels_of, show_counterexample, usage

__all__ = ["replay"]


def replay(
    file: Annotated[Path, typer.Argument(help="A counterexample or scenario file.")],
    target: Annotated[
        str,
        typer.Option(help="Replay on this target. To be given, too, if the file's own does not come with this tool."),
    ] = "",
    kernels: Annotated[
        str, typer.Option(help="Run its steps on these kernels instead of those that the file names.")
    ] = "",
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

      python -m fuzz replay fuzz-out/findings/OWNERSHIP-1a2b3c4d/counterexample.json

      python -m fuzz replay incident.jsonl --quiet --shrink least.json

      git bisect run .venv/bin/python -m fuzz replay --bisect OWNERSHIP-1.json
    """
    if bisect:
        status, said = bisected(file, target, duration(timeout), kernels)
        console.print(escape(said), soft_wrap=True)
        raise typer.Exit(status)
    try:
        stored = read(file)
    except Unreadable as error:
        usage(str(error))
    name, judging = target or stored.target, stored.judging
    if target and judging.keys:
        judging = replace(judging, keys=target)
    if kernels:
        judging = replace(judging, kernels=kernels_of(kernels))
    stored = replace(stored, judging=judging)
    if why := distrusted(replace(stored, target=name), [target], [kernels]):
        usage(f"{file} {why}")
    about(
        {
            "target": name,
            "outside": stored.judging.outside,
            "exact": stored.judging.exact,
            "kernels": stored.judging.kernels,
            "engine": stored.engine,
            "seed": stored.seed,
            "file": file.name,
            "expected": stored.property_id,
            "json": as_json,
            "least": str(least) if least is not None else "",
            "shrink_seconds": duration(budget) if least is not None else 0,
        }
    )
    if stored.judging.kernels:
        kernels_of(stored.judging.kernels)  # before the target, which may import Triton as well
    factory = factory_of(name)
    timeline = Timeline(f"{file.name} on {name}: {stored.configuration}", drain_from=len(stored.operations))

    def watch(run: Run, operation: Operation) -> None:
        beat()
        if not silent:
            timeline.add(run.session, operation, run.outcomes[-1] if run.outcomes else None)

    silent = quiet and not as_json
    result = perform(factory, stored.configuration, stored.operations, stored.judging, strict=True, watch=watch)
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
                    **({"gap": stored.gap} if stored.gap else {}),
                    "steps": timeline.steps,
                },
                indent=2,
            ),
            file=console.file,
        )
        raise typer.Exit(status)
    if not quiet:
        timeline.finish(console, result.violation, result.at)
    now = believed(result.session.target.policy)
    if stored.policy not in ({}, now):
        console.print(
            f"[yellow]the policy of {escape(name)} has changed[/]: this was found under "
            f"{escape(in_words(stored.policy))}, and is judged by {escape(in_words(now))}",
            soft_wrap=True,
        )
    own = had(stored.configuration, result.session.target.policy)
    if own != stored.configuration:
        console.print(f"[yellow]{escape(name)} has[/] {own}, whatever was asked for", soft_wrap=True)
    if now and stored.policy in ({}, now) and not quiet:
        console.print(f"[dim]judged by {escape(in_words(now))}[/]", soft_wrap=True)
    if stored.note and not quiet:
        console.print(escape(stored.note), soft_wrap=True)
    if stored.gap:
        console.print(f"[yellow]the recording ends early[/]: {escape(stored.gap)}", soft_wrap=True)
    if skipped:
        console.print(f"[yellow]{skipped} operations skipped[/]: they no longer apply, or the target cannot do them")
    if result.violation is None:
        expected = f" ({stored.property_id} no longer fails)" if stored.property_id else ""
        console.print(f"[bold green]clean[/]{expected}")
    else:
        found = result.violation
        console.print(f"[bold red]{found.id}[/]: {escape(found.message)}", soft_wrap=True)
        console.print(f"[dim]{escape((type(found).__doc__ or '').strip())}[/]", soft_wrap=True)
        if found.traceback and not quiet:
            console.print(escape(found.traceback), soft_wrap=True)
        if stored.property_id not in (None, found.id):
            console.print(f"[yellow]the file was written for {stored.property_id}[/]")
        if least is not None:
            _shrink_to(least, stored, factory, name, duration(budget))
    raise typer.Exit(status)


def _shrink_to(path: Path, stored: Counterexample, factory: TargetFactory, name: str, seconds: float) -> None:
    """Write the fewest operations of `stored` that still fail to `path`, and say them."""
    with console.status("shrinking") as status:

        def progress(left: int, tried: int) -> None:
            beat()
            status.update(f"shrinking: {left} operations left, {tried} replays")

        shrunk = shrink(
            replace(stored, target=name, versions=versions()),
            factory,
            clock=time.monotonic,
            seconds=seconds,
            progress=progress,
        )
    write(shrunk.counterexample, path)
    show_counterexample(shrunk.counterexample)
    if not shrunk.finished:
        console.print(f"[yellow]--budget ended the shrinking after {seconds:.0f} s; it may get shorter[/]")
    console.print(f"  {escape(replay_command(path, shrunk.counterexample))}", soft_wrap=True)
