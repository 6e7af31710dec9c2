"""A campaign's folder: one command at a time writes to it, and what is found has room there when the disk is full.

    lock                which process writes here
    reserve             kept back; given up for findings when the disk is full
    spool/hits/7/       hits of the 7th campaign that are not settled yet
    spool/baseline/     what the baseline knows, for workers to replay

Findings, the history and the journal are others' files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ..engines.engine import SCRATCH
from ..runs.counterexample import as_line, write
from ..runs.values import Counterexample
from .history import BadHistory

__all__ = ["Busy", "Folder", "forget", "taken"]

_RESERVE = 1 << 20
"""Bytes kept back on the disk, and given up for findings when it is full."""

_LEAST_DISK = 4 << 20

Saved = TypeVar("Saved")


class Busy(Exception):
    """Another command writes to this folder."""


@contextmanager
def taken(out: Path) -> Iterator[None]:
    """The folder is made if need be, and while this lasts, no other command writes to it. Raises Busy, OSError."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise Busy(
                f"another command (process {lock.read().strip()}) writes to {out}; wait for it, or give another --out"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


class Folder:
    """The one that `taken` has for us. hits: of this campaign, once it has begun.

    stop: told why the campaign must end, once the disk is full. lost: given each counterexample that could not be
    written, as text."""

    def __init__(self, out: Path, stop: Callable[[str], None], lost: Callable[[str], None]) -> None:
        self.out = out
        self.spool = out / "spool"
        self.hits = self._all_hits = self.spool / "hits"
        self._stop, self._lost = stop, lost

    def prepare(self) -> None:
        """Raises OSError, also if there is too little room to begin."""
        free = shutil.disk_usage(self.out).free
        if free < _LEAST_DISK:
            raise OSError(f"only {free:,} bytes are free, and findings need room: {_LEAST_DISK:,} at least")
        self.spool.mkdir(parents=True, exist_ok=True)
        (self.out / "reserve").write_bytes(b"\0" * _RESERVE)

    def begin(self, campaign: int) -> list[Path]:
        """Make a place for this campaign's hits. Returns those that earlier ones have left unsettled. Raises
        OSError."""
        self._clear()
        adopted = sorted(self._all_hits.glob("*/*.json"))
        self.hits = self._all_hits / str(campaign)
        self.hits.mkdir(parents=True, exist_ok=True)
        return adopted

    def end(self) -> None:
        """Of the spool, what nobody needs any more goes."""
        self._clear()
        if self.hits.exists() and not any(self.hits.iterdir()):
            self.hits.rmdir()

    def _clear(self) -> None:
        """What killed workers have left of their own."""
        for left in self._all_hits.glob(f"*/{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)

    def give_up_reserve(self) -> None:
        (self.out / "reserve").unlink(missing_ok=True)

    def full(self, error: object) -> None:
        """A write failed. Give up what was kept back, and end the campaign: it could not keep what it finds."""
        self.give_up_reserve()
        self._stop(f"cannot write to {self.out}: {error}; make room there, then start again")

    def saved(self, save: Callable[[], Saved], found: Counterexample | None = None) -> Saved | None:
        """What `save` returns. If the disk is full: once more with what was kept back; what still cannot be written is
        said on the terminal at the end."""
        for last in (False, True):
            try:
                return save()
            except (OSError, BadHistory) as error:
                self.full(error)
                if last and found is not None:
                    self._lost(as_line(found))
        return None

    def save_hit(self, found: Counterexample, path: Path) -> str:
        """Where it is; "" if it could not be written."""
        saved = self.saved(lambda: write(found, path), found)
        return str(saved) if saved is not None else ""


def forget(path: str | Path) -> None:
    """A file that may be gone already; "" is none."""
    if path:
        Path(path).unlink(missing_ok=True)
