"""All operations of one state: what a worker does. A function of the state; nothing is kept that matters.

A state is known by a sequence of operations that leads to it. States come in the order in which they were found, so
neighbours have most of that sequence in common: sessions along the last one are kept, and only the rest is replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from properties.operations import Operation
from properties.session import Session
from properties.target import TargetFactory
from reference import Violation

from ..runs.values import Judging
from .normal import Normal
from .space import Space

__all__ = ["Broken", "Changed", "Expander", "Expansion", "Task"]

_ANEW = "target or model have changed, or are not deterministic: begin anew in another folder"

_NEVER = 1 << 30
"""Operations between two walks."""

Task = tuple[tuple[Operation, ...], bytes]
"""A sequence of operations, and the digest of the state that it leads to."""


class Changed(RuntimeError):
    """A sequence of operations does not lead to the state that it led to: something is not deterministic, or has
    changed since the exploration began."""


@dataclass(frozen=True)
class Broken:
    """A violation, and the operations that lead to it, those of the drain phase included.

    at: the operation that breaks the property; len(operations) if it is the state at the end."""

    operations: tuple[Operation, ...]
    property_id: str
    message: str
    at: int

    def __len__(self) -> int:
        return len(self.operations)


@dataclass
class Expansion:
    """What came of a list of states.

    found: (which of the states, operation, digest) of states that are new as far as this list tells.
    broken: the first violation at an operation. leaking: the shortest that ends in a drain phase.
    """

    found: list[tuple[int, Operation, bytes]] = field(default_factory=list)
    transitions: int = 0
    lookups: int = 0
    drains: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    broken: Broken | None = None
    leaking: Broken | None = None


class Expander:
    """Expands states of `space`. `drain`: also run the drain phase on each."""

    def __init__(self, factory: TargetFactory, space: Space, judging: Judging, drain: bool = True) -> None:
        self._drain = drain
        self._normal = Normal()
        root = judging.session(factory, space.configuration, strict=True)
        self.space = space.within(root.capabilities)
        self._path: list[Operation] = []
        self._along: list[Session] = [root]

    def root(self) -> bytes:
        """The digest of the first state."""
        return self._normal.digest(self._along[0])[0]

    def session(self, path: Sequence[Operation]) -> Session:
        """A session after `path`; to be read only."""
        same = 0
        for done, wanted in zip(self._path, path, strict=False):
            if done is not wanted and done != wanted:
                break
            same += 1
        del self._path[same:], self._along[same + 1 :]
        for operation in path[same:]:
            session = self._along[-1].clone()
            session.walk_every = _NEVER  # that was done when the state was found
            try:
                session.apply(operation)
            except Violation as violation:
                raise Changed(
                    f"{operation} after {self._path} breaks {violation.id}, and did not before; {_ANEW}"
                ) from violation
            session.walk_every = 1
            self._path.append(operation)
            self._along.append(session)
        return self._along[-1]

    def expand(self, tasks: Iterable[Task], drains_only: bool = False) -> Expansion:
        """Every operation of each of these states, each on a clone, in strict mode. Ends at a violation.

        drains_only: nothing but the drain phase. Raises Changed. O(operations)."""
        result = Expansion()
        seen: set[bytes] = set()
        for number, (path, digest) in enumerate(tasks):
            session = self.session(path)
            here, known = self._normal.digest(session)
            if here != digest:
                raise Changed(
                    f"the operations {path} lead to the state {here.hex()}, and led to {digest.hex()} before; {_ANEW}"
                )
            if self._drain:
                result.drains += 1
                leaking = self._drained(session, path)
                if leaking is not None and (result.leaking is None or len(leaking) < len(result.leaking)):
                    result.leaking = leaking
            if drains_only or result.broken is not None:
                continue  # a drain phase may still show something that is one operation shorter
            result.broken = self._looked_up(session, path, known, result)
            if result.broken is not None:
                continue
            seen.add(digest)
            for operation in self.space.operations(session, known):
                child = session.clone()
                before = child.noticed()
                result.transitions += 1
                try:
                    child.apply(operation)
                except Violation as violation:
                    result.broken = _broken((*path, operation), violation)
                    break
                result.kinds[operation.op] += 1
                if child.refused:
                    result.refused.update(child.refused)
                result.events.update(child.judge.events)
                for event, count in child.noticed().items():
                    if count > before.get(event, 0):
                        result.events[event] += count - before.get(event, 0)
                after = self._normal.digest(child)[0]
                if after not in seen:
                    seen.add(after)
                    result.found.append((number, operation, after))
        return result

    def _drained(self, session: Session, path: tuple[Operation, ...]) -> Broken | None:
        """Walked at the end only; if that shows something, once more in strict mode, for the first thing that does."""
        clone = session.clone()
        clone.walk_every = _NEVER
        try:
            clone.drain()
            return None
        except Violation as violation:
            last = violation
        done: list[Operation] = []
        outcomes = 0
        clone = session.clone()

        def act(operation: Operation) -> None:
            nonlocal outcomes
            done.append(operation)
            clone.apply(operation)
            outcomes += 1

        try:
            clone.drain(act)
        except Violation as violation:
            last = violation
        return Broken((*path, *done), last.id, last.message, len(path) + outcomes)

    def _looked_up(
        self, session: Session, path: tuple[Operation, ...], known: Iterable[int], result: Expansion
    ) -> Broken | None:
        """All lookups, one after the other; one by one if they break something together."""
        lookups = list(self.space.lookups(session, known))
        if not lookups:
            return None
        result.lookups += len(lookups)
        clone = session.clone()
        clone.walk_every = _NEVER
        try:
            for lookup in lookups:
                clone.apply(lookup)
            clone.walk()
            return None
        except Violation as violation:
            last = _broken((*path, *lookups), violation)
        for lookup in lookups:
            try:
                session.clone().apply(lookup)
            except Violation as violation:
                return _broken((*path, lookup), violation)
        return last


def _broken(operations: tuple[Operation, ...], violation: Violation) -> Broken:
    return Broken(operations, violation.id, violation.message, len(operations) - 1)
