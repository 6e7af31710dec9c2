"""Every allocator bug of the zoo by exhaustive exploration: in which small space it is reachable, and how soon.

    python -m fuzz.tools.explore_zoo --write docs/generated/explore-zoo.md

For each bug the spaces are tried in turn, each no deeper than the shortest counterexample known, until one shows it.
What exploration finds is a shortest sequence within its space, so it checks the shrinker's minima, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import process_time
from typing import NamedTuple

from fuzz.explore.search import Plan, explore
from fuzz.explore.space import Space
from fuzz.runs.processes import follow_parent
from fuzz.zoo import allocator_bugs, find
from properties.operations import Configuration

SPACES: dict[str, tuple[str, Space]] = {
    "W": (
        "--blocks 2 --hash-bits 0",
        Space(Configuration(num_blocks=2, block_size=1, hash_bits=0), max_tokens=2),
    ),
    "L": (
        "--blocks 2 --reuse last_token --hash-bits 0",
        Space(Configuration(num_blocks=2, block_size=1, hash_bits=0, reuse="last_token"), max_tokens=2),
    ),
    "T": (
        "--blocks 2 --block-size 2 --alphabet 1 --max-tokens 5",
        Space(Configuration(num_blocks=2, block_size=2), alphabet=1, max_tokens=5),
    ),
    "D": (
        "--blocks 2 --steps 2 --placeholders --max-tokens 3",
        Space(Configuration(num_blocks=2, block_size=1), steps=2, placeholders=True, max_tokens=3),
    ),
    "N": (
        "--blocks 2 --namespaces 8 --alphabet 1 --hash-bits 0",
        Space(Configuration(num_blocks=2, block_size=1, hash_bits=0), alphabet=1, namespaces=8, max_tokens=2),
    ),
    "C": (
        "--blocks 2 --no-caching --alphabet 1",
        Space(Configuration(num_blocks=2, block_size=1, caching=False), alphabet=1, max_tokens=2),
    ),
    "A": (
        "--blocks 3 --alphabet 1 --drafts 2 --max-tokens 3",
        Space(Configuration(num_blocks=3, block_size=1), alphabet=1, drafts=2, max_tokens=3),
    ),
    "B": (
        "--blocks 2 --block-size 3 --alphabet 1 --drafts 3 --max-tokens 6 --whole-steps",
        Space(Configuration(num_blocks=2, block_size=3), alphabet=1, drafts=3, max_tokens=6, whole_steps=True),
    ),
    "P": (
        "--blocks 3 --block-size 2 --alphabet 1 --max-tokens 5 --whole-steps --reuse last_token",
        Space(
            Configuration(num_blocks=3, block_size=2, reuse="last_token"), alphabet=1, max_tokens=5, whole_steps=True
        ),
    ),
    "S": (
        "--blocks 3 --max-tokens 4 --alphabet 2 --whole-steps",
        Space(Configuration(num_blocks=3, block_size=1), max_tokens=4, whole_steps=True),
    ),
    "R": (
        "--alphabet 1 --max-tokens 3 --reuse last_token --whole-steps --without fork,reset",
        Space(
            Configuration(num_blocks=3, block_size=1, reuse="last_token"),
            alphabet=1,
            max_tokens=3,
            whole_steps=True,
            without=("fork", "reset"),
        ),
    ),
    "V": (
        "--blocks 4 --alphabet 1 --max-tokens 4 --whole-steps",
        Space(Configuration(num_blocks=4, block_size=1), alphabet=1, max_tokens=4, whole_steps=True),
    ),
    "F": (
        "--blocks 2 --block-size 2 --steps 2 --placeholders --alphabet 1 --max-tokens 4 --drafts 2",
        Space(
            Configuration(num_blocks=2, block_size=2), steps=2, placeholders=True, alphabet=1, max_tokens=4, drafts=2
        ),
    ),
    "H": (
        "--blocks 3 --requests 3 --hash-bits 0 --max-tokens 2 --whole-steps",
        Space(Configuration(num_blocks=3, block_size=1, hash_bits=0), requests=3, max_tokens=2, whole_steps=True),
    ),
}
"""In the order in which they are tried, cheap ones first."""

WHY = {
    "NV-5": "a lookup's answer passed to a later allocate is not enumerated",
    "KC-22": "operations that are wrong in themselves are not enumerated",
    "KC-23": "operations that are wrong in themselves are not enumerated",
    "KC-32": "operations that are wrong in themselves are not enumerated",
    "OF-4": "operations that are wrong in themselves are not enumerated",
    "KC-1": "not as deep as the shortest known; 13 operations in R, without this bound (docs/explore.md)",
    "VL-9": "not found: needs a larger space",
}
"""Why a bug is not reachable here."""

STATES = 15_000
"""Where the search of one space for one bug gives up."""


class Result(NamedTuple):
    bug: str
    space: str
    property_id: str
    length: int
    states: int
    seconds: float


def examine(bug_id: str) -> Result:
    """The first space that shows the bug by as few operations as are known to do. Seconds to minutes."""
    bug = find(bug_id)
    began = process_time()
    states = 0
    best = Result(bug_id, "", "", 0, 0, 0.0)
    for name, (_, space) in SPACES.items():
        with tempfile.TemporaryDirectory() as out:
            plan = Plan(f"fuzz.zoo:{bug_id}", space, Path(out), max_depth=bug.minimum, max_states=STATES)
            result = explore(plan, bug.factory(), lambda: 0.0, lambda *_: None)
        states += result.states
        found = result.counterexample
        if found is not None and (not best.space or len(found.operations) < best.length):
            best = best._replace(space=name, property_id=found.property_id or "", length=len(found.operations))
            if best.length <= bug.minimum:
                break
    return best._replace(states=states, seconds=process_time() - began)


def page(results: list[Result]) -> str:
    found = [result for result in results if result.space]
    longer = [result for result in found if result.length > find(result.bug).minimum]
    shorter = [result for result in found if result.length < find(result.bug).minimum]
    missing = [result for result in results if not result.space]
    lines = [
        "# The zoo, explored",
        "",
        f"`python -m fuzz.tools.explore_zoo --write docs/generated/explore-zoo.md`: {len(found)} of the "
        f"{len(results)} allocator bugs of the [zoo](../zoo.md) are reachable in one of {len(SPACES)} small spaces, "
        f"searched no deeper than the shortest counterexample known and up to {STATES:,} states. What is found is a "
        f"shortest sequence within its space: {len(found) - len(longer) - len(shorter)} are as long as the shortest "
        f"that the walk, Hypothesis and the shrinker are known to end with, {len(shorter)} shorter, {len(longer)} "
        f"longer.",
        "",
        "| space | `python -m fuzz explore` ... |",
        "|---|---|",
        *(f"| {name} | `{options}` |" for name, (options, _) in SPACES.items()),
        "",
        "| bug | what it is | space | charged | operations | shrunk | states | CPU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in found:
        bug = find(result.bug)
        lines.append(
            f"| {bug.id} | {bug.title} | {result.space} | {result.property_id} | {result.length} | {bug.minimum} | "
            f"{result.states:,} | {result.seconds:.1f} s |"
        )
    if missing:
        lines += [
            "",
            "Not reachable within these spaces and depths:",
            "",
            "| bug | what it is | shrunk |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {result.bug} | {find(result.bug).title} | {find(result.bug).minimum} | {WHY.get(result.bug, '')} |"
            for result in missing
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz.tools.explore_zoo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--results", type=Path, help="what is done, one bug a line; read first, then added to")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--bug", action="append", help="only this one; may be repeated")
    chosen = parser.parse_args()
    ids = chosen.bug or [bug.id for bug in allocator_bugs() if bug.by == "walk"]
    results = {}
    if chosen.results is not None and chosen.results.exists():
        lines = chosen.results.read_text(encoding="utf-8").splitlines()
        results = {result.bug: result for line in lines if (result := Result(*json.loads(line))).bug in ids}
    left = [bug_id for bug_id in ids if bug_id not in results]
    with ProcessPoolExecutor(chosen.workers, multiprocessing.get_context("spawn"), follow_parent) as pool:
        for result in pool.map(examine, left):
            results[result.bug] = result
            print(*result, find(result.bug).minimum, flush=True)
            if chosen.results is not None:
                with chosen.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
    if chosen.write is not None:
        chosen.write.write_text(page([results[bug_id] for bug_id in ids]), encoding="utf-8")


if __name__ == "__main__":
    main()
