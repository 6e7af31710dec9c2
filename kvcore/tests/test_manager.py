"""Every rule of the block manager, one test each, with the block numbers worked out by hand."""

from __future__ import annotations

from array import array
from random import Random

import numpy as np
import pytest

from kvcore import (
    UNKNOWN,
    BlockManager,
    EmptyDispatch,
    InvalidCount,
    MatchMismatch,
    Namespace,
    NeverFits,
    OutOfBlocks,
    Refusal,
    RepeatedRequest,
    ReusePolicy,
    Sequence,
    Step,
    weak_hash,
)
from kvcore.state import inside

from .support import (
    admit,
    cache,
    cached_order,
    dispatch_all,
    free_order,
    hits,
    manager_of,
    references,
    run,
    state,
)

# ---- order of blocks -------------------------------------------------------------------------------------------------


def test_new_blocks_are_taken_from_0_at_first():
    manager = manager_of(4, 2)
    assert manager.allocate("a", [1, 2, 3]).table == [0, 1]
    assert manager.allocate("b", [1, 2, 3]).table == [2, 3]


def test_free_blocks_are_taken_in_the_order_in_which_they_became_free():
    manager = manager_of(4, 1, caching=False)
    for request in "abcd":
        manager.allocate(request, [1])
    for request in "cadb":
        manager.free(request)
    assert manager.allocate("e", [1, 1, 1, 1]).table == [2, 0, 3, 1]


def test_a_table_is_given_back_tail_first():
    manager = manager_of(4, 1)
    manager.allocate("a", [1, 2, 3])
    manager.free("a")
    assert free_order(manager) == [3, 2, 1, 0]


def test_free_blocks_go_first_then_cached_ones_least_recently_released_first():
    manager = manager_of(6, 1)
    admit(manager, "a", [1, 2, 3])
    admit(manager, "b", [4, 5])
    manager.free("b")
    manager.free("a")
    assert (free_order(manager), cached_order(manager)) == ([5], [4, 3, 2, 1, 0])
    assert manager.allocate("c", range(10, 16)).table == [5, 4, 3, 2, 1, 0]


def test_a_hit_makes_a_block_the_most_recently_released():
    manager = manager_of(4, 1)
    cache(manager, [1])
    cache(manager, [2])
    assert cached_order(manager) == [0, 1]
    manager.allocate("a", [1, 9])
    manager.free("a")
    assert cached_order(manager) == [1, 0]
    assert free_order(manager) == [3, 2]


def test_the_tail_of_a_released_prompt_is_recycled_before_its_head():
    """nano-vllm 59aa3ff."""
    manager = manager_of(3, 4)
    cache(manager, range(12))
    manager.allocate("other", [50])
    assert hits(manager, [*range(12), 99]) == 8


def test_a_reset_appends_the_cached_blocks_to_the_free_ones_in_their_order():
    manager = manager_of(5, 1)
    cache(manager, [1, 2])
    cache(manager, [3])
    assert (free_order(manager), cached_order(manager)) == ([3, 4], [1, 0, 2])
    manager.reset()
    assert (free_order(manager), cached_order(manager)) == ([3, 4, 1, 0, 2], [])


# ---- which owner -----------------------------------------------------------------------------------------------------


def two_owners(num_blocks: int = 8) -> BlockManager:
    """a and b have computed the same two blocks of one token at the same time: a in 0 and 1, b in 2 and 3."""
    manager = manager_of(num_blocks, 1)
    manager.allocate("a", [7, 8])
    manager.allocate("b", [7, 8])
    run(manager, "a", "b")
    return manager


def test_the_earliest_published_of_two_active_owners_is_hit():
    assert two_owners().lookup([7, 8, 9]).blocks == (0, 1)


def test_an_active_owner_is_hit_before_an_earlier_cached_one():
    manager = two_owners()
    manager.free("a")
    assert manager.lookup([7, 8, 9]).blocks == (2, 3)


def test_the_earliest_published_of_two_cached_owners_is_hit_whatever_the_order_of_release():
    manager = two_owners()
    manager.free("a")
    manager.free("b")
    assert manager.lookup([7, 8, 9]).blocks == (0, 1)


# ---- admission -------------------------------------------------------------------------------------------------------


def test_a_request_takes_blocks_for_all_its_tokens_at_once():
    manager = manager_of(4, 4)
    assert manager.allocate("a", range(13)).table == [0, 1, 2, 3]
    assert inside(manager).pool.available == 0


def test_a_request_that_fits_exactly_is_admitted_and_one_block_more_is_refused():
    manager = manager_of(4, 4)
    manager.allocate("a", range(4))
    with pytest.raises(OutOfBlocks):
        manager.allocate("b", range(13))
    manager.allocate("b", range(12))


def test_what_can_never_fit_is_told_from_what_must_wait():
    manager = manager_of(2, 4)
    manager.allocate("a", [1])
    with pytest.raises(OutOfBlocks):
        manager.allocate("b", range(8))
    with pytest.raises(NeverFits):
        manager.allocate("b", range(9))


def test_a_hit_does_not_make_fit_what_never_fits():
    manager = manager_of(2, 4)
    cache(manager, range(8))
    with pytest.raises(NeverFits):
        manager.allocate("b", range(9))


def test_hits_on_active_blocks_cost_nothing():
    """nano-vllm counted them as new (f64d821 fixed it)."""
    manager = manager_of(4, 4)
    admit(manager, "a", range(9))
    assert manager.allocate("b", [*range(8), 99]).table == [0, 1, 3]


def test_hits_on_cached_blocks_cost_one_each():
    manager = manager_of(4, 4)
    manager.allocate("other", [1])
    cache(manager, range(20, 28))
    assert (inside(manager).pool.available, manager.lookup([*range(20, 28), *range(5)]).num_tokens) == (3, 8)
    with pytest.raises(OutOfBlocks):
        manager.allocate("b", [*range(20, 28), *range(5)])
    manager.allocate("b", [*range(20, 28), *range(4)])


def test_hits_are_pinned_before_new_blocks_are_taken():
    """Or the new block would evict what was just hit (vLLM issue 11562)."""
    manager = manager_of(3, 4)
    cache(manager, range(8))
    cache(manager, range(20, 24))
    assert cached_order(manager) == [1, 0, 2]
    assert manager.allocate("b", [*range(8), 99]).table == [0, 1, 2]


def test_a_refused_request_has_pinned_nothing():
    manager = manager_of(4, 4)
    cache(manager, range(8))
    manager.allocate("other", range(20, 25))
    before = state(manager)
    with pytest.raises(OutOfBlocks):
        manager.allocate("b", range(9))
    assert state(manager) == before


def test_an_append_takes_a_block_only_where_it_needs_one():
    """nano-vllm demanded a free block for each (until 386290d)."""
    manager = manager_of(1, 4)
    manager.allocate("a", [1, 2])
    manager.append("a", [3])
    manager.append("a", [4])
    assert manager.sequence("a").table == [0]


def test_an_append_takes_every_block_that_it_needs():
    manager = manager_of(8, 4)
    manager.allocate("a", range(3))
    manager.append("a", range(10))
    assert manager.sequence("a").table == [0, 1, 2, 3]


def test_an_append_is_refused_when_it_must_wait_and_when_it_never_fits():
    manager = manager_of(3, 4)
    manager.allocate("a", range(4))
    manager.allocate("b", range(4))
    manager.append("a", range(4))
    with pytest.raises(OutOfBlocks):
        manager.append("a", [1])
    with pytest.raises(NeverFits):
        manager.append("a", range(5))


def test_a_refusal_says_what_is_needed_what_is_there_and_what_to_do():
    manager = manager_of(4, 2)
    admit(manager, "a", [1, 2, 3])
    manager.allocate("b", [4])
    for call, said in (
        (lambda: manager.allocate("x", range(9)), "needs 5 blocks for 9 tokens; 1 of 4 are available; reject it"),
        (
            lambda: manager.allocate("x", range(10, 14)),
            "needs 2 blocks; 1 of 4 are available; wait until others are freed",
        ),
        (
            lambda: manager.append("a", range(6)),
            "would need 5 blocks in all; 1 of 4 are available; finish it, or reject it",
        ),
        (
            lambda: manager.append("a", range(5)),
            "needs 2 more blocks; 1 of 4 are available; wait, or free or preempt a request",
        ),
    ):
        with pytest.raises(Refusal) as caught:
            call()
        assert str(caught.value).partition(" ")[0] == "request"
        assert str(caught.value).partition("' ")[2] == said
    manager.free("a")
    with pytest.raises(OutOfBlocks, match=r"^request 'x' needs 4 blocks; 3 of 4 are available; wait until"):
        manager.allocate("x", range(1, 9))  # one of them is cached


def test_a_bad_step_is_told_what_a_step_is():
    manager = manager_of(4, 2)
    with pytest.raises(InvalidCount, match=r"^a step is made of \(request, count\) pairs, got 5$"):
        manager.dispatch([5])
    with pytest.raises(EmptyDispatch, match=r"^a step needs at least one \(request, count\); skip the step instead$"):
        manager.dispatch([])
    manager.allocate("a", [1, 2])
    words = r"^request 'a': cannot schedule 3 tokens; 2 are unscheduled, give a Python int from 1 to that "
    with pytest.raises(InvalidCount, match=words):
        manager.dispatch([("a", 3)])


def test_dispatch_takes_no_block():
    manager = manager_of(4, 4)
    manager.allocate("a", range(9))
    available = inside(manager).pool.available
    dispatch_all(manager, "a")
    assert inside(manager).pool.available == available


# ---- publishing ------------------------------------------------------------------------------------------------------


def test_nothing_is_published_before_completion():
    """nano-vllm issue 208."""
    manager = manager_of(8, 4)
    manager.allocate("a", range(12))
    step = manager.dispatch([("a", 4)])
    assert hits(manager, range(12)) == 0
    manager.complete(step)
    assert hits(manager, range(12)) == 4


def test_only_full_blocks_are_published():
    manager = manager_of(8, 4)
    admit(manager, "a", range(7))
    assert hits(manager, range(12)) == 4
    manager.append("a", [7])
    assert hits(manager, range(12)) == 4
    run(manager, "a")
    assert hits(manager, range(12)) == 8


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8, 11])
def test_chunks_of_any_size_publish_the_same(chunk: int):
    manager = manager_of(8, 4)
    sequence = manager.allocate("a", range(11))
    while sequence.scheduled < 11:
        manager.complete(manager.dispatch([("a", min(chunk, 11 - sequence.scheduled))]))
        assert hits(manager, range(12)) == sequence.computed // 4 * 4
    manager.append("a", range(11, 20))
    run(manager, "a")
    assert hits(manager, range(30)) == 20


def test_generated_tokens_are_published_after_the_prompt_they_follow():
    manager = manager_of(8, 4)
    admit(manager, "a", range(4))
    manager.append("a", [5, 6, 7, 8])
    run(manager, "a")
    assert hits(manager, [0, 1, 2, 3, 5, 6, 7, 8, 9]) == 8
    assert hits(manager, [5, 6, 7, 8, 9]) == 0


def test_a_revived_block_keeps_its_identity():
    """nano-vllm PR 218: what follows a revived block must not be published as the start of a prompt."""
    manager = manager_of(8, 4)
    cache(manager, [1, 2, 3, 4, 9])
    admit(manager, "b", [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert hits(manager, [5, 6, 7, 8, 9]) == 0
    assert hits(manager, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8


def test_a_recycled_block_is_not_found_by_what_it_held():
    """nano-vllm issue 163: the recycled block holds the same tokens under another prefix."""
    p, q, t, z = ([10 * start + i for i in range(4)] for start in (1, 2, 3, 4))
    for bits in (0, 1, 4, 128):
        manager = manager_of(5, 4, hash_function=weak_hash(bits))
        assert admit(manager, "A", [*p, *t, 99]).table == [0, 1, 2]
        assert manager.allocate("D", [*p, 98]).table == [0, 3]
        manager.free("A")
        assert (free_order(manager), cached_order(manager)) == ([4, 2], [1])
        assert admit(manager, "B", [*q, *z, *t]).table == [4, 2, 1]
        manager.free("B")
        assert manager.lookup([*p, *t, 99]).blocks == (0,)
        assert manager.lookup([*q, *z, *t, 99]).blocks == (4, 2, 1)


def test_nothing_is_published_or_hit_without_caching():
    manager = manager_of(4, 2, caching=False)
    cache(manager, range(6))
    assert hits(manager, range(6)) == 0
    assert (len(free_order(manager)), cached_order(manager)) == (4, [])


# ---- fork and copy-on-write ------------------------------------------------------------------------------------------


def forked(num_blocks: int = 8, length: int = 6) -> BlockManager:
    """p with `length` tokens in blocks of 4, all computed, and its fork c."""
    manager = manager_of(num_blocks, 4)
    admit(manager, "p", range(length))
    manager.fork("p", "c")
    return manager


def test_a_fork_shares_every_block_and_takes_none():
    manager = forked()
    child = manager.sequence("c")
    assert child.table == [0, 1] and child.table is not manager.sequence("p").table
    assert references(manager, [0, 1]) == [2, 2]
    assert inside(manager).pool.available == 6
    assert (len(child), child.scheduled, child.computed, child.published) == (6, 6, 6, 1)


def test_the_first_to_append_into_a_shared_tail_gets_a_copy():
    manager = forked()
    manager.append("c", [9])
    assert manager.sequence("c").table == [0, 2]
    assert manager.sequence("p").table == [0, 1]
    assert references(manager, [0, 1, 2]) == [2, 2, 1]
    step = dispatch_all(manager, "c")
    assert step.copies == ((1, 2),)
    assert step.batch.slot_mapping.tolist() == [2 * 4 + 2]
    assert references(manager, [1]) == [2]
    manager.complete(step)
    assert references(manager, [0, 1, 2]) == [2, 1, 1]


def test_the_parent_gets_a_copy_if_it_is_the_first_to_append():
    manager = forked()
    manager.append("p", [9])
    assert manager.sequence("p").table == [0, 2]
    assert run(manager, "p").copies == ((1, 2),)
    manager.append("c", [8])
    assert manager.sequence("c").table == [0, 1]
    assert run(manager, "c").copies == ()


@pytest.mark.parametrize("dispatched", [False, True])
def test_a_pending_copy_counts_as_a_holder_of_its_source(dispatched: bool):
    manager = forked()
    manager.append("c", [9])
    if dispatched:
        dispatch_all(manager, "c")
    manager.append("p", [8])
    assert manager.sequence("p").table == [0, 3]
    assert references(manager, [1]) == [2]
    assert dispatch_all(manager, "p").copies == ((1, 3),)


def test_a_copy_waits_for_the_step_that_carries_its_request():
    manager = forked()
    admit(manager, "x", [50])
    manager.append("c", [9])
    manager.append("x", [51])
    assert run(manager, "x").copies == ()
    assert references(manager, [1]) == [2]
    assert run(manager, "c").copies == ((1, 3),)


def test_a_step_carries_the_copies_of_all_its_requests_in_batch_order_and_only_once():
    manager = forked()
    manager.fork("p", "d")
    manager.append("d", [7])
    manager.append("c", [9, 9])
    step = manager.dispatch([("c", 1), ("d", 1)])
    assert step.copies == ((1, 3), (1, 2))
    assert references(manager, [1]) == [3]
    assert dispatch_all(manager, "c").copies == ()


def test_the_last_sharer_writes_in_place():
    manager = forked()
    manager.free("p")
    manager.append("c", [9])
    assert manager.sequence("c").table == [0, 1]
    assert run(manager, "c").copies == ()


def test_a_fork_has_its_own_name_and_has_hit_nothing():
    manager = manager_of(8, 2)
    cache(manager, [1, 2, 3, 4])
    assert admit(manager, "p", [1, 2, 3, 4, 5]).num_hit_tokens == 4
    child = manager.fork("p", "c")
    assert (child.request, child.num_hit_tokens) == ("c", 0)


def test_a_fork_at_a_block_edge_needs_no_copy():
    manager = forked(length=8)
    manager.append("c", [9])
    assert manager.sequence("c").table == [0, 1, 2]
    assert run(manager, "c").copies == ()


def test_the_destination_of_a_copy_is_one_of_the_blocks_that_an_append_needs():
    manager = forked(num_blocks=3)
    with pytest.raises(OutOfBlocks):
        manager.append("c", [9, 9, 9])
    manager.append("c", [9, 9])
    assert manager.sequence("c").table == [0, 2]


def test_a_truncation_that_cuts_all_that_a_copy_was_for_undoes_it():
    manager = forked()
    manager.append("c", [9, 9])
    manager.truncate("c", 6)
    assert manager.sequence("c").table == [0, 1]
    assert references(manager, [0, 1, 2]) == [2, 2, 0]
    assert free_order(manager)[-1] == 2
    manager.append("c", [8])
    assert manager.sequence("c").table == [0, 3]
    assert run(manager, "c").copies == ((1, 3),)


def test_a_truncation_that_leaves_a_token_leaves_the_copy():
    manager = forked()
    manager.append("c", [9, 9])
    manager.truncate("c", 7)
    assert manager.sequence("c").table == [0, 2]
    assert run(manager, "c").copies == ((1, 2),)


def test_free_cancels_a_copy():
    manager = forked()
    manager.append("c", [9])
    manager.free("c")
    assert references(manager, [0, 1, 2]) == [1, 1, 0]
    manager.append("p", [9])
    assert manager.sequence("p").table == [0, 1]
    assert run(manager, "p").copies == ()


def test_the_source_of_a_copy_in_flight_is_not_handed_out():
    manager = forked(num_blocks=3)
    manager.append("c", [9])
    step = dispatch_all(manager, "c")
    manager.free("p")
    manager.free("c")
    assert inside(manager).pool.available == 0
    manager.complete(step)
    assert inside(manager).pool.available == 3
    manager.check()


def test_forks_of_forks_share_and_part():
    manager = forked()
    manager.fork("c", "g")
    assert references(manager, [0, 1]) == [3, 3]
    for request, token in (("g", 1), ("c", 2), ("p", 3)):
        manager.append(request, [token, token])
        run(manager, request)
    assert [manager.sequence(request).table for request in "gcp"] == [[0, 2], [0, 3], [0, 1]]
    for token, block in ((1, 2), (2, 3), (3, 1)):
        assert manager.lookup([0, 1, 2, 3, 4, 5, token, token, 9]).blocks == (0, block)


# ---- truncation ------------------------------------------------------------------------------------------------------


def drafting(drafts: int, num_blocks: int = 8) -> BlockManager:
    """a: a prompt of 6 tokens in blocks of 4, computed, and `drafts` draft tokens (100, 101, ...), not scheduled."""
    manager = manager_of(num_blocks, 4)
    admit(manager, "a", range(6))
    manager.append("a", range(100, 100 + drafts))
    return manager


def test_truncation_gives_back_the_blocks_cut_off_tail_first():
    manager = drafting(8)
    assert manager.sequence("a").table == [0, 1, 2, 3]
    manager.truncate("a", 7)
    assert manager.sequence("a").table == [0, 1]
    assert free_order(manager)[-2:] == [3, 2]


def test_truncation_below_what_is_computed_sets_the_counters_back_and_withdraws_the_blocks():
    manager = drafting(8)
    run(manager, "a")
    drafts = [*range(6), *range(100, 108)]
    assert hits(manager, [*drafts, 9]) == 12
    manager.truncate("a", 7)
    a = manager.sequence("a")
    assert (len(a), a.scheduled, a.computed, a.published) == (7, 7, 7, 1)
    assert hits(manager, [*drafts, 9]) == 4
    assert cached_order(manager) == []


def test_truncation_to_a_block_edge_keeps_the_full_block_published():
    manager = drafting(8)
    run(manager, "a")
    manager.truncate("a", 8)
    assert hits(manager, [*range(6), 100, 101, 9]) == 8


def test_truncation_of_tokens_that_are_not_scheduled_keeps_the_counters():
    manager = drafting(4)
    manager.complete(manager.dispatch([("a", 1)]))
    manager.truncate("a", 9)
    a = manager.sequence("a")
    assert (len(a), a.scheduled, a.computed) == (9, 7, 7)


def test_truncation_to_its_own_length_changes_nothing():
    manager = drafting(4)
    run(manager, "a")
    before = state(manager)
    manager.truncate("a", 10)
    assert state(manager) == before


def test_truncation_stops_at_the_prompt_and_a_child_s_at_the_fork():
    manager = drafting(4)
    run(manager, "a")
    manager.fork("a", "c")
    manager.append("c", [1, 2])
    manager.truncate("c", 10)
    with pytest.raises(ValueError, match="from 10"):
        manager.truncate("c", 9)
    manager.truncate("a", 6)
    with pytest.raises(ValueError, match="from 6"):
        manager.truncate("a", 5)


def test_other_tokens_after_a_truncation_are_published_in_place_of_the_cut_ones():
    manager = drafting(2)
    run(manager, "a")
    manager.truncate("a", 7)
    manager.append("a", [200])
    step = run(manager, "a")
    assert step.batch.block_tables.tolist() == [[0, 1]]
    assert step.batch.slot_mapping.tolist() == [7]
    assert hits(manager, [*range(6), 100, 101, 9]) == 4
    assert hits(manager, [*range(6), 100, 200, 9]) == 8


def test_the_table_in_a_batch_follows_a_truncation():
    manager = drafting(3)
    run(manager, "a")
    manager.truncate("a", 8)
    admit(manager, "b", [50])
    manager.append("a", [7])
    step = run(manager, "a")
    assert manager.sequence("a").table == [0, 1, 4]
    assert step.batch.block_tables.tolist() == [[0, 1, 4]]


def test_the_table_in_a_batch_follows_a_truncation_without_an_append():
    manager = drafting(8)
    assert manager.dispatch([("a", 1)]).batch.block_tables.tolist() == [[0, 1, 2, 3]]
    manager.truncate("a", 9)
    assert manager.dispatch([("a", 1)]).batch.block_tables.tolist() == [[0, 1, 2]]


def test_a_block_cut_off_stays_in_the_index_while_another_table_holds_it():
    manager = drafting(2)
    run(manager, "a")
    prompt = [*range(6), 100, 101, 9]
    assert manager.allocate("b", prompt).table == [0, 1, 2]
    manager.truncate("a", 6)
    assert references(manager, [1]) == [2]
    assert hits(manager, prompt) == 8


def test_an_append_after_a_cut_into_a_shared_block_copies_it():
    manager = drafting(2)
    run(manager, "a")
    prompt = [*range(6), 100, 101, 9]
    manager.allocate("b", prompt)
    manager.truncate("a", 6)
    manager.append("a", [7])
    assert manager.sequence("a").table == [0, 3]
    assert run(manager, "a").copies == ((1, 3),)
    assert hits(manager, prompt) == 8


@pytest.mark.parametrize("tokens", [[7], [7, 7], [UNKNOWN]])
def test_an_append_after_a_cut_into_a_block_that_was_shared_withdraws_it(tokens: list[int]):
    manager = drafting(2)
    run(manager, "a")
    prompt = [*range(6), 100, 101, 9]
    manager.allocate("b", prompt)
    manager.truncate("a", 6)
    manager.free("b")
    assert hits(manager, prompt) == 8
    manager.append("a", tokens)
    assert manager.sequence("a").table == [0, 1]
    assert hits(manager, prompt) == 4
    assert run(manager, "a").copies == ()
    manager.check()


def test_a_truncated_request_gives_a_still_published_tail_back_as_cached():
    manager = drafting(2)
    run(manager, "a")
    prompt = [*range(6), 100, 101, 9]
    manager.allocate("b", prompt)
    manager.truncate("a", 6)
    manager.free("b")
    manager.free("a")
    assert hits(manager, prompt) == 8


def extended_by_another(num_blocks: int = 8) -> tuple[BlockManager, list[int]]:
    """a generated a block; b continued it, and is gone; what b computed is cached. Returns b's prompt."""
    manager = drafting(2, num_blocks)
    run(manager, "a")
    prompt = [*range(6), 100, 101, 7, 7, 7, 7, 9]
    admit(manager, "b", prompt)
    manager.free("b")
    assert hits(manager, prompt) == 12
    return manager, prompt


def test_nothing_is_hit_after_what_was_cut_off():
    manager, prompt = extended_by_another()
    manager.truncate("a", 6)
    assert hits(manager, prompt) == 4


def test_the_invariants_hold_when_what_others_have_extended_is_cut_off():
    manager, _ = extended_by_another()
    manager.truncate("a", 6)
    manager.check()


def test_what_extends_a_cut_block_is_found_again_when_the_block_is_computed_again():
    """COMPLETENESS: it is resident, with everything before it; a content lives as long as a longer one needs it."""
    manager, prompt = extended_by_another()
    manager.truncate("a", 6)
    manager.append("a", [100, 101])
    run(manager, "a")
    assert hits(manager, prompt) == 12


def test_it_is_found_again_through_whoever_computes_the_block_again():
    manager, prompt = extended_by_another()
    manager.truncate("a", 6)
    admit(manager, "c", prompt[:9])
    assert hits(manager, prompt) == 12
    manager.check()


def test_it_is_found_again_after_an_append_has_withdrawn_the_block():
    manager, prompt = extended_by_another()
    manager.allocate("b", prompt)
    manager.truncate("a", 6)
    manager.free("b")
    manager.append("a", [7])
    assert hits(manager, prompt) == 4
    manager.truncate("a", 6)
    manager.append("a", [100, 101])
    run(manager, "a")
    assert hits(manager, prompt) == 12
    manager.check()


def test_it_is_not_found_after_a_reset():
    manager, prompt = extended_by_another()
    manager.truncate("a", 6)
    manager.reset()
    admit(manager, "c", prompt[:9])
    assert hits(manager, prompt) == 8


@pytest.mark.parametrize("bits", [0, 128])
def test_rollbacks_leave_a_bounded_trace(bits: int):
    manager = manager_of(8, 1, hash_function=weak_hash(bits))
    admit(manager, "a", [1])
    for number in range(300):
        manager.append("a", [number, 2])
        run(manager, "a")
        manager.truncate("a", 1)
    assert len(list(inside(manager).pool.index.orphans())) <= 2 * 9
    manager.check()


# ---- steps in flight -------------------------------------------------------------------------------------------------


def test_a_later_step_may_read_what_an_earlier_one_in_flight_writes():
    manager = manager_of(4, 4)
    a = manager.allocate("a", range(6))
    first = manager.dispatch([("a", 4)])
    second = manager.dispatch([("a", 2)])
    assert (a.scheduled, a.computed) == (6, 0)
    assert second.batch.positions.tolist() == [4, 5]
    assert second.batch.context_lengths.tolist() == [6]
    assert hits(manager, range(6)) == 0
    manager.complete(first)
    assert (a.scheduled, a.computed) == (6, 4)
    assert hits(manager, range(6)) == 4
    manager.complete(second)
    assert a.computed == 6


def test_the_request_that_appears_twice_in_a_step_is_named():
    manager = manager_of(8, 2)
    for request in "abc":
        manager.allocate(request, [1, 2, 3])
    with pytest.raises(
        RepeatedRequest, match=r"^request 'b' appears twice in one step; give the sum of its counts once$"
    ):
        manager.dispatch([("a", 1), ("b", 1), ("c", 1), ("b", 2)])


def test_steps_are_numbered_in_order_of_dispatch():
    manager = manager_of(4, 4)
    manager.allocate("a", range(3))
    steps = [manager.dispatch([("a", 1)]) for _ in range(3)]
    assert [step.number for step in steps] == [0, 1, 2]


def test_a_request_freed_in_flight_keeps_its_blocks_until_the_step_completes():
    manager = manager_of(4, 4)
    table = list(manager.allocate("a", range(9)).table)
    step = dispatch_all(manager, "a")
    manager.free("a")
    assert references(manager, table) == [1, 1, 1]
    assert inside(manager).pool.available == 1
    with pytest.raises(OutOfBlocks):
        manager.allocate("b", range(5))
    assert manager.statistics().requests == 0
    manager.check()
    manager.complete(step)
    assert references(manager, table) == [0, 0, 0]


def test_what_a_freed_request_had_in_flight_is_published_before_the_release():
    manager = manager_of(4, 4)
    manager.allocate("a", range(9))
    step = dispatch_all(manager, "a")
    manager.free("a")
    manager.complete(step)
    assert (free_order(manager), cached_order(manager)) == ([3, 2], [1, 0])
    assert hits(manager, range(9)) == 8


def test_a_request_freed_in_several_steps_comes_back_with_the_last():
    manager = manager_of(4, 4)
    manager.allocate("a", range(8))
    first, second = manager.dispatch([("a", 4)]), manager.dispatch([("a", 4)])
    manager.free("a")
    manager.complete(first)
    assert inside(manager).pool.available == 2
    assert hits(manager, range(9)) == 4
    manager.complete(second)
    assert inside(manager).pool.available == 4
    assert hits(manager, range(9)) == 8


def test_an_id_can_be_used_again_while_the_old_sequence_is_in_flight():
    manager = manager_of(4, 4)
    old = manager.allocate("a", range(5))
    step = dispatch_all(manager, "a")
    manager.free("a")
    new = manager.allocate("a", range(20, 25))
    assert new is not old and new.table == [2, 3]
    run_step = dispatch_all(manager, "a")
    manager.complete(step)
    assert (new.computed, references(manager, [0, 1, 2, 3])) == (0, [0, 0, 1, 1])
    manager.complete(run_step)
    assert new.computed == 5
    assert hits(manager, range(5)) == 4 and hits(manager, range(20, 25)) == 4


def test_a_truncation_in_flight_counts_at_once_and_gives_blocks_back_later():
    manager = drafting(6)
    step = dispatch_all(manager, "a")
    manager.truncate("a", 7)
    a = manager.sequence("a")
    assert (a.table, a.scheduled, a.computed) == ([0, 1], 7, 6)
    assert references(manager, [2]) == [1]
    assert 2 not in free_order(manager)
    manager.check()
    manager.complete(step)
    assert (a.scheduled, a.computed) == (7, 7)
    assert references(manager, [2]) == [0]
    assert hits(manager, [*range(6), *range(100, 106)]) == 4


def test_steps_that_are_cut_away_altogether_count_nothing():
    manager = drafting(4)
    steps = [manager.dispatch([("a", 2)]) for _ in range(2)]
    manager.truncate("a", 6)
    assert [(step.starts, step.ends) for step in steps] == [([6], [6])] * 2
    for step in steps:
        manager.complete(step)
    a = manager.sequence("a")
    assert (a.scheduled, a.computed, a.published) == (6, 6, 1)


def test_new_tokens_after_a_truncation_in_flight_are_computed_by_the_next_step():
    manager = drafting(4)
    first = dispatch_all(manager, "a")
    manager.truncate("a", 7)
    manager.append("a", [200, 201])
    second = dispatch_all(manager, "a")
    assert second.batch.positions.tolist() == [7, 8]
    assert manager.sequence("a").table == [0, 1, 3]
    manager.complete(first)
    assert manager.sequence("a").computed == 7
    assert hits(manager, [*range(6), 100, 101, 9]) == 4
    manager.complete(second)
    assert hits(manager, [*range(6), 100, 200, 9]) == 8
    manager.check()


def test_two_truncations_in_flight_give_back_each_with_its_own_step():
    manager = drafting(6)
    first = dispatch_all(manager, "a")
    manager.truncate("a", 8)
    manager.append("a", [200])
    second = dispatch_all(manager, "a")
    manager.truncate("a", 7)
    assert references(manager, [2, 3]) == [1, 1]
    manager.complete(first)
    assert references(manager, [2, 3]) == [0, 1]
    manager.complete(second)
    assert references(manager, [2, 3]) == [0, 0]


def test_a_request_that_goes_on_is_given_back_only_what_was_cut():
    manager = drafting(6)
    first = dispatch_all(manager, "a")
    manager.truncate("a", 7)
    manager.append("a", [200])
    second = dispatch_all(manager, "a")
    manager.complete(first)
    assert references(manager, [0, 1, 2]) == [1, 1, 0]
    manager.free("a")
    manager.complete(second)
    assert inside(manager).pool.available == 8


# ---- placeholders ----------------------------------------------------------------------------------------------------


def overlapped() -> tuple[BlockManager, Step]:
    """a: three tokens computed and a placeholder in flight, in a block of 4."""
    manager = manager_of(4, 4)
    admit(manager, "a", [0, 1, 2])
    manager.append("a", [UNKNOWN])
    return manager, dispatch_all(manager, "a")


def test_a_block_is_published_at_completion_if_its_tokens_are_named_by_then():
    manager, step = overlapped()
    manager.fill("a", 3, [3])
    assert hits(manager, range(5)) == 0
    manager.complete(step)
    assert hits(manager, range(5)) == 4


def test_a_block_is_published_when_its_last_token_is_named_if_that_is_later():
    manager, step = overlapped()
    manager.complete(step)
    assert manager.sequence("a").computed == 4
    assert hits(manager, range(5)) == 0
    manager.fill("a", 3, [3])
    assert hits(manager, range(5)) == 4
    assert list(manager.sequence("a").tokens) == [0, 1, 2, 3]


def test_an_unnamed_token_is_never_part_of_an_identity():
    manager, step = overlapped()
    manager.complete(step)
    assert list(inside(manager).pool.index) == []
    manager.free("a")
    assert cached_order(manager) == []


def test_a_named_block_waits_for_the_unnamed_one_before_it():
    manager = manager_of(4, 2)
    admit(manager, "a", [0])
    manager.append("a", [UNKNOWN, UNKNOWN, UNKNOWN])
    run(manager, "a")
    manager.fill("a", 2, [2, 3])
    assert hits(manager, range(5)) == 0
    manager.fill("a", 1, [1])
    assert hits(manager, range(5)) == 4


def test_names_may_come_one_by_one():
    manager = manager_of(4, 2)
    admit(manager, "a", [0])
    manager.append("a", [UNKNOWN, 5, UNKNOWN])
    run(manager, "a")
    assert manager.sequence("a").unnamed == 2
    manager.fill("a", 1, [1])
    assert hits(manager, [0, 1, 5, 3, 9]) == 2
    manager.fill("a", 3, [3])
    assert hits(manager, [0, 1, 5, 3, 9]) == 4
    assert manager.sequence("a").unnamed == 0


def test_a_decode_can_go_on_over_placeholders():
    manager, first = overlapped()
    manager.append("a", [UNKNOWN])
    second = dispatch_all(manager, "a")
    manager.complete(first)
    manager.fill("a", 3, [3])
    assert hits(manager, range(5)) == 4
    manager.complete(second)
    manager.fill("a", 4, [4])
    manager.check()


def test_truncation_takes_its_placeholders_away():
    manager, step = overlapped()
    manager.append("a", [UNKNOWN, UNKNOWN])
    manager.truncate("a", 4)
    assert manager.sequence("a").unnamed == 1
    manager.truncate("a", 3)
    assert manager.sequence("a").unnamed == 0
    manager.complete(step)
    manager.fork("a", "c")


# ---- reset -----------------------------------------------------------------------------------------------------------


def test_a_reset_forgets_everything_that_could_be_hit():
    manager = manager_of(8, 4)
    cache(manager, range(5))
    admit(manager, "a", range(20, 25))
    manager.reset()
    assert hits(manager, range(5)) == 0 and hits(manager, range(20, 25)) == 0
    assert list(inside(manager).pool.index) == []
    manager.check()


def test_a_sequence_from_before_a_reset_runs_on_and_never_publishes():
    manager = manager_of(8, 4)
    admit(manager, "a", range(6))
    manager.reset()
    manager.append("a", range(6, 13))
    run(manager, "a")
    assert manager.sequence("a").computed == 13
    assert hits(manager, range(13)) == 0
    manager.free("a")
    assert cached_order(manager) == []
    manager.check()


def test_a_step_in_flight_at_a_reset_publishes_nothing():
    manager = manager_of(8, 4)
    manager.allocate("a", range(9))
    step = dispatch_all(manager, "a")
    manager.reset()
    manager.complete(step)
    assert hits(manager, range(9)) == 0


def test_a_name_given_after_a_reset_publishes_nothing():
    manager, step = overlapped()
    manager.complete(step)
    manager.reset()
    manager.fill("a", 3, [3])
    assert hits(manager, range(5)) == 0


def test_a_fork_of_a_sequence_from_before_a_reset_publishes_nothing():
    manager = manager_of(8, 4)
    admit(manager, "p", range(6))
    manager.reset()
    manager.fork("p", "c")
    manager.append("c", [6, 7])
    run(manager, "c")
    assert hits(manager, range(9)) == 0
    manager.check()


def test_what_is_allocated_after_a_reset_publishes_again():
    manager = manager_of(8, 4)
    admit(manager, "a", range(6))
    manager.reset()
    b = admit(manager, "b", range(6))
    assert b.num_hit_tokens == 0
    assert manager.lookup(range(6)).blocks == (b.table[0],)


# ---- namespaces ------------------------------------------------------------------------------------------------------

PARTS = ("model", "weights", "adapter", "media", "salt")
SPACES = [
    Namespace(),
    *(Namespace(**{part: text}) for part in PARTS for text in ("", "x", "y")),
    Namespace(adapter="x", salt="y"),
    Namespace(adapter="y", salt="x"),
    Namespace(adapter="xsalt:y"),
    Namespace(adapter="xsalt:1:y"),
    Namespace(adapter="x4:salt:1:y"),
    Namespace(adapter="\ud800"),
    Namespace(adapter="é"),
]


@pytest.mark.parametrize("bits", [128, 0])
def test_nothing_is_hit_across_namespaces(bits: int):
    manager = manager_of(2 * len(SPACES), 4, hash_function=weak_hash(bits))
    for at, space in enumerate(SPACES):
        assert [hits(manager, range(5), other) for other in SPACES[at:]] == [0] * (len(SPACES) - at)
        cache(manager, range(4), space)
        assert hits(manager, range(5), space) == 4
    found = {manager.lookup(range(5), space).blocks for space in SPACES}
    assert len(found) == len(SPACES)


def test_encodings_of_different_namespaces_are_different():
    assert len({space.encoding for space in SPACES}) == len(SPACES)


def test_none_is_not_empty_and_a_part_is_not_another():
    manager = manager_of(8, 4)
    cache(manager, range(4), Namespace(salt="x"))
    assert hits(manager, range(5), Namespace(salt="x")) == 4
    for other in (Namespace(), Namespace(salt=""), Namespace(adapter="x")):
        assert hits(manager, range(5), other) == 0


def test_equal_namespaces_are_one():
    manager = manager_of(8, 4)
    cache(manager, range(4), Namespace(adapter="a", salt="s"))
    assert hits(manager, range(5), Namespace(salt="s", adapter="a")) == 4


def test_a_block_of_prompt_and_generated_tokens_is_found_in_its_namespace():
    manager = manager_of(8, 4)
    space = Namespace(adapter="a")
    admit(manager, "a", [0, 1], space)
    manager.append("a", [2, 3])
    run(manager, "a")
    assert hits(manager, range(5), space) == 4
    assert hits(manager, range(5)) == 0


def test_a_fork_stays_in_its_namespace():
    manager = manager_of(8, 4)
    space = Namespace(adapter="a")
    admit(manager, "p", range(6), space)
    manager.fork("p", "c")
    manager.append("c", [6, 7])
    run(manager, "c")
    assert hits(manager, range(9), space) == 8
    assert hits(manager, range(9)) == 0


# ---- weak hashes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0, 1, 4, 128])
@pytest.mark.parametrize("policy", ReusePolicy)
def test_a_hit_is_right_under_any_hash(bits: int, policy: ReusePolicy):
    """Small pool, small alphabet: every hit block must have been last computed for exactly this history."""
    random = Random(bits)
    manager = manager_of(9, 2, hash_function=weak_hash(bits), reuse=policy)
    spaces = [Namespace(), Namespace(salt="s")]
    holds: dict[int, tuple[Namespace, tuple[int, ...]]] = {}
    found = 0
    for number in range(300):
        space = random.choice(spaces)
        prompt = [random.randrange(2) for _ in range(random.randint(1, 9))]
        match = manager.lookup(prompt, space)
        for logical, block in enumerate(match.blocks):
            assert holds[block] == (space, tuple(prompt[: 2 * logical + 2]))
        found += match.num_tokens
        sequence = admit(manager, number, prompt, space)
        assert sequence.num_hit_tokens == match.num_tokens
        for logical, block in enumerate(sequence.table):
            holds[block] = (space, tuple(prompt[: 2 * logical + 2]))
        manager.free(number)
    assert found > 100 and manager.statistics().evicted_tokens > 100
    manager.check()


@pytest.mark.parametrize("bits", [0, 1, 4])
def test_a_weak_hash_finds_all_that_a_strong_one_finds(bits: int):
    random = Random(7)
    weak, strong = manager_of(12, 2, hash_function=weak_hash(bits)), manager_of(12, 2)
    for _ in range(200):
        prompt = [random.randrange(2) for _ in range(random.randint(1, 10))]
        assert weak.lookup(prompt).blocks == strong.lookup(prompt).blocks
        assert cache(weak, prompt) == cache(strong, prompt)


@pytest.mark.parametrize("bits", [0, 1, 4, 127])
def test_a_weak_hash_has_as_many_values_as_its_bits_allow(bits: int):
    hash_function = weak_hash(bits)
    values = {hash_function(b"%d" % number) for number in range(200)}
    assert len(values) == min(2**bits, 200)


# ---- PrefixMatch -----------------------------------------------------------------------------------------------------


def test_a_match_saves_the_hashing():
    calls = []

    def counting(data: bytes) -> bytes:
        calls.append(data)
        return weak_hash(64)(data)

    manager = manager_of(8, 4, hash_function=counting)
    match = manager.lookup(range(9))
    calls.clear()
    assert manager.allocate("a", range(9), match=match).num_hit_tokens == 0
    for _ in range(3):
        manager.complete(manager.dispatch([("a", 3)]))
    assert calls == []
    assert hits(manager, range(9)) == 8


def test_a_match_for_other_tokens_or_another_namespace_is_told():
    manager = manager_of()
    match = manager.lookup([1, 2])
    words = "^the match was made for other tokens or another namespace; look up again$"
    for tokens, namespace in (
        ([1, 3], Namespace()),
        (array("i", [1, 3]), Namespace()),
        ([1, 2], Namespace(salt="s")),
        (array("i", [1, 2]), Namespace(salt="s")),
    ):
        with pytest.raises(MatchMismatch, match=words):
            manager.allocate("a", tokens, namespace, match)
    manager.allocate("a", [1, 2], Namespace(), match)
    given = array("i", [1, 2])
    taken = manager.allocate("b", given, Namespace(), match).tokens
    assert taken == given and taken is not given and taken is not match._tokens


def test_a_match_serves_several_requests():
    manager = manager_of(8, 4)
    match = manager.lookup(range(9))
    manager.allocate("a", range(9), match=match)
    run(manager, "a")
    b = manager.allocate("b", range(9), match=match)
    assert b.num_hit_tokens == 8
    manager.append("b", range(9, 13))
    run(manager, "b")
    manager.free("a")
    assert manager.allocate("c", range(9), match=match).num_hit_tokens == 8
    manager.check()


def test_a_stale_match_hits_what_is_there_now_and_not_what_was():
    manager = manager_of(3, 4)
    cache(manager, range(8))
    match = manager.lookup(range(9))
    assert (match.num_tokens, match.blocks) == (8, (0, 1))
    cache(manager, range(20, 28))
    a = manager.allocate("a", range(9), match=match)
    assert (a.num_hit_tokens, a.table[0]) == (4, 0)
    assert (match.num_tokens, match.blocks) == (8, (0, 1))


def test_a_match_from_before_a_reset_hits_nothing():
    manager = manager_of(4, 4)
    cache(manager, range(8))
    match = manager.lookup(range(9))
    manager.reset()
    assert manager.allocate("a", range(9), match=match).num_hit_tokens == 0


def test_a_match_made_in_one_type_of_tokens_serves_another():
    manager = manager_of(4, 4)
    cache(manager, range(4))
    match = manager.lookup(np.arange(5, dtype=np.int64))
    assert manager.allocate("a", [0, 1, 2, 3, 4], match=match).num_hit_tokens == 4


def test_the_caller_s_tokens_are_copied():
    manager = manager_of(4, 2)
    tokens = [1, 2, 3]
    array = np.array(tokens, dtype=np.int32)
    manager.allocate("a", tokens)
    manager.allocate("b", array)
    tokens[0] = array[0] = 9
    assert list(manager.sequence("a").tokens) == list(manager.sequence("b").tokens) == [1, 2, 3]


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_lookup_changes_nothing():
    manager = manager_of(8, 4)
    cache(manager, range(8))
    cache(manager, range(20, 24))
    admit(manager, "a", range(30, 36))
    before, counted = state(manager), manager.statistics()
    for prompt in (range(9), range(20, 30), range(30, 40), range(50, 60), range(100)):
        manager.lookup(prompt)
        manager.lookup(prompt, Namespace(salt="never seen"))
    assert state(manager) == before
    assert manager.statistics() == counted


def test_a_lookup_does_not_keep_a_block_from_eviction():
    manager = manager_of(2, 4)
    cache(manager, range(4))
    cache(manager, range(20, 24))
    manager.lookup(range(5))
    manager.allocate("a", [1])
    assert hits(manager, range(5)) == 0 and hits(manager, range(20, 25)) == 4


def test_statistics_of_a_whole_story():
    manager = manager_of(4, 2)
    zero = manager.statistics()
    assert (zero.free_blocks, zero.cached_blocks, zero.active_blocks) == (4, 0, 0)

    admit(manager, "a", [1, 2, 3])
    manager.free("a")
    manager.allocate("b", [1, 2, 4])
    with pytest.raises(OutOfBlocks):
        manager.allocate("c", range(10, 16))
    with pytest.raises(NeverFits):
        manager.append("b", range(20))
    step = dispatch_all(manager, "b")
    seen = manager.statistics()
    assert (seen.free_blocks, seen.cached_blocks, seen.active_blocks) == (2, 0, 2)
    assert (seen.requests, seen.steps_in_flight, seen.empty_tail_slots) == (1, 1, 1)
    assert (seen.queried_tokens, seen.hit_tokens) == (6, 2)
    assert (seen.refusals, seen.evicted_tokens, seen.copied_blocks) == (2, 0, 0)

    manager.complete(step)
    manager.fork("b", "f")
    manager.append("f", [5])
    run(manager, "f")
    manager.free("b")
    manager.free("f")
    seen = manager.statistics()
    assert (seen.free_blocks, seen.cached_blocks, seen.active_blocks) == (2, 2, 0)
    manager.allocate("d", range(30, 38))
    seen = manager.statistics()
    assert (seen.free_blocks, seen.cached_blocks, seen.active_blocks) == (0, 0, 4)
    assert (seen.evicted_tokens, seen.copied_blocks, seen.requests, seen.steps_in_flight) == (4, 1, 1, 0)
    assert (seen.queried_tokens, seen.hit_tokens, seen.refusals) == (14, 2, 2)
    assert zero == type(zero)(4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_every_copy_and_every_refusal_is_counted():
    manager = manager_of(8, 2)
    admit(manager, "p", [1])
    for number, child in enumerate("abc", 1):
        manager.fork("p", child)
        manager.append(child, [2])
        for _ in range(2):
            with pytest.raises(OutOfBlocks):
                manager.allocate("x", range(16))
        seen = manager.statistics()
        assert (seen.copied_blocks, seen.refusals) == (number, 2 * number)


def test_a_reset_is_no_eviction():
    manager = manager_of(4, 2)
    cache(manager, range(6))
    manager.reset()
    assert manager.statistics().evicted_tokens == 0


def test_sequences_and_steps_say_what_they_are():
    manager = manager_of(4, 2)
    sequence = manager.allocate("a", [1, 2, 3])
    step = manager.dispatch([("a", 2)])
    assert repr(sequence) == "<Sequence 'a': 3 tokens, 2 scheduled, 0 computed, table [0, 1]>"
    assert repr(step) == "<Step 0: ['a']>"
    manager.complete(step)
    assert repr(step) == "<Step 0: ['a'], completed>"
    assert manager.sequence("a") is sequence


def test_a_new_sequence_counts_nothing():
    sequence = Sequence("a", Namespace(), array("i", [1, 2, 3]), [4, 5], 0)
    counts = (sequence.num_hit_tokens, sequence.scheduled, sequence.computed, sequence.published, sequence.written_from)
    assert counts == (0, 0, 0, 0, 0)
    assert (sequence.base, sequence.unnamed, sequence.freed) == (3, 0, False)
    assert (sequence.packed_table().typecode, sequence.packed_table().tolist()) == ("i", [4, 5])
    step = Step(object(), 7, [sequence], [0], [3])
    assert (step.number, step.completed, step.copies, step.batch) == (7, False, (), None)


def test_a_request_id_can_be_any_hashable():
    manager = manager_of(4, 2)
    for request in (0, "0", None, ("a", 1)):
        manager.allocate(request, [1])
    assert manager.dispatch([(None, 1), (("a", 1), 1)]).sequences == [
        manager.sequence(None),
        manager.sequence(("a", 1)),
    ]


def test_every_block_comes_back_in_the_end():
    manager = manager_of(8, 2)
    admit(manager, "a", range(5))
    manager.fork("a", "b")
    manager.append("b", [UNKNOWN])
    step = dispatch_all(manager, "b")
    manager.append("a", [9, 9, 9])
    for request in "ab":
        manager.free(request)
    manager.complete(step)
    assert inside(manager).pool.available == 8
    assert inside(manager).pool.references == [0] * 8
    manager.allocate("all", range(100, 116))
    manager.check()
