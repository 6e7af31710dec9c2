"""Engines as plans, workers and the command line meet them: by the registry, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fuzz.campaign.executor import Done
from fuzz.campaign.plan import CampaignPlan
from fuzz.campaign.plans import BadPlan, ready
from fuzz.campaign.streams import Streams, streams_of
from fuzz.campaign.tasks import Task
from fuzz.campaign.worker import perform_task
from fuzz.cli import app
from fuzz.engines.engine import Assignment, Engine, with_violation
from fuzz.engines.registry import ENGINES, UnknownEngine, audited, engine_of, engines, planned, shares
from fuzz.runs.perform import perform
from fuzz.runs.values import Counterexample
from properties.operations import Allocate, Complete, Configuration, Dispatch, Free, Operation

BROKEN = "fuzz.tests.broken:early"


class Toy(Engine):
    """The same six operations, as often as it is asked to; the pool is as large as the unit's number says."""

    name = "toy"
    about = "six operations"
    total = 3

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        unit = assignment.first
        while unit < min(assignment.last, self.total) and assignment.clock() < assignment.deadline:
            assignment.begin(unit)
            configuration = Configuration(num_blocks=4 + unit, block_size=2)
            operations: list[Operation] = [
                Allocate("a", (0, 1, 2)),
                Dispatch(1, (("a", 3),)),
                Allocate("b", (0, 1, 2)),
                Complete(1),
                Free("a"),
                Free("b"),
            ]
            run = perform(assignment.factory, configuration, operations, assignment.judging, drain=False)
            assignment.tally.add(self.name, len(run.operations), run.session.kinds, {}, {}, run.events)
            unit += 1
            if run.violation is not None:
                where = Counterexample(configuration, (), assignment.target, engine=self.name, seed=str(unit - 1))
                return with_violation(where, run.violation, run.operations, run.at), unit
        return None, unit


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "toy", f"{__name__}:Toy")


def fuzz(*arguments: object) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_an_unknown_engine_is_refused_with_the_known_names(tmp_path: Path) -> None:
    names = ", ".join(ENGINES)
    with pytest.raises(UnknownEngine, match=names):
        engine_of("nonsense")
    plan = tmp_path / "plan.toml"
    plan.write_text("[engines]\nnonsense = 1\n")
    with pytest.raises(BadPlan, match=names):
        ready(str(plan))
    for command in (("run", "--engine", "nonsense"), ("run", "--workers", "2", "--engine", "nonsense")):
        status, output = fuzz(*command, "--out", tmp_path / "out")
        assert status == 2
        assert names in output
    status, output = fuzz("audit", "--engine", "nonsense", "--out", tmp_path / "out")
    assert status == 2
    assert all(name in output for name in audited())
    assert not (tmp_path / "out").exists()


def test_every_engine_says_what_it_is() -> None:
    for engine in engines():
        assert engine_of(engine.name) is engine
        assert engine.about and engine.units >= 1
        assert engine.share >= 0 and engine.planned >= 0
        assert engine.total is None or engine.ended(engine.total)
    assert set(shares()) | set(planned()) <= set(ENGINES)
    _, helped = fuzz("run", "--help")
    assert all(engine.name in helped for engine in engines())


@pytest.mark.usefixtures("toy")
def test_an_engine_is_hunted_with_by_its_name_alone(tmp_path: Path) -> None:
    plan = CampaignPlan(engines={"toy": 1.0}, targets=("kvcore",), seed="1")
    ((stream, _),) = streams_of(plan)
    streams = Streams(streams_of(plan))
    units = []
    while streams.open:
        chosen = streams.next(60.0)
        task = Task("hunt", len(units), chosen.stream, str(tmp_path), chosen.seconds, chosen.first, chosen.count)
        result = perform_task(task)
        assert not result.error
        streams.done(task, result)
        units.append(chosen.first)
        assert result.tally.by_engine["toy"] == 6
    assert units == [0, 1, 2]
    result = perform_task(Task("hunt", 1, stream, str(tmp_path), 60.0, count=10))
    assert (result.following, result.exhausted, result.hits) == (3, True, [])


class Here:
    """An executor in this process, where the toy engine is known."""

    def __init__(self, spool: Path) -> None:
        self._task: Task | None = None

    def idle(self) -> int:
        return int(self._task is None)

    def busy(self) -> float:
        return 0.0

    def deaths(self) -> int:
        return 0

    def running(self) -> list[Task]:
        return [] if self._task is None else [self._task]

    def under_way(self) -> list[tuple[Task, int]]:
        return []

    def submit(self, task: Task) -> None:
        self._task = task

    def events(self, timeout: float) -> list[Done]:
        task, self._task = self._task, None
        return [] if task is None else [Done(task, perform_task(task))]

    def close(self, patience: float = 0.0) -> None: ...


@pytest.mark.usefixtures("toy")
def test_a_run_with_a_new_engine_finds_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.cli.run.executor_of", lambda plan: Here)
    run = ("run", "--engine", "toy", "--budget", "20s", "--seed", "1", "--shrink", "0")
    status, output = fuzz(*run, "--out", tmp_path / "clean")
    assert status == 0, output
    assert json.loads((tmp_path / "clean" / "summary.json").read_text())["engines"]["toy"]["operations"] == 18
    status, output = fuzz(*run, "--target", BROKEN, "--out", tmp_path / "broken")
    assert status == 1, output
    summary = json.loads((tmp_path / "broken" / "summary.json").read_text())
    assert summary["findings"][0]["engine"] == "toy"


def test_a_run_explores_when_asked_to(tmp_path: Path) -> None:
    status, output = fuzz("run", "--engine", "explore", "--target", BROKEN, "--budget", "20s", "--out", tmp_path)
    assert status == 1, output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["findings"][0]["engine"] == "explore"
    assert not [left for left in tmp_path.rglob("*") if left.name.startswith("explore-")]
