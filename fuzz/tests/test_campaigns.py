"""Campaigns on workers: what is found is never lost, whatever dies, and the exit status says how it went."""

from __future__ import annotations

import errno
import html
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from fuzz.campaign.campaign import Campaign
from fuzz.campaign.executor import Done, Making
from fuzz.campaign.folder import Busy, taken
from fuzz.campaign.history import History
from fuzz.campaign.outcome import CampaignResult
from fuzz.campaign.plan import CampaignPlan, Variant
from fuzz.campaign.supervisor import Workers
from fuzz.campaign.tasks import Died, Stream, Task
from fuzz.campaign.worker import executor_of, main, perform_task
from fuzz.cli import app
from fuzz.findings import store as findings_module
from fuzz.findings.baseline import Baseline
from fuzz.findings.signature import signature_of
from fuzz.findings.store import Finding, Findings
from fuzz.runs.bisect import bisected
from fuzz.runs.counterexample import read, write
from fuzz.runs.replayed import Replayed
from fuzz.show.page import render
from fuzz.tools.pictures import EARLY

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
WALK = CampaignPlan(
    "test", engines={"walk": 1.0}, seed="1", workers=1, budget=60.0, shrink=3.0, hang=60.0, memory=1 << 30, kernels=""
)
WITH_DEADLY = replace(WALK, configurations=(Variant("small", max_blocks=5, max_block_size=4),))


class Told:
    """A display that remembers."""

    def __init__(self) -> None:
        self.deaths: list[Died] = []
        self.files: list[Any] = []
        self.lines: list[str] = []
        self.figures: list[Any] = []

    def began(self, plan: CampaignPlan, adopted: int) -> None:
        self.adopted = adopted

    def progress(self, figures: Any) -> None:
        self.figures.append(figures)

    def found(self, hit: Any, stream: Any, after: int) -> None: ...

    def filed(self, finding: Any, first: bool) -> None:
        self.files.append(finding)

    def died(self, died: Died) -> None:
        self.deaths.append(died)

    def said(self, text: str) -> None:
        self.lines.append(text)


@contextmanager
def ending(until: Callable[[Campaign], object]) -> Iterator[None]:
    """The budget of a campaign in this process is over as soon as `until` says so: no test waits for a budget."""
    began: list[Campaign] = []
    prepare, ahead = Campaign._prepare, 0.0

    def prepared(self: Campaign) -> None:
        prepare(self)
        began.append(self)

    def now() -> float:
        nonlocal ahead
        if began and not ahead and until(began[0]):
            ahead = began[0].plan.budget
        return time.monotonic() + ahead

    with mock.patch.object(Campaign, "_prepare", prepared), mock.patch("fuzz.campaign.campaign.monotonic", now):
        yield


def night(
    out: Path,
    plan: CampaignPlan,
    told: Told | None = None,
    *,
    enough: int = 1,
    until: Callable[[Campaign], object] | None = None,
    executor: Making | None = None,
    **options: Any,
) -> CampaignResult:
    """A campaign that ends with its first finding, or when `until` says so."""
    plan = replace(plan, max_findings=0 if until else enough)
    with ending(until or (lambda campaign: False)):
        return Campaign(
            plan, out, time.monotonic, told or Told(), executor or executor_of(plan), now=lambda: NOW, **options
        ).run()


def fuzz(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(argument) for argument in arguments])


@contextmanager
def started(out: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A campaign in a process of its own, which is gone at the end."""
    command = [sys.executable, "-m", "fuzz", "run", "--out", out, "--engine", "walk", *arguments]
    running = subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def until(condition: Any, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def children(process: int) -> list[int]:
    """Worker processes of a campaign: those that have written a spool, not multiprocessing's own helper."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in listed if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


# ---- a clean one -----------------------------------------------------------------------------------------------------


def test_a_clean_campaign_uses_its_workers_and_leaves_what_ci_reads(tmp_path: Path) -> None:
    out = tmp_path / "night"
    engines = {"trace", "walk", "hypothesis", "namespaces", "keys"}
    flags = ("--workers", 2, "--budget", "60s", "--seed", "7", "--out", out, "--kernels", "none")
    with ending(lambda campaign: engines <= set(campaign.result.tally.by_engine)):
        result = fuzz("run", *flags, "--trace", _few(tmp_path))
    assert result.exit_code == 0, result.output
    assert "checked operations" in result.output
    assert "2 workers" in result.output
    assert "seed 7" in result.output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == 0
    assert set(summary["engines"]) == engines
    assert summary["operations"] == sum(row["operations"] for row in summary["engines"].values())
    assert summary["timeline"][-1]["operations"] == summary["operations"]
    assert set(summary["timeline"][-1]) == {"seconds", "operations", "by_engine", "findings"}
    assert set(summary["coverage"]["allocate"]) == {"free", "cached", "active", "shared", "published"}
    assert 0 < summary["busy"] <= 1
    suites = ElementTree.parse(out / "junit.xml").getroot()
    assert suites.get("failures") == suites.get("errors") == "0"
    assert "no violation" in (out / "summary.md").read_text()
    (campaign,) = History(out / "history.sqlite").campaigns()
    assert (campaign.seed, campaign.status, campaign.operations) == ("7", 0, summary["operations"])
    assert campaign.command == summary["command"]
    assert campaign.command.startswith("python -m fuzz run --kernels none --trace ")
    assert campaign.command.endswith(" --workers 2 --budget 60s --seed 7")
    shown = fuzz("report", "--history", "--out", out)
    assert shown.exit_code == 0
    assert "walk, a second and worker" in shown.output
    drawn = fuzz("report", "--history", "--out", out, "--html", out / "history.html")
    assert drawn.exit_code == 0, drawn.output
    assert campaign.command in html.unescape((out / "history.html").read_text())
    assert fuzz("report", "--out", out, "--html", out / "history.html").exit_code == 2
    assert (out / "report.html").exists()


def _few(folder: Path) -> Path:
    few = folder / "few.jsonl"
    few.write_text("".join((ROOT / "fuzz/traces/multi_turn.jsonl").read_text().splitlines(keepends=True)[:20]))
    return few


@pytest.mark.parametrize("engine", ["walk", "hypothesis", "explore"])
def test_a_task_is_a_function_of_its_seed_and_units(engine: str, tmp_path: Path) -> None:
    stream = Stream("fuzz.zoo:NV-7", engine, "all", "5", max_states=200)
    results = []
    for name in ("one", "two"):
        task = Task("hunt", 1, stream, str(tmp_path / name), 1e9, first=3, count=2)
        result = perform_task(task)
        assert not result.error, result.error
        (tmp_path / name).mkdir(exist_ok=True)
        files = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        hits = [(hit.key, hit.message, hit.unit, hit.operations) for hit in result.hits]
        results.append((result.tally.by_engine, result.tally.kinds, result.tally.coverage, hits, files))
    assert results[0] == results[1]
    assert results[0][3]


# ---- findings --------------------------------------------------------------------------------------------------------


def test_a_bug_is_one_finding_however_often_it_is_hit_and_goes_through_its_statuses(tmp_path: Path) -> None:
    out = tmp_path / "night"
    plan = replace(WALK, targets=("fuzz.zoo:NV-1",), workers=2, shrink=30.0)
    result = night(out, plan, until=lambda campaign: sum(one.hits for one in campaign.findings.now()) >= 100)
    assert result.status == 1
    (finding,) = result.findings
    assert (finding.status, finding.replays, finding.hits >= 100) == ("new", "3 of 3", True)
    assert finding.signature.property_id == "OWNERSHIP"
    assert len(finding.counterexample.operations) == 5
    assert len(list(finding.directory.glob("found*.json"))) <= plan.keep.examples
    assert not any(path.suffix == ".json" for path in (out / "spool" / "hits").rglob("*")), "all were settled"
    assert "core: ×1 =" in (finding.directory / "state.txt").read_text()
    failure = ElementTree.parse(out / "junit.xml").getroot().find(".//failure")
    assert failure is not None and failure.get("type") == "OWNERSHIP"

    # The pytest test fails while the bug is there, and passes on a core without it.
    (test,) = finding.directory.glob("test_*.py")
    fixed = test.with_name("test_fixed.py")
    fixed.write_text(test.read_text().replace("fuzz.zoo:NV-1", "kvcore"))
    assert _pytest(test, fixed) == {test.name: "failure", fixed.name: ""}
    fixed.unlink()

    # Promoted, accepted, known, fixed, regressed.
    promoted = fuzz("promote", finding.directory, "--to", tmp_path / "kept", "--target", "kvcore", "--name", "one bug")
    assert promoted.exit_code == 0, promoted.output
    assert read(tmp_path / "kept" / "one_bug.json").target == "kvcore"
    assert fuzz("promote", finding.directory, "--to", tmp_path / "kept", "--name", "one bug").exit_code == 2
    accepted = fuzz("accept", "--out", out)
    assert accepted.exit_code == 0, accepted.output

    again = night(out, replace(plan, seed="2"), until=lambda campaign: campaign.findings.now())
    assert again.status == 5, again.complaint
    assert [one.status for one in again.findings] == ["known"]
    assert again.findings[0].total > again.findings[0].hits

    baseline = Baseline.load(out / "baseline.json")
    ((id, entry),) = baseline.entries.items()
    fixed_entry = replace(entry, counterexample=replace(entry.counterexample, target="kvcore"))
    Baseline({id: fixed_entry}).write(out / "fixed.json")
    fixed = night(
        tmp_path / "fixed",
        WALK,
        baseline=out / "fixed.json",
        until=lambda campaign: campaign.result.fixed and campaign.result.tally.operations,
    )
    assert fixed.status == 0, fixed.complaint
    assert [one.id for one in fixed.fixed] == [id]

    Baseline({id: replace(entry, status="fixed")}).write(out / "regressed.json")
    regressed = night(tmp_path / "regressed", plan, baseline=out / "regressed.json")
    assert regressed.status == 1
    assert [one.status for one in regressed.findings] == ["regressed"]


def _pytest(*files: Path) -> dict[str, str]:
    """For each file, what became of its test: "failure", or "" if it has passed."""
    report = files[0].parent / "tests.xml"
    flags = ["-q", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, f"--junit-xml={report}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "pytest", *flags, *files],
        cwd=files[0].parent,
        capture_output=True,
        env=environment,
        check=False,
    )
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    report.unlink()
    return {f"{case.get('classname')}.py": "".join(one.tag for one in case) for case in cases}


def test_two_bugs_at_a_time_are_two_findings(tmp_path: Path) -> None:
    plan = replace(WALK, targets=("fuzz.tests.deadly:two",), budget=90.0, seed="18")  # which meets the rare one soon
    result = night(tmp_path, plan, enough=2)
    assert sorted(one.signature.property_id for one in result.findings) == ["ERRORS", "OWNERSHIP"]


def test_a_bug_that_is_met_in_two_ways_is_one_finding(tmp_path: Path) -> None:
    """KC-10 replaces a tail that nobody else holds: by the policy a wrong block, or one that a full pool has not."""
    told = Told()
    plan = replace(WALK, targets=("fuzz.zoo:KC-10",), budget=90.0)
    result = night(tmp_path, plan, told, until=lambda campaign: "another way" in "".join(told.lines))
    (finding,) = result.findings
    assert {one.signature.property_id for one in finding.symptoms} == {"EXACT", "ADMISSION"}
    for variant in finding.variants:
        assert read(finding.variant_path(variant.signature)).property_id == variant.signature.property_id
    assert any(line.startswith(f"{finding.signature.name} was met in another way: ") for line in told.lines)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert len(summary["findings"]) == 1
    assert fuzz("accept", "--out", tmp_path).exit_code == 0
    (entry,) = Baseline.load(tmp_path / "baseline.json").entries.values()
    assert list(entry.symptoms) == finding.symptoms

    # Met again, by whichever: known; in the folder of another campaign, too.
    for name in (".", "elsewhere"):
        again = night(
            tmp_path / name,
            replace(plan, seed="2"),
            until=lambda campaign: sum(one.hits for one in campaign.findings.now()) >= 8,
            baseline=tmp_path / "baseline.json",
        )
        assert again.status == 5, again.verdict
        assert {one.known_as for one in again.findings} == {finding.signature.id}


def test_what_fails_now_and_then_is_kept_and_said(tmp_path: Path) -> None:
    result = night(tmp_path, replace(WALK, targets=("fuzz.tests.deadly:flaky",)))
    assert result.status == 1
    flaky = [one for one in result.findings if one.replays in ("1 of 3", "2 of 3")]
    assert flaky
    assert "flaky" in (flaky[0].directory / "README.md").read_text()


def test_only_the_properties_that_were_asked_for_count(tmp_path: Path) -> None:
    plan = replace(WALK, targets=("fuzz.zoo:NV-3",), properties=("LIFETIME",))
    result = night(tmp_path, plan, until=lambda campaign: campaign.result.not_counted)
    assert result.status == 0
    assert result.not_counted["RECOMPUTE"] > 0


def test_a_property_that_was_asked_for_is_found_behind_one_that_was_not(tmp_path: Path) -> None:
    """Every episode that meets a stale entry of the index ends there, if that is looked at."""
    plan = replace(WALK, targets=("fuzz.zoo:NV-1",), properties=("PUBLISH",))
    result = night(tmp_path, plan, enough=1)
    assert result.status == 1
    assert {one.counterexample.judging.outside for one in result.findings} == {True}
    assert result.not_counted["OWNERSHIP"] > 0


def test_workers_are_renewed_and_tasks_go_on(tmp_path: Path) -> None:
    with Workers(1, tmp_path, time.monotonic, main, renewed=2) as workers:
        pids = []
        for number in range(5):
            until(workers.idle)
            pids += workers.pids()
            workers.submit(Task("hunt", number, Stream("kvcore", "walk", "all", "1"), str(tmp_path), 9.0, first=number))
            (done,) = until(lambda: workers.events(0.1))
            assert isinstance(done, Done)
            assert done.result.following == number + 1
    assert [len(set(pids[:2])), len(set(pids))] == [1, 3]
    assert not workers.pids()


# ---- what dies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "how", "replays", "hang"),
    [
        ("killed", "was killed by SIGKILL", "3 of 3", 60.0),
        ("outgrows", "ran out of memory", "3 of 3", 60.0),
        ("hangs", "hung: not a word for 4 seconds", "3 of 3", 4.0),
    ],
)
def test_a_worker_that_dies_is_a_finding_with_its_operations(
    target: str, how: str, replays: str, hang: float, tmp_path: Path
) -> None:
    told = Told()
    plan = replace(
        WITH_DEADLY,
        targets=(f"fuzz.tests.deadly:{target}",),
        budget=300.0,
        shrink=60.0,
        hang=hang,
        memory=300 << 20,
        workers=2,
    )
    result = night(tmp_path, plan, told)
    assert told.deaths[0].how == how
    assert result.status == 1, result.complaint
    (finding,) = result.findings
    assert finding.signature.property_id == "CRASH"
    assert finding.counterexample.message == f"its process {how}"
    assert finding.replays == replays
    assert result.tally.operations > 0, "another worker has gone on"
    if target != "outgrows":  # which dies before its first operation
        assert finding.signature.operation == "reset"
        found = read(finding.path)
        assert found.operations[-1].op == "reset"
        assert finding.length_found >= len(found.operations)
        if target == "killed":
            assert [operation.op for operation in found.operations] == ["allocate", "reset"], told.lines
            assert read(finding.directory / "found.json").operations[-1].op == "reset"
        assert (found.configuration.num_blocks, found.configuration.block_size) == (5, 4)
    if target == "killed":
        assert bisected(finding.path, "", 60.0)[0] == 1
        assert bisected(finding.path, "kvcore", 60.0)[0] == 0


def test_dying_of_what_one_is_at_is_no_failure_of_the_harness(tmp_path: Path) -> None:
    """However often: a campaign on a target that often dies goes on, and shrinks what it has found."""
    with Workers(1, tmp_path, time.monotonic, main) as workers:
        for number in (1, 2):
            until(workers.idle)
            stream = Stream("fuzz.tests.deadly:killed", "walk", "all", "1")
            workers.submit(Task("hunt", number, stream, str(tmp_path), 60.0, count=100_000))
            (died,) = until(lambda: workers.events(0.1))
            assert isinstance(died, Died)
            assert died.unit >= 0
            assert workers.deaths() == 0


def test_a_target_that_no_worker_survives_ends_the_campaign_with_a_finding(tmp_path: Path) -> None:
    result = night(tmp_path, replace(WALK, targets=("fuzz.tests.deadly:unloadable",)))
    assert result.status == 1
    assert [one.counterexample.message for one in result.findings] == ["its process ended by itself with status 9"]


def test_memory_that_the_target_exhausts_is_an_ordinary_finding(tmp_path: Path) -> None:
    plan = replace(WITH_DEADLY, targets=("fuzz.tests.deadly:hoards",), budget=60.0, memory=300 << 20)
    result = night(tmp_path, plan)
    assert result.status == 1
    assert all(one.counterexample.message.startswith("reset ended in MemoryError") for one in result.findings)
    assert len(result.findings) == 1
    assert not result.deaths


def test_a_worker_that_somebody_kills_is_replaced_and_said_and_no_finding(tmp_path: Path) -> None:
    flags = ("--workers", 2, "--budget", "8s", "--kernels", "none", "--seed", "3")
    with started(tmp_path, *flags) as running:
        (victim, _) = until(lambda: children(running.pid) if len(children(running.pid)) == 2 else None)
        until(lambda: list((tmp_path / "spool").glob("worker-*.json")))
        until(lambda: '"beat": 2' in "".join(path.read_text() for path in (tmp_path / "spool").glob("worker-*.json")))
        os.kill(victim, signal.SIGKILL)
        output, _ = running.communicate(timeout=90)
    assert running.returncode == 0, output
    assert "a worker was killed by SIGKILL" in output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not summary["findings"], "the target had no part in it"
    assert summary["dead_workers"][0]["how"] == "was killed by SIGKILL"
    assert summary["operations"] > 0


def test_nothing_executed_is_said(tmp_path: Path) -> None:
    assert night(tmp_path, replace(WALK, budget=0.0)).status == 4


# ---- what is found on a device ---------------------------------------------------------------------------------------


def test_what_was_found_on_a_device_is_replayed_without_one(tmp_path: Path) -> None:
    """There is no device: the worker is told that it has one, and the target fails only where it is told so."""
    plan = replace(WALK, targets=("fuzz.tests.deadly:on_a_device",), devices=("0",), shrink=1.0)
    result = night(tmp_path, plan, until=lambda campaign: any(one.interpreted for one in campaign.findings.now()))
    (finding,) = result.findings
    assert finding.counterexample.device == "CUDA device 0"
    assert read(finding.path).device == "CUDA device 0"
    entry = json.loads((finding.directory / "finding.json").read_text())
    assert (entry["interpreter"]["outcome"], entry["replays"]) == ("clean", "3 of 3")
    told = "found on CUDA device 0: passes in the interpreter, on the CPU"
    for text in (
        (tmp_path / "summary.md").read_text(),
        (tmp_path / "junit.xml").read_text(),
        (finding.directory / "README.md").read_text(),
        render(result.to_json(), [finding.counterexample], tmp_path / "report.html").read_text(),
    ):
        assert told in text.replace("Found", "found")
    stored = Findings(tmp_path / "findings", plan.keep, NOW)
    assert [one.interpreter for one in stored] == [finding.interpreter]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ("same", "reproduces in the interpreter"),
        ("other", "breaks another property in the interpreter: EXACT fails"),
        ("not run", "not replayed in the interpreter: EXACT fails"),
    ],
)
def test_what_a_replay_without_the_device_says(
    outcome: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told_so(file: Path, target: str, *, environment: dict[str, str], **_: Any) -> Replayed:
        assert (environment["TRITON_INTERPRET"], environment["CUDA_VISIBLE_DEVICES"]) == ("1", "")
        assert target == EARLY.target, "whoever began the campaign has named it"
        return Replayed(outcome, "EXACT fails")

    monkeypatch.setattr("fuzz.campaign.settle.replayed", told_so)
    stored = replace(EARLY, device="CUDA device 3")
    task = Task("interpret", 1, None, str(tmp_path), 60.0, path=str(write(stored, tmp_path / "found.json")))
    finding = Finding(signature_of(stored), stored, tmp_path)
    assert finding.interpreter is not None and "there was no time" in finding.interpreter["told"]
    finding.interpreted = perform_task(task).interpreted
    assert finding.interpreter["told"].startswith(told)
    assert Finding(signature_of(stored), replace(stored, device=""), tmp_path).interpreter is None


# ---- what is interrupted ---------------------------------------------------------------------------------------------


def test_ctrl_c_keeps_everything_and_resume_goes_on(tmp_path: Path) -> None:
    flags = ("--workers", 2, "--target", "fuzz.zoo:NV-1", "--budget", "60s", "--shrink", "30s")
    with started(tmp_path, *flags) as running:
        until(lambda: list((tmp_path / "spool" / "hits").rglob("*.json")))
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=30)
    assert running.returncode == 130, output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == 130
    assert [entry["property"] for entry in summary["findings"]] == ["OWNERSHIP"]
    assert list((tmp_path / "findings").glob("*/counterexample.json"))

    journal = json.loads((tmp_path / "campaign.json").read_text())
    assert not journal["ended"]
    again = fuzz(
        *("run", "--resume", "--target", "fuzz.zoo:NV-1", "--engine", "walk", "--budget", "60s", "--out", tmp_path),
        *("--max-findings", 1),
    )
    assert again.exit_code == 1, again.output
    resumed = json.loads((tmp_path / "summary.json").read_text())
    assert (resumed["seed"], resumed["targets"], list(resumed["engines"])) == (
        journal["seed"],
        ["fuzz.zoo:NV-1"],
        ["walk"],
    )
    ended = fuzz("run", "--resume", "--out", tmp_path, "--budget", "1s")
    assert ended.exit_code == 2
    assert "no campaign in" in ended.output


def test_a_supervisor_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    flags = ("--workers", 2, "--target", "fuzz.zoo:NV-1", "--budget", "60s", "--shrink", "60s")
    with started(tmp_path, *flags) as running:
        hits = until(lambda: sorted((tmp_path / "spool" / "hits").rglob("*.json")))
        workers = children(running.pid)
        running.kill()
        running.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() and _alive(pid) for pid in workers))
    assert hits
    told = Told()
    result = night(tmp_path, WALK, told)
    assert told.adopted >= 1
    assert result.status == 1
    assert [one.signature.property_id for one in result.findings] == ["OWNERSHIP"]
    campaigns = History(tmp_path / "history.sqlite").campaigns()
    assert [one.status for one in campaigns] == [None, 1]
    assert campaigns[0].complaint.startswith("killed")


def _alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_one_campaign_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    with taken(tmp_path), pytest.raises(Busy, match="another command"):
        night(tmp_path, WALK)
    assert night(tmp_path, replace(WALK, budget=0.0)).status == 4


def test_what_a_killed_worker_had_of_its_own_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever explores does so in the campaign's folder, and leaves nothing elsewhere."""
    hits = tmp_path / "spool" / "hits" / "1"

    def killed(plan: Any, *_: Any) -> None:
        shutil.copytree(plan.out, plan.out.with_name(plan.out.name + "-left"))
        raise ValueError("here it dies")

    monkeypatch.setattr("fuzz.engines.explore.explore", killed)
    result = perform_task(Task("hunt", 1, Stream("kvcore", "explore", "all", "1"), str(hits), 9.0))
    assert "here it dies" in result.error
    (left,) = hits.iterdir()
    assert left.name.endswith("-left")
    night(tmp_path, replace(WALK, budget=0.0))
    assert not left.exists()


# ---- the disk --------------------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_for_a_moment_costs_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, reserve = findings_module.write, tmp_path / "reserve"

    def full(counterexample: Any, path: Path) -> Path:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(counterexample, path)

    monkeypatch.setattr(findings_module, "write", full)
    result = night(tmp_path, replace(WALK, targets=("fuzz.zoo:NV-1",)))
    assert result.status == 1
    assert "No space left on device" in result.complaint
    assert result.findings[0].path.exists()
    assert not result.unsaved


def test_what_no_disk_takes_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(counterexample: Any, path: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(findings_module, "write", full)
    result = night(tmp_path, replace(WALK, targets=("fuzz.zoo:NV-1",)))
    assert result.status == 1
    assert result.unsaved
    for line in result.unsaved:
        (tmp_path / "printed.json").write_text(line)
        assert read(tmp_path / "printed.json").property_id == "OWNERSHIP"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 8 MiB, where that may be made."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=False)


def test_a_real_disk_that_fills_up(small_disk: Path) -> None:
    out = small_disk / "night"

    class Filling(Told):
        def progress(self, figures: Any) -> None:
            if (small_disk / "filler").exists() and (out / "reserve").exists():
                self.found(None, None, 0)  # what is given up for findings is theirs

        def found(self, hit: Any, stream: Any, after: int) -> None:
            with suppress(OSError), (small_disk / "filler").open("ab", buffering=0) as file:
                while True:
                    file.write(b"\0" * 4096)

    result = night(out, replace(WALK, targets=("fuzz.zoo:NV-1",)), Filling(), enough=0)
    assert result.status == 1
    assert "No space left on device" in result.complaint
    assert [one.path.exists() for one in result.findings] == [True]
    assert read(result.findings[0].path).property_id == "OWNERSHIP"

    full = night(out, WALK)
    assert full.status == 3, "there is no room for findings"
    (small_disk / "filler").unlink()
    after = night(out, replace(WALK, targets=("fuzz.zoo:NV-1",)))
    assert after.status == 1, after.complaint
    assert after.findings[0].total > after.findings[0].hits, "the first finding is there still"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))  # type: ignore[attr-defined]
    result = night(tmp_path, WALK)
    assert result.status == 3
    assert "1,000 bytes are free" in result.complaint


# ---- the machine's statuses of bisecting -----------------------------------------------------------------------------


def test_bisect_maps_every_outcome(tmp_path: Path) -> None:
    bug = "fuzz.zoo:NV-7"
    night(tmp_path / "night", replace(WALK, targets=(bug,)))
    (path,) = (tmp_path / "night" / "findings").glob("*/counterexample.json")
    assert bisected(path, "", 60)[0] == 1
    assert bisected(path, "kvcore", 60)[0] == 0
    status, said = bisected(path, "fuzz.tests.broken:factory", 60)
    assert (status, said[:4]) == (125, "skip"), said
    other = write(replace(read(path), property_id="HISTORY"), tmp_path / "other.json")
    assert bisected(other, "", 60) == (125, "skip: OWNERSHIP fails, and HISTORY is looked for")
    assert bisected(path, "kvcore", 0.01)[0] == 125
    assert bisected(tmp_path / "none.json", "", 60)[0] == 125
    assert fuzz("replay", "--bisect", path).exit_code == 1


def test_bisect_skips_what_does_not_even_load(tmp_path: Path) -> None:
    broken = tmp_path / "fuzz"
    broken.mkdir()
    (broken / "__init__.py").write_text("")
    shutil.copyfile(ROOT / "fuzz" / "__main__.py", broken / "__main__.py")
    (broken / "cli.py").write_text("this is no Python")
    command = [sys.executable, "-m", "fuzz", "replay", "--bisect", "x.json"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 125
    assert subprocess.run(command[:-2], cwd=tmp_path, capture_output=True, check=False).returncode in (2, 3)


def test_the_coverage_guided_engine_finds_and_counts(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    hits = tmp_path / "hits" / "1"
    hits.mkdir(parents=True)
    for target, found in (("fuzz.zoo:NV-7", True), ("kvcore", False)):
        stream = Stream(target, "atheris", "all", "5")
        result = perform_task(Task("hunt", 1, stream, str(hits), 4.0))
        assert not result.error, result.error
        assert result.tally.by_engine["atheris"] > 0
        assert bool(result.hits) == found
        assert list((tmp_path / "corpus").iterdir())
