"""What is known already: the findings that a team has accepted, and those that were mended, in one file to commit.

| in the file | found again | not found, and its operations run clean | what a campaign says |
|---|---|---|---|
| - | yes | - | new |
| known | yes, or its operations still fail | - | known |
| known | no | yes | fixed |
| fixed | yes, or its operations fail again | - | regressed |

Each entry carries its counterexample, so that a campaign can ask at its beginning what has become of it.

This room may not know: how findings are made, folders of findings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .counterexample import Counterexample, Unreadable, as_text, parsed
from .signature import Signature

__all__ = ["FIXED", "KNOWN", "NEW", "REGRESSED", "BadBaseline", "Baseline", "Entry"]

NEW, KNOWN, FIXED, REGRESSED = "new", "known", "fixed", "regressed"


class BadBaseline(ValueError):
    """The file is no baseline. Says which file and what is wrong."""


@dataclass(frozen=True)
class Entry:
    """One accepted finding. status: known or fixed."""

    signature: Signature
    counterexample: Counterexample
    status: str = KNOWN
    note: str = ""


@dataclass
class Baseline:
    """By the id of the signature."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def status(self, signature: Signature) -> str:
        """Of a finding that was made now."""
        entry = self.entries.get(signature.id)
        return NEW if entry is None else KNOWN if entry.status == KNOWN else REGRESSED

    def accept(self, signature: Signature, counterexample: Counterexample) -> None:
        """From now on it is known; a note that somebody wrote stays."""
        before = self.entries.get(signature.id)
        self.entries[signature.id] = Entry(signature, counterexample, KNOWN, before.note if before else "")

    def mend(self, ids: Iterable[str]) -> None:
        """These no longer fail: to be found again is a regression."""
        for id in ids:
            if id in self.entries:
                self.entries[id] = replace(self.entries[id], status=FIXED)

    def write(self, path: Path) -> Path:
        """Whole or not at all; the same entries give the same bytes."""
        entries = [
            {
                "signature": entry.signature.to_json(),
                "status": entry.status,
                "note": entry.note,
                "counterexample": json.loads(as_text(entry.counterexample)),
            }
            for _, entry in sorted(self.entries.items())
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps({"schema": 1, "findings": entries}, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, path)
        return path

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """The one in `path`; an empty one if there is no such file. Raises BadBaseline."""
        if not path.exists():
            return cls()
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["schema"] != 1:
                raise BadBaseline(f"{path}: schema is {data['schema']!r}; this version reads 1")
            return cls({entry.signature.id: entry for entry in map(_entry, data["findings"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, BadBaseline):
                raise
            raise BadBaseline(f"{path}: not a baseline, which `python -m fuzz accept` writes: {error}") from None


def _entry(data: Any) -> Entry:
    if data["status"] not in (KNOWN, FIXED):
        raise ValueError(f"status is {data['status']!r}; known or fixed is allowed")
    try:
        counterexample = parsed(json.dumps(data["counterexample"]), Path("its counterexample"))
    except Unreadable as error:
        raise ValueError(str(error)) from None
    return Entry(Signature.from_json(data["signature"]), counterexample, data["status"], str(data.get("note", "")))
