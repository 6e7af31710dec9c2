"""What a process prints that runs a target: to a file that is kept short, for it may print without end.

The file is open for appending in that process, and somebody else looks at it now and then (`Output.look`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["Output", "print_to"]

_MOST = 8 << 20
"""Bytes after which the file is emptied."""

_LAST = 4096
"""Bytes of which the last words are made."""


class Output:
    """The file of one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = 0
        self._last = b""

    def look(self, most: int = _MOST) -> None:
        """Empty it if it is long, but for its last bytes. O(1)."""
        with suppress(OSError):
            if (size := self.path.stat().st_size) > most:
                self._last = self._end()
                os.truncate(self.path, 0)
                self._before += size

    def last_words(self) -> str:
        """The last that was printed. The file is empty afterwards."""
        try:
            last = self._end()
            size = self._before + self.path.stat().st_size
        except OSError:
            return ""
        text = last.decode("utf-8", "replace")
        if self._before:
            text = f"(it printed {size:,} bytes; the last are these)\n{text}"
        self.look(0)
        self._before, self._last = 0, b""
        return text

    def _end(self) -> bytes:
        """What was printed last, also where the file was emptied since. Raises OSError."""
        with self.path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
            return (self._last + file.read())[-_LAST:]


def print_to(path: Path | None) -> None:
    """From here on, what this process prints goes to the end of `path`; to nowhere if that is None or not possible."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        file = os.open(path or os.devnull, flags, 0o644)
    except OSError:
        file = os.open(os.devnull, flags)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
