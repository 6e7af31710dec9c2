"""`explore`: every sequence of operations over a small configuration."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from properties.operations import Configuration, Malformed
from properties.target import Capability

from ..explore.expand import Changed
from ..explore.search import Explored, Plan
from ..explore.search import explore as explore_space
from ..explore.space import KINDS, BadSpace, Space
from ..explore.store import CannotResume
from ..runs.files import put
from ..runs.guard import about, beat
from ..runs.status import CLEAN, HARNESS
from ..runs.trust import replay_command
from ..runs.values import Judging
from .common import (
    Interruptible,
    OutsideOption,
    Reuse,
    SafetyOption,
    TargetOption,
    complaints,
    console,
    factory_of,
    memory_of,
    show_operations,
    usage,
)
from .out import keep, take

__all__ = ["explore"]


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
        beat()
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


def explore(
    context: typer.Context,
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
    take(context, out)
    about(
        {
            "target": target,
            "outside": outside,
            "exact": not safety,
            "engine": "explore",
            "out": str(out),
            "json": as_json,
        }
    )
    factory = factory_of(target)
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
        usage(str(error))
    if Capability.CLONE not in factory(configuration).capabilities:
        usage(f"target {target!r} has no capability CLONE: its states can be neither copied nor compared; use `run`")
    plan = Plan(
        target,
        space,
        out,
        Judging(outside=outside, exact=not safety),
        drain=drain,
        max_states=max_states,
        max_depth=max_depth,
        memory=memory_of(memory),
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
        with _Depths(as_json) as progress, Interruptible() as clock:
            result = explore_space(plan, factory, clock, progress)
    except CannotResume as error:
        usage(str(error))
    except Changed as error:
        complaints.print(f"[bold red]the harness itself failed:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
    if result.counterexample is not None:
        result.path = keep(result.counterexample, out)
    summary = result.to_json()
    try:
        put(out / "summary.json", json.dumps(summary, indent=2) + "\n")
    except OSError as error:
        complaints.print(f"[bold red]no summary:[/] {escape(str(error))}", soft_wrap=True)
        result.status = result.status or HARNESS
    if as_json:
        print(json.dumps(summary, indent=2), file=console.file)
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
        show_operations(found)
        if found.at == len(found.operations):
            console.print("  [bold red]then, in the drain phase[/]")
        if result.path is not None:
            console.print(f"  {escape(replay_command(result.path, found))}", style="bold", soft_wrap=True)
    if result.complaint:
        console.print(f"[yellow]{escape(result.complaint)}[/]", soft_wrap=True)
    if result.status == CLEAN:
        said = "closed: every sequence of operations" if result.closed else "not closed: every sequence so far"
        console.print(f"[bold green]clean[/], {said} within these bounds holds every property", soft_wrap=True)
