"""Admission by the step, to the block: what fits exactly, what is one too many, and what each is charged with."""

from __future__ import annotations

import pytest

from reference import Judge, Publish

from .driving import (
    admit,
    allocate,
    append,
    charged,
    complete,
    dispatch,
    due_hits,
    fork,
    free,
    grow,
    judge_of,
    merge,
    step,
    take,
    wait,
)

BY_STEP = {"admission": "step", "publish": "dispatch", "lifetime": "stream"}
LOOSE = BY_STEP | {"complete": False, "exact": False}
TIGHT = BY_STEP | {"order": "released", "duplicates": "first"}
WINDOWED = LOOSE | {"reserved": frozenset({0})}


def said(judge: Judge) -> list[str]:
    return [str(finding) for finding in judge.findings]


def computed(judge: Judge, request: str, count: int, start: int, blocks: list[int]) -> None:
    """A step of `request` alone that leads to this table, and its completion."""
    work = ((request, count),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    complete(judge, judge.after_dispatch(due, [start], [blocks], []))


# ---- how many blocks are missing -------------------------------------------------------------------------------------


def test_one_block_too_few_is_too_few_and_an_active_hit_saves_one() -> None:
    judge = judge_of(4, 2, **LOOSE)
    wait(judge, "a", range(5))
    computed(judge, "a", 5, 0, [0, 1, 2])
    wait(judge, "c", [9])
    wait(judge, "b", range(5))
    work = (("c", 1), ("b", 5))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [0, 4], [[3], [0, 1, 3]], [])  # two are hit; there is none for the third
    assert said(judge)[:2] == [
        "ADMISSION: the step admits 'b', for which there are not enough blocks",
        "EXCLUSIVE: 'b' is given block 3, which 'c' holds",
    ]


def test_whether_a_complete_core_has_room_is_asked_of_all_that_is_resident() -> None:
    judge = judge_of(4, 2, **TIGHT)
    wait(judge, "a", range(6))
    complete(judge, step(judge, "a", 6))
    free(judge, "a")
    wait(judge, "c", [9])
    wait(judge, "b", range(7))
    work = (("c", 1), ("b", 1))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [0, 0], [[3], [2]], [])  # with nothing hit there is one for its only token
    assert said(judge) == [
        "ADMISSION: the step admits 'b', for which there are not enough blocks",
        "COMPLETENESS: 'b' hits 0 blocks of [0, 1, 2, 3, 4, 5, 6]; 3 are resident (the next one in block 0)",
    ]


def test_a_step_that_fits_only_with_some_of_the_hits_may_be_admitted_and_may_be_refused() -> None:
    judge = judge_of(3, 2, **LOOSE)
    wait(judge, "x", range(4))
    computed(judge, "x", 4, 0, [0, 1])
    wait(judge, "a", [0, 1, 8])
    computed(judge, "a", 1, 2, [0, 2])
    free(judge, "x")
    wait(judge, "b", range(5))
    # Two blocks with nothing hit, one with the active block 0 alone, and two with block 1, too: there is one.
    due = judge.before_dispatch((("b", 3),))
    assert due.refusal is None
    assert due.may_refuse


def test_a_token_behind_the_hits_is_computed_at_least() -> None:
    judge = judge_of(4, 2, **TIGHT)
    wait(judge, "a", range(4))
    complete(judge, step(judge, "a", 4))
    wait(judge, "b", range(7))
    work = (("b", 1),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    assert judge.after_dispatch(due, [4], [[0, 1, 2]], []).spans == [(judge.sequences["b"], 4, 5)]
    assert said(judge) == []
    assert judge.blocks.references == [2, 2, 1, 0]


def test_what_a_running_request_lets_go_counts_for_it() -> None:
    judge = judge_of(4, 4, **WINDOWED, windows=(5,))
    wait(judge, "a", range(17))
    computed(judge, "a", 8, 0, [1, 2])
    due = judge.before_dispatch((("a", 8),))
    assert due.refusal is None  # two more are needed: 1 goes, and 3 is free
    assert not due.may_refuse
    assert judge.before_dispatch((("a", 9),)).refusal == "OutOfBlocks"


def test_a_hit_behind_the_window_costs_nothing_whether_it_is_resident_or_not() -> None:
    judge = judge_of(4, 4, **WINDOWED, windows=(5,))
    wait(judge, "a", range(8))
    computed(judge, "a", 8, 0, [1, 2])
    judge.blocks.withdraw(1, Publish)
    wait(judge, "b", range(9))
    assert judge.before_dispatch((("b", 9),)).refusal is None
    assert due_hits(judge, "b") == [[0, 2]]
    computed(judge, "b", 9, 8, [0, 2, 3])
    assert said(judge) == []
    assert judge.blocks.references == [0, 1, 2, 1]


def test_what_fits_with_any_hit_in_the_window_must_not_be_refused() -> None:
    judge = judge_of(5, 1, **WINDOWED, windows=(2,))
    wait(judge, "a", [7, 8, 9])
    computed(judge, "a", 3, 0, [1, 2, 3])
    free(judge, "a")
    wait(judge, "b", [7, 8, 9, 5])
    due = judge.before_dispatch((("b", 1),))
    assert due.refusal is None
    assert not due.may_refuse  # a hit of three and a token behind it are four


def test_a_shorter_hit_in_the_window_may_need_what_there_is_not() -> None:
    judge = judge_of(4, 2, **WINDOWED, windows=(2,))
    wait(judge, "a", [0, 0, 0, 0])
    computed(judge, "a", 4, 0, [1, 2])
    free(judge, "a")
    wait(judge, "b", [0, 0, 1, 1])
    computed(judge, "b", 4, 0, [3, 2])
    wait(judge, "c", [0, 0, 1, 1, 0, 0])
    due = judge.before_dispatch((("c", 1),))
    assert due.refusal is None  # 2 is hit, 3 behind the window is not needed, and 1 is taken
    assert due.may_refuse  # or 1 is hit, and then one more is missing


@pytest.mark.parametrize(("hit_tokens", "table"), [(2, []), (0, [1]), (2, [1])], ids=str)
def test_a_request_that_waits_has_nothing_yet(hit_tokens: int, table: list[int]) -> None:
    judge = judge_of(4, 2, **LOOSE)
    due = judge.before_allocate("a", range(4), ())
    assert due.refusal is None
    judge.after_allocate(due, hit_tokens, table)
    assert said(judge) == [f"ADMISSION: 'a' waits for its first step and has blocks {table}, {hit_tokens} hit tokens"]
    assert not judge.sequences["a"].admitted


# ---- tables of requests that run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "blocks"),
    [(1, [0, 1]), (3, [0, 1]), (2, [0]), (2, [0, 1, 3])],
    ids=["too early", "too late", "too short", "too long"],
)
def test_a_running_request_goes_on_where_it_was_with_the_blocks_that_it_needs(start: int, blocks: list[int]) -> None:
    judge = judge_of(4, 2, **LOOSE)
    wait(judge, "a", range(4))
    computed(judge, "a", 2, 0, [0])
    work = (("a", 2),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    assert judge.after_dispatch(due, [start], [blocks], []).spans == []
    assert len(said(judge)) == 1
    assert said(judge)[0].startswith(f"MAPPING: the step computes 'a' from {start} to 4 in table {blocks}; ")


def test_a_reserved_block_that_no_token_needs_is_one_too_many() -> None:
    judge = judge_of(6, 4, **WINDOWED, windows=(5,))
    wait(judge, "a", range(6))
    computed(judge, "a", 4, 0, [1])
    work = (("a", 2),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    assert judge.after_dispatch(due, [4], [[1, 2, 0]], []).spans == []
    assert said(judge) == [
        "MAPPING: the step computes 'a' from 4 to 6 in table [1, 2, 0]; it was scheduled up to 4, in table [1]"
    ]


def test_without_windows_no_block_is_the_reserved_one() -> None:
    judge = judge_of(4, 2, **LOOSE)
    wait(judge, "a", range(4))
    computed(judge, "a", 2, 0, [0])
    due = judge.before_dispatch((("a", 2),))
    assert due.refusal is None
    judge.after_dispatch(due, [2], [[0, -1]], [])
    assert said(judge)[0] == "MAPPING: 'a' is given block -1, which does not exist or is reserved"


def test_a_running_request_is_told_from_the_one_that_holds_its_new_block() -> None:
    judge = judge_of(4, 2, **LOOSE)
    wait(judge, "a", [7, 8, 9])
    wait(judge, "b", [3])
    computed(judge, "a", 2, 0, [0])
    computed(judge, "b", 1, 0, [1])
    work = (("a", 1),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [2], [[0, 1]], [])
    assert said(judge)[0] == "EXCLUSIVE: 'a' is given block 1, which 'b' holds"


def test_a_request_without_blocks_is_told_from_the_one_that_holds_its_new_block() -> None:
    judge = judge_of(4, 2, **LOOSE)
    wait(judge, "a", [7, 8, 9])
    wait(judge, "b", [3])
    computed(judge, "b", 1, 0, [1])
    work = (("a", 3),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [0], [[0, 1]], [])
    assert said(judge)[0] == "EXCLUSIVE: 'a' is given block 1, which 'b' holds"


def test_a_block_of_a_freed_request_in_flight_is_nobody_else_s_either() -> None:
    judge = judge_of(4, 2, admission="step", complete=False, exact=False)
    wait(judge, "a", [7, 8, 9])
    computed(judge, "a", 2, 0, [0])
    wait(judge, "b", [3])
    take(judge, (("b", 1),), [0], [[1]])
    free(judge, "b")
    take(judge, (("a", 1),), [2], [[0, 1]])
    assert said(judge)[0] == "LIFETIME: 'a' is given block 1, which a step in flight or a pending copy uses"


def test_a_block_that_two_groups_of_one_request_are_given_is_the_request_s_own() -> None:
    judge = judge_of(6, 4, **WINDOWED, windows=(None, 5))
    wait(judge, "a", range(4))
    work = (("a", 4),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [0], [[1, 1]], [])
    assert said(judge)[0] == "EXCLUSIVE: 'a' is given block 1, which 'a' holds"


# ---- when a block can be hit -----------------------------------------------------------------------------------------


def test_what_a_step_computes_is_hit_by_the_next_request_of_the_step() -> None:
    judge = judge_of(8, 2, **TIGHT)
    wait(judge, "a", range(4))
    wait(judge, "b", range(5))
    work = (("a", 4), ("b", 1))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    dispatched = judge.after_dispatch(due, [0, 4], [[0, 1], [0, 1, 2]], [])
    assert dispatched.spans == [(judge.sequences["a"], 0, 4), (judge.sequences["b"], 4, 5)]
    assert said(judge) == []


def test_what_a_step_computes_is_not_hit_before_it_is_complete_where_the_policy_says_so() -> None:
    judge = judge_of(8, 2, **TIGHT | {"publish": "completion"})
    wait(judge, "a", range(4))
    wait(judge, "b", range(5))
    work = (("a", 4), ("b", 1))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [0, 4], [[0, 1], [0, 1, 2]], [])
    assert charged(judge) is Publish


@pytest.mark.parametrize("publish", ["dispatch", "completion"])
def test_blocks_of_admission_by_request_are_published_at_the_same_times(publish: str) -> None:
    judge = judge_of(8, 2, publish=publish)
    table = allocate(judge, "a", range(5))
    dispatched = dispatch(judge, ("a", 3))
    early = [block for block in table if judge.blocks.published[block] is not None]
    assert early == (table[:1] if publish == "dispatch" else [])
    dispatch(judge, ("a", 1))
    complete(judge, dispatched)
    late = [block for block in table if judge.blocks.published[block] is not None]
    assert late == (table[:2] if publish == "dispatch" else table[:1])


# ---- tokens that come while a request waits --------------------------------------------------------------------------


def test_what_came_while_a_request_waited_is_hit_too() -> None:
    judge = judge_of(8, 2, **TIGHT)
    wait(judge, "a", range(8))
    complete(judge, step(judge, "a", 8))
    wait(judge, "b", [0, 1])
    grow(judge, "b", [2, 3, 4])
    assert due_hits(judge, "b") == [[0, 1]]
    grow(judge, "b", [5, 6, 7, 8])
    assert due_hits(judge, "b") == [[0, 1, 2, 3]]
    complete(judge, step(judge, "b", 1))
    assert said(judge) == []


def test_tokens_that_come_change_no_table() -> None:
    judge = judge_of(8, 2, **TIGHT)
    wait(judge, "a", range(4))
    complete(judge, step(judge, "a", 4))
    due = judge.before_append("a", [4])
    assert due.refusal is None
    judge.after_append(due, [0, 1, 2])
    assert said(judge) == ["MAPPING: append changed the table of 'a' from [0, 1] to [0, 1, 2] before any step"]
    assert judge.sequences["a"].table == [0, 1]


def test_what_is_looked_up_more_than_once_is_published_under_what_it_is() -> None:
    judge = judge_of(8, 2, **TIGHT)
    wait(judge, "a", range(4))
    assert due_hits(judge, "a") == due_hits(judge, "a") == [[]]
    complete(judge, step(judge, "a", 4))
    grow(judge, "a", range(4, 9))
    complete(judge, step(judge, "a", 5))
    wait(judge, "b", range(9))
    assert due_hits(judge, "b") == [[0, 1, 2, 3]]
    judge.walk()
    assert said(judge) == []


# ---- merges ----------------------------------------------------------------------------------------------------------


def merged(table: list[int]) -> Judge:
    """Two requests with the same three full blocks, 0 to 2 and 3 to 5, and then the second one with `table`."""
    judge = judge_of(6, 2, admission="step", exact=False, merges=True)
    for request in ("a", "b"):
        wait(judge, request, range(6))
    work = (("a", 6), ("b", 6))
    due = judge.before_dispatch(work)
    assert due.refusal is None
    dispatched = judge.after_dispatch(due, [0, 0], [[0, 1, 2], [3, 4, 5]], [])
    judge.events.clear()
    merge(judge, dispatched, [[0, 1, 2], table])
    return judge


@pytest.mark.parametrize("table", [[0, 4, 5], [3, 1, 5], [3, 4, 2], [0, 1, 2]], ids=str)
def test_each_block_that_is_merged_is_hit_and_nothing_else(table: list[int]) -> None:
    judge = merged(table)
    assert said(judge) == []
    assert judge.events["hit on an active block"] == sum(block < 3 for block in table)
    assert judge.blocks.references == [1 + (0 in table), 1 + (1 in table), 1 + (2 in table)] + [
        int(block in table) for block in (3, 4, 5)
    ]


@pytest.mark.parametrize("table", [[3, 0, 5], [3, 4, 1], [2, 4, 5], [3, 4, 6]], ids=str)
def test_a_wrong_block_is_accused_wherever_it_is_merged(table: list[int]) -> None:
    assert charged(merged(table)) is not None


def test_a_merge_that_leaves_another_number_of_blocks_is_shown() -> None:
    assert said(merged([3, 4])) == ["MAPPING: completing a step changed the table of 'b' from [3, 4, 5] to [3, 4]"]


def test_a_completed_step_has_a_table_for_each_of_its_requests() -> None:
    judge = judge_of(6, 2, admission="step", exact=False, merges=True)
    wait(judge, "a", range(6))
    wait(judge, "b", range(6))
    dispatched = take(judge, (("a", 6), ("b", 6)), [0, 0], [[0, 1, 2], [3, 4, 5]])
    with pytest.raises(ValueError, match="zip"):
        merge(judge, dispatched, [[0, 1, 2]])


def fork_merged(namespace: str) -> Judge:
    """Of a request in namespace "one" a child was made, and its second block is merged with one of `namespace`."""
    judge = judge_of(8, 2, exact=False, merges=True, complete=False)
    admit(judge, "b", [0, 1, 2, 3], namespace)
    admit(judge, "a", [0, 1], "one")
    fork(judge, "a", "child")
    append(judge, "child", [2, 3])
    dispatched = dispatch(judge, ("child", 2))
    merge(judge, dispatched, [[judge.sequences["child"].table[0], judge.sequences["b"].table[1]]])
    return judge


def test_the_table_of_a_fork_can_be_merged() -> None:
    judge = fork_merged("one")
    twin = judge.sequences["b"].table[1]
    assert said(judge) == []
    assert judge.sequences["child"].table[1] == twin
    assert judge.blocks.references[twin] == 2


def test_a_fork_stays_in_the_namespace_of_its_parent() -> None:
    judge = fork_merged("other")
    block = judge.sequences["b"].table[1]
    assert said(judge) == [
        f"ISOLATION: 'child' hits block {block} (logical 1) for tokens [0, 1, 2, 3] in namespace one; it was "
        "written in namespace other"
    ]


# ---- groups of layers ------------------------------------------------------------------------------------------------


def three_groups(namespace: str = "") -> Judge:
    """Of 16 blocks of 2, `a` has 1 to 3, 4 to 6 and 7 to 9 for six tokens, and is gone."""
    judge = judge_of(17, 2, **TIGHT, reserved=frozenset({0}), windows=(None, None, 4))
    wait(judge, "a", range(7), namespace)
    computed(judge, "a", 6, 0, [*range(1, 10)])
    free(judge, "a")
    return judge


def test_each_group_of_a_namespace_has_contents_of_its_own() -> None:
    judge = three_groups("one")
    wait(judge, "b", range(7), "one")
    assert due_hits(judge, "b") == [[1, 2, 3], [4, 5, 6], [0, 8, 9]]
    wait(judge, "c", range(7), "two")
    assert due_hits(judge, "c") == [[], [], []]
    assert len({judge.blocks.published[block] for block in range(1, 10)}) == 9


@pytest.mark.parametrize(("gone", "hits"), [(1, 0), (2, 1), (3, 2), (5, 1), (9, 2), (8, 1), (7, 3)], ids=str)
def test_the_first_gap_of_any_group_ends_the_hit_unless_it_is_behind_the_window(gone: int, hits: int) -> None:
    judge = three_groups()
    judge.blocks.withdraw(gone, Publish)
    wait(judge, "b", range(7), "")
    behind = max(0, 2 * hits + 1 - 4) // 2
    assert due_hits(judge, "b") == [
        [1, 2, 3][:hits],
        [4, 5, 6][:hits],
        ([0] * behind + [7, 8, 9][behind:])[:hits],
    ]


def test_a_hit_that_one_group_makes_shorter_is_looked_for_again_in_the_others() -> None:
    """Each group needs only the last block. The first has the third and the first, the second the second and first."""
    judge = judge_of(17, 2, **TIGHT, reserved=frozenset({0}), windows=(2, 2))
    wait(judge, "a", range(7))
    computed(judge, "a", 6, 0, [*range(1, 7)])
    free(judge, "a")
    for block in (2, 6):
        judge.blocks.withdraw(block, Publish)
    wait(judge, "b", range(7))
    assert due_hits(judge, "b") == [[1], [4]]


@pytest.mark.parametrize("group", [1, 2])
def test_a_hit_of_another_group_is_named_as_such(group: int) -> None:
    judge = three_groups("one")
    wait(judge, "b", range(7), "one")
    blocks = [[1, 2, 3, 10], [4, 5, 6, 11], [0, 8, 9, 12]]
    blocks[0][2] = wrong = blocks[group][2]
    blocks[group][2] = 3
    work = (("b", 7),)
    due = judge.before_dispatch(work)
    assert due.refusal is None
    judge.after_dispatch(due, [6], [[*blocks[0], *blocks[1], *blocks[2]]], [])
    assert said(judge) == [
        f"ISOLATION: 'b' hits block {wrong} (logical 2) for tokens [0, 1, 2, 3, 4, 5] in namespace one; it was "
        f"written in namespace ('group {group}', 'one')"
    ]
    judge.findings.clear()
    sequence = judge.sequences["b"]
    assert not judge.hits.judge(sequence, sequence.tables[group], [wrong - 2, wrong - 1, 3], [])
    assert said(judge) == [
        f"ISOLATION: 'b' hits block 3 (logical 2) for tokens [0, 1, 2, 3, 4, 5] in namespace ('group {group}', 'one'); "
        "it was written in namespace one"
    ]


def test_a_request_has_room_for_whole_blocks_in_every_group() -> None:
    judge = judge_of(9, 4, **TIGHT, reserved=frozenset({0}), windows=(None, None, 5))
    assert (judge.blocks.capacity, judge.max_tokens) == (8, 8)


# ---- lookups in groups -----------------------------------------------------------------------------------------------


def looked_up(blocks: list[int]) -> list[str]:
    """What is said of a lookup that names these blocks for two groups, where 1 to 3 and 4 to 6 are resident."""
    judge = judge_of(9, 4, **BY_STEP, order="released", reserved=frozenset({0}), windows=(None, 5))
    wait(judge, "a", [1] * 12)
    computed(judge, "a", 12, 0, [1, 2, 3, 4, 5, 6])
    tokens = [1] * 13
    due = judge.before_lookup(tokens, ())
    assert due.refusal is None
    judge.after_lookup(due, 12, blocks)
    return said(judge)


def test_a_lookup_names_the_blocks_of_every_group() -> None:
    assert looked_up([1, 2, 3, 0, 0, 6]) == []


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([1, 2, 3], "MAPPING: lookup says 12 hit tokens but names 3 blocks"),
        ([1, 2, 3, 0, 0, 5], "HISTORY: 'lookup' hits block 5 (logical 2) for tokens "),
        ([1, 2, 6, 0, 0, 6], "ISOLATION: 'lookup' hits block 6 (logical 2) for tokens "),
    ],
    ids=str,
)
def test_a_lookup_is_judged_in_every_group(blocks: list[int], message: str) -> None:
    assert looked_up(blocks)[0].startswith(message)


# ---- what is counted -------------------------------------------------------------------------------------------------


def test_a_refused_step_is_counted_by_how_much_is_missing() -> None:
    judge = judge_of(4, 2, **TIGHT)
    wait(judge, "a", range(20))
    for count in (9, 10, 9, 11, 20):
        assert judge.before_dispatch((("a", count),)).refusal == "OutOfBlocks"
    assert judge.events == {"refused for one block": 3, "refused for several blocks": 2}


def test_what_a_window_lets_go_and_does_not_need_is_counted() -> None:
    judge = judge_of(12, 2, **TIGHT, reserved=frozenset({0}), windows=(2,))
    wait(judge, "a", range(9))
    complete(judge, step(judge, "a", 4))
    complete(judge, step(judge, "a", 2))
    complete(judge, step(judge, "a", 2))
    assert judge.events["let go behind the window"] == 2
    for request in ("b", "c"):
        wait(judge, request, range(9))
        complete(judge, step(judge, request, 1))
    assert judge.events["hit only in the window"] == 2
    assert judge.events["let go behind the window"] == 2
