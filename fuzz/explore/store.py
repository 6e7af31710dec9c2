"""An exploration on disk: one file a level, each whole or not there, so that a killed run goes on at the last one.

`explore.json` says what is explored. `levels/0007.level` is a line of JSON (how many states, the operations that occur
for the first time, the totals up to here), then the states of that level: their digests, the numbers of the states that
they were found from, and the numbers of the operations that led there.
"""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from properties.operations import Operation, decode, encode

from .normal import DIGEST

__all__ = ["CannotResume", "Level", "Store"]


class CannotResume(ValueError):
    """What lies in the folder does not fit. Says what is there and what to do."""


@dataclass
class Level:
    """States at one distance from the first: `digests` one after the other, `parents` and `operations` by number.

    new: the operations whose numbers occur here for the first time. totals: counts up to and with this level.
    """

    digests: bytearray = field(default_factory=bytearray)
    parents: array[int] = field(default_factory=lambda: array("I"))
    operations: array[int] = field(default_factory=lambda: array("I"))
    new: list[Operation] = field(default_factory=list)
    totals: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.parents)


class Store:
    """A folder. `begin` before anything else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._levels = folder / "levels"
        self._plan = folder / "explore.json"

    def begin(self, plan: dict[str, Any], resume: bool) -> list[Level]:
        """The levels that are done; none if this is a new exploration. Raises CannotResume."""
        text = json.dumps(plan, indent=2, sort_keys=True) + "\n"
        if not self._plan.exists():
            if resume:
                raise CannotResume(f"{self._folder}: there is no exploration to resume; leave --resume out")
            self._levels.mkdir(parents=True, exist_ok=True)
            _write(self._plan, text.encode())
            return []
        if not resume:
            raise CannotResume(f"{self._folder}: holds an exploration; give --resume to go on, or another --out")
        there = self._plan.read_text(encoding="utf-8")
        if there != text:
            old, new = json.loads(there), json.loads(text)
            differ = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
            said = "; ".join(f"{name} was {old.get(name)}, now {new.get(name)}" for name in differ)
            raise CannotResume(f"{self._folder}: holds another exploration: {said}; give what it was, or another --out")
        levels: list[Level] = []
        while (path := self._levels / f"{len(levels):04}.level").exists():
            levels.append(_read(path))
        return levels

    def add(self, number: int, level: Level) -> None:
        """Keep a finished level. O(its states)."""
        head = json.dumps(
            {
                "states": len(level),
                "totals": level.totals,
                "operations": [encode(operation) for operation in level.new],
            }
        )
        parts = (head.encode(), b"\n", level.digests, level.parents.tobytes(), level.operations.tobytes())
        _write(self._levels / f"{number:04}.level", b"".join(parts))


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _read(path: Path) -> Level:
    head, _, data = path.read_bytes().partition(b"\n")
    try:
        said = json.loads(head)
        count = said["states"]
        wide = array("I").itemsize
        if len(data) != count * (DIGEST + 2 * wide):
            raise ValueError(f"{len(data)} bytes for {count} states")
        level = Level(bytearray(data[: count * DIGEST]), totals=said["totals"])
        level.parents.frombytes(data[count * DIGEST : count * (DIGEST + wide)])
        level.operations.frombytes(data[count * (DIGEST + wide) :])
        level.new = [decode(operation) for operation in said["operations"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CannotResume(f"{path}: is not a level of an exploration ({error}); delete it, and resume") from None
    return level
