"""The command line as its users meet it: what it prints, what it writes, and its exit statuses."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fuzz.cli import app
from fuzz.engines.engine import Assignment
from fuzz.engines.registry import engine_of
from fuzz.engines.tally import Tally
from fuzz.runs.counterexample import read
from fuzz.runs.values import Judging
from properties.targets import load

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "fuzz" / "scenarios" / "six_moments.json"
BUILT_IN = ROOT / "fuzz" / "traces" / "multi_turn.jsonl"
STALE = ROOT / "docs" / "counterexamples" / "stale-index.json"
BROKEN = "fuzz.tests.broken:early"


def fuzz(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(argument) for argument in arguments])


def process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_a_clean_campaign_ends_with_0_and_leaves_a_page_and_a_summary(tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(BUILT_IN.read_text().splitlines(keepends=True)[:20]))
    result = fuzz("run", "--budget", "12s", "--seed", "7", "--trace", few, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "no violation in" in result.output
    assert "properties checked after every operation: FRESHNESS" in result.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == 0
    assert summary["findings"] == []
    assert set(summary["engines"]) == {"trace", "walk", "hypothesis", "namespaces", "keys", "kernels"}
    assert summary["operations"] == sum(row["operations"] for row in summary["engines"].values()) > 1000
    assert "endurance" in summary["properties"].pop("GROWTH")  # it takes longer than all the others
    assert set(summary["properties"].values()) == {"checked"}
    page = (tmp_path / "report.html").read_text()
    assert "No violation in" in page
    assert "http" not in page.replace("http-equiv", ""), "the page is self-contained"


def test_a_target_that_does_not_show_its_steps_runs_without_kernels(tmp_path: Path) -> None:
    """And never asks for them: a core that has imported Triton itself would be in their way."""
    target = "fuzz.tests.test_nano_vllm:older"
    result = fuzz("run", "--budget", "4s", "--seed", "7", "--target", target, "--out", tmp_path)
    assert "no kernels are run beside the allocator" in " ".join(result.output.split())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"walk", "hypothesis"} <= set(summary["engines"]) <= {"trace", "walk", "hypothesis"}


def test_a_violation_ends_with_1_and_a_short_counterexample_that_replays(tmp_path: Path) -> None:
    result = fuzz("run", "--engine", "walk", "--target", BROKEN, "--seed", "1", "--budget", "20s", "--out", tmp_path)
    assert result.exit_code == 1, result.output
    assert "OWNERSHIP" in result.output
    (path,) = (tmp_path / "findings").glob("OWNERSHIP-*/counterexample.json")
    assert f"python -m fuzz replay {path}" in result.output
    assert len(read(path).operations) == 2
    page = (tmp_path / "report.html").read_text()
    assert "dispatch step 1: a " in page

    again = fuzz("replay", path)
    assert again.exit_code == 1
    assert "OWNERSHIP: block 0 is in the index" in again.output
    fixed = fuzz("replay", path, "--target", "kvcore")
    assert fixed.exit_code == 0
    assert "OWNERSHIP no longer fails" in fixed.output


def test_outside_and_safety_find_the_harm_itself(tmp_path: Path) -> None:
    result = fuzz(
        "run", "--engine", "walk", "--target", BROKEN, "--seed", "1", "--outside", "--safety", "--out", tmp_path
    )
    assert result.exit_code == 1, result.output
    assert "not checked: REFERENCES" in result.output
    (path,) = (tmp_path / "findings").glob("PUBLISH-*/counterexample.json")
    assert len(read(path).operations) == 3


def test_the_hypothesis_engine_finds_it_too(tmp_path: Path) -> None:
    result = fuzz("run", "--engine", "hypothesis", "--target", BROKEN, "--seed", "1", "--out", tmp_path)
    assert result.exit_code == 1, result.output
    assert len(list((tmp_path / "findings").glob("OWNERSHIP-*/counterexample.json"))) == 1


def test_a_campaign_with_a_seed_repeats_itself(tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        flags = ("--max-findings", 1, "--shrink", 0, "--out", tmp_path / name)
        fuzz("run", "--engine", "walk", "--target", BROKEN, "--seed", "5", *flags)
        (path,) = (tmp_path / name / "findings").glob("*/counterexample.json")
        files.append(path.read_bytes())
    assert files[0] == files[1]


def test_a_counterexample_replays_identically_in_a_new_process(tmp_path: Path) -> None:
    flags = ("--max-findings", 1, "--shrink", 0, "--out", tmp_path)
    fuzz("run", "--engine", "walk", "--target", BROKEN, "--seed", "3", *flags)
    (path,) = (tmp_path / "findings").glob("*/counterexample.json")
    outputs = [process("replay", "--json", path, PYTHONHASHSEED=str(seed)) for seed in (1, 2)]
    assert outputs[0].returncode == 1
    assert outputs[0].stdout == outputs[1].stdout
    replayed = json.loads(outputs[0].stdout)
    stored = read(path)
    assert replayed["property"] is not None
    assert len(replayed["steps"]) <= len(stored.operations)


def test_the_six_moments_of_a_block_are_walked_through() -> None:
    result = fuzz("replay", SCENARIO)
    assert result.exit_code == 0, result.output
    table = [line.split("│") for line in result.output.splitlines() if line.startswith("│")]
    block_0 = [row[4].strip() for row in table if row[4].strip().startswith("0:")]
    assert block_0 == [
        "0: active×1  · · · ·  a",
        "0: active×1  0 1 2 3  a",
        "0: active×1= 0 1 2 3  a",
        "0: active×2= 0 1 2 3  a,b",
        "0: active×1= 0 1 2 3  a",
        "0: cached  = 0 1 2 3",
        "0: active×1= 0 1 2 3  c",
        "0: cached  = 0 1 2 3",
        "0: active×1  0 1 2 3  d",
        "0: active×1  7 7 7 7  d",
    ]


def test_replay_as_json_has_every_step(tmp_path: Path) -> None:
    result = fuzz("replay", "--json", SCENARIO)
    data = json.loads(result.output)
    assert data["status"] == 0
    assert [step["outcome"] for step in data["steps"]][:10] == ["done"] * 10
    assert data["steps"][3]["blocks"][0]["references"] == 2


def test_a_file_with_a_line_deleted_still_replays(tmp_path: Path) -> None:
    lines = SCENARIO.read_text().splitlines(keepends=True)
    path = tmp_path / "edited.json"
    path.write_text("".join(line for line in lines if '"dispatch", "step": 1' not in line))
    result = fuzz("replay", path)
    assert result.exit_code == 0, result.output
    assert "skipped:" in result.output
    assert "1 operations skipped" in result.output


def test_what_a_run_leaves_is_taken_by_every_command(tmp_path: Path) -> None:
    """In this process as on workers: clean, and with a bug that is accepted and promoted."""
    clean, broken = tmp_path / "clean", tmp_path / "broken"
    assert fuzz("run", "--engine", "walk", "--budget", "1s", "--out", clean).exit_code == 0
    flags = ("--seed", "1", "--max-findings", "1")
    found = fuzz("run", "--engine", "walk", "--target", "fuzz.zoo:NV-1", *flags, "--out", broken)
    assert found.exit_code == 1, found.output
    (finding,) = (broken / "findings").iterdir()
    assert fuzz("promote", finding, "--to", tmp_path / "kept").exit_code == 0
    for out in (clean, broken):
        for command in ("accept", "report", "tidy"):
            done = fuzz(command, "--out", out)
            assert done.exit_code == 0, f"{command}: {done.output}"
        assert fuzz("report", "--history", "--out", out).exit_code == 0
    again = fuzz("run", "--engine", "walk", "--target", "fuzz.zoo:NV-1", "--budget", "2s", "--out", broken)
    assert again.exit_code == 5, again.output


def test_what_is_promoted_in_a_project_of_ones_own_is_a_test_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fuzz("promote", STALE, "--name", "stale index", "--note", "ours")
    assert done.exit_code == 0, done.output
    assert read(tmp_path / "regressions" / "stale_index.json").note == "ours"
    test = Path("regressions", "test_stale_index.py")
    assert f"pytest {test}" in " ".join(done.output.split())
    for target, status in (("fuzz.zoo:NV-1", 1), ("kvcore", 0)):
        test.write_text(re.sub(r"load\('[^']*'\)", f"load({target!r})", test.read_text()))
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-qvv", str(test)], capture_output=True, text=True, cwd=tmp_path
        )
        assert ran.returncode == status, ran.stdout + ran.stderr
        assert ("its content is not published" in ran.stdout) == bool(status)
    assert fuzz("promote", STALE, "--name", "stale index").exit_code == 2, "its name is taken"
    assert not Path("fuzz").exists(), "a folder of our name would be in the way of ours"


def test_a_named_campaign_that_goes_on_says_the_seed_that_it_has(tmp_path: Path) -> None:
    flags = ("--engine", "walk", "--budget", "1s", "--out", tmp_path)
    assert fuzz("run", "--campaign", "commit", "--workers", 1, "--seed", "77", *flags).exit_code == 0
    journal = json.loads((tmp_path / "campaign.json").read_text())
    (tmp_path / "campaign.json").write_text(json.dumps(journal | {"ended": False, "seconds": 0.5, "seed": "78"}))
    again = fuzz("run", "--resume", "--campaign", "nightly", "--workers", 1, *flags)
    assert again.exit_code == 0, again.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "seed 78" in again.output and summary["seed"] == "78"
    assert "--seed 78" in summary["command"]
    (tmp_path / "campaign.json").write_text(json.dumps(journal | {"ended": False}))
    other = fuzz("run", "--resume", "--seed", "5", *flags)
    assert other.exit_code == 2 and "77" in other.output, "another seed than it would use is refused"


def test_the_version_is_said() -> None:
    said = fuzz("--version")
    assert said.exit_code == 0
    assert f"Python {platform.python_version()}" in said.output


def test_the_example_is_a_core_with_its_adapter() -> None:
    assert "class ToyTarget(Adapter)" in fuzz("example").output


def test_a_summary_of_an_older_version_is_shown_and_not_accepted(tmp_path: Path) -> None:
    """Of a run in one process, before those were campaigns like all others."""
    old = {
        "schema": 1,
        "status": 1,
        "complaint": "",
        "target": "kvcore",
        "seed": "1",
        "profile": "nightly",
        "budget_seconds": 9.0,
        "seconds": 2.0,
        "operations": 12,
        "episodes": 1,
        "timeline": [],
        "trace": None,
        "engines": {"walk": {"operations": 12, "seconds": 2.0, "operations_per_second": 6}},
        "kinds": {},
        "refused": {},
        "skipped": {},
        "properties": {},
        "sometimes": {},
        "never_happened": [],
        "coverage": {},
        "findings": [
            {
                "file": "RELEASE-1.json",
                "property": "RELEASE",
                "message": "two blocks are held",
                "operations": 2,
                "operations_when_found": 9,
                "found_after_operations": 12,
                "engine": "walk",
                "seed": "1/3",
                "replay": "python -m fuzz replay RELEASE-1.json",
                "status": "new",
                "hits": 1,
                "replays": "3 of 3",
            }
        ],
        "versions": {},
    }
    (tmp_path / "summary.json").write_text(json.dumps(old))
    shown = fuzz("report", "--out", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "two blocks are held" in shown.output
    assert fuzz("accept", "--out", tmp_path).exit_code == 2
    (tmp_path / "summary.json").write_text(json.dumps({**old, "schema": 99}))
    assert fuzz("report", "--out", tmp_path).exit_code == 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("named", [False, True], ids=["no file", "a file"])
def test_unit_n_of_a_seed_is_the_same_operations_wherever_it_runs(workers: int, named: bool, tmp_path: Path) -> None:
    plan = tmp_path / "small.toml"
    # in_process is of an older version: such a file is read as it was, and runs on workers.
    plan.write_text(f'targets = ["{BROKEN}"]\nmax_findings = 1\nin_process = true\n[engines]\nwalk = 1\n')
    given = ("--campaign", plan) if named else ("--engine", "walk", "--target", BROKEN, "--max-findings", 1)
    flags = ("--workers", workers, "--out", tmp_path)
    result = fuzz("run", "--seed", 5, "--shrink", 0, "--budget", "60s", *given, *flags)
    assert result.exit_code == 1, result.output
    found = read(next((tmp_path / "findings").glob("*/found.json")))
    seed, _, unit = found.seed.rpartition("/")
    assert seed == (f"5/{BROKEN}/all" if named else "5")
    assignment = Assignment(load(BROKEN), BROKEN, seed, Judging(), Tally(), lambda: 0.0, 1.0, first=int(unit), count=1)
    again, _ = engine_of("walk").hunt(assignment)
    assert again == replace(found, note="", policy={})


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "no-such-file.json"),
        ("run", "--target", "no_such_core"),
        ("run", "--target", "json:no_such_factory"),
        ("run", "--budget", "soon"),
        ("run", "--budget", "-3"),
        ("run", "--budget", "nan"),
        ("run", "--memory", "nan", "--workers", "2"),
        ("run", "--engine", "magic"),
        ("run", "--trace", "no-such-trace.jsonl"),
        ("trace", "no-such-trace.jsonl"),
        ("trace", "--block-size", "0"),
        ("frobnicate",),
    ],
    ids=" ".join,
)
def test_usage_errors_end_with_2(arguments: tuple[str, ...]) -> None:
    assert fuzz(*arguments).exit_code == 2


def test_unreadable_files_say_where(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(SCENARIO.read_text().replace('"op": "free", "request": "b"', '"op": "free", "request": 7'))
    result = process("replay", path)
    assert result.returncode == 2
    assert f"{path}:27: free: request must be a string, got 7" in result.stderr
    trace = tmp_path / "bad.jsonl"
    trace.write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n{"input_length": 1\n'
    )
    result = process("trace", trace)
    assert result.returncode == 2
    assert "bad.jsonl" in result.stderr
    assert "2" in result.stderr


def test_nothing_executed_ends_with_4(tmp_path: Path) -> None:
    result = fuzz("run", "--engine", "walk", "--budget", "0", "--out", tmp_path)
    assert result.exit_code == 4, result.output


def test_a_failure_of_the_harness_ends_with_3(tmp_path: Path) -> None:
    defect = "mock.patch('fuzz.cli.run.probe', side_effect=RuntimeError('a defect of ours')).start()"
    code = f"import fuzz.cli; from unittest import mock; {defect}; fuzz.cli.main()"
    command = [sys.executable, "-c", code, "run", "--engine", "walk", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 3, result.stdout + result.stderr
    assert "a defect of ours" in result.stderr
    assert "the harness itself failed" in result.stderr


def test_a_factory_that_fails_is_the_targets_fault_and_nothing_runs(tmp_path: Path) -> None:
    result = process("run", "--engine", "walk", "--target", "fuzz.tests.broken:factory", "--out", tmp_path)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "fuzz.tests.broken:factory" in result.stderr
    assert "this factory is broken" in result.stderr


def test_an_interrupted_campaign_ends_with_130_and_keeps_what_it_has(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz", "run", "--engine", "walk", "--budget", "60s", "--out", str(tmp_path)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    begun = tmp_path / "campaign.json"
    while not begun.exists() and running.poll() is None:
        time.sleep(0.1)
    time.sleep(2)  # it is at work
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130, output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == 130
    assert summary["operations"] > 0
    assert (tmp_path / "report.html").exists()


def test_the_trace_command_prints_its_figures() -> None:
    result = fuzz("trace", "--limit", "40", "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert figures["requests"] == 40
    bare = json.loads(fuzz("trace", "--limit", "40", "--json", "--no-checks").output)
    assert {key: bare[key] for key in ("hit_tokens", "evictions", "operations")} == {
        key: figures[key] for key in ("hit_tokens", "evictions", "operations")
    }


def test_every_command_has_help_with_examples() -> None:
    for command in ("run", "replay", "trace"):
        result = fuzz(command, "--help")
        assert result.exit_code == 0
        assert f"python -m fuzz {command}" in result.output
