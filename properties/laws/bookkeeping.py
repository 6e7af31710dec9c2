"""REFERENCES, OWNERSHIP, CONSERVATION and EXACT, as far as a core shows its counts.

After every operation: the blocks it touched, and the three counts. At intervals: every block, every table, both queues,
and the history that the index claims for every published block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import Conservation, Exact, Mapping, Ownership, References, Rollback

from ..target import Capability

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Bookkeeping"]


class Bookkeeping:
    needs = frozenset({Capability.INSPECT})

    def after(self, session: Session) -> None:
        judge, target = session.judge, session.target
        touched = judge.touched
        references, published = judge.references, judge.published
        for block, (count, indexed) in zip(touched, target.states(touched), strict=True):
            if count != references[block] or indexed != (published[block] is not None):
                self._accuse(session, block, count, indexed)
        free, cached, active = target.counts()
        idle = judge.idle
        if free + cached != idle or cached != judge.cached or active != judge.policy.num_blocks - idle:
            raise Conservation(
                f"the core counts {free} free + {cached} cached + {active} active blocks; by its tables there are "
                f"{idle - judge.cached} + {judge.cached} + {judge.policy.num_blocks - idle}"
            )

    def walk(self, session: Session) -> None:
        judge = session.judge
        seen = session.target.inspect()
        if seen.references != judge.references or seen.published != [
            history is not None for history in judge.published
        ]:
            for block, (count, indexed) in enumerate(zip(seen.references, seen.published, strict=True)):
                if count != judge.references[block] or indexed != (judge.published[block] is not None):
                    self._accuse(session, block, count, indexed)
        for request, line in judge.lines.items():
            if seen.tables.get(request) != line.table:
                raise Mapping(
                    f"the table of {request!r} has changed to {seen.tables.get(request)}; it was {line.table}"
                )
            lengths = len(line.tokens), line.scheduled, line.computed
            if seen.lengths and seen.lengths[request] != lengths:
                raise Rollback(
                    f"{request!r} has {seen.lengths[request]} (tokens, scheduled, computed) in the core, not {lengths}"
                )
        if extra := sorted(set(seen.tables) - set(judge.lines)):
            raise Conservation(f"the core still has requests {extra}, which are not live")
        self._queues(session, seen.free, seen.cached)
        if session.steps_since_contents >= session.contents_every:
            session.steps_since_contents = 0
            self._contents(session)

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
        claimed = session.target.contents()
        for block, history in enumerate(judge.published):
            if history is not None and block not in claimed:
                self._accuse(session, block, judge.references[block], False)
        for block, (namespace, tokens) in claimed.items():
            history = judge.published[block]
            if history is None:
                raise Ownership(f"the index names block {block}, which holds nothing published")
            expected = judge.histories.describe(history)
            if (namespace, tuple(tokens)) != expected:
                raise Ownership(f"the index claims {namespace} {tokens} for block {block}, which holds {expected}")

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
