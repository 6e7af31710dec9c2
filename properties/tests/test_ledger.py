"""The ledger: it knows every event that is counted, and asks only for those that a target can produce."""

from __future__ import annotations

from typing import Any

import pytest

from properties.ledger import EVENTS, THRESHOLD, Ledger
from properties.operations import REUSES
from properties.target import Capability
from reference import Policy, events

from .support import Allocate, done, session_of

DRAFTS = {"admission": "step", "truncates": "placeholders", "leftover": "kept"}
WINDOWED = {"admission": "step", "reserved": frozenset({0}), "windows": (2,)}

NOTICED = {"hash collision"}
"""What only a target can see, and reports in `noticed`."""


def test_the_ledger_has_exactly_the_events_that_there_are_names_for() -> None:
    """That each of them is counted when it happens, the tests of the judge and of the session show."""
    assert set(EVENTS) == {value for name, value in vars(events).items() if name.isupper()}


def test_what_a_target_notices_is_in_the_ledger() -> None:
    session = done(session_of(block_size=1, hash_bits=0), Allocate("a", (1, 2)))
    assert set(session.target.noticed()) == NOTICED <= set(EVENTS)


def test_every_event_says_why_it_matters() -> None:
    for event in EVENTS.values():
        assert len(event.why) > 10
        assert event.needs <= frozenset(Capability)


def test_a_new_ledger_misses_everything_in_the_order_of_the_table() -> None:
    assert Ledger().missing(frozenset(Capability)) == list(EVENTS)
    assert Ledger().counts == dict.fromkeys(EVENTS, 0)


def test_a_target_without_capabilities_is_asked_only_for_what_needs_none() -> None:
    missing = Ledger().missing(frozenset())
    assert missing == [name for name, event in EVENTS.items() if not event.needs]
    assert {"hit on a cached block", "evicted", "refused for one block", "never fits"} <= set(missing)


@pytest.mark.parametrize("capability", Capability, ids=lambda capability: capability.name)
def test_exactly_the_events_that_need_a_capability_are_not_asked_for_without_it(capability: Capability) -> None:
    everything = frozenset(Capability)
    kept = Ledger().missing(everything - {capability})
    assert set(EVENTS) - set(kept) == {name for name, event in EVENTS.items() if capability in event.needs}


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("allocated with an earlier match", {Capability.LOOKUP, Capability.MATCH}),
        ("hash collision", {Capability.HASH}),
        ("copy undone by truncation", {Capability.FORK, Capability.TRUNCATE}),
        ("truncated while in flight", {Capability.TRUNCATE}),
        ("freed while in flight", {Capability.OVERLAP}),
        ("placeholder appended", {Capability.FILL}),
        ("reset with live requests", {Capability.RESET}),
    ],
)
def test_an_event_needs_every_capability_that_it_is_made_of(name: str, needs: set[Capability]) -> None:
    assert EVENTS[name].needs == needs
    for capability in needs:
        assert name not in Ledger().missing(frozenset(needs - {capability}))
    assert name in Ledger().missing(frozenset(needs))


@pytest.mark.parametrize(
    ("name", "impossible", "possible"),
    [
        ("whole prompt hit", {"reuse": "last_block"}, {"reuse": "last_token"}),
        ("append refused", {"admission": "step"}, {"admission": "request"}),
        ("never fits", {"admission": "step"}, {"admission": "request"}),
        ("published after free", {"lifetime": "stream"}, {"lifetime": "steps"}),
        ("evicted one of two owners", {"duplicates": "last"}, {"duplicates": "first"}),
        ("published block rolled back", {"truncates": "placeholders"}, {"truncates": "tokens"}),
        ("kept block used again", DRAFTS | {"leftover": "released"}, DRAFTS),
        ("named behind the window", WINDOWED | {"publish": "completion"}, WINDOWED | {"publish": "dispatch"}),
    ],
)
def test_what_no_policy_of_the_target_allows_is_not_asked_for(
    name: str, impossible: dict[str, Any], possible: dict[str, Any]
) -> None:
    everything = frozenset(Capability)
    never, ever = Policy(4, 2, **impossible), Policy(4, 2, **possible)
    assert name not in Ledger().missing(everything, [never])
    assert name in Ledger().missing(everything, [never, ever])
    assert name in Ledger().missing(everything)


def test_kvcores_policies_allow_every_event_but_those_of_windows_and_of_blocks_kept() -> None:
    policies = [session_of(reuse=reuse).judge.policy for reuse in REUSES]
    never = [name for name in EVENTS if "window" in name or "kept" in name]
    assert len(never) == 4
    assert Ledger().missing(frozenset(Capability), policies) == [name for name in EVENTS if name not in never]


def test_what_happened_once_is_not_missing() -> None:
    ledger = Ledger()
    ledger.add({"evicted": 1, "fork": 0})
    missing = ledger.missing(frozenset(Capability))
    assert "evicted" not in missing
    assert missing == [name for name in EVENTS if name != "evicted"]


def test_counts_of_several_runs_are_summed() -> None:
    ledger = Ledger()
    ledger.add({"evicted": 2, "fork": 1})
    ledger.add({"evicted": 3})
    ledger.add({})
    assert (ledger.counts["evicted"], ledger.counts["fork"], ledger.counts["copy-on-write"]) == (5, 1, 0)
    assert Ledger().counts["evicted"] == 0


def test_an_event_that_the_table_does_not_know_is_counted_all_the_same() -> None:
    ledger = Ledger()
    ledger.add({"seen by a target of mine": 2})
    ledger.add({"seen by a target of mine": 1})
    assert ledger.counts["seen by a target of mine"] == 3
    assert ledger.missing(frozenset(Capability)) == list(EVENTS)


def test_a_campaign_must_have_met_everything_from_a_hundred_thousand_operations_on() -> None:
    assert THRESHOLD == 100_000
