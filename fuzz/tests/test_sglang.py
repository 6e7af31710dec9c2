"""SGLang's adapter, against the real package: what it does in each place where a core may choose, that planted faults
are found, and what it does not keep apart. `make cores` installs it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import Any

import pytest

from fuzz.engines.engine import Assignment
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.runs.values import Judging
from properties.moves import NAMESPACES, Moves, Swarm
from properties.operations import (
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Free,
    Lookup,
    Namespace,
    Operation,
    encode,
)
from properties.session import Session
from properties.target import TargetFactory
from properties.targets import sglang
from properties.targets.sglang import SglangTarget, make, make_overlap, make_python, make_radix, make_raw
from reference import Isolation, Violation

real = pytest.mark.skipif(find_spec("sglang") is None, reason="sglang is not installed: make cores")
every_cache = pytest.mark.parametrize("factory", [make, make_python, make_radix], ids=["rust", "python", "radix"])
both_sizes = pytest.mark.parametrize("size", [1, 16])


def begin(factory: TargetFactory, size: int, pages: int = 12) -> Session:
    return Session(factory(Configuration(num_blocks=pages, block_size=size)), walk_every=1, check_every=1)


def done(session: Session, *operations: Operation) -> Session:
    for operation in operations:
        assert session.apply(operation).status == "done", operation
    return session


class Steps:
    """Numbers steps."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, *work: tuple[str, int]) -> tuple[Operation, Operation]:
        self.last += 1
        return Dispatch(self.last, work), Complete(self.last)


def hit(session: Session, tokens: tuple[int, ...], namespace: Namespace = ()) -> int:
    """How many tokens of `tokens`, all of them computed, a request that goes on after them would hit."""
    done(session, Lookup((*tokens, 99), namespace))
    return session.target.lookup((*tokens, 99), namespace).tokens


def pages_of(*pages: int, size: int, more: int = 0) -> tuple[int, ...]:
    """A page of the same token for each number, and `more` tokens."""
    return tuple(page for page in pages for _ in range(size)) + (50,) * more


# ---- policies --------------------------------------------------------------------------------------------------------


@real
@every_cache
@both_sizes
def test_a_request_waits_for_its_first_step_and_a_prefill_is_published_when_it_completes(
    factory: TargetFactory, size: int
) -> None:
    session, prompt = begin(factory, size), pages_of(1, 2, size=size, more=1)
    done(session, Allocate("a", prompt))
    assert session.target.table("a") == []
    done(session, Dispatch(1, (("a", len(prompt)),)))
    assert session.target.table("a") == [1, 2, 3]
    assert session.target.lookup((*prompt, 99), ()).tokens == 0
    done(session, Complete(1))
    assert hit(session, prompt) == len(prompt) // size * size
    session.drain()


@real
@every_cache
@both_sizes
def test_chunks_are_published_decode_steps_are_not_and_what_they_computed_is_at_the_end(
    factory: TargetFactory, size: int
) -> None:
    session, step, prompt = begin(factory, size), Steps(), pages_of(1, 2, size=size)
    done(session, Allocate("a", prompt), *step(("a", size)))
    assert hit(session, prompt) == size
    done(session, *step(("a", size)))
    assert hit(session, prompt) == 2 * size
    output = pages_of(3, size=size)
    for token in output:
        done(session, Append("a", (token,)), *step(("a", 1)))
    whole = prompt + output
    assert hit(session, whole) == 2 * size
    assert len(session.target.table("a")) == 3
    done(session, Free("a"))
    assert hit(session, whole) == 3 * size
    session.drain()


@real
@every_cache
@both_sizes
def test_duplicates_are_merged_when_a_prefill_completes(factory: TargetFactory, size: int) -> None:
    session, prompt = begin(factory, size), pages_of(1, 2, size=size)
    done(session, Allocate("a", (*prompt, 8)), Allocate("b", (*prompt, 9)))
    done(session, Dispatch(1, (("a", 2 * size + 1), ("b", 2 * size + 1))))
    assert not set(session.target.table("a")) & set(session.target.table("b"))
    done(session, Complete(1))
    first, second = session.target.table("a"), session.target.table("b")
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert session.judge.blocks.references[first[0]] == 2
    assert session.judge.blocks.available == 12 - 4
    session.drain()


@real
@every_cache
@both_sizes
def test_whole_leaves_are_evicted_the_longest_unused_first(factory: TargetFactory, size: int) -> None:
    session, step = begin(factory, size, pages=6), Steps()
    old, new = pages_of(1, 2, 3, size=size), pages_of(4, 5, size=size)
    for request, prompt in (("a", old), ("b", new)):
        done(session, Allocate(request, prompt), *step((request, len(prompt))), Free(request))
    assert hit(session, old) == len(old)
    assert hit(session, new) == len(new)  # the later one
    # Two pages are wanted, or three as the allocator counts; one is free.
    done(session, Allocate("c", pages_of(6, 7, size=size)), *step(("c", 2 * size)))
    assert hit(session, new) == len(new)
    assert hit(session, old) == 0
    session.drain()


@real
@every_cache
@both_sizes
def test_page_0_is_never_handed_out(factory: TargetFactory, size: int) -> None:
    session = begin(factory, size, pages=5)
    done(session, Allocate("a", pages_of(1, 2, 3, 4, 5, size=size)), Allocate("b", (7,)))
    done(session, Dispatch(1, (("a", 5 * size),)), Complete(1))
    assert sorted(session.target.table("a")) == [1, 2, 3, 4, 5]
    outcome = session.apply(Dispatch(2, (("b", 1),)))
    assert (outcome.status, outcome.detail) == ("refused", "OutOfBlocks")
    done(session, Free("a"), Dispatch(2, (("b", 1),)), Complete(2))
    assert session.target.table("b") in ([1], [2], [3], [4], [5])
    session.drain()


@real
@both_sizes
def test_what_is_not_finished_gives_back_what_was_not_published(size: int) -> None:
    session, step, prompt = begin(make, size), Steps(), pages_of(1, 2, size=size, more=5)
    done(session, Allocate("a", prompt), *step(("a", size)), Free("a"))
    assert hit(session, prompt) == size
    output = pages_of(3, 4, size=size)
    done(session, Allocate("b", prompt), *step(("b", len(prompt))), Append("b", output), *step(("b", len(output) - 1)))
    done(session, Free("b"))
    assert hit(session, prompt + output) == len(prompt) // size * size
    session.drain()


@real
@both_sizes
def test_with_steps_in_flight_what_is_freed_is_let_go_at_once(size: int) -> None:
    session, prompt = begin(make_overlap, size, pages=3), pages_of(1, 2, size=size)
    done(session, Allocate("a", prompt), Dispatch(1, (("a", len(prompt)),)), Free("a"))
    assert session.judge.blocks.available == 3
    done(session, Allocate("b", pages_of(3, 4, 5, size=size)), Dispatch(2, (("b", 3 * size),)), Complete(1))
    assert hit(session, prompt) == 0  # it was not finished
    done(session, Append("b", (6,)), Complete(2))
    assert hit(session, pages_of(3, 4, 5, size=size)) == 3 * size
    session.drain()


@real
@both_sizes
def test_a_prefill_is_merged_while_a_decode_of_it_is_in_flight(size: int) -> None:
    session, prompt = begin(make_overlap, size), pages_of(1, 2, size=size)
    work = (("a", len(prompt)), ("b", len(prompt)))
    done(session, Allocate("a", prompt), Allocate("b", prompt), Dispatch(1, work))
    done(session, Append("a", (7,)), Append("b", (8,)), Dispatch(2, (("a", 1), ("b", 1))), Complete(1))
    assert session.target.table("a")[:2] == session.target.table("b")[:2]
    assert session.target.table("a")[2:] != session.target.table("b")[2:]
    session.drain()


@real
@both_sizes
def test_several_tokens_after_a_prefill_are_not_published_either(size: int) -> None:
    session, step, prompt = begin(make, size), Steps(), pages_of(1, size=size)
    done(session, Allocate("a", prompt), *step(("a", size)))
    more = pages_of(2, 3, size=size)
    done(session, Append("a", more), *step(("a", len(more))))
    assert hit(session, prompt + more) == size
    session.drain()


@real
@every_cache
@both_sizes
def test_what_k_and_v_depend_on_keeps_requests_apart(factory: TargetFactory, size: int) -> None:
    session, step, prompt = begin(factory, size, pages=24), Steps(), pages_of(1, 2, size=size)
    for number, space in enumerate(NAMESPACES):
        assert hit(session, prompt, space) == 0
        done(session, Allocate(f"r{number}", prompt, space), *step((f"r{number}", len(prompt))))
        assert hit(session, prompt, space) == len(prompt)
    session.drain()


# ---- what is wrong in it, or a limit ---------------------------------------------------------------------------------

EXTRA, ADAPTER = (("media", "as"),), (("adapter", "s"), ("media", "a"))


@real
@pytest.mark.parametrize(
    ("one", "other"),
    [(EXTRA, ADAPTER), ((("media", "s"),), (("adapter", "s"),)), ((), (("salt", ""),))],
    ids=["extra key as; extra key a and LoRA s", "extra key s; LoRA s", "no salt; an empty salt"],
)
def test_namespaces_that_sglang_does_not_keep_apart(one: Namespace, other: Namespace) -> None:
    operations = (Allocate("a", (1, 2), one), Dispatch(1, (("a", 2),)), Complete(1), Lookup((1, 2), other))
    session = begin(make_raw, 1)
    done(session, *operations[:-1])
    with pytest.raises(Isolation):
        session.apply(operations[-1])
    # A client that encodes what it means is not affected.
    done(begin(make, 1), *operations).drain()


@real
@pytest.mark.parametrize(("length", "scheduled"), [(143, True), (144, False), (153, False)])
def test_a_prompt_that_is_accepted_and_never_scheduled(length: int, scheduled: bool) -> None:
    """SGLang's issue 28530: with 160 tokens in pages of 16, an idle server takes prompts of up to 153 tokens
    (`max_req_input_len` is the pool less 6) and schedules those of up to 143: its `PrefillAdder` keeps a page back. The
    others wait for ever, and what comes after them waits, too. Here they fit."""
    session = begin(make, 16, pages=10)
    target = session.target
    assert isinstance(target, SglangTarget)
    pages = target._pages
    more = pages.max_new_tokens_for_memory(length, 8, token_capacity=160, sliding_window_size=None, chunk_size=None)
    assert more == 0  # not None, which would refuse it
    req = target._req("a", tuple(range(length)), ())
    req.sampling_params = target._core.SamplingParams(max_new_tokens=more)
    req.init_next_round_input(target._tree)
    kind = import_module("sglang.srt.managers.schedule_policy").PrefillAdder
    limits = {"new_token_ratio": 1.0, "rem_input_tokens": 1 << 20, "rem_chunk_tokens": None}
    adder = kind(16, target._tree, pages, running_batch=None, **limits)
    adder.add_one_req(req, has_chunked_req=False, truncation_align_size=None)
    assert (adder.can_run_list == [req]) is scheduled
    if not scheduled:
        done(session, Allocate("a", tuple(range(length))), Dispatch(1, (("a", length),)), Complete(1)).drain()


# ---- the walk --------------------------------------------------------------------------------------------------------


def hunt(factory: TargetFactory, episodes: int, seed: str = "sglang") -> tuple[Any, Tally]:
    tally = Tally()
    found, _ = WalkEngine().hunt(
        Assignment(factory, "sglang", seed, Judging(), tally, clock=lambda: 0.0, deadline=1.0, count=episodes)
    )
    return found, tally


@real
@pytest.mark.parametrize(
    "factory", [make, make_overlap, make_python, make_radix], ids=["rust", "overlap", "python", "radix"]
)
def test_the_walk_finds_nothing(factory: TargetFactory) -> None:
    found, tally = hunt(factory, 30)
    assert found is None
    assert tally.operations > 1000
    counts = tally.ledger.counts
    for event in ("hit on an active block", "hit on a cached block", "published a duplicate", "evicted"):
        assert counts[event] > 0, event


@real
@every_cache
def test_a_run_repeats(factory: TargetFactory) -> None:
    """SGLang orders its leaves by the time of their last use."""

    def run() -> list[Any]:
        session, random = begin(factory, 2, pages=8), Random(5)
        moves, seen = Moves(session, Swarm(lines=5)), []
        for _ in range(400):
            operation = moves.operation(tuple(random.randrange(100) for _ in range(4)))  # type: ignore[arg-type]
            session.apply(operation)
            seen.append((encode(operation), [(name, session.target.table(name)) for name in session.judge.sequences]))
        return seen

    assert run() == run()


# ---- planted faults --------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch, Any], None]


def unlock_forgets_the_prefix(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    def dec_lock_ref(self: Any, node: Any, params: Any = None) -> Any:
        parent, node.parent = node.parent, self.root_node
        result = original(self, node, params)
        node.parent = parent
        return result

    original = core.radix.RadixCache.dec_lock_ref
    monkeypatch.setattr(core.radix.RadixCache, "dec_lock_ref", dec_lock_ref)


def lock_forgets_the_node(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    """mini-sglang PR 52."""
    cache = core.radix.RadixCache
    for name in ("inc_lock_ref", "dec_lock_ref"):

        def from_the_parent(self: Any, node: Any, params: Any = None, original: Any = getattr(cache, name)) -> Any:
            return original(self, node.parent or node)

        monkeypatch.setattr(cache, name, from_the_parent)


def the_row_keeps_the_duplicates(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    """mini-sglang PR 142."""

    def checkpoint(self: Any, req: Any, *, up_to: int) -> None:
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        before = row.clone()
        original(self, req, up_to=up_to)
        row.copy_(before)

    original = core.radix.RadixCache.checkpoint
    monkeypatch.setattr(core.radix.RadixCache, "checkpoint", checkpoint)


def duplicates_are_freed_from_the_first_page_on(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    """Those up to `cache_protected_len` are the tree's."""

    def insert_cache(self: Any, req: Any, token_ids: Any, **options: Any) -> Any:
        protected, req.kv.cache_protected_len = req.kv.cache_protected_len, 0
        result = original(self, req, token_ids, **options)
        req.kv.cache_protected_len = protected
        return result

    original = core.radix.RadixCache._insert_cache
    monkeypatch.setattr(core.radix.RadixCache, "_insert_cache", insert_cache)


def a_part_of_a_page_is_matched(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    def child_key_at(self: Any, offset: int, page_size: int = 1) -> Any:
        return original(self, offset, 1)

    def match_at(self: Any, other: Any, offset: int, page_size: int = 1) -> int:
        matched: int = original_match(self, other, offset, 1)
        return -(-matched // page_size) * page_size

    original, original_match = core.radix.RadixKey.child_key_at, core.radix.RadixKey.match_at
    monkeypatch.setattr(core.radix.RadixKey, "child_key_at", child_key_at)
    monkeypatch.setattr(core.radix.RadixKey, "match_at", match_at)


def the_namespace_is_left_out_of_the_key(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    def child_key_at(self: Any, offset: int, page_size: int = 1) -> Any:
        key = original(self, offset, page_size)
        return key[1] if isinstance(key, tuple) and not isinstance(key[0], int) else key

    original = core.radix.RadixKey.child_key_at
    monkeypatch.setattr(core.radix.RadixKey, "child_key_at", child_key_at)
    monkeypatch.setattr(core.radix.RadixKey, "_check_compatible", lambda self, other: None)


@real
@pytest.mark.parametrize(
    ("plant", "charged"),
    [
        (unlock_forgets_the_prefix, "ADMISSION"),
        (lock_forgets_the_node, "ALIASING"),
        (the_row_keeps_the_duplicates, "ALIASING"),
        (duplicates_are_freed_from_the_first_page_on, "ALIASING"),
        (a_part_of_a_page_is_matched, "HISTORY"),
        (the_namespace_is_left_out_of_the_key, "ISOLATION"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_fault_is_found(plant: Plant, charged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, sglang._load())
    found, _ = hunt(make_radix, 300)
    assert found is not None
    assert found.property_id == charged


@real
def test_a_page_that_is_lost_is_missed_by_the_check_of_sglang_itself() -> None:
    session, step = begin(make, 16), Steps()
    done(session, Allocate("a", (1, 2, 3)), *step(("a", 3)))
    assert isinstance(session.target, SglangTarget)
    session.target._pages.free_pages = session.target._pages.free_pages[1:]
    with pytest.raises(Violation, match="Mem Leak Detected"):
        session.apply(Append("a", (4,)))


@pytest.mark.skipif(find_spec("sglang") is not None, reason="sglang is installed")
def test_without_the_package_it_is_said_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"`make cores` installs them"):
        make(Configuration())
