"""A clone of the judge: the same state to the last field, and nothing that changes is shared."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from reference import Eviction, Histories, Judge, Policy, events
from reference.groups import FullAttention, SlidingWindow

from .driving import (
    admit,
    allocate,
    append,
    complete,
    dispatch,
    fork,
    free,
    grow,
    judge_of,
    reset,
    take,
    truncate,
    wait,
)
from .scenes import say, with_prompt

ANEW = ("findings", "events", "accuse", "_findings", "_counts", "changed")
"""What a clone does not take over, by the names that it has in the judge and in its pieces."""

NEVER_CHANGING = (Histories, Policy, FullAttention, SlidingWindow)
"""What a clone may share: histories only grow, and a number means the same for both."""


def fields(thing: object) -> dict[str, object] | None:
    """The state of an object of the model; None of anything else."""
    if not type(thing).__module__.startswith("reference.") or isinstance(thing, NEVER_CHANGING):
        return None
    if hasattr(thing, "__dict__"):
        return {name: value for name, value in vars(thing).items() if name not in ANEW and not callable(value)}
    return {name: getattr(thing, name) for name in type(thing).__slots__}


def picture(thing: object, met: dict[int, int]) -> object:
    """A state as plain values. An object that is met again is only numbered, so that it shows who shares what."""
    own = None if isinstance(thing, tuple) else fields(thing)
    if own is not None or isinstance(thing, array):
        if id(thing) in met:
            return f"number {met[id(thing)]}"
        met[id(thing)] = len(met)
    if own is not None:
        return {name: picture(value, met) for name, value in own.items()}
    if isinstance(thing, dict):
        return [(key, picture(value, met)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | deque | array):
        return [picture(value, met) for value in thing]
    return thing


def changing(thing: object, met: set[int]) -> Iterator[int]:
    """The `id` of all that can change in a state."""
    if id(thing) in met:
        return
    met.add(id(thing))
    own = None if isinstance(thing, tuple) else fields(thing)
    if own is not None or isinstance(thing, dict | list | deque | array):
        yield id(thing)
    inside = own if own is not None else thing
    if isinstance(inside, dict | list | deque | tuple):
        for value in inside.values() if isinstance(inside, dict) else inside:
            yield from changing(value, met)


def by_request() -> Judge:
    """What kvcore can have at once: an older epoch, whole prompts hit, placeholders, a pending copy, cached and
    withdrawn blocks, two steps of a request in flight, another freed, and a third cut, while they run."""
    judge = judge_of(40, 4, reuse="last_token")
    admit(judge, "old", range(9), ("tenant",))
    reset(judge)
    admit(judge, "a", range(10))
    admit(judge, "whole", range(8))
    fork(judge, "a", "child")
    append(judge, "child", [7, -1])
    admit(judge, "gone", [5] * 12)
    free(judge, "gone")
    admit(judge, "cut", [6] * 6)
    append(judge, "cut", [6] * 6)
    allocate(judge, "freed", [4] * 9)
    first = dispatch(judge, ("freed", 4), ("cut", 6))
    append(judge, "whole", [3])
    dispatch(judge, ("freed", 5), ("whole", 1))
    free(judge, "freed")
    truncate(judge, "cut", 7)
    assert judge.sequences["child"].pending and judge.sequences["cut"].deferred
    assert judge.sequences["whole"].tables[0].written_from and judge.sequences["child"].num_placeholders
    assert judge.blocks.withdrawn and judge.blocks.cached and first.spans[0][0].freed
    assert not judge.current(judge.sequences["old"]) and judge.current(judge.sequences["a"])
    return judge


def in_groups() -> Judge:
    """Two groups of layers, one with a window: blocks behind it, hits in it, a request that waits, a step in flight."""
    judge = judge_of(
        24,
        4,
        admission="step",
        publish="dispatch",
        lifetime="stream",
        order="unpublished_first",
        reserved=frozenset({0}),
        windows=(None, 5),
    )
    wait(judge, "a", range(13))
    take(judge, (("a", 12),), [0], [[1, 2, 3, 4, 5, 6]])
    complete(judge, judge.in_flight[0])
    wait(judge, "b", range(9))
    take(judge, (("b", 1),), [8], [[1, 2, 7, 0, 5, 8]])
    take(judge, (("a", 1),), [12], [[1, 2, 3, 9, 0, 0, 6, 10]])
    wait(judge, "c", [1])
    grow(judge, "c", [2])
    assert judge.sequences["a"].tables[1].num_released and judge.sequences["b"].tables[1].num_released
    assert not judge.sequences["c"].admitted
    assert judge.findings == []
    return judge


@pytest.mark.parametrize("scene", [by_request, in_groups])
def test_a_clone_is_the_same_to_the_last_field(scene: Callable[[], Judge]) -> None:
    judge = scene()
    other, steps = judge.clone()
    assert picture(other, {}) == picture(judge, {})
    assert (other.findings, other.events, other.blocks.changed) == ([], {}, [])
    assert list(steps) == [id(step) for step in judge.in_flight]
    assert list(steps.values()) == other.in_flight


@pytest.mark.parametrize("scene", [by_request, in_groups])
def test_a_clone_shares_only_what_never_changes(scene: Callable[[], Judge]) -> None:
    judge = scene()
    other, _ = judge.clone()
    fixed = [step.copies for step in judge.in_flight]
    fixed += [blocks for sequence in judge.sequences.values() for _, blocks in sequence.deferred]
    assert set(changing(judge, set())) & set(changing(other, set())) == {id(blocks) for blocks in fixed}


@pytest.mark.parametrize("scene", [by_request, in_groups])
def test_a_clone_and_its_original_end_alike(scene: Callable[[], Judge]) -> None:
    judge = scene()
    other, _ = judge.clone()
    for each in (judge, other):
        for step in [*each.in_flight]:
            complete(each, step)
        for request in [*each.sequences]:
            free(each, request)
        assert each.findings == []
        assert each.blocks.available == each.blocks.capacity
    assert picture(other, {}) == picture(judge, {})


@pytest.mark.parametrize("scene", [by_request, in_groups])
def test_a_clone_counts_and_finds_for_itself(scene: Callable[[], Judge]) -> None:
    judge = scene()
    before = dict(judge.events)
    other, _ = judge.clone()
    reset(other)
    due = other.before_lookup([1, 2, 3, 4, 5], ())
    other.after_lookup(due, 8, None)
    assert other.events and other.findings
    assert (dict(judge.events), judge.findings) == (before, [])


def test_what_happens_to_a_clone_is_counted_and_accused_in_the_clone() -> None:
    judge = with_prompt()
    free(judge, "a")
    other, _ = judge.clone()
    say(other, "b", [20, 21, 22, 23, 24], 0, [3, 0])  # block 0 goes before block 1, which extends it
    assert other.events[events.EVICTED] == 1
    assert Eviction in [type(finding) for finding in other.findings]
    assert judge.events[events.EVICTED] == 0
    assert judge.findings == []
