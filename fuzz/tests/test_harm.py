"""What a finding leads to, and that a first finding does not hide the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.engines.engine import Assignment
from fuzz.engines.registry import engine_of
from fuzz.engines.tally import Tally
from fuzz.findings.harm import harm_of, rank_of
from fuzz.findings.signature import Symptom, signature_of
from fuzz.findings.store import NOT_REPLAYED, Findings
from fuzz.runs.perform import perform
from fuzz.runs.values import Counterexample, Judging
from fuzz.tests.test_campaigns import NOW, WALK, night
from fuzz.zoo import find
from properties.targets import load


def hunted(bug: str, engine: str = "walk", **options: object) -> tuple[Counterexample, list[Counterexample]]:
    """The first finding of a bug of the zoo, and those that came beside it."""
    also: list[Counterexample] = []
    target = f"fuzz.zoo:{bug}"
    assignment = Assignment(
        load(target),
        target,
        "1",
        Judging(),
        Tally(),
        lambda: 0.0,
        1.0,
        also=also.append,
        **options,  # type: ignore[arg-type]
    )
    found, _ = engine_of(engine).hunt(assignment)
    assert found is not None
    return found, also


def seconds() -> object:
    """A clock that goes on by a millisecond each time that it is read: no test depends on how fast a machine is."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    return clock


def test_a_wrong_index_leads_to_a_wrong_answer_that_fails_from_outside() -> None:
    found, _ = hunted("NV-1")
    factory = find("NV-1").factory()
    assert found.property_id == "OWNERSHIP"
    harm = harm_of(found, found, factory, clock=seconds(), seconds=1.0)  # type: ignore[arg-type]
    assert harm is not None
    assert rank_of(harm) < rank_of(found)
    assert harm.judging.outside
    again = perform(factory, harm.configuration, harm.operations, harm.judging)
    assert again.violation is not None and again.violation.id == harm.property_id


def test_what_was_found_as_something_worse_is_not_lost_when_it_is_shrunk_to_less() -> None:
    found, _ = hunted("KC-30")
    assert found.property_id == "ALIASING"
    less = replace(found, property_id="INTERNAL", message="a count", operations=found.operations[:1])
    harm = harm_of(less, found, load("kvcore"), clock=seconds(), seconds=0.1)  # type: ignore[arg-type]
    assert harm is not None and harm.property_id == "ALIASING"


def test_a_core_without_another_fault_leads_to_nothing() -> None:
    found, _ = hunted("NV-1")
    assert harm_of(found, found, load("kvcore"), clock=seconds(), seconds=0.2) is None  # type: ignore[arg-type]


def test_the_worst_that_was_met_is_kept_with_the_finding_and_read_again(tmp_path: Path) -> None:
    found, _ = hunted("NV-1")
    harm = replace(found, property_id="HISTORY", message="somebody else's tokens", judging=Judging(outside=True))
    symptom = Symptom(signature_of(found))
    findings = Findings(tmp_path, WALK.keep, NOW)
    findings.file(symptom, found, found, status="new", replays="3 of 3", harm=replace(harm, property_id="PUBLISH"))
    finding = findings.file(symptom, found, found, status="new", replays="3 of 3", harm=harm)
    findings.file(symptom, found, found, status="new", replays="3 of 3", harm=replace(harm, property_id="MAPPING"))
    assert finding.leads_to is not None and finding.leads_to["property"] == "HISTORY"
    (again,) = Findings(tmp_path, WALK.keep, NOW)
    assert again.harm == harm
    assert "HISTORY" in (finding.directory / "README.md").read_text()


def test_hypothesis_looks_behind_what_every_example_meets() -> None:
    found, also = hunted("NV-3+KC-30", "hypothesis")
    properties = {one.property_id for one in (found, *also)}
    assert len(properties) > 1
    again, beside = hunted("NV-3+KC-30", "hypothesis")
    assert (again, beside) == (found, also), "a unit is the same wherever it runs"


def test_two_bugs_that_change_the_same_text_are_refused() -> None:
    from fuzz.zoo.planting import DoesNotApply

    with pytest.raises(DoesNotApply):
        load("fuzz.zoo:NV-1+NV-1")


def test_what_there_was_no_time_to_settle_is_settled_by_the_next_campaign(tmp_path: Path) -> None:
    found, _ = hunted("NV-1")
    findings = Findings(tmp_path / "findings", WALK.keep, NOW)
    late = replace(found, message="a rare way to meet it")
    finding = findings.file(Symptom(signature_of(late)), late, late, status="new", replays=NOT_REPLAYED)
    plan = replace(WALK, targets=("fuzz.zoo:NV-1",), shrink=20.0)
    night(tmp_path, plan, until=lambda campaign: any(one.replays == "3 of 3" for one in campaign.findings.now()))
    assert not finding.directory.exists(), "it is what it was shrunk to"
    assert all(one.replays == "3 of 3" for one in Findings(tmp_path / "findings", WALK.keep, NOW))
