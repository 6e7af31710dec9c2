"""Policy.window: what lies behind a query's window is let go, and a hit needs only what lies in it."""

from __future__ import annotations

import pytest

from reference import Judge, Policy, Publish

from .driving import complete, due_hits, fitting, free, grow, judge_of, step, take, wait

WINDOWED = {
    "reserved": frozenset({0}),
    "admission": "step",
    "publish": "dispatch",
    "lifetime": "stream",
    "order": "released",
    "windows": (5,),
}


def pool(num_blocks: int = 9, block_size: int = 4, **options: object) -> Judge:
    """Blocks of 4, block 0 reserved, a window of 5: the query at position p reads from p - 4 on."""
    return judge_of(num_blocks, block_size, **WINDOWED | options)


def table(judge: Judge, request: str) -> list[int]:
    assert judge.findings == []
    judge.walk()
    assert judge.findings == []
    return judge.sequences[request].table


def said(judge: Judge) -> list[str]:
    return [str(finding) for finding in judge.findings]


@pytest.mark.parametrize(
    "options",
    [
        {"windows": (1,)},
        {"reserved": frozenset()},
        {"reserved": frozenset({0, 1})},
        {"admission": "request"},
        {"reuse": "last_token"},
    ],
    ids=str,
)
def test_a_window_needs_a_null_block_and_admission_by_the_step(options: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=r"^Policy\.windows are \(.*\); they need admission 'step', reuse 'last_block' and no merges"
    ):
        Policy(9, 4, **WINDOWED | options)


@pytest.mark.parametrize(("window", "kept_from"), [(2, 2), (4, 2), (5, 2), (6, 1), (9, 1), (10, 0), (99, 0)])
def test_exactly_the_blocks_behind_the_window_of_the_next_query_go(window: int, kept_from: int) -> None:
    judge = pool(windows=(window,))
    wait(judge, "a", range(13))
    complete(judge, step(judge, "a", 12))
    assert table(judge, "a") == [1, 2, 3]
    complete(judge, step(judge, "a", 1))  # position 12 reads from 12 - window + 1 on
    assert table(judge, "a") == [0, 0, 0, 4][:kept_from] + [1, 2, 3, 4][kept_from:]
    assert judge.blocks.available == 8 - 4 + kept_from


def test_what_a_step_in_flight_still_reads_is_kept() -> None:
    judge = pool()
    wait(judge, "a", range(13))
    first = step(judge, "a", 12)
    second = step(judge, "a", 1)  # the first step is in flight, and reads from position 0 on
    assert table(judge, "a") == [1, 2, 3, 4]
    complete(judge, first)
    complete(judge, second)
    assert table(judge, "a") == [1, 2, 3, 4]  # nothing is let go before the next step
    grow(judge, "a", [7])
    complete(judge, step(judge, "a", 1))
    assert table(judge, "a") == [0, 0, 3, 4]


def test_what_goes_can_be_hit_and_goes_last_first() -> None:
    judge = pool()
    wait(judge, "a", range(13))
    complete(judge, step(judge, "a", 12))
    step(judge, "a", 1)
    assert judge.blocks.predictor is not None
    assert list(judge.blocks.predictor.free) == [5, 6, 7, 8, 2, 1]
    wait(judge, "b", range(9))
    assert due_hits(judge, "b")[0] == [0, 2]


def test_a_hit_needs_only_what_lies_in_the_window_of_the_next_query() -> None:
    judge = pool(5)
    wait(judge, "a", range(9))
    complete(judge, step(judge, "a", 8))  # blocks 1 and 2
    complete(judge, step(judge, "a", 1))  # 1 goes
    wait(judge, "b", [50] * 8)
    complete(judge, step(judge, "b", 8))  # 4, and 1 once more
    assert judge.blocks.published[1] is not None
    wait(judge, "c", range(12))
    start, blocks = fitting(judge, "c", 12)
    assert (start, blocks[:2]) == (8, [0, 2])
    free(judge, "b")
    step(judge, "c", 12)
    assert table(judge, "c") == [0, 2, 1]
    assert judge.blocks.references[2] == 2
    free(judge, "c")
    free(judge, "a")
    assert (judge.blocks.available, judge.blocks.references) == (4, [0] * 5)


def test_with_a_gap_in_the_window_the_hit_is_shorter() -> None:
    judge = pool(6, windows=(6,))
    wait(judge, "a", range(12))
    complete(judge, step(judge, "a", 12))
    free(judge, "a")  # 3, 2, 1 behind 4 and 5
    wait(judge, "b", [50] * 12)
    complete(judge, step(judge, "b", 12))  # 4, 5, 3
    wait(judge, "c", range(13))
    assert due_hits(judge, "c")[0] == [1, 2]
    free(judge, "b")
    wait(judge, "d", [50] * 16)
    step(judge, "d", 16)  # hits 4, 5, 3; takes 2
    free(judge, "d")
    assert due_hits(judge, "c")[0] == [1]  # 2 is gone


def test_the_longest_hit_is_found_behind_a_gap() -> None:
    judge = pool(5, windows=(4,))
    wait(judge, "a", range(12))
    complete(judge, step(judge, "a", 12))
    for block in (1, 2):
        judge.blocks.withdraw(block, Publish)
    wait(judge, "b", range(13))
    assert due_hits(judge, "b")[0] == [0, 0, 3]


def test_a_refused_step_has_let_go_what_lies_behind_the_window() -> None:
    judge = pool(4)
    wait(judge, "a", range(16))
    complete(judge, step(judge, "a", 8))
    wait(judge, "b", [9])
    step(judge, "b", 1)
    free(judge, "b")
    work = (("a", 8),)
    assert judge.before_dispatch(work).refusal is None  # 1 goes, and with 3 there are two
    wait(judge, "c", [9])
    step(judge, "c", 1)
    due = judge.before_dispatch(work)
    assert due.refusal == "OutOfBlocks"
    judge.no_room(due)
    assert table(judge, "a") == [0, 2]
    assert judge.blocks.available == 1


def test_a_request_that_a_step_leaves_out_has_let_go_what_lies_behind_the_window() -> None:
    judge = pool(5)
    for request, base in (("a", 0), ("b", 50)):
        wait(judge, request, range(base, base + 9))
        complete(judge, step(judge, request, 8))
    work = (("a", 1), ("b", 1))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [8], [[0, 2, 1]], [])
    assert said(judge) == ["ADMISSION: the step leaves out 'b', for which there are enough blocks"]
    judge.findings.clear()
    assert table(judge, "b") == [0, 4]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            [0, 0, 4],
            "FRESHNESS: the step computes 'a' from 8 on and reads positions 4 on from the reserved block 0: "
            "table [0, 0, 4]",
        ),
        (
            [1, 2, 3],
            "MAPPING: the step computes 'a' from 8 to 9 in table [1, 2, 3]; it was scheduled up to 8, in table [0, 2]",
        ),
    ],
)
def test_a_running_request_loses_exactly_what_it_may(blocks: list[int], message: str) -> None:
    judge = pool()
    wait(judge, "a", range(9))
    complete(judge, step(judge, "a", 8))
    work = (("a", 1),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [8], [blocks], [])
    assert said(judge) == [message]


@pytest.mark.parametrize(
    ("start", "blocks", "message"),
    [
        (8, [0, 0, 5], "MAPPING: 'b': logical block 1 is in block 0, which is none"),
        (
            8,
            [0, 1, 5],
            "HISTORY: 'b' hits block 1 (logical 1) for tokens [0, 1, 2, 3, 4, 5, 6, 7]; it holds [0, 1, 2, 3]",
        ),
        (8, [1, 2, 5], "EXACT: 'b' hits blocks [1, 2]; by the policy they are [0, 2]"),
        (
            4,
            [1, 5, 6],
            "COMPLETENESS: 'b' hits 1 blocks of [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident as far as the window "
            "reaches",
        ),
    ],
)
def test_a_hit_is_judged_within_the_window(start: int, blocks: list[int], message: str) -> None:
    judge = pool()
    wait(judge, "a", range(8))
    complete(judge, step(judge, "a", 8))
    wait(judge, "b", range(10))
    work = (("b", 10),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [start], [blocks], [])
    assert message in said(judge)


def test_without_caching_blocks_go_to_the_front() -> None:
    judge = pool(caching=False, order="unpublished_first")
    wait(judge, "a", range(13))
    complete(judge, step(judge, "a", 12))
    step(judge, "a", 1)
    assert table(judge, "a") == [0, 0, 3, 2]  # what was let go is taken again
    assert judge.blocks.predictor is not None
    assert list(judge.blocks.predictor.free) == [1, 4, 5, 6, 7, 8]


def test_a_core_that_need_not_hit_everything_may_be_refused_for_a_shorter_hit() -> None:
    judge = pool(4, block_size=1, windows=(2,), complete=False, exact=False)
    wait(judge, "a", [0, 0])
    complete(judge, take(judge, (("a", 2),), [0], [[1, 2]]))
    free(judge, "a")
    wait(judge, "b", [0, 1])
    complete(judge, take(judge, (("b", 2),), [0], [[3, 2]]))
    wait(judge, "c", [0, 1, 0])
    due = judge.before_dispatch((("c", 1),))
    assert due.refusal is None  # 2 is hit and 1 is taken
    assert due.may_refuse  # or 3 is not hit, but 1: then one more is missing


# ---- groups ----------------------------------------------------------------------------------------------------------


def two_groups(num_blocks: int = 9) -> Judge:
    """Full attention and a window of 5, in one pool."""
    return pool(num_blocks, windows=(None, 5))


def planned(judge: Judge, request: str, count: int, start: int, blocks: list[int]) -> None:
    """A step of `request` alone that leads to this table."""
    work = ((request, count),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    complete(judge, judge.after_dispatch(due, [start], [blocks], []))


def test_groups_take_and_let_go_in_turn_and_show_their_tables_one_after_the_other() -> None:
    judge = two_groups()
    assert (judge.blocks.capacity, judge.max_tokens) == (8, 16)
    wait(judge, "a", range(9))
    planned(judge, "a", 8, 0, [1, 2, 3, 4])
    planned(judge, "a", 1, 8, [1, 2, 5, 0, 4, 6])
    assert said(judge) == []
    judge.walk()
    assert judge.sequences["a"].table == [1, 2, 5, 0, 4, 6]
    free(judge, "a")
    assert judge.blocks.predictor is not None
    assert list(judge.blocks.predictor.free) == [7, 8, 3, 5, 2, 1, 6, 4]


def test_a_hit_is_as_long_in_every_group() -> None:
    judge = two_groups()
    wait(judge, "a", range(12))
    planned(judge, "a", 12, 0, [1, 2, 3, 4, 5, 6])
    wait(judge, "b", range(13))
    assert due_hits(judge, "b") == [[1, 2, 3], [0, 0, 6]]
    judge.blocks.withdraw(6, Publish)
    assert due_hits(judge, "b") == [[1, 2], [0, 5]]
    judge.blocks.withdraw(1, Publish)
    assert due_hits(judge, "b") == [[], []]


def test_blocks_are_counted_over_all_groups() -> None:
    judge = two_groups(7)
    wait(judge, "a", range(13))
    assert judge.before_dispatch((("a", 13),)).refusal == "OutOfBlocks"
    planned(judge, "a", 12, 0, [1, 2, 3, 4, 5, 6])
    assert judge.before_dispatch((("a", 1),)).refusal is None  # two of the second group become free
    judge.sequences["a"].computed = 8
    assert judge.before_dispatch((("a", 1),)).refusal == "OutOfBlocks"


@pytest.mark.parametrize(
    ("start", "blocks", "message"),
    [
        (8, [3, 2, 5, 0, 4, 6], "ISOLATION: 'b' hits block 3 (logical 0) for tokens [0, 1, 2, 3] in namespace ()"),
        (8, [1, 2, 5, 0, 0, 6], "MAPPING: 'b': logical block 1 is in block 0, which is none"),
        (4, [1, 5, 6, 3, 7, 8], "COMPLETENESS: 'b' hits 1 blocks of"),
        (8, [1, 2, 5, 0, 4], "ADMISSION: 'b' has 10 tokens and 5 blocks; 6 are needed"),
    ],
)
def test_every_group_is_judged(start: int, blocks: list[int], message: str) -> None:
    judge = two_groups(11)
    wait(judge, "a", range(8))
    planned(judge, "a", 8, 0, [1, 2, 3, 4])
    wait(judge, "b", range(10))
    work = (("b", 10),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [start], [blocks], [])
    assert any(line.startswith(message) for line in said(judge)), said(judge)


def test_a_clone_of_groups_goes_on_by_itself() -> None:
    judge = two_groups()
    wait(judge, "a", range(9))
    planned(judge, "a", 8, 0, [1, 2, 3, 4])
    other, _ = judge.clone()
    grow(other, "a", [9])
    planned(other, "a", 2, 8, [1, 2, 5, 0, 4, 6])
    assert said(other) == []
    assert (judge.sequences["a"].table, list(judge.sequences["a"].tokens)) == ([1, 2, 3, 4], list(range(9)))
