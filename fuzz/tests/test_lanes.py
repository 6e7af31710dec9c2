"""Which range of which stream is next: every part of the time is had, nothing is hunted twice or lost, and what kills
its workers is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.campaign.streams import Lanes, Range
from fuzz.campaign.supervisor import Died
from fuzz.campaign.worker import Stream, Task, TaskResult
from fuzz.engines.registry import engine_of

WALK = Stream("kvcore", "walk", "all", "1")
UNITS = engine_of("walk").units
HYPOTHESIS = Stream("kvcore", "hypothesis", "all", "1")


def given(lanes: Lanes, left: float = 1000.0) -> Task:
    part = lanes.next(left)
    return Task("hunt", 1, part.stream, "", part.seconds, first=part.first, count=part.count)


def died(task: Task, unit: int, how: str = "was killed by SIGKILL", seconds: float = 1.0) -> Died:
    return Died(task, how, unit, 10, seconds, 1)


def done(task: Task, seconds: float, *, following: int | None = None, exhausted: bool = False) -> TaskResult:
    last = task.first + task.count if following is None else following
    return TaskResult(task, following=last, seconds=seconds, exhausted=exhausted)


def test_time_is_shared_by_parts_however_long_a_task_takes() -> None:
    lanes = Lanes([(WALK, 3.0), (HYPOTHESIS, 1.0)])
    had = {WALK: 0.0, HYPOTHESIS: 0.0}
    for _ in range(400):
        task = given(lanes)
        assert task.stream is not None
        seconds = 0.5 if task.stream is WALK else 4.0
        had[task.stream] += seconds
        lanes.done(task, done(task, seconds))
    assert had[WALK] / had[HYPOTHESIS] == pytest.approx(3.0, rel=0.05)


def test_units_are_given_out_once_and_what_was_cut_short_is_finished_first() -> None:
    lanes = Lanes([(WALK, 1.0)])
    units = UNITS
    first, second = given(lanes), given(lanes)
    assert (first.first, second.first) == (0, units)
    lanes.done(first, done(first, 4.0, following=10))
    lanes.done(second, done(second, 4.0))
    assert lanes.next(1000.0) == Range(WALK, 10, units - 10, 4.0)
    assert lanes.next(1.5) == Range(WALK, 2 * units, units, 1.5)


def test_the_unit_that_a_worker_died_of_is_not_done_again_and_the_rest_is() -> None:
    lanes = Lanes([(WALK, 1.0)])
    task = given(lanes)
    assert lanes.died(died(task, 7)) == ""
    rest = given(lanes)
    assert (rest.first, rest.first + rest.count) == (8, UNITS)
    last = rest.first + rest.count - 1
    assert lanes.died(died(rest, last)) == ""
    after = given(lanes)
    assert (after.first, after.count) == (UNITS, UNITS), "nothing is left of the first range"


@pytest.mark.parametrize(("how", "most"), [("was killed by SIGKILL", 25), ("hung: not a word for 60 seconds", 3)])
def test_a_stream_that_kills_its_workers_is_left_alone(how: str, most: int) -> None:
    lanes = Lanes([(WALK, 1.0), (HYPOTHESIS, 1.0)])
    said: list[str] = []
    while len(said) < most:
        task = given(lanes)
        if task.stream is WALK:
            said.append(lanes.died(died(task, task.first, how)))
        else:
            lanes.done(task, done(task, 4.0))
    assert said == [""] * (most - 1) + [f"{WALK.name} is left alone from here on: {most} workers died of it"]
    assert lanes.open
    assert {given(lanes).stream for _ in range(10)} == {HYPOTHESIS}


def test_workers_that_die_before_they_begin_close_the_stream_and_their_range_is_tried_again_until_then() -> None:
    lanes = Lanes([(WALK, 1.0)])
    for _ in range(2):
        task = given(lanes)
        assert task.first == 0
        assert lanes.died(died(task, -1)) == ""
    assert "die before they begin" in lanes.died(died(given(lanes), -1))
    assert not lanes.open


def test_a_trace_is_run_once_and_a_space_until_it_is_exhausted() -> None:
    trace, space = replace(WALK, engine="trace"), replace(WALK, engine="explore")
    lanes = Lanes([(trace, 1.0)])
    task = given(lanes)
    assert task.seconds == 1000.0
    assert not lanes.open
    lanes.done(task, done(task, 1.0))
    assert not lanes.open
    lanes = Lanes([(space, 1.0)])
    task = given(lanes)
    assert task.seconds == 1000.0
    lanes.done(task, done(task, 1.0, following=task.first, exhausted=True))
    assert not lanes.open


def test_what_was_running_is_done_again_after_the_campaign_was_cut_short() -> None:
    lanes = Lanes([(WALK, 1.0), (HYPOTHESIS, 1.0)])
    first = given(lanes)
    lanes.done(first, done(first, 4.0, following=first.first + 1))
    running = given(lanes)
    later = Lanes([(WALK, 1.0), (HYPOTHESIS, 1.0)])
    later.go_on(lanes.noted([running]))
    ranges = [later.next(1000.0) for _ in range(4)]
    again = {(one.stream, one.first, one.count) for one in ranges}
    assert running.stream is not None
    assert (running.stream, running.first, running.count) in again
    assert (first.stream, first.first + 1, first.count - 1) in again
    assert all(one.first >= engine_of(one.stream.engine).units for one in ranges[2:])
