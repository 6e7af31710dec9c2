"""The normal form of a state: equal for two states exactly if they are the same up to names.

A state is the target and the judge. Blocks, tokens, requests and steps have names that carry no meaning, so they are
numbered by first appearance in an order that does not depend on names: the free blocks and the cached ones as they
would be taken, then the tables of the requests. Requests have no order; they are sorted by what can be said of each
without names, and where that does not tell two apart, each order is tried and the least form counts.

Any one-to-one renaming is sound, however it is found: equal forms mean that one state becomes the other by renaming.
Whether equal states are *found* to be equal decides only how many states there are.

Left out is what cannot decide whether anything is a violation: see docs/explore.md.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterator, Sequence
from itertools import groupby, permutations, product
from typing import Any

from properties.boundary import wrong
from properties.session import Session
from properties.target import Capability, Numbers, Renaming
from reference import Judge
from reference import Sequence as CachedSequence

__all__ = ["DIGEST", "Normal"]

DIGEST = 16
"""Bytes of a digest. Two of a million forms share one with a probability of about 2**-89."""


class Normal:
    """Makes normal forms of sessions that are clones of one another: they share the numbers of histories."""

    def __init__(self) -> None:
        self._described: dict[int, tuple[Any, tuple[int, ...]]] = {}

    def digest(self, session: Session) -> tuple[bytes, Numbers]:
        """(the form's digest, the tokens that occur in the state). O(pool + all tables and tokens); times the orders of
        requests that look the same."""
        forms = [self._form(session, renaming, lines) for renaming, lines in self._renamings(session)]
        data, known = min(forms, key=lambda form: form[0])
        return hashlib.blake2b(data, digest_size=DIGEST).digest(), known

    def _renamings(self, session: Session) -> Iterator[tuple[Renaming, list[CachedSequence]]]:
        judge = session.judge
        steps = {id(passage): number for number, passage in enumerate(judge.in_flight)}
        signed = sorted(
            ((_signature(judge, line, steps), line) for line in judge.sequences.values()), key=lambda entry: entry[0]
        )
        groups = [[line for _, line in group] for _, group in groupby(signed, key=lambda entry: entry[0])]
        freed: list[CachedSequence] = []
        for passage in judge.in_flight:
            for line, _, _ in passage.spans:
                if line.freed and line not in freed:
                    freed.append(line)
        queues = _queues(session)
        for order in product(*(permutations(group) for group in groups)):
            lines = [line for group in order for line in group]
            requests = {line.request: number for number, line in enumerate(lines)}
            lines += freed
            seen = dict.fromkeys(queues)
            for line in lines:
                seen.update(dict.fromkeys(line.table))
                if line.pending is not None:
                    seen[line.pending[0]] = None
                for _, cut in line.deferred:
                    seen.update(dict.fromkeys(cut))
            for passage in judge.in_flight:
                for copy in passage.copies:
                    seen.update(dict.fromkeys(copy))
            total = judge.policy.num_blocks
            if len(seen) < total:
                seen.update(dict.fromkeys(range(total)))
            names = [0] * total
            for number, block in enumerate(seen):
                names[block] = number
            yield Renaming(names, tuple(seen), Numbers(), requests), lines

    def _form(self, session: Session, renaming: Renaming, lines: list[CachedSequence]) -> tuple[bytes, Numbers]:
        judge = session.judge
        blocks, tokens = renaming.blocks, renaming.tokens
        place = {id(line): number for number, line in enumerate(lines)}
        steps = {id(passage): number for number, passage in enumerate(judge.in_flight)}
        shown = [
            (
                [tokens[token] for token in line.tokens],
                [blocks[block] for block in line.table],
                (line.base, line.scheduled, line.computed, line.tables[0].published, line.tables[0].written_from),
                judge.current(line),
                line.freed,
                line.namespace,
                line.pending and (blocks[line.pending[0]], blocks[line.pending[1]], line.pending[2]),
                [(steps[id(passage)], [blocks[block] for block in cut]) for passage, cut in line.deferred],
            )
            for line in lines
        ]
        flights = [
            (
                [(place[id(line)], start, end) for line, start, end in passage.spans],
                [(blocks[source], blocks[destination]) for source, destination in passage.copies],
            )
            for passage in judge.in_flight
        ]
        published = []
        for block in renaming.order:
            history = judge.blocks.published[block]
            if history is not None:
                namespace, content = self._describe(judge, history)
                published.append((blocks[block], namespace, [tokens[token] for token in content]))
        owners = sorted([blocks[block] for block in some] for some in judge.blocks.owners.values() if len(some) > 1)
        order = judge.blocks.predictor
        queues: Any = None
        if order is not None:
            queues = [blocks[block] for block in order.free], [blocks[block] for block in order.cached]
        references = [judge.blocks.references[block] for block in renaming.order]
        # Version 2 of the format: later ones also tell which objects are shared, which is no part of the state.
        mine: Any = (references, shown, flights, published, owners, queues)
        theirs = session.see(session.target.canonical, renaming)
        try:
            return marshal.dumps((mine, theirs), 2), tokens
        except ValueError:
            raise wrong(session.target, "canonical", theirs, "nested tuples of plain values") from None

    def _describe(self, judge: Judge, history: int) -> tuple[Any, tuple[int, ...]]:
        known = self._described.get(history)
        if known is None:
            known = self._described[history] = judge.histories.describe(history)
        return known


def _queues(session: Session) -> Sequence[int]:
    """Blocks that nobody holds, in the order in which they would be taken, as far as that is known."""
    order = session.judge.blocks.predictor
    if order is not None:
        return [*order.free, *order.cached]
    if Capability.INSPECT in session.target.capabilities:  # also where it is judged from the outside
        shown = session.target.inspect()
        return [*(shown.free or ()), *(shown.cached or ())]
    return []


def _signature(judge: Judge, line: CachedSequence, steps: dict[int, int]) -> tuple[Any, ...]:
    """What can be said of a live request without names."""
    own: dict[int, int] = {}
    return (
        len(line.tokens),
        line.base,
        line.scheduled,
        line.computed,
        line.tables[0].published,
        line.tables[0].written_from,
        judge.current(line),
        line.namespace,
        line.pending[2] if line.pending is not None else -1,
        [steps[id(passage)] for passage in line.in_flight],
        [(steps[id(passage)], len(cut)) for passage, cut in line.deferred],
        [judge.blocks.references[block] for block in line.table],
        [own.setdefault(token, len(own)) for token in line.tokens],
        # Which of a step's requests it is.
        [[other is line for other, _, _ in passage.spans].index(True) for passage in line.in_flight],
    )
