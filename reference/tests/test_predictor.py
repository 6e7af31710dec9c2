"""The predictor: the stated order of blocks, and nothing else."""

from __future__ import annotations

from reference import Predictor


def taken(predictor: Predictor, count: int) -> list[int]:
    blocks = predictor.next(count)
    for block in blocks:
        predictor.taken(block)
    return blocks


def test_blocks_are_first_taken_in_the_given_order():
    assert taken(Predictor([1, 2, 3]), 2) == [1, 2]


def test_asking_takes_nothing():
    predictor = Predictor(range(3))
    assert predictor.next(2) == predictor.next(2) == [0, 1]


def test_there_are_never_more_than_there_are():
    predictor = Predictor(range(3))
    taken(predictor, 2)
    predictor.released(1, published=True)
    assert predictor.next(5) == [2, 1]


def test_cached_blocks_only_make_up_what_is_missing():
    predictor = Predictor(range(4))
    taken(predictor, 3)
    for block in (0, 1, 2):
        predictor.released(block, published=True)
    assert predictor.next(2) == [3, 0]


def test_free_blocks_in_order_of_release_then_cached_ones():
    predictor = Predictor(range(4))
    taken(predictor, 4)
    for block, published in ((3, True), (1, False), (0, True), (2, False)):
        predictor.released(block, published)
    assert predictor.next(4) == [1, 2, 3, 0]


def test_a_hit_takes_a_cached_block_from_the_middle():
    predictor = Predictor(range(3))
    taken(predictor, 3)
    for block in (0, 1, 2):
        predictor.released(block, published=True)
    predictor.taken(1)
    assert predictor.next(3) == [0, 2]
    predictor.released(1, published=True)
    assert predictor.next(3) == [0, 2, 1]


def test_a_block_that_was_not_predicted_can_be_taken():
    predictor = Predictor(range(3))
    predictor.taken(1)
    assert predictor.next(3) == [0, 2]


def test_a_reset_appends_the_cached_blocks_in_order():
    predictor = Predictor(range(4))
    taken(predictor, 3)
    predictor.released(2, published=True)
    predictor.released(0, published=True)
    predictor.reset()
    assert list(predictor.free) == [3, 2, 0] and not predictor.cached


def test_in_the_order_of_release_cached_blocks_are_among_the_others():
    predictor = Predictor(range(4), "released")
    taken(predictor, 4)
    for block, published in ((3, True), (1, False), (0, True), (2, False)):
        predictor.released(block, published)
        predictor.settle()
    assert predictor.next(4) == [3, 1, 0, 2] and not predictor.cached
    predictor.refreshed(3)
    assert predictor.next(1) == [3]


def test_unpublished_blocks_go_to_the_front_together_in_the_order_of_their_release():
    predictor = Predictor(range(6), "unpublished_first")
    taken(predictor, 5)
    for block, published in ((4, False), (2, True), (3, False)):
        predictor.released(block, published)
    assert predictor.next(6) == [5, 2]  # what one operation releases comes back at its end
    predictor.settle()
    predictor.released(0, published=False)
    predictor.settle()
    assert predictor.next(6) == [0, 4, 3, 5, 2]
    assert list(predictor.clone().free) == [0, 4, 3, 5, 2]
