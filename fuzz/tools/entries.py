"""How many entries a planted bug makes in a list of findings, and how many two make that are planted at once.

    python -m fuzz.tools.entries --out entries.jsonl               # all bugs of the allocator, 115; about 15 minutes
    python -m fuzz.tools.entries --out entries.jsonl --pairs 26    # and pairs of them, drawn by a seed

For each bug: the walk for a second of processor time and one chunk of Hypothesis, past what it finds first. Of each
kind of hit the first is shrunk for 0.6 s, less than a campaign takes, and its symptom is written down. A file that is
there is gone on with. The report makes entries of the symptoms, in the order in which they were found, as a folder of
findings does.

It also takes any two bugs' symptoms for those of one target, which says how often two bugs would be taken for one: both
are reported if each of them is the first of an entry. What one bug hides of the other is seen only where both are
planted at once; there a symptom is due to the bug whose target alone fails by its operations. Kernel bugs are not
counted here: what finds them is a case, not a list of operations, and has a signature of its own.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest
from pathlib import Path
from time import process_time
from typing import Any

from properties.target import TargetFactory
from properties.targets import load

from ..campaign.hunt import strictly
from ..campaign.settle import plainest
from ..engines.engine import Assignment
from ..engines.registry import engine_of
from ..engines.tally import Tally
from ..findings.places import places_of
from ..findings.shrink import shrink, slipped
from ..findings.signature import Signature, Symptom, akin, signature_of, symptom_of
from ..runs.perform import perform
from ..runs.values import Counterexample, Judging
from ..zoo import allocator_bugs, find
from ..zoo.planting import DoesNotApply, changed

__all__ = ["Met", "collect", "drawn", "grouped", "report"]

_ZOO = "fuzz.zoo:"

Alike = Callable[[Symptom, Symptom], bool]


@dataclass(frozen=True, slots=True)
class Met:
    """A symptom. due: the bugs that break the same property by the same operations when each is planted alone."""

    symptom: Symptom
    due: tuple[str, ...]


def collect(name: str, hunting: float = 1.0, shrinking: float = 0.6) -> list[Met]:
    """What is met of one bug, or of "A+B", in the order in which it was found. Seconds are of processor time."""
    target = _ZOO + name
    factory = load(target)
    alone = {part: load(_ZOO + part) for part in name.split("+")}
    met = []
    for found in _hits(target, factory, hunting):
        shrunk = shrink(found, factory, clock=process_time, seconds=shrinking)
        best = plainest(shrunk.counterexample, factory)
        end = slipped(best, factory, clock=process_time, seconds=shrinking)
        symptom = symptom_of(best, end=end, shrunk=shrunk.finished, places=places_of(best, factory))
        met.append(Met(symptom, tuple(part for part, one in alone.items() if _fails(best, one))))
    return met


def _fails(found: Counterexample, factory: TargetFactory) -> bool:
    run = perform(factory, found.configuration, found.operations, found.judging, strict=True)
    return run.violation is not None and run.violation.id == found.property_id


def _hits(target: str, factory: TargetFactory, seconds: float) -> list[Counterexample]:
    """The first hit of each kind."""
    kinds: dict[Signature, Counterexample] = {}
    seen: set[Signature] = set()

    def note(found: Counterexample) -> None:
        if (loose := signature_of(found)) not in seen:
            seen.add(loose)
            kinds.setdefault(strictly(found, factory), found)

    assignment = Assignment(
        factory, target, "1", Judging(), Tally(), clock=process_time, deadline=process_time() + seconds, also=note
    )
    walk, following = engine_of("walk"), 0
    while process_time() < assignment.deadline:
        found, following = walk.hunt(replace(assignment, first=following))
        if found is not None:
            note(found)
    found, _ = engine_of("hypothesis").hunt(replace(assignment, first=0, count=1))
    if found is not None:
        note(found)
    return list(kinds.values())


def drawn(count: int, seed: str = "pairs") -> list[str]:
    """Pairs of bugs that change different texts, as `fuzz.zoo` calls them."""
    ids = [bug.id for bug in allocator_bugs() if bug.by == "walk"]
    draw = random.Random(seed)
    pairs: list[str] = []
    while len(pairs) < count:
        pair = draw.sample(ids, 2)
        try:
            changed([change for id in pair for change in find(id).changes])
        except DoesNotApply:
            continue
        pairs.append("+".join(pair))
    return pairs


# ---- the report ------------------------------------------------------------------------------------------------------


def grouped(met: Sequence[Met], alike: Alike = akin) -> list[list[Met]]:
    """Entries, as a folder of findings makes them: the same signature before all, else the first that is akin."""
    entries: list[list[Met]] = []
    for one in met:
        same = (entry for entry in entries if any(one.symptom.signature == other.symptom.signature for other in entry))
        near = (entry for entry in entries if any(alike(other.symptom, one.symptom) for other in entry))
        entry = next(same, None) or next(near, None)
        if entry is None:
            entries.append([one])
        else:
            entry.append(one)
    return entries


def report(found: dict[str, list[Met]], alike: Alike = akin) -> dict[str, Any]:
    """Figures: of single bugs, of any two of them taken together, and of pairs that were planted at once."""
    single = {name: met for name, met in found.items() if met and "+" not in name}
    entries = {name: len(grouped(met, alike)) for name, met in single.items()}
    together = list(combinations(single, 2))
    merged = [pair for pair in together if not _apart(single[pair[0]], single[pair[1]], pair, alike)]
    both = {
        name: met
        for name, met in found.items()
        if "+" in name and all(any(one.due == (part,) for one in met) for part in name.split("+"))
    }
    planted = {name: grouped(met, alike) for name, met in both.items()}
    return {
        "bugs": len(single),
        "not met": sorted(name for name, met in found.items() if not met),
        "bugs that are one entry": sum(count == 1 for count in entries.values()),
        "bugs that are several": {name: count for name, count in entries.items() if count > 1},
        "entries of all bugs": sum(entries.values()),
        "any two bugs": len(together),
        "of these taken for one": len(merged),
        "pairs planted at once": sum("+" in name for name in found),
        "of these both met": len(both),
        "of these both reported": sum(_both(groups, name.split("+")) for name, groups in planted.items()),
        "of these two entries": sum(len(groups) == 2 for groups in planted.values()),
        "not reported both": [name for name, groups in planted.items() if not _both(groups, name.split("+"))],
        "taken for one": ["+".join(pair) for pair in merged],
    }


def _apart(one: list[Met], other: list[Met], names: Sequence[str], alike: Alike) -> bool:
    """Would both be reported, if they were met by turns?"""
    mixed = [
        replace(met, due=(name,))
        for pair in zip_longest(one, other)
        for name, met in zip(names, pair, strict=True)
        if met is not None
    ]
    return _both(grouped(mixed, alike), names)


def _both(entries: list[list[Met]], names: Sequence[str]) -> bool:
    """Does each of two bugs name an entry?"""
    return all(any(entry[0].due == (name,) for entry in entries) for name in names)


def _read(path: Path) -> dict[str, list[Met]]:
    """What is in the file, as if all were of one target."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        data = json.loads(line)
        found[data["bug"]] = [
            Met(_of_one_target(Symptom.from_json(one["symptom"])), tuple(one["due"])) for one in data["met"]
        ]
    return found


def _of_one_target(symptom: Symptom) -> Symptom:
    end = symptom.leads_to
    return replace(
        symptom,
        signature=replace(symptom.signature, target=_ZOO),
        leads_to=replace(end, target=_ZOO) if end is not None else None,
    )


def _missing(path: Path, pairs: int, only: Sequence[str]) -> Iterator[str]:
    done = _read(path)
    names = only or [*(bug.id for bug in allocator_bugs()), *drawn(pairs)]
    return (name for name in names if name not in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines, one a bug; gone on with if it is there")
    parser.add_argument("--pairs", type=int, default=0, help="how many pairs of bugs are planted at once")
    parser.add_argument("--bug", action="append", default=[], help="only these, or A+B")
    chosen = parser.parse_args()
    for name in _missing(chosen.out, chosen.pairs, chosen.bug):
        met = collect(name, 2.0 if "+" in name else 1.0)
        with chosen.out.open("a", encoding="utf-8") as file:
            data = [{"symptom": one.symptom.to_json(), "due": one.due} for one in met]
            file.write(json.dumps({"bug": name, "met": data}) + "\n")
        print(f"{name}: {len(met)} kinds of hits, {len(grouped(met))} entries", flush=True)
    print(json.dumps(report(_read(chosen.out)), indent=2))


if __name__ == "__main__":
    main()
