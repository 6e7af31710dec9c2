"""Exploration: it closes what it should, whoever does the work and however often it is interrupted; merged states
behave alike; and what is wrong is found by a shortest sequence.
"""

from __future__ import annotations

import itertools
import json
import marshal
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fuzz.cli import app
from fuzz.cli.common import Interruptible
from fuzz.engines.walk import Walk
from fuzz.explore import normal
from fuzz.explore.expand import Changed, Expander
from fuzz.explore.normal import Normal
from fuzz.explore.search import Explored, Plan, explore
from fuzz.explore.space import BadSpace, Space
from fuzz.explore.store import CannotResume
from fuzz.runs.counterexample import read
from fuzz.runs.perform import perform
from fuzz.runs.values import Judging
from fuzz.zoo import find
from properties.ledger import EVENTS
from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fork,
    Free,
    Operation,
    Reset,
    Truncate,
)
from properties.session import Session
from properties.target import Capability
from properties.targets import load
from properties.targets.kvcore import KvcoreTarget, make

CLOSED = Space(Configuration(num_blocks=2, block_size=1), alphabet=1, requests=1, max_tokens=2)
"""A space that closes at once."""

WIDER = Space(Configuration(num_blocks=2, block_size=1), alphabet=1, max_tokens=2)
"""Two requests: sharing, eviction, refusals, a step in flight."""

BLIND = Judging(outside=True, exact=False)


def still() -> float:
    return 0.0


def run(space: Space, out: Path, factory: Any = None, judging: Judging = Judging(), **options: Any) -> Explored:
    plan = Plan("kvcore", space, out, judging, **options)
    return explore(plan, factory or load("kvcore"), options.pop("clock", still), lambda *_: None)


def figures(result: Explored) -> dict[str, Any]:
    return {**result.figures(), "levels": result.levels, "closed": result.closed}


# ---- what is searched ------------------------------------------------------------------------------------------------


def test_a_space_is_closed_with_what_it_must_contain(tmp_path: Path) -> None:
    result = run(WIDER, tmp_path)
    assert result.closed and result.status == 0
    assert result.states == sum(result.levels) == result.drains
    for event in ("hit on an active block", "hit on a cached block", "evicted", "freed while in flight", "fork"):
        assert result.events[event] > 0, event
    assert result.refused["OutOfBlocks"] > 0
    assert set(result.kinds) == {
        "allocate", "append", "dispatch", "complete", "truncate", "fork", "free", "reset",
    }  # fmt: skip


def every_sequence(space: Space, depth: int) -> Iterator[set[bytes]]:
    """The states at each distance, without clones, merging, or choosing among names of tokens: every sequence anew."""
    seen: set[bytes] = set()
    paths: list[tuple[Operation, ...]] = [()]
    for _ in range(depth):
        here: set[bytes] = set()
        longer = []
        for path in paths:
            session = Judging().session(make, space.configuration)
            for operation in path:
                session.apply(operation)
            here.add(Normal().digest(session)[0])
            longer += [(*path, operation) for operation in space.operations(session, range(space.alphabet))]
        yield here - seen
        seen |= here
        paths = longer


def test_breadth_first_finds_the_states_that_every_sequence_leads_to(tmp_path: Path) -> None:
    # The reference does not know which tokens occur: to it they are all different.
    space = replace(WIDER, alphabet=2)
    levels = [len(found) for found in every_sequence(space, 4)]
    assert run(space, tmp_path, max_depth=3).levels == levels
    assert levels[3] > 20


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    results = [run(WIDER, tmp_path / str(workers), workers=workers) for workers in (1, 2)]
    assert max(results[0].levels) > 32, "levels are wide enough to be shared"
    assert figures(results[0]) == figures(results[1])
    files = [sorted((tmp_path / name / "levels").iterdir()) for name in "12"]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = run(WIDER, tmp_path / "whole")
    parts = tmp_path / "parts"
    first = run(WIDER, parts, max_depth=2)
    assert not first.closed and first.complaint == "stopped at the depth of 2"
    assert first.depth == 2

    ticks = itertools.count()

    def pressed() -> float:
        if next(ticks) == 4:
            raise KeyboardInterrupt
        return 0.0

    second = explore(Plan("kvcore", WIDER, parts, resume=True), make, pressed, lambda *_: None)
    assert second.status == 130
    assert "go on with --resume" in second.complaint
    third = run(WIDER, parts, max_states=50, resume=True)
    assert third.complaint == "stopped at 50 states" and third.states >= 50
    fourth = run(WIDER, parts, resume=True)
    assert figures(fourth) == figures(whole)


def test_memory_bounds_the_states(tmp_path: Path) -> None:
    result = run(WIDER, tmp_path, memory=7_000)
    assert result.complaint.startswith("stopped at ") and "memory" in result.complaint
    assert result.states < 500


def test_what_cannot_be_resumed_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotResume, match="no exploration to resume; leave --resume out"):
        run(CLOSED, tmp_path / "none", resume=True)
    run(CLOSED, tmp_path, max_depth=2)
    with pytest.raises(CannotResume, match="holds an exploration; give --resume"):
        run(CLOSED, tmp_path)
    with pytest.raises(CannotResume, match=r"another exploration: space was .*, now "):
        run(WIDER, tmp_path, resume=True)
    level = tmp_path / "levels" / "0002.level"
    level.write_bytes(level.read_bytes()[:-1])
    with pytest.raises(CannotResume, match=r"0002\.level: is not a level .* delete it, and resume"):
        run(CLOSED, tmp_path, resume=True)
    level.unlink()
    assert figures(run(CLOSED, tmp_path, resume=True)) == figures(run(CLOSED, tmp_path / "whole"))


def test_a_target_that_has_changed_is_noticed(tmp_path: Path) -> None:
    run(WIDER, tmp_path, max_depth=5)
    other = find("NV-7").factory()
    with pytest.raises(Changed, match="begin anew in another folder"):
        run(WIDER, tmp_path, other, resume=True)

    level = tmp_path / "levels" / "0005.level"
    data = bytearray(level.read_bytes())
    data[data.index(b"\n") + 1] ^= 1  # in the first digest
    level.write_bytes(data)
    with pytest.raises(Changed, match="lead to the state"):
        run(WIDER, tmp_path, resume=True)


def test_the_figures_in_the_documentation_are_real(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "explore.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| D | `--blocks 2 --steps 2 --placeholders` |"))
    space = Space(Configuration(num_blocks=2, block_size=1), steps=2, max_tokens=2, placeholders=True)
    result = run(space, tmp_path)
    shown = f"| {result.states:,} | {result.transitions:,} | {result.lookups:,} | {result.depth} |"
    assert result.closed and shown in row
    assert f"| {sum(1 for event in EVENTS if result.events[event])} |" in row


# ---- what is merged --------------------------------------------------------------------------------------------------


def successors(expander: Expander, session: Session) -> Counter[Any]:
    """What each operation leads to, without the names in it."""
    digest, known = expander._normal.digest(session)
    found: Counter[Any] = Counter({("state", digest): 1})
    for operation in expander.space.operations(session, known):
        child = session.clone()
        outcome = child.apply(operation)
        after = expander._normal.digest(child)[0]
        found[operation.op, outcome, after, tuple(sorted(child.judge.events.items()))] += 1
    return found


def disagreements(space: Space, share: float, states: int, enough: int = 0) -> tuple[int, int]:
    """(pairs of states that are merged, those of them that do not do the same); ends at `enough` of the latter. By
    induction over the operations, none in all pairs means that merged states behave alike for ever.
    """
    expander = Expander(make, space, Judging())
    random = Random(1)
    root = expander.session(())
    first = {expander._normal.digest(root)[0]: root}
    waiting = [root]
    pairs = wrong = 0
    while waiting and len(first) < states:
        longer = []
        for session in waiting:
            known = expander._normal.digest(session)[1]
            for operation in expander.space.operations(session, known):
                child = session.clone()
                child.apply(operation)
                digest = expander._normal.digest(child)[0]
                if digest not in first:
                    first[digest] = child
                    longer.append(child)
                elif random.random() < share:
                    pairs += 1
                    wrong += successors(expander, child) != successors(expander, first[digest])
                    if wrong and wrong == enough:
                        return pairs, wrong
        waiting = longer
    return pairs, wrong


SPACES = {
    "one request": (Space(Configuration(num_blocks=2, block_size=2), alphabet=1, requests=1, max_tokens=3), 0.2, 400),
    "two tokens, one key, last_token": (
        Space(Configuration(num_blocks=2, block_size=1, hash_bits=0, reuse="last_token"), max_tokens=2), 0.02, 600,
    ),
    "two steps, placeholders, namespaces": (
        Space(Configuration(num_blocks=3, block_size=1), steps=2, max_tokens=2, namespaces=2,
              placeholders=True), 0.01, 600,
    ),
    "drafts, shared tails": (
        Space(Configuration(num_blocks=3, block_size=2), alphabet=1, max_tokens=3, drafts=2), 0.015, 900,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPACES)
def test_merged_states_do_the_same(name: str) -> None:
    pairs, wrong = disagreements(*SPACES[name])
    assert pairs > 20
    assert wrong == 0


COARSER: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no counters": ("one request", lambda form: [form[0], [(*line[:2], *line[3:]) for line in form[1]], *form[2:]]),
    "no requests": ("one request", lambda form: [form[0], *form[2:]]),
    "nothing in flight": ("two steps, placeholders, namespaces", lambda form: [*form[:2], *form[3:]]),
    "no index": ("two tokens, one key, last_token", lambda form: [*form[:3], *form[5:]]),
}
"""Forms that leave out what matters: all of the target's, and some of (references, requests, steps, published, owners,
queues) of the judge. With a space in which it matters."""


@pytest.mark.parametrize("coarser", COARSER)
def test_a_form_that_leaves_something_out_is_caught(coarser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, drop = COARSER[coarser]

    class Coarse:
        @staticmethod
        def dumps(form: Any, version: int) -> bytes:
            return marshal.dumps(drop(form[0]), version)

    monkeypatch.setattr(normal, "marshal", Coarse)
    space, _, states = SPACES[name]
    assert disagreements(space, 0.3, states, enough=1)[1] > 0


def digest_after(*operations: Operation, **options: Any) -> bytes:
    session = Judging().session(make, Configuration(**{"num_blocks": 6, "block_size": 2, **options}), strict=True)
    for operation in operations:
        assert session.apply(operation).status == "done", operation
    return Normal().digest(session)[0]


def admit(request: str, tokens: tuple[int, ...], step: int) -> tuple[Operation, ...]:
    return Allocate(request, tokens), Dispatch(step, ((request, len(tokens)),)), Complete(step)


SAME: dict[str, tuple[tuple[Operation, ...], tuple[Operation, ...]]] = {
    "names of requests and tokens": (admit("a", (3, 4, 3), 1), admit("z", (1, 0, 1), 5)),
    "the order of requests": (
        (Allocate("a", (1, 2)), Allocate("b", (1,))),
        (Allocate("b", (1,)), Allocate("a", (1, 2))),
    ),
    "the order of requests that look alike": (
        (Allocate("a", (1, 2)), Allocate("b", (1, 3)), Allocate("c", (2, 1))),
        (Allocate("c", (1, 3)), Allocate("a", (3, 2)), Allocate("b", (3, 1))),
    ),
    "how long ago": ((Reset(), *admit("x", (1,), 1), Free("x"), *admit("a", (1, 2), 2)), admit("b", (3, 4), 1)),
}

DIFFERENT: dict[str, tuple[tuple[Operation, ...], tuple[Operation, ...]]] = {
    "which was released first": (
        (*admit("a", (1, 1), 1), *admit("b", (1, 2), 2), Free("a"), Free("b")),
        (*admit("a", (1, 1), 1), *admit("b", (1, 2), 2), Free("b"), Free("a")),
    ),
    "equal tokens or not": (admit("a", (1, 1), 1), admit("a", (1, 2), 1)),
    "where truncation stops": ((Allocate("a", (1,)), Append("a", (1,))), (Allocate("a", (1, 1)),)),
    "a pending copy": (
        (*admit("a", (1,), 1), Fork("a", "b"), Append("b", (1,))),
        (*admit("a", (1,), 1), Fork("a", "b"), Append("b", (1,)), Dispatch(2, (("b", 1),)), Complete(2)),
    ),
    "blocks cut off in flight": (
        (*admit("a", (1, 1), 1), Append("a", (1,)), Dispatch(2, (("a", 1),)), Truncate("a", 2)),
        (*admit("a", (1, 1), 1), Append("a", (1,)), Truncate("a", 2), Append("a", (1,)), Dispatch(2, (("a", 1),))),
    ),
    "an orphan that something extends": (
        # b builds on a's second block and is cached; then the block is rolled back.
        (*admit("a", (1,), 1), Append("a", (1,)), Dispatch(2, (("a", 1),)), Complete(2),
         *(Allocate("b", (1, 1, 1, 1, 1)), Dispatch(3, (("b", 3),)), Complete(3), Free("b"), Truncate("a", 1))),
        (*admit("a", (1,), 1), Append("a", (1,)), Dispatch(2, (("a", 1),)), Complete(2),
         *(Allocate("b", (1, 1, 1, 1, 1)), Free("b"), Truncate("a", 1))),
    ),
    "which of two owners published first": (
        (Allocate("a", (1, 1)), Allocate("b", (1, 1)), Append("b", (1,)), Dispatch(1, (("a", 2), ("b", 2))),
         Complete(1)),
        (Allocate("a", (1, 1)), Allocate("b", (1, 1)), Append("b", (1,)), Dispatch(1, (("b", 2), ("a", 2))),
         Complete(1)),
    ),
    "named or not": ((Allocate("a", (1,)), Append("a", (UNKNOWN,))), (Allocate("a", (1,)), Append("a", (2,)))),
    "a reset since": ((Reset(), Allocate("a", (1, 1))), (Allocate("a", (1, 1)), Reset())),
    "freed, but in flight": (
        (Allocate("a", (1, 1)), Dispatch(1, (("a", 2),)), Free("a")),
        (Allocate("a", (1, 1)), Dispatch(1, (("a", 2),))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_names_are_no_part_of_a_state(what: str) -> None:
    first, second = SAME[what]
    assert digest_after(*first) == digest_after(*second)


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_behaves_differently_is_not_merged(what: str) -> None:
    first, second = DIFFERENT[what]
    assert digest_after(*first) != digest_after(*second)


def test_orphans_that_nothing_extends_are_no_part_of_a_state() -> None:
    # When they are swept depends on how many there are; what is found does not depend on whether they have been.
    session = Judging().session(make, Configuration(num_blocks=2, block_size=2), strict=True)
    seen = []
    for operation in admit("a", (1,), 1):
        session.apply(operation)
    for step in range(2, 12):
        for operation in (Append("a", (step,)), Dispatch(step, (("a", 1),)), Complete(step), Truncate("a", 1)):
            assert session.apply(operation).status == "done"
        index = session.target.manager._pool.index  # type: ignore[attr-defined]
        seen.append((Normal().digest(session)[0], index._num_orphans))
    assert len({digest for digest, _ in seen}) == 1
    assert len({orphans for _, orphans in seen}) > 1


# ---- clones ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_clone_of_a_session_goes_on_like_it_and_by_itself(seed: int) -> None:
    walk = Walk(f"clones/{seed}", load("kvcore")(Configuration()).capabilities)
    operations = perform(make, walk.configuration, walk.operations, drain=False).operations[:60]
    cut = len(operations) // 2
    session = Judging().session(make, walk.configuration, strict=True)
    for operation in operations[:cut]:
        session.apply(operation)
    session._matches.clear()  # a clone does not know them
    for step in [step for step, (passage, _) in session.steps.items() if passage.done]:
        del session.steps[step]
    session._completed.clear()
    before = Normal().digest(session)[0]
    copied = deepcopy(session.target)
    clone = session.clone()
    assert clone.target.canonical() == session.target.canonical() == copied.canonical()
    assert Normal().digest(clone)[0] == before
    outcomes = [clone.apply(operation) for operation in operations[cut:]]
    assert Normal().digest(session)[0] == before, "the clone has changed what it was made from"
    twin = session.clone().clone()
    assert [session.apply(operation) for operation in operations[cut:]] == outcomes
    assert clone.target.canonical() == session.target.canonical()
    assert Normal().digest(twin)[0] == before, "what it was made from has changed the clone"
    twin.drain()


def test_a_clone_has_every_attribute_of_the_core() -> None:
    target = make(Configuration(num_blocks=4, block_size=1))
    target.allocate("a", (1, 2), (), None)
    target.dispatch([("a", 2)])
    target.free("a")
    pairs = [(target.manager, target.clone().manager)]  # type: ignore[attr-defined]
    seen = set()
    while pairs:
        one, other = pairs.pop()
        seen.add(type(one).__name__)
        assert type(one) is type(other)
        for name in getattr(type(one), "__slots__", None) or vars(one):
            if name == "__weakref__":
                continue
            mine, theirs = getattr(one, name), getattr(other, name)
            if type(mine).__module__.startswith("kvcore.") and type(mine).__name__ in CHANGES:
                pairs.append((mine, theirs))
            if isinstance(mine, (list, dict)) and mine and name not in SHARED:
                assert mine is not theirs, name
            if name in ("sequences",):
                pairs += zip(mine, theirs, strict=True)
            if name == "_in_flight":
                pairs += zip(mine, theirs, strict=True)
    assert seen == {"BlockManager", "BlockPool", "PrefixIndex", "Counters", "Sequence", "Step"}


CHANGES = {"BlockManager", "BlockPool", "PrefixIndex", "Counters", "Sequence", "Step"}
SHARED = {"links"}
"""Replaced, never changed in place."""


# ---- what is found ---------------------------------------------------------------------------------------------------

SHARING = Space(Configuration(num_blocks=3, block_size=1), max_tokens=3)
TAILS = Space(Configuration(num_blocks=2, block_size=2), alphabet=1)
WEAK = Space(Configuration(num_blocks=2, block_size=1, hash_bits=0), max_tokens=2)
WHERE = {
    "NV-11": WEAK,
    "VL-15": WEAK,
    "NV-1": WEAK,
    "MS-1": WEAK,
    "TR-2": WEAK,
    "TR-4b": TAILS,
    "NV-7": WEAK,
    "CC-1": WEAK,
    "SD-1": TAILS,
    "KC-30": TAILS,
    "VL-2": WEAK,
    "NV-13": WEAK,
    "MS-4": WEAK,  # two tables that are one list: clones must keep that
    "KC-14": WEAK,  # the same with tokens
}


@pytest.mark.parametrize(
    ("name", "mode"), [(name, mode) for name in WHERE for mode in ("full", "blind")], ids=lambda value: value
)
def test_a_planted_fault_is_found_by_a_shortest_sequence(name: str, mode: str, tmp_path: Path) -> None:
    bug = find(name)
    judging = BLIND if mode == "blind" else Judging()
    factory = bug.factory()
    result = run(WHERE[name], tmp_path, factory, judging)
    assert result.status == 1 and not result.closed
    assert result.path is not None
    found = read(result.path)
    assert found == replace(result.counterexample or found)
    assert len(found.operations) <= (bug.blind_minimum if mode == "blind" else bug.minimum), found.operations
    again = perform(factory, found.configuration, found.operations, judging, strict=True)
    assert again.violation is not None
    assert (again.violation.id, again.at) == (found.property_id, found.at)
    assert perform(make, found.configuration, found.operations, judging, strict=True).violation is None


def test_without_the_drain_phase_it_is_found_by_operations_alone(tmp_path: Path) -> None:
    result = run(WEAK, tmp_path, find("NV-13").factory(), drain=False)
    assert result.drains == 0
    assert result.counterexample is not None and len(result.counterexample.operations) == 2


# ---- the command -----------------------------------------------------------------------------------------------------


def fuzz(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, ["explore", *map(str, arguments)])


SMALL = ("--blocks", 2, "--alphabet", 1, "--requests", 1, "--workers", 1)


def test_a_closed_space_ends_with_0_and_says_what_happened_in_it(tmp_path: Path) -> None:
    result = fuzz(*SMALL, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "clean, closed" in result.output and "evicted" in result.output and "refused: OutOfBlocks" in result.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["closed"] is True and summary["finding"] is None
    assert f"{summary['states']} states, {summary['transitions']:,} transitions" in result.output
    again = fuzz(*SMALL, "--out", tmp_path / "json", "--json")
    assert {**json.loads(again.output), "seconds": 0} == {**summary, "seconds": 0}


def test_a_violation_ends_with_1_and_a_file_that_replays(tmp_path: Path) -> None:
    result = fuzz(*SMALL, "--target", "fuzz.tests.broken:early", "--out", tmp_path)
    assert result.exit_code == 1, result.output
    assert "OWNERSHIP: block 0 is in the index" in result.output
    (path,) = (tmp_path / "findings").glob("OWNERSHIP-*/counterexample.json")
    assert len(read(path).operations) == 2
    assert CliRunner().invoke(app, ["replay", "--quiet", str(path)]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hash-bits", 8), "hash bits are 8; give 128 or 0"),
        (("--alphabet", 0), "alphabet is 0; give 1 to 16"),
        (("--without", "fork,spoon"), "cannot leave out spoon; can be left out: append, truncate, fork"),
        (("--memory", "much"), "'much' is not a size; give 4GiB"),
        (("--target", "nobody"), "no target 'nobody'"),
        (("--target", "fuzz.tests.test_explore:no_clones"), "no capability CLONE"),
        (("--resume",), "no exploration to resume"),
    ],
)
def test_what_makes_no_sense_ends_with_2(arguments: tuple[Any, ...], said: str, tmp_path: Path) -> None:
    result = fuzz("--out", tmp_path / "out", *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_an_interrupted_run_ends_with_130_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        ticks = itertools.count()

        def pressed(self: Any) -> float:
            if next(ticks) == 5:
                raise KeyboardInterrupt
            return 0.0

        patched.setattr(Interruptible, "__call__", pressed)
        result = fuzz(*SMALL, "--out", tmp_path)
    assert result.exit_code == 130, result.output
    assert "go on with --resume" in result.output
    assert fuzz(*SMALL, "--out", tmp_path).exit_code == 2
    resumed = fuzz(*SMALL, "--out", tmp_path, "--resume")
    assert resumed.exit_code == 0 and "closed" in resumed.output


def test_bounds_are_checked() -> None:
    with pytest.raises(BadSpace, match="steps is 0; give 1 to 16"):
        Space(steps=0)


def no_clones(configuration: Configuration) -> KvcoreTarget:
    target = make(configuration)
    target.capabilities = target.capabilities - {Capability.CLONE}  # type: ignore[misc]
    return target


def test_a_target_that_can_do_less_is_explored_with_what_it_can(tmp_path: Path) -> None:
    def less(configuration: Configuration) -> KvcoreTarget:
        target = make(configuration)
        target.capabilities = frozenset({Capability.CLONE})  # type: ignore[misc]
        return target

    result = run(replace(WIDER, steps=2, namespaces=2, placeholders=True, requests=1), tmp_path, less)
    assert result.closed and set(result.kinds) == {"allocate", "append", "dispatch", "complete", "free"}
    assert result.lookups == 0
    shutil.rmtree(tmp_path)
