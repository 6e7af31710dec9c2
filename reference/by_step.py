"""Admission by the step: an engine whose scheduler takes blocks for what each step computes.

What fits is a number of blocks where all that is resident must be hit. Where a core may hit less, it is a range: a hit
on a block that others hold saves one, and a hit on any other may cost one more, since a token is computed behind it.
"""

from __future__ import annotations

from collections import abc, defaultdict
from typing import ClassVar

from . import events
from .allocation import Allocation
from .blocks import Blocks
from .due import Due
from .histories import Histories
from .hits import Hits
from .policy import Policy
from .refusals import OUT_OF_BLOCKS
from .release import Release
from .sequence import Sequence, Span
from .stream import Stream
from .verdicts import Admission, Findings, Freshness, Mapping

__all__ = ["ByStep"]


class ByStep:
    """A request waits. A step finds its hits when it is first dispatched, takes blocks for the tokens of the step only,
    request by request, and stops at the first that does not fit. O(blocks of the step's requests)."""

    one_by_one: ClassVar[bool] = True

    def __init__(
        self,
        policy: Policy,
        histories: Histories,
        blocks: Blocks,
        hits: Hits,
        allocation: Allocation,
        release: Release,
        stream: Stream,
        counts: defaultdict[str, int],
        findings: Findings,
    ) -> None:
        self._size = policy.block_size
        self._caching = policy.caching
        self._complete = policy.complete
        self._windowed = policy.windowed
        self._null = policy.null_block
        self._histories = histories
        self._blocks = blocks
        self._hits = hits
        self._allocation = allocation
        self._release = release
        self._stream = stream
        self._counts = counts
        self._findings = findings

    def before_allocate(self, due: Due) -> None:
        """It always fits."""

    def after_allocate(self, due: Due, hit_tokens: int, table: list[int]) -> bool:
        if table or hit_tokens:
            self._findings.accuse(
                Admission,
                f"{due.sequence.request!r} waits for its first step and has blocks {table}, {hit_tokens} hit tokens",
            )
        return True

    def before_append(self, due: Due) -> None:
        """It always fits."""

    def after_append(self, due: Due, table: list[int]) -> bool:
        sequence = due.sequence
        if table != (old := sequence.table):
            self._findings.accuse(
                Mapping, f"append changed the table of {sequence.request!r} from {old} to {table} before any step"
            )
        return True

    def before_dispatch(self, due: Due) -> None:
        sequence, count = due.work[0]
        least, most = self.missing(sequence, count, self._release.outside_window(sequence))
        if least > 0:
            self._counts[events.refused_for(least)] += 1
            due.refusal = OUT_OF_BLOCKS
        else:
            due.may_refuse = most > 0
        due.tables = [sequence.request for sequence, _ in due.work]

    def no_room(self, due: Due) -> None:
        self._release.release_outside_window(due.work[0][0])

    def after_dispatch(self, due: Due, starts: abc.Sequence[int], tables: abc.Sequence[list[int]]) -> list[Span]:
        """Each request is admitted, written and, where the policy says so, published before the next one is looked up.
        If not all that is resident need be hit, the core may have looked up earlier in the step."""
        spans: list[Span] = []
        work, blocks, accuse = due.work, self._blocks, self._findings.accuse
        left_out = work[len(starts)] if len(starts) < len(work) else None
        available, most = blocks.available, -blocks.capacity
        if left_out is not None and not self._complete:
            # It may have been looked up, and what it would hit kept for it, before the others took their blocks.
            most = self.missing(*left_out)[1]
        for (sequence, count), start, table in zip(work, starts, tables, strict=False):
            self._release.release_outside_window(sequence)
            hits = self.due_hits(sequence)
            taken = hits if self._complete else [group[: start // self._size] for group in hits]
            if self._missing(sequence, count, len(taken[0]), self._held(taken)) > 0:
                accuse(Admission, f"the step admits {sequence.request!r}, for which there are not enough blocks")
            end = min(max(sequence.scheduled + count, start + 1), len(sequence.tokens))
            if not sequence.admitted:
                if not self._allocation.admit(sequence, start, table, end, hits):
                    return spans
            elif not self._grow(sequence, start, end, table):
                return spans
            spans.append((sequence, sequence.scheduled, end))
            self._stream.compute(sequence, sequence.scheduled, end)
        if left_out is not None:
            sequence, count = left_out
            self._release.release_outside_window(sequence)
            if max(self.missing(sequence, count)[1], most + available - blocks.available) <= 0:
                accuse(Admission, f"the step leaves out {sequence.request!r}, for which there are enough blocks")
        return spans

    # ---- whether it fits ---------------------------------------------------------------------------------------------

    def missing(self, sequence: Sequence, count: int, released: int = 0) -> tuple[int, int]:
        """How many blocks too few there are to schedule `count` more tokens; not above 0 if it fits. released: blocks
        that become available first. Least and most over what may be hit: all that is resident or, as the policy says,
        less."""
        hits = self.due_hits(sequence)
        longest = len(hits[0])
        if self._complete:
            missing = self._missing(sequence, count, longest, self._held(hits)) - released
            return missing, missing
        # Where a content is in several blocks, one that nobody holds may be hit. With a window, a shorter hit needs
        # other blocks, which nobody may hold.
        worst = [] if self._windowed else self._hits.not_held(sequence, hits)
        least = most = self._missing(sequence, count, 0, 0)
        for length in range(1, longest + 1):
            held = self._held([blocks[:length] for blocks in hits])
            least = min(least, self._missing(sequence, count, length, held))
            held = self._held([blocks[:length] for blocks in worst])
            most = max(most, self._missing(sequence, count, length, held))
        return least - released, most - released

    def _missing(self, sequence: Sequence, count: int, hits: int, held: int) -> int:
        """The same where `hits` blocks are hit in each group, `held` of all of them by others: those cost nothing. The
        hits count as scheduled, and one token at least is computed."""
        length = self._allocation.num_blocks(max(sequence.scheduled + count, hits * self._size + 1))
        needed = sum(max(0, length - len(table.blocks)) for table in sequence.tables)
        return needed - held - self._blocks.available

    def _held(self, hits: list[list[int]]) -> int:
        """How many of these blocks cost nothing: since others hold them, or since no query needs them."""
        references, null = self._blocks.references, self._null
        return sum(1 for blocks in hits for block in blocks if references[block] or block == null)

    def due_hits(self, sequence: Sequence) -> list[list[int]]:
        """For each group, the blocks that must be hit: also for what was appended, or named, before the first step."""
        if self._caching and not sequence.admitted:
            size, num_full = self._size, sequence.num_named // self._size
            for table in sequence.tables:
                for at in range(len(table.histories) - 1, num_full):
                    piece = sequence.tokens[at * size : (at + 1) * size]
                    table.histories.append(self._histories.extend(table.histories[at], piece.tobytes()))
        return self._hits.due(sequence)

    # ---- how the table grows -----------------------------------------------------------------------------------------

    def _grow(self, sequence: Sequence, start: int, end: int, table: list[int]) -> bool:
        """The step computes a sequence that has blocks already, from `start` to `end` in `table`. False if nothing
        follows."""
        groups, request, size, accuse = sequence.tables, sequence.request, self._size, self._findings.accuse
        length = max(self._allocation.num_blocks(end), len(groups[0].blocks))  # what a truncation left over is kept
        tables = [table[at * length : (at + 1) * length] for at in range(len(groups))]
        for group, own in zip(groups, tables, strict=True):
            if self._windowed and self._null in own[group.num_released :]:
                at = own.index(self._null, group.num_released)
                accuse(
                    Freshness,
                    f"the step computes {request!r} from {start} on and reads positions {at * size} on from the "
                    f"reserved block {self._null}: table {table}",
                )
                return False
        if (
            start != sequence.scheduled
            or len(table) != length * len(groups)
            or any(own[: len(group.blocks)] != group.blocks for group, own in zip(groups, tables, strict=True))
        ):
            accuse(
                Mapping,
                f"the step computes {request!r} from {start} to {end} in table {table}; it was scheduled up to "
                f"{sequence.scheduled}, in table {sequence.table}",
            )
            return False
        if self._allocation.num_blocks(start) < min(-(-end // size), len(groups[0].blocks)):
            self._counts[events.KEPT_BLOCK_USED_AGAIN] += 1
        for group, own in zip(groups, tables, strict=True):
            old, group.blocks = len(group.blocks), own
            self._allocation.hand_out(sequence, group, own[old:])
        return True
