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

from kvcore import Batch, InvalidAttention, InvalidBatch, InvalidTensor, PlanTooLarge
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
    defaults: dict[str, Any] = {"block_size": 4, "num_blocks": 10**6, "tree": TREE, "tilings": TILINGS}
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
            keys = {row: visible(plan, sequence, row) for row in rows_of(plan, lane, sequence, first)}
            tiles = {at for seen in keys.values() for at in range(seen[0] // tile, seen[-1] // tile + 1)}
            if number < 0:
                assert (number, partial) == (-1, -1)
                direct.add((sequence, first))
                for row, seen in keys.items():
                    covered.update((sequence, row, at) for at in range(seen[0] // leaf, seen[-1] // leaf + 1))
            else:
                tiles = {at for at in tiles if at * tile // leaf == number}
                assert tiles, "a leaf that no row of the tile sees"
                covered.update((sequence, row, number) for row in keys)
                own = partials.setdefault((sequence, first), {})
                assert number not in own
                own[number] = partial
            weights.append(len(tiles))
        assert weights == sorted(weights, reverse=True)
        assert direct.isdisjoint(partials)
        merges = {(sequence, first): (base, count) for sequence, first, base, count in lane.merges.tolist()}
        assert len(merges) == len(lane.merges) and merges.keys() == partials.keys()
        for place, (base, count) in merges.items():
            # `combine` takes base, base + 1, ...: these must be the leaves in order.
            assert [partials[place][number] for number in sorted(partials[place])] == list(range(base, base + count))
        assert sorted(one for own in partials.values() for one in own.values()) == list(range(lane.partials))
    assert set(covered.values()) <= {1}
    for sequence, length in enumerate(np.diff(plan.batch.cu_seqlens).tolist()):
        for row in range(length):
            seen = visible(plan, sequence, row)
            for number in range(seen[0] // leaf, seen[-1] // leaf + 1):
                assert covered[sequence, row, number] == 1


def split_of(plan: Plan) -> set[int]:
    return {int(sequence) for lane in plan.lanes for sequence in lane.merges[:, 0]}


def items(plan: Plan) -> list[list[list[int]]]:
    return [lane.work.tolist() for lane in plan.lanes]


# ---- the work list ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["auto", "direct", "split", "random"])
@pytest.mark.parametrize("window", [None, 1, 5, 16, 31, 33, 1000])
def test_every_row_meets_every_leaf_that_it_sees_once(schedule: str, window: int | None):
    random = Random(f"{schedule} {window}")
    for _ in range(12):
        kv_heads, group = random.choice([1, 2, 5]), random.choice([1, 2, 3, 8, 16])
        spec = AttentionSpec(kv_heads * group, kv_heads, 16, window=window)
        batch = random_batch(random)
        chosen = [random.random() < 0.5 for _ in range(batch.num_sequences)] if schedule == "random" else schedule
        cuts = random.choice([TILINGS, (Tiling(16),), (Tiling(16), Tiling(16)), (Tiling(16), Tiling(32), Tiling(128))])
        tree = random.choice([TREE, Tree(16, 16), Tree(32, 96), Tree()])
        plan = plan_of(batch, spec, schedule=chosen, tilings=cuts, tree=tree, programs=random.choice([1, 4, 264]))
        verify(plan)
        assert len(plan.lanes) == len(cuts)
        assert plan.num_items == sum(len(lane.work) for lane in plan.lanes)
        if schedule in ("direct", "split"):
            busy = {at for at, rows in enumerate(np.diff(batch.cu_seqlens)) if rows and schedule == "split"}
            assert split_of(plan) == busy


def test_a_plan_by_hand():
    """Tiles of 16, leaves of 32; 8 queries of 2 heads to 16 rows: 9 rows of a context of 70."""
    plan = plan_of(of_lengths((70, 9), (5, 1)), tilings=(Tiling(16),), schedule=[True, False])
    (lane,) = plan.lanes
    # Two tiles of keys each: the whole leaves. Then one each: keys 64 to 69, and all of the other sequence.
    assert sorted(lane.work[:4].tolist()) == [[0, 0, 0, 0], [0, 0, 1, 1], [0, 8, 0, 3], [0, 8, 1, 4]]
    assert sorted(lane.work[4:].tolist()) == [[0, 0, 2, 2], [0, 8, 2, 5], [1, 0, -1, -1]]
    assert lane.merges.tolist() == [[0, 0, 0, 3], [0, 8, 3, 3]]
    assert lane.partials == 6


def test_a_window_leaves_out_the_leaves_before_it():
    plan = plan_of(of_lengths((200, 1)), AttentionSpec(4, 2, 16, window=40), schedule="split")
    assert sorted(plan.lanes[0].work[:, 2].tolist()) == [5, 6]  # keys 160 to 199
    plan = plan_of(of_lengths((200, 1)), AttentionSpec(4, 2, 16, window=41), schedule="split")
    assert sorted(plan.lanes[0].work[:, 2].tolist()) == [4, 5, 6]


def test_heavy_items_come_first_in_each_lane():
    plan = plan_of(of_lengths((20, 1), (200, 1), (64, 1), (200, 128), (33, 30)), schedule="direct")
    assert plan.lanes[0].work[:, 0].tolist() == [1, 2, 0]
    assert plan.lanes[1].work[0, :2].tolist() == [3, 96]  # the last rows see most
    assert plan.lanes[1].work[-1, :2].tolist() == [4, 0]


def test_few_rows_go_to_the_first_lane():
    """16 rows hold 8 queries of 2 heads; two tiles of them are few."""
    for scheduled, lane in ((1, 0), (8, 0), (9, 0), (16, 0), (17, 1), (100, 1)):
        plan = plan_of(of_lengths((100, scheduled)))
        assert [len(lane.work) > 0 for lane in plan.lanes] == [lane == 0, lane == 1]
    wide = AttentionSpec(16, 1, 16)  # one query to 16 rows, four to 64
    for scheduled, counts in ((1, [1, 0]), (2, [2, 0]), (3, [0, 1]), (5, [0, 2])):
        plan = plan_of(of_lengths((100, scheduled)), wide, schedule="direct")
        assert [len(lane.work) for lane in plan.lanes] == counts


def test_one_tiling_serves_all():
    plan = plan_of(of_lengths((100, 100), (100, 1)), tilings=(Tiling(32),))
    assert len(plan.lanes) == 1
    verify(plan)


def test_a_plan_is_the_same_each_time():
    batch = random_batch(Random(5))
    assert items(plan_of(batch, programs=8)) == items(plan_of(batch, programs=8))


@pytest.mark.parametrize("scheduled", [(0, 0), (0, 3), (5, 0)])
def test_a_sequence_without_rows_has_no_items(scheduled: tuple[int, int]):
    batch = of_lengths((40, scheduled[0]), (50, scheduled[1]))
    for schedule in ("auto", "direct", "split"):
        plan = plan_of(batch, schedule=schedule)
        verify(plan)
        busy = {at for at, rows in enumerate(scheduled) if rows}
        assert {int(at) for lane in plan.lanes for at in lane.work[:, 0]} == busy


@pytest.mark.parametrize("schedule", ["auto", "direct", "split", []])
@pytest.mark.parametrize("columns", [0, 5])
@pytest.mark.parametrize("rows", [0, 3])
def test_an_empty_batch_has_an_empty_plan(schedule: Any, columns: int, rows: int):
    batch = replace(batch_of([], 4, rows=rows), block_tables=np.zeros((0, columns), dtype=np.int32))
    plan = plan_of(batch, schedule=schedule)
    assert [(lane.work.shape, lane.merges.shape, lane.partials) for lane in plan.lanes] == [((0, 4), (0, 4), 0)] * 2
    assert plan.num_items == 0
    device = DevicePlan(plan, "cpu", torch.float32)
    assert device.num_tokens == rows and device.full == (rows == 0)


# ---- which sequences are split ---------------------------------------------------------------------------------------


def test_long_sequences_are_split_unless_all_are_long():
    batch = of_lengths((1000, 1))
    assert split_of(plan_of(batch, programs=1)) == {0}  # 63 of 126 tiles, for 2 kv heads: more than an eighth
    assert split_of(plan_of(of_lengths((32, 1)), programs=1000)) == set()  # one leaf cannot be split
    assert split_of(plan_of(of_lengths((33, 1)), programs=1000)) == {0}
    assert split_of(plan_of(of_lengths(*[(200, 1)] * 300), programs=8)) == set()
    assert split_of(plan_of(of_lengths(*[(200, 1)] * 300, (4000, 1)), programs=32)) == {300}


def test_more_programs_split_more():
    random = Random(1)
    for _ in range(20):
        batch = random_batch(random)
        before: set[int] = set()
        for programs in (1, 2, 4, 8, 16, 64, 1024):
            after = split_of(plan_of(batch, programs=programs))
            assert before <= after
            before = after
        long = {at for at, rows in enumerate(np.diff(batch.cu_seqlens)) if rows and batch.context_lengths[at] > 32}
        assert before == long


def test_a_sequence_that_outgrows_the_others_is_split_and_stays_so():
    was = False
    for context in range(10, 2000, 30):
        plan = plan_of(of_lengths(*[(100, 1)] * 100, (context, 1)), programs=16)
        now = split_of(plan)
        assert now in (set(), {100}) and (now or not was)
        was = bool(now)
    assert was


def test_what_is_not_split_is_at_most_an_eighth_of_a_full_machine():
    random = Random(2)
    tried = 0
    for _ in range(60):
        programs = random.choice([1, 2, 8])
        batch = random_batch(random)
        plan = plan_of(batch, programs=programs, tilings=(Tiling(16),))
        (lane,) = plan_of(batch, tilings=(Tiling(16),), schedule="direct").lanes
        tiles = {}
        for sequence, first, _, _ in lane.work.tolist():
            last = rows_of(plan, lane, sequence, first)[-1]
            tiles[sequence, first] = visible(plan, sequence, last)[-1] // TREE.tile + 1
        bound = max(2, sum(tiles.values()) * 2 / programs / 8)
        heavy = {sequence for (sequence, _), count in tiles.items() if count > bound}
        assert split_of(plan) == heavy
        tried += len(heavy)
    assert tried > 20


# ---- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [list, tuple, np.array])
def test_a_schedule_may_be_one_bool_for_each_sequence(form: Any):
    batch = of_lengths((100, 1), (100, 1), (100, 50))
    assert split_of(plan_of(batch, schedule=form([True, False, True]))) == {0, 2}


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("fast", "schedule must be auto, direct, split or a bool a sequence, got 'fast'"),
        ("", "got ''"),
        ([True], "schedule has 1 entries for 2 sequences"),
        ([], "schedule has 0 entries for 2 sequences"),
        ([True] * 3, "schedule has 3 entries for 2 sequences"),
    ],
)
def test_other_schedules_are_refused(schedule: Any, words: str):
    with pytest.raises(InvalidAttention, match=re.escape(words)):
        plan_of(of_lengths((9, 1), (9, 1)), schedule=schedule)


@pytest.mark.parametrize("at", [0, 1])
def test_rows_must_hold_a_group(at: int):
    cuts = [Tiling(64), Tiling(64)]
    cuts[at] = Tiling(16)
    for batch in (of_lengths((9, 1)), of_lengths()):
        with pytest.raises(InvalidAttention, match="16 rows do not hold the 17 heads of a group"):
            plan_of(batch, AttentionSpec(17, 1, 16), tilings=cuts)
    verify(plan_of(of_lengths((90, 3)), AttentionSpec(17, 1, 16), tilings=(Tiling(32), Tiling(128))))


def test_there_must_be_a_tiling():
    with pytest.raises(InvalidAttention):
        plan_of(of_lengths((9, 1)), tilings=())


# ---- bad batches -----------------------------------------------------------------------------------------------------

GOOD = batch_of([([5, 2], 6, 4), ([3], 1, 1), ([], 0, 0)], 4, rows=1)
"""Blocks of 4 in a pool of 8: slots 22, 23, 8, 9, 12 and none."""


def int32(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def int64(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


BAD_BATCHES: dict[str, tuple[dict[str, np.ndarray], tuple[str, ...]]] = {
    "context longer than the table": ({"context_lengths": int32(9, 1, 0)}, ("sequence 0", "9 tokens", "2 blocks of 4")),
    "context of a sequence without a table": (
        {"context_lengths": int32(6, 1, 1)},
        ("sequence 2", "block -1", "place 0", "padding"),
    ),
    "no columns": ({"block_tables": np.zeros((3, 0), dtype=np.int32)}, ("sequence 0", "6 tokens", "0 blocks of 4")),
    "padding within the context": (
        {"block_tables": int32([5, -1], [3, -1], [-1, -1])},
        ("sequence 0", "block -1", "place 1", "blocks 0 to 7"),
    ),
    "block outside": (
        {"block_tables": int32([5, 2], [8, -1], [-1, -1])},
        ("sequence 1", "block 8", "place 0", "0 to 7"),
    ),
    "block far outside": ({"block_tables": int32([2**31 - 1, 2], [3, -1], [-1, -1])}, ("block 2147483647", "place 0")),
    "block far below": ({"block_tables": int32([-(2**31), 2], [3, -1], [-1, -1])}, ("block -2147483648", "place 0")),
    "slot outside": ({"slot_mapping": int64(22, 23, 8, 9, 32, -1)}, ("row 4", "slot 32", "0 to 31", "-1")),
    "slot below": ({"slot_mapping": int64(22, -2, 8, 9, 12, -1)}, ("row 1", "slot -2", "0 to 31")),
    "slot beyond 32 bits": ({"slot_mapping": int64(2**32 + 22, 23, 8, 9, 12, -1)}, ("row 0", "slot 4294967318")),
    "slot twice": ({"slot_mapping": int64(22, 23, 8, 23, 12, -1)}, ("slot 23", "two rows")),
    "slot 0 twice": ({"slot_mapping": int64(0, -1, -1, 0, -1, -1)}, ("slot 0", "two rows")),
    "slot too few": ({"slot_mapping": int64(22, 23, 8, 9, 12)}, ("6 rows", "(5,)")),
    "slot too many": ({"slot_mapping": int64(22, 23, 8, 9, 12, -1, -1)}, ("6 rows", "(7,)")),
    "slots in a square": ({"slot_mapping": int64([22, 23, 8], [9, 12, -1])}, ("6 rows", "(2, 3)")),
    "context below the rows": ({"context_lengths": int32(3, 1, 0)}, ("sequence 0", "3 tokens", "fewer")),
    "context 0 with a row": ({"context_lengths": int32(6, 0, 0)}, ("sequence 1", "0 tokens", "fewer")),
    "context below 0": ({"context_lengths": int32(6, 1, -1)}, ("sequence 2", "-1 tokens")),
    "cu_seqlens falls": ({"cu_seqlens": int32(0, 4, 3, 5)}, ("begin with 0", "[0, 4, 3, 5]")),
    "cu_seqlens begins late": ({"cu_seqlens": int32(1, 4, 5, 5)}, ("begin with 0", "[1, 4, 5, 5]")),
    "cu_seqlens beyond the rows": ({"cu_seqlens": int32(0, 4, 5, 7)}, ("ends at 7", "6 rows")),
    "cu_seqlens too short": ({"cu_seqlens": int32(0, 4, 5)}, ("3 context lengths", "4 cu_seqlens", "(3,)")),
    "cu_seqlens too long": ({"cu_seqlens": int32(0, 4, 5, 5, 5)}, ("3 context lengths", "4 cu_seqlens", "(5,)")),
    "a table too few": ({"block_tables": int32([5, 2], [3, -1])}, ("3 context lengths", "3 rows", "(2, 2)")),
    "a flat table": ({"block_tables": int32(5, 2, 3)}, ("3 context lengths", "(3,)")),
    "a context too few": ({"context_lengths": int32(6, 1)}, ("2 context lengths", "(3, 2)", "(4,)")),
    "no contexts": ({"context_lengths": int32()}, ("0 context lengths", "(3, 2)", "(4,)")),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_says_why(name: str):
    changes, words = BAD_BATCHES[name]
    batch = replace(GOOD, **changes)
    with pytest.raises(InvalidBatch) as caught:
        plan_of(batch, num_blocks=8)
    for word in words:
        assert word in str(caught.value)


def test_the_good_one_is_good():
    verify(plan_of(GOOD, num_blocks=8))
    with pytest.raises(InvalidBatch, match="block 5 at place 0"):
        plan_of(GOOD, num_blocks=5)


@pytest.mark.parametrize("padding", [-1, 0, 7, 8, 2**31 - 1, -(2**31)])
def test_what_lies_beyond_the_context_may_be_anything(padding: int):
    tables = int32([5, 2, padding], [3, padding, padding], [padding] * 3)
    verify(plan_of(replace(GOOD, block_tables=tables), num_blocks=8))


def test_a_block_may_be_in_many_tables_and_in_one_twice():
    verify(plan_of(batch_of([([1, 1, 2], 12, 1), ([1, 3], 8, 1)], 4), num_blocks=4))


def test_a_context_that_fills_its_table_is_not_too_long():
    verify(plan_of(batch_of([([1, 2], 8, 8)], 4), num_blocks=3))
    with pytest.raises(
        InvalidBatch, match="sequence 0: a context of 9 tokens needs more than the table's 2 blocks of 4"
    ):
        plan_of(replace(batch_of([([1, 2], 8, 8)], 4), context_lengths=int32(9)), num_blocks=3)


def test_the_largest_pool_has_no_overflow():
    batch = batch_of([([2**31 - 2], 2**20, 1)], 2**20)
    plan = plan_of(batch, block_size=2**20, num_blocks=2**31 - 1, schedule="direct")
    assert plan.lanes[0].work.tolist() == [[0, 0, -1, -1]]
    assert int(batch.slot_mapping[0]) == (2**31 - 1) * 2**20 - 1
    with pytest.raises(InvalidBatch, match="row 0: slot"):
        plan_of(replace(batch, slot_mapping=batch.slot_mapping + 1), block_size=2**20, num_blocks=2**31 - 1)


@pytest.mark.parametrize("rows", [3, -3])
def test_cu_seqlens_begins_with_0_without_sequences_too(rows: int):
    """DevicePlan.full would be true for rows that belong to nobody, and their output stay as it was."""
    with pytest.raises(InvalidBatch):
        plan_of(replace(batch_of([], 4, rows=3), cu_seqlens=int32(rows)))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("block_tables", np.int64),
        ("context_lengths", np.int64),
        ("cu_seqlens", np.int64),
        ("slot_mapping", np.int32),
        ("context_lengths", np.float64),
    ],
)
def test_arrays_of_other_dtypes_are_refused_or_converted(name: str, dtype: Any):
    """Never taken for what they are not: a captured graph has its own."""
    good = of_lengths((70, 3), (50, 1))
    plan, expected = (DevicePlan(plan_of(good), "cpu", torch.float32, ROOM) for _ in range(2))
    before = [tensor.clone() for tensor in tensors(plan)[:-6]]
    try:
        plan.load(plan_of(replace(good, **{name: getattr(good, name).astype(dtype)})))
    except InvalidBatch:
        assert all(map(torch.equal, tensors(plan), before))
    else:
        assert all(map(torch.equal, tensors(plan)[:-6], tensors(expected)[:-6]))


# ---- on the device ---------------------------------------------------------------------------------------------------


def tensors(plan: DevicePlan) -> list[torch.Tensor]:
    fixed = [plan.tables, plan.cu_seqlens, plan.contexts, plan.slots, plan.slopes, plan.constants]
    return [*fixed, *plan.works, *plan.merges, *(one for workspace in plan.workspaces for one in workspace)]


def small(**options: Any) -> Plan:
    return plan_of(of_lengths((70, 3), (50, 1)), num_blocks=64, **options)


ROOM = Room(sequences=4, columns=30, tokens=40, lanes=((20, 6, 20), (20, 6, 20)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_device_plan_carries_the_arrays(dtype: torch.dtype):
    spec = AttentionSpec(6, 2, 72, slopes=(0.5, 0.25, 1, 2, 3, 4), softcap=30.0)
    host = small(spec=spec, schedule="split")
    plan = DevicePlan(host, "cpu", dtype)
    assert plan.plan is host and plan.room is None and plan.full and plan.num_tokens == 4
    for tensor, array in (
        (plan.tables, host.batch.block_tables),
        (plan.cu_seqlens, host.batch.cu_seqlens),
        (plan.contexts, host.batch.context_lengths),
        (plan.slots, host.batch.slot_mapping),
        *zip(plan.works, (lane.work for lane in host.lanes), strict=True),
        *zip(plan.merges, (lane.merges for lane in host.lanes), strict=True),
    ):
        assert tensor.tolist() == array.tolist() and tensor.dtype == torch.from_numpy(array).dtype
        assert not np.shares_memory(tensor.numpy(), array)
    state = torch.float64 if dtype is torch.float32 else torch.float32
    for lane, (peak, total, mixed) in zip(host.lanes, plan.workspaces, strict=True):
        cells = (lane.partials, 2, lane.tiling.rows)
        assert peak.shape == total.shape == cells and mixed.shape == (*cells, 128)
        assert peak.dtype is total.dtype is mixed.dtype is state


@pytest.mark.parametrize("dtype", [torch.float64, torch.float8_e4m3fn, torch.int32, None, "float32"])
def test_queries_of_other_dtypes_have_no_plan(dtype: Any):
    with pytest.raises(InvalidTensor, match=re.escape(f"not {dtype}")):
        DevicePlan(small(), "cpu", dtype)


def test_room_is_padding():
    host = small(schedule="split")
    plan = DevicePlan(host, "cpu", torch.float16, ROOM)
    batch = host.batch.padded(sequences=4, blocks=30, tokens=40)
    assert plan.num_tokens == 40 and not plan.full
    assert plan.tables.tolist() == batch.block_tables.tolist()
    assert plan.cu_seqlens.tolist() == [0, 3, 4, 4, 4]
    assert plan.contexts.tolist() == [70, 50, 0, 0]
    assert plan.slots.tolist() == [*host.batch.slot_mapping.tolist(), *[-1] * 36]
    for lane, work, merges, (peak, _, _) in zip(host.lanes, plan.works, plan.merges, plan.workspaces, strict=True):
        for array, tensor, size in ((lane.work, work, 20), (lane.merges, merges, 6)):
            assert tensor.tolist() == [*array.tolist(), *[[-1] * 4] * (size - len(array))]
        assert peak.shape == (20, 2, lane.tiling.rows)


def test_a_plan_that_fills_its_room_exactly():
    host = small(schedule="split")
    lanes = tuple((len(lane.work), len(lane.merges), lane.partials) for lane in host.lanes)
    plan = DevicePlan(host, "cpu", torch.float32, Room(2, 18, 4, lanes))
    assert plan.works[0].tolist() == host.lanes[0].work.tolist()


def test_loading_replaces_the_contents_in_place():
    """A captured graph holds the addresses."""
    plan = DevicePlan(small(schedule="split"), "cpu", torch.float32, ROOM)
    places = [tensor.data_ptr() for tensor in tensors(plan)]
    for batch, schedule in (
        (of_lengths((100, 33), (1, 1), (17, 0)), "split"),
        (of_lengths(), "auto"),
        (of_lengths((100, 1)), "direct"),
        (of_lengths((70, 3), (50, 1)), "split"),
    ):
        host = plan_of(batch, num_blocks=64, schedule=schedule)
        plan.load(host)
        assert plan.plan is host and not plan.full and plan.num_tokens == 40
        assert [tensor.data_ptr() for tensor in tensors(plan)] == places
        fresh = DevicePlan(host, "cpu", torch.float32, ROOM)
        count = len(tensors(plan)) - 6  # workspaces hold nothing yet
        for own, other in zip(tensors(plan)[:count], tensors(fresh)[:count], strict=True):
            assert torch.equal(own, other)


TOO_LARGE: dict[str, tuple[Room, tuple[str, ...]]] = {
    "sequences": (ROOM._replace(sequences=1), ("2 sequences", "room 1")),
    "columns": (ROOM._replace(columns=17), ("18 table columns", "room 17")),
    "rows": (ROOM._replace(tokens=3), ("4 rows", "room 3")),
    "items": (ROOM._replace(lanes=((4, 6, 20), (20, 6, 20))), ("(5, 2, 5)", "(4, 6, 20)", "items")),
    "merges": (ROOM._replace(lanes=((20, 1, 20), (20, 6, 20))), ("(5, 2, 5)", "(20, 1, 20)")),
    "partials": (ROOM._replace(lanes=((20, 6, 4), (20, 6, 20))), ("(5, 2, 5)", "(20, 6, 4)")),
    "one lane": (ROOM._replace(lanes=((20, 6, 20),)), ("1 lanes", "2")),
    "three lanes": (ROOM._replace(lanes=((20, 6, 20),) * 3), ("3 lanes", "2")),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_plan_too_large_for_its_room(name: str):
    room, words = TOO_LARGE[name]
    with pytest.raises(PlanTooLarge) as caught:
        DevicePlan(small(schedule="split"), "cpu", torch.float32, room)
    for word in words:
        assert word in str(caught.value)


Refusal = tuple[type[Exception], str, Any]
REFUSED_LOADS: dict[str, Refusal] = {
    "sequences": (PlanTooLarge, "5 sequences", lambda: plan_of(of_lengths(*[(1, 1)] * 5), num_blocks=64)),
    "columns": (PlanTooLarge, "31 table columns", lambda: plan_of(of_lengths((121, 1)), num_blocks=64)),
    "rows": (PlanTooLarge, "41 rows", lambda: plan_of(of_lengths((41, 41)), num_blocks=64)),
    "items": (PlanTooLarge, "a lane has", lambda: small(schedule="split")),
    "lanes": (InvalidAttention, "another spec, tree, tiling", lambda: small(tilings=(Tiling(16),))),
    "spec": (InvalidAttention, "another spec", lambda: small(spec=AttentionSpec(4, 2, 16, window=9))),
    "tree": (InvalidAttention, "another spec, tree", lambda: small(tree=Tree(16, 64))),
    "block size": (
        InvalidAttention,
        "block size",
        lambda: plan_of(of_lengths((9, 1), block_size=8), block_size=8, num_blocks=64),
    ),
}


@pytest.mark.parametrize("name", REFUSED_LOADS)
def test_a_refused_load_changes_nothing(name: str):
    error, words, other = REFUSED_LOADS[name]
    room = ROOM._replace(lanes=((4, 6, 4), (4, 6, 4)))
    plan = DevicePlan(small(schedule="direct"), "cpu", torch.float32, room)
    host, before = plan.plan, [tensor.clone() for tensor in tensors(plan)[: -2 * 3]]
    with pytest.raises(error, match=words):
        plan.load(other())
    assert plan.plan is host
    assert all(map(torch.equal, tensors(plan), before))


def test_a_plan_without_room_is_not_loaded():
    plan = DevicePlan(small(), "cpu", torch.float32)
    with pytest.raises(
        InvalidAttention, match=r"no room of its own; make it with DevicePlan.plan, device, dtype, room."
    ):
        plan.load(small())


def test_a_plan_with_other_tilings_is_not_loaded():
    """The workspace has the captured rows, so partials of more rows would be written beyond it."""
    plan = DevicePlan(small(schedule="split"), "cpu", torch.float32, ROOM)
    with pytest.raises((InvalidAttention, PlanTooLarge)):
        plan.load(small(schedule="split", tilings=(Tiling(64), Tiling(128))))


def test_a_plan_for_another_pool_is_not_loaded():
    """A captured graph is replayed without `paged_attention`, which would notice."""
    plan = DevicePlan(small(), "cpu", torch.float32, ROOM)
    with pytest.raises(InvalidAttention):
        plan.load(plan_of(of_lengths((70, 3), (50, 1)), num_blocks=65))


# ---- what a plan is made of ------------------------------------------------------------------------------------------

SPEC = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16}


@pytest.mark.parametrize("name", SPEC)
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "4", None, np.int64(4)])
def test_heads_and_dims_are_integers_from_1(name: str, value: Any):
    with pytest.raises(InvalidAttention, match=re.escape(f"{name} must be an integer from 1, got {value!r}")):
        AttentionSpec(**{**SPEC, name: value})


NUMBERS = [0, -1.0, float("nan"), float("inf"), "1", True, [1.0]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_heads": 3}, "multiple of num_kv_heads, got 3 and 2"),
        ({"num_heads": 1}, "multiple of num_kv_heads, got 1 and 2"),
        ({"num_heads": 129, "num_kv_heads": 1}, "at most 128 query heads share a kv head, got 129"),
        ({"head_dim": 257}, "head_dim must be at most 256, got 257"),
        *[({"scale": value}, f"scale must be a positive number, got {value!r}") for value in NUMBERS],
        *[({"softcap": value}, f"softcap must be a positive number or None, got {value!r}") for value in NUMBERS],
        *[
            ({"window": value}, f"window must be an integer from 1 or None, got {value!r}; 1 sees itself alone")
            for value in (0, -1, 1.0, True, "4", np.int64(4), float("inf"))
        ],
        *[
            ({"slopes": value}, f"slopes must be one finite number for each of 4 query heads, got {value!r}")
            for value in ((), (1.0,), (1.0,) * 5, (1.0,) * 3 + (float("nan"),), (1.0,) * 3 + (None,), "abcd")
        ],
    ],
)
def test_other_attention_is_refused(changes: dict[str, Any], words: str):
    with pytest.raises(InvalidAttention, match=re.escape(words)):
        AttentionSpec(**{**SPEC, **changes})


def test_limits_are_allowed():
    assert AttentionSpec(128, 1, 256).group == 128
    assert AttentionSpec(5, 5, 1, window=1).group == 1
    assert AttentionSpec(4, 2, 64).softmax_scale == 0.125
    assert AttentionSpec(4, 2, 64, scale=1).softmax_scale == 1
    spec = AttentionSpec(4, 2, 16, slopes=[0, -1, 0.5, 2], window=2**40)
    assert spec.slopes == (0.0, -1.0, 0.5, 2.0) and hash(spec) == hash(replace(spec))


@pytest.mark.parametrize("tile", [0, -16, 1, 8, 15, 17, 24, 48, 16.0, True, None, "16"])
def test_a_tile_is_a_power_of_two_from_16(tile: Any):
    with pytest.raises(InvalidAttention, match=re.escape(f"tile must be a power of two from 16, got {tile!r}")):
        Tree(tile, 512)


@pytest.mark.parametrize("leaf", [0, -64, 32, 63, 65, 96, 64.0, True, None])
def test_a_leaf_is_whole_tiles(leaf: Any):
    with pytest.raises(InvalidAttention, match=re.escape(f"leaf must be a multiple of tile (64), got {leaf!r}")):
        Tree(64, leaf)


def test_trees_are_named():
    names = {Tree(tile, leaf).identity for tile in (16, 32, 64) for leaf in (192, 512)}
    assert names == {f"v1/tile{tile}/leaf{leaf}" for tile in (16, 32, 64) for leaf in (192, 512)}


@pytest.mark.parametrize("rows", [0, -16, 1, 8, 15, 17, 24, 16.0, True, None])
def test_rows_are_a_power_of_two_from_16(rows: Any):
    with pytest.raises(InvalidAttention, match=re.escape(f"rows must be a power of two from 16, got {rows!r}")):
        Tiling(rows)


def test_there_is_a_tree_for_every_head():
    for head_dim in range(1, 257):
        width = padded_dim(head_dim)
        assert width >= max(16, head_dim) and width & (width - 1) == 0 and (width == 16 or width < 2 * head_dim)
        for itemsize in (2, 4):
            tree = default_tree(head_dim, itemsize)
            assert tree.tile in (16, 32, 64) and tree.leaf == 512
            assert tree == default_tree(width, itemsize), "what is padded to the same width has the same tree"


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_there_are_tilings_for_every_head_and_group(capability: int, itemsize: int):
    known = {}
    for head_dim in range(1, 257):
        for group in range(1, 129):
            few, many = tilings(head_dim, itemsize, group, capability)
            assert group <= few.rows <= max(16, 2 * group - 1), "no more rows than the group needs, rounded up"
            assert few.rows <= many.rows <= 128
            for tiling in (few, many):
                assert tiling.warps in (4, 8) and tiling.stages in (1, 2, 3)
            cut = known.setdefault((padded_dim(head_dim), few.rows), (few, many))
            assert cut == (few, many), "what is padded to the same sizes is cut alike"
