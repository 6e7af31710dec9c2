"""Breadth first, level by level: the first violation is a shortest one.

The main process knows which states have been seen, by their digests, and how each was reached: the state that it was
found from and the operation. Workers get states as sequences of operations and say what follows. Their answers are
taken in the order in which the states were found, so that the outcome does not depend on how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from properties.operations import SCHEMA, Operation, decode, encode
from properties.target import TargetFactory
from reference import Violation

from ..runs.counterexample import write
from ..runs.perform import perform
from ..runs.status import CLEAN, HARNESS, INTERRUPTED, VIOLATION
from ..runs.trust import replay_command
from ..runs.values import Counterexample, Judging, versions
from .expand import Broken, Expander, Expansion, Task
from .normal import DIGEST
from .space import Space
from .store import Level, Store
from .workers import CHUNK, Clock, Workers

__all__ = ["BYTES_PER_STATE", "Explored", "Plan", "Progress", "explore"]

Progress = Callable[["Explored", int, int], None]
"""Told of the figures so far, of states of the present level that are done, and how many those are in all."""

BYTES_PER_STATE = 150
"""What a state costs the main process: its digest as an object, its place in a set, parent and operation."""


@dataclass(frozen=True)
class Plan:
    """What to explore. max_states, max_depth, memory (bytes): where to stop; 0 for no bound. drain: also end in every
    state."""

    target: str
    space: Space
    out: Path
    judging: Judging = Judging()
    drain: bool = True
    max_states: int = 0
    max_depth: int = 0
    memory: int = 4 << 30
    workers: int = 1
    resume: bool = False

    def to_json(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        return {
            "schema": SCHEMA,
            "target": self.target,
            "space": self.space.to_json(),
            "judging": {"outside": self.judging.outside, "exact": self.judging.exact},
            "drain": self.drain,
            "versions": versions(),
        }


@dataclass
class Explored:
    """How far it got. depth: operations to the farthest state. levels: states by distance. status: an exit status.

    closed: every operation of every state has been done, and leads to a state that is known.
    """

    plan: Plan
    status: int = CLEAN
    complaint: str = ""
    states: int = 0
    transitions: int = 0
    lookups: int = 0
    drains: int = 0
    closed: bool = False
    seconds: float = 0.0
    levels: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    counterexample: Counterexample | None = None
    path: Path | None = None

    @property
    def depth(self) -> int:
        return max(0, len(self.levels) - 1)

    def to_json(self) -> dict[str, Any]:
        found = self.counterexample
        return {
            **self.plan.to_json(),
            "status": self.status,
            "complaint": self.complaint,
            "closed": self.closed,
            **self.figures(),
            "levels": self.levels,
            "depth": self.depth,
            "seconds": round(self.seconds, 3),
            "workers": self.plan.workers,
            "finding": None
            if found is None
            else {
                "file": str(self.path) if self.path else "",
                "property": found.property_id,
                "message": found.message,
                "operations": len(found.operations),
                "replay": replay_command(self.path, found) if self.path else "",
            },
        }

    def figures(self) -> dict[str, Any]:
        """Counts, which do not depend on the machine."""
        return {
            "states": self.states,
            "transitions": self.transitions,
            "lookups": self.lookups,
            "drains": self.drains,
            "kinds": dict(sorted(self.kinds.items())),
            "refused": dict(sorted(self.refused.items())),
            "events": dict(sorted(self.events.items())),
        }


def explore(plan: Plan, factory: TargetFactory, clock: Clock, progress: Progress) -> Explored:
    """Explore. `factory` is what `plan.target` names; with several workers, each of them loads it by that name.

    Raises CannotResume, Changed. A KeyboardInterrupt ends it with what it has; finished levels are kept on disk."""
    result = Explored(plan)
    began = clock()
    search = _Search(result, factory)
    replays = True
    try:
        search.run(clock, progress)
    except KeyboardInterrupt:
        result.status = INTERRUPTED
        result.complaint = f"interrupted; {len(search.levels)} levels are kept in {plan.out}: go on with --resume"
    except Violation as violation:  # of what only an exploration asks for, and no replay: a clone, a canonical form
        replays = False
        search.consider(Broken((), violation.id, violation.message, 0))
    except OSError as error:
        result.status = HARNESS
        result.complaint = (
            f"cannot write to {plan.out}: {error}; {len(search.levels)} levels are kept: go on with --resume"
        )
    search.report(replays)
    result.seconds = clock() - began
    return result


class _Search:
    def __init__(self, result: Explored, factory: TargetFactory) -> None:
        self._result = result
        self._plan = plan = result.plan
        self._factory = factory
        self._expander = Expander(factory, plan.space, plan.judging, plan.drain)
        self._store = Store(plan.out)
        self._seen: set[bytes] = set()
        self.levels: list[Level] = []
        self._shortest: Broken | None = None
        self._operations: list[Operation] = []
        self._numbers: dict[Operation, int] = {}

    def run(self, clock: Clock, progress: Progress) -> None:
        plan, result = self._plan, self._result
        levels = self._store.begin(plan.to_json(), plan.resume)
        if not levels:
            root = Level(bytearray(self._expander.root()), totals=result.figures())
            root.parents.append(0)
            root.operations.append(0)
            root.totals["states"] = 1
            self._store.add(0, root)
            levels = [root]
        for level in levels:
            self._take(level)
        with Workers(plan.workers, plan.target, plan.space, plan.judging, plan.drain, self._expander, clock) as workers:
            while True:
                frontier = self.levels[-1]
                if not len(frontier):
                    result.closed = True
                    self.levels.pop()
                    result.levels.pop()
                    return
                if self._shortest is not None and len(self._shortest) <= len(self.levels) - 1:
                    return  # whatever is found from here on has as many operations
                if self._stop():
                    return
                following = self._expand(frontier, workers, progress)
                if following is None:
                    return
                self._store.add(len(self.levels), following)
                self._take(following)

    def _take(self, level: Level) -> None:
        """A finished level: part of what is known."""
        result = self._result
        self.levels.append(level)
        for operation in level.new:
            if operation not in self._numbers:
                self._numbers[operation] = len(self._operations)
                self._operations.append(operation)
        digests = level.digests
        self._seen.update(bytes(digests[at : at + DIGEST]) for at in range(0, len(digests), DIGEST))
        result.levels.append(len(level))
        for name in ("states", "transitions", "lookups", "drains"):
            setattr(result, name, level.totals[name])
        for name in ("kinds", "refused", "events"):
            setattr(result, name, Counter(level.totals[name]))
        broken = level.totals.get("broken")
        if broken is not None:
            operations = tuple(decode(operation) for operation in broken["operations"])
            self._shortest = Broken(operations, broken["property"], broken["message"], broken["at"])

    def _stop(self) -> bool:
        plan, result = self._plan, self._result
        if plan.max_depth and result.depth >= plan.max_depth:
            result.complaint = f"stopped at the depth of {plan.max_depth}"
        elif plan.max_states and result.states >= plan.max_states:
            result.complaint = f"stopped at {plan.max_states:,} states"
        elif plan.memory and result.states * BYTES_PER_STATE >= plan.memory:
            result.complaint = f"stopped at {plan.memory / 2**30:.3g} GiB of memory"
        return bool(result.complaint)

    def _expand(self, frontier: Level, workers: Workers, progress: Progress) -> Level | None:
        """The next level; None if an operation breaks something, or a bound is reached."""
        result = self._result
        level = Level()
        broken = False
        first = sum(map(len, self.levels[:-1]))
        for start, expansion in workers.expand(self._chunks(frontier), len(frontier)):
            self.consider(expansion.leaking)
            if broken:
                continue  # only whether a drain phase shows something shorter
            self._count(expansion)
            for number, operation, digest in expansion.found:
                if digest in self._seen:
                    continue
                self._seen.add(digest)
                known = self._numbers.get(operation)
                if known is None:
                    known = self._numbers[operation] = len(self._operations)
                    self._operations.append(operation)
                    level.new.append(operation)
                level.digests += digest
                level.parents.append(first + start + number)
                level.operations.append(known)
                result.states += 1
            progress(result, start, len(frontier))
            if expansion.broken is not None:
                self.consider(expansion.broken)
                broken = True
                if not self._plan.drain:
                    break
                workers.drains_only = True
            elif self._stop():
                break
        if broken or result.complaint:
            if len(level):
                result.levels.append(len(level))
            return None
        level.totals = result.figures()
        if self._shortest is not None:
            level.totals["broken"] = {
                "operations": [encode(operation) for operation in self._shortest.operations],
                "property": self._shortest.property_id,
                "message": self._shortest.message,
                "at": self._shortest.at,
            }
        return level

    def consider(self, broken: Broken | None) -> None:
        """Keep the shortest, and have it on disk before anything else is done."""
        if broken is None or (self._shortest is not None and len(broken) >= len(self._shortest)):
            return
        self._shortest = broken
        self._write(broken)

    def _count(self, expansion: Expansion) -> None:
        result = self._result
        result.transitions += expansion.transitions
        result.lookups += expansion.lookups
        result.drains += expansion.drains
        result.kinds += expansion.kinds
        result.refused += expansion.refused
        result.events += expansion.events

    def _chunks(self, frontier: Level) -> Iterator[tuple[int, list[Task]]]:
        digests = frontier.digests
        for start in range(0, len(frontier), CHUNK):
            tasks = []
            for number in range(start, min(start + CHUNK, len(frontier))):
                digest = bytes(digests[number * DIGEST : (number + 1) * DIGEST])
                tasks.append((self._path(len(self.levels) - 1, number), digest))
            yield start, tasks

    def _path(self, depth: int, number: int) -> tuple[Operation, ...]:
        """How the state was reached. O(depth)."""
        path = []
        before = sum(map(len, self.levels[:depth]))
        while depth:
            level = self.levels[depth]
            path.append(self._operations[level.operations[number]])
            before -= len(self.levels[depth - 1])
            number = level.parents[number] - before
            depth -= 1
        return tuple(reversed(path))

    def _write(self, broken: Broken) -> None:
        plan, result = self._plan, self._result
        found = result.counterexample = Counterexample(
            plan.space.configuration,
            broken.operations,
            plan.target,
            property_id=broken.property_id,
            message=broken.message,
            at=broken.at,
            judging=plan.judging,
            engine="explore",
            versions=versions(),
        )
        with suppress(OSError):  # it is kept in memory, and filed at the end
            result.path = write(found, plan.out / "hit.json")

    def report(self, replays: bool) -> None:
        """If there is a violation: the shortest is the outcome. If it can be, see whether it replays."""
        result = self._result
        if self._shortest is None:
            return
        self._write(self._shortest)
        found = result.counterexample
        assert found is not None
        result.status, result.closed = VIOLATION, False
        if not replays:
            return
        again = perform(self._factory, found.configuration, found.operations, found.judging, strict=True)
        if again.violation is None or again.violation.id != found.property_id:
            result.status = HARNESS
            said = again.violation.id if again.violation is not None else "clean"
            result.complaint = f"{found.property_id} was found, and the replay of {result.path} says {said}"
