"""BlockPool alone: three states, one order of taking, and nothing listed twice."""

from __future__ import annotations

from random import Random

import pytest

from kvcore import BlockManager, CacheConfig, OutOfBlocks
from kvcore.pool import BlockPool
from kvcore.state import inside


def pool_with_cached(num_blocks: int, *blocks: int) -> BlockPool:
    """A pool with all blocks taken and then `blocks` published and released in this order."""
    pool = BlockPool(num_blocks)
    pool.take(num_blocks)
    publish(pool, *blocks)
    pool.release(blocks)
    return pool


def publish(pool: BlockPool, *blocks: int) -> None:
    for block in blocks:
        pool.index.publish([block], pool.index.root(b""), [b"%d" % block])


def test_blocks_are_taken_from_0_at_first():
    pool = BlockPool(4)
    assert pool.available == 4
    assert pool.take(3) == [0, 1, 2]
    assert pool.references == [1, 1, 1, 0]
    assert pool.available == 1


def test_free_blocks_are_taken_in_the_order_of_release():
    pool = BlockPool(4)
    pool.take(4)
    pool.release([2, 0])
    pool.release([3])
    assert pool.take(3) == [2, 0, 3]


def test_free_blocks_go_before_cached_ones():
    pool = pool_with_cached(4, 1, 0)
    pool.release([3])
    assert list(pool.free) == [3] and list(pool.cached()) == [1, 0]
    assert pool.take(2) == [3, 1]
    assert pool.evictions == 1
    assert list(pool.cached()) == [0]


def test_cached_blocks_are_taken_least_recently_released_first():
    pool = pool_with_cached(5, 3, 1, 4)
    assert pool.take(1) == [3]
    assert pool.take(2) == [1, 4]
    assert pool.available == 0


def test_taking_a_cached_block_takes_it_out_of_the_index():
    pool = pool_with_cached(3, 2, 0)
    pool.take(1)
    assert [block for _, block in pool.index] == [0]
    assert pool.index.held[2] is None


def test_a_pinned_cached_block_is_active_again_with_its_content():
    pool = pool_with_cached(3, 2, 0)
    pool.pin([2])
    assert pool.references == [0, 1, 1]
    assert list(pool.cached()) == [0]
    assert pool.num_cached == 1
    assert pool.index.held[2] is not None


@pytest.mark.parametrize("middle", [(3,), (1,), (4,), (1, 3), (3, 4), (4, 3, 1)])
def test_blocks_leave_the_cached_ring_from_anywhere(middle: tuple[int, ...]):
    pool = pool_with_cached(5, 1, 3, 4)
    pool.pin(middle)
    left = [block for block in (1, 3, 4) if block not in middle]
    assert list(pool.cached()) == left
    pool.release(middle)
    assert list(pool.cached()) == [*left, *middle]
    assert pool.take(3) == [*left, *middle]


def test_a_block_with_several_references_comes_back_with_the_last():
    pool = BlockPool(2)
    pool.take(1)
    pool.pin([0])
    pool.release([0])
    assert pool.references == [1, 0] and list(pool.free) == [1]
    pool.release([0])
    assert pool.references == [0, 0] and list(pool.free) == [1, 0]


def chain_cached(*released: int) -> BlockPool:
    """Blocks 0 to 3 hold one history, a content each, and block 4 another; `released` are cached, in this order."""
    pool = BlockPool(5)
    pool.take(5)
    pool.index.publish(range(4), pool.index.root(b""), [b"%d" % block for block in range(4)])
    publish(pool, 4)
    pool.release(released)
    return pool


def test_what_is_released_alone_makes_the_whole_prefix_younger_than_itself():
    pool = chain_cached(2, 1, 0, 4)
    pool.release_alone([3])
    assert list(pool.cached()) == [4, 3, 2, 1, 0]


def test_what_is_released_alone_refreshes_the_prefix_only_up_to_an_active_owner():
    pool = chain_cached(0, 4)
    pool.release_alone([3])
    assert list(pool.cached()) == [0, 4, 3]
    pool.release_alone([2])
    assert list(pool.cached()) == [0, 4, 3, 2]


def test_nobody_is_told_of_no_blocks():
    told: list[list[int]] = []
    pool = BlockPool(3, told.append)
    pool.take(3)
    publish(pool, 0)
    pool.pin([1])
    pool.release([0, 1])
    assert told == []
    pool.release([1])
    assert told == [[1]]


def test_forget_appends_the_cached_blocks_to_the_free_ones_in_order():
    pool = pool_with_cached(5, 4, 1)
    pool.release([0])
    pool.forget()
    assert list(pool.free) == [0, 4, 1]
    assert list(pool.cached()) == [] and pool.num_cached == 0
    assert list(pool.index) == []
    assert pool.evictions == 0


def test_the_ring_can_be_used_again_after_forget():
    pool = pool_with_cached(3, 0, 2)
    pool.forget()
    pool.take(2)
    publish(pool, 2)
    pool.release([2, 0])
    assert list(pool.cached()) == [2] and list(pool.free) == [0]
    assert pool.take(2) == [0, 2]


def test_taking_nothing_changes_nothing():
    pool = pool_with_cached(3, 0)
    assert pool.take(0) == []
    assert list(pool.cached()) == [0] and pool.evictions == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_random_walk_agrees_with_two_plain_lists(seed: int):
    random = Random(seed)
    pool = BlockPool(7)
    free, cached = list(range(7)), []
    count = [0] * 7
    for _ in range(600):
        choice = random.randrange(4)
        active = [block for block in range(7) if count[block]]
        if choice == 0:
            wanted = random.randint(0, len(free) + len(cached))
            queue = free + cached
            taken = pool.take(wanted)
            assert taken == queue[:wanted]
            free, cached = free[wanted:], cached[max(0, wanted - len(free)) :]
            for block in taken:
                count[block] = 1
        elif choice == 1 and active:
            block = random.choice(active)
            pool.release([block])
            count[block] -= 1
            if not count[block]:
                (cached if pool.index.held[block] is not None else free).append(block)
        elif choice == 2 and cached + active:
            block = random.choice(cached + active)
            pool.pin([block])
            count[block] += 1
            if block in cached:
                cached.remove(block)
        elif choice == 3 and active:
            publish(pool, random.choice(active))
        assert pool.references == count
        assert list(pool.free) == free
        assert list(pool.cached()) == cached and pool.num_cached == len(cached)


def test_discarded_blocks_are_told_once_before_anybody_gets_them() -> None:
    """A random run: what is free has been told since it was last held; what is evicted is told when it is taken."""
    rng = Random(5)
    gone: set[int] = set(range(6))

    def discard(blocks: list[int]) -> None:
        assert not gone & set(blocks)
        assert len(set(blocks)) == len(blocks)
        gone.update(blocks)

    manager = BlockManager(CacheConfig(num_blocks=6, block_size=2), on_discard=discard)
    evictions = resets = 0
    for number in range(2000):
        live = list(inside(manager).sequences)
        choice = rng.random()
        try:
            if choice < 0.4:
                manager.allocate(number, [rng.randrange(2) for _ in range(rng.randint(1, 6))])
            elif choice < 0.7 and live:
                request = rng.choice(live)
                sequence = manager.sequence(request)
                if len(sequence) > sequence.scheduled:
                    manager.complete(manager.dispatch([(request, len(sequence) - sequence.scheduled)]))
                manager.append(request, [1])
            elif choice < 0.72:
                resets += 1
                manager.reset()
            elif live:
                manager.free(rng.choice(live))
        except OutOfBlocks:
            continue
        pool = inside(manager).pool
        active = {block for block in range(6) if pool.references[block]}
        evictions += pool.evictions > 0
        # Whoever holds a block now was given one that was told of, or a hit, whose content is still good.
        gone -= active
        assert gone == set(pool.free)
    assert evictions
    assert resets
