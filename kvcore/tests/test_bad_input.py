"""Every way in which the core says no: the right error, a message that helps, and nothing changed.

One busy manager, one table of bad calls. For each call: exactly this error class, the words that its message must
contain (what was given, what is allowed), and the same state before and after.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvcore import (
    UNKNOWN,
    AlreadyCompleted,
    BlockManager,
    CacheConfig,
    CacheError,
    DuplicateRequest,
    EmptyDispatch,
    ForeignStep,
    InvalidConfiguration,
    InvalidCount,
    InvalidFill,
    InvalidLength,
    InvalidNamespace,
    InvalidPadding,
    InvalidTokens,
    MatchMismatch,
    Namespace,
    NeverFits,
    NotComputed,
    NotNamed,
    OutOfBlocks,
    OutOfOrder,
    Refusal,
    RepeatedRequest,
    UnknownRequest,
    errors,
    weak_hash,
)
from kvcore.state import inside

from .support import admit, cache, dispatch_all, manager_of, run, state

TOKEN_RANGE = "integers from 0 to 2147483647"


class Scene:
    """A manager of 13 blocks of 4 in which everything is going on at once; 3 blocks are available.

    done: computed, 6 tokens in 2 blocks. shared, twin: a fork whose child has a copy waiting. flying: 5 tokens, in the
    steps `older` and `newer`. ghost: freed in flight, in `older`. unnamed: computed, with a placeholder at 2. new: 3
    tokens, not dispatched. Cached: two blocks.
    """

    def __init__(self) -> None:
        m = self.manager = manager_of(13, 4)
        cache(m, range(100, 108))
        admit(m, "done", range(6))
        admit(m, "shared", range(20, 23))
        m.fork("shared", "twin")
        m.append("twin", [9])
        admit(m, "unnamed", [30, 31])
        m.append("unnamed", [UNKNOWN])
        self.finished = run(m, "unnamed")
        m.allocate("new", range(40, 43))
        m.allocate("flying", range(50, 55))
        m.allocate("ghost", range(60, 65))
        self.older = m.dispatch([("flying", 3), ("ghost", 5)])
        self.newer = m.dispatch([("flying", 1)])
        m.free("ghost")
        self.match = m.lookup(range(100, 109))
        other = manager_of(13, 4)
        other.allocate("a", [1, 2])
        self.foreign_done = other.dispatch([("a", 1)])
        other.complete(self.foreign_done)
        self.foreign = dispatch_all(other, "a")
        self.foreign_match = other.lookup(range(100, 109))
        m.check()


Call = Callable[[BlockManager, Scene], Any]
BAD_CALLS: list[tuple[str, type[CacheError], Call, tuple[str, ...]]] = []


def bad(name: str, error: type[CacheError], call: Call, *words: str) -> None:
    BAD_CALLS.append((name, error, call, words))


# ---- tokens: the same for every method that takes them ---------------------------------------------------------------

BAD_TOKENS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "empty list": ([], ("empty", "at least one token")),
    "empty array": (np.array([], dtype=np.int32), ("empty", "at least one token")),
    "negative": ([1, -2], ("-2", "position 1")),
    "2**31": ([1, 2, 2**31], ("2147483648", "position 2")),
    "2**80": ([2**80], (str(2**80), "position 0")),
    "float": ([1, 2.0], ("2.0", "position 1")),
    "none inside": ([None], ("None", "position 0")),
    "string inside": (["a"], ("'a'", "position 0")),
    "nested": ([[1, 2]], ("[1, 2]", "position 0")),
    "str": ("12", ("str",)),
    "bytes": (b"12", ("bytes",)),
    "bytearray": (bytearray(b"12"), ("bytearray",)),
    "number": (7, ("int",)),
    "none": (None, ("NoneType",)),
    "set": ({1, 2}, ("set",)),
    "dict": ({1: 2}, ("dict",)),
    "numpy float": (np.array([1.0]), ("float64", "one-dimensional")),
    "numpy bool": (np.array([True]), ("bool", "one-dimensional")),
    "numpy 2-d": (np.zeros((2, 2), dtype=np.int32), ("(2, 2)", "one-dimensional")),
    "numpy 0-d": (np.array(3), ("()", "one-dimensional")),
    "numpy negative": (np.array([1, -7]), ("-7", "position 1")),
    "numpy small negative": (np.array([-7], dtype=np.int8), ("-7", "position 0")),
    "numpy int32 negative": (np.array([1, -7], dtype=np.int32), ("-7", "position 1")),
    "numpy too large": (np.array([1, 2**31]), ("2147483648", "position 1")),
    "numpy unsigned too large": (np.array([2**64 - 1], dtype=np.uint64), (str(2**64 - 1), "position 0")),
}

for _name, (_tokens, _words) in BAD_TOKENS.items():
    for _method, _call in (
        ("lookup", lambda m, s, tokens=_tokens: m.lookup(tokens)),
        ("allocate", lambda m, s, tokens=_tokens: m.allocate("x", tokens)),
        ("append", lambda m, s, tokens=_tokens: m.append("done", tokens)),
        ("fill", lambda m, s, tokens=_tokens: m.fill("unnamed", 2, tokens)),
    ):
        bad(f"{_method} {_name}", InvalidTokens, _call, *_words)

bad("lookup placeholder", InvalidTokens, lambda m, s: m.lookup([1, UNKNOWN]), "-1", TOKEN_RANGE)
bad("allocate placeholder", InvalidTokens, lambda m, s: m.allocate("x", [1, UNKNOWN]), "-1", TOKEN_RANGE)
bad("fill with a placeholder", InvalidTokens, lambda m, s: m.fill("unnamed", 2, [UNKNOWN]), "-1", TOKEN_RANGE)
bad("append below placeholder", InvalidTokens, lambda m, s: m.append("done", [-2]), "-2", "integers from -1 to")

# ---- namespaces and matches ------------------------------------------------------------------------------------------

for _space in (None, "salt", 5, {"salt": "s"}):
    bad(
        f"lookup in namespace {_space!r}",
        InvalidNamespace,
        lambda m, s, space=_space: m.lookup([1], space),
        repr(_space),
        "kvcore.Namespace",
    )
    bad(
        f"allocate in namespace {_space!r}",
        InvalidNamespace,
        lambda m, s, space=_space: m.allocate("x", [1], space),
        repr(_space),
        "kvcore.Namespace",
    )
bad(
    "allocate in no namespace with a match",
    InvalidNamespace,
    lambda m, s: m.allocate("x", range(100, 109), None, s.match),
    "None",
    "kvcore.Namespace",
)
bad(
    "match of another manager",
    MatchMismatch,
    lambda m, s: m.allocate("x", range(100, 109), match=s.foreign_match),
    "this manager",
    "lookup",
)
bad("match that is none", MatchMismatch, lambda m, s: m.allocate("x", [1], match=5), "5", "lookup")
bad(
    "match for other tokens",
    MatchMismatch,
    lambda m, s: m.allocate("x", range(101, 110), match=s.match),
    "other tokens",
    "look up again",
)
bad(
    "match for fewer tokens",
    MatchMismatch,
    lambda m, s: m.allocate("x", range(100, 108), match=s.match),
    "other tokens",
    "look up again",
)
bad(
    "match for another namespace",
    MatchMismatch,
    lambda m, s: m.allocate("x", range(100, 109), Namespace(salt=""), s.match),
    "another namespace",
    "look up again",
)

# ---- requests --------------------------------------------------------------------------------------------------------

for _request in ("nobody", "ghost", None, ("done",), 0):
    for _method, _call in (
        ("append", lambda m, s, request=_request: m.append(request, [1])),
        ("fill", lambda m, s, request=_request: m.fill(request, 0, [1])),
        ("dispatch", lambda m, s, request=_request: m.dispatch([("new", 1), (request, 1)])),
        ("truncate", lambda m, s, request=_request: m.truncate(request, 1)),
        ("fork", lambda m, s, request=_request: m.fork(request, "x")),
        ("free", lambda m, s, request=_request: m.free(request)),
        ("sequence", lambda m, s, request=_request: m.sequence(request)),
    ):
        bad(f"{_method} of {_request!r}", UnknownRequest, _call, repr(_request), "allocate")

bad("allocate a live id", DuplicateRequest, lambda m, s: m.allocate("new", [1]), "'new'", "another id")
bad("fork to a live id", DuplicateRequest, lambda m, s: m.fork("done", "new"), "'new'", "another id")
bad("fork to itself", DuplicateRequest, lambda m, s: m.fork("done", "done"), "'done'", "another id")

# ---- room ------------------------------------------------------------------------------------------------------------

bad("allocate too much for now", OutOfBlocks, lambda m, s: m.allocate("x", range(200, 213)), "'x'", "3 of 13", "wait")
bad("allocate more than the pool", NeverFits, lambda m, s: m.allocate("x", range(53)), "'x'", "14 blocks", "of 13")
bad("append more than there is", OutOfBlocks, lambda m, s: m.append("done", range(15)), "'done'", "3 of 13", "wait")
bad("append a copy too much", OutOfBlocks, lambda m, s: m.append("shared", range(10)), "'shared'", "4 more", "3 of 13")
bad("append more than the pool", NeverFits, lambda m, s: m.append("done", range(47)), "'done'", "14 blocks", "of 13")

# ---- dispatch --------------------------------------------------------------------------------------------------------

for _count in (0, -1, 4, 2**70, 1.0, True, "1", None):
    bad(
        f"dispatch {_count!r}",
        InvalidCount,
        lambda m, s, count=_count: m.dispatch([("flying", 1), ("new", count)]),
        "'new'",
        repr(_count),
        "3 are unscheduled",
        "from 1",
    )
bad("dispatch of nothing left", InvalidCount, lambda m, s: m.dispatch([("done", 1)]), "'done'", "0 are", "append first")
bad("empty dispatch", EmptyDispatch, lambda m, s: m.dispatch([]), "at least one")
bad("empty dispatch from a generator", EmptyDispatch, lambda m, s: m.dispatch(iter(())), "at least one")
bad("repeated", RepeatedRequest, lambda m, s: m.dispatch([("new", 1), ("flying", 1), ("new", 1)]), "'new'", "once")
bad(
    "the first bad entry counts",
    InvalidCount,
    lambda m, s: m.dispatch([("new", 9), ("nobody", 1), ("new", 1)]),
    "'new'",
)

# ---- complete --------------------------------------------------------------------------------------------------------

bad("complete out of order", OutOfOrder, lambda m, s: m.complete(s.newer), "step 6", "step 5", "first")
bad("complete twice", AlreadyCompleted, lambda m, s: m.complete(s.finished), "step 4", "once")
bad("complete a foreign step", ForeignStep, lambda m, s: m.complete(s.foreign), "Step 1", "this manager")
bad("complete a foreign finished step", ForeignStep, lambda m, s: m.complete(s.foreign_done), "Step 0", "this manager")
for _step in (None, 3, "step"):
    bad(f"complete {_step!r}", ForeignStep, lambda m, s, step=_step: m.complete(step), repr(_step), "dispatch returned")

# ---- truncate, fork, fill --------------------------------------------------------------------------------------------

for _length in (2, 0, -1, 5, 2**70, 3.0, True, "3", None):
    bad(
        f"truncate to {_length!r}",
        InvalidLength,
        lambda m, s, length=_length: m.truncate("twin", length),
        "'twin'",
        repr(_length),
        "from 3",
        "to 4",
    )
bad("fork of what is not dispatched", NotComputed, lambda m, s: m.fork("new", "x"), "'new'", "0 of 3", "complete")
bad("fork of what is in flight", NotComputed, lambda m, s: m.fork("flying", "x"), "'flying'", "2 steps", "complete")
bad("fork of what has no name", NotNamed, lambda m, s: m.fork("unnamed", "x"), "'unnamed'", "1 placeholder", "fill")

for _position, _tokens in ((1, [7]), (2, [7, 7]), (3, [7]), (-1, [7]), (0, [7, 7, 7]), (2**70, [7])):
    bad(
        f"fill {len(_tokens)} at {_position}",
        InvalidFill,
        lambda m, s, position=_position, tokens=_tokens: m.fill("unnamed", position, tokens),
        "'unnamed'",
        str(_position),
        "3 tokens",
        "1 of them unnamed",
    )
for _position in (2.0, "2", None):
    bad(
        f"fill at {_position!r}",
        InvalidFill,
        lambda m, s, position=_position: m.fill("unnamed", position, [7]),
        "'unnamed'",
        repr(_position),
    )
bad(
    "fill of what has its names",
    InvalidFill,
    lambda m, s: m.fill("done", 0, [0, 1]),
    "positions 0 to 1 are",
    "0 of them",
)


@pytest.mark.parametrize(("error", "call", "words"), [pytest.param(*rest, id=name) for name, *rest in BAD_CALLS])
def test_a_bad_call_says_why_and_changes_nothing(error: type[CacheError], call: Call, words: tuple[str, ...]):
    scene = Scene()
    manager = scene.manager
    before, refusals = state(manager), manager.statistics().refusals
    with pytest.raises(CacheError) as caught:
        call(manager, scene)
    assert type(caught.value) is error
    assert state(manager) == before
    assert manager.statistics().refusals == refusals + issubclass(error, Refusal)
    for word in words:
        assert word in str(caught.value)
    manager.check()


def test_the_scene_has_what_it_says():
    manager = Scene().manager
    seen = manager.statistics()
    assert inside(manager).pool.available == 3
    assert (seen.cached_blocks, seen.requests, seen.steps_in_flight) == (2, 6, 2)
    assert manager.sequence("twin").pending is not None


def test_bad_calls_leave_no_trace_in_what_follows():
    used, fresh = Scene(), Scene()
    for _, _, call, _ in BAD_CALLS:
        with pytest.raises((CacheError, TypeError)):
            call(used.manager, used)
    for scene in (used, fresh):
        manager = scene.manager
        manager.complete(scene.older)
        manager.append("shared", [1, 2])
        manager.complete(scene.newer)
        run(manager, "shared", "twin", "new", "flying")
        manager.fill("unnamed", 2, [32])
        for request in ("twin", "done", "new"):
            manager.free(request)
        manager.allocate("x", range(100, 117))
    assert inside(used.manager).pool.references == inside(fresh.manager).pool.references
    assert used.manager.sequence("x").table == fresh.manager.sequence("x").table
    assert list(inside(used.manager).pool.index) == list(inside(fresh.manager).pool.index)


def test_every_error_class_is_provoked():
    provoked = {error for _, error, _, _ in BAD_CALLS}
    elsewhere = {CacheError, Refusal, errors.InvalidConfiguration, errors.InvalidPadding, errors.Corrupted}
    elsewhere |= {errors.InvalidAttention, errors.InvalidBatch, errors.InvalidCopies, errors.InvalidTensor}
    elsewhere |= {errors.PlanTooLarge, errors.StorageTooLarge}
    assert provoked | elsewhere == {getattr(errors, name) for name in errors.__all__}


def test_every_error_can_be_caught_as_one():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), CacheError)
    assert issubclass(OutOfBlocks, Refusal) and issubclass(NeverFits, Refusal)
    assert not issubclass(OutOfBlocks, NeverFits) and not issubclass(NeverFits, OutOfBlocks)


def test_a_request_is_freed_once():
    manager = manager_of()
    manager.allocate("a", [1])
    manager.free("a")
    before = state(manager)
    with pytest.raises(UnknownRequest, match="'a'"):
        manager.free("a")
    assert state(manager) == before


def test_a_step_completes_once():
    manager = manager_of()
    manager.allocate("a", [1])
    step = run(manager, "a")
    before = state(manager)
    with pytest.raises(AlreadyCompleted):
        manager.complete(step)
    assert state(manager) == before


def test_a_fork_whose_parent_is_computed_but_in_flight_is_refused():
    manager = manager_of()
    manager.allocate("a", [1, 2])
    step = run(manager, "a")
    manager.append("a", [3])
    dispatch_all(manager, "a")
    manager.truncate("a", 2)
    assert manager.sequence("a").computed == 2 and step.completed
    with pytest.raises(NotComputed, match="1 steps in flight"):
        manager.fork("a", "b")


# ---- what has no manager yet -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["num_blocks", "block_size"])
@pytest.mark.parametrize("value", [0, -1, 2**31, 1.0, True, "4", None, np.int64(4)])
def test_sizes_are_integers_from_1(name: str, value: Any):
    sizes = {"num_blocks": 4, "block_size": 4, name: value}
    words = f"{name} must be an integer from 1 to .*got {re.escape(repr(value))}"
    with pytest.raises(InvalidConfiguration, match=words):
        CacheConfig(**sizes)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("caching", 1, "caching must be True or False, got 1"),
        ("caching", None, "caching must be True or False, got None"),
        ("reuse", "last_block", "reuse must be a ReusePolicy, got 'last_block'"),
        ("hash_function", None, "hash_function must be callable .bytes to bytes., got None"),
        ("hash_function", b"xxh3", "hash_function must be callable .bytes to bytes., got b'xxh3'"),
    ],
)
def test_the_other_fields_say_what_they_may_be(field: str, value: Any, words: str):
    with pytest.raises(InvalidConfiguration, match=words):
        CacheConfig(num_blocks=4, **{field: value})


def test_a_hash_function_takes_any_bytes_and_returns_bytes():
    given = []

    def picky(data: bytes) -> bytes:
        given.append(data)
        raise ValueError("nothing to hash")

    words = r"^hash_function must take any bytes; given none it raised ValueError\('nothing to hash'\)$"
    with pytest.raises(InvalidConfiguration, match=words):
        CacheConfig(num_blocks=4, hash_function=picky)
    assert given == [b""]
    with pytest.raises(InvalidConfiguration, match=r"^hash_function must return bytes, got 0$"):
        CacheConfig(num_blocks=4, hash_function=len)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 2**31 - 1])
def test_a_block_size_need_not_be_a_power_of_two(size: int):
    assert CacheConfig(num_blocks=2**31 - 1, block_size=size).block_size == size


def test_the_largest_pool_has_as_many_slots_as_both_sizes_allow():
    config = CacheConfig(num_blocks=2**31 - 1, block_size=2**31 - 1)
    assert config.num_blocks * config.block_size < 2**62


@pytest.mark.parametrize("bits", [-1, 129, 1.5, "8", None])
def test_hash_bits_are_from_0_to_128(bits: Any):
    with pytest.raises(InvalidConfiguration, match=f"from 0 to 128, got {re.escape(repr(bits))}"):
        weak_hash(bits)


@pytest.mark.parametrize("part", ["model", "weights", "adapter", "media", "salt"])
@pytest.mark.parametrize("value", [0, b"x", 1.5, ["x"], False])
def test_namespace_parts_are_none_or_strings(part: str, value: Any):
    words = f"{part} must be None or a string, got {re.escape(repr(value))}; encode other values into a string "
    with pytest.raises(InvalidNamespace, match=f"{words}yourself$"):
        Namespace(**{part: value})


@pytest.mark.parametrize("size", ["tokens", "sequences", "blocks"])
def test_a_batch_is_padded_to_its_own_size_at_least(size: str):
    manager = manager_of()
    manager.allocate("a", range(7))
    manager.allocate("b", range(7))
    batch = dispatch_all(manager, "a", "b").batch
    own = {"tokens": 14, "sequences": 2, "blocks": 2}[size]
    assert batch.padded(**{size: own}).num_tokens == 14
    for wanted in (own - 1, 0, -1, own + 0.5, str(own)):
        with pytest.raises(InvalidPadding, match=f"{wanted!r} {size}: the batch has {own}; give an int from {own}"):
            batch.padded(**{size: wanted})


def test_a_token_too_large_for_int32_is_named_as_given():
    with pytest.raises(InvalidTokens, match=r"(?<!-)2147483648"):
        manager_of().lookup(np.array([2**31]))


def test_the_largest_token_is_allowed():
    manager = manager_of()
    for request, tokens in enumerate(([2**31 - 1], np.array([2**31 - 1]), np.array([2**31 - 1], dtype=np.uint32))):
        assert list(manager.allocate(request, tokens).tokens) == [2**31 - 1]
