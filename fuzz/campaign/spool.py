"""The spool: one line in a file of fixed size that says what a worker is doing.

Before each unit it is put over the one before. If the process dies, that is what it was doing; while it changes, the
process is alive. Beside it, in `hits`, are the violations that it has met.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Protocol

from ..runs.counterexample import Unreadable, read
from ..runs.values import Counterexample

__all__ = ["Says", "Spool", "output_of", "unsettled"]

_SIZE = 512
"""Bytes: written in full once, so that later lines need no new room on a full disk."""


class Says(Protocol):
    """Is told what a process is at, as often as it begins with something."""

    def say(self, task: int, unit: int, operations: int) -> None:
        """`task` is at `unit`, with so many operations done."""


class Spool:
    """The line in `path`; with None nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._file = -1
        self._beat = 0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            os.pwrite(self._file, b" " * _SIZE, 0)

    def say(self, task: int, unit: int, operations: int) -> None:
        """A microsecond or two."""
        self._beat += 1
        if self._file >= 0:
            line = f'{{"task": {task}, "unit": {unit}, "operations": {operations}, "beat": {self._beat}}}'
            os.pwrite(self._file, line.ljust(_SIZE - 1).encode() + b"\n", 0)

    @staticmethod
    def read(path: Path) -> dict[str, int]:
        """The line in `path`; {} if there is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}


def output_of(spool: Path) -> Path:
    """Where what a process prints goes, beside its line in `spool`."""
    return spool.with_suffix(".out")


def unsettled(path: Path) -> Counterexample | None:
    """A hit that a worker or an earlier campaign has left, or None if it cannot be read."""
    try:
        return read(path)
    except (Unreadable, ValueError, KeyError):
        return None
