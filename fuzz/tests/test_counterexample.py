"""Counterexample files: written and read again, edited by hand, and every way in which they can be unreadable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.runs.counterexample import Unreadable, read, write
from fuzz.runs.perform import perform
from fuzz.runs.values import Counterexample, Judging
from properties.operations import Allocate, Append, Complete, Configuration, Dispatch, Fork, Free, Lookup, Truncate
from properties.targets import load

OPERATIONS = (
    Lookup((1, 2, 3), (("salt", "s"),), "m"),
    Allocate("a", (1, 2, 3), (("salt", "s"),), "m"),
    Dispatch(1, (("a", 3),)),
    Complete(1),
    Fork("a", "b"),
    Append("b", (4, 5)),
    Truncate("b", 4),
    Free("a"),
)
EXAMPLE = Counterexample(
    configuration=Configuration(4, 2, 16, "last_token"),
    operations=OPERATIONS,
    property_id="OWNERSHIP",
    message='says "no"',
    at=5,
    judging=Judging(outside=True, exact=False),
    engine="walk",
    seed="1/2",
    note="as found",
    # Not the real ones: lines are counted below, and whether torch is installed must not matter.
    versions=dict.fromkeys(("python", "numpy", "xxhash", "hypothesis"), "1"),
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    assert read(write(EXAMPLE, tmp_path / "deep" / "one.json")) == EXAMPLE


def test_the_same_counterexample_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = write(EXAMPLE, tmp_path / "one.json"), write(EXAMPLE, tmp_path / "two.json")
    assert first.read_bytes() == second.read_bytes()
    assert str(tmp_path) not in first.read_text()


def test_one_operation_a_line(tmp_path: Path) -> None:
    lines = write(EXAMPLE, tmp_path / "one.json").read_text().splitlines()
    written = [line for line in lines if line.startswith('    {"op"')]
    assert len(written) == len(OPERATIONS)


@pytest.mark.parametrize("index", range(len(OPERATIONS)))
def test_any_line_may_be_deleted(tmp_path: Path, index: int) -> None:
    path = write(EXAMPLE, tmp_path / "one.json")
    lines = path.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith('    {"op"'))
    del lines[first + index]
    path.write_text("".join(lines))
    edited = read(path)
    assert edited.operations == OPERATIONS[:index] + OPERATIONS[index + 1 :]
    run = perform(load("kvcore"), edited.configuration, edited.operations, strict=True)
    assert run.violation is None


def test_what_no_longer_applies_is_skipped_and_the_rest_replays(tmp_path: Path) -> None:
    without_dispatch = [operation for operation in OPERATIONS if not isinstance(operation, Dispatch)]
    run = perform(load("kvcore"), EXAMPLE.configuration, without_dispatch, strict=True)
    said = [(outcome.status, outcome.detail) for outcome in run.outcomes]
    assert said[2] == ("skipped", "there is no such step")
    assert said[3] == ("refused", "NotComputed")
    assert said[4] == ("refused", "UnknownRequest")
    assert run.violation is None


def _broken(tmp_path: Path, change: object) -> str:
    path = write(EXAMPLE, tmp_path / "one.json")
    text = path.read_text()
    path.write_text(change(text))  # type: ignore[operator]
    with pytest.raises(Unreadable) as caught:
        read(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (lambda text: text[: text.index('"seed"') + 3], None, "expected a counterexample in JSON"),
        (lambda text: text[: text.rindex("]")], None, "the file is cut off"),
        (lambda text: text.replace('"schema": 1', '"schema": 99'), 2, "reads 1 to 1; use a newer version"),
        (lambda text: text.replace('"schema": 1', '"schema": "x"'), 2, "schema is 'x'"),
        (lambda text: text.replace('"op": "fork"', '"op": "spoon"'), 32, "unknown operation 'spoon'; known are lookup"),
        (lambda text: text.replace('"length": 4', '"length": "4"'), 34, "length must be an integer, got '4'"),
        (lambda text: text.replace('"child": "b"', '"kid": "b"'), 32, "fork has no fields ['kid']"),
        (lambda text: text.replace('"num_blocks": 4', '"num_blocks": 0'), 7, "num_blocks must be an integer from 1"),
        (lambda text: text.replace('"num_blocks": 4', '"blocks": 4'), 7, "unknown fields ['blocks']"),
        (lambda text: text.replace('"request": "a", "child"', "nonsense"), 32, "expected a counterexample in JSON"),
        (lambda text: "[1, 2]", 1, "found a list"),
        (lambda text: text.replace('"operations": [', '"operation": ['), 1, "expected a list of operations"),
    ],
)
def test_an_unreadable_file_is_told_with_file_line_and_what_was_expected(
    tmp_path: Path, change: object, line: int | None, says: str
) -> None:
    message = _broken(tmp_path, change)
    assert message.startswith(str(tmp_path / "one.json") + ":")
    assert says in message
    if line is not None:
        assert message.startswith(f"{tmp_path / 'one.json'}:{line}:"), message


def test_a_missing_file_and_a_binary_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="cannot be read"):
        read(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\x1f\x8b\xff\xfe")
    with pytest.raises(Unreadable, match="not UTF-8"):
        read(tmp_path / "binary")


def test_the_file_is_json_for_everybody(tmp_path: Path) -> None:
    data = json.loads(write(EXAMPLE, tmp_path / "one.json").read_text())
    assert data["property"] == "OWNERSHIP"
    assert data["operations"][2] == {"op": "dispatch", "step": 1, "work": [["a", 3]]}
