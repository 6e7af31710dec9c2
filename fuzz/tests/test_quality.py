"""How good the generators are, after Hypothesis's own tests of the kind: hard states are reached, and soon.

What is stated is three times what was measured (the slowest of eight seeds), so that a change of the generator that
makes a state ten times rarer fails here, and one that reshuffles it does not. How well findings are shrunk is in
`test_zoo.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.engines.engine import Assignment
from fuzz.engines.hypothesis import HypothesisEngine
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.runs.values import Judging
from properties.ledger import EVENTS
from properties.targets import load
from reference import Policy

WALK = {
    "hit on an active block": 1_100,
    "hit on a cached block": 1_900,
    "whole prompt hit": 3_200,
    "allocated with an earlier match": 2_700,
    "published a duplicate": 1_300,
    "evicted": 1_500,
    "evicted one of two owners": 3_600,
    "rolled back under what extends it": 13_500,
    "duplicate refreshed by a rollback": 32_000,
    "evicted while its prefix is shared": 4_600,
    "hash collision": 1_000,
    "refused for one block": 1_500,
    "refused for several blocks": 1_400,
    "append refused": 4_000,
    "never fits": 1_500,
    "freed while in flight": 850,
    "published after free": 1_200,
    "completed with another step in flight": 900,
    "several steps of one request in flight": 1_000,
    "fork": 4_000,
    "fork with a shared tail": 6_600,
    "copy-on-write": 8_500,
    "copy-on-write at the last slot": 8_500,
    "pending copy cancelled by free": 18_000,
    "copy undone by truncation": 28_500,
    "computed tokens rolled back": 1_100,
    "published block rolled back": 1_500,
    "truncated while in flight": 2_300,
    "truncated into a shared block": 4_300,
    "published tail withdrawn at append": 48_000,
    "placeholder appended": 1_900,
    "placeholder dispatched": 1_900,
    "published when named": 61_000,
    "reset with live requests": 2_700,
}
"""Checked operations of the swarm walk within which each hard state is met, from the first episode of a seed on."""


POLICY = Policy(8, 4)
"""kvcore's; with its other choice of `reuse` a whole prompt can be hit, too."""


@pytest.mark.parametrize("seed", ["quality/1", "quality/2"])
def test_hard_states_are_reached_by_the_walk(seed: str) -> None:
    assert WALK.keys() == {
        name for name, event in EVENTS.items() if name == "whole prompt hit" or event.possible(POLICY)
    }
    met = first_met(seed)
    assert {name: met[name] for name, limit in WALK.items() if met[name] > limit} == {}


def first_met(seed: str) -> dict[str, int]:
    """For each event the operations done when its episode had ended; a large number if it never came."""
    factory, tally, number = load("kvcore"), Tally(), 0
    met = dict.fromkeys(WALK, 10**9)
    while 10**9 in met.values() and tally.operations < max(WALK.values()):
        _, number = WalkEngine().hunt(
            Assignment(
                factory, "kvcore", seed, Judging(), tally, clock=lambda: 0.0, deadline=1.0, first=number, count=1
            )
        )
        for name, count in tally.ledger.counts.items():
            if count:
                met[name] = min(met[name], tally.operations)
    return met


def test_an_event_that_never_comes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: with no resets there are none with live requests."""
    from fuzz.engines import walk

    monkeypatch.setitem(walk.MOVES, "reset", replace(walk.MOVES["reset"], weight=0))
    met = first_met("quality/1")
    assert met["reset with live requests"] > WALK["reset with live requests"]
    assert met["evicted"] <= WALK["evicted"]


def test_hard_states_are_reached_by_hypothesis() -> None:
    """All but a handful in its first 25,000 operations, five seconds."""
    factory, tally, number = load("kvcore"), Tally(), 0
    while tally.operations < 25_000:
        _, number = HypothesisEngine().hunt(
            Assignment(
                factory, "kvcore", "quality/1", Judging(), tally, clock=lambda: 0.0, deadline=1.0, count=1, first=number
            )
        )
    assert len(tally.ledger.missing(factory_capabilities(), [POLICY])) <= 1


def factory_capabilities() -> Any:
    from properties.operations import Configuration

    return load("kvcore")(Configuration()).capabilities
