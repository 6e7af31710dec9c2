"""Placeholders and rejected drafts where blocks are taken by the step: what is published and when, what a rejection
leaves in the table, what a window may let go; and what a core is accused of that gets it wrong.

Blocks of 2 throughout."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reference import Aliasing, Exclusive, History, Judge, Mapping, Publish, Rollback

from .driving import (
    allocate,
    append,
    charged,
    complete,
    due_hits,
    fill,
    fitting,
    free,
    grow,
    judge_of,
    next_blocks,
    step,
    truncate,
    wait,
)

DRAFTS = {
    "admission": "step",
    "publish": "dispatch",
    "lifetime": "stream",
    "order": "released",
    "duplicates": "first",
    "truncates": "placeholders",
    "leftover": "kept",
}


def pool(num_blocks: int = 8, **options: object) -> Judge:
    return judge_of(num_blocks, 2, **DRAFTS | options)


def prefilled(judge: Judge, request: str, tokens: Sequence[int]) -> None:
    """`request`, with all its tokens computed."""
    wait(judge, request, tokens)
    complete(judge, step(judge, request, len(tokens)))


def drafted(judge: Judge, request: str = "a", drafts: int = 5) -> None:
    """`request`, computed with a sampled token behind its prompt of one and so many drafts behind that."""
    prefilled(judge, request, [1])
    grow(judge, request, [2, *[-1] * drafts])
    complete(judge, step(judge, request, 1 + drafts))


def sound(judge: Judge) -> bool:
    judge.walk()
    assert judge.findings == []
    return True


def hits(judge: Judge, tokens: Sequence[int]) -> list[int]:
    """The blocks that a request with these tokens must hit now."""
    due = judge.before_allocate("probe", tokens, ())
    assert due.refusal is None
    judge.after_allocate(due, 0, [])
    found = due_hits(judge, "probe")[0]
    free(judge, "probe")
    return found


# ---- what is published -----------------------------------------------------------------------------------------------


def test_what_was_accepted_is_published_at_the_next_dispatch_and_what_was_rejected_never() -> None:
    judge = pool()
    drafted(judge)  # 1 2 - - - - -
    assert judge.sequences["a"].table == [0, 1, 2, 3]
    assert [at for at, history in enumerate(judge.blocks.published) if history is not None] == [0]
    fill(judge, "a", 2, [3, 4, 5])
    truncate(judge, "a", 5)
    assert hits(judge, [1, 2, 3, 4, 9]) == [0]
    grow(judge, "a", [6])
    step(judge, "a", 1)
    assert hits(judge, [1, 2, 3, 4, 5, 6, 9]) == [0, 1, 2]
    assert judge.sequences["a"].table == [0, 1, 2, 3]
    assert sound(judge)


@pytest.mark.parametrize(
    ("publish", "named", "dispatched"), [("completion", 2, 2), ("dispatch", 1, 3), ("either", 2, 3)]
)
def test_the_policy_says_when_what_is_named_late_is_published(publish: str, named: int, dispatched: int) -> None:
    judge = pool(publish=publish)
    drafted(judge, drafts=2)
    fill(judge, "a", 2, [3, 4])
    probe = [1, 2, 3, 4, 5, 6, 7]
    assert len(hits(judge, probe)) == named
    grow(judge, "a", [5, 6])
    second = step(judge, "a", 2)
    assert len(hits(judge, probe)) == dispatched
    complete(judge, second)
    assert len(hits(judge, probe)) == 3
    assert sound(judge)


def test_a_name_behind_a_placeholder_publishes_nothing_until_all_before_it_are_named() -> None:
    judge = pool()
    drafted(judge, drafts=4)
    fill(judge, "a", 4, [5, 6])
    grow(judge, "a", [7])
    complete(judge, step(judge, "a", 1))
    assert hits(judge, [1, 2, 3, 4, 5, 6, 7]) == [0]
    fill(judge, "a", 2, [3, 4])
    grow(judge, "a", [8])
    complete(judge, step(judge, "a", 1))
    assert hits(judge, [1, 2, 3, 4, 5, 6, 7]) == [0, 1, 2]
    assert sound(judge)


def test_a_waiting_request_hits_what_its_named_tokens_hit_but_for_the_last() -> None:
    judge = pool()
    prefilled(judge, "a", [1, 2, 3, 4])
    wait(judge, "b", [1, 2])
    grow(judge, "b", [-1, 4, 5])
    assert due_hits(judge, "b") == [[]]
    fill(judge, "b", 2, [3])
    assert due_hits(judge, "b") == [[0, 1]]


@pytest.mark.parametrize("windows", [(None, None), (4, None)], ids=str)
def test_every_group_names_and_publishes_its_own(windows: tuple[int | None, ...]) -> None:
    judge = pool(16, reserved=frozenset({0}), windows=windows)

    def advance(count: int) -> None:
        line = judge.sequences["a"]
        judge.release.release_outside_window(line)
        need = judge.allocation.num_blocks(line.scheduled + count)
        tables, taken = [], 0
        for part in line.tables:
            new = max(0, need - len(part.blocks))
            tables += part.blocks + next_blocks(judge, taken + new)[taken:]
            taken += new
        work = (("a", count),)
        due = judge.before_dispatch(work)
        assert due.refusal is None
        complete(judge, judge.after_dispatch(due, [line.scheduled], [tables], []))

    wait(judge, "a", [1])
    advance(1)
    grow(judge, "a", [-1] * 5)
    advance(5)
    fill(judge, "a", 1, [2, 3, 4])
    due = judge.before_truncate("a", 4)
    assert due.refusal is None
    judge.after_truncate(due, judge.sequences["a"].table)
    grow(judge, "a", [5])
    advance(1)
    assert [part.published for part in judge.sequences["a"].tables] == [2, 2]
    assert judge.sequences["a"].num_placeholders == 0
    assert sound(judge)


# ---- what a rejection leaves -----------------------------------------------------------------------------------------


def test_kept_blocks_are_used_before_new_ones_are_taken() -> None:
    judge = pool()
    drafted(judge)
    truncate(judge, "a", 2)
    grow(judge, "a", [7] * 7)
    assert fitting(judge, "a", 7) == (2, [0, 1, 2, 3, 4])
    complete(judge, step(judge, "a", 7))
    free(judge, "a")
    assert (judge.blocks.available, sum(judge.blocks.references)) == (8, 0)
    assert sound(judge)


def test_what_is_kept_makes_room_for_its_request_and_for_nobody_else() -> None:
    judge = pool(4)
    drafted(judge)
    truncate(judge, "a", 2)
    wait(judge, "b", [50])
    assert judge.before_dispatch((("b", 1),)).refusal == "OutOfBlocks"
    grow(judge, "a", [7] * 6)
    assert judge.before_dispatch((("a", 6),)).refusal is None


def test_released_blocks_come_back_last_first() -> None:
    judge = pool(leftover="released")
    drafted(judge)
    truncate(judge, "a", 3)
    assert judge.sequences["a"].table == [0, 1]
    assert judge.blocks.predictor is not None
    assert list(judge.blocks.predictor.free) == [4, 5, 6, 7, 3, 2]
    assert sound(judge)


def test_named_tokens_are_cut_by_the_step_where_the_policy_says_so() -> None:
    judge = pool(truncates="tokens", leftover="released")
    prefilled(judge, "a", [1])
    grow(judge, "a", [2, 3, 4])
    truncate(judge, "a", 3)  # not computed: it has no block to give back
    complete(judge, step(judge, "a", 2))
    assert hits(judge, [1, 2, 3]) == [0]
    truncate(judge, "a", 1)
    assert hits(judge, [1, 2, 3]) == []
    assert judge.sequences["a"].table == [0]
    assert sound(judge)


def test_only_what_has_no_name_can_be_cut() -> None:
    judge = pool()
    drafted(judge)
    line = judge.sequences["a"]
    assert judge.shortest(line) == 2
    fill(judge, "a", 2, [3])
    assert judge.shortest(line) == 3
    fill(judge, "a", 4, [5])  # a draft like the others, since what is before it may be rejected
    assert judge.shortest(line) == 3
    fill(judge, "a", 3, [4])
    assert judge.shortest(line) == 5
    assert judge_of().policy.truncates == "tokens"


def test_where_tokens_can_be_cut_it_is_all_that_was_appended() -> None:
    judge = judge_of(8, 2)
    allocate(judge, "a", [1])
    append(judge, "a", [2, 3, -1])
    assert judge.shortest(judge.sequences["a"]) == 1


def test_in_flight_only_what_completed_steps_have_computed_can_be_rejected() -> None:
    judge = pool()
    prefilled(judge, "a", [1])
    grow(judge, "a", [2, -1, -1])
    first = step(judge, "a", 3)
    line = judge.sequences["a"]
    assert judge.shortest(line) == 4
    grow(judge, "a", [-1, -1, -1])
    second = step(judge, "a", 3)
    assert judge.shortest(line) == 7
    complete(judge, first)
    assert judge.shortest(line) == 5
    fill(judge, "a", 2, [3])
    assert judge.shortest(line) == 6
    truncate(judge, "a", 6)  # the draft at 3: the second step computes positions 3 to 5, not 4 to 6
    assert second.spans == [(line, 3, 6)]
    assert (line.computed, line.scheduled) == (3, 6)
    assert judge.events["truncated while in flight"] == 1
    complete(judge, second)
    assert (line.computed, line.scheduled) == (6, 6)
    fill(judge, "a", 3, [4, 5, 6])
    grow(judge, "a", [7])
    complete(judge, step(judge, "a", 1))
    assert hits(judge, [1, 2, 3, 4, 5, 6, 7]) == [0, 1, 2]
    assert sound(judge)


def test_every_step_in_flight_moves_down_by_what_is_rejected() -> None:
    judge = pool()
    prefilled(judge, "a", [1])
    grow(judge, "a", [2, -1])
    steps = [step(judge, "a", 2)]
    for _ in range(2):
        grow(judge, "a", [-1])
        steps.append(step(judge, "a", 1))
    complete(judge, steps[0])
    line = judge.sequences["a"]
    assert judge.shortest(line) == 4
    truncate(judge, "a", 4)
    assert [dispatched.spans for dispatched in steps[1:]] == [[(line, 2, 3)], [(line, 3, 4)]]
    for dispatched in steps[1:]:
        complete(judge, dispatched)
    assert (line.computed, line.scheduled) == (4, 4)
    assert sound(judge)


def test_what_no_step_computes_yet_is_cut_and_no_step_moves() -> None:
    judge = pool()
    prefilled(judge, "a", [1])
    grow(judge, "a", [2, -1, -1])
    dispatched = step(judge, "a", 3)
    grow(judge, "a", [-1, -1])
    truncate(judge, "a", 5)
    line = judge.sequences["a"]
    assert dispatched.spans == [(line, 1, 4)]
    assert (line.computed, line.scheduled) == (1, 4)
    assert judge.events["truncated while in flight"] == 0
    assert sound(judge)


def test_what_is_named_in_flight_has_its_place() -> None:
    judge = pool()
    prefilled(judge, "a", [1])
    grow(judge, "a", [2, -1, -1])
    first = step(judge, "a", 3)
    grow(judge, "a", [-1, 5])
    step(judge, "a", 2)
    complete(judge, first)
    assert judge.shortest(judge.sequences["a"]) == 6


# ---- windows ---------------------------------------------------------------------------------------------------------


def test_a_window_stays_where_the_first_draft_is() -> None:
    judge = pool(9, reserved=frozenset({0}), windows=(2,))
    drafted(judge)  # computed up to 7; the query at 2 may come again, and reads 1
    grow(judge, "a", [-1])
    complete(judge, step(judge, "a", 1))
    assert judge.sequences["a"].table == [1, 2, 3, 4]
    truncate(judge, "a", 2)
    grow(judge, "a", [7])
    complete(judge, step(judge, "a", 1))
    assert judge.sequences["a"].table == [1, 2, 3, 4]
    assert sound(judge)
    grow(judge, "a", [8])
    complete(judge, step(judge, "a", 1))  # the query at 3 reads 2
    assert judge.sequences["a"].table == [0, 2, 3, 4]


def test_what_its_window_has_passed_when_it_is_named_is_never_published() -> None:
    judge = pool(9, reserved=frozenset({0}), windows=(2,))
    drafted(judge)
    fill(judge, "a", 2, [3, 4, 5, 6, 7])
    grow(judge, "a", [8])
    complete(judge, step(judge, "a", 1))
    assert judge.sequences["a"].table == [0, 0, 0, 4]
    assert [at for at, history in enumerate(judge.blocks.published) if history is not None] == [1, 4]
    assert sound(judge)


# ---- lookahead -------------------------------------------------------------------------------------------------------


def test_a_step_takes_blocks_for_its_lookahead_and_publishes_none_of_it() -> None:
    judge = pool(4, lookahead=3)
    assert judge.max_tokens == 5
    wait(judge, "a", [1, 2])
    assert fitting(judge, "a", 2) == (0, [0, 1, 2])
    step(judge, "a", 2)
    grow(judge, "a", [3])
    assert fitting(judge, "a", 1) == (2, [0, 1, 2])
    step(judge, "a", 1)
    assert judge.events["kept block used again"] == 0  # nothing was rejected
    assert sum(history is not None for history in judge.blocks.published) == 1
    wait(judge, "b", [50])
    assert judge.before_dispatch((("b", 1),)).refusal == "OutOfBlocks"
    assert sound(judge)


def test_a_pool_that_the_lookahead_fills_has_no_room() -> None:
    assert pool(1, lookahead=2).max_tokens == 0
    assert pool(1, lookahead=3).max_tokens == 0


# ---- a copy ----------------------------------------------------------------------------------------------------------


def test_a_clone_goes_on_with_its_own_placeholders() -> None:
    judge = pool(9, reserved=frozenset({0}), windows=(4,))
    drafted(judge)
    other, _ = judge.clone()
    for each in (judge, other):
        fill(each, "a", 2, [3])
        truncate(each, "a", 3)
        assert each.sequences["a"].num_placeholders == 0
        assert sound(each)


# ---- what a core is accused of ---------------------------------------------------------------------------------------


def accused(judge: Judge, request: str, count: int, start: int, table: list[int]) -> str:
    """What the finding says where a step computes `request` from `start` on in `table`."""
    work = ((request, count),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [start], [table], [])
    return str(judge.findings[0]) if judge.findings else ""


def test_a_hit_on_a_block_with_a_rejected_draft_is_somebody_elses_content() -> None:
    judge = pool()
    drafted(judge)
    truncate(judge, "a", 2)
    grow(judge, "a", [3, 4])  # known, and not computed
    wait(judge, "b", [1, 2, 3, 4, 5])
    assert "it holds [1, 2, -1, -1]" in accused(judge, "b", 5, 4, [0, 1, 4])
    assert charged(judge) is History


def test_a_hit_on_what_is_named_and_not_yet_published_is_too_early() -> None:
    judge = pool()
    drafted(judge)
    fill(judge, "a", 2, [3, 4])
    wait(judge, "b", [1, 2, 3, 4, 5])
    assert accused(judge, "b", 5, 4, [0, 1, 4]).endswith("its content has not been published")
    assert charged(judge) is Publish


def test_a_kept_block_that_is_handed_out_has_two_holders() -> None:
    judge = pool()
    drafted(judge)
    truncate(judge, "a", 2)
    wait(judge, "b", [50])
    accused(judge, "b", 1, 0, [3])
    assert {type(finding) for finding in judge.findings} >= {Exclusive, Aliasing}


def test_a_kept_block_must_be_used_and_not_another() -> None:
    judge = pool()
    drafted(judge)
    truncate(judge, "a", 2)
    grow(judge, "a", [3])
    assert "in table [0, 4]; it was scheduled up to 2" in accused(judge, "a", 1, 2, [0, 4])
    assert charged(judge) is Mapping


def test_a_step_must_start_where_the_rejection_has_led() -> None:
    judge = pool()
    drafted(judge)
    truncate(judge, "a", 2)
    grow(judge, "a", [3])
    assert "from 7 to 3 in table [0, 1, 2, 3]; it was scheduled up to 2" in accused(judge, "a", 1, 7, [0, 1, 2, 3])
    assert charged(judge) is Mapping


@pytest.mark.parametrize("leftover", ["kept", "released"])
def test_a_rejection_must_leave_the_table_that_the_policy_says(leftover: str) -> None:
    judge = pool(leftover=leftover)
    drafted(judge)
    due = judge.before_truncate("a", 2)
    assert due.refusal is None
    judge.after_truncate(due, [0] if leftover == "kept" else [0, 1, 2, 3])
    assert charged(judge) is Rollback


def test_a_window_that_follows_the_drafts_is_found() -> None:
    judge = pool(9, reserved=frozenset({0}), windows=(2,))
    drafted(judge)
    truncate(judge, "a", 2)
    grow(judge, "a", [7])
    assert "reads positions 0 on from the reserved block 0" in accused(judge, "a", 1, 2, [0, 2, 3, 4])
