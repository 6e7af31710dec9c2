"""The judge accuses every unsound choice of its own property, and a sound one of nothing.

Each provocation plays a core that makes one wrong choice. What is asserted is the property that the Session would
charge (the first in order of harm among the findings), what else is found, and which request and blocks are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest

from reference import (
    PROPERTIES,
    Admission,
    Aliasing,
    Bounds,
    Completeness,
    Conservation,
    Counters,
    Crash,
    Equivalence,
    Errors,
    Eviction,
    Exact,
    Exclusive,
    Freshness,
    Growth,
    History,
    Internal,
    Isolation,
    Judge,
    Keys,
    Lifetime,
    Mapping,
    Ownership,
    Publish,
    Recompute,
    References,
    Release,
    Rollback,
    Violation,
)

from .driving import (
    admit,
    allocate,
    append,
    charged,
    complete,
    dispatch,
    dispatch_all,
    fill,
    free,
    judge_of,
    reset,
    run,
    truncate,
)
from .scenes import PROMPT, cut_says, forked, lookup_says, say, two_owners, with_prompt

Provocation = Callable[[], Judge]


class Provoked(NamedTuple):
    """What a provocation is charged with, the facts that the message names, and what else is accused."""

    kind: type[Violation]
    play: Provocation
    facts: tuple[str, ...]
    also: set[type[Violation]]


PROVOCATIONS: list[Provoked] = []


def provokes(
    kind: type[Violation], *facts: str, also: Iterable[type[Violation]] = ()
) -> Callable[[Provocation], Provocation]:
    def register(play: Provocation) -> Provocation:
        PROVOCATIONS.append(Provoked(kind, play, facts, set(also)))
        return play

    return register


# ---- FRESHNESS -------------------------------------------------------------------------------------------------------


@provokes(Freshness, "'a'", "block 0")
def a_hit_on_a_block_that_was_never_written():
    return say(judge_of(), "a", PROMPT, 4, [0, 1, 2])


@provokes(Freshness, "'b'", "block 0")
def a_hit_on_a_block_that_is_written_in_part():
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    dispatch(judge, ("a", 3))
    return say(judge, "b", PROMPT, 4, [0, 3, 4])


@provokes(Freshness, "'a'", "block 2", "positions 8 on")
def another_request_s_write_under_a_live_one():
    judge = with_prompt(exact=False)
    say(judge, "thief", [90], 0, [2])
    judge.findings.clear()
    dispatch_all(judge, "thief")
    judge.findings.clear()
    judge.walk()
    return judge


@provokes(Freshness, "'a'", "block 0", "positions 0 to 1", also={Aliasing})
def a_decode_after_its_tail_was_overwritten():
    judge = judge_of(exact=False)
    admit(judge, "a", [1, 2])
    say(judge, "thief", [90], 0, [0])
    dispatch_all(judge, "thief")
    judge.findings.clear()
    due = judge.before_append("a", [3])
    judge.after_append(due, [0])
    dispatch_all(judge, "a")
    return judge


@provokes(Freshness, "'a'", "block 0")
def a_block_published_after_a_copy_has_overwritten_it():
    judge = judge_of()
    allocate(judge, "a", [1, 2, 3, 4])
    allocate(judge, "b", [5])
    first = dispatch_all(judge, "a")
    due = judge.before_dispatch([("b", 1)])
    judge.after_dispatch(due, (), (), [(7, 0)])
    judge.findings.clear()
    complete(judge, first)
    return judge


# ---- HISTORY, ISOLATION ----------------------------------------------------------------------------------------------


@provokes(History, "'E'", "block 1")
def a_hit_on_a_recycled_block_with_the_same_tokens_after_another_prefix():
    """nano-vllm issue 163."""
    p, q, t, z = ([10 * n, 10 * n + 1, 10 * n + 2, 10 * n + 3] for n in (1, 2, 3, 4))
    judge = judge_of(5)
    admit(judge, "A", [*p, *t, 99])
    allocate(judge, "D", [*p, 98])
    free(judge, "A")
    assert admit(judge, "B", [*q, *z, *t]) == [4, 2, 1]
    free(judge, "B")
    assert judge.findings == []
    return say(judge, "E", [*p, *t, 97], 8, [0, 1, 4])


@provokes(History, "'b'", "block 0")
def a_hit_on_other_tokens():
    judge = with_prompt()
    return say(judge, "b", [1, 2, 3, 5, 9], 4, [0, 3])


@provokes(History, "'lookup'", "block 0")
def a_lookup_that_names_a_block_with_other_tokens():
    return lookup_says(with_prompt(), [1, 2, 3, 5, 9], 4, [0])


@provokes(History, "'b'", "block 0")
def a_hit_on_other_tokens_in_another_namespace():
    judge = with_prompt()
    return say(judge, "b", [1, 2, 3, 5, 9], 4, [0, 3], (("salt", "s"),))


@provokes(Isolation, "'b'", "block 0")
def a_hit_across_namespaces():
    judge = with_prompt()
    return say(judge, "b", PROMPT, 8, [0, 1, 3], (("salt", "s"),))


@provokes(Isolation, "'lookup'", "block 0")
def a_lookup_that_names_a_block_of_another_namespace():
    return lookup_says(with_prompt(), PROMPT, 4, [0], (("salt", "s"),))


@provokes(Isolation, "'b'", "block 0")
def a_hit_in_the_default_namespace_on_a_salted_block():
    judge = judge_of()
    admit(judge, "a", PROMPT, (("salt", ""),))
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


# ---- ALIASING, EXCLUSIVE, LIFETIME -----------------------------------------------------------------------------------


@provokes(Aliasing, "'c'", "block 1")
def an_append_into_a_shared_tail_in_place():
    judge = forked()
    due = judge.before_append("c", [9])
    judge.after_append(due, [0, 1])
    return judge


@provokes(Aliasing, "'c'", "block 1", "position 6")
def a_write_into_a_shared_tail():
    judge = forked(exact=False)
    due = judge.before_append("c", [9])
    judge.after_append(due, [0, 1])
    assert judge.findings == []
    dispatch_all(judge, "c")
    return judge


@provokes(Aliasing, "[(1, 2)]", "[]")
def a_step_that_forgets_a_copy():
    judge = forked()
    append(judge, "c", [9])
    due = judge.before_dispatch([("c", 1)])
    judge.after_dispatch(due, (), (), [])
    judge.findings[:] = [found for found in judge.findings if not isinstance(found, Freshness)]
    return judge


@provokes(Exclusive, "'b'", "block 2", also={Exact})
def a_block_in_two_tables():
    return say(with_prompt(), "b", [90], 0, [2])


@provokes(Exclusive, "'a'", "block 1", also={Exact})
def a_block_twice_in_one_table():
    return say(judge_of(), "a", PROMPT, 0, [0, 1, 1])


@provokes(Exclusive, "'a'", "block 0", also={Exact})
def an_append_that_takes_a_block_of_its_own_table_again():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4])
    due = judge.before_append("a", [5])
    judge.after_append(due, [0, 0])
    return judge


@provokes(Exclusive, "'b'", "block 2", also={Exact})
def an_append_that_takes_another_s_block():
    judge = with_prompt()
    admit(judge, "b", [90, 91, 92, 93])
    due = judge.before_append("b", [94])
    judge.after_append(due, [3, 2])
    return judge


@provokes(Exclusive, "[(0, 2)]", "[]")
def a_copy_that_nobody_asked_for():
    judge = with_prompt()
    allocate(judge, "b", [90])
    due = judge.before_dispatch([("b", 1)])
    judge.after_dispatch(due, (), (), [(0, 2)])
    return judge


@provokes(Lifetime, "'b'", "block 0", also={Exact})
def a_block_of_a_request_freed_in_flight():
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    dispatch_all(judge, "a")
    free(judge, "a")
    return say(judge, "b", [90], 0, [0])


@provokes(Lifetime, "'b'", "block 3", also={Exact})
def a_block_cut_off_in_flight():
    judge = with_prompt()
    append(judge, "a", [10, 11, 12, 13])
    dispatch_all(judge, "a")
    truncate(judge, "a", 9)
    return say(judge, "b", [90], 0, [3])


@provokes(Lifetime, "'b'", "block 1", also={Exact})
def the_source_of_a_copy_that_waits():
    judge = forked()
    append(judge, "c", [9])
    free(judge, "p")
    return say(judge, "b", [90], 0, [1])


@provokes(Lifetime, "'b'", "block 1", also={Exact})
def the_source_of_a_copy_in_flight():
    judge = forked()
    append(judge, "c", [9])
    dispatch_all(judge, "c")
    free(judge, "p")
    return say(judge, "b", [90], 0, [1])


# ---- PUBLISH, ROLLBACK -----------------------------------------------------------------------------------------------


@provokes(Publish, "'b'", "block 0")
def a_hit_on_a_block_that_is_being_computed():
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    dispatch_all(judge, "a")
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


@provokes(Publish, "'b'", "block 0")
def a_hit_after_a_reset():
    judge = with_prompt()
    reset(judge)
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


@provokes(Publish, "'b'", "block 0")
def a_hit_without_caching():
    judge = with_prompt(caching=False)
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


@provokes(Publish, "'b'", "block 0")
def a_hit_on_a_placeholder_without_a_name():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3])
    append(judge, "a", [-1])
    dispatch_all(judge, "a")
    fill(judge, "a", 3, [4])
    return say(judge, "b", PROMPT, 4, [0, 1, 2])


@provokes(Publish, "8 hit tokens")
def a_lookup_that_promises_what_cannot_be_hit():
    judge = judge_of()
    return lookup_says(judge, PROMPT, 8, None)


@provokes(Rollback, "'b'", "block 0")
def a_hit_on_what_was_rolled_back():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    run(judge, "a")
    truncate(judge, "a", 3)
    append(judge, "a", [4])
    return say(judge, "b", PROMPT, 4, [0, 1, 2])


@provokes(Rollback, "'c'", "block 0")
def a_hit_on_a_tail_that_an_append_has_withdrawn():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    run(judge, "a")
    allocate(judge, "b", PROMPT)
    truncate(judge, "a", 2)
    free(judge, "b")
    append(judge, "a", [7])
    return say(judge, "c", PROMPT, 4, [0, 2, 1])


@provokes(Rollback, "'a'", "[0, 1, 2, 3]", "[0, 1, 2]")
def a_truncation_that_keeps_a_block():
    judge = with_prompt()
    append(judge, "a", [10, 11, 12, 13])
    return cut_says(judge, "a", 9, [0, 1, 2, 3])


@provokes(Rollback, "'a'", "[0, 1]", "[0, 1, 2]")
def a_truncation_that_loses_a_block():
    judge = with_prompt()
    append(judge, "a", [10, 11, 12, 13])
    return cut_says(judge, "a", 10, [0, 1])


@provokes(Rollback, "'a'", "[0, 1, 3]")
def a_truncation_to_the_same_length_that_changes_the_table():
    judge = with_prompt()
    return cut_says(judge, "a", 9, [0, 1, 3])


@provokes(Rollback, "'c'", "[0, 2]", "[0, 1]")
def a_truncation_that_does_not_undo_a_copy():
    judge = forked()
    append(judge, "c", [9])
    return cut_says(judge, "c", 6, [0, 2])


# ---- MAPPING ---------------------------------------------------------------------------------------------------------


@provokes(Mapping, "'a'", "block 8")
def a_new_block_that_does_not_exist():
    return say(judge_of(exact=False), "a", [1], 0, [8])


@provokes(Exclusive, "'b'", "block 0", also={Exact, Mapping, Eviction})
def a_block_that_another_holds_after_one_that_does_not_exist():
    judge = with_prompt()
    return say(judge, "b", [90] * 5, 0, [8, 0])


@provokes(Mapping, "'a'", "block -1")
def a_negative_block():
    return say(judge_of(exact=False), "a", [1], 0, [-1])


@provokes(Mapping, "'a'", "block 0")
def a_reserved_block():
    return say(judge_of(reserved=frozenset({0}), exact=False), "a", [1], 0, [0])


@provokes(Mapping, "'b'", "block 1", "block 99")
def a_hit_block_that_does_not_exist():
    return say(with_prompt(), "b", PROMPT, 8, [0, 99, 3])


@provokes(Mapping, "8 hit tokens", also={Completeness})
def a_lookup_that_names_too_few_blocks():
    return lookup_says(with_prompt(), PROMPT, 8, [0])


@provokes(Mapping, "'a'", "[0, 1, 2]", "[0, 3, 2]")
def an_append_that_changes_the_table():
    judge = with_prompt()
    due = judge.before_append("a", [10])
    judge.after_append(due, [0, 3, 2])
    return judge


@provokes(Mapping, "'a'", "[0]", "[1, 2]")
def an_append_that_replaces_a_full_tail():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4])
    due = judge.before_append("a", [5])
    judge.after_append(due, [1, 2])
    return judge


@provokes(Mapping, "'b'", "[0, 1, 3]", "[0, 1, 2]")
def a_fork_with_another_table():
    judge = with_prompt()
    due = judge.before_fork("a", "b")
    judge.after_fork(due, [0, 1, 3])
    return judge


# ---- RECOMPUTE, ADMISSION --------------------------------------------------------------------------------------------


@provokes(Recompute, "'b'", "4 tokens are hit")
def a_hit_on_the_last_token_too():
    judge = judge_of(reuse="last_token")
    admit(judge, "a", [1, 2, 3, 4])
    return say(judge, "b", [1, 2, 3, 4], 4, [0])


@provokes(Recompute, "'b'", "8 tokens are hit", also={Exact})
def a_full_last_block_reused_under_last_block():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4, 5, 6, 7, 8])
    return say(judge, "b", [1, 2, 3, 4, 5, 6, 7, 8], 8, [0, 1])


@provokes(Recompute, "'a'", "-4 hit tokens")
def a_negative_hit():
    return say(judge_of(), "a", [1], -4, [0])


@provokes(Recompute, "'b'", "6 hit tokens", also={Completeness})
def a_hit_of_a_part_of_a_block():
    judge = with_prompt()
    return say(judge, "b", PROMPT, 6, [0, 3, 4])


@provokes(Admission, "'a'", "has 9 tokens and 2 blocks")
def a_table_with_a_block_too_few():
    return say(judge_of(), "a", PROMPT, 0, [0, 1])


@provokes(Admission, "'a'", "has 9 tokens and 4 blocks")
def a_table_with_a_block_too_many():
    return say(judge_of(), "a", PROMPT, 0, [0, 1, 2, 3])


@provokes(Admission, "'a'", "has 5 tokens and 1 blocks")
def an_append_without_the_block_that_it_needs():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4])
    due = judge.before_append("a", [5])
    judge.after_append(due, [0])
    return judge


# ---- COMPLETENESS, EVICTION, EXACT -----------------------------------------------------------------------------------


@provokes(Completeness, "'b'", "block 0", "hits 0 blocks")
def a_miss_of_what_is_resident():
    judge = with_prompt()
    return say(judge, "b", PROMPT, 0, [3, 4, 5])


@provokes(Completeness, "'b'", "block 1", "hits 1 blocks")
def a_hit_that_stops_short():
    judge = with_prompt()
    free(judge, "a")
    return say(judge, "b", PROMPT, 4, [0, 3, 4])


@provokes(Completeness, "'lookup'", "block 1", "hits 1 blocks")
def a_lookup_that_stops_short():
    return lookup_says(with_prompt(), PROMPT, 4, [0])


@provokes(Completeness, "'lookup'", "block 1", "hits 1 blocks")
def a_lookup_without_blocks_that_stops_short():
    return lookup_says(with_prompt(), PROMPT, 4, None)


@provokes(Completeness, "'lookup'", "block 1", "hits 1 blocks")
def a_miss_of_what_extends_a_block_rolled_back_and_computed_again():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    run(judge, "a")
    admit(judge, "b", PROMPT)
    free(judge, "b")
    truncate(judge, "a", 2)
    append(judge, "a", [3, 4])
    run(judge, "a")
    assert judge.findings == []
    return lookup_says(judge, PROMPT, 4, [0])


@provokes(Eviction, "'c'", "[1]", "[0]")
def an_eviction_of_the_more_recently_released():
    judge = judge_of(2)
    for token, request in ((1, "a"), (5, "b")):
        admit(judge, request, [token] * 4)
    for request in "ab":
        free(judge, request)
    assert list(judge.blocks.predictor.cached) == [0, 1]
    return say(judge, "c", [90], 0, [1])


@provokes(Eviction, "block 0")
def an_eviction_of_a_prefix_before_what_extends_it():
    judge = judge_of(3, exact=False)
    admit(judge, "a", PROMPT)
    free(judge, "a")
    return say(judge, "b", [90, 90, 90, 90, 90], 0, [2, 0])


@provokes(Eviction, "block 0")
def an_eviction_of_a_prefix_when_one_of_two_that_extend_it_has_gone():
    judge = judge_of(4, exact=False)
    admit(judge, "a", [*range(4), 5, 5, 5, 5, 9])
    admit(judge, "b", [*range(4), 6, 6, 6, 6])
    free(judge, "a")
    free(judge, "b")
    say(judge, "c", [90] * 8, 0, [2, 1])
    assert judge.findings == []
    return say(judge, "d", [91], 0, [0])


@provokes(Exact, "'a'", "[1]", "[0]")
def a_free_block_out_of_order():
    return say(judge_of(), "a", [1], 0, [1])


@provokes(Exact, "'b'", "[0]", "[1]")
def a_cached_block_while_a_free_one_is_left():
    judge = judge_of(2)
    admit(judge, "a", [1, 2, 3, 4])
    free(judge, "a")
    return say(judge, "b", [90], 0, [0])


@provokes(Exact, "'c'", "[1]", "[0]")
def a_hit_on_the_owner_that_was_published_later():
    judge = two_owners()
    return say(judge, "c", PROMPT[:5], 4, [1, 2])


@provokes(Exact, "'a'", "block 0")
def a_copy_of_a_tail_that_nobody_else_holds():
    judge = judge_of()
    admit(judge, "a", [1])
    due = judge.before_append("a", [2])
    judge.after_append(due, [1])
    return judge


# ---- what they are charged with --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "provoked", [pytest.param(one, id=f"{one.kind.id}: {one.play.__name__}") for one in PROVOCATIONS]
)
def test_an_unsound_choice_is_charged_to_its_property_and_named(provoked: Provoked):
    judge = provoked.play()
    assert charged(judge) is provoked.kind
    assert {type(found) for found in judge.findings} == {provoked.kind, *provoked.also}
    message = next(found.message for found in judge.findings if type(found) is provoked.kind)
    assert [fact for fact in provoked.facts if fact not in message] == []


def test_every_property_that_is_the_judge_s_to_check_is_provoked():
    """The others are checked by the session, by its laws, or with kernels."""
    elsewhere = {
        *(Bounds, Conservation, Counters, Crash, Equivalence, Errors, Growth, Internal, Keys, Ownership, References),
        Release,
    }
    assert {one.kind for one in PROVOCATIONS} == set(PROPERTIES.values()) - elsewhere


def test_long_histories_are_shown_by_their_ends():
    judge = judge_of(num_blocks=40, block_size=4)
    tokens = list(range(100))
    admit(judge, "a", [*tokens, 7])
    say(judge, "b", [*tokens[:-1], 100, 7], 100, list(range(26)))
    (found,) = judge.findings
    wanted, held = [*range(36, 99), 100], [*range(36, 100)]
    assert found.message == f"'b' hits block 24 (logical 24) for tokens {wanted}; it holds {held}"


def test_a_history_in_a_namespace_is_shown_with_it():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4, 5], (("salt", "s"),))
    say(judge, "b", [1, 2, 3, 9, 5], 4, [0, 2])
    (found,) = judge.findings
    assert found.message.endswith("for tokens [1, 2, 3, 9]; it holds [1, 2, 3, 4] in (('salt', 's'),)")


def test_a_long_prompt_is_shown_by_its_beginning():
    judge = judge_of(num_blocks=40, block_size=4)
    admit(judge, "a", range(41))
    say(judge, "b", list(range(41)), 4, [0, *range(11, 21)])
    (found,) = judge.findings
    assert found.message == (f"'b' hits 1 blocks of {[*range(32)]}; 10 are resident (the next one in block 1)")
