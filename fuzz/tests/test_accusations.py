"""Every planted fault is accused of what it is, in a walk with a known seed: the judge has not gone soft."""

from __future__ import annotations

import pytest

from fuzz.engines import Tally, swarm
from fuzz.planting import planted

from .faults import FAULTS, Fault
from .test_seeded_walk import MODES


@pytest.mark.parametrize(
    ("fault", "mode"),
    [pytest.param(fault, mode, id=f"{fault.name}: {mode}") for fault in FAULTS for mode in MODES],
)
def test_a_planted_fault_is_accused(fault: Fault, mode: str) -> None:
    found, _ = swarm(
        planted(fault.changes),
        "planted",
        fault.seed,
        MODES[mode],
        Tally(),
        clock=lambda: 0.0,
        deadline=1.0,
        episodes=300,
    )
    assert found is not None
    assert found.property_id in getattr(fault, mode), found.message
