"""The engine `kernels`: the walk over small pools, with every step run on the kernels beside it."""

from __future__ import annotations

from dataclasses import replace

from ..runs.values import Counterexample
from .engine import Assignment, Engine
from .swarm import walked
from .walk import Limits

__all__ = ["KernelsEngine"]

_LIMITS = Limits(max_blocks=24, max_block_size=8, long_episodes=False)
"""A step on an interpreter costs what a thousand operations cost."""


class KernelsEngine(Engine):
    """A unit is an episode."""

    name = "kernels"
    about = "the walk, with every step run on the kernels"
    share = 20.0
    units = 4
    kernels = True

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        return walked(replace(assignment, seed=f"{assignment.seed}/kernels", limits=_LIMITS), self.name)
