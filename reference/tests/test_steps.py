"""Admission by the step, and tables that are merged, where a core need not hit all that is resident.

Such a core may hit anything between nothing and everything, so what fits is a range: a hit on an idle block can cost
one more, since at least a token is computed after it, and one on an active block saves one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reference import Admission, Freshness, Judge, Mapping, Policy

from .driving import charged, complete, free, merge, take, wait


def judge_of(num_blocks: int, block_size: int = 1, complete: bool = False) -> Judge:
    return Judge(Policy(num_blocks, block_size, exact=False, admission="step", merges=not complete, complete=complete))


def step(judge: Judge, work: Sequence[tuple[str, int]], starts: Sequence[int], *tables: list[int]) -> None:
    """A step that admits the first `len(starts)` requests, and what becomes of it."""
    dispatched = take(judge, work, starts, tables)
    if not judge.findings:
        complete(judge, dispatched)


def cached(num_blocks: int, complete: bool = False) -> Judge:
    """One idle block, 0, holds the first token of [7, 8]."""
    judge = judge_of(num_blocks, complete=complete)
    wait(judge, "a", [7, 8])
    step(judge, [("a", 1)], [0], [0])
    free(judge, "a")
    return judge


def test_a_request_that_fits_without_its_hit_and_not_with_it_may_be_admitted_and_refused() -> None:
    judge = cached(1)
    wait(judge, "c", [7, 8])
    due = judge.before_dispatch([("c", 1)])
    assert due.refusal is None
    assert due.may_refuse
    step(judge, [("c", 1)], [0], [0])
    assert judge.findings == []


def test_where_all_that_is_resident_is_hit_it_can_only_be_refused() -> None:
    judge = cached(1, complete=True)
    wait(judge, "c", [7, 8])
    due = judge.before_dispatch([("c", 1)])
    assert due.refusal == "OutOfBlocks"
    assert not due.may_refuse


def test_what_fits_with_no_hit_at_all_and_with_every_one_must_be_admitted() -> None:
    judge = cached(3)
    wait(judge, "b", [1])
    wait(judge, "c", [7, 8])
    due = judge.before_dispatch([("c", 1)])
    assert due.refusal is None
    assert not due.may_refuse
    step(judge, [("b", 1), ("c", 1)], [0], [1])
    assert charged(judge) is Admission
    assert "leaves out 'c'" in judge.findings[0].message


@pytest.mark.parametrize("admitted", [False, True])
def test_the_second_of_a_step_may_be_left_out_for_what_it_would_hit(admitted: bool) -> None:
    judge = cached(2)
    wait(judge, "b", [1])
    wait(judge, "c", [7, 8])
    work = [("b", 1), ("c", 1)]
    step(judge, work, *([0, 0], [1], [0]) if admitted else ([0], [1]))
    assert judge.findings == []


def test_a_hit_may_be_looked_up_before_the_others_take_their_blocks() -> None:
    """b takes the block that c would hit. Afterwards c fits with nothing hit; before, it would have needed two."""
    judge = cached(2)
    wait(judge, "b", [1])
    wait(judge, "c", [7, 8])
    step(judge, [("b", 1), ("c", 1)], [0], [0])
    assert judge.findings == []


def test_of_a_content_in_an_active_and_an_idle_block_the_idle_one_may_be_hit() -> None:
    judge = judge_of(4)
    for request in ("a", "b"):
        wait(judge, request, [7, 8])
    step(judge, [("a", 1), ("b", 1)], [0, 0], [0], [1])
    free(judge, "a")
    wait(judge, "d", [1, 1])
    wait(judge, "c", [7, 8])
    # Of 0, 2 and 3, d takes 2. c needs one more with the active block 1, and two with 0: they are there.
    due = judge.before_dispatch([("c", 1)])
    assert due.refusal is None
    assert not due.may_refuse
    step(judge, [("d", 2), ("c", 1)], [0], [2, 3])
    # After d there is 0 alone: enough beside 1, not enough if 0 itself is hit.
    assert judge.findings == []


def test_an_admission_is_judged_by_what_was_hit() -> None:
    judge = judge_of(3, 2)
    wait(judge, "a", [1, 2, 3, 4, 5])
    step(judge, [("a", 4)], [0], [0, 1])
    wait(judge, "b", [1, 2, 3, 4, 5])
    # Both active blocks are hit, or there is no room.
    due = judge.before_dispatch([("b", 5)])
    assert due.refusal is None
    assert due.may_refuse
    judge.after_dispatch(due, [0], [[2, 2, 2]], [])
    assert charged(judge) is not None
    assert any(isinstance(found, Admission) for found in judge.findings)


def test_a_merged_table_is_held_and_the_old_blocks_are_let_go() -> None:
    judge = judge_of(4, 2)
    for request in ("a", "b"):
        wait(judge, request, [1, 2, 3])
    work = [("a", 3), ("b", 3)]
    due = judge.before_dispatch(work)
    assert due.refusal is None
    dispatched = judge.after_dispatch(due, [0, 0], [[0, 1], [2, 3]], ())
    merge(judge, dispatched, [[0, 1], [0, 3]])
    assert judge.findings == []
    assert judge.blocks.references == [2, 1, 0, 1]


@pytest.mark.parametrize(
    ("table", "kind"),
    [([1, 3], Freshness), ([0, 1], Mapping), ([0], Mapping)],
    ids=["other content", "beyond what is computed in full", "shorter"],
)
def test_a_table_that_is_merged_wrongly_is_accused(table: list[int], kind: type) -> None:
    judge = judge_of(4, 2)
    for request in ("a", "b"):
        wait(judge, request, [1, 2, 3])
    work = [("a", 3), ("b", 3)]
    due = judge.before_dispatch(work)
    assert due.refusal is None
    dispatched = judge.after_dispatch(due, [0, 0], [[0, 1], [2, 3]], ())
    merge(judge, dispatched, [[0, 1], table])
    assert charged(judge) is kind
