"""What can be cut: the end of a sequence, back to where nothing was computed or published on its account.

A truncation to `length` leaves the blocks of the first `length` tokens, and takes the others out of the table (or keeps
them at its end, where the policy says so). What of it is published leaves the index, unless others hold it. A
truncation that cuts all tokens that a pending copy was made for undoes the copy: the table gets the source back.
"""

from __future__ import annotations

from collections import defaultdict

from . import events
from .blocks import Blocks
from .policy import Policy
from .release import Release
from .sequence import UNKNOWN, Sequence
from .verdicts import Findings, Rollback

__all__ = ["AnyToken", "OnlyPlaceholders", "rollback_of"]


class AnyToken:
    """Any tokens that were appended can be cut."""

    def __init__(
        self, policy: Policy, blocks: Blocks, release: Release, counts: defaultdict[str, int], findings: Findings
    ) -> None:
        self._size = policy.block_size
        self._kept = policy.leftover == "kept"
        self._blocks = blocks
        self._release = release
        self._counts = counts
        self._findings = findings

    def shortest(self, sequence: Sequence) -> int:
        """The least length that it can be cut to; its own where nothing can be cut. O(named tokens)."""
        return sequence.base

    def moved_down(self, sequence: Sequence, length: int) -> int:
        """By how many positions the steps in flight compute lower than they were to."""
        return 0

    def truncate(self, sequence: Sequence, length: int, table: list[int]) -> None:
        """The sequence was cut to `length` tokens; this is its block table now. O(what is cut + table)."""
        size, blocks, counts, request = self._size, self._blocks, self._counts, sequence.request
        if length == len(sequence.tokens):
            if table != sequence.table:
                self._findings.accuse(
                    Rollback, f"truncating {request!r} to its own length changed its table to {table}"
                )
            return
        tables, cut, undone = self._cut(sequence, length)
        if undone:
            sequence.pending = None
            counts[events.COPY_UNDONE_BY_TRUNCATION] += 1
        expected = [block for own in tables for block in own]
        if table != expected:
            self._findings.accuse(
                Rollback, f"{request!r} cut to {length} tokens has table {table}; it should be {expected}"
            )
            return
        cut_into = [block for own in tables for block in own[length // size :][:1]] if length % size else []
        for block in cut + cut_into:
            if blocks.references[block] > 1:
                counts[events.TRUNCATED_INTO_A_SHARED_BLOCK] += 1
            elif blocks.published[block] is not None:
                blocks.withdraw(block, Rollback)
                counts[events.PUBLISHED_BLOCK_ROLLED_BACK] += 1
        if sequence.computed > length:
            counts[events.COMPUTED_TOKENS_ROLLED_BACK] += 1
        down = self.moved_down(sequence, length)
        if sequence.num_placeholders:
            sequence.num_placeholders -= sequence.tokens[length:].count(UNKNOWN)
        del sequence.tokens[length:]
        sequence.scheduled = min(sequence.scheduled, length)
        sequence.computed = min(sequence.computed - down, length)
        for group, own in zip(sequence.tables, tables, strict=True):
            group.blocks = own
            del group.histories[length // size + 1 :]
            group.published = min(group.published, length // size)
        for step in sequence.in_flight:
            step.spans = [
                (other, min(start - down, length), min(end - down, length))
                if other is sequence
                else (other, start, end)
                for other, start, end in step.spans
            ]
        if sequence.in_flight and (cut or down):
            counts[events.TRUNCATED_WHILE_IN_FLIGHT] += 1
        self._release.cut_off(sequence, cut)

    def _cut(self, sequence: Sequence, length: int) -> tuple[list[list[int]], list[int], bool]:
        """The tables after the truncation, the blocks that are in none of them any more, and whether a pending copy is
        undone."""
        tables = [table.blocks.copy() for table in sequence.tables]
        cut: list[int] = []
        pending = sequence.pending
        undone = pending is not None and length <= pending.length
        if pending is not None and undone:
            tables[0][pending.length // self._size] = pending.source
            cut.append(pending.destination)
        if not self._kept:
            keep = -(-length // self._size)
            for own in tables:
                cut += reversed(own[keep:])
                del own[keep:]
        return tables, cut, undone


class OnlyPlaceholders(AnyToken):
    """Only drafts that were rejected can be cut: the first token without a name, and all behind it. In flight: what no
    step computes yet, and as many more as completed steps have computed and nobody has named."""

    def shortest(self, sequence: Sequence) -> int:
        named = sequence.num_named
        if not sequence.in_flight:
            return named
        if sequence.num_placeholders < len(sequence.tokens) - named:  # a name behind a placeholder is one of a position
            return max(named, sequence.scheduled)
        return max(named, sequence.scheduled - max(0, sequence.computed - named))

    def moved_down(self, sequence: Sequence, length: int) -> int:
        """Where drafts are rejected while later steps are in flight, those compute what comes after the accepted."""
        return max(0, sequence.scheduled - length) if sequence.in_flight else 0


def rollback_of(
    policy: Policy, blocks: Blocks, release: Release, counts: defaultdict[str, int], findings: Findings
) -> AnyToken:
    """The one that the policy states."""
    kind = AnyToken if policy.truncates == "tokens" else OnlyPlaceholders
    return kind(policy, blocks, release, counts, findings)
