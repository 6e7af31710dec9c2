"""The planner: a batch becomes work lists, and whatever is wrong with it is said before anything is launched.

A *work item* is (sequence, first query row, leaf, partial): what one program computes for each kv head. With leaf -1
it walks all leaves and writes the output (*direct*); otherwise it computes one leaf and leaves its state in a partial,
and a merge item (sequence, first query row, first partial, leaves) combines them (*split*). Which sequences are split
is a matter of load alone: the bits are the same (see `spec.py`). Heavy items come first, so that the last ones to run
are small.

After FlashInfer's plan / run division (Ye et al., arXiv 2501.01005); the rule that nothing numeric may depend on the
plan is ours.

This room may not know: torch, devices beyond a number of programs, tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..batch import Batch
from ..errors import InvalidAttention, InvalidBatch, InvalidPadding
from .spec import AttentionSpec, Tiling, Tree

__all__ = ["Lane", "Plan", "Schedule", "check_batch", "make_plan"]

Int32 = npt.NDArray[np.int32]

Schedule = Literal["auto", "direct", "split"] | Sequence[bool]
"""Which sequences are split: by load, none, all, or one bool for each."""

_WAVES = 8
"""A direct item should take no more than 1 / _WAVES of the time that the whole step takes on a full machine, so that
the last wave is not mostly idle. Not measured yet."""

_FEW_TILES = 2
"""A sequence goes to the lane of few rows if it then has at most so many query tiles."""


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One launch: all items of one tiling.

    work int32 [items, 4]: (sequence, first query row, leaf or -1, partial or -1); padding -1.
    merges int32 [tiles, 4]: (sequence, first query row, first partial, leaves); padding -1.
    partials: how many partials the work writes.
    """

    tiling: Tiling
    work: Int32
    merges: Int32
    partials: int

    def padded(self, items: int, merges: int, partials: int) -> Lane:
        """With room for so many; raises InvalidPadding if it has more."""
        for name, wanted, own in (
            ("items", items, len(self.work)),
            ("merges", merges, len(self.merges)),
            ("partials", partials, self.partials),
        ):
            if wanted < own:
                raise InvalidPadding(f"cannot pad to {wanted} {name}: the plan has {own}")
        return Lane(self.tiling, _pad(self.work, items), _pad(self.merges, merges), partials)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What one step's attention runs: the batch and its lanes (few rows first). See `make_plan`."""

    batch: Batch
    spec: AttentionSpec
    tree: Tree
    block_size: int
    num_blocks: int
    lanes: tuple[Lane, ...]

    @property
    def num_items(self) -> int:
        return sum(len(lane.work) for lane in self.lanes)


def make_plan(
    batch: Batch,
    spec: AttentionSpec,
    *,
    block_size: int,
    num_blocks: int,
    tree: Tree,
    tilings: Sequence[Tiling],
    programs: int = 1,
    schedule: Schedule = "auto",
) -> Plan:
    """The work lists for `batch`, checked against a pool of `num_blocks` blocks of `block_size` slots.

    tilings: for few and for many rows (or one for all). programs: how many run at once on the device.
    schedule: see `Schedule`; the outputs do not depend on it.
    Raises InvalidBatch or InvalidAttention. O(table entries + scheduled tokens + items), array operations but for one
    Python step a sequence.
    """
    check_batch(batch, block_size, num_blocks)
    for tiling in tilings:
        if tiling.rows < spec.group:
            raise InvalidAttention(f"{tiling.rows} rows do not hold the {spec.group} heads of a group")
    count = batch.num_sequences
    lengths = np.diff(batch.cu_seqlens).tolist()
    contexts = batch.context_lengths.tolist()
    lanes = [_lane_of(length, spec, tilings) for length in lengths]
    split = _chosen(schedule, count)

    # For each query tile: the span of key tiles that its rows see.
    spans: list[list[tuple[int, int, int]]] = []
    for length, context, lane in zip(lengths, contexts, lanes, strict=True):
        queries = tilings[lane].rows // spec.group
        own = []
        for first in range(0, length, queries):
            high = context - length + min(first + queries, length)
            low = 0 if spec.window is None else max(context - length + first - spec.window + 1, 0)
            own.append((first, low // tree.tile, -(-high // tree.tile)))
        spans.append(own)
    if split is None:
        total = sum(high - low for own in spans for _, low, high in own) * spec.num_kv_heads
        longest = max(total / (max(programs, 1) * _WAVES), tree.leaf // tree.tile)
        split = [any(high - low > longest for _, low, high in own) for own in spans]

    built = []
    per_leaf = tree.leaf // tree.tile
    for number, tiling in enumerate(tilings):
        work: list[tuple[int, int, int, int]] = []
        weights: list[int] = []
        merges: list[tuple[int, int, int, int]] = []
        partials = 0
        for sequence in range(count):
            if lanes[sequence] != number:
                continue
            for first, low, high in spans[sequence]:
                if not split[sequence]:
                    work.append((sequence, first, -1, -1))
                    weights.append(high - low)
                    continue
                leaves = range(low // per_leaf, (high - 1) // per_leaf + 1)
                merges.append((sequence, first, partials, len(leaves)))
                for leaf in leaves:
                    work.append((sequence, first, leaf, partials))
                    weights.append(min(high, (leaf + 1) * per_leaf) - max(low, leaf * per_leaf))
                    partials += 1
        order = np.argsort(-np.array(weights, dtype=np.int64), kind="stable")
        built.append(Lane(tiling, _table(work)[order], _table(merges), partials))
    return Plan(batch, spec, tree, block_size, num_blocks, tuple(built))


def check_batch(batch: Batch, block_size: int, num_blocks: int) -> None:
    """Raises InvalidBatch unless the arrays agree with each other and with the pool. O(tables + tokens)."""
    contexts, cu_seqlens, tables = batch.context_lengths, batch.cu_seqlens, batch.block_tables
    count = batch.num_sequences
    if tables.ndim != 2 or tables.shape[0] != count or cu_seqlens.shape != (count + 1,):
        raise InvalidBatch(
            f"{count} context lengths need a table of {count} rows and {count + 1} cu_seqlens, "
            f"got {tables.shape} and {cu_seqlens.shape}"
        )
    lengths = np.diff(cu_seqlens)
    if count and (cu_seqlens[0] != 0 or (lengths < 0).any()):
        raise InvalidBatch(f"cu_seqlens must begin with 0 and not fall, got {cu_seqlens.tolist()}")
    if cu_seqlens[-1] > batch.num_tokens:
        raise InvalidBatch(f"cu_seqlens ends at {cu_seqlens[-1]}; the batch has {batch.num_tokens} rows")
    _refuse(contexts < lengths, contexts, "sequence {0} has {1} tokens of context, fewer than it schedules")
    needed = -(-contexts.astype(np.int64) // block_size)
    _refuse(
        needed > tables.shape[1],
        contexts,
        f"sequence {{0}}: a context of {{1}} tokens needs more than the table's {tables.shape[1]} blocks "
        f"of {block_size}",
    )
    used = np.arange(tables.shape[1]) < needed[:, None]
    wrong = used & ((tables < 0) | (tables >= num_blocks))
    if wrong.any():
        sequence, column = np.argwhere(wrong)[0]
        raise InvalidBatch(
            f"sequence {sequence}: block {tables[sequence, column]} at place {column} of its table; the pool has "
            f"blocks 0 to {num_blocks - 1} (padding may only lie beyond the context)"
        )
    slots = batch.slot_mapping
    if slots.shape != (batch.num_tokens,):
        raise InvalidBatch(f"{batch.num_tokens} rows need as many slots, got {slots.shape}")
    _refuse(
        (slots < -1) | (slots >= num_blocks * block_size),
        slots,
        f"row {{0}}: slot {{1}} is outside the pool's 0 to {num_blocks * block_size - 1} (-1 writes nothing)",
    )
    written = np.sort(slots[slots >= 0])
    twice = written[1:][written[1:] == written[:-1]]
    if twice.size:
        raise InvalidBatch(f"slot {twice[0]} is written by two rows of one step")


def _refuse(wrong: npt.NDArray[np.bool_], values: npt.NDArray[np.signedinteger], message: str) -> None:
    if wrong.any():
        place = int(np.argmax(wrong))
        raise InvalidBatch(message.format(place, values[place]))


def _lane_of(length: int, spec: AttentionSpec, tilings: Sequence[Tiling]) -> int:
    for number, tiling in enumerate(tilings[:-1]):
        if length <= _FEW_TILES * (tiling.rows // spec.group):
            return number
    return len(tilings) - 1


def _chosen(schedule: Schedule, count: int) -> list[bool] | None:
    if isinstance(schedule, str):
        if schedule not in ("auto", "direct", "split"):
            raise InvalidAttention(f"schedule must be auto, direct, split or a bool a sequence, got {schedule!r}")
        return None if schedule == "auto" else [schedule == "split"] * count
    chosen = list(schedule)
    if len(chosen) != count:
        raise InvalidAttention(f"schedule has {len(chosen)} entries for {count} sequences")
    return chosen


def _table(rows: list[tuple[int, int, int, int]]) -> Int32:
    return np.array(rows, dtype=np.int32).reshape(-1, 4)


def _pad(rows: Int32, size: int) -> Int32:
    result = np.full((size, 4), -1, dtype=np.int32)
    result[: len(rows)] = rows
    return result
