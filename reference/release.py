"""What goes when: when a sequence lets its blocks go.

Where blocks are held until their steps complete, what is freed or cut off in flight stays held until the last step in
flight that may use it has completed. Where they go at once, whoever gets them writes to them later in the same stream.

A copy's source, and what a truncation cut off in flight, may be released when nobody holds their prefix any more; what
of it is cached then counts as released after them.

With a sliding window, what no query attends to any more is released when a step is to compute the request further,
whether it then fits or not. The table has the reserved block in its place.
"""

from __future__ import annotations

from collections import defaultdict

from . import events
from .blocks import Blocks
from .policy import Policy
from .sequence import GroupTable, Sequence, Step

__all__ = ["Release"]


class Release:
    """Every method is O(blocks let go)."""

    def __init__(self, policy: Policy, blocks: Blocks, counts: defaultdict[str, int]) -> None:
        self._at_once = policy.lifetime == "stream"
        self._windowed = policy.windowed
        self._null = policy.null_block
        self._settles = blocks.settles
        self._blocks = blocks
        self._counts = counts

    # ---- at the end --------------------------------------------------------------------------------------------------

    def freed(self, sequence: Sequence) -> None:
        """The request is freed."""
        if sequence.in_flight:
            self._counts[events.FREED_WHILE_IN_FLIGHT] += 1
        if not sequence.in_flight or self._at_once:
            self._let_all_go(sequence)

    def cut_off(self, sequence: Sequence, blocks: list[int]) -> None:
        """A truncation took these out of the table."""
        if not sequence.in_flight or self._at_once:
            for block in blocks:
                self._blocks.let_go(block)
            if self._settles:
                self._blocks.settle()
        elif blocks:
            sequence.deferred.append((sequence.in_flight[-1], blocks))

    def completed(self, step: Step) -> None:
        """The oldest step in flight has completed; its sequences no longer have it."""
        for source, _ in step.copies:
            self._blocks.let_go_alone(source)
        for sequence, _, _ in step.spans:
            deferred = sequence.deferred
            while deferred and deferred[0][0] is step:
                for block in deferred.pop(0)[1]:
                    self._blocks.let_go_alone(block)
            if sequence.freed and not sequence.in_flight and not self._at_once:
                self._let_all_go(sequence)
        if self._settles:
            self._blocks.settle()

    def held_by_steps(self, steps: list[Step]) -> list[Sequence]:
        """The freed sequences whose blocks are still held."""
        if self._at_once:
            return []
        return [sequence for step in steps for sequence, _, _ in step.spans if sequence.freed]

    def _let_all_go(self, sequence: Sequence) -> None:
        if sequence.pending is not None:
            self._counts[events.PENDING_COPY_CANCELLED_BY_FREE] += 1
            self._blocks.let_go(sequence.pending.source)
            sequence.pending = None
        for table in sequence.tables:
            for block in reversed(table.blocks[table.num_released :]):
                self._blocks.let_go(block)
            if self._settles:
                self._blocks.settle()

    # ---- behind a window ---------------------------------------------------------------------------------------------

    def outside_window(self, sequence: Sequence) -> int:
        """How many blocks become available when what lies outside the windows is released."""
        if not self._windowed:
            return 0
        references = self._blocks.references
        going = [table.blocks[table.num_released : self._first_needed(sequence, table)] for table in sequence.tables]
        return sum(references[block] == 1 for blocks in going for block in blocks)

    def release_outside_window(self, sequence: Sequence) -> None:
        """Let go what lies before the windows, last first. A sequence without blocks has nothing to let go."""
        if not self._windowed or not sequence.admitted:
            return
        for table in sequence.tables:
            needed = self._first_needed(sequence, table)
            if needed <= table.num_released:
                continue
            for logical in range(needed - 1, table.num_released - 1, -1):
                self._blocks.let_go(table.blocks[logical])
            table.blocks = [self._null] * needed + table.blocks[needed:]
            table.num_released = needed
            self._counts[events.LET_GO_BEHIND_THE_WINDOW] += 1
            if self._settles:
                self._blocks.settle()

    @staticmethod
    def _first_needed(sequence: Sequence, table: GroupTable) -> int:
        """The first block needed by the first query that may still come: of a token that is not computed or, since it
        may be rejected and computed again, not named."""
        return table.group.first_needed_block(min(sequence.computed, sequence.num_named))
