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

import sys
from io import TextIOWrapper

import typer

from properties.boundary import note_interrupts

from ..runs import guard
from ..runs.status import HARNESS, INTERRUPTED
from . import attention, audit, compare, explore, folder, gpu, replay, run, trace
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
app.command()(folder.accept)
app.command("promote")(folder.promoted)
app.command()(folder.tidy)
app.command()(folder.report)
app.command()(run.run)
app.command()(attention.attention)
app.command()(replay.replay)
app.command()(explore.explore)
app.command()(trace.trace)
app.command()(compare.compare)
app.command()(audit.audit)
app.command()(gpu.gpu)


def main() -> None:
    """Run the command line; turns whatever else goes wrong into an exit status with a sentence. Never returns: a thread
    that a target has left behind does not keep the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show all is no reason to fail
    guard.begin()
    if guard.child():
        note_interrupts()
    try:
        app(standalone_mode=True, prog_name="python -m fuzz")
    except SystemExit as end:
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
