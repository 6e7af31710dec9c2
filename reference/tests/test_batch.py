"""A step's arrays: right ones have no fault, and a wrong one is found and named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from reference import Mapping, Step
from reference.batch import padding_faults, step_array_faults

from .driving import admit, allocate, charged, complete, dispatch, dispatch_all, judge_of
from .scenes import PROMPT

RIGHT = {
    "tables": [[0, 1, 2], [3, -1, -1]],
    "context_lengths": [7, 1],
    "cu_seqlens": [0, 4, 5],
    "packed_rows": [0, 1, 2, 3, 4],
    "row_sequences": [0, 0, 0, 0, 1],
    "positions": [3, 4, 5, 6, 0],
    "slots": [3, 4, 5, 6, 12],
}


def two_sequences() -> Step:
    """A step of "a" (positions 3 to 6, in blocks 0 and 1) and "b" (position 0, in block 3), with `RIGHT` arrays."""
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    complete(judge, dispatch(judge, ("a", 3)))
    allocate(judge, "b", [90])
    return dispatch(judge, ("a", 4), ("b", 1))


def faults(step: Step, arrays: dict[str, list], block_size: int = 4) -> list[str]:
    return step_array_faults(step, SimpleNamespace(**arrays), block_size)


def test_right_arrays_have_no_fault():
    assert faults(two_sequences(), RIGHT) == []


@pytest.mark.parametrize(
    ("name", "wrong", "facts"),
    [
        ("tables", [[0, 2, 1], [3, -1, -1]], [("table", "'a'", "[0, 2, 1]", "[0, 1, 2]")]),
        ("tables", [[0, 1, 2], [3, 0, 0]], [("table", "'b'", "[3, 0, 0]", "[3]")]),
        ("context_lengths", [6, 1], [("context length", "'a'", "6", "7")]),
        ("context_lengths", [9, 1], [("context length", "'a'", "9", "7")]),
        (
            "cu_seqlens",
            [0, 3, 5],
            [("cu_seqlens", "'a'", "0 to 3", "0 to 4"), ("cu_seqlens", "'b'", "3 to 5", "4 to 5")],
        ),
        ("cu_seqlens", [0, 4, 4], [("cu_seqlens", "'b'", "4 to 4", "4 to 5")]),
        ("cu_seqlens", [1, 4, 5], [("cu_seqlens", "'a'", "1 to 4", "0 to 4")]),
        ("packed_rows", [0, 1, 2, 4, 3], [("packed rows", "[0, 1, 2, 4, 3]", "0 to 4")]),
        ("row_sequences", [0, 0, 0, 1, 1], [("rows 0 to 3", "sequence 0", "[0, 0, 0, 1]")]),
        ("positions", [0, 1, 2, 3, 0], [("positions", "'a'", "[0, 1, 2, 3]", "3 to 6")]),
        ("positions", [3, 4, 5, 6, 1], [("positions", "'b'", "[1]", "0 to 0")]),
        ("slots", [3, 4, 5, 7, 12], [("slots", "'a'", "4 to 6", "[4, 5, 7]", "[4, 5, 6]")]),
        ("slots", [3, 8, 9, 10, 12], [("slots", "'a'", "4 to 6", "[8, 9, 10]", "[4, 5, 6]")]),
        ("slots", [-1, 4, 5, 6, 12], [("slots", "'a'", "3 to 3", "[-1]", "[3]")]),
    ],
)
def test_a_wrong_array_is_named_with_what_is_right(name: str, wrong: list, facts: list[tuple[str, ...]]):
    found = faults(two_sequences(), RIGHT | {name: wrong})
    assert len(found) == len(facts)
    for fault, expected in zip(found, facts, strict=True):
        assert [fact for fact in expected if fact not in fault] == []


@pytest.mark.parametrize(
    ("name", "wrong", "fact"),
    [
        ("tables", [[0, 1, 2]], "1 tables"),
        ("context_lengths", [7], "1 context lengths"),
        ("cu_seqlens", [0, 4], "2 cu_seqlens"),
        ("packed_rows", [0, 1, 2, 3], "4 packed rows"),
        ("row_sequences", [0, 0, 0, 0], "4 row sequences"),
        ("positions", [3, 4, 5, 6], "4 positions"),
        ("slots", [3, 4, 5, 6], "4 slots"),
    ],
)
def test_an_array_of_another_length_is_counted_and_nothing_else_is_read(name: str, wrong: list, fact: str):
    (fault,) = faults(two_sequences(), RIGHT | {name: wrong})
    assert "2 sequences and 5 tokens" in fault and fact in fault


def test_long_arrays_are_shown_by_their_beginning():
    judge = judge_of(num_blocks=10, block_size=40)
    allocate(judge, "a", range(40))
    wrong = [*range(1, 41)]
    arrays = {
        "tables": [[0]],
        "context_lengths": [40],
        "cu_seqlens": [0, 40],
        "packed_rows": wrong,
        "row_sequences": [0] * 40,
        "positions": wrong,
        "slots": wrong,
    }
    found = faults(dispatch_all(judge, "a"), arrays, 40)
    assert len(found) == 3
    assert all(f"{[*range(1, 33)]}" in fault for fault in found)
    assert f"not {[*range(32)]}" in found[2]


@pytest.mark.parametrize(("slots", "right"), [([-1], True), ([7], False)])
def test_what_is_in_the_cache_already_is_not_written_again(slots: list[int], right: bool):
    judge = judge_of(reuse="last_token")
    admit(judge, "a", PROMPT[:8])
    allocate(judge, "b", PROMPT[:8])
    due = judge.before_dispatch((("b", 1),))
    arrays = SimpleNamespace(
        tables=[[0, 1]],
        context_lengths=[8],
        cu_seqlens=[0, 1],
        packed_rows=[0],
        row_sequences=[0],
        positions=[7],
        slots=slots,
    )
    judge.after_dispatch(due, (), (), [], arrays)
    assert charged(judge) is (None if right else Mapping)


FILLED = {
    "tables": [[0, 1, 2, -1], [3, -1, -1, -1], [-1, -1, -1, -1]],
    "context_lengths": [7, 1, 0],
    "cu_seqlens": [0, 4, 5, 5],
    "packed_rows": [0, 1, 2, 3, 4, -1, -1],
    "row_sequences": [0, 0, 0, 0, 1, -1, -1],
    "positions": [3, 4, 5, 6, 0, 0, 9],
    "slots": [3, 4, 5, 6, 12, -1, -1],
}


def filled_up(arrays: dict[str, list]) -> list[str]:
    return padding_faults(SimpleNamespace(**RIGHT), SimpleNamespace(**arrays), rows=2, sequences=1)


def test_arrays_that_are_filled_up_write_nothing_and_read_nothing_more():
    assert filled_up(FILLED) == []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("tables", [[0, 1, 2, -1], [3, -1, -1, -1], [0, -1, -1, -1]]),
        ("tables", [[0, 1, 2, 3], [3, -1, -1, -1], [-1, -1, -1, -1]]),
        ("tables", [[0, 2, 1, -1], [3, -1, -1, -1], [-1, -1, -1, -1]]),
        ("tables", [[0, 1, 2, -1], [3, -1, -1, -1]]),
        ("context_lengths", [7, 1, 1]),
        ("context_lengths", [7, 0, 0]),
        ("cu_seqlens", [0, 4, 5, 6]),
        ("cu_seqlens", [0, 4, 5]),
        ("packed_rows", [0, 1, 2, 3, 4, 0, 0]),
        ("row_sequences", [0, 0, 0, 0, 1, 1, -1]),
        ("positions", [3, 4, 5, 6, 1, 0, 0]),
        ("positions", [3, 4, 5, 6, 0, 0]),
        ("slots", [3, 4, 5, 6, 12, -1, 0]),
        ("slots", [3, 4, 5, 6, -1, -1, -1]),
        ("slots", [3, 4, 5, 6, 12, -1]),
    ],
)
def test_a_wrong_filler_is_named(name: str, wrong: list):
    (fault,) = filled_up(FILLED | {name: wrong})
    assert name.removesuffix("_lengths") in fault
