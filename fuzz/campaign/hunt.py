"""Hunting: a range of one engine's units, and what is done at once with a violation.

A hunt is a function of the stream's seed and of the units' numbers; the clock only says when to stop. It goes on after
a violation, since a bug that is hit a thousand times must not hide the next one. Each hit is on disk before anything
else is done with it, the first few of a kind in full, the others counted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from properties.attention.interpret import NotInterpreted
from properties.target import TargetFactory
from properties.targets import load

from ..engines.engine import Assignment, with_violation
from ..engines.registry import engine_of
from ..findings.signature import Signature, signature_of
from ..runs.believe import as_believed
from ..runs.counterexample import write
from ..runs.perform import LONG, perform
from ..runs.processes import THREADS_LEFT
from ..runs.values import Counterexample, kernel_laws
from .executor import Hit, TaskResult
from .spool import Says
from .tasks import Stream, Task
from .threads import Threads

__all__ = ["Hunter", "strictly"]

_KEPT = 4
"""Hits of one kind that a process writes down in full; after that the 16th, the 64th, ..."""

_LATER = frozenset(4**power for power in range(2, 12))


@dataclass(slots=True)
class Hunter:
    """Hunts, and what a process remembers from one to the next. device: what it was given; "" for none.

    seen: hits by what they looked like at first: how many, and the key that the last one had. recalled: streams of
    which what earlier campaigns left was tried: once a process, for a unit shall do the same everywhere. threads: ends
    the process where targets leave some behind.
    """

    device: str = ""
    seen: dict[Signature, tuple[int, Signature]] = field(default_factory=dict)
    recalled: set[Stream] = field(default_factory=set)
    threads: Threads = field(default_factory=Threads)

    def hunt(self, task: Task, result: TaskResult, says: Says, factory: TargetFactory | None = None) -> None:
        """Do the task's range and fill `result` as it goes on. factory: instead of the stream's own target."""
        stream = task.stream
        assert stream is not None
        factory = factory or load(stream.target)
        if stream.judging.kernels:
            try:
                kernel_laws(stream.judging.kernels)  # imports torch and Triton, which is not hunting
            except NotInterpreted as error:  # of a target that takes Triton only once it runs
                result.warnings.append(f"{stream.name} is left alone from here on: {error}")
                result.exhausted = True
                return
        last = task.first + task.count

        def begin(unit: int) -> None:
            if unit > result.following and self.threads.look():
                os._exit(THREADS_LEFT)  # of the unit that it has said it was at
            result.following = max(result.following, unit)  # those before are done
            says.say(task.number, unit, result.tally.operations)

        def also(found: Counterexample) -> None:
            result.hits.append(self._hit(found, factory, task, result.following, result.tally.operations))

        engine = engine_of(stream.engine)
        deadline = monotonic() + task.seconds
        assignment = Assignment(
            factory,
            stream.target,
            stream.seed,
            stream.judging,
            result.tally,
            clock=monotonic,
            deadline=deadline,
            begin=begin,
            progress=lambda: begin(result.following),
            warn=result.warnings.append,
            also=also,
            limits=stream.limits,
            profile=stream.profile,
            trace=stream.trace,
            max_states=stream.max_states,
            database=stream.database,
            variant=stream.configuration,
            folder=Path(task.folder),
            kept=Path(task.folder).parent.parent,
        )
        began, written = monotonic(), 0
        try:
            begin(task.first)
            if stream not in self.recalled:
                self.recalled.add(stream)
                if (found := engine.recall(assignment)) is not None:
                    result.hits.append(self._hit(found, factory, task, -1, result.tally.operations))
            result.exhausted = not engine.fits(factory)
            while result.following < last and monotonic() < deadline and not result.exhausted:
                first = result.following
                found, result.following = engine.hunt(replace(assignment, first=first, count=last - first))
                result.exhausted = engine.ended(result.following)
                if found is None:
                    continue
                hit = self._hit(found, factory, task, result.following - 1, result.tally.operations)
                result.hits.append(hit)
                written += bool(hit.path or hit.error)
                if hit.error or (task.most and written >= task.most):
                    break  # what no disk would take is only in this process
        finally:
            spent = monotonic() - began
            result.tally.seconds[stream.engine] = result.tally.seconds.get(stream.engine, 0.0) + spent

    def _hit(self, found: Counterexample, factory: TargetFactory, task: Task, unit: int, operations: int) -> Hit:
        """Write it down, then look at it once more, strictly."""
        found = replace(found, device=self.device)
        loose = signature_of(found)
        count, key = self.seen.get(loose, (0, loose))
        path, inline, error = "", None, ""
        if count < _KEPT or count + 1 in _LATER:
            found = as_believed(found, factory)
            place = Path(task.folder) / f"{found.property_id}-{task.number}-{unit}.json"
            try:
                path = str(write(found, place))
            except OSError as failure:
                inline, error = found, str(failure)
            key = strictly(found, factory)
        self.seen[loose] = (count + 1, key)
        return Hit(key, found.message, unit, operations, path, inline, error)


def strictly(found: Counterexample, factory: TargetFactory) -> Signature:
    """Its signature where everything is compared after every operation, so that the one at fault is named. If it does
    not fail again, or is very long, as it was found."""
    if len(found.operations) > LONG:
        return signature_of(found)
    run = perform(factory, found.configuration, found.operations, found.judging, strict=True)
    if run.violation is None:
        return signature_of(found)
    return signature_of(with_violation(found, run.violation, run.operations, run.at))
