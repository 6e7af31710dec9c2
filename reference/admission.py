"""Who may be refused, and when blocks are taken: for the whole request, or step by step.

A request is refused exactly if its blocks are not there. `ForWholeRequest` takes blocks for all tokens at allocate and
append; a request that is larger than the pool is told apart. `ByStep` takes them for the tokens of each step, when the
step is dispatched; nothing is refused at allocate and append. Another policy is one more class with these methods.

A tail is copied at append exactly if its block has more than one holder: tables (those of freed requests in flight
included) and pending copies alike. A published tail, partly used after a truncation and held by nobody else by then,
leaves the index at append.
"""

from __future__ import annotations

from array import array
from collections import abc, defaultdict
from typing import ClassVar, Protocol

from . import events
from .allocation import Allocation
from .blocks import Blocks
from .due import Due
from .histories import Histories
from .hits import Hits
from .policy import Policy
from .refusals import NEVER_FITS, OUT_OF_BLOCKS
from .release import Release
from .sequence import UNKNOWN, PendingCopy, Sequence
from .stream import Stream
from .verdicts import Admission, Aliasing, Exact, Findings, Freshness, Mapping, Rollback

__all__ = ["AdmissionPolicy", "ByStep", "ForWholeRequest", "admission_of"]

Span = tuple[Sequence, int, int]


class AdmissionPolicy(Protocol):
    """When a core takes blocks. Each `before_` says in `due` which refusal is due; nothing has changed then.

    one_by_one: a step computes each of its requests before it looks up the next one."""

    one_by_one: ClassVar[bool]

    def before_allocate(self, due: Due) -> None: ...

    def after_allocate(self, due: Due, hit_tokens: int, table: list[int]) -> bool:
        """The request was admitted with `hit_tokens` from the cache and this table. False if nothing follows."""
        ...

    def due_hits(self, sequence: Sequence) -> list[list[int]]:
        """For each group, the blocks that a sequence without blocks must hit now; none for any other."""
        ...

    def before_append(self, due: Due) -> None: ...

    def after_append(self, due: Due, table: list[int]) -> None:
        """The sequence has grown by `due.tokens`; this is its table now."""
        ...

    def before_dispatch(self, due: Due) -> None: ...

    def refused(self, due: Due) -> None:
        """The step was refused for want of blocks."""
        ...

    def after_dispatch(self, due: Due, starts: abc.Sequence[int], tables: abc.Sequence[list[int]]) -> list[Span]:
        """What the step computes: of each request from where to where. starts, tables: of `due.tables`, as far as the
        step has them."""
        ...


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
            count_refusal(self._counts, missing)
            due.refusal = OUT_OF_BLOCKS

    def after_allocate(self, due: Due, hit_tokens: int, table: list[int]) -> bool:
        sequence = due.sequence
        return self._allocation.admit(sequence, hit_tokens, table, len(sequence.tokens), due.hits)

    def due_hits(self, sequence: Sequence) -> list[list[int]]:
        return self._hits.due(sequence)

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

    def after_append(self, due: Due, table: list[int]) -> None:
        sequence, new, size, accuse = due.sequence, due.tokens, self._size, self._findings.accuse
        group, length, request = sequence.tables[0], len(sequence.tokens), sequence.request
        old = group.blocks
        needed = -(-(length + len(new)) // size)
        if len(table) != needed:
            accuse(
                Admission, f"{request!r} has {length + len(new)} tokens and {len(table)} blocks; {needed} are needed"
            )
            return
        kept = len(old)
        if table[:kept] != old:
            if table[: kept - 1] != old[:-1] or length % size == 0:
                accuse(Mapping, f"append changed the table of {request!r} from {old} to {table}")
                return
            kept -= 1  # the tail was switched: copy-on-write
        switched = kept < len(old)
        # Where choices are not predicted, a core may copy without need, or copy so that it needs no other block.
        if self.must_copy(sequence):
            if not switched and self._exact:
                accuse(Aliasing, f"append to {request!r} keeps its tail block {old[-1]}, which others hold too")
                return
            self._counts[events.COPY_ON_WRITE] += 1
            if length % size == size - 1:
                self._counts[events.COPY_ON_WRITE_AT_THE_LAST_SLOT] += 1
        elif switched and self._exact:
            accuse(Exact, f"append to {request!r} replaced its tail block {old[-1]}, which nobody else holds")
            return
        group.blocks = table
        self._allocation.hand_out(sequence, group, table[kept:])
        if switched:
            sequence.pending = PendingCopy(old[-1], table[kept], length)
        elif length % size and self._blocks.published[old[-1]] is not None:
            self._blocks.withdraw(old[-1], Rollback)
            self._counts[events.PUBLISHED_TAIL_WITHDRAWN_AT_APPEND] += 1
        extend(sequence, new, self._counts)

    def must_copy(self, sequence: Sequence) -> bool:
        """Whether an append must copy the tail first."""
        return bool(len(sequence.tokens) % self._size) and self._blocks.references[sequence.tables[0].blocks[-1]] > 1

    def before_dispatch(self, due: Due) -> None:
        """Its blocks are there: no step is refused."""

    def refused(self, due: Due) -> None:
        """Nothing changes."""

    def after_dispatch(self, due: Due, starts: abc.Sequence[int], tables: abc.Sequence[list[int]]) -> list[Span]:
        spans: list[Span] = []
        for sequence, count in due.work:
            spans.append((sequence, sequence.scheduled, sequence.scheduled + count))
        return spans


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

    def after_append(self, due: Due, table: list[int]) -> None:
        sequence = due.sequence
        if table != (old := sequence.table):
            self._findings.accuse(
                Mapping, f"append changed the table of {sequence.request!r} from {old} to {table} before any step"
            )
        extend(sequence, due.tokens, self._counts)

    def before_dispatch(self, due: Due) -> None:
        sequence, count = due.work[0]
        least, most = self.missing(sequence, count, self._release.outside_window(sequence))
        if least > 0:
            count_refusal(self._counts, least)
            due.refusal = OUT_OF_BLOCKS
        else:
            due.may_refuse = most > 0
        due.tables = [sequence.request for sequence, _ in due.work]

    def refused(self, due: Due) -> None:
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


def admission_of(
    policy: Policy,
    histories: Histories,
    blocks: Blocks,
    hits: Hits,
    allocation: Allocation,
    release: Release,
    stream: Stream,
    counts: defaultdict[str, int],
    findings: Findings,
) -> AdmissionPolicy:
    """The one that the policy states."""
    if policy.admission == "step":
        return ByStep(policy, histories, blocks, hits, allocation, release, stream, counts, findings)
    return ForWholeRequest(policy, blocks, hits, allocation, counts, findings)


def count_refusal(counts: defaultdict[str, int], missing: int) -> None:
    """A request is refused for so many blocks."""
    counts[events.REFUSED_FOR_ONE_BLOCK if missing == 1 else events.REFUSED_FOR_SEVERAL_BLOCKS] += 1


def extend(sequence: Sequence, new: array[int], counts: defaultdict[str, int]) -> None:
    """The sequence has `new` tokens at its end."""
    sequence.tokens.extend(new)
    if UNKNOWN in new:
        sequence.num_placeholders += new.count(UNKNOWN)
        counts[events.PLACEHOLDER_APPENDED] += 1
