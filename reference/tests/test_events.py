"""What the judge counts for the ledger: every event by its name, once each time it happens, and nothing else.

Every scene makes its events happen twice, so that counting is told from noting.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reference import Judge, events

from .driving import (
    admit,
    allocate,
    append,
    complete,
    dispatch,
    dispatch_all,
    fill,
    fork,
    free,
    grow,
    judge_of,
    reset,
    run,
    step,
    truncate,
    wait,
)

Scene = Callable[[], Judge]
SCENES: list[tuple[Scene, dict[str, int]]] = []


def counts(**events: int) -> Callable[[Scene], Scene]:
    def register(scene: Scene) -> Scene:
        SCENES.append(
            (scene, {name.replace("_", " ").replace("copy on write", "copy-on-write"): n for name, n in events.items()})
        )
        return scene

    return register


@counts(never_fits=4, refused_for_one_block=2, refused_for_several_blocks=2, append_refused=2)
def refusals() -> Judge:
    judge = judge_of(4)
    admit(judge, "a", range(9))
    admit(judge, "b", [80])
    for _ in range(2):
        assert judge.before_allocate("x", [90] * 17, ()).refusal == "NeverFits"
        assert judge.before_append("a", [90] * 8).refusal == "NeverFits"
        assert judge.before_allocate("x", [90] * 4, ()).refusal == "OutOfBlocks"
        assert judge.before_allocate("x", [90] * 5, ()).refusal == "OutOfBlocks"
        assert judge.before_append("a", [90] * 4).refusal == "OutOfBlocks"
    return judge


@counts(hit_on_an_active_block=4, hit_on_a_cached_block=4, whole_prompt_hit=2)
def hits() -> Judge:
    judge = judge_of(reuse="last_token")
    admit(judge, "a", range(9))
    admit(judge, "b", range(9))
    admit(judge, "c", range(8))
    for request in "abc":
        free(judge, request)
    admit(judge, "d", range(9))
    free(judge, "d")
    admit(judge, "e", range(8))
    return judge


@counts(published_a_duplicate=2)
def duplicates() -> Judge:
    judge = judge_of()
    for request in "abc":
        allocate(judge, request, [1, 2, 3, 4])
    run(judge, *"abc")
    return judge


@counts(evicted=5, evicted_one_of_two_owners=2, published_a_duplicate=2)
def evictions() -> Judge:
    judge = judge_of(6)
    for request in "abc":
        allocate(judge, request, [1, 2, 3, 4])
    run(judge, *"abc")
    for request in "abc":
        free(judge, request)
    allocate(judge, "d", [90] * 24)
    free(judge, "d")
    for tokens in ([5] * 4, [6] * 4):
        admit(judge, "e", tokens)
        free(judge, "e")
    allocate(judge, "f", [91] * 24)
    return judge


@counts(evicted=2, evicted_while_its_prefix_is_shared=2, hit_on_an_active_block=2, fork=1)
def evictions_after_a_shared_prefix() -> Judge:
    judge = judge_of(4)
    admit(judge, "a", range(4))
    for last in (8, 9):
        admit(judge, "b", [*range(7), last])
        free(judge, "b")
    fork(judge, "a", "c")
    allocate(judge, "d", [90] * 12)
    return judge


@counts(evicted=2, hit_on_an_active_block=2)
def evictions_after_a_prefix_held_once() -> Judge:
    judge = judge_of(4)
    admit(judge, "a", range(4))
    for last in (8, 9):
        admit(judge, "b", [*range(7), last])
        free(judge, "b")
    allocate(judge, "d", [90] * 12)
    return judge


@counts(fork=2, fork_with_a_shared_tail=2, copy_on_write=2, copy_on_write_at_the_last_slot=2)
def copies() -> Judge:
    judge = judge_of()
    for request, token in (("a", 1), ("b", 2)):
        admit(judge, request, [token] * 3)
        fork(judge, request, request * 2)
        append(judge, request * 2, [9])
        run(judge, request * 2)
    return judge


@counts(fork=3, fork_with_a_shared_tail=2, copy_on_write=2, pending_copy_cancelled_by_free=2)
def copies_that_nobody_needs_any_more() -> Judge:
    judge = judge_of()
    admit(judge, "a", [1, 2])
    for child in "bc":
        fork(judge, "a", child)
        append(judge, child, [9])
        free(judge, child)
    admit(judge, "d", range(4))
    fork(judge, "d", "e")
    append(judge, "e", [9])
    return judge


@counts(
    fork=2,
    fork_with_a_shared_tail=2,
    copy_on_write=2,
    copy_undone_by_truncation=2,
    truncated_into_a_shared_block=2,
)
def copies_undone() -> Judge:
    judge = judge_of()
    admit(judge, "a", [1, 2])
    for child in "bc":
        fork(judge, "a", child)
        append(judge, child, [9])
        truncate(judge, child, 2)
    return judge


@counts(computed_tokens_rolled_back=2, published_block_rolled_back=2)
def rollbacks() -> Judge:
    judge = judge_of()
    for request, token in (("a", 1), ("b", 2)):
        admit(judge, request, [token])
        append(judge, request, [token] * 3)
        run(judge, request)
        truncate(judge, request, 2)
        append(judge, request, [7])
        truncate(judge, request, 2)
    return judge


@counts(
    computed_tokens_rolled_back=2,
    published_block_rolled_back=2,
    rolled_back_under_what_extends_it=2,
    hit_on_an_active_block=2,
)
def rollbacks_under_what_extends_them() -> Judge:
    judge = judge_of()
    for request, token in (("a", 1), ("b", 2)):
        admit(judge, request, [token])
        append(judge, request, [token] * 3)
        run(judge, request)
        admit(judge, "x", [token] * 9)
        free(judge, "x")
        truncate(judge, request, 2)
    return judge


@counts(
    computed_tokens_rolled_back=2,
    published_block_rolled_back=2,
    published_a_duplicate=2,
    duplicate_refreshed_by_a_rollback=2,
)
def rollbacks_of_an_owner() -> Judge:
    judge = judge_of()
    for request, token in (("a", 1), ("b", 2)):
        admit(judge, request, [token])
        append(judge, request, [token] * 3)
        allocate(judge, "x", [token] * 4)
        run(judge, request, "x")
        free(judge, "x")
        truncate(judge, request, 2)
    return judge


@counts(
    fork=2,
    truncated_into_a_shared_block=2,
    computed_tokens_rolled_back=2,
    published_tail_withdrawn_at_append=2,
    hit_on_an_active_block=2,
)
def published_tails() -> Judge:
    judge = judge_of()
    for request, token in (("a", 1), ("b", 2)):
        admit(judge, request, [token])
        append(judge, request, [token] * 3)
        run(judge, request)
        fork(judge, request, "y")
        allocate(judge, "x", [token] * 5)
        truncate(judge, request, 2)
        free(judge, "x")
        free(judge, "y")
        append(judge, request, [7])
    return judge


@counts(placeholder_appended=4, placeholder_dispatched=4, published_when_named=2)
def placeholders() -> Judge:
    judge = judge_of()
    for request, token in (("a", 1), ("b", 2)):
        admit(judge, request, [token] * 2)
        append(judge, request, [-1])
        run(judge, request)
        fill(judge, request, 2, [5])  # the block is not full
        append(judge, request, [-1])
        run(judge, request)
        fill(judge, request, 3, [6])
    return judge


@counts(completed_with_another_step_in_flight=3, several_steps_of_one_request_in_flight=2)
def steps_in_flight() -> Judge:
    judge = judge_of()
    allocate(judge, "a", [1, 2, 3])
    allocate(judge, "b", [1])
    steps = [dispatch(judge, ("a", 1)) for _ in range(3)]
    steps.append(dispatch(judge, ("b", 1)))
    for dispatched in steps:
        complete(judge, dispatched)
    return judge


@counts(freed_while_in_flight=3, published_after_free=2)
def freed_in_flight() -> Judge:
    judge = judge_of()
    for request, tokens in (("a", [1] * 4), ("b", [2] * 4), ("c", [3] * 2)):
        allocate(judge, request, tokens)
        dispatched = dispatch_all(judge, request)
        free(judge, request)
        complete(judge, dispatched)
    return judge


@counts(truncated_while_in_flight=2)
def truncated_in_flight() -> Judge:
    judge = judge_of()
    for request in "ab":
        admit(judge, request, [1])
        append(judge, request, [1] * 5)
        dispatched = dispatch_all(judge, request)
        truncate(judge, request, 3)
        complete(judge, dispatched)
    return judge


@counts(let_go_behind_the_window=2, hit_only_in_the_window=2, hit_on_a_cached_block=2)
def windows() -> Judge:
    judge = judge_of(9, reserved=frozenset({0}), admission="step", windows=(5,))
    for request in "ab":
        tokens = [ord(request)] * 12
        wait(judge, request, tokens)
        for _ in range(3):  # the last one lets go of the first block
            complete(judge, step(judge, request, 4))
        free(judge, request)
        wait(judge, request, [*tokens, 1])
        complete(judge, step(judge, request, 13))
        free(judge, request)
    return judge


@counts(
    placeholder_appended=4,
    placeholder_dispatched=4,
    computed_tokens_rolled_back=2,
    kept_block_used_again=4,
    let_go_behind_the_window=4,
    named_behind_the_window=4,
    published_when_named=2,
)
def drafts() -> Judge:
    judge = judge_of(
        12,
        2,
        reserved=frozenset({0}),
        admission="step",
        publish="dispatch",
        lifetime="stream",
        truncates="placeholders",
        leftover="kept",
        windows=(2,),
    )
    for request in "ab":
        wait(judge, request, [ord(request)])
        complete(judge, step(judge, request, 1))
        grow(judge, request, [-1] * 6)
        complete(judge, step(judge, request, 6))
        fill(judge, request, 1, [1, 2])
        truncate(judge, request, 3)
        grow(judge, request, [-1] * 3)
        complete(judge, step(judge, request, 3))
        fill(judge, request, 3, [3, 4, 5])
        grow(judge, request, [6])
        complete(judge, step(judge, request, 1))
    return judge


@counts()
def blocks_of_one_token() -> Judge:
    judge = judge_of(4, 1)
    admit(judge, "a", [1, 2])
    return judge


@counts()
def a_block_in_two_steps() -> Judge:
    judge = judge_of(4, 2, publish="dispatch")
    allocate(judge, "a", [1, 2])
    for _ in range(2):
        complete(judge, dispatch(judge, ("a", 1)))
    assert judge.blocks.published[0] is not None
    return judge


@counts(reset_with_live_requests=2)
def resets() -> Judge:
    judge = judge_of()
    reset(judge)
    admit(judge, "a", range(4))
    reset(judge)
    reset(judge)
    return judge


@pytest.mark.parametrize(("scene", "expected"), SCENES, ids=[scene.__name__ for scene, _ in SCENES])
def test_each_event_is_counted_when_it_happens(scene: Scene, expected: dict[str, int]):
    judge = scene()
    assert judge.findings == []
    assert dict(judge.events) == expected


def test_every_event_has_a_scene():
    names = {value for name, value in vars(events).items() if name.isupper()}
    names -= {events.ALLOCATED_WITH_AN_EARLIER_MATCH, events.HASH_COLLISION}  # counted by the session, and by a target
    assert {name for _, expected in SCENES for name, count in expected.items() if count > 1} == names
