"""Admission by the step where a core need not hit all that is resident: what may be refused, and what must not be."""

from __future__ import annotations

from reference import Judge

from .driving import complete, free, judge_of, step, take, wait


def with_six_resident(num_blocks: int = 3) -> Judge:
    """Blocks of 2; three of the prompt 0 to 5 are resident and idle, as far as the pool reaches."""
    judge = judge_of(
        num_blocks, 2, admission="step", publish="dispatch", lifetime="stream", complete=False, exact=False
    )
    wait(judge, "a", range(6))
    complete(judge, step(judge, "a", 6))
    free(judge, "a")
    return judge


def test_a_step_that_only_fits_with_fewer_hits_may_be_admitted_and_may_be_refused() -> None:
    judge = with_six_resident()
    wait(judge, "b", range(7))  # with three hits a fourth block is missing; with none a step of one token needs one
    due = judge.before_dispatch((("b", 1),))
    assert due.refusal is None
    assert due.may_refuse
    judge.after_dispatch(due, [0], [[2]], [])
    assert judge.findings == []


def test_a_complete_core_must_refuse_it() -> None:
    judge = judge_of(
        3, 2, admission="step", publish="dispatch", lifetime="stream", order="released", duplicates="first"
    )
    wait(judge, "a", range(6))
    complete(judge, step(judge, "a", 6))
    free(judge, "a")
    wait(judge, "b", range(7))
    assert judge.before_dispatch((("b", 1),)).refusal == "OutOfBlocks"


def test_what_fits_with_any_number_of_hits_must_be_admitted() -> None:
    judge = with_six_resident(4)
    wait(judge, "b", range(7))
    due = judge.before_dispatch((("b", 7),))
    assert due.refusal is None
    assert not due.may_refuse
    wait(judge, "c", [9])
    work = (("c", 1), ("b", 5))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [0], [[3]], [])
    assert judge.findings == []  # b needs a fourth block if it hits three


def test_who_fits_with_any_number_of_hits_must_not_be_left_out() -> None:
    judge = with_six_resident(4)
    wait(judge, "c", [9])
    wait(judge, "d", [8])
    take(judge, (("c", 1), ("d", 1)), [0], [[3]])
    assert [str(found) for found in judge.findings] == [
        "ADMISSION: the step leaves out 'd', for which there are enough blocks"
    ]


def test_what_fits_with_no_number_of_hits_must_be_refused() -> None:
    judge = with_six_resident()
    wait(judge, "b", range(7))
    assert judge.before_dispatch((("b", 7),)).refusal == "OutOfBlocks"
    wait(judge, "c", [9])
    work = (("c", 1), ("b", 7))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [0, 0], [[0], [1, 2, 2, 2]], [])
    assert "ADMISSION: the step admits 'b', for which there are not enough blocks" in map(str, judge.findings)


def test_a_hit_that_the_lookahead_has_room_for_may_be_what_makes_a_step_fit() -> None:
    judge = judge_of(
        5,
        2,
        admission="step",
        publish="dispatch",
        truncates="placeholders",
        leftover="kept",
        lookahead=1,
        complete=False,
        exact=False,
    )
    wait(judge, "a", range(6))
    complete(judge, step(judge, "a", 6))  # with its lookahead in four blocks
    wait(judge, "b", [0, 1, 2, 3])
    work = (("b", 2),)  # two blocks with no hit; with one, a third token and its lookahead are in the second block
    due = judge.before_dispatch(work)
    assert due.refusal is None
    assert due.may_refuse
    judge.after_dispatch(due, [2], [[judge.sequences["a"].table[0], 4]], [])
    assert judge.findings == []
