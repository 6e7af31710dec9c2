"""Every bug of the zoo is accused of what it is, in a walk with a known seed: the judge has not gone soft.

The same for each mutant of the reference (`python -m fuzz.tools.mutants`). Only those that are found soon.
"""

from __future__ import annotations

import pytest

from fuzz.engines.engine import Assignment
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.zoo import Bug, allocator_bugs

from .test_seeded_walk import MODES

SEEDS = {"KC-2": "5", "SD-1": "2"}
"""Where seed 1 is not a good one."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bug", [bug for bug in allocator_bugs() if bug.blind], ids=lambda bug: bug.id)
def test_a_planted_bug_is_accused(bug: Bug, mode: str) -> None:
    found, _ = WalkEngine().hunt(
        Assignment(
            bug.factory(),
            "planted",
            SEEDS.get(bug.id, "1"),
            MODES[mode],
            Tally(),
            clock=lambda: 0.0,
            deadline=1.0,
            count=300,
        )
    )
    assert found is not None
    assert found.property_id in (bug.blind if mode == "blind" else bug.properties)
