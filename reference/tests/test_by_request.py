"""Admission by request: what may be refused, what is said to be hit, and what truncations, forks and names leave."""

from __future__ import annotations

from array import array

import pytest

from reference import Judge, Step

from .driving import admit, allocate, append, complete, dispatch_all, fill, fork, free, judge_of, reset, run, truncate


def resident(num_blocks: int, alive: bool, **options: object) -> Judge:
    """Blocks of 4; two full ones of the prompt 0 to 8 are resident, held by a request or by nobody."""
    judge = judge_of(num_blocks, 4, **options)
    admit(judge, "a", range(9))
    if not alive:
        free(judge, "a")
    judge.events.clear()
    return judge


def test_a_prompt_that_only_fits_with_its_hits_may_be_refused_by_a_core_that_need_not_hit() -> None:
    judge = resident(4, True, complete=False, exact=False)
    due = judge.before_allocate("b", range(9), ())
    assert due.refusal is None
    assert due.may_refuse


def test_a_prompt_that_only_fits_with_its_hits_must_be_admitted_by_a_core_that_must_hit() -> None:
    judge = resident(4, True)
    due = judge.before_allocate("b", range(9), ())
    assert due.refusal is None
    assert not due.may_refuse


def test_a_prompt_that_fits_without_any_hit_must_not_be_refused() -> None:
    judge = resident(3, False, complete=False, exact=False)
    due = judge.before_allocate("b", range(9), ())
    assert due.refusal is None
    assert not due.may_refuse


def test_one_block_too_few_is_counted_as_one_though_its_prompt_does_not_fill_it() -> None:
    judge = resident(4, True)
    assert judge.before_allocate("b", [7] * 5, ()).refusal == "OutOfBlocks"
    assert judge.events == {"refused for one block": 1}
    assert judge.before_allocate("b", [7] * 9, ()).refusal == "OutOfBlocks"
    assert judge.events == {"refused for one block": 1, "refused for several blocks": 1}


def test_who_has_blocks_does_not_wait() -> None:
    judge = resident(4, True)
    fork(judge, "a", "b")
    assert judge.sequences["a"].admitted
    assert judge.sequences["b"].admitted


# ---- how much is said to be hit --------------------------------------------------------------------------------------


def said(judge: Judge) -> list[str]:
    return [str(finding) for finding in judge.findings]


def test_a_block_that_does_not_exist_hits_no_last_token() -> None:
    judge = judge_of(4, 1, reuse="last_token")
    admit(judge, "a", [7, 8])
    due = judge.before_allocate("b", [7, 8], ())
    assert due.refusal is None
    judge.after_allocate(due, 1, [0, 4])
    assert said(judge)[-1] == "MAPPING: 'b' is given block 4, which does not exist or is reserved"


def test_a_part_of_a_block_that_is_hit_is_charged_once() -> None:
    judge = resident(8, True)
    due = judge.before_allocate("b", range(6), ())
    assert due.refusal is None
    judge.after_allocate(due, 5, [0, 3])
    assert said(judge) == ["RECOMPUTE: 'b': 5 hit tokens are not whole blocks of 4"]


def test_more_than_a_whole_prompt_is_hit_in_no_more_blocks_than_it_has() -> None:
    judge = resident(8, True)
    due = judge.before_lookup(range(8), ())
    assert due.refusal is None
    judge.after_lookup(due, 12, [0, 1])
    assert said(judge) == [
        "RECOMPUTE: 'lookup': all 8 tokens are hit; the last must be computed",
        "RECOMPUTE: 'lookup': the last block of 8 tokens is reused under last_block",
        "EXACT: 'lookup' hits blocks [0, 1]; by the policy they are [0]",
    ]


# ---- what a truncation leaves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "left"), [(8, 2), (7, 1), (4, 1), (5, 1)])
def test_full_blocks_before_a_cut_stay_published(length: int, left: int) -> None:
    judge = judge_of(8, 4)
    admit(judge, "a", range(4))
    append(judge, "a", range(4, 12))
    run(judge, "a")
    truncate(judge, "a", length)
    assert said(judge) == []
    assert [block for block in range(8) if judge.blocks.published[block] is not None] == [0, 1][:left]


def test_after_a_copy_is_undone_there_is_none() -> None:
    judge = judge_of(8, 4)
    admit(judge, "a", range(6))
    fork(judge, "a", "b")
    append(judge, "b", [7])
    truncate(judge, "b", 6)
    assert judge.sequences["b"].pending is None
    append(judge, "b", [8])
    run(judge, "b")
    truncate(judge, "b", 6)
    assert said(judge) == []


def test_the_tail_that_an_append_should_have_copied_is_named() -> None:
    judge = resident(8, True)
    append(judge, "a", [9])
    run(judge, "a")
    fork(judge, "a", "b")
    due = judge.before_append("b", [7])
    judge.after_append(due, [0, 1, 2])
    assert said(judge) == ["ALIASING: append to 'b' keeps its tail block 2, which others hold too; others: 'a'"]


def test_placeholders_that_are_cut_off_are_unnamed_no_more() -> None:
    judge = judge_of(8, 4)
    admit(judge, "a", range(4))
    append(judge, "a", [-1, -1, -1])
    run(judge, "a")
    truncate(judge, "a", 6)
    assert judge.sequences["a"].num_placeholders == 2
    fill(judge, "a", 4, [4, 5])
    assert judge.before_fork("a", "b").refusal is None


def test_a_cut_clips_the_steps_of_its_request_alone() -> None:
    judge = judge_of(8, 4)
    for request in ("a", "b"):
        admit(judge, request, [ord(request)] * 2)
        append(judge, request, [1, 2, 3, 4])
    dispatched = dispatch_all(judge, "a", "b")
    truncate(judge, "a", 3)
    complete(judge, dispatched)
    assert [(line.request, start, end) for line, start, end in dispatched.spans] == [("a", 2, 3), ("b", 2, 6)]
    assert (judge.sequences["a"].computed, judge.sequences["b"].computed) == (3, 6)


@pytest.mark.parametrize(("lifetime", "idle"), [("steps", 5), ("stream", 6)])
def test_what_is_cut_off_in_flight_is_let_go_as_the_policy_says(lifetime: str, idle: int) -> None:
    judge = judge_of(8, 4, lifetime=lifetime)
    admit(judge, "a", range(4))
    append(judge, "a", range(8))
    dispatched = dispatch_all(judge, "a")
    truncate(judge, "a", 6)
    assert judge.blocks.available == idle
    complete(judge, dispatched)
    assert judge.blocks.available == 6


def test_what_a_fork_fills_is_published() -> None:
    judge = resident(8, True)
    fork(judge, "a", "b")
    append(judge, "b", [9, 10, 11])
    run(judge, "b")
    assert admit(judge, "c", range(13))[:3] == judge.sequences["b"].table
    assert judge.current(judge.sequences["b"])
    reset(judge)
    assert not judge.current(judge.sequences["b"])


def test_no_more_is_dispatched_than_is_left() -> None:
    judge = judge_of(8, 4)
    admit(judge, "a", range(5))
    append(judge, "a", [5, 6])
    assert judge.before_dispatch((("a", 3),)).refusal == "InvalidCount"
    assert judge.before_dispatch((("a", 0),)).refusal == "InvalidCount"
    assert judge.before_dispatch((("a", 2),)).refusal is None


@pytest.mark.parametrize("named", [0, 3])
def test_a_history_with_placeholders_is_not_kept(named: int) -> None:
    judge = judge_of(16, 4)
    admit(judge, "a", range(4 + named))
    append(judge, "a", [-1] * (4 - named))
    append(judge, "a", [8])
    run(judge, "a")  # writes behind the placeholders
    fill(judge, "a", 4 + named, range(4 + named, 8))
    assert admit(judge, "b", range(9))[:2] == judge.sequences["a"].table[:2]
    judge.walk()
    assert said(judge) == []


@pytest.mark.parametrize(("lifetime", "published"), [("steps", 2), ("stream", 0)])
def test_who_is_freed_in_flight_publishes_only_what_it_still_holds(lifetime: str, published: int) -> None:
    judge = judge_of(8, 4, lifetime=lifetime)
    allocate(judge, "a", range(9))
    dispatched = dispatch_all(judge, "a")
    free(judge, "a")
    assert judge.blocks.available == (8 if lifetime == "stream" else 5)
    complete(judge, dispatched)
    assert sum(history is not None for history in judge.blocks.published) == judge.blocks.cached == published
    assert judge.blocks.available == 8


# ---- the whole state -------------------------------------------------------------------------------------------------


def freed_in_flight(lifetime: str) -> Judge:
    judge = judge_of(3, 4, lifetime=lifetime)
    allocate(judge, "a", range(9))
    dispatch_all(judge, "a")
    free(judge, "a")
    judge.slots.write(1, 0, judge.slots.content(1)[0], array("i", [7] * 4))
    return judge


def test_what_a_freed_request_still_reads_is_walked() -> None:
    judge = freed_in_flight("steps")
    judge.walk()
    assert said(judge) == [
        "FRESHNESS: 'a' would read positions 4 on from block 1, which holds [7, 7, 7, 7] and not [4, 5, 6, 7]"
    ]


def test_what_it_has_let_go_is_not() -> None:
    judge = freed_in_flight("stream")
    judge.walk()
    assert said(judge) == []


# ---- duplicates ------------------------------------------------------------------------------------------------------


def with_duplicates(num_blocks: int, **options: object) -> tuple[Judge, list[int], list[int]]:
    """`a` and `b` have computed the same first block, each its own; `a` has published first and has two more."""
    judge = judge_of(num_blocks, 4, **options)
    tables = allocate(judge, "a", range(9)), allocate(judge, "b", [0, 1, 2, 3, 9])
    run(judge, "a")
    run(judge, "b")
    judge.events.clear()
    return judge, *tables


@pytest.mark.parametrize(("duplicates", "first"), [("active", False), ("first", True), ("last", False)])
def test_which_duplicate_is_hit_is_the_policy_s(duplicates: str, first: bool) -> None:
    judge, a, b = with_duplicates(8, duplicates=duplicates)
    free(judge, "a")
    assert judge.before_allocate("c", range(5), ()).hits == [[a[0] if first else b[0]]]
    free(judge, "b")
    assert admit(judge, "c", range(5))[0] == (b[0] if duplicates == "last" else a[0])


def test_with_the_last_duplicate_alone_a_content_may_leave_before_what_extends_it() -> None:
    judge, a, b = with_duplicates(5, duplicates="last", order="released")
    free(judge, "b")
    free(judge, "a")
    assert allocate(judge, "c", [50] * 5) == [b[1], b[0]]
    assert judge.blocks.published[a[1]] is not None
    assert judge.events["evicted"] == 1
    assert said(judge) == []


def test_a_block_that_is_taken_anew_is_not_withdrawn_any_more() -> None:
    judge = judge_of(3, 4)
    admit(judge, "a", range(3))
    append(judge, "a", range(3, 5))
    run(judge, "a")
    truncate(judge, "a", 3)  # block 0 was full
    free(judge, "a")
    table = allocate(judge, "b", range(12))
    dispatch_all(judge, "b")
    due = judge.before_lookup(range(13), ())
    assert due.refusal is None
    judge.after_lookup(due, 12, table)
    assert said(judge) == [
        f"PUBLISH: 'lookup' hits block {block} (logical {at}); its content has not been published"
        for at, block in enumerate(table)
    ]


# ---- placeholders and publication ------------------------------------------------------------------------------------


def published(judge: Judge, request: str) -> list[bool]:
    return [judge.blocks.published[block] is not None for block in judge.sequences[request].table]


def test_a_placeholder_holds_up_only_its_own_block_and_those_behind() -> None:
    judge = judge_of(8, 4)
    admit(judge, "a", range(4))
    append(judge, "a", [4, 5, 6, 7, 8, -1, 10, 11, 12, 13, 14, 15, 16])
    run(judge, "a")
    assert published(judge, "a") == [True, True, False, False, False]
    fill(judge, "a", 9, [9])
    assert published(judge, "a") == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("publish", "named", "completed", "dispatched"),
    [
        ("completion", [False, False], [True, True], [True, True, False]),
        ("dispatch", [True, False], [True, False], [True, True, False]),
        ("either", [True, False], [True, True], [True, True, False]),
    ],
)
def test_when_a_block_that_is_named_in_flight_is_published(
    publish: str, named: list[bool], completed: list[bool], dispatched: list[bool]
) -> None:
    judge = judge_of(8, 4, publish=publish)
    allocate(judge, "a", range(7))
    append(judge, "a", [-1])
    first = dispatch_all(judge, "a")
    fill(judge, "a", 7, [7])
    assert published(judge, "a") == named
    complete(judge, first)
    assert published(judge, "a") == completed
    append(judge, "a", [8])
    dispatch_all(judge, "a")
    assert published(judge, "a") == dispatched


def test_an_earlier_duplicate_is_forgotten_where_only_the_last_is_kept() -> None:
    judge, a, b = with_duplicates(8, duplicates="last")
    assert judge.blocks.owners[judge.sequences["a"].tables[0].histories[1]] == [b[0]]
    assert published(judge, "a") == [False, True, False]
    due = judge.before_lookup(range(5), ())
    assert due.refusal is None
    judge.after_lookup(due, 4, [a[0]])
    assert said(judge) == [f"PUBLISH: 'lookup' hits block {a[0]} (logical 0); its content was withdrawn"]


def test_a_block_that_leaves_the_index_is_told_as_changed() -> None:
    judge = judge_of(8, 4)
    admit(judge, "a", range(4))
    append(judge, "a", range(4, 8))
    run(judge, "a")
    due = judge.before_truncate("a", 6)
    judge.after_truncate(due, [0, 1])
    assert due.changed == [1]


# ---- what is said of long blocks -------------------------------------------------------------------------------------


def overwritten() -> tuple[Judge, Step]:
    """`a` has computed a block of 40 tokens in a step in flight, and somebody has written 7s over it."""
    judge = judge_of(2, 40)
    allocate(judge, "a", range(40))
    dispatched = dispatch_all(judge, "a")
    judge.slots.write(0, 0, judge.slots.content(0)[0], array("i", [7] * 40))
    return judge, dispatched


def test_of_a_long_block_that_is_walked_the_first_tokens_are_shown() -> None:
    judge, _ = overwritten()
    judge.walk()
    assert said(judge) == [
        f"FRESHNESS: 'a' would read positions 0 on from block 0, which holds {[7] * 32} and not {[*range(32)]}"
    ]


def test_of_a_long_block_that_is_published_the_first_tokens_are_shown() -> None:
    judge, dispatched = overwritten()
    complete(judge, dispatched)
    assert said(judge) == [f"FRESHNESS: block 0 of 'a' would be published with {[*range(32)]}; it holds {[7] * 32}"]


def test_a_core_without_chunks_is_asked_for_the_rest_of_a_request() -> None:
    judge = judge_of(chunks=False)
    allocate(judge, "a", [1, 2, 3, 4, 5])
    assert judge.before_dispatch([("a", 4)]).skip
    run(judge, "a")
    append(judge, "a", [6, 7])
    assert judge.before_dispatch([("a", 1)]).skip
    assert not judge.before_dispatch([("a", 2)]).skip


def test_a_sequence_and_its_fork_are_of_the_namespace_they_were_asked_for() -> None:
    judge = judge_of()
    space = (("salt", "s"),)
    admit(judge, "a", [1, 2, 3, 4], space)
    fork(judge, "a", "b")
    assert [sequence.namespace for sequence in judge.sequences.values()] == [space, space]


# ---- what is said of histories and holders ---------------------------------------------------------------------------


def test_where_the_history_is_the_difference_both_are_told() -> None:
    """The same tokens are in the block, after other ones: the tokens alone would look right."""
    judge = judge_of(4, 2)
    allocate(judge, "a", [1, 2, 7, 7])
    dispatched = dispatch_all(judge, "a")
    block = judge.sequences["a"].tables[0].blocks[1]
    judge.slots.write(block, 0, judge.histories.along(array("i", [5, 6]), (), 2)[-1], array("i", [7, 7]))
    complete(judge, dispatched)
    (violation,) = judge.findings
    assert "after [1, 2]" in violation.message
    assert "after [5, 6]" in violation.message


@pytest.mark.parametrize(("given_back", "told"), [(False, "others: 'a'"), (True, "given back")])
def test_a_write_into_a_block_names_its_other_holders_or_says_that_there_are_none(given_back: bool, told: str) -> None:
    judge = judge_of(4, 4, exact=False)
    allocate(judge, "a", [1, 2])
    complete(judge, dispatch_all(judge, "a"))
    fork(judge, "a", "b")
    due = judge.before_append("b", [7])
    judge.after_append(due, list(judge.sequences["b"].tables[0].blocks))
    if given_back:
        judge.blocks.references[judge.sequences["b"].tables[0].blocks[0]] = 0
        judge.sequences.pop("a")
    dispatch_all(judge, "b")
    assert any(told in line for line in said(judge) if line.startswith("ALIASING"))
