"""The properties: one class and one id each, in order of harm."""

from __future__ import annotations

import pytest

from reference import PROPERTIES, Violation, verdicts

ORDER = list(PROPERTIES)


def before(first: str, second: str) -> bool:
    return ORDER.index(first) < ORDER.index(second)


def test_every_violation_is_a_property_with_its_own_id():
    classes = [
        getattr(verdicts, name) for name in verdicts.__all__ if name not in ("PROPERTIES", "Violation", "Findings")
    ]
    assert set(PROPERTIES.values()) == set(classes)
    assert len({kind.id for kind in classes}) == len(classes)
    assert all(PROPERTIES[kind.id] is kind and kind.id == kind.__name__.upper() for kind in classes)


def test_ranks_are_the_order_of_harm():
    assert [kind.rank for kind in PROPERTIES.values()] == list(range(len(PROPERTIES)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("FRESHNESS", "HISTORY"),
        ("HISTORY", "REFERENCES"),
        ("ISOLATION", "REFERENCES"),
        ("REFERENCES", "EXACT"),
        ("ALIASING", "ADMISSION"),
        ("LIFETIME", "CONSERVATION"),
        ("PUBLISH", "COMPLETENESS"),
        ("MAPPING", "EVICTION"),
        ("EVICTION", "EXACT"),
        ("CONSERVATION", "EXACT"),
    ],
)
def test_harm_goes_before_bookkeeping_and_bookkeeping_before_prediction(first: str, second: str):
    assert before(first, second)


@pytest.mark.parametrize("kind", PROPERTIES.values(), ids=PROPERTIES)
def test_every_property_says_what_must_hold(kind: type[Violation]):
    assert kind.__doc__ and kind.__doc__.strip().endswith(".")


def test_a_violation_says_which_and_what():
    kind = PROPERTIES["FRESHNESS"]
    violation = kind("block 3 was overwritten")
    assert str(violation) == "FRESHNESS: block 3 was overwritten"
    assert violation.message == "block 3 was overwritten"
    assert isinstance(violation, AssertionError)
    assert kind().message == ""


def test_a_new_property_gets_the_next_rank_and_its_name_as_id():
    try:
        kind = type("Extra", (Violation,), {})
        assert (kind.id, kind.rank) == ("EXTRA", len(PROPERTIES) - 1)
        assert list(PROPERTIES)[-1] == "EXTRA" and PROPERTIES["EXTRA"] is kind
    finally:
        del PROPERTIES["EXTRA"]
