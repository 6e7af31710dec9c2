"""Short seeded walks over kvcore, judged fully and blind: the first tests that a mutant of either room has to pass.

They are here for `fuzz.tools.mutants`, small enough to be run once a mutant. What they find in a healthy checkout would
be a real defect all the same.
"""

from __future__ import annotations

import pytest

from fuzz.engines.engine import Assignment
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.runs.values import Judging
from properties.targets import load

MODES = {"full": Judging(), "blind": Judging(outside=True, exact=False)}


def walk(mode: str, seed: str, episodes: int) -> None:
    found, following = WalkEngine().hunt(
        Assignment(
            load("kvcore"),
            "kvcore",
            f"mutants/{seed}",
            MODES[mode],
            Tally(),
            clock=lambda: 0.0,
            deadline=1.0,
            count=episodes,
        )
    )
    assert found is None, found
    assert following == episodes


@pytest.mark.parametrize(("mode", "seed", "episodes"), [("full", "a", 8), ("full", "b", 40), ("blind", "c", 24)])
def test_a_short_walk_is_clean(mode: str, seed: str, episodes: int) -> None:
    walk(mode, seed, episodes)


@pytest.mark.parametrize(("mode", "seed", "episodes"), [("full", "d", 300), ("blind", "e", 100)])
def test_a_longer_walk_is_clean(mode: str, seed: str, episodes: int) -> None:
    walk(mode, seed, episodes)
