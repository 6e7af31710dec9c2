"""The judge accuses every unsound choice of its own property, and a sound one of nothing.

Each provocation plays a core that makes one wrong choice. What is asserted is the property that the Session would
charge: the first in order of harm among the findings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from random import Random

import pytest

from reference import (
    PROPERTIES,
    Admission,
    Aliasing,
    Completeness,
    Eviction,
    Exact,
    Exclusive,
    Freshness,
    History,
    Isolation,
    Judge,
    Lifetime,
    Mapping,
    Passage,
    Publish,
    Recompute,
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
    fork,
    free,
    judge_of,
    run,
    truncate,
)

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]

Provocation = Callable[[], Judge]
PROVOCATIONS: list[tuple[type[Violation], Provocation]] = []


def provokes(kind: type[Violation]) -> Callable[[Provocation], Provocation]:
    def register(function: Provocation) -> Provocation:
        PROVOCATIONS.append((kind, function))
        return function

    return register


def say(judge: Judge, request: str, tokens: list[int], hit_tokens: int, table: list[int], space: object = ()) -> Judge:
    """The core admits `request` like this, whatever is right."""
    assert judge.before_allocate(request, tokens, space) in (None, "OutOfBlocks")
    judge.after_allocate(request, space, hit_tokens, table)
    return judge


def lookup_says(judge: Judge, tokens: list[int], hit_tokens: int, blocks: list[int] | None) -> Judge:
    assert judge.before_lookup(tokens) is None
    judge.after_lookup(tokens, (), hit_tokens, blocks)
    return judge


def with_prompt(**options: object) -> Judge:
    """PROMPT is computed by "a" in blocks 0, 1, 2 of 4."""
    judge = judge_of(**options)
    assert admit(judge, "a", PROMPT) == [0, 1, 2]
    assert judge.findings == []
    return judge


def forked(**options: object) -> Judge:
    """ "c" is a fork of "p": 6 tokens in blocks 0 and 1 of 4."""
    judge = judge_of(**options)
    admit(judge, "p", [1, 2, 3, 4, 5, 6])
    fork(judge, "p", "c")
    return judge


# ---- FRESHNESS -------------------------------------------------------------------------------------------------------


@provokes(Freshness)
def a_hit_on_a_block_that_was_never_written():
    return say(judge_of(), "a", PROMPT, 4, [0, 1, 2])


@provokes(Freshness)
def a_hit_on_a_block_that_is_written_in_part():
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    dispatch(judge, ("a", 3))
    return say(judge, "b", PROMPT, 4, [0, 3, 4])


@provokes(Freshness)
def another_request_s_write_under_a_live_one():
    judge = with_prompt(exact=False)
    say(judge, "thief", [90], 0, [2])
    judge.findings.clear()
    dispatch_all(judge, "thief")
    judge.findings.clear()
    judge.walk()
    return judge


@provokes(Freshness)
def a_decode_after_its_tail_was_overwritten():
    judge = judge_of(exact=False)
    admit(judge, "a", [1, 2])
    say(judge, "thief", [90], 0, [0])
    dispatch_all(judge, "thief")
    judge.findings.clear()
    judge.before_append("a", [3])
    judge.after_append("a", [0])
    dispatch_all(judge, "a")
    return judge


@provokes(Freshness)
def a_block_published_after_a_copy_has_overwritten_it():
    judge = judge_of()
    allocate(judge, "a", [1, 2, 3, 4])
    allocate(judge, "b", [5])
    first = dispatch_all(judge, "a")
    judge.before_dispatch([("b", 1)])
    judge.after_dispatch([("b", 1)], [(7, 0)])
    judge.findings.clear()
    judge.after_complete(first)
    return judge


# ---- HISTORY, ISOLATION ----------------------------------------------------------------------------------------------


@provokes(History)
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


@provokes(History)
def a_hit_on_other_tokens():
    judge = with_prompt()
    return say(judge, "b", [1, 2, 3, 5, 9], 4, [0, 3])


@provokes(History)
def a_lookup_that_names_a_block_with_other_tokens():
    return lookup_says(with_prompt(), [1, 2, 3, 5, 9], 4, [0])


@provokes(History)
def a_hit_on_other_tokens_in_another_namespace():
    judge = with_prompt()
    return say(judge, "b", [1, 2, 3, 5, 9], 4, [0, 3], (("salt", "s"),))


@provokes(Isolation)
def a_hit_across_namespaces():
    judge = with_prompt()
    return say(judge, "b", PROMPT, 8, [0, 1, 3], (("salt", "s"),))


@provokes(Isolation)
def a_lookup_that_names_a_block_of_another_namespace():
    judge = with_prompt()
    judge.after_lookup(PROMPT, (("salt", "s"),), 4, [0])
    return judge


@provokes(Isolation)
def a_hit_in_the_default_namespace_on_a_salted_block():
    judge = judge_of()
    admit(judge, "a", PROMPT, (("salt", ""),))
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


# ---- ALIASING, EXCLUSIVE, LIFETIME -----------------------------------------------------------------------------------


@provokes(Aliasing)
def an_append_into_a_shared_tail_in_place():
    judge = forked()
    judge.before_append("c", [9])
    judge.after_append("c", [0, 1])
    return judge


@provokes(Aliasing)
def a_write_into_a_shared_tail():
    judge = forked(exact=False)
    judge.before_append("c", [9])
    judge.after_append("c", [0, 1])
    assert judge.findings == []
    dispatch_all(judge, "c")
    return judge


@provokes(Aliasing)
def a_step_that_forgets_a_copy():
    judge = forked()
    append(judge, "c", [9])
    judge.before_dispatch([("c", 1)])
    judge.after_dispatch([("c", 1)], [])
    judge.findings[:] = [found for found in judge.findings if not isinstance(found, Freshness)]
    return judge


@provokes(Exclusive)
def a_block_in_two_tables():
    return say(with_prompt(), "b", [90], 0, [2])


@provokes(Exclusive)
def a_block_twice_in_one_table():
    return say(judge_of(), "a", PROMPT, 0, [0, 1, 1])


@provokes(Exclusive)
def an_append_that_takes_a_block_of_its_own_table_again():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4])
    judge.before_append("a", [5])
    judge.after_append("a", [0, 0])
    return judge


@provokes(Exclusive)
def an_append_that_takes_another_s_block():
    judge = with_prompt()
    admit(judge, "b", [90, 91, 92, 93])
    judge.before_append("b", [94])
    judge.after_append("b", [3, 2])
    return judge


@provokes(Exclusive)
def a_copy_that_nobody_asked_for():
    judge = with_prompt()
    allocate(judge, "b", [90])
    judge.before_dispatch([("b", 1)])
    judge.after_dispatch([("b", 1)], [(0, 2)])
    return judge


@provokes(Lifetime)
def a_block_of_a_request_freed_in_flight():
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    dispatch_all(judge, "a")
    free(judge, "a")
    return say(judge, "b", [90], 0, [0])


@provokes(Lifetime)
def a_block_cut_off_in_flight():
    judge = with_prompt()
    append(judge, "a", [10, 11, 12, 13])
    dispatch_all(judge, "a")
    truncate(judge, "a", 9)
    return say(judge, "b", [90], 0, [3])


@provokes(Lifetime)
def the_source_of_a_copy_that_waits():
    judge = forked()
    append(judge, "c", [9])
    free(judge, "p")
    return say(judge, "b", [90], 0, [1])


@provokes(Lifetime)
def the_source_of_a_copy_in_flight():
    judge = forked()
    append(judge, "c", [9])
    dispatch_all(judge, "c")
    free(judge, "p")
    return say(judge, "b", [90], 0, [1])


# ---- PUBLISH, ROLLBACK -----------------------------------------------------------------------------------------------


@provokes(Publish)
def a_hit_on_a_block_that_is_being_computed():
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    dispatch_all(judge, "a")
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


@provokes(Publish)
def a_hit_after_a_reset():
    judge = with_prompt()
    judge.after_reset()
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


@provokes(Publish)
def a_hit_without_caching():
    judge = with_prompt(caching=False)
    return say(judge, "b", PROMPT, 8, [0, 1, 3])


@provokes(Publish)
def a_hit_on_a_placeholder_without_a_name():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3])
    append(judge, "a", [-1])
    dispatch_all(judge, "a")
    fill(judge, "a", 3, [4])
    return say(judge, "b", PROMPT, 4, [0, 1, 2])


@provokes(Publish)
def a_lookup_that_promises_what_cannot_be_hit():
    judge = judge_of()
    return lookup_says(judge, PROMPT, 8, None)


@provokes(Rollback)
def a_hit_on_what_was_rolled_back():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    run(judge, "a")
    truncate(judge, "a", 3)
    append(judge, "a", [4])
    return say(judge, "b", PROMPT, 4, [0, 1, 2])


@provokes(Rollback)
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


@provokes(Rollback)
def a_truncation_that_keeps_a_block():
    judge = with_prompt()
    append(judge, "a", [10, 11, 12, 13])
    judge.after_truncate("a", 9, [0, 1, 2, 3])
    return judge


@provokes(Rollback)
def a_truncation_that_loses_a_block():
    judge = with_prompt()
    append(judge, "a", [10, 11, 12, 13])
    judge.after_truncate("a", 10, [0, 1])
    return judge


@provokes(Rollback)
def a_truncation_to_the_same_length_that_changes_the_table():
    judge = with_prompt()
    judge.after_truncate("a", 9, [0, 1, 3])
    return judge


@provokes(Rollback)
def a_truncation_that_does_not_undo_a_copy():
    judge = forked()
    append(judge, "c", [9])
    judge.after_truncate("c", 6, [0, 2])
    return judge


# ---- MAPPING ---------------------------------------------------------------------------------------------------------


@provokes(Mapping)
def a_new_block_that_does_not_exist():
    return say(judge_of(exact=False), "a", [1], 0, [8])


@provokes(Exclusive)
def a_block_that_another_holds_after_one_that_does_not_exist():
    judge = with_prompt()
    return say(judge, "b", [90] * 5, 0, [8, 0])


@provokes(Mapping)
def a_negative_block():
    return say(judge_of(exact=False), "a", [1], 0, [-1])


@provokes(Mapping)
def a_reserved_block():
    return say(judge_of(reserved=frozenset({0}), exact=False), "a", [1], 0, [0])


@provokes(Mapping)
def a_hit_block_that_does_not_exist():
    return say(with_prompt(), "b", PROMPT, 8, [0, 99, 3])


@provokes(Mapping)
def a_lookup_that_names_too_few_blocks():
    return lookup_says(with_prompt(), PROMPT, 8, [0])


@provokes(Mapping)
def an_append_that_changes_the_table():
    judge = with_prompt()
    judge.before_append("a", [10])
    judge.after_append("a", [0, 3, 2])
    return judge


@provokes(Mapping)
def an_append_that_replaces_a_full_tail():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4])
    judge.before_append("a", [5])
    judge.after_append("a", [1, 2])
    return judge


@provokes(Mapping)
def a_fork_with_another_table():
    judge = with_prompt()
    judge.before_fork("a", "b")
    judge.after_fork("a", "b", [0, 1, 3])
    return judge


# ---- RECOMPUTE, ADMISSION --------------------------------------------------------------------------------------------


@provokes(Recompute)
def a_hit_on_the_last_token_too():
    judge = judge_of(reuse="last_token")
    admit(judge, "a", [1, 2, 3, 4])
    return say(judge, "b", [1, 2, 3, 4], 4, [0])


@provokes(Recompute)
def a_full_last_block_reused_under_last_block():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4, 5, 6, 7, 8])
    return say(judge, "b", [1, 2, 3, 4, 5, 6, 7, 8], 8, [0, 1])


@provokes(Recompute)
def a_negative_hit():
    return say(judge_of(), "a", [1], -4, [0])


@provokes(Recompute)
def a_hit_of_a_part_of_a_block():
    judge = with_prompt()
    return say(judge, "b", PROMPT, 6, [0, 3, 4])


@provokes(Admission)
def a_table_with_a_block_too_few():
    return say(judge_of(), "a", PROMPT, 0, [0, 1])


@provokes(Admission)
def a_table_with_a_block_too_many():
    return say(judge_of(), "a", PROMPT, 0, [0, 1, 2, 3])


@provokes(Admission)
def an_append_without_the_block_that_it_needs():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3, 4])
    judge.before_append("a", [5])
    judge.after_append("a", [0])
    return judge


# ---- COMPLETENESS, EVICTION, EXACT -----------------------------------------------------------------------------------


@provokes(Completeness)
def a_miss_of_what_is_resident():
    judge = with_prompt()
    return say(judge, "b", PROMPT, 0, [3, 4, 5])


@provokes(Completeness)
def a_hit_that_stops_short():
    judge = with_prompt()
    free(judge, "a")
    return say(judge, "b", PROMPT, 4, [0, 3, 4])


@provokes(Completeness)
def a_lookup_that_stops_short():
    return lookup_says(with_prompt(), PROMPT, 4, [0])


@provokes(Completeness)
def a_lookup_without_blocks_that_stops_short():
    return lookup_says(with_prompt(), PROMPT, 4, None)


@provokes(Completeness)
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


@provokes(Eviction)
def an_eviction_of_the_more_recently_released():
    judge = judge_of(2)
    for token, request in ((1, "a"), (5, "b")):
        admit(judge, request, [token] * 4)
    for request in "ab":
        free(judge, request)
    assert list(judge.predictor.cached) == [0, 1]
    return say(judge, "c", [90], 0, [1])


@provokes(Eviction)
def an_eviction_of_a_prefix_before_what_extends_it():
    judge = judge_of(3, exact=False)
    admit(judge, "a", PROMPT)
    free(judge, "a")
    return say(judge, "b", [90, 90, 90, 90, 90], 0, [2, 0])


@provokes(Eviction)
def an_eviction_of_a_prefix_when_one_of_two_that_extend_it_has_gone():
    judge = judge_of(4, exact=False)
    admit(judge, "a", [*range(4), 5, 5, 5, 5, 9])
    admit(judge, "b", [*range(4), 6, 6, 6, 6])
    free(judge, "a")
    free(judge, "b")
    say(judge, "c", [90] * 8, 0, [2, 1])
    assert judge.findings == []
    return say(judge, "d", [91], 0, [0])


@provokes(Exact)
def a_free_block_out_of_order():
    return say(judge_of(), "a", [1], 0, [1])


@provokes(Exact)
def a_cached_block_while_a_free_one_is_left():
    judge = judge_of(2)
    admit(judge, "a", [1, 2, 3, 4])
    free(judge, "a")
    return say(judge, "b", [90], 0, [0])


@provokes(Exact)
def a_hit_on_the_owner_that_was_published_later():
    judge = two_owners()
    return say(judge, "c", PROMPT[:5], 4, [1, 2])


@provokes(Exact)
def a_copy_of_a_tail_that_nobody_else_holds():
    judge = judge_of()
    admit(judge, "a", [1])
    judge.before_append("a", [2])
    judge.after_append("a", [1])
    return judge


def two_owners(**options: object) -> Judge:
    """ "a" and "b" have computed the same full block in blocks 0 and 1."""
    judge = judge_of(**options)
    for request in "ab":
        allocate(judge, request, [1, 2, 3, 4])
    run(judge, "a", "b")
    return judge


MESSAGES = {
    "a_hit_on_a_block_that_was_never_written": [
        "FRESHNESS: 'a' hits block 0 (logical 0) for tokens [1, 2, 3, 4]; only 0 of its 4 slots are written",
    ],
    "a_hit_on_a_block_that_is_written_in_part": [
        "FRESHNESS: 'b' hits block 0 (logical 0) for tokens [1, 2, 3, 4]; only 3 of its 4 slots are written",
    ],
    "another_request_s_write_under_a_live_one": [
        "FRESHNESS: 'a' would read positions 8 on from block 2, which holds [90] and not [9]",
    ],
    "a_decode_after_its_tail_was_overwritten": [
        "ALIASING: the step writes position 2 of 'a' into block 0, which 2 tables and copies hold",
        "FRESHNESS: 'a' reads positions 0 to 1 from block 0, which holds [90]",
    ],
    "a_block_published_after_a_copy_has_overwritten_it": [
        "FRESHNESS: block 0 of 'a' would be published with [1, 2, 3, 4]; it holds []",
    ],
    "a_hit_on_a_recycled_block_with_the_same_tokens_after_another_prefix": [
        "HISTORY: 'E' hits block 1 (logical 1) for tokens [10, 11, 12, 13, 30, 31, 32, 33]; "
        "it holds [20, 21, 22, 23, 40, 41, 42, 43, 30, 31, 32, 33]",
    ],
    "a_hit_on_other_tokens": [
        "HISTORY: 'b' hits block 0 (logical 0) for tokens [1, 2, 3, 5]; it holds [1, 2, 3, 4]",
    ],
    "a_lookup_that_names_a_block_with_other_tokens": [
        "HISTORY: 'lookup' hits block 0 (logical 0) for tokens [1, 2, 3, 5]; it holds [1, 2, 3, 4]",
    ],
    "a_hit_on_other_tokens_in_another_namespace": [
        "HISTORY: 'b' hits block 0 (logical 0) for tokens [1, 2, 3, 5]; it holds [1, 2, 3, 4]",
    ],
    "a_hit_across_namespaces": [
        "ISOLATION: 'b' hits block 0 (logical 0) for tokens [1, 2, 3, 4] in namespace (('salt', 's'),); "
        "it was written in namespace ()",
        "ISOLATION: 'b' hits block 1 (logical 1) for tokens [1, 2, 3, 4, 5, 6, 7, 8] in namespace (('salt', 's'),); "
        "it was written in namespace ()",
    ],
    "a_lookup_that_names_a_block_of_another_namespace": [
        "ISOLATION: 'lookup' hits block 0 (logical 0) for tokens [1, 2, 3, 4] in namespace (('salt', 's'),); "
        "it was written in namespace ()",
    ],
    "a_hit_in_the_default_namespace_on_a_salted_block": [
        "ISOLATION: 'b' hits block 0 (logical 0) for tokens [1, 2, 3, 4] in namespace (); "
        "it was written in namespace (('salt', ''),)",
        "ISOLATION: 'b' hits block 1 (logical 1) for tokens [1, 2, 3, 4, 5, 6, 7, 8] in namespace (); "
        "it was written in namespace (('salt', ''),)",
    ],
    "an_append_into_a_shared_tail_in_place": [
        "ALIASING: append to 'c' keeps its tail block 1, which others hold too",
    ],
    "a_write_into_a_shared_tail": [
        "ALIASING: the step writes position 6 of 'c' into block 1, which 2 tables and copies hold",
    ],
    "a_step_that_forgets_a_copy": [
        "ALIASING: the step does not carry the copies [(1, 2)]; it carries []",
    ],
    "a_block_in_two_tables": [
        "EXACT: 'b' takes new blocks [2]; by the order of release they are [3]",
        "EXCLUSIVE: 'b' is given block 2, which 'a' holds",
    ],
    "a_block_twice_in_one_table": [
        "EXACT: 'a' takes new blocks [0, 1, 1]; by the order of release they are [0, 1, 2]",
        "EXCLUSIVE: 'a' is given block 1 twice",
    ],
    "an_append_that_takes_a_block_of_its_own_table_again": [
        "EXACT: 'a' takes new blocks [0]; by the order of release they are [1]",
        "EXCLUSIVE: 'a' is given block 0 twice",
    ],
    "an_append_that_takes_another_s_block": [
        "EXACT: 'b' takes new blocks [2]; by the order of release they are [4]",
        "EXCLUSIVE: 'b' is given block 2, which 'a' holds",
    ],
    "a_copy_that_nobody_asked_for": [
        "EXCLUSIVE: the step carries copies [(0, 2)]; due are []",
    ],
    "a_block_of_a_request_freed_in_flight": [
        "EXACT: 'b' takes new blocks [0]; by the order of release they are [3]",
        "LIFETIME: 'b' is given block 0, which a step in flight or a pending copy uses",
    ],
    "a_block_cut_off_in_flight": [
        "EXACT: 'b' takes new blocks [3]; by the order of release they are [4]",
        "LIFETIME: 'b' is given block 3, which a step in flight or a pending copy uses",
    ],
    "the_source_of_a_copy_that_waits": [
        "EXACT: 'b' takes new blocks [1]; by the order of release they are [3]",
        "LIFETIME: 'b' is given block 1, which a step in flight or a pending copy uses",
    ],
    "the_source_of_a_copy_in_flight": [
        "EXACT: 'b' takes new blocks [1]; by the order of release they are [3]",
        "LIFETIME: 'b' is given block 1, which a step in flight or a pending copy uses",
    ],
    "a_hit_on_a_block_that_is_being_computed": [
        "PUBLISH: 'b' hits block 0 (logical 0); its content has not been published",
        "PUBLISH: 'b' hits block 1 (logical 1); its content has not been published",
    ],
    "a_hit_after_a_reset": [
        "PUBLISH: 'b' hits block 0 (logical 0); its content was withdrawn",
        "PUBLISH: 'b' hits block 1 (logical 1); its content was withdrawn",
    ],
    "a_hit_without_caching": [
        "PUBLISH: 'b' hits block 0 (logical 0); its content has not been published",
        "PUBLISH: 'b' hits block 1 (logical 1); its content has not been published",
    ],
    "a_hit_on_a_placeholder_without_a_name": [
        "PUBLISH: 'b' hits block 0 (logical 0); its content has not been published",
    ],
    "a_lookup_that_promises_what_cannot_be_hit": [
        "PUBLISH: lookup says 8 hit tokens; only 0 blocks can be hit",
    ],
    "a_hit_on_what_was_rolled_back": [
        "ROLLBACK: 'b' hits block 0 (logical 0); its content was withdrawn",
    ],
    "a_hit_on_a_tail_that_an_append_has_withdrawn": [
        "ROLLBACK: 'c' hits block 0 (logical 0); its content was withdrawn",
    ],
    "a_truncation_that_keeps_a_block": [
        "ROLLBACK: 'a' cut to 9 tokens has table [0, 1, 2, 3]; it should be [0, 1, 2]",
    ],
    "a_truncation_that_loses_a_block": [
        "ROLLBACK: 'a' cut to 10 tokens has table [0, 1]; it should be [0, 1, 2]",
    ],
    "a_truncation_to_the_same_length_that_changes_the_table": [
        "ROLLBACK: truncating 'a' to its own length changed its table to [0, 1, 3]",
    ],
    "a_truncation_that_does_not_undo_a_copy": [
        "ROLLBACK: 'c' cut to 6 tokens has table [0, 2]; it should be [0, 1]",
    ],
    "a_new_block_that_does_not_exist": [
        "MAPPING: 'a' is given block 8, which does not exist or is reserved",
    ],
    "a_block_that_another_holds_after_one_that_does_not_exist": [
        "EXACT: 'b' takes new blocks [8, 0]; by the order of release they are [3, 4]",
        "MAPPING: 'b' is given block 8, which does not exist or is reserved",
        "EXCLUSIVE: 'b' is given block 0, which 'a' holds",
        "EVICTION: block 0 is taken while blocks that extend its content are still cached",
    ],
    "a_negative_block": [
        "MAPPING: 'a' is given block -1, which does not exist or is reserved",
    ],
    "a_reserved_block": [
        "MAPPING: 'a' is given block 0, which does not exist or is reserved",
    ],
    "a_hit_block_that_does_not_exist": [
        "MAPPING: 'b': logical block 1 is in block 99, which is none",
    ],
    "a_lookup_that_names_too_few_blocks": [
        "MAPPING: lookup says 8 hit tokens but names 1 blocks",
        "COMPLETENESS: 'lookup' hits 1 blocks of [1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident (the next one in block 1)",
    ],
    "an_append_that_changes_the_table": [
        "MAPPING: append changed the table of 'a' from [0, 1, 2] to [0, 3, 2]",
    ],
    "an_append_that_replaces_a_full_tail": [
        "MAPPING: append changed the table of 'a' from [0] to [1, 2]",
    ],
    "a_fork_with_another_table": [
        "MAPPING: fork 'b' of 'a' has table [0, 1, 3], its parent [0, 1, 2]",
    ],
    "a_hit_on_the_last_token_too": [
        "RECOMPUTE: 'b': all 4 tokens are hit; the last must be computed",
        "RECOMPUTE: 'b': the last block of 4 tokens is reused under last_block",
    ],
    "a_full_last_block_reused_under_last_block": [
        "RECOMPUTE: 'b': all 8 tokens are hit; the last must be computed",
        "RECOMPUTE: 'b': the last block of 8 tokens is reused under last_block",
        "EXACT: 'b' hits blocks [0, 1]; by the policy they are [0]",
    ],
    "a_negative_hit": [
        "RECOMPUTE: 'a': -4 hit tokens",
    ],
    "a_hit_of_a_part_of_a_block": [
        "RECOMPUTE: 'b': 6 hit tokens are not whole blocks of 4",
        "COMPLETENESS: 'b' hits 1 blocks of [1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident (the next one in block 1)",
    ],
    "a_table_with_a_block_too_few": [
        "ADMISSION: 'a' has 9 tokens and 2 blocks; 3 are needed",
    ],
    "a_table_with_a_block_too_many": [
        "ADMISSION: 'a' has 9 tokens and 4 blocks; 3 are needed",
    ],
    "an_append_without_the_block_that_it_needs": [
        "ADMISSION: 'a' has 5 tokens and 1 blocks; 2 are needed",
    ],
    "a_miss_of_what_is_resident": [
        "COMPLETENESS: 'b' hits 0 blocks of [1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident (the next one in block 0)",
    ],
    "a_hit_that_stops_short": [
        "COMPLETENESS: 'b' hits 1 blocks of [1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident (the next one in block 1)",
    ],
    "a_lookup_that_stops_short": [
        "COMPLETENESS: 'lookup' hits 1 blocks of [1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident (the next one in block 1)",
    ],
    "a_lookup_without_blocks_that_stops_short": [
        "COMPLETENESS: 'lookup' hits 1 blocks of [1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident (the next one in block 1)",
    ],
    "a_miss_of_what_extends_a_block_rolled_back_and_computed_again": [
        "COMPLETENESS: 'lookup' hits 1 blocks of [1, 2, 3, 4, 5, 6, 7, 8, 9]; 2 are resident (the next one in block 1)",
    ],
    "an_eviction_of_the_more_recently_released": [
        "EVICTION: 'c' takes new blocks [1]; by the order of release they are [0]",
    ],
    "an_eviction_of_a_prefix_before_what_extends_it": [
        "EVICTION: block 0 is taken while blocks that extend its content are still cached",
    ],
    "an_eviction_of_a_prefix_when_one_of_two_that_extend_it_has_gone": [
        "EVICTION: block 0 is taken while blocks that extend its content are still cached",
    ],
    "a_free_block_out_of_order": [
        "EXACT: 'a' takes new blocks [1]; by the order of release they are [0]",
    ],
    "a_cached_block_while_a_free_one_is_left": [
        "EXACT: 'b' takes new blocks [0]; by the order of release they are [1]",
    ],
    "a_hit_on_the_owner_that_was_published_later": [
        "EXACT: 'c' hits blocks [1]; by the policy they are [0]",
    ],
    "a_copy_of_a_tail_that_nobody_else_holds": [
        "EXACT: append to 'a' replaced its tail block 0, which nobody else holds",
    ],
}
"""What is said of each provocation: who, where, and what would have been right."""


@pytest.mark.parametrize(
    ("kind", "provocation"), [pytest.param(kind, play, id=f"{kind.id}: {play.__name__}") for kind, play in PROVOCATIONS]
)
def test_an_unsound_choice_is_charged_to_its_property(kind: type[Violation], provocation: Provocation):
    judge = provocation()
    assert charged(judge) is kind
    assert [str(found) for found in judge.findings] == MESSAGES[provocation.__name__]


def test_everything_that_the_judge_can_accuse_is_provoked():
    words = set(re.findall(r"\b[A-Z][a-z]+\b", inspect.getsource(inspect.getmodule(Judge))))
    accused = {kind for kind in PROPERTIES.values() if kind.__name__ in words}
    assert {kind for kind, _ in PROVOCATIONS} == accused


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


# ---- a step's arrays -------------------------------------------------------------------------------------------------


def arrays() -> tuple[Judge, object, dict[str, list]]:
    """A step of "a" (positions 3 to 6, in blocks 0 and 1) and "b" (position 0, in block 3), and its right arrays."""
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    complete(judge, dispatch(judge, ("a", 3)))
    allocate(judge, "b", [90])
    passage = dispatch(judge, ("a", 4), ("b", 1))
    return (
        judge,
        passage,
        {
            "tables": [[0, 1, 2], [3, -1, -1]],
            "context_lengths": [7, 1],
            "cu_seqlens": [0, 4, 5],
            "packed_rows": [0, 1, 2, 3, 4],
            "row_sequences": [0, 0, 0, 0, 1],
            "positions": [3, 4, 5, 6, 0],
            "slots": [3, 4, 5, 6, 12],
        },
    )


def counted(tables: int, lengths: int, cu_seqlens: int, positions: int, slots: int, packed: int, rows: int) -> str:
    """What is said of arrays that are too many or too few for that step."""
    return (
        f"a step of 2 sequences and 5 tokens has {tables} tables, {lengths} context lengths, {cu_seqlens} cu_seqlens "
        f"and {positions} positions, {slots} slots, {packed} packed rows, {rows} row sequences"
    )


def test_right_arrays_are_accused_of_nothing():
    judge, passage, right = arrays()
    judge.judge_batch(passage, **right)
    assert judge.findings == []


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("tables", [[0, 2, 1], [3, -1, -1]], ["the step's block table of 'a' is [0, 2, 1], its table [0, 1, 2]"]),
        ("tables", [[0, 1, 2], [3, 0, 0]], ["the step's block table of 'b' is [3, 0, 0], its table [3]"]),
        ("tables", [[0, 1, 2]], [counted(1, 2, 3, 5, 5, 5, 5)]),
        ("context_lengths", [6, 1], ["context length of 'a' is 6, not 7"]),
        ("context_lengths", [9, 1], ["context length of 'a' is 9, not 7"]),
        (
            "cu_seqlens",
            [0, 3, 5],
            ["cu_seqlens has 'a' at 0 to 3, not 0 to 4", "cu_seqlens has 'b' at 3 to 5, not 4 to 5"],
        ),
        ("cu_seqlens", [0, 4, 4], ["cu_seqlens has 'b' at 4 to 4, not 4 to 5"]),
        ("cu_seqlens", [1, 4, 5], ["cu_seqlens has 'a' at 1 to 4, not 0 to 4"]),
        ("packed_rows", [0, 1, 2, 4, 3], ["packed rows are [0, 1, 2, 4, 3], not 0 to 4"]),
        ("packed_rows", [0, 1, 2, 3], [counted(2, 2, 3, 5, 5, 4, 5)]),
        ("row_sequences", [0, 0, 0, 1, 1], ["rows 0 to 3 belong to sequence 0, not [0, 0, 0, 1]"]),
        ("positions", [0, 1, 2, 3, 0], ["positions of 'a' are [0, 1, 2, 3], not 3 to 6"]),
        ("positions", [3, 4, 5, 6, 1], ["positions of 'b' are [1], not 0 to 0"]),
        ("slots", [3, 4, 5, 7, 12], ["slots of 'a' for positions 4 to 6 are [4, 5, 7], not [4, 5, 6]"]),
        ("slots", [3, 8, 9, 10, 12], ["slots of 'a' for positions 4 to 6 are [8, 9, 10], not [4, 5, 6]"]),
        ("slots", [-1, 4, 5, 6, 12], ["slots of 'a' for positions 3 to 3 are [-1], not [3]"]),
        ("slots", [3, 4, 5, 6], [counted(2, 2, 3, 5, 4, 5, 5)]),
    ],
)
def test_a_wrong_array_is_accused_of_mapping(name: str, wrong: list, said: list[str]):
    judge, passage, right = arrays()
    judge.judge_batch(passage, **{**right, name: wrong})
    assert charged(judge) is Mapping
    assert [found.message for found in judge.findings] == said


def test_long_arrays_are_shown_by_their_beginning():
    judge = judge_of(num_blocks=10, block_size=40)
    allocate(judge, "a", range(40))
    passage = dispatch_all(judge, "a")
    wrong = [*range(1, 41)]
    judge.judge_batch(passage, [[0]], [40], [0, 40], wrong, [0] * 40, wrong, wrong)
    shown, right = [*range(1, 33)], [*range(32)]
    assert [found.message for found in judge.findings] == [
        f"packed rows are {shown}, not 0 to 39",
        f"positions of 'a' are {shown}, not 0 to 39",
        f"slots of 'a' for positions 0 to 39 are {shown}, not {right}",
    ]


@pytest.mark.parametrize(("slots", "kind"), [([-1], None), ([7], Mapping)])
def test_what_is_in_the_cache_already_is_not_written_again(slots: list[int], kind: type[Violation] | None):
    judge = judge_of(reuse="last_token")
    admit(judge, "a", PROMPT[:8])
    allocate(judge, "b", PROMPT[:8])
    passage = dispatch_all(judge, "b")
    judge.judge_batch(passage, [[0, 1]], [8], [0, 1], [0], [0], [7], slots)
    assert charged(judge) is kind


# ---- which refusal is due --------------------------------------------------------------------------------------------


def test_allocations_are_refused_for_the_right_reason():
    judge = judge_of(3)
    admit(judge, "a", PROMPT[:5])
    assert judge.before_allocate("x", [], ()) == "InvalidTokens"
    assert judge.before_allocate("x", [-1], ()) == "InvalidTokens"
    assert judge.before_allocate("x", [2**31], ()) == "InvalidTokens"
    assert judge.before_allocate("a", [1], ()) == "DuplicateRequest"
    assert judge.before_allocate("x", [90] * 13, ()) == "NeverFits"
    assert judge.before_allocate("x", [90] * 5, ()) == "OutOfBlocks"
    assert judge.before_allocate("x", PROMPT[:8], ()) is None
    assert judge.before_allocate("x", [90] * 4, ()) is None


def test_a_hit_on_a_cached_block_takes_one_of_the_idle_ones():
    judge = judge_of(3)
    admit(judge, "a", PROMPT[:4])
    free(judge, "a")
    allocate(judge, "other", [90])
    assert judge.before_allocate("x", PROMPT, ()) == "OutOfBlocks"
    assert judge.before_allocate("x", PROMPT[:8], ()) is None


def test_appends_are_refused_for_the_right_reason():
    judge = judge_of(2)
    admit(judge, "a", [1, 2, 3])
    assert judge.before_append("x", [1]) == "UnknownRequest"
    assert judge.before_append("a", []) == "InvalidTokens"
    assert judge.before_append("a", [-2]) == "InvalidTokens"
    assert judge.before_append("a", [-1]) is None
    assert judge.before_append("a", [1] * 6) == "NeverFits"
    fork(judge, "a", "b")
    assert judge.before_append("a", [1]) is None
    assert judge.before_append("a", [1] * 2) == "OutOfBlocks"


def test_dispatches_are_refused_for_the_first_fault():
    judge = judge_of()
    allocate(judge, "a", [1, 2, 3])
    assert judge.before_dispatch([]) == "EmptyDispatch"
    assert judge.before_dispatch([("a", 4), ("x", 1)]) == "InvalidCount"
    assert judge.before_dispatch([("x", 1), ("a", 4)]) == "UnknownRequest"
    assert judge.before_dispatch([("a", 0)]) == "InvalidCount"
    assert judge.before_dispatch([("a", 1), ("a", 1)]) == "RepeatedRequest"
    assert judge.before_dispatch([("a", 3)]) is None


def test_steps_complete_once_and_in_order():
    judge = judge_of()
    allocate(judge, "a", [1, 2])
    first, second = dispatch(judge, ("a", 1)), dispatch(judge, ("a", 1))
    assert judge.before_complete(second) == "OutOfOrder"
    complete(judge, first)
    assert judge.before_complete(first) == "AlreadyCompleted"
    complete(judge, second)
    assert judge.before_complete(second) == "AlreadyCompleted"


def test_passages_are_numbered_and_begin_with_nothing_done():
    judge = judge_of()
    allocate(judge, "a", [1, 2, 3])
    passages = [dispatch(judge, ("a", 1)) for _ in range(3)]
    assert [passage.number for passage in passages] == [0, 1, 2]
    assert [passage.done for passage in passages] == [False] * 3
    assert Passage(5, []).copies == []


def test_placeholders_add_up():
    judge = judge_of()
    admit(judge, "a", [1])
    append(judge, "a", [-1])
    append(judge, "a", [2, -1])
    assert judge.lines["a"].unnamed == 2


@pytest.mark.parametrize("pair", [(0, 8), (8, 0), (-1, 0), (0, -1), (99, 99)])
def test_a_copy_from_or_to_nowhere_is_accused_and_followed_no_further(pair: tuple[int, int]):
    judge = with_prompt()
    append(judge, "a", [7])
    judge.after_dispatch([("a", 1)], [pair])
    assert charged(judge) is Exclusive
    assert [judge.slots.content(block)[1].tolist() for block in range(4)] == [PROMPT[:4], PROMPT[4:8], [9, 7], []]


def test_truncations_stay_between_base_and_length():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    assert judge.before_truncate("x", 1) == "UnknownRequest"
    assert judge.before_truncate("a", 1) == judge.before_truncate("a", 5) == "InvalidLength"
    assert judge.before_truncate("a", 2) is judge.before_truncate("a", 4) is None


def test_forks_need_everything_computed_landed_and_named():
    judge = judge_of()
    allocate(judge, "a", [1, 2])
    assert judge.before_fork("x", "b") == "UnknownRequest"
    assert judge.before_fork("a", "a") == "DuplicateRequest"
    assert judge.before_fork("a", "b") == "NotComputed"
    step = dispatch_all(judge, "a")
    assert judge.before_fork("a", "b") == "NotComputed"
    complete(judge, step)
    assert judge.before_fork("a", "b") is None
    append(judge, "a", [-1])
    run(judge, "a")
    assert judge.before_fork("a", "b") == "NotNamed"


def test_fills_name_placeholders_only():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [-1, -1])
    assert judge.before_fill("x", 0, [1]) == "UnknownRequest"
    assert judge.before_fill("a", 2, [-1]) == "InvalidTokens"
    assert judge.before_fill("a", 1, [5]) == "InvalidFill"
    assert judge.before_fill("a", -1, [5]) == "InvalidFill"
    assert judge.before_fill("a", 3, [5, 5]) == "InvalidFill"
    assert judge.before_fill("a", 2, [5, 5]) is None
    assert judge.before_free("a") is None and judge.before_free("x") == "UnknownRequest"


@pytest.mark.parametrize(
    ("tokens", "good"),
    [([0], True), ([2**31 - 1], True), ([], False), ([-1], False), ([2**31], False), (["a"], False), ([1.5], False)],
)
def test_tokens_are_read_or_refused(tokens: list, good: bool):
    assert (judge_of().read(tokens) is not None) is good
    assert judge_of().before_lookup(tokens) == (None if good else "InvalidTokens")


# ---- what follows from the choices -----------------------------------------------------------------------------------


def test_the_lesson_s_reference_counts():
    judge = judge_of()
    assert admit(judge, "A", list(range(10))) == [0, 1, 2]
    assert allocate(judge, "B", [*range(8), 50]) == [0, 1, 3]
    assert judge.references[:4] == [2, 2, 1, 1]
    free(judge, "A")
    assert judge.references[:4] == [1, 1, 0, 1]
    assert (judge.idle, judge.cached) == (5, 0)
    free(judge, "B")
    assert (judge.idle, judge.cached) == (8, 2)
    assert judge.findings == []


def test_published_blocks_carry_their_whole_history():
    judge = with_prompt()
    assert [history is not None for history in judge.published[:4]] == [True, True, False, False]
    assert judge.histories.describe(judge.published[1]) == ((), tuple(PROMPT[:8]))
    assert judge.owners == {judge.published[0]: [0], judge.published[1]: [1]}


def test_other_tokens_after_a_truncation_make_another_history():
    judge = judge_of()
    admit(judge, "a", [1, 2])
    append(judge, "a", [3, 4])
    run(judge, "a")
    truncate(judge, "a", 2)
    append(judge, "a", [5, 6])
    run(judge, "a")
    assert judge.histories.describe(judge.published[0]) == ((), (1, 2, 5, 6))
    assert judge.findings == []


def test_a_block_is_published_when_its_last_token_is_named():
    judge = judge_of()
    admit(judge, "a", [1, 2, 3])
    append(judge, "a", [-1])
    run(judge, "a")
    assert judge.published[0] is None
    fill(judge, "a", 3, [4])
    assert judge.histories.describe(judge.published[0]) == ((), (1, 2, 3, 4))
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
    assert (judge.capacity, judge.idle) == (3, 3)
    assert judge.before_allocate("a", [1] * 13, ()) == "NeverFits"
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
    assert judge.lines["b"].computed == blocks - 1
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
    assert judge.references[2] == 1 and judge.published[2] is not None
    complete(judge, step)
    return judge


def test_a_copy_s_source_makes_the_prefix_that_nobody_holds_younger():
    judge = copied_under_a_rollback(duplicates=True)
    assert list(judge.predictor.cached) == [2, 4, 3]
    assert judge.findings == []


@pytest.mark.parametrize(("duplicates", "exact"), [(False, True), (True, False)])
def test_a_copy_s_source_is_given_back_where_there_is_no_such_prefix_or_no_order(duplicates: bool, exact: bool):
    judge = copied_under_a_rollback(duplicates, exact=exact)
    assert judge.cached == 1 + 2 * duplicates
    assert judge.references[2] == 0
    assert judge.findings == []


def test_events_are_counted():
    judge = forked()
    append(judge, "c", [9])
    run(judge, "c")
    assert judge.events["fork"] == judge.events["fork with a shared tail"] == judge.events["copy-on-write"] == 1


def test_touched_names_the_blocks_whose_state_changed():
    judge = judge_of()
    allocate(judge, "a", PROMPT)
    assert judge.touched == [0, 1, 2]
    judge.touched.clear()
    run(judge, "a")
    assert judge.touched == [0, 1]
    judge.touched.clear()
    free(judge, "a")
    assert judge.touched == [2, 1, 0]
    judge.touched.clear()
    judge.after_reset()
    assert judge.touched == [0, 1]


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
        live = list(judge.lines)
        line = judge.lines[random.choice(live)] if live else None
        kind = random.choice(["allocate", "append", "dispatch", "dispatch", "complete", "complete", "other"])
        if kind == "allocate":
            space = random.choice(spaces)
            if judge.before_allocate(name, tokens, space) is None:
                allocate(judge, name, tokens, space)
        elif kind == "complete":
            if judge.in_flight:
                complete(judge, judge.in_flight[0])
        elif line is None:
            continue
        elif kind == "append":
            tokens = [-1] if random.random() < 0.3 else tokens
            if judge.before_append(line.request, tokens) is None:
                append(judge, line.request, tokens)
        elif kind == "dispatch":
            if line.scheduled < len(line.tokens):
                dispatch(judge, (line.request, random.randint(1, len(line.tokens) - line.scheduled)))
        else:
            other = random.choice(["truncate", "fork", "fill", "free", "free", "reset"])
            if other == "truncate":
                truncate(judge, line.request, random.randint(line.base, len(line.tokens)))
            elif other == "fork" and judge.before_fork(line.request, name) is None:
                fork(judge, line.request, name)
            elif other == "fill" and line.unnamed:
                fill(judge, line.request, line.tokens.index(-1), [random.randrange(2)])
            elif other == "free":
                free(judge, line.request)
            elif other == "reset" and random.random() < 0.1:
                judge.after_reset()
        judge.walk()
        assert judge.findings == []
    while judge.in_flight:
        complete(judge, judge.in_flight[0])
    for request in list(judge.lines):
        free(judge, request)
    assert judge.findings == []
    assert judge.idle == judge.capacity
    assert judge.references == [0] * judge.policy.num_blocks
    assert judge.cached == sum(history is not None for history in judge.published)
