"""`trace`: a production's requests, run through a target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from properties.operations import Configuration
from properties.target import Target

from ..engines.tally import Tally
from ..engines.trace import trace as run_checked
from ..record import Recorder
from ..runs.guard import about, beat
from ..runs.status import CLEAN, HARNESS, NOTHING, VIOLATION
from ..runs.trust import replay_command
from ..runs.values import Judging
from ..traces.run_trace import cannot_trace, run_trace
from .common import (
    OutsideOption,
    Reuse,
    TargetOption,
    complaints,
    console,
    factory_of,
    requests_of,
    trace_line,
    usage,
)
from .out import keep, take

__all__ = ["trace"]


def trace(
    context: typer.Context,
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
        usage("--record goes with --no-checks, and --private with --record")
    take(context, out)
    about(
        {
            "target": target,
            "outside": outside,
            "engine": "trace",
            "out": str(out),
            "json": as_json,
            "shrink_seconds": 10.0,
        }
    )
    factory = factory_of(target)
    requests = requests_of(file)
    configuration = Configuration(num_blocks=num_blocks, block_size=block_size, reuse=reuse.value)
    if reason := cannot_trace(factory(configuration).policy):
        usage(f"{target} cannot run a request trace: {reason}")
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
    recorder: Recorder | None = None
    total = len(requests) if limit is None else min(limit, len(requests))
    with bar:
        task = bar.add_task("", total=total, operations=0)

        def progress(done: int, _total: int, operations: int) -> None:
            beat()
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
                recorder = context.with_resource(Recorder(core, configuration, record, name=target, private=private))
                if recorder.why:
                    usage(f"--record {record} cannot be written to: {recorder.why}; give another file, or make room")
                core = recorder
            report = run_trace(requests, core, checks=False, progress=progress, **options)
    assert report is not None
    figures = report.to_json()
    if as_json:
        print(
            json.dumps({"checks": checks, "configuration": configuration.to_json(), **figures}, indent=2),
            file=console.file,
        )
    else:
        console.print(f"{trace_line(figures)}{'' if checks else ', no checks'}", soft_wrap=True)
    if recorder is not None:
        recorder.close()
        if recorder.dropped:
            complaints.print(
                f"[bold red]{recorder.dropped:,} operations were not recorded[/]: {escape(recorder.why)}",
                soft_wrap=True,
            )
        if not as_json:
            console.print(f"  python -m fuzz replay {recorder.path}", soft_wrap=True)
    if found is None:
        if not as_json:
            said = f"every property held after each of {report.operations:,} operations" if checks else "not checked"
            console.print(f"[bold green]clean[/]: {said}" if checks else f"[yellow]{said}[/]")
        if recorder is not None and recorder.dropped:
            raise typer.Exit(HARNESS)
        raise typer.Exit(CLEAN if report.operations else NOTHING)
    complaints.print(f"[bold red]{found.property_id}[/]: {escape(found.message)}", soft_wrap=True)
    if (path := keep(found, out)) is not None:
        complaints.print(f"  {escape(replay_command(path, found))}", soft_wrap=True)
    raise typer.Exit(VIOLATION)
