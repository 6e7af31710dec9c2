"""Who gets which blocks: a sequence's first table, new blocks, and those that it shares with another.

A new block has no holder: no table has it (that of a freed request in flight neither), no pending copy needs it. Where
the order of blocks is stated, new blocks are those that were released first.
"""

from __future__ import annotations

from collections import defaultdict

from . import events
from .blocks import Blocks
from .counted import Counted
from .hits import Hits
from .policy import Policy
from .sequence import GroupTable, Sequence
from .verdicts import Admission, Eviction, Exact, Exclusive, Findings, Lifetime, Mapping

__all__ = ["Allocation"]


class Allocation:
    """sequences: all live ones, by request."""

    def __init__(
        self,
        policy: Policy,
        sequences: dict[str, Sequence],
        blocks: Blocks,
        hits: Hits,
        counts: defaultdict[str, int],
        counted: Counted,
        findings: Findings,
    ) -> None:
        self._counted = counted
        self._size = policy.block_size
        self._lookahead = policy.lookahead
        self._num_blocks = policy.num_blocks
        self._reserved = policy.reserved
        self.sequences = sequences
        self._blocks = blocks
        self._hits = hits
        self._counts = counts
        self._findings = findings

    def num_blocks(self, end: int) -> int:
        """How many blocks each group's table needs where positions up to `end` are to be computed."""
        return -(-(end + self._lookahead) // self._size)

    def admit(self, sequence: Sequence, hit_tokens: int, table: list[int], end: int, expected: list[list[int]]) -> bool:
        """The sequence gets its first `table`, for positions up to `end`, of which `hit_tokens` are hit. expected: for
        each group, the blocks that must be hit. False if nothing follows. O(table)."""
        size, tables, request = self._size, sequence.tables, sequence.request
        sequence.admitted = True
        length = self.num_blocks(end)
        needed = length * len(tables)
        tables[0].blocks = table
        if len(table) != needed:
            self._findings.accuse(
                Admission, f"{request!r} has {end} tokens and {len(table)} blocks; {needed} are needed"
            )
            return False
        hits = self._hits.num_blocks(sequence, hit_tokens, table)
        for at, (group, due) in enumerate(zip(tables, expected, strict=True)):
            group.blocks = table[at * length : (at + 1) * length] if len(tables) > 1 else table
            if not self._hits.judge(sequence, group, group.blocks[:hits], due):
                return False
        for group in tables:
            group.num_released = group.group.first_needed_block(hits * size)
            if group.num_released:
                self._counts[events.HIT_ONLY_IN_THE_WINDOW] += 1
            for block in group.blocks[group.num_released : hits]:
                self._blocks.hold(block, hit=True)
        for group in tables:
            self.hand_out(sequence, group, group.blocks[hits:])
            group.published = hits
            group.written_from = hits * size
        sequence.scheduled = sequence.computed = hit_tokens
        self._counted.queried += len(sequence.tokens)
        self._counted.hit += hit_tokens
        if hits * size == len(sequence.tokens):
            self._counts[events.WHOLE_PROMPT_HIT] += 1
        return True

    def fork(self, parent: Sequence, child: str, table: list[int]) -> Sequence | None:
        """A new sequence that shares all blocks of `parent`, with this `table`; None if nothing follows. O(tokens)."""
        own = parent.tables[0]
        if table != own.blocks:
            self._findings.accuse(
                Mapping, f"fork {child!r} of {parent.request!r} has table {table}, its parent {own.blocks}"
            )
            return None
        shared = own.clone()
        shared.blocks = table
        sequence = Sequence(child, parent.namespace, parent.tokens[:], [shared], parent.epoch)
        sequence.admitted = True
        sequence.scheduled = sequence.computed = parent.computed
        for block in table:
            self._blocks.hold(block)
        self._counts[events.FORK] += 1
        if len(sequence.tokens) % self._size:
            self._counts[events.FORK_WITH_A_SHARED_TAIL] += 1
        return sequence

    def replace(self, sequence: Sequence, table: list[int]) -> bool:
        """A step of the sequence has completed, and the core may have merged duplicates: this is its table now. False
        if nothing follows. O(table)."""
        group = sequence.tables[0]
        if table == group.blocks:
            return True
        old, group.blocks = group.blocks, table
        changed = [at for at, pair in enumerate(zip(old, table, strict=False)) if pair[0] != pair[1]]
        if len(table) != len(old) or changed[-1] >= sequence.computed // self._size:
            self._findings.accuse(
                Mapping, f"completing a step changed the table of {sequence.request!r} from {old} to {table}"
            )
            return False
        if self._hits.judge(sequence, group, table[: changed[-1] + 1], []):
            for at in changed:
                self._blocks.hold(table[at], hit=True)
                self._blocks.let_go(old[at])
        return True

    def hand_out(self, sequence: Sequence, table: GroupTable, new: list[int]) -> None:
        """The sequence was given `new` blocks, which its table has already. O(new), and all tables where one of them is
        not new."""
        blocks, accuse, request = self._blocks, self._findings.accuse, sequence.request
        if blocks.predictor is not None:
            predicted = blocks.predictor.next(len(new))
            # Fewer are predicted only where more was handed out than there is; that is judged below.
            if new != predicted and len(predicted) == len(new):
                at = next(i for i, pair in enumerate(zip(new, predicted, strict=True)) if pair[0] != pair[1])
                kind = Eviction if blocks.published[predicted[at]] is not None else Exact
                accuse(kind, f"{request!r} takes new blocks {new}; by the order of release they are {predicted}")
        for block in new:
            if not 0 <= block < self._num_blocks or block in self._reserved:
                accuse(Mapping, f"{request!r} is given block {block}, which does not exist or is reserved")
                continue
            if blocks.references[block]:
                self._accuse_holders(request, table, block)
            blocks.take(block)

    def _accuse_holders(self, request: str, table: GroupTable, block: int) -> None:
        """A block is handed out that somebody holds."""
        accuse = self._findings.accuse
        if table.blocks.count(block) > 1:
            accuse(Exclusive, f"{request!r} is given block {block} twice")
            return
        for other in self.sequences.values():
            if any(block in own.blocks for own in other.tables if own is not table):
                accuse(Exclusive, f"{request!r} is given block {block}, which {other.request!r} holds")
                return
        accuse(Lifetime, f"{request!r} is given block {block}, which a step in flight or a pending copy uses")
