"""The audit says the same twice, goes on where it stopped, and reports what it must: survivors, and the canary."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fuzz import zoo
from fuzz.audit import audit as audits
from fuzz.audit.audit import Audit, Plan, Row, Trial, audit
from fuzz.cli import app
from fuzz.zoo import find
from fuzz.zoo.planting import Change

FEW = ("NV-12", "NV-13", "NV-7")


def table(result: Audit) -> dict[str, Any]:
    """The audit's figures without times."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(entry) for name, entry in value.items() if "seconds" not in name}
        return [without(entry) for entry in value] if isinstance(value, list) else value

    cleaned: dict[str, Any] = without(result.to_json())
    return cleaned


def test_two_audits_give_the_same_table(tmp_path: Path) -> None:
    """Also where more workers take the trials in another order, and where one goes on after an interruption."""
    plan = Plan(FEW, tmp_path / "one", seeds=("1", "2"), canary=False)
    first = audit(plan)
    assert table(audit(replace(plan, out=tmp_path / "two", workers=2))) == table(first)
    assert not first.survivors
    assert [row.by for row in first.rows] == ["ADMISSION", "EXACT", "OWNERSHIP"]

    kept = plan.out / "trials.jsonl"
    lines = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    kept.write_text("".join(lines[:5]) + lines[5][:20], encoding="utf-8")
    done: list[int] = []
    again = audit(plan, resume=True, progress=lambda number, *_: done.append(number))
    assert table(again) == table(first)
    assert done[-1] == len(lines) and len(done) == len(lines) - 5


def test_the_canary_is_reported(tmp_path: Path) -> None:
    result = audit(Plan(("NV-12",), tmp_path, engines=("walk",), seeds=("1",), workers=2))
    assert 1 <= len(result.canary) <= 0.03 * audits.CANARY_SEEDS
    assert result.canary_reported
    assert not Audit(result.plan, result.rows, []).canary_reported
    assert not Audit(result.plan, result.rows, [(1, "EXACT")]).canary_reported


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["audit", *arguments])


def test_a_bug_in_detail(tmp_path: Path) -> None:
    done = invoke("--bug", "nv-7", "--seeds", "1", "--workers", "1", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    for part in ("nano-vllm PR 209", "+            self._publish(sequence)", "OWNERSHIP", "dispatch step 1", "replay"):
        assert part in done.output
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert 'id="NV-7"' in page and "self._publish(sequence)" in page and "dispatch step 1" in page
    data = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert data["bugs"][0]["id"] == "NV-7" and len(data["bugs"][0]["trials"]) == 2
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| NV-7 |" in text


def test_what_survives_is_a_violation(tmp_path: Path) -> None:
    done = invoke("--bug", "VL-30", "--limit", "1", "--seeds", "1", "--engine", "walk", "--out", str(tmp_path))
    assert done.exit_code == 1, done.output
    assert "survives: VL-30" in done.output


def test_a_bug_that_no_longer_applies_ends_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = replace(find("NV-7"), changes=(Change("pool.py", "no such text", ""),))
    monkeypatch.setattr(audits, "find", lambda _: stale)
    done = invoke("--bug", "NV-7", "--out", str(tmp_path))
    assert done.exit_code == 3
    assert "no longer applies" in done.output


def test_usage(tmp_path: Path) -> None:
    done = invoke("--bug", "NV-9999", "--out", str(tmp_path))
    assert done.exit_code == 2 and "no bug 'NV-9999'" in done.output
    done = invoke("--class", "nonsense", "--out", str(tmp_path))
    assert done.exit_code == 2 and "rollback" in done.output
    done = invoke("--list", "--class", "rollback")
    assert done.exit_code == 0 and "SD-1" in done.output and "NV-1 " not in done.output
    assert not list(tmp_path.iterdir())


def test_figures_count_every_trial() -> None:
    bug = replace(zoo.find("NV-7"), minimum=2)
    one = Trial("NV-7", "walk", "1", "k", 10, 1.0, "PUBLISH", "OWNERSHIP", 9, 3)
    row = Row(bug, (one, replace(one, property_id="PUBLISH", length=4), replace(one, met="", property_id="", length=0)))
    figures = Audit(Plan(("NV-7",), Path()), [row]).figures()
    assert not row.killed and row.by == "OWNERSHIP" and row.lengths == [3, 4]
    assert figures["trials_found"] == 2 and figures["bugs_killed"] == 0
    other = replace(row, trials=(*row.trials, replace(one, engine="hypothesis", seconds=0.5)))
    assert other.killed and other.quickest == 0.5
    assert figures["expected_property_share"] == 0.5
    assert (figures["shrunk_to_minimum_plus_one"], figures["shrunk_measured"]) == (1, 2)


def test_workers_end_with_the_audit(tmp_path: Path) -> None:
    """Killed without a chance to clean up: the hunts that run must not go on alone."""
    command = [sys.executable, "-m", "fuzz", "audit", "--bug", "KC-1", "--engine", "hypothesis", "--seeds", "2"]
    started = subprocess.Popen([*command, "--workers", "2", "--out", str(tmp_path)], stdout=subprocess.DEVNULL)
    children: list[int] = []
    listed = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    try:
        deadline = time.monotonic() + 60
        while len(children) < 3 and time.monotonic() < deadline:  # the resource tracker, and two workers
            time.sleep(0.1)
            children = [int(child) for child in listed.read_text(encoding="ascii").split()]
    finally:
        started.kill()
        started.wait()
    deadline = time.monotonic() + 20
    while any(alive(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [child for child in children if alive(child)] == []


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
