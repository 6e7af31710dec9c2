"""REFERENCES, OWNERSHIP, CONSERVATION and EXACT, as far as a core shows its counts.

After every operation: the blocks it touched, and the three counts. At intervals: every block, every table, both queues,
and the history that the index claims for every published block.
"""

from __future__ import annotations

from reference import Conservation, Exact, Histories, Isolation, Mapping, Ownership, References, Rollback

from ..boundary import counts
from ..operations import Namespace
from ..target import Capability, Claim
from .law import Seen

__all__ = ["Bookkeeping"]


class Bookkeeping:
    """contents_every: operations between two comparisons of all histories that the index claims, at least."""

    needs = frozenset({Capability.INSPECT})
    excludes: frozenset[Capability] = frozenset()

    def __init__(self, contents_every: int) -> None:
        self._every = contents_every
        self._since = 0

    def fresh(self) -> Bookkeeping:
        """The same for another session."""
        return Bookkeeping(self._every)

    def after(self, seen: Seen) -> None:
        changed, blocks = seen.changed, seen.judge.blocks
        references, published = blocks.references, blocks.published
        states = seen.see(seen.target.states, changed)
        for block, (count, indexed) in zip(changed, states, strict=True):
            if count != references[block] or indexed != (published[block] is not None):
                self._accuse(seen, block, count, indexed)
        self._counts(seen)

    def walk(self, seen: Seen, operations: int) -> None:
        judge = seen.judge
        shown = seen.see(seen.target.inspect)
        if shown.references != judge.blocks.references or shown.published != [
            history is not None for history in judge.blocks.published
        ]:
            for block, (count, indexed) in enumerate(zip(shown.references, shown.published, strict=True)):
                if count != judge.blocks.references[block] or indexed != (judge.blocks.published[block] is not None):
                    self._accuse(seen, block, count, indexed)
        for request, sequence in judge.sequences.items():
            table = shown.tables.get(request)
            if table != sequence.table:
                raise Mapping(f"the table of {request!r} has changed to {table}; it was {sequence.table}")
            lengths = len(sequence.tokens), sequence.scheduled, sequence.computed
            if shown.lengths and shown.lengths[request] != lengths:
                raise Rollback(
                    f"{request!r} has {shown.lengths[request]} (tokens, scheduled, computed) in the core, not {lengths}"
                )
        if extra := sorted(set(shown.tables) - set(judge.sequences)):
            raise Conservation(f"the core still has requests {extra}, which are not live")
        self._counts(seen)
        self._queues(seen, shown.free, shown.cached)
        self._since += operations
        if self._since >= self._every and Capability.CONTENTS in seen.target.capabilities:
            self._since = 0
            self._contents(seen)

    def _counts(self, seen: Seen) -> None:
        blocks = seen.judge.blocks
        free, cached, active = shown = seen.see(seen.target.counts)
        available = blocks.available
        if free + cached != available or cached != blocks.cached or active != blocks.num_blocks - available:
            counts(seen.target, shown)
            raise Conservation(
                f"the core counts {free} free + {cached} cached + {active} active blocks; by its tables there are "
                f"{available - blocks.cached} + {blocks.cached} + {blocks.num_blocks - available}"
            )

    def _queues(self, seen: Seen, free: list[int] | None, cached: list[int] | None) -> None:
        judge = seen.judge
        if free is None or cached is None:
            return
        listed = free + cached
        if len(set(listed)) != len(listed):
            raise Conservation(f"a block is listed twice: free {free}, cached {cached}")
        busy = [block for block in listed if judge.blocks.references[block]]
        if busy or len(listed) != judge.blocks.available:
            raise Conservation(
                f"free {free} and cached {cached}; {judge.blocks.available} blocks have no holder, {busy} have one"
            )
        predictor = judge.blocks.predictor
        if predictor is not None and (free != list(predictor.free) or cached != list(predictor.cached)):
            raise Exact(
                f"free {free}, cached {cached}; by the order of release free {list(predictor.free)}, "
                f"cached {list(predictor.cached)}"
            )

    def _contents(self, seen: Seen) -> None:
        judge = seen.judge
        numbers: dict[int, int] = {}  # of histories, by id of a claim
        claims = seen.see(seen.target.contents)
        for block, history in enumerate(judge.blocks.published):
            if history is not None and block not in claims:
                self._accuse(seen, block, judge.blocks.references[block], False)
        for block, claim in claims.items():
            history = judge.blocks.published[block]
            if history is None:
                raise Ownership(f"the index names block {block}, which holds nothing published")
            if self._number(judge.histories, claim, numbers) != history:
                namespace, tokens = claim.describe()
                expected = judge.histories.describe(history)
                if tokens == expected[1]:
                    raise Isolation(
                        f"the index claims block {block} for namespace {namespace}; it was written in {expected[0]}"
                    )
                raise Ownership(f"the index claims {namespace} {tokens} for block {block}, which holds {expected}")

    @staticmethod
    def _number(histories: Histories, claim: Claim, numbers: dict[int, int]) -> int:
        """The history that `claim` is, as a number: equal histories have equal numbers. O(claims not met before)."""
        path = []
        at: Claim | Namespace = claim
        while isinstance(at, Claim) and id(at) not in numbers:
            path.append(at)
            at = at.before
        number = numbers[id(at)] if isinstance(at, Claim) else histories.root(at)
        for step in reversed(path):
            number = numbers[id(step)] = histories.extend(number, step.tokens)
        return number

    def _accuse(self, seen: Seen, block: int, count: int, indexed: bool) -> None:
        blocks, histories = seen.judge.blocks, seen.judge.histories
        if indexed != (blocks.published[block] is not None):
            history = blocks.published[block]
            raise Ownership(
                f"block {block} holds {histories.describe(history)[1]} and is not in the index"
                if history is not None
                else f"block {block} is in the index, but its content is not published (any more)"
            )
        if count != blocks.references[block]:
            raise References(
                f"block {block} has {count} references; {blocks.references[block]} tables and pending copies hold it"
            )
