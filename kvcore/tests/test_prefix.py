"""PrefixIndex alone: contents are whole histories, every owner is kept, and a link only finds candidates."""

from __future__ import annotations

from copy import deepcopy

import pytest

from kvcore.prefix import PrefixIndex

NOBODY = [0] * 16
P, Q, T, X = b"P", b"Q", b"T", b"X"


def index_with(*published: tuple[list[int], list[bytes]]) -> PrefixIndex:
    index = PrefixIndex(16)
    for blocks, links in published:
        index.publish(blocks, index.root(b""), links)
    return index


def walk(index: PrefixIndex, *links: bytes, namespace: bytes = b"", references: list[int] = NOBODY) -> list[int]:
    return index.walk(index.root(namespace), links, references)


def test_an_empty_index_finds_nothing():
    assert walk(PrefixIndex(4), P) == []


def test_what_is_published_is_found_as_far_as_it_reaches():
    index = index_with(([3, 1, 2], [P, T, X]))
    assert walk(index, P) == [3]
    assert walk(index, P, T, X) == [3, 1, 2]
    assert walk(index, P, T, Q) == [3, 1]
    assert walk(index, Q, T, X) == []


def test_a_later_block_is_not_found_without_the_ones_before_it():
    index = index_with(([3, 1, 2], [P, T, X]))
    assert walk(index, T, X) == []
    assert walk(index, P, X) == [3]


def test_a_walk_stops_at_the_first_miss():
    index = index_with(([3, 1, 2], [P, T, X]))
    index.remove([1])
    assert walk(index, P, T, X) == [3]


def test_nothing_is_found_in_another_namespace():
    index = index_with(([3], [P]))
    assert walk(index, P, namespace=b"salt:1:s") == []


def test_the_root_of_a_namespace_is_one_object_while_anything_is_published_under_it():
    index = index_with(([3], [P]))
    assert index.root(b"") is index.root(b"")
    assert index.held[3] is not None and index.held[3][0] is index.root(b"")
    assert index.root(b"") is not index.root(b"other")


# ---- duplicates ------------------------------------------------------------------------------------------------------


def test_the_earliest_published_owner_is_taken():
    index = index_with(([5], [P]), ([2], [P]), ([7], [P]))
    assert walk(index, P) == [5]


def test_an_active_owner_is_taken_before_a_cached_one():
    index = index_with(([5], [P]), ([2], [P]), ([7], [P]))
    active = [0] * 16
    active[2] = active[7] = 1
    assert walk(index, P, references=active) == [2]
    active[5] = 1
    assert walk(index, P, references=active) == [5]


def test_duplicates_are_one_content():
    index = index_with(([5, 6], [P, T]), ([2, 3], [P, T]))
    assert index.held[5] is index.held[2]
    assert index.held[6] is index.held[3]


@pytest.mark.parametrize(("gone", "found"), [(5, 2), (2, 5), (7, 5)])
def test_one_owner_less_leaves_the_others(gone: int, found: int):
    index = index_with(([5], [P]), ([2], [P]), ([7], [P]))
    index.remove([gone])
    assert walk(index, P) == [found]
    assert sorted(block for _, block in index) == sorted({5, 2, 7} - {gone})
    assert index.held[gone] is None


def test_the_content_is_gone_with_the_last_owner():
    index = index_with(([5], [P]), ([2], [P]), ([7], [P]))
    index.remove([2, 5, 7])
    assert walk(index, P) == []
    assert list(index) == []


def test_what_extends_one_owner_is_found_through_another():
    index = index_with(([5, 6], [P, T]), ([2], [P]))
    active = [0] * 16
    active[2] = 1
    assert walk(index, P, T, references=active) == [2, 6]
    index.remove([5])
    assert walk(index, P, T) == [2, 6]


# ---- collisions ------------------------------------------------------------------------------------------------------


def test_one_link_after_two_histories_is_two_contents():
    index = index_with(([1, 2], [P, T]), ([3, 4], [Q, T]))
    assert index.held[2] is not index.held[4]
    assert walk(index, P, T) == [1, 2]
    assert walk(index, Q, T) == [3, 4]


@pytest.mark.parametrize(("gone", "prefix", "left"), [(2, Q, [3, 4]), (4, P, [1, 2])])
def test_a_colliding_history_stays_when_the_other_goes(gone: int, prefix: bytes, left: list[int]):
    index = index_with(([1, 2], [P, T]), ([3, 4], [Q, T]))
    index.remove([gone])
    assert walk(index, prefix, T) == left
    other = P if prefix is Q else Q
    assert walk(index, other, T) == [1 if other is P else 3]


def test_a_recycled_block_with_the_same_tokens_after_another_prefix_is_not_found():
    """nano-vllm issue 163: comparing the block's own tokens is not enough."""
    index = index_with(([0, 1], [P, T]))
    index.remove([1])
    index.publish([4, 1], index.root(b""), [Q, T])
    assert walk(index, P, T) == [0]


def test_the_same_link_in_two_namespaces_is_two_contents():
    index = PrefixIndex(8)
    index.publish([1], index.root(b"a"), [P])
    index.publish([2], index.root(b"b"), [P])
    assert walk(index, P, namespace=b"a") == [1]
    assert walk(index, P, namespace=b"b") == [2]
    assert walk(index, P, namespace=b"") == []


def test_an_active_block_with_a_colliding_history_is_not_taken_for_an_owner():
    index = index_with(([1, 2], [P, T]), ([3, 4], [Q, T]))
    active = [0] * 16
    active[4] = 1
    assert walk(index, P, T, references=active) == [1, 2]


# ---- interning -------------------------------------------------------------------------------------------------------


def test_a_block_that_is_published_already_is_passed_over():
    index = index_with(([1], [P]))
    before = index.held[1]
    index.publish([1, 2], index.root(b""), [P, T])
    assert index.held[1] is before
    assert walk(index, P, T) == [1, 2]
    assert len(list(index)) == 2


def test_removing_what_is_not_there_changes_nothing():
    index = index_with(([1], [P]))
    index.remove([2, 2])
    assert walk(index, P) == [1]
    index.remove([2, 1])
    assert walk(index, P) == []


def test_blocks_and_links_come_in_pairs():
    index = PrefixIndex(4)
    with pytest.raises(ValueError, match="argument 2"):
        index.publish([1, 2], index.root(b""), [P])


# ---- rollback --------------------------------------------------------------------------------------------------------


def test_a_block_rolled_back_is_not_found():
    index = index_with(([1, 2], [P, T]))
    index.withdraw(1)
    assert walk(index, P, T) == []
    assert [block for _, block in index] == [2]


def test_a_content_lives_as_long_as_a_longer_one_needs_it():
    """Its block is rolled back and computed again elsewhere: what extends it is found again."""
    index = index_with(([1, 2], [P, T]))
    index.withdraw(1)
    index.publish([3], index.root(b""), [P])
    assert walk(index, P, T) == [3, 2]
    assert list(index.orphans()) == []


def test_a_whole_chain_of_contents_comes_back():
    index = index_with(([1, 2, 3, 4], [P, T, X, Q]))
    for block in (3, 2, 1):
        index.withdraw(block)
    index.publish([5, 6], index.root(b""), [P, T])
    assert walk(index, P, T, X, Q) == [5, 6]
    index.publish([5, 6, 7], index.root(b""), [P, T, X])
    assert walk(index, P, T, X, Q) == [5, 6, 7, 4]


def test_an_orphan_is_not_taken_for_the_same_link_after_another_history():
    index = index_with(([1, 2, 3], [P, T, X]))
    index.withdraw(2)
    index.publish([4, 5], index.root(b""), [Q, T])
    assert walk(index, Q, T, X) == [4, 5]
    index.publish([6], index.root(b"other"), [P])
    assert walk(index, P, T, X, namespace=b"other") == [6]
    index.publish([1, 7], index.root(b""), [P, T])
    assert walk(index, P, T, X) == [1, 7, 3]


def test_a_content_with_another_owner_is_no_orphan():
    index = index_with(([1, 2], [P, T]), ([3], [P]))
    index.withdraw(1)
    assert list(index.orphans()) == []
    assert walk(index, P, T) == [3, 2]


def test_rolling_back_what_is_not_published_changes_nothing():
    index = index_with(([1], [P]))
    index.withdraw(2)
    assert walk(index, P) == [1] and list(index.orphans()) == []


def test_orphans_that_nothing_extends_are_swept_out():
    index = index_with(([1, 2], [P, T]))
    index.withdraw(1)
    for number in range(200):
        index.publish([3], index.root(b""), [b"%d" % number])
        index.withdraw(3)
        assert len(list(index.orphans())) <= 17
    index.publish([3], index.root(b""), [P])
    assert walk(index, P, T) == [3, 2]


def test_orphans_are_swept_out_under_colliding_links_too():
    """With a weak hash many histories share few links; memory must stay O(blocks) all the same."""
    index = PrefixIndex(16)
    for number in range(128):
        links = [b"%d" % (number >> bit & 1) for bit in range(7)]
        index.publish(range(7), index.root(b""), links)
        for block in reversed(range(7)):
            index.withdraw(block)
    assert len(list(index.orphans())) <= 2 * 17


def roll_back(index: PrefixIndex, block: int, *numbers: int) -> list[int]:
    """Publishes each number in `block` and rolls it back; says how many orphans there are after each."""
    kept = []
    for number in numbers:
        index.publish([block], index.root(b""), [b"junk %d" % number])
        index.withdraw(block)
        kept.append(len(list(index.orphans())))
    return kept


def test_orphans_are_swept_out_when_there_are_more_than_blocks():
    assert roll_back(PrefixIndex(4), 0, *range(12)) == [1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2]


def test_an_orphan_that_comes_back_counts_no_more():
    index = PrefixIndex(4)
    assert roll_back(index, 0, 1, 2, 3, 4) == [1, 2, 3, 4]
    assert roll_back(index, 0, 1, 1, 2) == [4, 4, 4]
    assert roll_back(index, 0, 5) == [0]


def test_a_sweep_keeps_what_is_extended_indirectly_and_waits_for_twice_as_many():
    index = PrefixIndex(16)
    chain = [b"%d" % number for number in range(11)]
    index.publish(range(11), index.root(b""), chain)
    for block in range(10):
        index.withdraw(block)
    assert roll_back(index, 15, *range(7)) == [11, 12, 13, 14, 15, 16, 10]
    assert roll_back(index, 15, *range(11)) == [*range(11, 21), 10]
    index.publish(range(10), index.root(b""), chain[:10])
    assert walk(index, *chain) == list(range(11))


def test_of_two_orphans_under_one_link_one_comes_back_and_the_other_stays():
    index = index_with(([1, 2, 3], [P, T, X]), ([4, 5, 6], [Q, T, X]))
    index.withdraw(2)
    index.withdraw(5)
    index.publish([1, 2], index.root(b""), [P, T])
    assert walk(index, P, T, X) == [1, 2, 3]
    assert len(list(index.orphans())) == 1
    index.publish([4, 5], index.root(b""), [Q, T])
    assert walk(index, Q, T, X) == [4, 5, 6]
    assert list(index.orphans()) == []


def test_a_copy_finds_the_same_and_changes_by_itself():
    index = index_with(([1, 2, 4], [P, T, X]), ([3], [P]), ([8], [Q]))
    index.withdraw(2)
    twin = deepcopy(index)
    assert list(twin) == list(index)
    assert [content is None for content in twin.held] == [content is None for content in index.held]
    assert twin.held[1] is twin.held[3] is not index.held[1]
    assert twin.root(b"") is not index.root(b"")
    assert walk(twin, P) == [1]

    twin.publish([5, 2], twin.root(b""), [P, T])  # the orphan comes back
    assert walk(twin, P, T, X) == [1, 2, 4]
    assert list(twin.orphans()) == []
    assert walk(index, P, T, X) == [1]
    assert len(list(index.orphans())) == 1
    twin.remove([1, 8])
    assert walk(twin, P) == [3]
    assert (walk(index, P), walk(index, Q)) == ([1], [8])


def test_clear_forgets_orphans():
    index = index_with(([1, 2], [P, T]))
    index.withdraw(1)
    index.clear()
    assert list(index.orphans()) == []
    assert roll_back(index, 0, *range(17))[-2:] == [16, 0]


def test_clear_forgets_everything():
    index = index_with(([1, 2], [P, T]), ([3, 4], [Q, T]))
    index.clear()
    assert list(index) == []
    assert index.held == [None] * 16
    assert walk(index, P, T) == []
    index.publish([2], index.root(b""), [P])
    assert walk(index, P) == [2]
