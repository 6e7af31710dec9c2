"""The engine `keys`: a short episode whose keys are compared with those of another process (KEYS).

For cores whose keys leave the process: into a cache that processes share, to another node, into a router.
"""

from __future__ import annotations

from dataclasses import replace

from properties.operations import Allocate, Append, Complete, Configuration, Dispatch, Operation
from properties.target import Capability

from ..runs.perform import perform
from ..runs.values import Counterexample
from .engine import Assignment, Engine, with_violation

__all__ = ["KeysEngine"]

_CONFIGURATION = Configuration(num_blocks=16, block_size=2)
_SPACES = ((), (("salt", "s"),), (("adapter", "s"), ("salt", "\u00e9")))


def _operations(spaces: bool) -> list[Operation]:
    """Two blocks of a prompt and one of generated tokens, in each namespace."""
    operations: list[Operation] = []
    for number, space in enumerate(_SPACES if spaces else _SPACES[:1]):
        name, step = f"r{number}", 2 * number
        operations += [Allocate(name, (1, 2, 3, 4), space), Dispatch(step + 1, ((name, 4),)), Complete(step + 1)]
        operations += [Append(name, (5, 6)), Dispatch(step + 2, ((name, 2),)), Complete(step + 2)]
    return operations


class KeysEngine(Engine):
    """There is one unit."""

    name = "keys"
    about = "the same keys in a process with another hash seed"
    share = 0.2
    planned = 0.2
    total = 1
    capability = Capability.KEYS
    checks = frozenset({"KEYS"})

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        factory, unit = assignment.factory, assignment.first
        if self.ended(unit) or not self.fits(factory):
            return None, self.total
        assignment.begin(unit)
        judging = replace(assignment.judging, keys=assignment.target)
        spaces = Capability.NAMESPACES in factory(_CONFIGURATION).capabilities
        run = perform(factory, _CONFIGURATION, _operations(spaces), judging)
        session = run.session
        assignment.tally.add(self.name, session.applied, session.kinds, session.refused, session.skipped, run.events)
        assignment.progress()
        if run.violation is None:
            return None, unit + 1
        where = Counterexample(_CONFIGURATION, (), assignment.target, judging=judging, engine=self.name, seed=self.name)
        return with_violation(where, run.violation, run.operations, run.at), unit + 1
