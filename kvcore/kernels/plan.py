"""The planner: turns a batch into work lists. A faulty batch is an error before anything is launched.

A *work item* is (sequence, first query row, leaf, partial): what one program computes for each kv head. With leaf -1 it
walks all leaves and writes the output (*direct*); otherwise it computes one leaf and leaves its state in a partial, and
a merge item (sequence, first query row, first partial, leaves) combines them (*split*). Only the load decides which
sequences are split: the bits are the same either way (see `spec.py`). Heavy items come first, so that the last ones to
run are small.

The division into plan and run is FlashInfer's (Ye et al., arXiv 2501.01005). That nothing numeric may depend on the
plan is our rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..batch import Batch
from ..errors import InvalidAttention, InvalidBatch
from .spec import AttentionSpec, Tiling, Tree

__all__ = ["Lane", "Plan", "Schedule", "check_batch", "make_plan"]

Int32 = npt.NDArray[np.int32]

Schedule = Literal["auto", "direct", "split"] | Sequence[bool]
"""Which sequences are split: by load, none, all, or a bool for each."""

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
    Raises InvalidBatch or InvalidAttention. O(table entries + scheduled tokens + items), in array
    operations.
    """
    for name, value in (("block_size", block_size), ("num_blocks", num_blocks)):
        if type(value) is not int or value < 1:
            raise InvalidAttention(f"{name} must be an integer from 1, got {value!r}")
    check_batch(batch, block_size, num_blocks)
    if not tilings:
        raise InvalidAttention("give at least one tiling")
    for tiling in tilings:
        if tiling.rows < spec.group:
            raise InvalidAttention(f"{tiling.rows} rows do not hold the {spec.group} heads of a group")
    count = batch.num_sequences
    lengths = (batch.cu_seqlens[1:] - batch.cu_seqlens[:-1]).astype(np.int64)
    before = batch.context_lengths - lengths  # the position of each sequence's first query row
    chosen = _chosen(schedule, count)

    # Query tiles, and the span of key tiles [low, high) that the rows of each see.
    capacity = np.array([tiling.rows // spec.group for tiling in tilings], dtype=np.int64)
    lane = (lengths[:, None] > _FEW_TILES * capacity[:-1]).sum(1)
    queries = capacity[lane]
    tiles = -(-lengths // queries)
    sequence = np.arange(count).repeat(tiles)
    first = (np.arange(len(sequence)) - (tiles.cumsum() - tiles).repeat(tiles)) * queries[sequence]
    start = before[sequence] + first
    high = -(-(before[sequence] + np.minimum(first + queries[sequence], lengths[sequence])) // tree.tile)
    low = np.zeros_like(high) if spec.window is None else np.maximum(start - spec.window + 1, 0) // tree.tile
    weight = high - low

    if chosen is None:
        per_program = int(weight.sum()) * spec.num_kv_heads / max(programs, 1)
        longest = max(per_program / _WAVES, tree.leaf // tree.tile)
        chosen = np.zeros(count, dtype=np.bool_)
        chosen[sequence[weight > longest]] = True
    split = chosen[sequence]
    columns = (sequence, first, low, high)
    lanes = []
    for number, tiling in enumerate(tilings):
        own = lane[sequence] == number
        direct, cut = (tuple(column[own & which] for column in columns) for which in (~split, split))
        lanes.append(_lane(tiling, direct, cut, tree.leaf // tree.tile))
    return Plan(batch, spec, tree, block_size, num_blocks, tuple(lanes))


Columns = tuple[npt.NDArray[np.int64], ...]
"""Of query tiles: (sequence, first query row, first key tile, end of the key tiles)."""


def _lane(tiling: Tiling, direct: Columns, cut: Columns, per_leaf: int) -> Lane:
    sequence, first, low, high = cut
    if not len(direct[0]) + len(sequence):
        nothing = np.empty((0, 4), dtype=np.int32)
        return Lane(tiling, nothing, nothing, 0)
    begin = low // per_leaf
    leaves = (high - 1) // per_leaf + 1 - begin
    partials = int(leaves.sum())
    origin = leaves.cumsum() - leaves
    partial = np.arange(partials)
    leaf = partial - origin.repeat(leaves) + begin.repeat(leaves)
    reached = np.minimum(high.repeat(leaves), (leaf + 1) * per_leaf) - np.maximum(low.repeat(leaves), leaf * per_leaf)
    none = np.full(len(direct[0]), -1)
    work = np.concatenate(
        (
            np.stack((direct[0], direct[1], none, none), 1),
            np.stack((sequence.repeat(leaves), first.repeat(leaves), leaf, partial), 1),
        )
    )
    weights = np.concatenate((direct[3] - direct[2], reached))
    order = np.argsort(-weights, kind="stable")
    merges = np.stack((sequence, first, origin, leaves), 1)
    return Lane(tiling, work[order].astype(np.int32), merges.astype(np.int32), partials)


_ARRAYS = {"block_tables": "int32", "context_lengths": "int32", "cu_seqlens": "int32", "slot_mapping": "int64"}
"""What kernels are given of a batch; they read it as it lies in memory."""


def check_batch(batch: Batch, block_size: int, num_blocks: int) -> None:
    """Raises InvalidBatch unless the arrays agree with each other and with the pool. O(tables + tokens)."""
    for name, dtype in _ARRAYS.items():
        array = getattr(batch, name)
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            raise InvalidBatch(
                f"{name} must be an array of {dtype}, got {getattr(array, 'dtype', type(array).__name__)}"
            )
    contexts, cu_seqlens, tables = batch.context_lengths, batch.cu_seqlens, batch.block_tables
    count = batch.num_sequences
    if tables.ndim != 2 or tables.shape[0] != count or cu_seqlens.shape != (count + 1,):
        raise InvalidBatch(
            f"{count} context lengths need a table of {count} rows and {count + 1} cu_seqlens, "
            f"got {tables.shape} and {cu_seqlens.shape}"
        )
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    if cu_seqlens[0] != 0 or (lengths < 0).any():
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


def _chosen(schedule: Schedule, count: int) -> npt.NDArray[np.bool_] | None:
    if isinstance(schedule, str):
        if schedule not in ("auto", "direct", "split"):
            raise InvalidAttention(f"schedule must be auto, direct, split or a bool a sequence, got {schedule!r}")
        return None if schedule == "auto" else np.full(count, schedule == "split")
    try:
        chosen = np.array(list(schedule), dtype=np.bool_)
    except (TypeError, ValueError):
        raise InvalidAttention(f"schedule must be auto, direct, split or a bool a sequence, got {schedule!r}") from None
    if len(chosen) != count:
        raise InvalidAttention(f"schedule has {len(chosen)} entries for {count} sequences")
    return chosen
