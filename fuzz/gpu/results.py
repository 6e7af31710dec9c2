"""What a run has found so far, as the JSON file that is rewritten after every part.

The file of a killed run is complete, except for the part that was running.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ..runs.files import put
from .parts import GOALS, PARTS

__all__ = ["SCHEMA", "BadResults", "Results"]

SCHEMA = 1
"""Version of the file. A change that an older reader would misread raises it."""

_OFTEN = 1.0
"""Seconds between two flushes."""


class BadResults(ValueError):
    """A file that is not results of this schema. Says what was found."""


class Results:
    """The results of one run, and their file.

    data, as in the file:

    - schema, run (an identifier), started (seconds since the epoch), seconds, minutes;
    - device: facts, by name; measured: copy and matmul rates, bytes/s and FLOP/s;
    - parts: [{name, title, status, seconds, notes}], status one of pending, running, done, cut (its time was up),
      skipped (never begun), failed;
    - checks: [{part, name, holds (null: not decided), said, ...}];
    - rows: [{part, name, who, seconds, ...}], one for each thing timed;
    - tables: {name: [rows]}, such as the row-heads compared and differing by axis;
    - goals: [{name, what, target, unit, at_least, measured (null: not measured), met (null)}].
    """

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._flushed = 0.0

    @classmethod
    def fresh(cls, path: Path, run: str, minutes: float, parts: tuple[str, ...]) -> Results:
        """Empty results, with `parts` pending and no others. Nothing is written yet."""
        return cls(
            path,
            {
                "schema": SCHEMA,
                "run": run,
                "started": time.time(),
                "seconds": 0.0,
                "minutes": minutes,
                "device": {},
                "measured": {},
                "parts": [
                    {"name": part.name, "title": part.title, "status": "pending", "seconds": 0.0, "notes": []}
                    for part in PARTS
                    if part.name in parts
                ],
                "checks": [],
                "rows": [],
                "tables": {},
                "goals": [{**goal._asdict(), "measured": None, "met": None} for goal in GOALS],
            },
        )

    @classmethod
    def load(cls, path: Path) -> Results:
        """What `flush` wrote. Raises BadResults."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadResults(f"{path}: {error}") from None
        found = data.get("schema") if isinstance(data, dict) else None
        if found != SCHEMA:
            raise BadResults(f"{path} has schema {found!r}; this version reads {SCHEMA}")
        missing = {"run", "device", "measured", "parts", "checks", "rows", "tables", "goals"} - data.keys()
        if missing:
            raise BadResults(f"{path} lacks {', '.join(sorted(missing))}")
        return cls(path, data)

    def flush(self) -> None:
        """Rewrite the file. A reader finds the old one or the new one, whole."""
        self.data["seconds"] = time.time() - self.data["started"]
        put(self.path, json.dumps(self.data, indent=1))
        self._flushed = time.monotonic()

    def _keep(self) -> None:
        """Flush, unless the last flush was a moment ago. A part that is killed loses no more than that."""
        if self.path.exists() and time.monotonic() - self._flushed > _OFTEN:
            self.flush()

    def part(self, name: str) -> dict[str, Any]:
        """The entry of a part. Raises KeyError if the run does not have it."""
        for part in self.data["parts"]:
            if part["name"] == name:
                found: dict[str, Any] = part
                return found
        raise KeyError(name)

    def check(self, part: str, name: str, holds: bool | None, said: str, **details: object) -> None:
        """Note a check: what must hold, whether it did, and a sentence of what was seen."""
        self.data["checks"].append({"part": part, "name": name, "holds": holds, "said": said, **details})
        self._keep()

    def row(self, part: str, name: str, who: str, **fields: object) -> dict[str, Any]:
        """Note something timed. Returns the entry."""
        entry: dict[str, Any] = {"part": part, "name": name, "who": who, **fields}
        self.data["rows"].append(entry)
        self._keep()
        return entry

    def goal(self, name: str, measured: float) -> None:
        """Set what was measured for a goal. Raises KeyError if there is no such goal."""
        for goal in self.data["goals"]:
            if goal["name"] == name:
                goal["measured"] = measured
                if goal["device"] in str(self.data["device"].get("name", "")):
                    goal["met"] = measured >= goal["target"] if goal["at_least"] else measured <= goal["target"]
                return
        raise KeyError(name)

    def note(self, part: str, text: str) -> None:
        """Add a note to a part, once."""
        notes = self.part(part)["notes"]
        if text not in notes:
            notes.append(text)

    @property
    def broken(self) -> list[dict[str, Any]]:
        """The checks that failed."""
        return [check for check in self.data["checks"] if check["holds"] is False]

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The parts that an error ended."""
        return [part for part in self.data["parts"] if part["status"] in ("failed", "running")]
