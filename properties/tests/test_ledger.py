"""The ledger: it knows every event that is counted, and asks only for those that a target can produce."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import properties.session
import reference.judge
from properties.ledger import EVENTS, THRESHOLD, Ledger
from properties.operations import REUSES
from properties.target import Capability
from reference import Policy

from .support import Allocate, done, session_of

COUNTING = (reference.judge, properties.session)
"""The modules that count events of a run by name."""

DRAFTS = {"admission": "step", "truncates": "placeholders", "leftover": "kept"}
WINDOWED = {"admission": "step", "reserved": frozenset({0}), "windows": (2,)}

NOTICED = {"hash collision"}
"""What only a target can see, and reports in `noticed`."""


def _is_events(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "events"


def _names(node: ast.expr) -> Iterator[str]:
    """The names that a subscript of `events` can be."""
    if isinstance(node, ast.IfExp):
        yield from _names(node.body)
        yield from _names(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        raise AssertionError(f"an event is counted under {ast.unparse(node)}, which this test cannot read")


def counted(module: ModuleType) -> list[str]:
    """Every name under which `module` counts an event."""
    found: list[str] = []
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Subscript) and _is_events(node.value):
            found += _names(node.slice)
    return found


@pytest.mark.parametrize("module", COUNTING, ids=lambda module: module.__name__)
def test_events_are_counted_by_subscript_only_so_that_they_can_be_found(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    bumped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript) and isinstance(node.op, ast.Add):
            bumped.add(id(node.target.value))
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bumped.update(id(target) for target in targets)
    for node in ast.walk(tree):
        if _is_events(node):
            assert id(node) in bumped, f"line {node.lineno}: {ast.unparse(node)} is used otherwise"


def test_every_event_that_is_counted_is_in_the_ledger() -> None:
    names = {name for module in COUNTING for name in counted(module)} | NOTICED
    assert sorted(names - set(EVENTS)) == []


def test_every_event_of_the_ledger_is_counted_somewhere() -> None:
    names = {name for module in COUNTING for name in counted(module)} | NOTICED
    assert sorted(set(EVENTS) - names) == []


def test_both_arms_of_a_conditional_name_are_found() -> None:
    names = counted(reference.judge)
    assert {"refused for one block", "refused for several blocks"} <= set(names)


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
