"""The folder `--out` of a command that is no campaign: tried and taken before anything runs; findings go there."""

from __future__ import annotations

from pathlib import Path

import typer

from ..campaign.folder import Busy, taken
from ..findings.filed import filed
from ..runs.counterexample import as_line
from ..runs.files import tried
from ..runs.values import Counterexample
from .common import lost, now, usage

__all__ = ["keep", "take"]


def take(context: typer.Context, out: Path) -> Path:
    """The folder `out`, made and tried, and this command's alone until it ends. Exits with 2."""
    try:
        tried(out)
        context.with_resource(taken(out))
    except Busy as error:
        usage(str(error))
    except OSError as error:
        usage(f"--out {out} cannot be written to: {error}; give another folder, or make room")
    return out


def keep(found: Counterexample, out: Path) -> Path | None:
    """Where it is under `out`. If no disk takes it, it is printed, and there is no such place."""
    try:
        return filed(found, out, now())
    except OSError as error:
        lost(as_line(found), error)
    return None
