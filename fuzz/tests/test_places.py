"""Places in a target's code that a counterexample runs through."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from fuzz.findings.likeness import likeness
from fuzz.findings.places import places_of
from fuzz.runs.values import Counterexample, Judging
from fuzz.zoo import find
from properties.operations import Allocate, Append, Complete, Configuration, Dispatch, Fork, Free, Operation, Truncate
from properties.targets.kvcore import KvcoreTarget

A, D, C = Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)), Complete(1)


def through(*operations: Operation, bug: str = "") -> dict[str, int]:
    factory = find(bug).factory() if bug else KvcoreTarget
    return places_of(Counterexample(Configuration(num_blocks=4, block_size=2), operations), factory)


def test_what_every_run_reaches_counts_nothing_and_what_few_reach_counts() -> None:
    usual = through(A, D, C)
    rare = through(A, D, C, Fork("a", "b"), Append("b", (4,)), Truncate("b", 3), Free("a"))
    assert sum(rare.values()) > sum(usual.values())
    assert all(weight > 0 for weight in rare.values())


def test_the_same_story_in_other_words_runs_through_the_same_places() -> None:
    one = through(A, D, C, Free("a"), bug="NV-1")
    other = through(Allocate("x", (7, 8, 9)), Dispatch(5, (("x", 3),)), Complete(5), Free("x"), bug="NV-1")
    assert one == other
    assert likeness(one, other) == 1


class Garbage:
    """Goes when it is collected, and runs a line then."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        self.gone = True


class Littering(KvcoreTarget):
    def allocate(self, *given: Any) -> int:
        if given[0] == "litters":  # no random run does
            for _ in range(2000):
                Garbage()
        return super().allocate(*given)


def test_what_is_collected_meanwhile_is_no_part_of_it() -> None:
    """It comes at any time, and from anybody."""
    operations = Allocate("litters", (1, 2, 3)), Free("litters")
    places = places_of(Counterexample(Configuration(num_blocks=4, block_size=2), operations), Littering)
    assert any("Littering.allocate" in place for place in places)
    assert not any("__del__" in place for place in places)
    assert gc.isenabled()


def test_a_planted_copy_has_the_places_of_the_core_it_is_a_copy_of() -> None:
    assert likeness(through(A, D, C, Fork("a", "b"), bug="NV-5"), through(A, D, C, Fork("a", "b"))) > 0.9


@pytest.mark.parametrize("judging", [Judging(kernels="kvcore")])
def test_where_nobody_can_tell_there_are_none(judging: Judging) -> None:
    found = Counterexample(Configuration(), (A,), judging=judging)
    assert places_of(found, KvcoreTarget) == {}
    assert places_of(Counterexample(Configuration(), (A,) * 1000), KvcoreTarget) == {}


def test_whoever_traces_this_process_goes_on_doing_so() -> None:
    before = sys.gettrace()
    seen: list[str] = []

    def ours(frame: object, event: str, argument: object) -> None:
        seen.append(event)

    sys.settrace(ours)
    try:
        assert through(A) == {}
        assert sys.gettrace() is ours
    finally:
        sys.settrace(before)
