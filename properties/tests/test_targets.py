"""Finding a target by name, and the kvcore adapter: what it shows of the core, its clones and its canonical form."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from properties import targets
from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fork,
    Free,
    Lookup,
    Namespace,
    Operation,
    Reset,
    Truncate,
)
from properties.session import Session
from properties.target import Capability, Refused
from properties.targets import UnknownTarget, load
from properties.targets import kvcore as adapter
from properties.targets.kvcore import KvcoreTarget, make

from .support import PROMPT, SALT, TOUR, admit, done, drive, session_of, stumbling

NOT_CALLABLE = 5


def a_factory(configuration: Configuration) -> KvcoreTarget:
    """Found by test_a_factory_is_found_anywhere."""
    return KvcoreTarget(configuration)


# ---- load ------------------------------------------------------------------------------------------------------------


def test_a_file_of_the_folder_is_found_by_its_name() -> None:
    assert load("kvcore") is make
    target = load("kvcore")(Configuration(num_blocks=3, block_size=2, reuse="last_token", caching=False))
    assert target.name == "kvcore"
    assert (target.policy.num_blocks, target.policy.block_size) == (3, 2)
    assert (target.policy.reuse, target.policy.caching, target.policy.exact) == ("last_token", False, True)


def test_a_factory_is_found_anywhere() -> None:
    assert load("properties.targets.kvcore:make") is make
    assert load("properties.targets.kvcore:KvcoreTarget") is KvcoreTarget
    assert load(f"{__name__}:a_factory") is a_factory


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("vllm_of_mine", "properties.targets.vllm_of_mine"),
        ("", "properties.targets."),
        ("no_such_package.adapter:make", "no_such_package.adapter"),
        ("properties.no_such_module:make", "properties.no_such_module"),
    ],
)
def test_an_unknown_module_is_named_with_what_may_be_given(name: str, module: str) -> None:
    with pytest.raises(UnknownTarget) as caught:
        load(name)
    message = str(caught.value)
    assert message.startswith(f"no target {name!r}: cannot import {module} (")
    assert message.endswith(f"; name one of {', '.join(targets.available())}, or package.module:factory")
    assert {"kvcore", "nano_vllm", "sglang", "vllm"} <= set(targets.available())


def test_a_registered_adapter_is_loaded_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "properties.targets.kvcore:make", "properties.targets")
    monkeypatch.setattr(
        targets, "entry_points", lambda group, name="mine": EntryPoints([point]).select(group=group, name=name)
    )
    assert load("mine") is adapter.make
    assert targets.available()[-1] == "mine"


@pytest.mark.parametrize("name", [":make", ".adapter:make"])
def test_a_name_without_an_absolute_module_is_no_target(name: str) -> None:
    with pytest.raises(UnknownTarget, match=f"no target {name!r}"):
        load(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("properties.target:make", "no target 'properties.target:make': properties.target has no callable 'make'"),
        ("os:sep", "no target 'os:sep': os has no callable 'sep'"),
    ],
)
def test_an_attribute_that_is_not_there_or_not_callable_is_named(name: str, message: str) -> None:
    with pytest.raises(UnknownTarget) as caught:
        load(name)
    assert str(caught.value) == message


def test_a_module_that_cannot_import_what_it_needs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "an_adapter_in_need.py").write_text("import no_such_core\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownTarget, match="No module named 'no_such_core'"):
        load("an_adapter_in_need:make")
    assert "an_adapter_in_need" not in sys.modules


def test_a_refusal_of_another_core_carries_its_kind() -> None:
    assert (Refused("OutOfBlocks").kind, str(Refused("OutOfBlocks"))) == ("OutOfBlocks", "OutOfBlocks")
    assert (Refused("NeverFits", "12 > 8").kind, str(Refused("NeverFits", "12 > 8"))) == ("NeverFits", "12 > 8")


# ---- what the adapter shows ------------------------------------------------------------------------------------------


def test_kvcore_leaves_nothing_out_of_the_protocol() -> None:
    assert KvcoreTarget.capabilities == frozenset(Capability)


def described(target: KvcoreTarget) -> dict[int, tuple[Namespace, tuple[int, ...]]]:
    """What the index claims, written out."""
    return {block: claim.describe() for block, claim in target.contents().items()}


def test_contents_are_whole_histories_with_their_namespaces() -> None:
    space = (("adapter", "x"), ("salt", ""))
    session = done(
        session_of(num_blocks=8, block_size=2),
        *admit("a", (1, 2, 3, 4, 5), 1),
        *admit("b", (1, 2, 3, 4), 2, space),
    )
    assert described(session.target) == {
        0: ((), (1, 2)),
        1: ((), (1, 2, 3, 4)),
        3: (space, (1, 2)),
        4: (space, (1, 2, 3, 4)),
    }
    done(session, Free("a"), Free("b"), Reset())
    assert session.target.contents() == {}


def test_contents_name_every_owner_of_a_duplicate() -> None:
    session = done(
        session_of(num_blocks=4, block_size=2),
        Allocate("a", (1, 2, 3)),
        Allocate("b", (1, 2, 3)),
        Dispatch(1, (("a", 3), ("b", 3))),
        Complete(1),
    )
    assert described(session.target) == {0: ((), (1, 2)), 2: ((), (1, 2))}


@pytest.mark.parametrize("bits", [0, 1, 128])
def test_contents_do_not_depend_on_the_hash(bits: int) -> None:
    session = done(session_of(num_blocks=6, block_size=1, hash_bits=bits), *admit("a", (1, 2, 1, 2), 1))
    assert described(session.target) == {0: ((), (1,)), 1: ((), (1, 2)), 2: ((), (1, 2, 1)), 3: ((), (1, 2, 1, 2))}


def test_counts_states_and_inspection_agree() -> None:
    session = done(session_of(num_blocks=6, block_size=2), *admit("a", (1, 2, 3, 4, 5), 1), *admit("b", (9,), 2))
    done(session, Free("a"))
    target = session.target
    seen = target.inspect()
    assert seen.references == [0, 0, 0, 1, 0, 0]
    assert seen.published == [True, True, False, False, False, False]
    assert target.states([3, 0, 2]) == [(1, False), (0, True), (0, False)]
    assert target.counts() == (3, 2, 1)
    assert (seen.free, seen.cached) == ([4, 5, 2], [1, 0])
    assert (seen.tables, seen.lengths) == ({"b": [3]}, {"b": (1, 1, 1)})


def test_a_table_is_a_list_that_the_core_does_not_change_later() -> None:
    session = done(session_of(block_size=2), Allocate("a", (1, 2)))
    table = session.target.table("a")
    tables = session.target.inspect().tables
    done(session, Append("a", (3,)))
    assert (table, tables) == ([0], {"a": [0]})
    assert session.target.table("a") == [0, 1]


def test_a_constant_hash_collides_and_is_noticed() -> None:
    session = session_of(block_size=2, hash_bits=0)
    done(session, Allocate("a", (1, 2)))
    assert session.target.noticed()["hash collision"] >= 1
    before = session.target.noticed()["hash collision"]
    done(session, Lookup((3, 4)))
    assert session.target.noticed()["hash collision"] > before


def test_the_same_content_hashed_again_is_no_collision() -> None:
    session = done(session_of(block_size=2, hash_bits=16), Lookup((1, 2, 3, 4)), Lookup((1, 2, 3, 4)))
    assert session.target.noticed() == {}


def test_a_wide_hash_notices_nothing() -> None:
    session = session_of()
    drive(session, *TOUR)
    assert session.target.noticed() == {}


# ---- clones ----------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"num_blocks": 5, "block_size": 2, "hash_bits": 1, "reuse": "last_token"}


def at(*operations: Operation, **options: Any) -> KvcoreTarget:
    """A target after some operations, tried or done."""
    session = session_of(**options)
    drive(session, *operations)
    target = session.target
    assert isinstance(target, KvcoreTarget)
    return target


def test_the_canonical_form_is_hashable_and_nested_tuples() -> None:
    form = at(*TOUR[:-6]).canonical()
    assert {form: 1}[at(*TOUR[:-6]).canonical()] == 1
    assert isinstance(form, tuple)


@pytest.mark.parametrize("seed", range(6))
def test_the_same_operations_lead_to_equal_canonical_forms(seed: int) -> None:
    operations = stumbling(seed, 60)
    assert at(*operations, **OPTIONS).canonical() == at(*operations, **OPTIONS).canonical()


@pytest.mark.parametrize("seed", range(6))
def test_a_clone_has_an_equal_canonical_form(seed: int) -> None:
    target = at(*stumbling(seed, 60), **OPTIONS)
    assert target.clone().canonical() == target.canonical()


def test_each_change_of_a_clone_leaves_the_original_alone() -> None:
    session = session_of()
    for operation in TOUR[:-1]:
        before = session.target.canonical()
        counts, contents = session.target.counts(), described(session.target)
        clone = session.target.clone()
        clone.allocate("only in the clone", PROMPT[:1], (), None)
        view = clone.dispatch([("only in the clone", 1)])
        assert clone.canonical() != before
        assert session.target.canonical() == before
        assert (session.target.counts(), described(session.target)) == (counts, contents)
        clone.reset()
        clone.free("only in the clone")
        assert view.handle is not None and session.target.canonical() == before
        assert session.apply(operation).status == "done"


def test_a_clone_does_not_follow_the_original() -> None:
    target = at(*admit("a", PROMPT, 1))
    clone = target.clone()
    before = clone.canonical()
    target.free("a")
    assert clone.canonical() == before != target.canonical()


@pytest.mark.parametrize("namespace", [(), SALT])
def test_a_clone_hits_what_the_original_hits(namespace: Any) -> None:
    target = at(*admit("a", PROMPT, 1, namespace))
    clone = target.clone()
    assert target.lookup(PROMPT, namespace).tokens == 4
    assert clone.lookup(PROMPT, namespace).tokens == 4


def test_a_clone_passes_the_cores_own_check() -> None:
    clone = at(*admit("a", PROMPT, 1)).clone()
    clone.check()


@pytest.mark.parametrize("seed", range(6))
def test_a_clone_goes_on_exactly_like_the_original(seed: int) -> None:
    options: dict[str, Any] = {**OPTIONS, "num_blocks": 12, "block_size": 1}
    original, follower = session_of(**options), session_of(**options)
    first = (*admit("p", (0, 0, 1), 1001), Free("p"), *admit("q", (0, 0, 0, 1), 1002, SALT), *stumbling(seed, 40))
    for session in (original, follower):
        drive(session, *first)
        drive(session, *(Complete(step) for step, (passage, _) in list(session.steps.items()) if not passage.done))
        for names in (session._matches, session.steps, session._completed):
            names.clear()  # they belong to the session's first target
    follower.target = original.target.clone()
    second = stumbling(seed + 100, 60)
    assert drive(follower, *second) == drive(original, *second)
    assert follower.target.canonical() == original.target.canonical()
    follower.drain()


def test_noticed_is_cloned_with_the_rest() -> None:
    target = at(Allocate("a", (1, 2, 3, 4)), block_size=2, hash_bits=0)
    clone = target.clone()
    collisions = target.noticed()["hash collision"]
    assert clone.noticed() == target.noticed()
    clone.lookup((5, 6), ())
    assert clone.noticed()["hash collision"] > collisions
    assert target.noticed()["hash collision"] == collisions


A, B = Allocate("a", (1, 2)), Allocate("b", (1, 2))
WHERE_THEY_PART: dict[str, tuple[tuple[Operation, ...], tuple[Operation, ...], tuple[Operation, ...]]] = {
    "tokens": ((Allocate("a", (1,)),), (Allocate("a", (2,)),), ()),
    "what was free first": (
        (A, B, Free("a"), Free("b")),
        (A, B, Free("b"), Free("a")),
        (Allocate("c", (9,) * 14),),
    ),
    "what is published": ((A, Dispatch(1, (("a", 2),))), (A, Dispatch(1, (("a", 2),)), Complete(1)), ()),
    "where truncation stops": (
        (*admit("a", (1,), 1), Append("a", (2,))),
        (Allocate("a", (1, 2)), Dispatch(1, (("a", 1),)), Complete(1)),
        (Truncate("a", 1),),
    ),
    "the namespace of what is not published yet": (
        (A,),
        (Allocate("a", (1, 2), SALT),),
        (Dispatch(1, (("a", 2),)), Complete(1), Lookup((1, 2, 3))),
    ),
    "a reset since the allocation": (
        (Reset(), A),
        (A, Reset()),
        (Dispatch(1, (("a", 2),)), Complete(1), Lookup((1, 2, 3))),
    ),
    "which request the older step carries": (
        (A, B, Dispatch(1, (("a", 2),)), Dispatch(2, (("b", 2),))),
        (A, B, Dispatch(1, (("b", 2),)), Dispatch(2, (("a", 2),))),
        (Complete(1), Free("a"), Lookup((1, 2, 3))),
    ),
    "which of two owners published first": (
        (A, B, Dispatch(1, (("a", 2),)), Dispatch(2, (("b", 2),)), Complete(1), Complete(2)),
        (A, B, Dispatch(1, (("b", 2),)), Dispatch(2, (("a", 2),)), Complete(1), Complete(2)),
        (Lookup((1, 2, 3)),),
    ),
    "which freed request waits for which step": (
        (A, B, Dispatch(1, (("a", 2),)), Dispatch(2, (("b", 2),)), Free("a"), Free("b")),
        (A, B, Dispatch(1, (("b", 2),)), Dispatch(2, (("a", 2),)), Free("a"), Free("b")),
        (Complete(1), Lookup((1, 2, 3))),
    ),
    "whether a copy pends": (
        # One of two tables is switched; the other holder is gone, and the pending copy holds the source.
        (*admit("a", (1,), 1), Fork("a", "b"), Append("b", (2,)), Free("a")),
        (Allocate("x", (1,)), *admit("b", (1,), 1), Append("b", (2,))),
        (Dispatch(2, (("b", 1),)),),
    ),
}


def behaviour(session: Session, probe: tuple[Operation, ...]) -> list[Any]:
    """What the target says and chooses from here on."""
    target = session.target
    seen: list[Any] = []
    for operation in probe:
        seen.append(tuple(session.apply(operation)))
        seen.append(target.lookup((1, 2, 3), ()).blocks)
        seen.append({request: target.table(request) for request in session.judge.sequences})
        seen.append(target.counts())
    return seen


@pytest.mark.parametrize("case", WHERE_THEY_PART)
def test_targets_that_behave_differently_have_different_canonical_forms(case: str) -> None:
    first, second, probe = WHERE_THEY_PART[case]
    one, other = session_of(block_size=2), session_of(block_size=2)
    done(one, *first)
    done(other, *second)
    forms = one.target.canonical(), other.target.canonical()
    if probe:
        assert behaviour(one, probe) != behaviour(other, probe)
    assert forms[0] != forms[1]


def test_the_adapter_names_a_refusal_by_its_class_and_passes_corruption_on() -> None:
    target = make(Configuration(num_blocks=1, block_size=1))
    with pytest.raises(target.refusals) as caught:
        target.append("nobody", (1,))
    assert target.kind(caught.value) == "UnknownRequest"
    corrupted = adapter.kvcore.Corrupted("clause", "message")
    with pytest.raises(adapter.kvcore.Corrupted):
        target.kind(corrupted)


def test_a_placeholder_is_part_of_the_canonical_form() -> None:
    one = at(Allocate("a", (1,)), Append("a", (UNKNOWN,)))
    other = at(Allocate("a", (1,)), Append("a", (1,)))
    assert one.canonical() != other.canonical()
