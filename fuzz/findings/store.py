"""A folder of findings, one directory each. It survives the process that writes it.

    findings/OWNERSHIP-1a2b3c4d/
        counterexample.json   shrunk; `python -m fuzz replay` reads it
        finding.json          signature, status, hits, replays, seeds, when first and last seen
        harm.json             something worse that it leads to, if that was met; it is judged from outside
    found.json            as it was found; found-2.json, ... : other runs that shrank to the same
        variants/REFERENCES-5e6f7a8b.json   the same bug as it was met in another way: another signature, akin to it
        test_ownership_1a2b3c4d.py   a pytest test that fails while the bug is there
        state.txt             each operation up to the violation, with the blocks
        README.md             all of this for a person

The counterexample is written first. A directory with only that is a finding, too.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from reference import PROPERTIES

from ..runs.bounds import json_of, text_of
from ..runs.counterexample import Unreadable, read, write
from ..runs.files import put
from ..runs.foreign import code, in_markdown
from ..runs.replayed import CLEAN, NOT_RUN, OTHER, SAME, Replayed
from ..runs.trust import distrusted, replay_command
from ..runs.values import Counterexample
from ..show.timeline import describe
from .as_test import pytest_text, slug
from .keep import Keep
from .signature import Signature, Symptom, akin, reworded, signature_of, symptom_of
from .statuses import FIXED, KNOWN, NEW

__all__ = ["NOT_REPLAYED", "Finding", "Findings", "NotAFinding", "promote"]

_SEEDS = 10
"""Seeds that are remembered for each finding, the first ones."""


NOT_REPLAYED = "not replayed"
"""In the place of "3 of 3", where there was no time."""


class NotAFinding(ValueError):
    """Neither a finding's directory nor a counterexample. Says what was looked for."""


@dataclass
class Finding:
    """One bug, however often and in however many ways it was hit.

    signature: of the way that was met first, which names it; symptoms: of all, that one first. hits: in this campaign.
    total: in all that wrote to this folder. replays: "3 of 3", "1 of 3" (flaky), or "not replayed". known_as: the id
    under which the baseline knows it, if that is another. stale: its own operations run clean by now. interpreted: of
    what was found on a device, what its operations do on the CPU; None if that was not tried. harm: something worse
    that it leads to. damaged: its finding.json cannot be read, so that nobody knows whether it was accepted. looked:
    signatures that hits had which turned out to be this, once they were shrunk; of this campaign alone.
    """

    signature: Signature
    counterexample: Counterexample
    directory: Path
    status: str = NEW
    hits: int = 0
    total: int = 0
    replays: str = NOT_REPLAYED
    length_found: int = 0
    found_after: int = 0
    first_seen: str = ""
    last_seen: str = ""
    seeds: list[str] = field(default_factory=list)
    symptoms: list[Symptom] = field(default_factory=list)
    examples: int = 0
    state: str = ""
    known_as: str = ""
    stale: bool = False
    damaged: bool = False
    interpreted: Replayed | None = None
    harm: Counterexample | None = None
    looked: list[Signature] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.directory / "counterexample.json"

    @property
    def harm_path(self) -> Path:
        return self.directory / "harm.json"

    @property
    def leads_to(self) -> dict[str, Any] | None:
        """For files: what worse it leads to."""
        harm = self.harm
        if harm is None:
            return None
        return {
            "property": harm.property_id,
            "message": harm.message,
            "operations": len(harm.operations),
            "file": f"{self.directory.name}/{self.harm_path.name}",
            "replay": replay_command(self.harm_path, harm),
        }

    @property
    def interpreter(self) -> dict[str, str] | None:
        """For what was found on a device: whether it is to be seen without one. None for everything else."""
        if not self.counterexample.device:
            return None
        told = self.interpreted or Replayed(NOT_RUN, "there was no time")
        words = {
            SAME: "reproduces in the interpreter, on the CPU",
            CLEAN: "passes in the interpreter, on the CPU: the device is needed to see it",
            OTHER: f"breaks another property in the interpreter: {told.said}",
            NOT_RUN: f"not replayed in the interpreter: {told.said}",
        }
        return {"outcome": told.outcome, "said": told.said, "told": words[told.outcome]}

    @property
    def variants(self) -> list[Symptom]:
        """The other ways in which it was met."""
        return [symptom for symptom in self.symptoms if symptom.signature != self.signature]

    def variant_path(self, signature: Signature) -> Path:
        """Where the counterexample of a variant is."""
        return self.directory / "variants" / f"{signature.name}.json"

    def to_json(self) -> dict[str, Any]:
        """As in finding.json and in a campaign's summary."""
        found = self.counterexample
        return {
            "signature": self.signature.to_json(),
            "status": self.status,
            "hits": self.hits,
            "hits_in_all": self.total,
            "replays": self.replays,
            "directory": str(self.directory),
            "file": f"{self.directory.name}/{self.path.name}",
            "property": found.property_id,
            "message": found.message,
            "operations": len(found.operations),
            "operations_when_found": self.length_found,
            "found_after_operations": self.found_after,
            "engine": found.engine,
            "seed": found.seed,
            "seeds": self.seeds,
            "symptoms": [symptom.to_json() for symptom in self.symptoms],
            "variants": [
                {
                    "signature": variant.signature.to_json(),
                    "said": str(variant.signature),
                    "file": self.variant_path(variant.signature).relative_to(self.directory.parent).as_posix(),
                    "replay": replay_command(self.variant_path(variant.signature), found),
                }
                for variant in self.variants
            ],
            "leads_to": self.leads_to,
            "known_as": self.known_as,
            "device": found.device,
            "interpreter": self.interpreter,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "replay": replay_command(self.path, found),
        }


class Findings:
    """The folder. now: the time, for dates only. left: a line for each directory that `tidy` leaves alone, being a link
    or damaged."""

    def __init__(self, folder: Path, keep: Keep, now: datetime) -> None:
        self.folder = folder
        self.keep = keep
        self._now = now
        self.by_id: dict[str, Finding] = {}
        self.left: list[str] = []
        for path in sorted(folder.glob("*/counterexample.json")):
            if path.parent.is_symlink() or path.is_symlink():
                self.left.append(f"{path.parent.name} is a link: it is not followed")
                continue
            finding = _stored(path)
            if finding is None:
                self.left.append(f"{path.parent.name} cannot be read: it is kept as it is")
                continue
            if finding.damaged:
                self.left.append(f"{path.parent.name}/finding.json cannot be read: it is kept as it is")
            self.by_id[finding.signature.id] = finding

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.by_id.values())

    def now(self) -> list[Finding]:
        """Those hit in this campaign, in the order of their first hit."""
        return [finding for finding in self.by_id.values() if finding.hits]

    def like(self, symptom: Symptom) -> Finding | None:
        """The finding that `symptom` belongs to, if there is one: the same signature before all, else the first that
        it is akin to and that still fails as far as is known. O(findings)."""
        id = symptom.signature.id
        exact = self.by_id.get(id)
        if exact is not None:
            return exact
        every = self.by_id.values()
        for known in every:
            if any(one.signature.id == id for one in known.symptoms):
                return known
        alive = [known for known in every if not known.stale and (known.hits or known.status != FIXED)]
        for known in alive:
            if any(akin(one, symptom) for one in known.symptoms):
                return known
        if not symptom.kinds:  # it was not shrunk: what looked like it turned out to be this
            return next((known for known in alive if any(one.alike(symptom.signature) for one in known.looked)), None)
        return None

    def file(
        self,
        symptom: Symptom,
        counterexample: Counterexample,
        found: Counterexample,
        *,
        status: str,
        replays: str,
        state: str = "",
        hits: int = 1,
        found_after: int = 0,
        known_as: str = "",
        harm: Counterexample | None = None,
    ) -> Finding:
        """Keep it: a new directory, one more hit of what has one, or another way to meet that. `status` and `known_as`
        are the symptom's own: those of a finding that it joins stay. Raises OSError. O(counterexample + findings)."""
        signature = symptom.signature
        finding = self.like(symptom)
        if finding is None:
            directory = self.folder / signature.name
            finding = Finding(signature, counterexample, directory, length_found=len(found.operations))
            finding.found_after, finding.known_as = found_after, known_as
            finding.first_seen = self._now.isoformat(timespec="seconds")
            write(counterexample, finding.path)
            self.by_id[signature.id] = finding
            finding.replays, finding.state = replays, state
        elif signature.id == finding.signature.id:
            if _better(counterexample, replays, finding):
                write(counterexample, finding.path)
                finding.counterexample, finding.replays, finding.state = counterexample, replays, state
                finding.interpreted = None
        elif not (path := finding.variant_path(signature)).exists():
            write(counterexample, path)
        _note(finding.symptoms, symptom)
        # Another way to meet the same may be a worse one.
        for worse in (harm, counterexample):
            if worse is not None and _rank(worse) < _rank(finding.harm or finding.counterexample):
                finding.harm = worse
                write(worse, finding.harm_path)
        if signature.id == finding.signature.id:
            finding.status, finding.known_as = status, known_as
        if finding.examples < self.keep.examples:
            finding.examples += 1
            name = "found.json" if finding.examples == 1 else f"found-{finding.examples}.json"
            write(found, finding.directory / name)
        self.hit(finding, hits, found.seed)
        self.write(finding)
        return finding

    def shorten(self, finding: Finding, counterexample: Counterexample, symptom: Symptom) -> None:
        """A shorter counterexample of the same, found later; what names the finding stays. Raises OSError."""
        write(counterexample, finding.path)
        finding.counterexample, finding.interpreted = counterexample, None
        _note(finding.symptoms, replace(symptom, signature=finding.signature))
        self.write(finding)

    def drop(self, finding: Finding) -> None:
        """Forget it, and delete its directory."""
        del self.by_id[finding.signature.id]
        shutil.rmtree(finding.directory)

    def note_wording(self, finding: Finding, now: Signature) -> None:
        """Its counterexample was replayed, and has this signature now. If it is the same in other words, it is met by
        these, too. Raises OSError."""
        if all(one.signature != now for one in finding.symptoms) and reworded(finding.signature, now):
            write(finding.counterexample, finding.variant_path(now))
            _note(finding.symptoms, symptom_of(finding.counterexample, now))

    def hit(self, finding: Finding, hits: int, seed: str = "") -> None:
        """It was hit so often again. Call `write` afterwards."""
        finding.hits += hits
        finding.total += hits
        finding.last_seen = self._now.isoformat(timespec="seconds")
        if seed and seed not in finding.seeds and len(finding.seeds) < _SEEDS:
            finding.seeds.append(seed)

    def write(self, finding: Finding) -> None:
        """Bring its directory up to date. Raises OSError."""
        directory, name = finding.directory, finding.signature.name
        put(directory / "finding.json", json.dumps({"schema": 1, **finding.to_json()}, indent=2) + "\n")
        put(directory / f"test_{slug(name)}.py", pytest_text(finding.counterexample, name))
        if finding.state:
            put(directory / "state.txt", finding.state)
        put(directory / "README.md", _readme(finding))

    def tidy(self) -> list[str]:
        """Delete what is too old or too much; returns a line for each directory that went. Never what is new or
        regressed; the fixed go first, then the known, those not seen for longest first."""
        gone = []
        oldest = (self._now - timedelta(days=self.keep.days)).isoformat(timespec="seconds")
        rank = {FIXED: 0, KNOWN: 1}
        settled = sorted(
            (
                finding
                for finding in self.by_id.values()
                if finding.status in rank and not finding.hits and not finding.damaged
            ),
            key=lambda finding: (rank[finding.status], finding.last_seen, finding.signature.id),
        )
        for finding in settled:
            size = _size(self.folder)
            if finding.last_seen < oldest:
                why = f"not seen since {finding.last_seen[:10]}"
            elif size > self.keep.disk:
                why = f"the folder has {size:,} bytes, more than {self.keep.disk:,}"
            else:
                continue
            self.drop(finding)
            gone.append(f"{finding.directory.name} ({finding.status}): {why}")
        return gone


def _note(symptoms: list[Symptom], symptom: Symptom) -> None:
    """Add it, or put it in the place of what is known of the same signature if that was not shrunk."""
    for place, one in enumerate(symptoms):
        if one.signature == symptom.signature:
            if (symptom.shrunk, symptom.leads_to is not None) > (one.shrunk, one.leads_to is not None):
                symptoms[place] = symptom
            return
    symptoms.append(symptom)


def _rank(found: Counterexample) -> int:
    """The lower, the more harmful."""
    kind = PROPERTIES.get(found.property_id or "")
    return len(PROPERTIES) if kind is None else kind.rank


def _better(counterexample: Counterexample, replays: str, finding: Finding) -> bool:
    """Shorter, or the first that could be replayed every time."""
    if finding.replays != "3 of 3":
        return replays == "3 of 3"
    return replays == "3 of 3" and len(counterexample.operations) < len(finding.counterexample.operations)


def _stored(path: Path) -> Finding | None:
    """The finding in a directory; as much of it as is there."""
    try:
        counterexample = read(path)
    except Unreadable:
        return None
    finding = Finding(signature_of(counterexample), counterexample, path.parent)
    finding.length_found = len(counterexample.operations)
    finding.examples = len(list(path.parent.glob("found*.json")))
    with suppress(Unreadable):
        if finding.harm_path.exists():
            finding.harm = read(finding.harm_path)
    try:
        data = json_of(text_of(path.parent / "finding.json"))
        signature = Signature.from_json(data["signature"])
        if signature.target != counterexample.target:
            raise ValueError("it is another's")
        finding.signature = signature
        finding.status, finding.total = str(data["status"]), int(data["hits_in_all"])
        finding.replays, finding.length_found = str(data["replays"]), int(data["operations_when_found"])
        finding.found_after = int(data["found_after_operations"])
        finding.first_seen, finding.last_seen = str(data["first_seen"]), str(data["last_seen"])
        finding.seeds = list(data["seeds"])
        finding.symptoms = [Symptom.from_json(one) for one in data.get("symptoms", ())]
        finding.known_as = str(data.get("known_as", ""))
        if told := data.get("interpreter"):
            finding.interpreted = Replayed(str(told["outcome"]), str(told["said"]))
        finding.state = (path.parent / "state.txt").read_text(encoding="utf-8")
    except OSError:
        pass  # the campaign ended between two files; the counterexample is there
    except (ValueError, KeyError, TypeError):
        finding.damaged = True
    # Of an older version, or not noted in time: by the files.
    if not any(one.signature == finding.signature for one in finding.symptoms):
        finding.symptoms.insert(0, symptom_of(counterexample, finding.signature))
    for file in sorted((path.parent / "variants").glob("*.json")):
        if not any(one.signature.name == file.stem for one in finding.symptoms):
            try:
                _note(finding.symptoms, symptom_of(read(file)))
            except Unreadable:
                continue
    return finding


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _readme(finding: Finding) -> str:
    found, harm = finding.counterexample, finding.leads_to
    statement = " ".join((PROPERTIES[found.property_id].__doc__ or "").split()) if found.property_id else ""
    operations = "\n".join(
        f"{'>' if number == found.at else ' '} {number + 1:>3}  {describe(operation)}".replace("`", "'")
        for number, operation in enumerate(found.operations[:60])
    )
    if len(found.operations) > 60:
        operations += f"\n  ... {len(found.operations) - 60} more"
    elif found.at is not None and found.at >= len(found.operations):
        operations += "\n> then, in the drain phase"
    replays, replay = finding.replays, replay_command(finding.path, found)
    ways = {one.signature: replay_command(finding.variant_path(one.signature), found) for one in finding.variants}
    told = {"3 of 3": "deterministic", NOT_REPLAYED: NOT_REPLAYED}.get(replays, f"flaky, {replays}")
    return (
        f"# {found.property_id}: {in_markdown(found.message)}\n\n{statement}\n\n"
        f"- status: {finding.status}; hits: {finding.total}; replays: {replays} ({told})\n"
        f"- target {code(found.target)}, {found.configuration}\n"
        f"- found by {in_markdown(found.engine)} with seed {code(found.seed)} in {finding.length_found} operations\n"
        + (
            f"- found on {in_markdown(found.device)}: {in_markdown(finding.interpreter['told'])}\n"
            if finding.interpreter
            else ""
        )
        + (f"- leads to {harm['property']}: {in_markdown(harm['message'])} ({code(harm['replay'])})\n" if harm else "")
        + f"- first seen {finding.first_seen}, last seen {finding.last_seen}\n"
        f"- signature: {in_markdown(str(finding.signature))}\n"
        + "".join(
            f"- also met as: {in_markdown(str(variant.signature))} ({code(ways[variant.signature])})\n"
            for variant in finding.variants
        )
        + f"\n```\n{operations}\n```\n\n"
        f"```\n{replay}\ngit bisect run {replay.replace('replay', 'replay --bisect', 1)}\n```\n"
    )


def promote(
    source: Path, to: Path, target: str = "", name: str = "", note: str = "", *, with_test: bool = False
) -> tuple[Path, Path | None]:
    """Copy the counterexample of a finding's directory (or a file) to a folder of regressions; with_test: and write a
    pytest file beside it that replays it, where nothing else does. Returns both paths. Raises NotAFinding."""
    path = source / "counterexample.json" if source.is_dir() else source
    try:
        found = read(path)
    except Unreadable as error:
        raise NotAFinding(f"{error}; give a finding's directory, or a counterexample file") from None
    slug = re.sub(r"\W+", "_", name or signature_of(found).name).strip("_").lower()
    place = to / f"{slug}.json"
    if place.exists():
        raise NotAFinding(f"{place} exists already; give --name another name")
    kept = replace(found, target=target or found.target, note=note or found.note)
    if why := distrusted(kept, [target], [found.judging.kernels] if target else ()):
        raise NotAFinding(f"{path} {why}: a test would import it")
    test = to / f"test_{slug}.py" if with_test else None
    if test is not None and test.exists():
        raise NotAFinding(f"{test} exists already; give --name another name")
    write(kept, place)
    if test is not None:
        put(test, pytest_text(kept, slug))
    return place, test
