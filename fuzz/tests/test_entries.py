"""How many entries a planted bug makes: the figures of docs/campaigns.md."""

from __future__ import annotations

from dataclasses import replace

from fuzz.findings.signature import Signature, Symptom
from fuzz.tools.entries import Met, collect, drawn, grouped, report
from fuzz.zoo import find
from fuzz.zoo.planting import changed


def met(name: str, bug: str, place: str = "", property_id: str = "HISTORY") -> Met:
    signature = Signature(property_id, f"{name} is wrong", "allocate", "last_block, caching", "t")
    return Met(Symptom(signature, kinds=(name,), places={place or name: 10}), (bug,))


def test_pairs_are_the_same_every_time_and_can_be_planted() -> None:
    pairs = drawn(8)
    assert pairs == drawn(8)
    assert len(set(pairs)) == 8
    for pair in pairs:
        changed([change for id in pair.split("+") for change in find(id).changes])


def test_figures_of_bugs_that_are_one_entry_several_and_taken_for_one() -> None:
    one = [met("a", "A"), met("b", "A", "a")]
    several = [met("c", "B"), met("d", "B")]
    like_one = [met("e", "C", "a")]
    figures = report({"A": one, "B": several, "C": like_one, "D": []})
    assert figures["bugs that are one entry"] == 2
    assert figures["bugs that are several"] == {"B": 2}
    assert figures["taken for one"] == ["A+C"]
    assert figures["not met"] == ["D"]


def test_of_bugs_planted_at_once_both_are_reported_if_each_names_an_entry() -> None:
    apart = [met("a", "A"), met("c", "B")]
    merged = [met("a", "A"), met("c", "B", "a")]
    one_met = [met("a", "A"), replace(met("c", "B"), due=("A", "B"))]
    figures = report({"A+B": apart, "A+C": [replace(one, due=("C",)) if one.due == ("B",) else one for one in merged]})
    assert (figures["of these both met"], figures["of these both reported"]) == (2, 1)
    assert figures["not reported both"] == ["A+C"]
    assert report({"A+B": one_met})["of these both met"] == 0


def test_a_bug_is_met_shrunk_and_told_by_its_places() -> None:
    found = collect("NV-3", hunting=0.2, shrinking=0.2)
    assert found
    assert all(one.due == ("NV-3",) and one.symptom.places for one in found)
    assert len(grouped(found)) == 1
