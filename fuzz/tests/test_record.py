"""The recorder: everything is passed on, everything is written, and the road from there to a few operations."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fuzz.cli import app
from fuzz.engines.walk import Walk
from fuzz.record import Recorder
from fuzz.runs.counterexample import Unreadable, read
from fuzz.runs.perform import perform
from fuzz.runs.values import Judging
from fuzz.tests import nano
from properties.operations import Allocate, Append, Configuration, Dispatch, Operation
from properties.session import Session
from properties.target import TargetFactory
from properties.targets import load, nano_vllm

SALTY = (("salt", "the customer's name"),)


def drive(factory: TargetFactory, path: Path, seed: str, *, private: bool = False) -> tuple[Session, list[Operation]]:
    """An episode of the walk through a recorder; the session that judged it as it happened."""
    walk = Walk(seed, factory(Configuration()).capabilities)
    recorder = Recorder(factory(walk.configuration), walk.configuration, path, name="fuzz.zoo:NV-1", private=private)
    session, applied = Session(recorder), []
    for operation in walk.operations(session):
        if session.apply(operation).status != "skipped":
            applied.append(operation)
    recorder.close()
    return session, applied


@pytest.mark.parametrize("private", [False, True], ids=["plain", "private"])
def test_what_is_recorded_replays_to_the_same_run(tmp_path: Path, private: bool) -> None:
    seen = set()
    for seed in range(12):
        session, _ = drive(load("kvcore"), tmp_path / "run.jsonl", f"record/{seed}", private=private)
        stored = read(tmp_path / "run.jsonl")
        replayed = perform(load("kvcore"), stored.configuration, stored.operations, Judging(), drain=False)
        assert replayed.violation is None
        assert replayed.session.target.inspect().references == session.target.inspect().references
        assert list(map(list, replayed.session.target.inspect().tables.values())) == list(
            map(list, session.target.inspect().tables.values())
        )
        seen |= {operation.op for operation in stored.operations}
    assert seen >= {"lookup", "allocate", "append", "fill", "dispatch", "complete", "truncate", "fork", "free"}


def test_without_privacy_the_operations_are_written_as_they_were(tmp_path: Path) -> None:
    _, applied = drive(load("kvcore"), tmp_path / "run.jsonl", "record/plain")
    names = ("op", "request", "child", "tokens", "namespace", "position", "length", "work")

    def told(operation: Operation) -> list[object]:
        return [getattr(operation, name, None) for name in names]

    assert list(map(told, read(tmp_path / "run.jsonl").operations)) == list(map(told, applied))


def test_with_privacy_nothing_of_what_was_given_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "private.jsonl"
    with Recorder(load("kvcore")(Configuration()), Configuration(), path, private=True) as recorder:
        recorder.allocate("alice@example.org", (70_001, 70_002, 70_001), SALTY, None)
        recorder.append("alice@example.org", (70_002, 70_003))
    text = path.read_text()
    assert "alice" not in text
    assert "7000" not in text
    assert "customer" not in text
    assert read(path).operations == (
        Allocate("r0", (0, 1, 0), (("salt", "v1"),)),
        Append("r0", (1, 2)),
    )


def test_the_file_tells_of_the_operation_that_the_process_died_of(tmp_path: Path) -> None:
    class Dying(nano_vllm.CurrentTarget):
        def dispatch(self, work: object) -> None:  # type: ignore[override]
            raise SystemExit(9)

    path = tmp_path / "died.jsonl"
    recorder = Recorder(Dying(Configuration(), nano.FIXED), Configuration(), path)
    recorder.allocate("a", (1, 2), (), None)
    with pytest.raises(SystemExit):
        recorder.dispatch([("a", 2)])
    recorder.close()
    assert read(path).operations[-1] == Dispatch(1, (("a", 2),))
    # Cut off in the middle of a line, as a full disk leaves it.
    path.write_text(path.read_text()[:-9])
    assert [operation.op for operation in read(path).operations] == ["allocate"]


def test_a_bad_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "edited.jsonl"
    drive(load("kvcore"), path, "record/edited")
    lines = path.read_text().splitlines()
    lines[4] = json.dumps({"op": "alocate"})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(Unreadable, match=r"edited\.jsonl:5: "):
        read(path)


def test_from_an_incident_to_a_few_operations(tmp_path: Path) -> None:
    """Nobody checks while it happens: 30 requests of three users on a core with a stale mapping, recorded privately."""
    core = nano_vllm.CurrentTarget(Configuration(num_blocks=12, block_size=2), nano.STALE_MAPPING)
    path = tmp_path / "incident.jsonl"
    draw = random.Random(7)
    with Recorder(core, Configuration(num_blocks=12, block_size=2), path, private=True) as engine:
        for number in range(40):
            prompt = tuple(draw.choice((501, 502)) for _ in range(draw.randrange(2, 9)))
            engine.allocate(f"user-{number}", prompt, (), None)
            left = len(prompt) - core._live[f"user-{number}"].num_cached_tokens
            view = engine.dispatch([(f"user-{number}", left)])
            engine.complete(view.handle)
            engine.free(f"user-{number}")
    least = tmp_path / "least.json"
    done = CliRunner().invoke(
        app,
        ["replay", str(path), "--quiet", "--target", "fuzz.tests.test_record:stale", "--shrink", str(least)],
    )
    assert done.exit_code == 1, done.output
    assert "HISTORY" in done.output or "PUBLISH" in done.output
    assert len(read(least).operations) <= 9
    assert read(least).target == "fuzz.tests.test_record:stale"


def stale(configuration: Configuration) -> nano_vllm.CurrentTarget:
    return nano_vllm.CurrentTarget(configuration, nano.STALE_MAPPING)
