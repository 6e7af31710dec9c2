"""Signatures, baselines, plans and the folder of findings: the parts of a campaign that need no worker."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fuzz import ci
from fuzz.baseline import FIXED, KNOWN, NEW, REGRESSED, BadBaseline, Baseline
from fuzz.counterexample import Counterexample
from fuzz.findings import Finding, Findings
from fuzz.history import BadHistory, History
from fuzz.nightly import CampaignResult
from fuzz.plans import READY, BadPlan, CampaignPlan, Keep, known_keys, ready
from fuzz.signature import divergence, signature_of
from fuzz.touched import STATES
from properties.operations import Allocate, Configuration, Free
from reference import PROPERTIES

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)

FOUND = Counterexample(
    Configuration(num_blocks=3),
    (Allocate("a", (1, 2)), Free("a")),
    "kvcore",
    property_id="RELEASE",
    message="freeing 'a' left 2 blocks [3, 4] held",
    at=1,
    engine="walk",
    seed="7/3",
)


# ---- signatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        replace(FOUND, message="freeing 'r17' left 12 blocks [1] held"),
        replace(FOUND, configuration=Configuration(num_blocks=64, block_size=16, hash_bits=4)),
        replace(FOUND, seed="8/1", engine="hypothesis"),
        replace(FOUND, operations=(Allocate("b", (9,)), Allocate("a", (1, 2)), Free("a")), at=2),
    ],
    ids=["numbers and names", "sizes", "seeds", "lengths"],
)
def test_runs_of_one_bug_have_one_signature(other: Counterexample) -> None:
    assert signature_of(other) == signature_of(FOUND)


@pytest.mark.parametrize(
    "other",
    [
        replace(FOUND, property_id="REFERENCES"),
        replace(FOUND, message="freeing 'a' found nothing"),
        replace(FOUND, at=0),
        replace(FOUND, configuration=Configuration(num_blocks=3, reuse="last_token")),
        replace(FOUND, configuration=Configuration(num_blocks=3, caching=False)),
        replace(FOUND, target="my.own:core"),
    ],
    ids=["property", "divergence", "operation", "reuse", "caching", "target"],
)
def test_what_tells_bugs_apart_is_in_the_signature(other: Counterexample) -> None:
    assert signature_of(other).id != signature_of(FOUND).id


def test_nothing_that_changes_from_run_to_run_is_left_of_a_message() -> None:
    said = (
        "append ended in ValueError: <Pool object at 0x7f3a> in /tmp/planted-x1/pool.py, line 12: {'r1': (1, 2)} != []"
    )
    tables = [f"the step's block table of '{name}' is [0, 1], its table [1]" for name in ("a", "b")]
    assert {divergence(table) for table in tables} == {"the step's block table of NAME is LIST, its table LIST"}
    assert divergence(said) == "append ended in ValueError: <Pool object at ADDRESS> in pool.py, line N: LIST != LIST"


# ---- the folder ------------------------------------------------------------------------------------------------------


def _file(findings: Findings, found: Counterexample = FOUND, status: str = NEW, **options: object) -> Finding:
    return findings.file(signature_of(found), found, found, status=status, replays="3 of 3", **options)  # type: ignore[arg-type]


def test_a_thousand_hits_are_one_directory_with_a_count_and_a_few_examples(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(examples=3), NOW)
    for number in range(1000):
        _file(findings, replace(FOUND, seed=f"7/{number}"))
    assert len(list(tmp_path.iterdir())) == 1
    (finding,) = Findings(tmp_path, Keep(), NOW)
    assert (finding.total, finding.hits) == (1000, 0), "hits of an earlier campaign are counted, and not as this one's"
    assert len(list(finding.directory.glob("found*.json"))) == 3
    assert len(finding.seeds) == 10


def test_a_shorter_counterexample_takes_the_place_of_a_longer_one(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(), NOW)
    longer = replace(FOUND, operations=(Allocate("b", (9,)), *FOUND.operations), at=2)
    finding = _file(findings, longer)
    _file(findings)
    assert finding.counterexample == FOUND
    _file(findings, longer)
    assert finding.counterexample == FOUND


def test_a_directory_with_nothing_but_its_counterexample_is_a_finding(tmp_path: Path) -> None:
    finding = _file(Findings(tmp_path, Keep(), NOW))
    for path in finding.directory.iterdir():
        if path.name != "counterexample.json":
            path.unlink()
    (again,) = Findings(tmp_path, Keep(), NOW)
    assert (again.signature, again.status) == (finding.signature, NEW)


def test_old_findings_go_and_new_ones_never(tmp_path: Path) -> None:
    long_ago = Findings(tmp_path, Keep(), NOW - timedelta(days=40))
    for number, status in enumerate((NEW, REGRESSED, KNOWN, FIXED)):
        _file(long_ago, replace(FOUND, message=f"{'x' * (number + 1)} is held"), status)
    _file(Findings(tmp_path, Keep(), NOW), replace(FOUND, message="young"), KNOWN)
    findings = Findings(tmp_path, Keep(days=30), NOW)
    assert len(findings.tidy()) == 2
    assert sorted(finding.status for finding in Findings(tmp_path, Keep(), NOW)) == [KNOWN, NEW, REGRESSED]


def test_too_much_is_cut_down_to_the_cap_fixed_ones_first(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(), NOW)
    for number, status in enumerate((KNOWN, FIXED, NEW)):
        _file(findings, replace(FOUND, message=f"{'x' * (number + 1)} is held"), status)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.*"))
    gone = Findings(tmp_path, Keep(disk=size - 1), NOW).tidy()
    assert len(gone) == 1
    assert "(fixed)" in gone[0]
    assert len(Findings(tmp_path, Keep(disk=1), NOW).tidy()) == 1
    assert [finding.status for finding in Findings(tmp_path, Keep(), NOW)] == [NEW], "whatever it takes"


# ---- the baseline ----------------------------------------------------------------------------------------------------


def test_a_baseline_keeps_its_bytes_and_tells_the_four_statuses(tmp_path: Path) -> None:
    baseline = Baseline()
    signature = signature_of(FOUND)
    assert baseline.status(signature) == NEW
    baseline.accept(signature, FOUND)
    assert baseline.status(signature) == KNOWN
    baseline.mend([signature.id])
    assert baseline.status(signature) == REGRESSED
    path = baseline.write(tmp_path / "baseline.json")
    before = path.read_bytes()
    loaded = Baseline.load(path)
    assert loaded == baseline
    assert loaded.write(path).read_bytes() == before
    assert Baseline.load(tmp_path / "none.json") == Baseline()


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1, "findings": [{}]}'])
def test_what_is_no_baseline_says_so(text: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(BadBaseline, match=r"baseline\.json"):
        Baseline.load(path)


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_the_ready_campaigns_can_be_read_and_differ() -> None:
    assert READY == ("commit", "nightly", "soak")
    plans = {name: ready(name) for name in READY}
    assert [plans[name].budget for name in READY] == [30.0, 8 * 3600.0, 48 * 3600.0]
    assert plans["commit"].seed
    assert not plans["nightly"].seed, "fresh seeds every night"
    assert [variant.name for variant in plans["nightly"].configurations] == ["all", "small", "blind"]
    assert {stream.seed for stream, _ in plans["nightly"].streams()} == {
        "/kvcore/all",
        "/kvcore/small",
        "/kvcore/blind",
    }


@pytest.mark.parametrize("name", READY)
def test_a_plan_goes_through_json(name: str) -> None:
    plan = ready(name)
    assert CampaignPlan.from_json(plan.to_json()) == plan
    assert CampaignPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget = 'soon'", "not a time"),
        ("workers = -1", "not a whole number"),
        ("walks = 3", "there is no 'walks'; known are name, targets"),
        ("properties = ['SPEED']", "there are no SPEED; known are FRESHNESS"),
        ("profile = 'fast'", "give one of nightly, soak"),
        ("[engines]\nmagic = 1", "there is no 'magic'; known are walk"),
        ("[engines]\nwalk = 0", "no engine has a part of the time"),
        ("[engines]\nwalk = -1", "not a number from 0 on"),
        ("configurations = 3", "write [[configurations]]"),
        ("[[configurations]]\nblocks = 3", "there is no 'blocks'; known are name, outside"),
        ("[[configurations]]\noutside = 1", "is not true or false"),
        ("[[configurations]]\nmax_blocks = 0", "at least 1"),
        ("[[configurations]]\n[[configurations]]", "a name of its own"),
        ("[keep]\ndisk = 'much'", "not a size"),
        ("memory = 'much'", "not a size"),
        ("targets = []", "targets is empty"),
        ("= 3", "not TOML"),
    ],
)
def test_a_wrong_plan_says_what_is_allowed(text: str, said: str, tmp_path: Path) -> None:
    from fuzz.plans import overruled

    path = tmp_path / "night.toml"
    path.write_text(text)
    with pytest.raises(BadPlan) as raised:
        overruled(ready(str(path)), {})
    assert said in str(raised.value)


def test_a_campaign_that_there_is_not_names_those_that_there_are() -> None:
    with pytest.raises(BadPlan, match="commit, nightly, soak"):
        ready("weekly")
    with pytest.raises(BadPlan, match="cannot be read"):
        ready("none.toml")


def test_the_documentation_names_every_key_of_a_plan() -> None:
    page = (ROOT / "docs" / "campaigns.md").read_text(encoding="utf-8")
    assert [key for key in known_keys() if f"`{key}`" not in page] == []


# ---- what machines read ----------------------------------------------------------------------------------------------


def _result(tmp_path: Path, status: int = 1) -> CampaignResult:
    findings = Findings(tmp_path / "findings", Keep(), NOW)
    _file(findings)
    _file(findings, replace(FOUND, message="known <&> one\x00", property_id="ADMISSION"), KNOWN)
    result = CampaignResult(CampaignPlan(seed="7"), status, seconds=2.0, findings=findings.now())
    result.unchecked = {"BOUNDS": "no kernels"}
    return result


def test_junit_has_a_case_a_property_and_fails_for_what_is_new_only(tmp_path: Path) -> None:
    path = ci.junit(_result(tmp_path).to_json(), tmp_path / "junit.xml")
    (suite,) = ElementTree.parse(path).getroot()
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert set(cases) == set(PROPERTIES)
    assert [name for name, case in cases.items() if case.find("failure") is not None] == ["RELEASE"]
    assert {name for name, case in cases.items() if case.find("skipped") is not None} == {"ADMISSION", "BOUNDS"}
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (str(len(PROPERTIES)), "1", "2")


def test_there_is_one_annotation_a_signature(tmp_path: Path) -> None:
    lines = ci.annotated(_result(tmp_path).to_json())
    assert len(lines) == 2
    assert sum(line.startswith("::error title=RELEASE new") for line in lines) == 1
    assert sum(line.startswith("::warning title=ADMISSION known") for line in lines) == 1
    assert "| new | RELEASE |" in ci.markdown(_result(tmp_path / "again").to_json())


def test_the_history_remembers_and_notices_who_was_killed(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    summary = _result(tmp_path).to_json()
    first = history.begin(summary, "2026-11-29T03:00:00")
    history.progress(first, 12, 3.0)
    second = history.begin(summary, "2026-11-30T03:00:00")
    history.end(second, summary, "2026-11-30T04:00:00")
    killed, ended = history.campaigns()
    assert (killed.status, killed.operations, killed.complaint[:6]) == (None, 12, "killed")
    assert (ended.status, [one["property"] for one in ended.findings]) == (1, ["ADMISSION", "RELEASE"])
    assert [one.id for one in history.campaigns(1)] == [second]
    (tmp_path / "other").write_text("this is no database, and long enough for sqlite to see that" * 20)
    with pytest.raises(BadHistory):
        History(tmp_path / "other").campaigns()


def test_the_report_page_finds_what_it_reads(tmp_path: Path) -> None:
    summary = json.loads(json.dumps(_result(tmp_path).to_json()))
    assert {"timeline", "coverage"} <= set(summary)
    for entry in summary["findings"]:
        assert {"signature", "status", "hits", "replays", "directory"} <= set(entry)
    assert STATES == ("free", "cached", "active", "shared", "published")
