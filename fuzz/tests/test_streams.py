"""Which range of which stream is next: every part of the time is had, nothing is hunted twice or lost, and what kills
its workers is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.campaign.executor import TaskResult
from fuzz.campaign.pace import Pace
from fuzz.campaign.plan import CampaignPlan, Variant
from fuzz.campaign.streams import Range, Streams, outside_of, streams_of
from fuzz.campaign.tasks import Died, Stream, Task
from fuzz.engines.registry import engine_of

WALK = Stream("kvcore", "walk", "all", "1")
UNITS = engine_of("walk").units
HYPOTHESIS = Stream("kvcore", "hypothesis", "all", "1")


def given(streams: Streams, left: float = 1000.0) -> Task:
    part = streams.next(left)
    return Task("hunt", 1, part.stream, "", part.seconds, first=part.first, count=part.count)


def died(task: Task, unit: int, how: str = "was killed by SIGKILL", seconds: float = 1.0) -> Died:
    return Died(task, how, unit, 10, seconds, 1)


def done(task: Task, seconds: float, *, following: int | None = None, exhausted: bool = False) -> TaskResult:
    last = task.first + task.count if following is None else following
    return TaskResult(task, following=last, seconds=seconds, exhausted=exhausted)


def test_time_is_shared_by_parts_however_long_a_task_takes() -> None:
    streams = Streams([(WALK, 3.0), (HYPOTHESIS, 1.0)])
    had = {WALK: 0.0, HYPOTHESIS: 0.0}
    for _ in range(400):
        task = given(streams)
        assert task.stream is not None
        seconds = 0.5 if task.stream is WALK else 4.0
        had[task.stream] += seconds
        streams.done(task, done(task, seconds))
    assert had[WALK] / had[HYPOTHESIS] == pytest.approx(3.0, rel=0.05)


def test_where_one_worker_takes_turns_each_stream_has_one_of_its_part_in_every_round() -> None:
    streams = Streams([(WALK, 3.0), (HYPOTHESIS, 1.0)], round=2.0)
    first, second = streams.next(100.0), streams.next(100.0)
    assert [(one.stream, one.seconds) for one in (first, second)] == [(WALK, 1.5), (HYPOTHESIS, 0.5)]
    assert 0 < streams.next(-3.0).seconds < 0.5, "a turn has a little time, however late it is"


def test_units_are_given_out_once_and_what_was_cut_short_is_finished_first() -> None:
    streams = Streams([(WALK, 1.0)])
    units = UNITS
    first, second = given(streams), given(streams)
    assert (first.first, second.first) == (0, units)
    streams.done(first, done(first, 4.0, following=10))
    streams.done(second, done(second, 4.0))
    assert streams.next(1000.0) == Range(WALK, 10, units - 10, 4.0)
    assert streams.next(1.5) == Range(WALK, 2 * units, units, 1.5)


def test_the_unit_that_a_worker_died_of_is_not_done_again_and_the_rest_is() -> None:
    streams = Streams([(WALK, 1.0)])
    task = given(streams)
    assert streams.died(died(task, 7)) == ""
    rest = given(streams)
    assert (rest.first, rest.first + rest.count) == (8, UNITS)
    last = rest.first + rest.count - 1
    assert streams.died(died(rest, last)) == ""
    after = given(streams)
    assert (after.first, after.count) == (UNITS, UNITS), "nothing is left of the first range"


@pytest.mark.parametrize(("how", "most"), [("was killed by SIGKILL", 25), ("hung: not a word for 60 seconds", 3)])
def test_a_stream_that_kills_its_workers_is_left_alone(how: str, most: int) -> None:
    streams = Streams([(WALK, 1.0), (HYPOTHESIS, 1.0)])
    said: list[str] = []
    while len(said) < most:
        task = given(streams)
        if task.stream is WALK:
            said.append(streams.died(died(task, task.first, how)))
        else:
            streams.done(task, done(task, 4.0))
    assert said == [""] * (most - 1) + [f"{WALK.name} is left alone from here on: {most} workers died of it"]
    assert streams.open
    assert {given(streams).stream for _ in range(10)} == {HYPOTHESIS}


def test_workers_that_die_before_they_begin_close_the_stream_and_their_range_is_tried_again_until_then() -> None:
    streams = Streams([(WALK, 1.0)])
    for _ in range(2):
        task = given(streams)
        assert task.first == 0
        assert streams.died(died(task, -1)) == ""
    assert "die before they begin" in streams.died(died(given(streams), -1))
    assert not streams.open


def test_a_trace_is_run_once_and_a_space_until_it_is_exhausted() -> None:
    trace, space = replace(WALK, engine="trace"), replace(WALK, engine="explore")
    streams = Streams([(trace, 1.0)])
    task = given(streams)
    assert task.seconds == 1000.0
    assert not streams.open
    streams.done(task, done(task, 1.0))
    assert not streams.open
    streams = Streams([(space, 1.0)])
    task = given(streams)
    assert task.seconds == 1000.0
    streams.done(task, done(task, 1.0, following=task.first, exhausted=True))
    assert not streams.open


def test_what_was_running_is_done_again_after_the_campaign_was_cut_short() -> None:
    streams = Streams([(WALK, 1.0), (HYPOTHESIS, 1.0)])
    first = given(streams)
    streams.done(first, done(first, 4.0, following=first.first + 1))
    running = given(streams)
    later = Streams([(WALK, 1.0), (HYPOTHESIS, 1.0)])
    later.go_on(streams.noted([running]))
    ranges = [later.next(1000.0) for _ in range(4)]
    again = {(one.stream, one.first, one.count) for one in ranges}
    assert running.stream is not None
    assert (running.stream, running.first, running.count) in again
    assert (first.stream, first.first + 1, first.count - 1) in again
    assert all(one.first >= engine_of(one.stream.engine).units for one in ranges[2:])


PLAN = CampaignPlan(engines={"walk": 3.0, "hypothesis": 1.0, "trace": 1.0}, targets=("kvcore", "closed"), seed="7")


def test_what_is_hunted_from_outside_has_a_seed_of_its_own_and_is_of_targets_that_can_be_inspected() -> None:
    streams = outside_of(PLAN, {"kvcore"})
    assert [(one.engine, one.target, share) for one, share in streams] == [
        ("walk", "kvcore", 3.0),
        ("hypothesis", "kvcore", 1.0),
    ]
    for stream, _ in streams:
        assert (stream.judging.outside, stream.judging.exact) == (True, False)
        assert stream.seed not in {one.seed for one, _ in streams_of(PLAN)}


def test_a_plan_that_judges_from_outside_gets_no_more_of_that() -> None:
    plan = replace(PLAN, configurations=(Variant("all"), Variant("blind", outside=True)))
    assert outside_of(plan, {"kvcore"}) == []


def test_streams_that_come_later_share_from_then_on_and_come_once() -> None:
    outside = replace(WALK, configuration="outside")
    streams = Streams([(WALK, 3.0)])
    had = {WALK: 0.0, outside: 0.0}
    for number in range(120):
        if number >= 100:
            streams.add([(outside, 3.0)])
        task = given(streams)
        assert task.stream is not None
        had[task.stream] += 1.0
        streams.done(task, done(task, 1.0))
    assert had[outside] == pytest.approx(10.0, abs=1.0)


def test_what_goes_on_behind_a_finding_is_mostly_hunting() -> None:
    pace = Pace(replace(PLAN, budget=60.0, shrink=10.0, max_findings=1), began=0.0)
    settle = Task("settle", 1, None, "", 0.0)
    assert pace.seconds(settle, 5.0) == 10.0
    assert pace.ends_within(16.0, 5.0) == 16.0
    assert pace.seconds(settle, 5.0) == 4.0
    assert pace.hunting(20.9) and not pace.hunting(21.0)
    assert pace.seconds(settle, 25.0) == 1.5, "there is always time to name it"
    assert pace.ends_within(100.0, 20.0) == 1.0, "nothing makes the budget longer"
