"""The planner: every query row meets every leaf that it sees, once, whatever the schedule; and bad batches are named.

What a plan must cover is said here once more by brute force, one row and one key at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from kvcore import Batch, InvalidAttention, InvalidBatch, InvalidPadding, InvalidTensor, PlanTooLarge
from kvcore.kernels import AttentionSpec, DevicePlan, Lane, Plan, Room, Tiling, Tree, default_tree, make_plan, tilings
from kvcore.kernels.spec import padded_dim

TREE = Tree(tile=16, leaf=32)
TILINGS = (Tiling(16), Tiling(64))


def batch_of(
    sequences: Sequence[tuple[list[int], int, int]], block_size: int, *, slots: list[int] | None = None, rows: int = 0
) -> Batch:
    """(table, context, scheduled) for each sequence; the last `scheduled` positions are this step's.

    Slots follow the tables unless given. rows: this many rows more that belong to no sequence.
    """
    columns = max((len(table) for table, _, _ in sequences), default=0)
    tables = np.full((len(sequences), columns), -1, dtype=np.int32)
    owners: list[int] = []
    positions: list[int] = []
    mapping: list[int] = []
    for number, (table, context, scheduled) in enumerate(sequences):
        tables[number, : len(table)] = table
        for position in range(context - scheduled, context):
            owners.append(number)
            positions.append(position)
            mapping.append(table[position // block_size] * block_size + position % block_size)
    cu_seqlens = np.cumsum([0, *(scheduled for _, _, scheduled in sequences)])
    return Batch(
        block_tables=tables,
        context_lengths=np.array([context for _, context, _ in sequences], dtype=np.int32),
        cu_seqlens=cu_seqlens.astype(np.int32),
        packed_rows=np.array([*range(len(owners)), *[-1] * rows], dtype=np.int32),
        row_sequences=np.array(owners + [-1] * rows, dtype=np.int32),
        positions=np.array(positions + [0] * rows, dtype=np.int64),
        slot_mapping=np.array(mapping + [-1] * rows if slots is None else slots, dtype=np.int64),
    )


def of_lengths(*lengths: tuple[int, int], block_size: int = 4) -> Batch:
    """Sequences of (context, scheduled), each with blocks of its own, in order."""
    sequences = []
    used = 0
    for context, scheduled in lengths:
        blocks = -(-context // block_size)
        sequences.append((list(range(used, used + blocks)), context, scheduled))
        used += blocks
    return batch_of(sequences, block_size)


def random_batch(random: Random) -> Batch:
    lengths = []
    for _ in range(random.randint(0, 6)):
        context = random.choice([0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, random.randint(0, 200)])
        scheduled = random.choice([0, 1, context, random.randint(0, context)])
        lengths.append((context, min(scheduled, context)))
    return of_lengths(*lengths)


def plan_of(batch: Batch, spec: AttentionSpec | None = None, **options: Any) -> Plan:
    defaults: dict[str, Any] = {"block_size": 4, "num_blocks": 10_000, "tree": TREE, "tilings": TILINGS}
    return make_plan(batch, spec or AttentionSpec(4, 2, 16), **{**defaults, **options})


# ---- the model -------------------------------------------------------------------------------------------------------


def visible(plan: Plan, sequence: int, row: int) -> range:
    """The keys that a query row sees."""
    batch, window = plan.batch, plan.spec.window
    length = int(batch.cu_seqlens[sequence + 1] - batch.cu_seqlens[sequence])
    position = int(batch.context_lengths[sequence]) - length + row
    return range(0 if window is None else max(0, position - window + 1), position + 1)


def rows_of(plan: Plan, lane: Lane, sequence: int, first: int) -> range:
    length = int(plan.batch.cu_seqlens[sequence + 1] - plan.batch.cu_seqlens[sequence])
    assert 0 <= first < length
    return range(first, min(first + lane.tiling.rows // plan.spec.group, length))


def verify(plan: Plan) -> None:
    """Every (row, leaf) once, nothing that nobody sees, partials without gaps, heavy items first."""
    tile, leaf = plan.tree.tile, plan.tree.leaf
    covered: Counter[tuple[int, int, int]] = Counter()
    for lane in plan.lanes:
        assert lane.work.dtype == lane.merges.dtype == np.int32
        assert lane.work.shape[1:] == lane.merges.shape[1:] == (4,)
        partials: dict[tuple[int, int], dict[int, int]] = {}
        weights = []
        direct = set()
        for sequence, first, number, partial in lane.work.tolist():
            rows = rows_of(plan, lane, sequence, first)
            seen = {key for row in rows for key in visible(plan, sequence, row)}
            if number < 0:
                assert (number, partial) == (-1, -1)
                direct.add((sequence, first))
                covered.update((sequence, row, key // leaf) for row in rows for key in visible(plan, sequence, row)[::1])
                weights.append(len({key // tile for key in seen}))
            else:
                own = {key for key in seen if key // leaf == number}
                assert own, "a leaf that no row of the tile sees"
                covered.update((sequence, row, number) for row in rows)
                weights.append(len({key // tile for key in own}))
                assert partials.setdefault((sequence, first), {}).setdefault(number, partial) == partial
        assert weights == sorted(weights, reverse=True)
        assert direct.isdisjoint(partials)
        merges = {(sequence, first): (base, count) for sequence, first, base, count in lane.merges.tolist()}
        assert len(merges) == len(lane.merges) and merges.keys() == partials.keys()
        for place, (base, count) in merges.items():
            # `combine` merges base, base + 1, ... : that has to be the leaves in order.
            assert [partials[place][number] for number in sorted(partials[place])] == list(range(base, base + count))
        assert sorted(p for own in partials.values() for p in own.values()) == list(range(lane.partials))
    for sequence in range(plan.batch.num_sequences):
        for row in range(int(np.diff(plan.batch.cu_seqlens)[sequence])):
            for number in {key // leaf for key in visible(plan, sequence, row)}:
                assert covered[sequence, row, number] > 0
