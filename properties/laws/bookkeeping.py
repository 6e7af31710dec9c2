"""REFERENCES, OWNERSHIP, CONSERVATION and EXACT, as far as a core shows its counts.

After every operation: the blocks it touched, and the three counts. At intervals: every block, every table, both queues,
and the history that the index claims for every published block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import Conservation, Exact, Histories, Mapping, Ownership, References, Rollback

from ..operations import Namespace
from ..target import Capability, Claim

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Bookkeeping"]


class Bookkeeping:
    needs = frozenset({Capability.INSPECT})

    def after(self, session: Session) -> None:
        judge = session.judge
        touched = judge.touched
        references, published = judge.references, judge.published
        seen = session.see(session.target.states, touched)
        for block, (count, indexed) in zip(touched, seen, strict=True):
            if count != references[block] or indexed != (published[block] is not None):
                self._accuse(session, block, count, indexed)
        self._counts(session)

    def walk(self, session: Session) -> None:
        judge = session.judge
        seen = session.see(session.target.inspect)
        if seen.references != judge.references or seen.published != [
            history is not None for history in judge.published
        ]:
            for block, (count, indexed) in enumerate(zip(seen.references, seen.published, strict=True)):
                if count != judge.references[block] or indexed != (judge.published[block] is not None):
                    self._accuse(session, block, count, indexed)
        for request, line in judge.lines.items():
            table = seen.tables.get(request)
            if table != line.table:
                raise Mapping(f"the table of {request!r} has changed to {table}; it was {line.table}")
            lengths = len(line.tokens), line.scheduled, line.computed
            if seen.lengths and seen.lengths[request] != lengths:
                raise Rollback(
                    f"{request!r} has {seen.lengths[request]} (tokens, scheduled, computed) in the core, not {lengths}"
                )
        if extra := sorted(set(seen.tables) - set(judge.lines)):
            raise Conservation(f"the core still has requests {extra}, which are not live")
        self._counts(session)
        self._queues(session, seen.free, seen.cached)
        if session.steps_since_contents >= session.contents_every:
            session.steps_since_contents = 0
            self._contents(session)

    def _counts(self, session: Session) -> None:
        judge = session.judge
        free, cached, active = session.see(session.target.counts)
        idle = judge.idle
        if free + cached != idle or cached != judge.cached or active != judge.policy.num_blocks - idle:
            raise Conservation(
                f"the core counts {free} free + {cached} cached + {active} active blocks; by its tables there are "
                f"{idle - judge.cached} + {judge.cached} + {judge.policy.num_blocks - idle}"
            )

    def _queues(self, session: Session, free: list[int] | None, cached: list[int] | None) -> None:
        judge = session.judge
        if free is None or cached is None:
            return
        listed = free + cached
        if len(set(listed)) != len(listed):
            raise Conservation(f"a block is listed twice: free {free}, cached {cached}")
        busy = [block for block in listed if judge.references[block]]
        if busy or len(listed) != judge.idle:
            raise Conservation(f"free {free} and cached {cached}; {judge.idle} blocks have no holder, {busy} have one")
        predictor = judge.predictor
        if predictor is not None and (free != list(predictor.free) or cached != list(predictor.cached)):
            raise Exact(
                f"free {free}, cached {cached}; by the order of release free {list(predictor.free)}, "
                f"cached {list(predictor.cached)}"
            )

    def _contents(self, session: Session) -> None:
        judge = session.judge
        numbers: dict[int, int] = {}  # of histories, by id of a claim
        claims = session.see(session.target.contents)
        for block, history in enumerate(judge.published):
            if history is not None and block not in claims:
                self._accuse(session, block, judge.references[block], False)
        for block, claim in claims.items():
            history = judge.published[block]
            if history is None:
                raise Ownership(f"the index names block {block}, which holds nothing published")
            if self._number(judge.histories, claim, numbers) != history:
                namespace, tokens = claim.describe()
                expected = judge.histories.describe(history)
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

    def _accuse(self, session: Session, block: int, count: int, indexed: bool) -> None:
        judge = session.judge
        if indexed != (judge.published[block] is not None):
            history = judge.published[block]
            raise Ownership(
                f"block {block} holds {judge.histories.describe(history)[1]} and is not in the index"
                if history is not None
                else f"block {block} is in the index, but its content is not published (any more)"
            )
        if count != judge.references[block]:
            raise References(
                f"block {block} has {count} references; {judge.references[block]} tables and pending copies hold it"
            )
