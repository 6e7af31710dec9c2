"""A clone of the judge: the same state to the last field, and nothing that changes is shared."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from reference import Judge, Passage, Predictor
from reference.judge import Line
from reference.slots import Slots

from .driving import admit, allocate, append, complete, dispatch, fork, free, grow, judge_of, truncate, wait

ANEW = {"touched": [], "findings": [], "events": {}, "may_refuse": False, "_plan": (array("i"), [], [])}
"""What a clone does not take over, and what it has instead."""


def fields(thing: object) -> dict[str, object]:
    if isinstance(thing, Line | Passage):
        return {name: getattr(thing, name) for name in type(thing).__slots__}
    return {name: value for name, value in vars(thing).items() if name not in ANEW}


def picture(thing: object, met: dict[int, int]) -> object:
    """A state as plain values. An object that is met again is only numbered, so that it shows who shares what."""
    if isinstance(thing, Line | Passage | array):
        if id(thing) in met:
            return f"number {met[id(thing)]}"
        met[id(thing)] = len(met)
    if isinstance(thing, Judge | Line | Passage | Predictor | Slots):
        return {name: picture(value, met) for name, value in fields(thing).items()}
    if isinstance(thing, dict):
        return [(key, picture(value, met)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | deque | array):
        return [picture(value, met) for value in thing]
    return thing


def changing(thing: object, met: set[int]) -> Iterator[int]:
    """The `id` of all that can change in a state, but for the histories, which a clone may share."""
    if id(thing) in met:
        return
    met.add(id(thing))
    if isinstance(thing, dict | list | deque | array | Judge | Line | Passage | Predictor | Slots):
        yield id(thing)
    inside = fields(thing) if isinstance(thing, Judge | Line | Passage | Predictor | Slots) else thing
    if isinstance(inside, dict | list | deque | tuple):
        for value in inside.values() if isinstance(inside, dict) else inside:
            yield from changing(value, met)


def by_request() -> Judge:
    """What kvcore can have at once: an older epoch, whole prompts hit, placeholders, a pending copy, cached and
    withdrawn blocks, two steps of a request in flight, another freed, and a third cut, while they run."""
    judge = judge_of(40, 4, reuse="last_token")
    admit(judge, "old", range(9), ("tenant",))
    judge.after_reset()
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
    assert judge.lines["child"].pending and judge.lines["cut"].cut and judge.lines["whole"].written_from
    assert judge.lines["child"].unnamed and judge._withdrawn and judge.cached and first.spans[0][0].freed
    assert not judge.current(judge.lines["old"]) and judge.current(judge.lines["a"])
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
    take(judge, "a", 12, 0, [1, 2, 3, 4, 5, 6])
    complete(judge, judge.in_flight[0])
    wait(judge, "b", range(9))
    take(judge, "b", 1, 8, [1, 2, 7, 0, 5, 8])
    take(judge, "a", 1, 12, [1, 2, 3, 9, 0, 0, 6, 10])
    wait(judge, "c", [1])
    grow(judge, "c", [2])
    assert judge.lines["a"].parts[1].skipped and judge.lines["b"].parts[1].skipped and judge.lines["c"].waiting
    assert judge.findings == []
    return judge


def take(judge: Judge, request: str, count: int, start: int, blocks: list[int]) -> None:
    work = ((request, count),)
    assert judge.before_dispatch(work) is None
    judge.after_dispatch(judge.take_blocks(work, [start], [blocks]), [])


@pytest.mark.parametrize("scene", [by_request, in_groups])
def test_a_clone_is_the_same_to_the_last_field(scene: Callable[[], Judge]) -> None:
    judge = scene()
    judge.may_refuse = True
    other, passages = judge.clone()
    assert picture(other, {}) == picture(judge, {})
    assert {name: getattr(other, name) for name in ANEW} == ANEW
    assert list(passages) == [id(passage) for passage in judge.in_flight]
    assert list(passages.values()) == other.in_flight


@pytest.mark.parametrize("scene", [by_request, in_groups])
def test_a_clone_shares_only_what_never_changes(scene: Callable[[], Judge]) -> None:
    judge = scene()
    other, _ = judge.clone()
    fixed = [passage.copies for passage in judge.in_flight]
    fixed += [blocks for line in judge.lines.values() for _, blocks in line.cut]
    assert set(changing(judge, set())) & set(changing(other, set())) == {id(blocks) for blocks in fixed}


@pytest.mark.parametrize("scene", [by_request, in_groups])
def test_a_clone_and_its_original_end_alike(scene: Callable[[], Judge]) -> None:
    judge = scene()
    other, _ = judge.clone()
    for each in (judge, other):
        for passage in [*each.in_flight]:
            complete(each, passage)
        for request in [*each.lines]:
            free(each, request)
        assert each.findings == []
        assert each.idle == each.capacity
    assert picture(other, {}) == picture(judge, {})
