"""The command line, `python -m fuzz`: the commands in the order of its help, and the way out when all else fails.

One file a command. `common.py` is what they share, `out.py` the folder that some write to, `display.py` the terminal of
a campaign, `again.py` says what repeats one, and `folder.py` holds what is done with a campaign's folder: `accept`,
`promote`, `tidy` and `report`.

Exit statuses, of every command: 0 clean, 1 violation (of a campaign: a new one), 2 usage (also unreadable files), 3 the
harness itself failed, 4 nothing was executed, 5 only known findings, 130 interrupted.

The commands read arguments, show progress, and pick the exit status.

Imports: fuzz, properties, reference, rich, typer.
"""

from __future__ import annotations

import io
import os
import platform
import sys
from importlib import metadata
from typing import Annotated

import typer

from properties.boundary import note_interrupts

from ..runs import guard
from ..runs.status import HARNESS, INTERRUPTED, USAGE
from . import attention, audit, compare, example, explore, folder, gpu, replay, run, trace
from .common import complaints

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Break a paged KV-cache core: campaigns, replay of counterexamples, exploration, request traces.\n\n"
    "Examples:\n\n"
    "  python -m fuzz run --budget 10m\n\n"
    "  python -m fuzz run --campaign nightly --out night\n\n"
    "  python -m fuzz replay fuzz-out/findings/OWNERSHIP-1a2b3c4d/counterexample.json\n\n"
    "  python -m fuzz explore --blocks 3 --block-size 1 --max-tokens 2\n\n"
    "  python -m fuzz trace --block-size 16 --num-blocks 512\n\n"
    "  python -m fuzz audit --bug NV-1\n\n"
    "  python -m fuzz gpu\n\n"
    "Exit status: 0 clean, 1 violation, 2 usage, 3 the harness failed, 4 nothing was executed, 5 only known findings, "
    "130 interrupted.",
)


def _version(asked: bool) -> None:
    if asked:
        installed = [f"Python {platform.python_version()}"]
        installed += [f"{package} {found}" for package in ("torch", "triton") if (found := _found(package))]
        print(f"kvcore-fuzz {_found('kvcore') or 'of a checkout that is not installed'} ({', '.join(installed)})")
        raise typer.Exit


def _found(package: str) -> str:
    """The version that is installed, or "". Without its import, which may take seconds."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say the versions of what runs, and end."),
    ] = False,
) -> None: ...


app.command()(folder.accept)
app.command("promote")(folder.promoted)
app.command()(folder.tidy)
app.command()(folder.report)
app.command()(example.example)
app.command()(run.run)
app.command()(attention.attention)
app.command()(attention.compiled)
app.command()(replay.replay)
app.command()(explore.explore)
app.command()(trace.trace)
app.command()(compare.compare)
app.command()(audit.audit)
app.command()(gpu.gpu)


def main(name: str | None = None) -> None:
    """Run the command line; turns whatever else goes wrong into an exit status with a sentence. Never returns: a thread
    that a target has left behind does not keep the process. name: what was typed, if not `python -m fuzz`."""
    if f"_{name}_COMPLETE".replace("-", "_").upper() in os.environ:  # a shell asks (docs/commands.md)
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    for stream in (sys.stdout, sys.stderr):  # an encoding that lacks a sign must not end a night
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    guard.begin()
    if guard.child():
        note_interrupts()
    try:
        os.getcwd()
    except OSError:
        complaints.print("[red]error:[/] the working folder does not exist any more; change to one that does")
        guard.signed_off(USAGE)
    try:
        app(standalone_mode=True, prog_name=name or "python -m fuzz")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            guard.signed_off(INTERRUPTED)  # whoever reads this has gone away
        if type(end.__context__).__module__.partition(".")[0] not in ("typer", "click"):
            raise  # a target's own: it has ended the process, and the guard says so
        guard.signed_off(end.code if isinstance(end.code, int) else HARNESS)
    except KeyboardInterrupt:
        complaints.print("interrupted")
        guard.signed_off(INTERRUPTED)
    except Exception:
        complaints.print_exception(show_locals=False)
        complaints.print(
            "[bold red]the harness itself failed[/]: this is a defect here, not in the target; please report it"
        )
        guard.signed_off(HARNESS)
