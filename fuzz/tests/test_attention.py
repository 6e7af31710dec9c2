"""The stream of attention cases: the same for everybody, shrunk to little, and honest at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("triton")

from fuzz.cli import app
from fuzz.engines.attention import AttentionPlan, run_attention, shrink_case
from fuzz.engines.bench import CaseFinding, case_of, check_one
from fuzz.engines.engine import Assignment
from fuzz.engines.kernels import KernelsEngine
from fuzz.engines.tally import Tally
from fuzz.runs.counterexample import read, write
from fuzz.runs.perform import perform
from fuzz.runs.values import Counterexample, Judging
from properties.attention.cases import Case
from properties.attention.kernels import AXES
from properties.operations import Allocate, Complete, Configuration, Dispatch
from properties.targets import load

LYING = "fuzz.tests.lying:make"
HONEST = "fuzz.tests.lying:honest"
BAD = Case(
    sequences=((5, 5), (70, 3), (40, 1)),
    dtype="bfloat16",
    kv_heads=2,
    group=3,
    head_dim=40,
    block_size=7,
    window=50,
    softcap=30.0,
    alibi=True,
    layout="interleaved",
    fused=True,
    axes=("schedule", "poison"),
    seed=77,
)


def test_a_stream_is_a_function_of_its_seed() -> None:
    axes = tuple(AXES)
    assert case_of("1", 7, axes, 48) == case_of("1", 7, axes, 48)
    assert case_of("1", 7, axes, 48) != case_of("1", 8, axes, 48)
    assert case_of("1", 7, axes, 48) != case_of("2", 7, axes, 48)


def test_a_finding_is_shrunk_to_what_it_needs() -> None:
    found = check_one(LYING, BAD)
    assert found is not None
    assert found.property_id == "EQUIVALENCE"
    small = shrink_case(LYING, found)
    assert small.property_id == "EQUIVALENCE"
    # One sequence just over a leaf, one row, split: all else is at its default.
    assert small.case == Case(sequences=((33, 1),), axes=("schedule",))
    assert small.tried < 200


def test_shrinking_stops_when_it_is_late() -> None:
    found = CaseFinding("EQUIVALENCE", "", BAD)
    assert shrink_case(LYING, found, late=lambda: True) == found


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["attention", *arguments])
    return result.exit_code, result.output


def test_the_command_finds_shrinks_writes_and_replays(tmp_path: Path) -> None:
    code, output = run("--kernels", LYING, "--cases", "40", "--seed", "2", "--out", str(tmp_path), "--workers", "2")
    assert code == 1, output
    assert "EQUIVALENCE" in output
    summary = json.loads((tmp_path / "attention.json").read_text())
    (finding,) = summary["findings"][:1]
    assert finding["property"] == "EQUIVALENCE"
    assert len(finding["case"]["sequences"]) == 1
    paths = sorted((tmp_path / "findings").iterdir())
    assert paths
    code, output = run("--kernels", LYING, "--case", str(paths[0]))
    assert code == 1
    assert "row-heads of sequence 0 have other bits with" in output
    code, output = run("--kernels", HONEST, "--case", str(paths[0]), "--json")
    assert code == 0
    assert json.loads(output)["violation"] is None


def test_a_clean_run_says_what_it_compared(tmp_path: Path) -> None:
    code, output = run("--kernels", HONEST, "--cases", "8", "--seed", "2", "--out", str(tmp_path), "--json")
    assert code == 0, output
    summary = json.loads(output)
    assert (summary["cases"], summary["findings"]) == (8, [])
    assert summary["compared_row_heads"] == sum(summary["compared"].values()) > 0
    assert summary["plan"]["seed"] == "2"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--case", '{"heads": 3}'), "a case has no fields"),
        (("--case", "no-such-file.json"), "neither a JSON object nor the file of a finding"),
        (("--kernels", "nowhere"), "no target 'nowhere'"),
        (("--kernels", "fuzz.tests.lying:nothing"), "has no callable 'nothing'"),
    ],
)
def test_bad_arguments_are_usage_errors(arguments: tuple[str, ...], words: str) -> None:
    code, output = run(*arguments)
    assert (code, words in output) == (2, True), output


def test_the_engine_runs_every_step_on_kernels() -> None:
    tally = Tally()
    ticks = iter(range(1000))
    found, following = KernelsEngine().hunt(
        Assignment(
            load("kvcore"),
            "kvcore",
            "5",
            Judging(kernels=HONEST),
            tally,
            clock=lambda: float(next(ticks)),
            deadline=3.0,
        )
    )
    assert found is None
    assert following >= 2
    assert tally.by_engine == {"kernels": tally.operations}
    assert tally.skipped.get("no capability FILL", 0) >= 0


OPERATIONS = (
    Allocate("a", tuple(range(40))),
    Dispatch(1, (("a", 20),)),
    Dispatch(2, (("a", 20),)),
    Complete(1),
    Complete(2),
)


def test_a_counterexample_names_its_kernels_and_fails_on_them_alone(tmp_path: Path) -> None:
    configuration = Configuration(num_blocks=12, block_size=4)
    stored = Counterexample(configuration, OPERATIONS, "kvcore", judging=Judging(kernels=LYING))
    again = read(write(stored, tmp_path / "found.json"))
    assert again.judging == stored.judging
    run_lying = perform(load("kvcore"), configuration, again.operations, again.judging, strict=True)
    assert run_lying.violation is not None
    assert run_lying.violation.id == "EQUIVALENCE"
    honest = perform(load("kvcore"), configuration, again.operations, Judging(kernels=HONEST), strict=True)
    assert honest.violation is None
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["replay", str(tmp_path / "found.json")])
    assert result.exit_code == 1
    assert "EQUIVALENCE" in result.output


def test_kernels_that_cannot_even_store_are_a_finding_not_a_failure_of_the_harness(tmp_path: Path) -> None:
    """KN-17 breaks what the control of the poison needs; the cases say what is wrong."""
    done = CliRunner().invoke(
        app, ["attention", "--kernels", "fuzz.zoo:KN-17", "--cases", "2", "--shrink", "0", "--out", str(tmp_path)]
    )
    assert done.exit_code == 1, done.output
    assert "python -m fuzz attention --kernels fuzz.zoo:KN-17 --case" in done.output
    assert list((tmp_path / "findings").iterdir())


def test_kernels_that_end_their_process_are_found_and_the_run_goes_on(tmp_path: Path) -> None:
    plan = AttentionPlan("fuzz.tests.lying:deadly", "2", 3, budget=8, max_findings=0)
    result = run_attention(plan)
    assert {(found.property_id, found.message) for found in result.findings} == {
        ("CRASH", "the process that ran the kernels ended by itself with status 0")
    }
    assert result.following == 3
    assert result.counts["cases"] + len(result.findings) == 3
    assert all(max(rows for _, rows in found.case.sequences) > 1 for found in result.findings)


@pytest.mark.nightly
def test_a_crash_that_ends_its_process_is_shrunk_to_what_it_needs() -> None:
    bad = Case(sequences=((5, 5), (9, 1)), dtype="bfloat16", group=2, seed=3)
    found = check_one("fuzz.tests.lying:deadly", bad)
    assert found is not None
    small = shrink_case("fuzz.tests.lying:deadly", found)
    assert small.case == Case(sequences=((2, 2),))
    assert small.message == found.message


def test_exit_in_a_kernel_is_a_crash_that_says_where() -> None:
    found = check_one("fuzz.tests.lying:leaving", Case(sequences=((5, 5),)))
    assert found is not None
    assert found.property_id == "CRASH"
    assert "the kernels ended in SystemExit: 0" in found.message


def test_kernels_that_cannot_be_made_are_said_in_a_line(tmp_path: Path) -> None:
    for more in ((), ("--case", "{}")):
        code, output = run("--kernels", "fuzz.tests.lying:unmade", "--out", str(tmp_path), *more)
        assert code == 2
        assert "their factory ended in RuntimeError: no device here (at lying.py:" in output


def test_kernels_that_hide_poison_cannot_be_judged(tmp_path: Path) -> None:
    code, output = run("--kernels", "fuzz.tests.lying:blind", "--cases", "2", "--out", str(tmp_path))
    assert (code, "these kernels cannot be judged" in output) == (3, True), output
    assert "cannot be judged" in json.loads((tmp_path / "attention.json").read_text())["failure"]
