"""What the judge refuses, derives from a core's choices, and leaves alone where they are sound."""

from __future__ import annotations

from random import Random

import pytest

from reference import Completeness, Exclusive, Judge, Mapping, Policy, Step, Violation

from .driving import (
    admit,
    allocate,
    append,
    charged,
    complete,
    dispatch,
    dispatch_all,
    fill,
    fork,
    free,
    judge_of,
    reset,
    run,
    truncate,
)
from .scenes import PROMPT, forked, lookup_says, say, two_owners, with_prompt

# ---- which refusal is due --------------------------------------------------------------------------------------------


def test_allocations_are_refused_for_the_right_reason():
    judge = judge_of(3)
    admit(judge, "a", PROMPT[:5])
    assert judge.before_allocate("x", [], ()).refusal == "InvalidTokens"
    assert judge.before_allocate("x", [-1], ()).refusal == "InvalidTokens"
    assert judge.before_allocate("x", [2**31], ()).refusal == "InvalidTokens"
    assert judge.before_allocate("a", [1], ()).refusal == "DuplicateRequest"
    assert judge.before_allocate("x", [90] * 13, ()).refusal == "NeverFits"
    assert judge.before_allocate("x", [90] * 5, ()).refusal == "OutOfBlocks"
    assert judge.before_allocate("x", PROMPT[:8], ()).refusal is None
    assert judge.before_allocate("x", [90] * 4, ()).refusal is None


def test_a_hit_on_a_cached_block_takes_one_of_the_idle_ones():
    judge = judge_of(3)
    admit(judge, "a", PROMPT[:4])
    free(judge, "a")
    allocate(judge, "other", [90])
    assert judge.before_allocate("x", PROMPT, ()).refusal == "OutOfBlocks"
    assert judge.before_allocate("x", PROMPT[:8], ()).refusal is None


def test_appends_are_refused_for_the_right_reason():
    judge = judge_of(2)
    admit(judge, "a", [1, 2, 3])
    assert judge.before_append("x", [1]).refusal == "UnknownRequest"
    assert judge.before_append("a", []).refusal == "InvalidTokens"
    assert judge.before_append("a", [-2]).refusal == "InvalidTokens"
    assert judge.before_append("a", [-1]).refusal is None
    assert judge.before_append("a", [1] * 6).refusal == "NeverFits"
    fork(judge, "a", "b")
    assert judge.before_append("a", [1]).refusal is None
    assert judge.before_append("a", [1] * 2).refusal == "OutOfBlocks"


def test_dispatches_are_refused_for_the_first_fault():
    judge = judge_of()
    allocate(judge, "a", [1, 2, 3])
    assert judge.before_dispatch([]).refusal == "EmptyDispatch"
    assert judge.before_dispatch([("a", 4), ("x", 1)]).refusal == "InvalidCount"
    assert judge.before_dispatch([("x", 1), ("a", 4)]).refusal == "UnknownRequest"
    assert judge.before_dispatch([("a", 0)]).refusal == "InvalidCount"
    assert judge.before_dispatch([("a", 1), ("a", 1)]).refusal == "RepeatedRequest"
    assert judge.before_dispatch([("a", 3)]).refusal is None


def test_steps_complete_once_and_in_order():
    judge = judge_of()
    allocate(judge, "a", [1, 2])
    first, second = dispatch(judge, ("a", 1)), dispatch(judge, ("a", 1))
    assert judge.before_complete(second).refusal == "OutOfOrder"
    complete(judge, first)
    assert judge.before_complete(first).refusal == "AlreadyCompleted"
    complete(judge, second)
    assert judge.before_complete(second).refusal == "AlreadyCompleted"


def test_steps_are_numbered_and_begin_with_nothing_done():
    judge = judge_of()
    allocate(judge, "a", [1, 2, 3])
    steps = [dispatch(judge, ("a", 1)) for _ in range(3)]
    assert [dispatched.number for dispatched in steps] == [0, 1, 2]
    assert [dispatched.done for dispatched in steps] == [False] * 3
    assert Step(5, []).copies == []


def test_placeholders_add_up():
    judge = judge_of()
    admit(judge, "a", [1])
    append(judge, "a", [-1])
    append(judge, "a", [2, -1])
    assert judge.sequences["a"].num_placeholders == 2


@pytest.mark.parametrize("pair", [(0, 8), (8, 0), (-1, 0), (0, -1), (99, 99)])
def test_a_copy_from_or_to_nowhere_is_accused_and_followed_no_further(pair: tuple[int, int]):
    judge = with_prompt()
    append(judge, "a", [7])
    judge.after_dispatch(judge.before_dispatch([("a", 1)]), (), (), [pair])
    assert charged(judge) is Exclusive
    assert [judge.slots.content(block)[1].tolist() for block in range(4)] == [PROMPT[:4], PROMPT[4:8], [9, 7], []]


def test_truncations_stay_between_base_and_length():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    assert judge.before_truncate("x", 1).refusal == "UnknownRequest"
    assert judge.before_truncate("a", 1).refusal == judge.before_truncate("a", 5).refusal == "InvalidLength"
    assert judge.before_truncate("a", 2).refusal is judge.before_truncate("a", 4).refusal is None


def test_forks_need_everything_computed_landed_and_named():
    judge = judge_of()
    allocate(judge, "a", [1, 2])
    assert judge.before_fork("x", "b").refusal == "UnknownRequest"
    assert judge.before_fork("a", "a").refusal == "DuplicateRequest"
    assert judge.before_fork("a", "b").refusal == "NotComputed"
    step = dispatch_all(judge, "a")
    assert judge.before_fork("a", "b").refusal == "NotComputed"
    complete(judge, step)
    assert judge.before_fork("a", "b").refusal is None
    append(judge, "a", [-1])
    run(judge, "a")
    assert judge.before_fork("a", "b").refusal == "NotNamed"


def test_a_fork_waits_for_a_step_whose_tokens_were_cut_off():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3])
    dispatched = dispatch_all(judge, "a")
    truncate(judge, "a", 2)
    assert judge.before_fork("a", "b").refusal == "NotComputed"
    complete(judge, dispatched)
    assert judge.before_fork("a", "b").refusal is None


def test_a_core_whose_policy_is_whole_steps_is_not_asked_for_a_part():
    judge = judge_of(chunks=False)
    allocate(judge, "a", [1, 2, 3])
    assert judge.before_dispatch([("a", 2)]).skip
    assert not judge.before_dispatch([("a", 3)]).skip
    due = judge.before_dispatch([("a", 4)])
    assert due.refusal == "InvalidCount" and not due.skip


def test_a_core_whose_policy_is_to_cut_placeholders_is_not_asked_to_cut_more():
    judge = judge_of(truncates="placeholders")
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, -1])
    assert judge.before_truncate("a", 2).skip
    assert not judge.before_truncate("a", 3).skip
    due = judge.before_truncate("a", 1)
    assert due.refusal == "InvalidLength" and not due.skip


def test_choices_that_the_policy_states_are_not_predicted_where_nobody_asks_for_it():
    judge = Judge(Policy(4, 2), exact=False)
    say(judge, "a", [1], 0, [3])
    assert judge.findings == []
    assert judge.blocks.predictor is None and not judge.policy.exact


def test_fills_name_placeholders_only():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [-1, -1])
    assert judge.before_fill("x", 0, [1]).refusal == "UnknownRequest"
    assert judge.before_fill("a", 2, [-1]).refusal == "InvalidTokens"
    assert judge.before_fill("a", 1, [5]).refusal == "InvalidFill"
    assert judge.before_fill("a", -1, [5]).refusal == "InvalidFill"
    assert judge.before_fill("a", 3, [5, 5]).refusal == "InvalidFill"
    assert judge.before_fill("a", 2, [5, 5]).refusal is None
    assert judge.before_free("a").refusal is None and judge.before_free("x").refusal == "UnknownRequest"


@pytest.mark.parametrize(
    ("tokens", "good"),
    [([0], True), ([2**31 - 1], True), ([], False), ([-1], False), ([2**31], False), (["a"], False), ([1.5], False)],
)
def test_tokens_are_read_or_refused(tokens: list, good: bool):
    assert judge_of().before_lookup(tokens, ()).refusal == (None if good else "InvalidTokens")


# ---- what follows from the choices -----------------------------------------------------------------------------------


def test_the_lesson_s_reference_counts():
    judge = judge_of()
    assert admit(judge, "A", list(range(10))) == [0, 1, 2]
    assert allocate(judge, "B", [*range(8), 50]) == [0, 1, 3]
    assert judge.blocks.references[:4] == [2, 2, 1, 1]
    free(judge, "A")
    assert judge.blocks.references[:4] == [1, 1, 0, 1]
    assert (judge.blocks.available, judge.blocks.cached) == (5, 0)
    free(judge, "B")
    assert (judge.blocks.available, judge.blocks.cached) == (8, 2)
    assert judge.findings == []


def test_published_blocks_carry_their_whole_history():
    judge = with_prompt()
    assert [history is not None for history in judge.blocks.published[:4]] == [True, True, False, False]
    assert judge.histories.describe(judge.blocks.published[1]) == ((), tuple(PROMPT[:8]))
    assert judge.blocks.owners == {judge.blocks.published[0]: [0], judge.blocks.published[1]: [1]}


def test_other_tokens_after_a_truncation_make_another_history():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    run(judge, "a")
    truncate(judge, "a", 2)
    append(judge, "a", [5, 6])
    run(judge, "a")
    assert judge.histories.describe(judge.blocks.published[0]) == ((), (1, 2, 5, 6))
    assert judge.findings == []


def test_a_block_is_published_when_its_last_token_is_named():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3])
    append(judge, "a", [-1])
    run(judge, "a")
    assert judge.blocks.published[0] is None
    fill(judge, "a", 3, [4])
    assert judge.histories.describe(judge.blocks.published[0]) == ((), (1, 2, 3, 4))
    assert judge.findings == []


def test_an_active_owner_is_expected_before_a_cached_one():
    judge = two_owners()
    free(judge, "a")
    assert allocate(judge, "c", PROMPT[:5])[0] == 1
    assert judge.findings == []


def test_any_owner_may_be_hit_where_the_policy_is_not_exact():
    judge = two_owners(exact=False)
    say(judge, "c", PROMPT[:5], 4, [1, 2])
    assert judge.findings == []


def test_any_order_of_free_blocks_is_sound_where_the_policy_is_not_exact():
    judge = judge_of(exact=False)
    say(judge, "a", PROMPT, 0, [7, 3, 5])
    assert judge.findings == []


def test_reserved_blocks_are_no_capacity():
    judge = judge_of(4, reserved=frozenset({0}))
    assert (judge.blocks.capacity, judge.blocks.available) == (3, 3)
    assert judge.before_allocate("a", [1] * 13, ()).refusal == "NeverFits"
    assert allocate(judge, "a", [1] * 12) == [1, 2, 3]
    assert judge.findings == []


def test_a_lookup_without_blocks_is_judged_by_its_length():
    assert lookup_says(with_prompt(), PROMPT, 8, None).findings == []
    assert lookup_says(with_prompt(), PROMPT, 8, [0, 1]).findings == []


@pytest.mark.parametrize(
    ("blocks", "kind"), [([0, 1, 2], None), (None, None), ([0, 1], Completeness), ([0, 1, 3], Mapping)]
)
def test_a_lookup_in_blocks_of_one_slot_is_read_by_its_last_block(
    blocks: list[int] | None, kind: type[Violation] | None
):
    judge = judge_of(block_size=1, reuse="last_token")
    admit(judge, "a", PROMPT[:3])
    assert charged(lookup_says(judge, PROMPT[:3], 2, blocks)) is kind


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_blocks_of_one_slot_leave_the_last_token_under_last_token(blocks: int):
    judge = judge_of(block_size=1, reuse="last_token")
    admit(judge, "a", PROMPT[:blocks])
    assert allocate(judge, "b", PROMPT[:blocks]) == list(range(blocks))
    assert judge.sequences["b"].computed == blocks - 1
    run(judge, "b")
    assert judge.findings == []


def copied_under_a_rollback(duplicates: bool, **options: object) -> Judge:
    """ "a" has computed three blocks, 0 to 2, and the step in flight copies the last one of them. Then "a" was cut to
    its first token. With `duplicates` the first two are cached in blocks 3 and 4, too.
    """
    judge = judge_of(block_size=2, **options)
    admit(judge, "a", [1])
    append(judge, "a", [1, 2, 2, 3, 3])
    if duplicates:
        allocate(judge, "d", [1, 1, 2, 2])
        run(judge, "a", "d")
        free(judge, "d")
    else:
        run(judge, "a")
    assert allocate(judge, "b", [1, 1, 2, 2, 3, 3, 9])[:3] == [0, 1, 2]
    truncate(judge, "a", 5)
    append(judge, "a", [7])
    step = dispatch_all(judge, "a")
    free(judge, "b")
    truncate(judge, "a", 1)
    assert judge.blocks.references[2] == 1 and judge.blocks.published[2] is not None
    complete(judge, step)
    return judge


def test_a_copy_s_source_makes_the_prefix_that_nobody_holds_younger():
    judge = copied_under_a_rollback(duplicates=True)
    assert list(judge.blocks.predictor.cached) == [2, 4, 3]
    assert judge.findings == []


@pytest.mark.parametrize(("duplicates", "exact"), [(False, True), (True, False)])
def test_a_copy_s_source_is_given_back_where_there_is_no_such_prefix_or_no_order(duplicates: bool, exact: bool):
    judge = copied_under_a_rollback(duplicates, exact=exact)
    assert judge.blocks.cached == 1 + 2 * duplicates
    assert judge.blocks.references[2] == 0
    assert judge.findings == []


def test_what_was_cut_off_in_flight_makes_the_prefix_that_nobody_holds_younger():
    judge = judge_of(num_blocks=12, block_size=2)
    d0, d1 = admit(judge, "d", [1, 1, 2, 2])
    admit(judge, "a", [1])
    append(judge, "a", [1, 2, 2, 3, 3])  # the same again, in blocks of its own
    run(judge, "a")
    last = judge.sequences["a"].table[2]
    assert allocate(judge, "b", [1, 1, 2, 2, 3, 3, 9])[:3] == [d0, d1, last]
    append(judge, "a", [7])
    dispatched = dispatch_all(judge, "a")
    truncate(judge, "a", 1)
    free(judge, "d")
    free(judge, "b")
    assert list(judge.blocks.predictor.cached) == [d1, d0]
    complete(judge, dispatched)
    assert list(judge.blocks.predictor.cached) == [last, d1, d0]
    assert judge.findings == []


def test_events_are_counted():
    judge = forked()
    append(judge, "c", [9])
    run(judge, "c")
    assert judge.events["fork"] == judge.events["fork with a shared tail"] == judge.events["copy-on-write"] == 1


def test_what_an_operation_has_changed_is_named():
    judge = judge_of()
    due = judge.before_allocate("a", PROMPT, ())
    judge.after_allocate(due, 0, [0, 1, 2])
    assert due.changed == [0, 1, 2]
    dispatched = dispatch_all(judge, "a")
    due = judge.before_complete(dispatched)
    judge.after_complete(due)
    assert due.changed == [0, 1]
    due = judge.before_free("a")
    judge.after_free(due)
    assert due.changed == [2, 1, 0]
    due = judge.before_reset()
    judge.after_reset(due)
    assert due.changed == [0, 1]


# ---- sound choices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reuse", ["last_block", "last_token"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_sound_choices_accuse_nothing(seed: int, exact: bool, reuse: str):
    random = Random(seed)
    size = random.choice([1, 2, 3])
    judge = judge_of(random.randint(4, 12), size, exact=exact, reuse=reuse)
    spaces = [(), (("salt", "s"),)]
    for number in range(400):
        name = f"r{number}"
        tokens = [random.randrange(2) for _ in range(random.randint(1, 3 * size))]
        live = list(judge.sequences)
        line = judge.sequences[random.choice(live)] if live else None
        kind = random.choice(["allocate", "append", "dispatch", "dispatch", "complete", "complete", "other"])
        if kind == "allocate":
            space = random.choice(spaces)
            if judge.before_allocate(name, tokens, space).refusal is None:
                allocate(judge, name, tokens, space)
        elif kind == "complete":
            if judge.in_flight:
                complete(judge, judge.in_flight[0])
        elif line is None:
            continue
        elif kind == "append":
            tokens = [-1] if random.random() < 0.3 else tokens
            if judge.before_append(line.request, tokens).refusal is None:
                append(judge, line.request, tokens)
        elif kind == "dispatch":
            if line.scheduled < len(line.tokens):
                dispatch(judge, (line.request, random.randint(1, len(line.tokens) - line.scheduled)))
        else:
            other = random.choice(["truncate", "fork", "fill", "free", "free", "reset"])
            if other == "truncate":
                truncate(judge, line.request, random.randint(line.base, len(line.tokens)))
            elif other == "fork" and judge.before_fork(line.request, name).refusal is None:
                fork(judge, line.request, name)
            elif other == "fill" and line.num_placeholders:
                fill(judge, line.request, line.tokens.index(-1), [random.randrange(2)])
            elif other == "free":
                free(judge, line.request)
            elif other == "reset" and random.random() < 0.1:
                reset(judge)
        judge.walk()
        assert judge.findings == []
    while judge.in_flight:
        complete(judge, judge.in_flight[0])
    for request in list(judge.sequences):
        free(judge, request)
    assert judge.findings == []
    assert judge.blocks.available == judge.blocks.capacity
    assert judge.blocks.references == [0] * judge.policy.num_blocks
    assert judge.blocks.cached == sum(history is not None for history in judge.blocks.published)
