"""What steps write, and what they read.

Steps run one after the other in one stream, so that what a step writes counts as written from its dispatch on. A step
may write only where its sequence is the block's single holder. Cost is kept low by induction: a table entry is verified
when it is taken, and nothing may be overwritten while anyone else holds it, so that a step verifies only the block that
it goes on with. `verify` looks at everything.
"""

from __future__ import annotations

from array import array
from collections import abc

from .blocks import Blocks
from .histories import Histories
from .policy import Policy
from .publication import Publication
from .sequence import GroupTable, Sequence, others_of
from .slots import Slots
from .verdicts import Aliasing, Exclusive, Findings, Freshness

__all__ = ["Stream"]


def _nothing(history: int) -> str:
    return ""


class Stream:
    """The writes of dispatched steps. Every method is O(positions), where it does not say otherwise."""

    def __init__(
        self,
        policy: Policy,
        sequences: abc.Mapping[str, Sequence],
        histories: Histories,
        slots: Slots,
        blocks: Blocks,
        publication: Publication,
        findings: Findings,
    ) -> None:
        self._sequences = sequences
        self._size = policy.block_size
        self._num_blocks = policy.num_blocks
        self._histories = histories
        self._slots = slots
        self._blocks = blocks
        self._publication = publication
        self._at_dispatch = publication.at_dispatch
        self._findings = findings

    def copy(self, copies: abc.Sequence[tuple[int, int]], due: list[tuple[int, int]]) -> None:
        """The step copies each source to its destination; `due` are the copies that pend."""
        if list(copies) != due:
            missing = [pair for pair in due if pair not in copies]
            if missing:
                self._findings.accuse(
                    Aliasing, f"the step does not carry the copies {missing}; it carries {list(copies)}"
                )
            else:
                self._findings.accuse(Exclusive, f"the step carries copies {list(copies)}; due are {due}")
        for source, destination in copies:
            if 0 <= source < self._num_blocks and 0 <= destination < self._num_blocks:
                self._slots.copy(source, destination)

    def compute(self, sequence: Sequence, start: int, end: int) -> None:
        """A step is dispatched that computes positions start to end, in every group."""
        for table in sequence.tables:
            self._write(sequence, table, start, end)
        if self._at_dispatch:
            self._publication.dispatched(sequence, start, end)

    def name(self, sequence: Sequence, position: int, names: array[int]) -> None:
        """The placeholders from `position` on turn out to be `names`; the sequence has them already."""
        size = self._size
        for table in sequence.tables:
            for at, token in enumerate(names[: max(0, sequence.scheduled - position)], position):
                self._slots.name(table.blocks[at // size], at % size, token)
            # What is written behind the new names has another history now.
            for logical in range(position // size + 1, -(-sequence.scheduled // size)):
                self._slots.rename(table.blocks[logical], self._history(sequence, table, logical))

    def verify(self, sequences: abc.Iterable[Sequence]) -> None:
        """Every written position is still where it belongs. O(all tables)."""
        size, slots = self._size, self._slots
        for sequence in sequences:
            tokens, pending = sequence.tokens, sequence.pending
            for table in sequence.tables:
                written, histories = max(sequence.scheduled, table.written_from), table.histories
                for logical in range(table.num_released, -(-written // size)):
                    piece = tokens[logical * size : min(written, (logical + 1) * size)]
                    block = table.blocks[logical]
                    if pending is not None and pending.destination == block:
                        block = pending.source  # the copy has not been made
                    before = histories[logical] if logical < len(histories) else self._history(sequence, table, logical)
                    if not slots.holds(block, before, piece):
                        holds, own = slots.content(block)
                        told = self._histories.told if holds != before else _nothing
                        self._findings.accuse(
                            Freshness,
                            f"{sequence.request!r} would read positions {logical * size} on from block {block}, which "
                            f"holds {own.tolist()[:32]}{told(holds)} and not {piece.tolist()[:32]}{told(before)}",
                        )

    def _write(self, sequence: Sequence, table: GroupTable, start: int, end: int) -> None:
        """Write positions start to end. Judges who may write there, and what is read below them in the first block."""
        size, tokens, slots, references = self._size, sequence.tokens, self._slots, self._blocks.references
        position, histories = max(start, table.written_from), table.histories
        while position < end:
            logical, offset = divmod(position, size)
            stop = min(end, (logical + 1) * size)
            block = table.blocks[logical]
            if references[block] != 1:
                self._findings.accuse(
                    Aliasing,
                    f"the step writes position {position} of {sequence.request!r} into block {block}, "
                    f"which {references[block]} tables and copies hold{self._holders(block, sequence)}",
                )
            before = histories[logical] if logical < len(histories) else self._history(sequence, table, logical)
            if offset and not slots.holds(block, before, tokens[logical * size : position]):
                holds, own = slots.content(block)
                told = self._histories.told if holds != before else _nothing
                self._findings.accuse(
                    Freshness,
                    f"{sequence.request!r} reads positions {logical * size} to {position - 1} from block {block}, "
                    f"which holds {own.tolist()[:offset]}{told(holds)}",
                )
            slots.write(block, offset, before, tokens[position:stop])
            position = stop

    def _holders(self, block: int, sequence: Sequence) -> str:
        """Who else has a block, for a message. O(all tables)."""
        others = others_of(block, sequence, self._sequences)
        return f"; others: {others}" if others else "; it was given back" if not self._blocks.references[block] else ""

    def _history(self, sequence: Sequence, table: GroupTable, logical: int) -> int:
        """The history before a logical block: also where placeholders keep `histories` from reaching so far."""
        size, histories = self._size, table.histories
        if logical < len(histories):
            return histories[logical]
        history = histories[-1]
        for at in range(len(histories) - 1, logical):
            piece = sequence.tokens[at * size : (at + 1) * size]
            history = self._histories.extend(history, piece.tobytes())
            if not sequence.num_placeholders:
                histories.append(history)
        return history
