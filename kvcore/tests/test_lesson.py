"""The numbers of the lesson that this project grew from, worked out by hand and compared with the core.

From logical token to physical slot, the three states of a block, and the life of one block from first use to eviction.
"""

from __future__ import annotations

from array import array

import pytest

from kvcore import BlockManager, OutOfBlocks, ReusePolicy
from kvcore.batch import build
from kvcore.state import inside

from .support import admit, cache, cached_order, dispatch_all, free_order, hits, manager_of, references, run


def manager_that_gives(table: list[int], num_blocks: int, block_size: int) -> BlockManager:
    """A manager whose free blocks are exactly `table`, in that order; all others are held."""
    manager = manager_of(num_blocks, block_size)
    for block in range(num_blocks):
        assert manager.allocate(("holder", block), [block]).table == [block]
    for block in table:
        manager.free(("holder", block))
    return manager


def slots_of(table: list[int], start: int, end: int, block_size: int) -> list[int]:
    return build([array("i", table)], [start], [end], (), block_size).slot_mapping.tolist()


# ---- slots -----------------------------------------------------------------------------------------------------------


def test_token_6_in_table_5_2_7_is_in_slot_10():
    assert slots_of([5, 2, 7], 6, 7, block_size=4) == [10]


def test_positions_3_to_6_jump_from_slot_23_to_slot_8():
    assert slots_of([5, 2, 7], 3, 7, block_size=4) == [23, 8, 9, 10]


def test_five_tokens_in_table_3_0_4():
    assert slots_of([3, 0, 4], 0, 5, block_size=2) == [6, 7, 0, 1, 8]


def test_a_manager_with_scattered_blocks_gives_the_same_slots():
    manager = manager_that_gives([3, 0, 4], num_blocks=5, block_size=2)
    assert manager.allocate("r", [1, 2, 3, 4, 5]).table == [3, 0, 4]
    assert run(manager, "r").batch.slot_mapping.tolist() == [6, 7, 0, 1, 8]


def test_a_chunk_in_the_middle_has_three_different_indices():
    manager = manager_that_gives([5, 2, 7], num_blocks=8, block_size=4)
    assert manager.allocate("A", range(10)).table == [5, 2, 7]
    manager.complete(manager.dispatch([("A", 3)]))
    batch = manager.dispatch([("A", 4)]).batch
    assert batch.packed_rows.tolist() == [0, 1, 2, 3]
    assert batch.positions.tolist() == [3, 4, 5, 6]
    assert batch.slot_mapping.tolist() == [23, 8, 9, 10]
    assert batch.context_lengths.tolist() == [7]


# ---- sharing ---------------------------------------------------------------------------------------------------------


def test_reference_counts_when_b_hits_the_first_two_blocks_of_a():
    manager = manager_of(8, 4)
    a = admit(manager, "A", range(10))
    assert references(manager, a.table) == [1, 1, 1]
    b = manager.allocate("B", [*range(8), 50, 51])
    assert b.table[:2] == a.table[:2] and b.table[2] not in a.table
    assert b.num_hit_tokens == 8
    assert references(manager, a.table) == [2, 2, 1]
    assert references(manager, b.table) == [2, 2, 1]
    own = list(a.table)
    manager.free("A")
    assert references(manager, own) == [1, 1, 0]
    manager.free("B")
    assert references(manager, own) == [0, 0, 0]
    assert cached_order(manager) == [own[1], own[0]]


def test_an_active_hit_leaves_the_available_blocks_alone_and_a_cached_hit_takes_one_each():
    prompt = [*range(8), 50]
    active, cached = manager_of(8, 4), manager_of(8, 4)
    admit(active, "A", range(8))
    cache(cached, range(8))
    for manager in (active, cached):
        assert hits(manager, prompt) == 8
    before = {id(manager): inside(manager).pool.available for manager in (active, cached)}
    assert inside(active).pool.available == 6 and inside(cached).pool.available == 8
    for manager in (active, cached):
        manager.allocate("B", prompt)
    assert before[id(active)] - inside(active).pool.available == 1
    assert before[id(cached)] - inside(cached).pool.available == 3
    assert (len(inside(active).pool.free), inside(active).pool.num_cached) == (5, 0)
    assert (len(inside(cached).pool.free), inside(cached).pool.num_cached) == (5, 0)


# ---- the last block --------------------------------------------------------------------------------------------------


def test_a_full_last_block_is_not_reused_under_last_block():
    manager = manager_of(8, 4, reuse=ReusePolicy.LAST_BLOCK)
    cache(manager, range(8))
    assert hits(manager, range(8)) == 4
    b = manager.allocate("B", range(8))
    assert (b.num_hit_tokens, b.scheduled, b.computed) == (4, 4, 4)
    batch = dispatch_all(manager, "B").batch
    assert batch.positions.tolist() == [4, 5, 6, 7]
    assert batch.slot_mapping.tolist() == [4 * b.table[1] + offset for offset in range(4)]


def test_a_full_last_block_is_reused_under_last_token_and_only_the_last_token_is_computed_again():
    manager = manager_of(8, 4, reuse=ReusePolicy.LAST_TOKEN)
    blocks = cache(manager, range(8))
    b = manager.allocate("B", range(8))
    assert b.table == blocks
    assert (b.num_hit_tokens, b.scheduled, b.computed) == (7, 7, 7)
    batch = dispatch_all(manager, "B").batch
    assert batch.positions.tolist() == [7]
    assert batch.slot_mapping.tolist() == [-1]
    assert batch.context_lengths.tolist() == [8]


@pytest.mark.parametrize("policy", ReusePolicy)
def test_a_partly_full_last_block_is_never_reused(policy: ReusePolicy):
    manager = manager_of(8, 4, reuse=policy)
    cache(manager, range(10))
    assert hits(manager, range(10)) == 8


@pytest.mark.parametrize("length", range(1, 14))
def test_at_most_all_blocks_but_the_last_are_hit_under_last_block(length: int):
    manager = manager_of(16, 4)
    cache(manager, range(20))
    assert hits(manager, range(length)) == 4 * (-(-length // 4) - 1)


@pytest.mark.parametrize("length", range(1, 14))
def test_all_full_blocks_but_one_token_are_hit_under_last_token(length: int):
    manager = manager_of(16, 4, reuse=ReusePolicy.LAST_TOKEN)
    cache(manager, range(20))
    assert hits(manager, range(length)) == min(length // 4 * 4, length - 1)


# ---- capacity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 2, 4, 8])
def test_three_blocks_do_not_fit_into_two_whatever_the_chunk(chunk: int):
    manager = manager_of(4, 4)
    manager.allocate("other", range(8))
    with pytest.raises(OutOfBlocks):
        manager.allocate("r", range(20, 29))
    manager.allocate("r", range(20, 28))
    for _ in range(0, 8, chunk):
        manager.complete(manager.dispatch([("r", chunk)]))
    assert manager.sequence("r").computed == 8


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 8])
def test_only_the_tail_has_empty_slots_and_fewer_than_a_block(block_size: int):
    manager = manager_of(64, block_size)
    for length in range(1, 3 * block_size + 1):
        manager.allocate("r", range(length))
        empty = manager.statistics().empty_tail_slots
        assert empty == len(manager.sequence("r").table) * block_size - length
        assert 0 <= empty <= block_size - 1
        manager.free("r")


def test_empty_tail_slots_add_up_over_requests():
    manager = manager_of(8, 4)
    for request, length in (("a", 1), ("b", 4), ("c", 6)):
        manager.allocate(request, range(length))
    assert manager.statistics().empty_tail_slots == 3 + 0 + 2


# ---- reallocation ----------------------------------------------------------------------------------------------------


def test_reallocation_removes_the_mapping_only_where_it_points_at_this_block():
    """nano-vllm issue 219: one content, two owners; one is recycled, the other must still be found."""
    manager = manager_of(4, 4)
    for request in "AB":
        manager.allocate(request, [1, 2, 3, 4, 9])
    run(manager, "A", "B")
    a, b = manager.sequence("A").table, list(manager.sequence("B").table)
    manager.free("B")
    assert manager.allocate("C", range(20, 28)).table == [b[1], b[0]]
    assert manager.lookup([1, 2, 3, 4, 8]).blocks == (a[0],)


def test_reallocation_of_the_first_owner_leaves_the_second():
    manager = manager_of(4, 4)
    for request in "AB":
        manager.allocate(request, [1, 2, 3, 4, 9])
    run(manager, "A", "B")
    a, b = list(manager.sequence("A").table), manager.sequence("B").table
    manager.free("A")
    assert manager.allocate("C", range(20, 28)).table == [a[1], a[0]]
    assert manager.lookup([1, 2, 3, 4, 8]).blocks == (b[0],)


def test_a_free_block_says_nothing_about_a_hit():
    """Cached blocks count as available and can still be hit; free ones hold nothing that can be."""
    manager = manager_of(4, 4)
    cache(manager, range(4))
    assert inside(manager).pool.available == 4
    assert hits(manager, range(5)) == 4
    manager.reset()
    assert inside(manager).pool.available == 4
    assert hits(manager, range(5)) == 0


def test_the_six_moments_of_one_block():
    manager = manager_of(2, 4)
    prompt = [1, 2, 3, 4]
    extended = [*prompt, 5]

    manager.allocate("A", prompt)  # 1. allocated: active, and its content is not to be had
    assert references(manager, [0]) == [1]
    assert free_order(manager) == [1]
    assert hits(manager, extended) == 0

    run(manager, "A")  # 2. published
    assert references(manager, [0]) == [1]
    assert manager.lookup(extended).blocks == (0,)

    manager.allocate("B", extended)  # 3. shared
    assert references(manager, [0]) == [2]

    manager.free("A")
    manager.free("B")  # 4. released: nobody holds it, and it is still there
    assert references(manager, [0]) == [0]
    assert (free_order(manager), cached_order(manager)) == ([1], [0])
    assert manager.lookup(extended).blocks == (0,)

    assert manager.allocate("C", extended).table == [0, 1]  # 5. hit again: active, content kept
    assert references(manager, [0]) == [1]
    assert cached_order(manager) == []
    manager.free("C")

    other = manager.allocate("D", [6, 7, 8, 9, 10])  # 6. evicted, to be overwritten
    assert other.table == [1, 0]
    assert hits(manager, extended) == 0
    run(manager, "D")
    assert manager.statistics().evicted_tokens == 4
    manager.free("D")
    assert hits(manager, extended) == 0
    assert manager.lookup([6, 7, 8, 9, 10]).blocks == (1,)
    manager.check()
