"""The recorder: everything is passed on, everything is written, and the road from there to a few operations."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
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
        path = tmp_path / f"{seed}.jsonl"
        session, _ = drive(load("kvcore"), path, f"record/{seed}", private=private)
        stored = read(path)
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


def small(path: Path, *, private: bool = False) -> Recorder:
    return Recorder(load("kvcore")(Configuration()), Configuration(), path, private=private)


def test_each_recorder_has_a_file_of_its_own_and_nothing_that_is_there_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "incident.jsonl"
    first, second = small(path), small(path)
    first.allocate("a", (1, 2), (), None)
    second.allocate("b", (3, 4), (), None)
    first.free("a")
    assert (first.path, second.path) == (path, tmp_path / "incident-2.jsonl")
    assert [operation.op for operation in read(first.path).operations] == ["allocate", "free"]
    assert read(second.path).operations == (Allocate("b", (3, 4)),)


def test_a_name_that_leads_nowhere_is_a_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "incident.jsonl").symlink_to(tmp_path / "gone" / "incident.jsonl")
    assert small(tmp_path / "incident.jsonl").path == tmp_path / "incident-2.jsonl"


@pytest.mark.parametrize("private", [False, True], ids=["plain", "private"])
@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.allocate(test_a_bad_line_is_named_by_its_number, (1,), (), None),
        lambda core: core.allocate("a", None, (), None),
        lambda core: core.allocate("a", ({},), (), None),
        lambda core: core.allocate("a", ((7, 2),), (), None),
        lambda core: core.allocate("a", (10**5000,), (), None),
        lambda core: core.allocate("a", (1,), (("tenant", "of this engine"),), None),
        lambda core: core.allocate([], (1,), (), None),
        lambda core: core.dispatch([("a", "many")]),
        lambda core: core.dispatch(None),
        lambda core: core.free({}),
        lambda core: core.truncate("a", None),
        lambda core: core.truncate("a", 1, 2, 3),
        lambda core: core.fork(),
    ],
)
def test_a_call_that_cannot_be_written_reaches_the_core_as_it_was_and_ends_the_record(
    tmp_path: Path, call: Callable[[Any], Any], private: bool
) -> None:
    calls: list[tuple[str, Any, Any]] = []

    class Core:
        name, capabilities = "core", frozenset[str]()

        def __getattr__(self, name: str) -> Any:
            return lambda *values, **named: calls.append((name, values, named))

    plain: Any = Core()
    call(plain)
    recorder = Recorder(plain, Configuration(), tmp_path / "incident.jsonl", private=private)
    recorder.free("before")
    call(recorder)
    if recorder.dropped == 0:  # with names replaced there may be nothing left that cannot be written
        assert private
        return
    recorder.free("after")
    recorder.close()
    assert calls[0] == calls[2]
    assert [name for name, _, _ in calls[1:]] == ["free", calls[0][0], "free"]
    assert recorder.dropped == 2
    stored = read(recorder.path)
    assert [operation.op for operation in stored.operations] == ["free"]
    assert stored.gap.startswith("2 or more operations")


def test_what_can_be_read_only_once_is_left_to_the_core(tmp_path: Path) -> None:
    recorder = small(tmp_path / "incident.jsonl")
    given: Any = iter([1, 2])
    with suppress(recorder.refusals):
        recorder.allocate("a", given, (), None)
    assert recorder.dropped == 1


def test_numbers_of_numpy_are_tokens(tmp_path: Path) -> None:
    class Any_(nano_vllm.CurrentTarget):
        def allocate(self, *_: object) -> int:
            return 0

    path = tmp_path / "incident.jsonl"
    for private in (False, True):
        path = tmp_path / f"{private}.jsonl"
        recorder = Recorder(Any_(Configuration(), nano.FIXED), Configuration(), path, private=private)
        tokens: Any = np.array([70_000, 5, 70_000], dtype=np.int32)
        recorder.allocate("a", tokens, (), None)
        (operation,) = read(path).operations
        assert isinstance(operation, Allocate)
        assert tuple(operation.tokens) == ((0, 1, 0) if private else (70_000, 5, 70_000))


def test_a_closed_recorder_passes_on_and_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small(tmp_path / "incident.jsonl") as recorder:
        recorder.allocate("a", (1, 2), (), None)
    recorder.close()
    assert not caplog.records
    for request in ("b", "c"):
        recorder.allocate(request, (1, 2), (), None)
    assert len(recorder.table("c")) == 1
    assert (recorder.dropped, recorder.why) == (2, "the recorder was closed")
    assert len(caplog.records) == 1
    assert [operation.op for operation in read(recorder.path).operations] == ["allocate"]


def test_a_place_that_cannot_be_written_to_stops_no_engine(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = small(tmp_path / "file" / "incident.jsonl")
    recorder.allocate("a", (1, 2), (), None)
    recorder.close()
    assert recorder.dropped == 1
    assert recorder.why


def test_a_process_that_was_forked_leaves_the_record_alone(tmp_path: Path) -> None:
    recorder = small(tmp_path / "incident.jsonl")
    recorder.allocate("a", (1, 2), (), None)
    child = os.fork()
    if not child:
        recorder.free("a")
        recorder.close()
        os._exit(recorder.dropped)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    recorder.append("a", (3,))
    assert [operation.op for operation in read(recorder.path).operations] == ["allocate", "append"]


def stale(configuration: Configuration) -> nano_vllm.CurrentTarget:
    return nano_vllm.CurrentTarget(configuration, nano.STALE_MAPPING)
