"""The slot oracle: what was written stays until it is overwritten, and a history is more than the block's tokens."""

from __future__ import annotations

from array import array

from reference import Slots


def tokens(*values: int) -> array[int]:
    return array("i", values)


def test_a_slot_that_was_never_written_holds_nothing():
    slots = Slots(2)
    assert slots.content(0) == (-1, tokens())
    assert not slots.holds(0, 5, tokens(1))


def test_what_is_written_is_held_after_its_history_only():
    slots = Slots(2)
    slots.write(0, 0, 5, tokens(1, 2, 3))
    assert slots.holds(0, 5, tokens(1, 2, 3))
    assert slots.holds(0, 5, tokens(1, 2))
    assert not slots.holds(0, 6, tokens(1, 2, 3))
    assert not slots.holds(0, 5, tokens(1, 3))
    assert not slots.holds(0, 5, tokens(1, 2, 3, 4))
    assert not slots.holds(1, 5, tokens(1, 2, 3))


def test_a_block_is_written_piece_by_piece():
    slots = Slots(1)
    slots.write(0, 0, 5, tokens(1))
    slots.write(0, 1, 5, tokens(2, 3))
    assert slots.content(0) == (5, tokens(1, 2, 3))
    slots.write(0, 1, 5, tokens(9))
    assert slots.content(0) == (5, tokens(1, 9, 3))


def test_a_first_slot_written_anew_begins_another_history():
    slots = Slots(1)
    slots.write(0, 0, 5, tokens(1, 2, 3))
    slots.write(0, 0, 6, tokens(1))
    assert slots.holds(0, 6, tokens(1))
    assert not slots.holds(0, 6, tokens(1, 2, 3))
    assert not slots.holds(0, 5, tokens(1))


def test_a_copy_is_a_copy():
    slots = Slots(2)
    slots.write(0, 0, 5, tokens(1, 2))
    slots.copy(0, 1)
    slots.write(0, 2, 5, tokens(3))
    slots.write(1, 2, 5, tokens(4))
    assert slots.content(0) == (5, tokens(1, 2, 3))
    assert slots.content(1) == (5, tokens(1, 2, 4))


def test_a_placeholder_gets_its_name_where_it_is_written():
    slots = Slots(1)
    slots.write(0, 0, 5, tokens(1, -1))
    slots.name(0, 1, 7)
    slots.name(0, 2, 8)
    slots.name(0, 3, 8)
    assert slots.content(0) == (5, tokens(1, 7))


def test_a_history_may_turn_out_to_be_another():
    slots = Slots(1)
    slots.write(0, 0, 5, tokens(1))
    slots.rename(0, 6)
    assert slots.holds(0, 6, tokens(1)) and not slots.holds(0, 5, tokens(1))
