"""State coverage: which blocks each kind of operation has met (free, cached, active or shared, published or not).

A campaign that never freed a shared block has not tested that, however many operations it did. Counting costs about as
much as the operation itself. So only one episode in `SAMPLED` is counted, and the counts are those of the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .operations import Operation
from .session import Session

__all__ = ["SAMPLED", "STATES", "Coverage"]

SAMPLED = 16
"""One episode in so many is counted."""

STATES = ("free", "cached", "active", "shared", "published")
"""Of a block before the operation that touched it. An active or shared one may be published, too."""


class HasSession(Protocol):
    """A run, as far as it is looked at here."""

    session: Session


@dataclass
class Coverage:
    """{kind of operation: {state of a block: how many such blocks it touched}}."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def watch(self) -> Callable[[HasSession, Operation], None]:
        """A watcher, to be called with a run and each operation before it is applied. The last one is not counted:
        nothing comes after it.

        O(pool) an operation."""
        kind = ""
        read: list[int] = []
        references: list[int] = []
        published: list[int | None] = []

        def look(run: HasSession, operation: Operation) -> None:
            nonlocal kind, read, references, published
            judge = run.session.judge
            if kind:
                # A block that is touched twice is met once.
                for block in dict.fromkeys((*read, *run.session.changed)):
                    count, content = references[block], published[block]
                    state = "shared" if count > 1 else "active" if count else "free" if content is None else "cached"
                    self.add(kind, state)
                    if count and content is not None:
                        self.add(kind, "published")
            kind = operation.op
            lines = judge.sequences
            # A step changes no reference: the blocks that it touches are those that it may read and write.
            named = operation.requests() if operation.reads_tables else ()
            read = [block for name in named if name in lines for block in lines[name].table]
            references, published = judge.blocks.references.copy(), judge.blocks.published.copy()

        return look

    def add(self, kind: str, state: str, count: int = 1) -> None:
        row = self.counts.setdefault(kind, dict.fromkeys(STATES, 0))
        row[state] += count

    def merge(self, other: Coverage) -> None:
        """Add another's counts. O(counts)."""
        for kind, row in other.counts.items():
            for state, count in row.items():
                self.add(kind, state, count)

    def to_json(self) -> dict[str, dict[str, int]]:
        return {kind: dict(row) for kind, row in sorted(self.counts.items())}
