"""Files that are written whole or not at all, and under names that nothing has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["free", "put", "set_aside", "tried"]


def put(path: Path, text: str) -> Path:
    """Write `text` in UTF-8 beside `path`, then move it there. The folder is made if it is missing.

    A reader of `path`, meanwhile or after this process was killed, sees the old text or the new. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            partial.unlink()  # an empty file would be all that there is of it
        raise
    return path


def tried(folder: Path) -> None:
    """Make `folder` if need be, and write to it and delete that again. Raises OSError: before anything is done, and not
    after a night."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / f".trial-{os.getpid()}"
    try:
        trial.write_bytes(b"\0" * _TRIAL)
    finally:
        with suppress(OSError):
            trial.unlink()


def free(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... that does not exist."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found


def set_aside(path: Path) -> Path:
    """Rename what cannot be read to path.damaged-1, or the first such name that nothing has; returns it. Raises
    OSError."""
    number = 1
    while (place := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(place)
    return place


_TRIAL = 1 << 16
"""Bytes: no finding of any use is smaller by much."""
