"""What is known already: the findings that a team has accepted, and those that were fixed, in one file to commit.

| in the file | found again | not found, and its operations run clean | what a campaign says |
|---|---|---|---|
| - | yes | - | new |
| known | yes, or its operations still fail | - | known |
| known | no | yes | fixed |
| fixed | yes, or its operations fail again | - | regressed |

Each entry has its counterexample, so that a campaign can replay it at its beginning, and all signatures by which it was
met. A symptom that is in no entry, but akin to a known one, is known as well, as long as the known one still fails. If
it is akin to a fixed one, it is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..runs.bounds import json_of, text_of
from ..runs.counterexample import Unreadable, as_text, parsed
from ..runs.files import put
from ..runs.values import Counterexample
from .signature import Signature, Symptom, akin, reworded, symptom_of
from .statuses import FIXED, KNOWN, NEW, REGRESSED

__all__ = ["BadBaseline", "Baseline", "DamagedBaseline", "Entry"]


class BadBaseline(ValueError):
    """The file is no baseline, or a newer version's. Says which file and what is wrong."""


class DamagedBaseline(BadBaseline):
    """It is no baseline of any version: cut off, overwritten, edited wrongly."""


@dataclass(frozen=True)
class Entry:
    """One accepted finding. status: known or fixed. symptoms: all ways in which it was met, the signature's first."""

    signature: Signature
    counterexample: Counterexample
    status: str = KNOWN
    note: str = ""
    symptoms: tuple[Symptom, ...] = ()

    def has(self, signature: Signature) -> bool:
        return any(one.signature == signature for one in self.symptoms)


@dataclass
class Baseline:
    """By the id of the signature."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def match(self, symptom: Symptom, fixed: Iterable[str] = ()) -> Entry | None:
        """The entry that a finding made now belongs to: of its signature, that was met in this way, or, if it is known
        and not among the `fixed`, akin. O(entries)."""
        entry = self.entries.get(symptom.signature.id)
        if entry is not None:
            return entry
        every = [self.entries[id] for id in sorted(self.entries)]
        for entry in every:
            if entry.has(symptom.signature):
                return entry
        alive = (entry for entry in every if entry.status == KNOWN and entry.signature.id not in set(fixed))
        return next((entry for entry in alive if any(akin(one, symptom) for one in entry.symptoms)), None)

    def status(self, symptom: Symptom, fixed: Iterable[str] = ()) -> tuple[str, str]:
        """(status of a finding that was made now, id of the entry that says so or "")."""
        entry = self.match(symptom, fixed)
        if entry is None:
            return NEW, ""
        return KNOWN if entry.status == KNOWN else REGRESSED, entry.signature.id

    def accept(self, symptoms: Sequence[Symptom], counterexample: Counterexample, known_as: str = "") -> None:
        """From now on it is known, in all these ways. A note that somebody wrote stays. known_as: the entry that it is
        another way to meet."""
        signature = symptoms[0].signature
        before = self.entries.get(known_as) or self.entries.get(signature.id)
        if before is None:
            self.entries[signature.id] = Entry(signature, counterexample, KNOWN, "", tuple(symptoms))
            return
        ways = [*before.symptoms, *(one for one in symptoms if not before.has(one.signature))]
        stored = counterexample if before.signature == signature else before.counterexample
        self.entries[before.signature.id] = Entry(before.signature, stored, KNOWN, before.note, tuple(ways))

    def note_wording(self, id: str, now: Signature) -> None:
        """The counterexample of an entry was replayed, and has this signature now. If it is the same in other words,
        the entry is met by these, too."""
        entry = self.entries[id]
        if not entry.has(now) and reworded(entry.signature, now):
            told = symptom_of(entry.counterexample, now)
            self.entries[id] = replace(entry, symptoms=(*entry.symptoms, told))

    def note_fixed(self, ids: Iterable[str]) -> None:
        """These no longer fail. To find one again is a regression."""
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
                "symptoms": [symptom.to_json() for symptom in entry.symptoms],
                "counterexample": json.loads(as_text(entry.counterexample)),
            }
            for _, entry in sorted(self.entries.items())
        ]
        return put(path, json.dumps({"schema": 1, "findings": entries}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """The one in `path`; an empty one if there is no such file. Raises BadBaseline, DamagedBaseline."""
        if not path.exists():
            return cls()
        try:
            data = json_of(text_of(path))
            schema = data["schema"]
            if type(schema) is int and schema > 1:
                raise BadBaseline(f"{path}: schema is {schema}; this version reads 1")
            if schema != 1:
                raise ValueError(f"schema is {schema!r:.80}; this version reads 1")
            return cls({entry.signature.id: entry for entry in map(_entry, data["findings"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, BadBaseline):
                raise
            kind = BadBaseline if isinstance(error, OSError) else DamagedBaseline
            raise kind(f"{path}: not a baseline, which `python -m fuzz accept` writes: {error}") from None


def _entry(data: Any) -> Entry:
    if data["status"] not in (KNOWN, FIXED):
        raise ValueError(f"status is {data['status']!r}; known or fixed is allowed")
    try:
        counterexample = parsed(json.dumps(data["counterexample"]), Path("its counterexample"))
    except Unreadable as error:
        raise ValueError(str(error)) from None
    signature = Signature.from_json(data["signature"])
    symptoms = tuple(Symptom.from_json(one) for one in data.get("symptoms", ()))
    if not symptoms:  # of an older version
        symptoms = (symptom_of(counterexample, signature),)
    return Entry(signature, counterexample, data["status"], str(data.get("note", "")), symptoms)
