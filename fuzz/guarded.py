"""Commands that run a target, each in a process of its own: which they are, and what is said if that process dies.

`run`, `compare`, `audit` and `attention` have worker processes of their own. The others (`replay`, `trace`, `explore`)
have one target and one list of operations. They run as they are, as the child of a guard (see `runs.guard`).

Also imports: fuzz.campaign, fuzz.findings, fuzz.runs, fuzz.show.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from .runs.foreign import printed
from .runs.guard import Ending, watched
from .runs.processes import ourselves
from .runs.status import INTERRUPTED, VIOLATION

__all__ = ["guarded"]

_GUARDED: dict[str, tuple[str, ...]] = {"replay": (), "trace": (), "explore": ("--workers", "1", "--resume")}
"""Commands that are guarded, and what is said to their second run besides."""

_RECORDED = ("replay",)
"""Those whose operations are written down at once: there are few, and twice would be a waste."""


def guarded(arguments: Sequence[str]) -> None:
    """Run the command in a child and end with its status, if it is one of those; else return."""
    if arguments[0] not in _GUARDED or not {"--help", "--bisect"}.isdisjoint(arguments):
        return  # a bisection replays in a process of its own anyway
    ending = watched(
        [*ourselves(), *arguments],
        record=arguments[0] in _RECORDED,
        say=_say,
        told=_GUARDED[arguments[0]],
    )
    if ending.status is not None:
        sys.exit(ending.status)
    if ending.stopped:
        _say("interrupted; the target did not return")
        sys.exit(INTERRUPTED)
    with suppress(BrokenPipeError):
        _found(ending)
        sys.stdout.flush()
    os._exit(VIOLATION)  # whatever is wrong with where it was printed


def _say(text: str) -> None:
    print(printed(text), file=sys.stderr, flush=True)


def _found(ending: Ending) -> None:
    """Say what the process died of, and keep it as a finding where the command has a folder for that."""
    from .campaign.settle import shortened
    from .findings.crash import crash_of
    from .findings.filed import filed
    from .runs.child import Ended, ask
    from .runs.counterexample import as_line, write
    from .runs.trust import replay_command
    from .show.timeline import describe

    about = ending.about
    found = crash_of(ending)
    if about.get("shrink_seconds"):
        seconds = float(about["shrink_seconds"])
        with suppress(Ended):
            found = ask(shortened, (found, seconds), seconds=seconds + 30.0) or found
    path = None
    try:
        if about.get("least"):
            path = write(found, Path(about["least"]))
        elif about.get("out"):
            now = datetime.now().astimezone().replace(microsecond=0)
            path = filed(found, Path(about["out"]), now, "0 of 1" if found.note else "1 of 1")
    except OSError as error:
        _say(f"no disk would take this counterexample ({error}); put the line in a file, which `replay` reads:")
        print(as_line(found))
    if about.get("json"):
        data = {
            "file": about.get("file", str(path) if path else ""),
            "target": found.target,
            "status": VIOLATION,
            "expected": about.get("expected"),
            "property": found.property_id,
            "message": found.message,
            "at": found.at,
            "skipped": 0,
            "steps": [],
        }
        print(json.dumps(data, indent=2))
        return
    for number, operation in list(enumerate(found.operations))[-_SHOWN:]:
        print(f"  {number + 1:>2}  {describe(operation)}")
    print(printed(f"{found.property_id}: {found.message}"))
    if found.note:
        print(printed(found.note))
    if path is not None:
        _say(f"  {replay_command(path, found)}")


_SHOWN = 20
"""Operations that are shown, the last ones."""
