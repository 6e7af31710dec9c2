"""Signatures, baselines, plans and the folder of findings: the parts of a campaign that need no worker."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fuzz.campaign import ci
from fuzz.campaign.history import BadHistory, History
from fuzz.campaign.outcome import CampaignResult
from fuzz.campaign.plan import CampaignPlan
from fuzz.campaign.plans import READY, BadPlan, known_keys, plan_of, ready
from fuzz.campaign.streams import streams_of
from fuzz.findings.as_test import pytest_text
from fuzz.findings.baseline import BadBaseline, Baseline
from fuzz.findings.keep import Keep
from fuzz.findings.signature import Symptom, akin, divergence, signature_of, symptom_of
from fuzz.findings.statuses import FIXED, KNOWN, NEW, REGRESSED
from fuzz.findings.store import Finding, Findings
from fuzz.runs.counterexample import read
from fuzz.runs.values import Counterexample
from fuzz.show.page import render
from fuzz.tools.pictures import EARLY
from properties.operations import Allocate, Complete, Configuration, Dispatch, Free, Lookup, Operation
from properties.state_coverage import STATES
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


LATER = replace(FOUND, operations=(Allocate("a", (1, 2)), Dispatch(1, (("a", 2),)), Free("a")), at=1)
"""The same divergence, met at another operation."""


def unlike(number: int = 1, message: str = "a hit has another history", **changes: Any) -> Counterexample:
    """Another bug's, for each number another one's."""
    operations = (*FOUND.operations, *(Allocate(f"b{place}", (3,)) for place in range(2 * number)))
    return replace(FOUND, operations=operations, message=f"{'x' * number} {message}", **changes)


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


# ---- which are of one bug --------------------------------------------------------------------------------------------


def _symptom(operations: Sequence[Operation], message: str = "it is held", ends: str = "", **more: Any) -> Symptom:
    found = replace(FOUND, operations=tuple(operations), at=len(operations) - 1, message=message, **more)
    return symptom_of(found, end=replace(found, message=ends) if ends else None)


A, B, D, C, F, L = (
    Allocate("a", (1,)),
    Allocate("b", (2,)),
    Dispatch(1, (("a", 1),)),
    Complete(1),
    Free("a"),
    Lookup((1,)),
)


CODE = {f"pool.py:Pool.take+{line}": 10 for line in range(10)}
"""Unusual places in a target's code."""


def _through(symptom: Symptom, part: float) -> Symptom:
    """`symptom`, running through places that have `part` of their weight in common with `CODE`."""
    both = round(20 * part / (1 + part))  # of ten places each
    own = [*list(CODE)[:both], *(f"other.py:f+{line}" for line in range(10 - both))]
    return replace(symptom, places=dict.fromkeys(own, 10))


@pytest.mark.parametrize(
    ("one", "other", "common", "same"),
    [
        (_symptom([A, D, F]), _symptom([B, A, D, C], "one is too many"), 1.0, True),
        (_symptom([A, D, F]), _symptom([B, A, D, C], "one is too many"), 0.6, False),
        (_symptom([A, D, F, C]), _symptom([A, D, C, F], "one is too many"), 0.6, True),
        (_symptom([A, D, F, C]), _symptom([A, D, C, F], "one is too many"), 0.3, False),
        (_symptom([A, D, F]), _symptom([B, A, D, C], "one is too many", ends="it is held"), 0.3, True),
        (_symptom([A, D, F]), _symptom([B, A, D, C], "one is too many", ends="it is held"), 0.0, False),
        (_symptom([A, D, F]), _symptom([A, D, F], configuration=Configuration(3, caching=False)), 0.0, False),
        (_symptom([A, D, F]), _symptom([B, A, D, F], "one is too many", ends="it is held"), 0.0, True),
    ],
    ids=[
        "the same code",
        "much the same code, nothing else",
        "the same operations, much the same code",
        "the same operations, other code",
        "it leads to the other elsewhere, some code in common",
        "it leads to the other elsewhere, other code",
        "the same divergence in other code",
        "it leads to the other at the same operation",
    ],
)
def test_where_the_code_is_known_it_tells_bugs_apart(one: Symptom, other: Symptom, common: float, same: bool) -> None:
    first, second = replace(one, places=CODE), _through(other, common)
    assert akin(first, second) == akin(second, first) == same


def test_a_symptom_keeps_its_places_in_a_file() -> None:
    symptom = replace(_symptom([A, D, F], ends="x"), places=CODE)
    assert Symptom.from_json(json.loads(json.dumps(symptom.to_json()))) == symptom
    old = _symptom([A, D, F]).to_json()
    assert "places" not in old
    assert Symptom.from_json(old).places == {}, "of a version that did not know them"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (_symptom([A, D, F]), _symptom([A, D, F], configuration=Configuration(3, reuse="last_token")), True),
        (_symptom([A, D, C]), _symptom([A, D, C, F]), True),
        (_symptom([A, D, F]), _symptom([A, D, C]), True),
        (_symptom([A]), _symptom([A, D, C, F]), False),
        (_symptom([A]), replace(_symptom([A, D, C, F]), shrunk=False), True),
        (_symptom([A, D, F]), _symptom([B, A, D, F], "one is too many", ends="it is held"), True),
        (_symptom([A, D, F]), _symptom([B, A, D, C], "one is too many", ends="it is held"), False),
        (_symptom([A, D, F]), _symptom([B, A, D, F], "one is too many", ends="there are none"), False),
        (_symptom([A, D, F, C]), _symptom([A, D, C, F], "one is too many"), True),
        (_symptom([A, D, C, L]), _symptom([B, A, D, C], "one is too many"), True),
        (_symptom([A, D, F, C]), _symptom([A, D, C], "one is too many"), False),
        (_symptom([A, D, F]), _symptom([A, D, F], target="my.own:core"), False),
        (Symptom(signature_of(FOUND)), Symptom(signature_of(unlike())), False),
    ],
    ids=[
        "another configuration",
        "one operation more",
        "one operation in another's place",
        "three operations more",
        "three more, not shrunk to the end",
        "it leads to the other",
        "it leads there at another operation",
        "it leads elsewhere",
        "another order",
        "a lookup for an allocation",
        "fewer operations",
        "another target",
        "nothing in common, nothing shrunk",
    ],
)
def test_what_is_taken_for_one_bug(one: Symptom, other: Symptom, same: bool) -> None:
    assert akin(one, other) == akin(other, one) == same
    assert akin(one, one)
    assert Symptom.from_json(json.loads(json.dumps(one.to_json()))) == one


# ---- the folder ------------------------------------------------------------------------------------------------------


def _file(findings: Findings, found: Counterexample = FOUND, status: str = NEW, **options: object) -> Finding:
    return findings.file(symptom_of(found), found, found, status=status, replays="3 of 3", **options)  # type: ignore[arg-type]


def test_a_thousand_hits_are_one_directory_with_a_count_and_a_few_examples(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(examples=3), NOW)
    for number in range(50):
        _file(findings, replace(FOUND, seed=f"7/{number}"), hits=20)
    assert len(list(tmp_path.iterdir())) == 1
    (finding,) = Findings(tmp_path, Keep(), NOW)
    assert (finding.total, finding.hits) == (1000, 0), "hits of an earlier campaign are counted, and not as this one's"
    assert len(list(finding.directory.glob("found*.json"))) == 3
    assert len(finding.seeds) == 10


def test_another_way_to_meet_a_bug_joins_its_finding_and_is_kept(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(), NOW)
    finding = _file(findings)
    assert _file(findings, LATER, hits=7) is finding
    assert _file(findings, unlike()) is not finding
    assert (finding.hits, finding.counterexample, finding.status) == (8, FOUND, NEW)
    path = finding.variant_path(signature_of(LATER))
    assert read(path) == LATER
    (variant,) = finding.to_json()["variants"]
    assert variant["signature"] == signature_of(LATER).to_json() and str(path) in variant["replay"]
    assert str(path) in (finding.directory / "README.md").read_text()

    # Another campaign knows it again by either, and by what is akin to either alone.
    again = Findings(tmp_path, Keep(), NOW)
    assert [one.symptoms for one in again if one.variants] == [finding.symptoms]
    assert _file(again, LATER).directory == finding.directory
    third = replace(LATER, operations=(*LATER.operations, Complete(1)), at=3)
    assert _file(again, third).directory == finding.directory
    for gone in ("finding.json", "state.txt"):
        (finding.directory / gone).unlink(missing_ok=True)
    by_files = next(one for one in Findings(tmp_path, Keep(), NOW) if one.directory == finding.directory)
    assert {one.signature for one in by_files.symptoms} == {signature_of(one) for one in (FOUND, LATER, third)}


def test_what_there_was_no_time_to_shrink_joins_what_looked_like_it(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(), NOW)
    hit = unlike(3, "a hit has another history")
    settled = findings.file(symptom_of(FOUND), FOUND, hit, status=NEW, replays="3 of 3")
    settled.looked.append(signature_of(hit))
    late = replace(hit, configuration=Configuration(num_blocks=9, reuse="last_token"))
    assert findings.like(Symptom(signature_of(late))) is settled
    assert findings.like(Symptom(signature_of(unlike(5)))) is None
    shrunk = symptom_of(replace(late, operations=(A, D, C), at=2))
    assert findings.like(shrunk) is None, "what was shrunk is told by what it is"


def test_nothing_new_joins_what_was_fixed(tmp_path: Path) -> None:
    _file(Findings(tmp_path, Keep(), NOW), status=FIXED)
    findings = Findings(tmp_path, Keep(), NOW)
    assert _file(findings, LATER).directory.name == signature_of(LATER).name
    stale = Findings(tmp_path / "stale", Keep(), NOW)
    _file(stale).stale = True
    assert _file(stale, LATER).directory.name == signature_of(LATER).name


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
        _file(long_ago, unlike(number + 1), status)
    _file(Findings(tmp_path, Keep(), NOW), unlike(9), KNOWN)
    findings = Findings(tmp_path, Keep(days=30), NOW)
    assert len(findings.tidy()) == 2
    assert sorted(finding.status for finding in Findings(tmp_path, Keep(), NOW)) == [KNOWN, NEW, REGRESSED]


def test_too_much_is_cut_down_to_the_cap_fixed_ones_first(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(), NOW)
    for number, status in enumerate((KNOWN, FIXED, NEW)):
        _file(findings, unlike(number + 1), status)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.*"))
    gone = Findings(tmp_path, Keep(disk=size - 1), NOW).tidy()
    assert len(gone) == 1
    assert "(fixed)" in gone[0]
    assert len(Findings(tmp_path, Keep(disk=1), NOW).tidy()) == 1
    assert [finding.status for finding in Findings(tmp_path, Keep(), NOW)] == [NEW], "whatever it takes"


# ---- the baseline ----------------------------------------------------------------------------------------------------


def test_a_baseline_keeps_its_bytes_and_tells_the_four_statuses(tmp_path: Path) -> None:
    baseline = Baseline()
    symptom = symptom_of(FOUND)
    id = symptom.signature.id
    assert baseline.status(symptom) == (NEW, "")
    baseline.accept([symptom], FOUND)
    assert baseline.status(symptom) == (KNOWN, id)
    baseline.note_fixed([id])
    assert baseline.status(symptom) == (REGRESSED, id)
    path = baseline.write(tmp_path / "baseline.json")
    before = path.read_bytes()
    loaded = Baseline.load(path)
    assert loaded == baseline
    assert loaded.write(path).read_bytes() == before
    assert Baseline.load(tmp_path / "none.json") == Baseline()


def test_another_way_to_meet_a_known_bug_is_known_until_that_is_fixed(tmp_path: Path) -> None:
    baseline = Baseline()
    symptom, other = symptom_of(FOUND), symptom_of(LATER)
    baseline.accept([symptom], FOUND)
    assert baseline.status(other) == (KNOWN, symptom.signature.id)
    assert baseline.status(symptom_of(unlike())) == (NEW, "")
    assert baseline.status(other, fixed=[symptom.signature.id]) == (NEW, ""), "the known one runs clean by now"
    baseline.note_fixed([symptom.signature.id])
    assert baseline.status(other) == (NEW, ""), "what is only akin to a fixed one may be anything"

    baseline.accept([other], LATER, known_as=symptom.signature.id)
    (entry,) = Baseline.load(baseline.write(tmp_path / "baseline.json")).entries.values()
    assert (entry.signature, entry.counterexample) == (symptom.signature, FOUND), "one entry, and its own operations"
    assert entry.symptoms == (symptom, other)
    baseline.note_fixed([symptom.signature.id])
    assert baseline.status(other) == (REGRESSED, symptom.signature.id), "it was accepted in this way"


def test_a_baseline_of_an_older_version_is_read(tmp_path: Path) -> None:
    baseline = Baseline()
    baseline.accept([symptom_of(FOUND)], FOUND)
    path = baseline.write(tmp_path / "baseline.json")
    data = json.loads(path.read_text())
    del data["findings"][0]["symptoms"]
    path.write_text(json.dumps(data))
    old = Baseline.load(path)
    assert old.status(symptom_of(FOUND))[0] == old.status(symptom_of(LATER))[0] == KNOWN
    assert old.status(symptom_of(unlike()))[0] == NEW


CLAIM = replace(
    FOUND,
    property_id="OWNERSHIP",
    message="the index claims (('salt', 's'),) (0,) for block 1, which holds ((), (0,))",
)
CLAIMED = replace(
    CLAIM,
    property_id="ISOLATION",
    message="the index claims block 1 for namespace (); it was written in (('salt', ''),)",
)


@pytest.mark.parametrize(
    ("stored", "now", "same"),
    [
        (replace(FOUND, message="2 blocks stay held after 'a' is freed"), FOUND, True),
        (CLAIM, CLAIMED, True),
        (replace(CLAIM, message="block 1 holds (0,) and is not in the index"), CLAIMED, False),
        (replace(FOUND, property_id="HISTORY"), FOUND, False),
        (replace(FOUND, at=0), FOUND, False),
    ],
    ids=["other words", "a leak that was called OWNERSHIP", "another OWNERSHIP", "another property", "elsewhere"],
)
def test_what_a_known_finding_is_called_today_is_known(stored: Counterexample, now: Counterexample, same: bool) -> None:
    """Messages change: the target's and ours. The known operations are replayed, which tells what they say today."""
    baseline = Baseline()
    baseline.accept([symptom_of(stored)], stored)
    id = signature_of(stored).id
    baseline.note_wording(id, signature_of(now))
    assert baseline.entries[id].has(signature_of(now)) == same
    assert baseline.entries[id].has(signature_of(stored))


def test_a_finding_of_yesterday_is_met_in_other_words_and_stays_one(tmp_path: Path) -> None:
    findings = Findings(tmp_path, Keep(), NOW)
    finding = findings.file(symptom_of(CLAIM), CLAIM, CLAIM, status=NEW, replays="3 of 3")
    findings.note_wording(finding, signature_of(CLAIMED))
    findings.write(finding)
    again = Findings(tmp_path, Keep(), NOW)
    same = again.file(symptom_of(CLAIMED), CLAIMED, CLAIMED, status=NEW, replays="3 of 3")
    assert same.directory == finding.directory
    assert len(list(tmp_path.iterdir())) == 1
    (variant,) = same.variants
    assert read(same.variant_path(variant.signature)).operations == CLAIM.operations


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
    assert {stream.seed for stream, _ in streams_of(plans["nightly"])} == {
        "/kvcore/all",
        "/kvcore/small",
        "/kvcore/blind",
    }


@pytest.mark.parametrize("name", READY)
def test_a_plan_goes_through_json(name: str) -> None:
    plan = ready(name)
    assert plan_of(plan.to_json()) == plan
    assert plan_of(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget = 'soon'", "not a time"),
        ("workers = -1", "not a whole number"),
        ("walks = 3", "there is no 'walks'; known are name, targets"),
        ("properties = ['SPEED']", "there are no SPEED; known are FRESHNESS"),
        ("profile = 'fast'", "give one of nightly, soak"),
        ("[engines]\nmagic = 1", "there is no 'magic'; known are trace, walk"),
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
    from fuzz.campaign.plans import overruled

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
    _file(findings, unlike(message="known <&> one\x00", property_id="ADMISSION"), KNOWN)
    result = CampaignResult(CampaignPlan(seed="7", engines={}), status, seconds=2.0, findings=findings.now())
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


def test_what_was_met_in_several_ways_is_one_annotation_and_one_row(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "findings", Keep(), NOW)
    _file(findings)
    _file(findings, LATER)
    result = CampaignResult(CampaignPlan(seed="7", engines={}), 1, seconds=2.0, findings=findings.now())
    summary = result.to_json()
    assert len(ci.annotated(summary)) == 1
    (row,) = [line for line in ci.markdown(summary).splitlines() if line.startswith("| new")]
    assert "(and met in 1 other way)" in row
    failure = ElementTree.parse(ci.junit(summary, tmp_path / "junit.xml")).getroot().find(".//failure")
    assert failure is not None and f"variants/{signature_of(LATER).name}.json" in (failure.text or "")
    page = render(summary, [FOUND], tmp_path / "report.html", pictures=[(None, "")]).read_text()
    assert "Met in 1 other way, taken" in page and signature_of(LATER).id in page


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


def test_the_history_has_what_the_baseline_knew_and_was_not_met(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    result = _result(tmp_path)
    result.command = "python -m fuzz run --seed 7"
    result.fixed, result.still = [signature_of(FOUND)], [signature_of(replace(FOUND, message="it is still there"))]
    campaign = history.begin(result.to_json(), "2026-11-30T03:00:00")
    history.end(campaign, result.to_json(), "2026-11-30T04:00:00")
    (row,) = history.campaigns()
    assert row.command == "python -m fuzz run --seed 7"
    assert [(one["message"], one["status"], one["hits"]) for one in row.findings if not one["hits"]] == [
        ("it is still there", KNOWN, 0)
    ], "what was found after all is not fixed"
    assert sorted(one["status"] for one in row.findings) == [KNOWN, KNOWN, NEW]


def test_a_history_of_an_older_version_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    history = History(path)
    history.begin(_result(tmp_path).to_json(), "2026-11-29T03:00:00")
    with closing(sqlite3.connect(path)) as old:
        old.execute("alter table campaigns drop column command")
        old.execute("pragma user_version = 1")
        old.commit()
    assert [(row.seed, row.command) for row in history.campaigns()] == [("7", "")]
    history.begin(_result(tmp_path / "two").to_json() | {"command": "again"}, "2026-11-30T03:00:00")
    assert [row.command for row in history.campaigns()] == ["", "again"]
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("pragma user_version = 3")
    with pytest.raises(BadHistory, match="newer"):
        history.campaigns()


def test_the_report_page_finds_what_it_reads(tmp_path: Path) -> None:
    summary = json.loads(json.dumps(_result(tmp_path).to_json()))
    assert {"timeline", "coverage"} <= set(summary)
    for entry in summary["findings"]:
        assert {"signature", "status", "hits", "replays", "directory"} <= set(entry)
    assert STATES == ("free", "cached", "active", "shared", "published")


def test_a_message_cannot_end_the_docstring_of_the_test_that_is_made_of_it() -> None:
    import ast

    evil = replace(EARLY, message='"""\nimport os\nos.abort()\n"""', seed='""""', engine='"""')
    tree = ast.parse(pytest_text(evil, "OWNERSHIP-1"))
    assert not [node for node in tree.body if isinstance(node, ast.Import)]
    assert ast.get_docstring(tree)
