"""Admission for the whole request: an engine that reserves all that a request has, and grows it token by token.

A tail is copied at append exactly if its block has more than one holder: tables (those of freed requests in flight
included) and pending copies alike. A published tail, partly used after a truncation and held by nobody else by then,
leaves the index at append.
"""

from __future__ import annotations

from collections import abc, defaultdict
from typing import ClassVar

from . import events
from .allocation import Allocation
from .blocks import Blocks
from .due import Due
from .hits import Hits
from .policy import Policy
from .refusals import NEVER_FITS, OUT_OF_BLOCKS
from .sequence import PendingCopy, Sequence, Span, others_of
from .verdicts import Admission, Aliasing, Exact, Findings, Mapping, Rollback

__all__ = ["ForWholeRequest"]


class ForWholeRequest:
    """Blocks are taken for all tokens at allocate and append. O(the request's blocks)."""

    one_by_one: ClassVar[bool] = False

    def __init__(
        self,
        policy: Policy,
        blocks: Blocks,
        hits: Hits,
        allocation: Allocation,
        counts: defaultdict[str, int],
        findings: Findings,
    ) -> None:
        self._size = policy.block_size
        self._complete = policy.complete
        self._exact = policy.exact
        self._blocks = blocks
        self._hits = hits
        self._allocation = allocation
        self._counts = counts
        self._findings = findings

    def before_allocate(self, due: Due) -> None:
        sequence, blocks = due.sequence, self._blocks
        needed = -(-len(sequence.tokens) // self._size)
        due.hits = self._hits.due(sequence)
        due.may_refuse = not self._complete and needed > blocks.available
        if needed > blocks.capacity:
            self._counts[events.NEVER_FITS] += 1
            due.refusal = NEVER_FITS
            return
        active = [block for block in due.hits[0] if blocks.references[block]]
        missing = needed - len(active) - blocks.available
        if missing > 0:
            self._counts[events.refused_for(missing)] += 1
            due.refusal = OUT_OF_BLOCKS

    def after_allocate(self, due: Due, hit_tokens: int, table: list[int]) -> bool:
        sequence = due.sequence
        return self._allocation.admit(sequence, hit_tokens, table, len(sequence.tokens), due.hits)

    def before_append(self, due: Due) -> None:
        sequence = due.sequence
        table = sequence.tables[0].blocks
        num_blocks = -(-(len(sequence.tokens) + len(due.tokens)) // self._size)
        needed = num_blocks - len(table) + self.must_copy(sequence)
        if needed and num_blocks > self._blocks.capacity:
            self._counts[events.NEVER_FITS] += 1
            due.refusal = NEVER_FITS
        elif needed > self._blocks.available:
            self._counts[events.APPEND_REFUSED] += 1
            due.refusal = OUT_OF_BLOCKS

    def after_append(self, due: Due, table: list[int]) -> bool:
        sequence, new, size, accuse = due.sequence, due.tokens, self._size, self._findings.accuse
        group, length, request = sequence.tables[0], len(sequence.tokens), sequence.request
        old = group.blocks
        needed = -(-(length + len(new)) // size)
        if len(table) != needed:
            accuse(
                Admission, f"{request!r} has {length + len(new)} tokens and {len(table)} blocks; {needed} are needed"
            )
            return False
        kept = len(old)
        if table[:kept] != old:
            if table[: kept - 1] != old[:-1] or length % size == 0:
                accuse(Mapping, f"append changed the table of {request!r} from {old} to {table}")
                return False
            kept -= 1  # the tail was switched: copy-on-write
        switched = kept < len(old)
        # Where choices are not predicted, the write is judged instead: it may not go to a block that others hold.
        if self.must_copy(sequence):
            if not switched and self._exact:
                others = others_of(old[-1], sequence, self._allocation.sequences)
                told = f"; others: {others}" if others else ""
                accuse(Aliasing, f"append to {request!r} keeps its tail block {old[-1]}, which others hold too{told}")
                return False
            self._counts[events.COPY_ON_WRITE] += 1
            if length % size == size - 1:
                self._counts[events.COPY_ON_WRITE_AT_THE_LAST_SLOT] += 1
        elif switched and self._exact:
            accuse(Exact, f"append to {request!r} replaced its tail block {old[-1]}, which nobody else holds")
            return False
        group.blocks = table
        self._allocation.hand_out(sequence, group, table[kept:])
        if switched:
            sequence.pending = PendingCopy(old[-1], table[kept], length)
        elif length % size and self._blocks.published[old[-1]] is not None:
            self._blocks.withdraw(old[-1], Rollback)
            self._counts[events.PUBLISHED_TAIL_WITHDRAWN_AT_APPEND] += 1
        return True

    def must_copy(self, sequence: Sequence) -> bool:
        """Whether an append must copy the tail first."""
        return bool(len(sequence.tokens) % self._size) and self._blocks.references[sequence.tables[0].blocks[-1]] > 1

    def before_dispatch(self, due: Due) -> None:
        """Its blocks are there: no step is refused."""

    def no_room(self, due: Due) -> None:
        """Nothing changes."""

    def after_dispatch(self, due: Due, starts: abc.Sequence[int], tables: abc.Sequence[list[int]]) -> list[Span]:
        spans: list[Span] = []
        for sequence, count in due.work:
            spans.append((sequence, sequence.scheduled, sequence.scheduled + count))
        return spans
