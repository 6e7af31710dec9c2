"""What a file may ask for at most: refused by name, before anything is built."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign.plans import BadPlan, ready
from fuzz.findings.baseline import BadBaseline, Baseline
from fuzz.runs import bounds
from fuzz.runs.bounds import TooMuch, json_of, text_of
from fuzz.runs.counterexample import Unreadable, parsed, read
from fuzz.traces.reading import read_trace
from fuzz.traces.request import TraceError
from properties.attention.cases import Case, MalformedCase

PLAIN: dict[str, Any] = {
    "schema": 1,
    "configuration": {"num_blocks": 4, "block_size": 2},
    "operations": [{"op": "allocate", "request": "a", "tokens": [1, 2]}],
}


def reads(**changes: Any) -> None:
    parsed(json.dumps({**PLAIN, **changes}, indent=1), Path("file.json"))


def test_nesting_is_bounded_and_its_line_named() -> None:
    assert json_of("[" * bounds.DEPTH + "]" * bounds.DEPTH) is not None
    for depth in (bounds.DEPTH + 1, 100_000):
        with pytest.raises(TooMuch) as told:
            json_of("{\n" + '"a": "]]",\n "b":' + "[" * depth + "]" * depth + "}")
        assert told.value.line == 3


def test_long_integers_are_refused_and_long_digits_in_a_text_are_not() -> None:
    assert json_of(json.dumps("9" * 5000)) == "9" * 5000
    with pytest.raises(TooMuch, match="integer of 5,000 digits"):
        json_of(f'["{"9" * 200}",\n {"9" * 5000}]')


def test_a_large_file_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_text("x" * 101)
    with pytest.raises(TooMuch, match="more than 100 bytes"):
        text_of(path, 100)
    assert len(text_of(path, 101)) == 101


@pytest.mark.parametrize(
    "configuration",
    [
        {"num_blocks": bounds.BLOCKS + 1, "block_size": 1},
        {"num_blocks": 1, "block_size": bounds.BLOCK_SIZE + 1},
        {"num_blocks": bounds.BLOCKS, "block_size": 2 * bounds.SLOTS // bounds.BLOCKS},
    ],
)
def test_a_pool_is_bounded(configuration: dict[str, int]) -> None:
    with pytest.raises(Unreadable, match="allowed are"):
        reads(configuration=configuration)


def test_runs_of_tokens_are_bounded_one_by_one_and_together() -> None:
    one = {"op": "allocate", "request": "a", "tokens": [[0, bounds.TOKENS_OF_ONE]]}
    with pytest.raises(Unreadable, match=r"file\.json:\d+: 16,777,217 tokens"):
        reads(operations=[{**one, "tokens": [[0, bounds.TOKENS_OF_ONE], 7]}])
    with pytest.raises(Unreadable, match="tokens up to here"):
        reads(operations=[one] * 17)


def test_the_line_of_a_wrong_operation_is_named() -> None:
    with pytest.raises(Unreadable, match=r"file\.json:14: "):
        parsed(
            json.dumps({**PLAIN, "operations": [{"op": "reset"}, {"op": "reset"}, {"op": "nope"}]}, indent=1),
            Path("file.json"),
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("property", "NOPE"),
        ("property", 3),
        ("property", ["OWNERSHIP"]),
        ("at", "3"),
        ("at", -1),
        ("at", True),
        ("judging", []),
        ("judging", {"outside": 1}),
        ("judging", {"kernels": None}),
        ("versions", []),
        ("versions", {"python": 3}),
        ("target", None),
        ("target", 3),
        ("message", ["x"]),
        ("note", {}),
    ],
)
def test_a_value_of_another_type_or_a_property_that_there_is_not_is_an_error(field: str, value: Any) -> None:
    with pytest.raises(Unreadable, match=field):
        reads(**{field: value})


def test_fields_that_are_null_or_missing_are_at_their_default() -> None:
    reads(property=None, at=None, message=None, note=None, versions=None)
    reads()


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000,
        "workers = " + "9" * 5000,
        "workers = 100000",
        "x" * (bounds.PLAN + 1),
        "[[configurations]]\nmax_blocks = 50_000_000",
        "max_findings = 99999999999",
    ],
)
def test_a_plan_is_bounded(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(BadPlan, match=r"plan\.toml"):
        ready(str(path))


def test_a_baseline_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text("[" * 100_000)
    with pytest.raises(BadBaseline, match=r"baseline\.json"):
        Baseline.load(path)


_REQUEST = b'{"input_length": 1, "output_length": 1, "hash_ids": [0]}\n'


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (_REQUEST + b"x" * (bounds.LINE + 1), 2),
        (_REQUEST + b"\n" * (bounds.BLANKS + 1), bounds.BLANKS + 2),
        (b'{"input_length": 99999999999, "output_length": 1, "hash_ids": [0]}\n', 1),
        (b'{"hash_ids": ' + b"[" * 100_000 + b"\n", 1),
        (b'{"hash_ids": [' + b"9" * 6000 + b"]}\n", 1),
    ],
)
def test_a_trace_is_bounded_by_the_line(data: bytes, line: int, tmp_path: Path) -> None:
    for name, packed in (("plain", data), ("packed", gzip.compress(data))):
        path = tmp_path / name
        path.write_bytes(packed)
        with pytest.raises(TraceError) as told:
            read_trace(path)
        assert told.value.line == line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("head_dim", 10**9),
        ("head_dim", True),
        ("sequences", [[10**9, 1]]),
        ("dtype", "nope"),
        ("alibi", 1),
        ("rows", [16]),
        ("axes", [3]),
        ("softcap", "x"),
        ("window", 0),
        ("seed", -1),
    ],
)
def test_a_case_of_attention_is_bounded(name: str, value: Any) -> None:
    with pytest.raises(MalformedCase):
        Case.from_json(json.dumps({name: value}))


def test_many_tokens_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    run = {"op": "allocate", "request": "a", "tokens": [[5, 5000], 1, [7, 3, 0]]}
    path.write_text(json.dumps({**PLAIN, "operations": [run, {**run, "tokens": [[2**40, 5000]]}]}))
    first, second = read(path).operations
    assert list(first.tokens) == [*range(5, 5005), 1, 7, 7, 7]  # type: ignore[union-attr]
    assert second.tokens == tuple(range(2**40, 2**40 + 5000))  # type: ignore[union-attr]
