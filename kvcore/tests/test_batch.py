"""A step's arrays: every number by its formula, the right types, copies of everything."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import fields
from random import Random

import numpy as np
import pytest

from kvcore import Batch, BlockManager, ReusePolicy
from kvcore.batch import build
from kvcore.state import inside

from .support import cache, dispatch_all, manager_of, run

TYPES = {
    "block_tables": np.int32,
    "context_lengths": np.int32,
    "cu_seqlens": np.int32,
    "packed_rows": np.int32,
    "row_sequences": np.int32,
    "positions": np.int64,
    "slot_mapping": np.int64,
}


def lists(batch: Batch) -> dict[str, list]:
    return {field.name: getattr(batch, field.name).tolist() for field in fields(batch)}


def by_formula(
    tables: list[list[int]], starts: list[int], ends: list[int], cached: dict[int, int], block_size: int
) -> dict[str, list]:
    """What `build` must give, one token at a time. cached: sequence to the first position that is written."""
    width = max(len(table) for table in tables)
    expected: dict[str, list] = {
        "block_tables": [table + [-1] * (width - len(table)) for table in tables],
        "context_lengths": list(ends),
        "cu_seqlens": [0],
        "packed_rows": [],
        "row_sequences": [],
        "positions": [],
        "slot_mapping": [],
    }
    for sequence, table in enumerate(tables):
        for position in range(starts[sequence], ends[sequence]):
            slot = table[position // block_size] * block_size + position % block_size
            expected["packed_rows"].append(len(expected["packed_rows"]))
            expected["row_sequences"].append(sequence)
            expected["positions"].append(position)
            expected["slot_mapping"].append(slot if position >= cached.get(sequence, 0) else -1)
        expected["cu_seqlens"].append(len(expected["positions"]))
    return expected


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("kind", ["mixed", "decode", "equal tables"])
def test_every_number_follows_its_formula(block_size: int, kind: str):
    random = Random(f"{block_size} {kind}")
    for _ in range(40):
        count = random.randint(1, 5)
        width = random.randint(1, 6)
        tables, starts, ends, cached = [], [], [], {}
        for sequence in range(count):
            blocks = width if kind == "equal tables" else random.randint(1, 6)
            tables.append([random.randrange(1000) for _ in range(blocks)])
            start = random.randrange(blocks * block_size)
            starts.append(start)
            ends.append(start + 1 if kind == "decode" else random.randint(start + 1, blocks * block_size))
            if random.random() < 0.3:
                cached[sequence] = start + random.randint(1, block_size + 2)
        batch = build([array("i", table) for table in tables], starts, ends, cached.items(), block_size)
        assert lists(batch) == by_formula(tables, starts, ends, cached, block_size)
        assert {field.name: getattr(batch, field.name).dtype for field in fields(batch)} == TYPES
        assert (batch.num_sequences, batch.num_tokens) == (count, sum(ends) - sum(starts))


@pytest.mark.parametrize(
    ("block", "block_size", "position"),
    [
        (2**27, 16, 3),
        (2**28 - 1, 16, 15),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 2, 1),
        (2**31 - 1, 2**20, 2**20 - 1),
        (70_000, 2**16, 5),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_slots_beyond_32_bits_are_right(block: int, block_size: int, position: int, count: int):
    expected = block * block_size + position
    assert expected >= 2**31 or block_size == 1
    batch = build([array("i", [block])], [max(0, position + 1 - count)], [position + 1], (), block_size)
    assert batch.slot_mapping.dtype == np.int64
    assert int(batch.slot_mapping[-1]) == expected


def test_positions_beyond_32_bits_of_slots_keep_their_place_in_a_long_table():
    table = array("i", range(1_000_000, 1_000_500))
    batch = build([table], [499 * 4096 + 7], [499 * 4096 + 9], (), 4096)
    assert batch.slot_mapping.tolist() == [1_000_499 * 4096 + 7, 1_000_499 * 4096 + 8]


# ---- what is in the cache already ------------------------------------------------------------------------------------


def test_a_token_whose_k_and_v_are_cached_is_computed_but_not_written():
    manager = manager_of(8, 4, reuse=ReusePolicy.LAST_TOKEN)
    cache(manager, range(8))
    manager.allocate("warm", range(8))
    manager.allocate("cold", range(20, 23))
    batch = dispatch_all(manager, "cold", "warm").batch
    cold = manager.sequence("cold").table[0]
    assert batch.positions.tolist() == [0, 1, 2, 7]
    assert batch.slot_mapping.tolist() == [4 * cold, 4 * cold + 1, 4 * cold + 2, -1]
    assert batch.context_lengths.tolist() == [3, 8]


def test_only_the_first_step_after_a_whole_hit_writes_nothing():
    manager = manager_of(8, 4, reuse=ReusePolicy.LAST_TOKEN)
    blocks = cache(manager, range(8))
    warm = manager.allocate("warm", range(8))
    assert warm.table == blocks
    manager.append("warm", [8, 9])
    batch = manager.dispatch([("warm", 2)]).batch
    assert batch.slot_mapping.tolist() == [-1, 4 * warm.table[2]]
    assert manager.dispatch([("warm", 1)]).batch.slot_mapping.tolist() == [4 * warm.table[2] + 1]


@pytest.mark.parametrize("block_size", [1, 2, 4])
def test_a_whole_hit_never_writes_into_what_it_hits(block_size: int):
    manager = manager_of(16, block_size, reuse=ReusePolicy.LAST_TOKEN)
    cache(manager, range(8))
    manager.allocate("warm", range(8))
    assert run(manager, "warm").batch.slot_mapping.tolist() == [-1]


# ---- snapshots -------------------------------------------------------------------------------------------------------


def busy() -> BlockManager:
    manager = manager_of(16, 4)
    for request, length in (("a", 6), ("b", 3)):
        manager.allocate(request, range(length))
    run(manager, "a", "b")
    manager.append("a", [6, 7, 8])
    manager.append("b", [3])
    return manager


def _reuse(manager: BlockManager) -> None:
    manager.free("a")
    manager.free("b")
    manager.reset()


CHANGES: dict[str, Callable[[BlockManager], object]] = {
    "append": lambda m: m.append("a", range(10)),
    "append in the tail": lambda m: m.append("a", [9]),
    "truncate": lambda m: m.truncate("a", 7),
    "truncate and append": lambda m: (m.truncate("a", 6), m.append("a", [9] * 9)),
    "free and reset": _reuse,
    "allocate": lambda m: m.allocate("c", range(20)),
    "complete and fork": lambda m: (m.complete(inside(m).in_flight[0]), m.fork("a", "c"), m.append("a", [1] * 4)),
    "dispatch more": lambda m: (m.append("b", [4]), m.dispatch([("b", 1)])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_step_s_arrays_do_not_change_with_the_manager(change: str):
    manager = busy()
    batch = dispatch_all(manager, "a", "b").batch
    before = lists(batch)
    CHANGES[change](manager)
    assert lists(batch) == before


def test_the_manager_does_not_change_with_a_step_s_arrays():
    manager = busy()
    batch = dispatch_all(manager, "a", "b").batch
    for field in fields(batch):
        getattr(batch, field.name)[...] = 77
    manager.append("b", [4])
    assert manager.sequence("a").table == [0, 1, 3] and manager.sequence("b").table == [2, 4]
    assert dispatch_all(manager, "b").batch.block_tables.tolist() == [[2, 4]]
    manager.check()


def test_a_single_table_is_copied_too():
    table = array("i", [5, 2, 7])
    batch = build([table], [0], [10], (), 4)
    table[0] = 9
    assert batch.block_tables.tolist() == [[5, 2, 7]]
    batch.block_tables[0, 1] = 8
    assert list(table) == [9, 2, 7]


def test_the_arrays_of_a_batch_share_no_memory():
    for work in ([("a", 1), ("b", 1)], [("a", 3), ("b", 1)]):
        batch = busy().dispatch(work).batch
        arrays = [getattr(batch, field.name) for field in fields(batch)]
        for at, one in enumerate(arrays):
            for other in arrays[at + 1 :]:
                assert not np.shares_memory(one, other)


def test_a_step_without_a_batch_counts_the_same():
    manager = busy()
    step = manager.dispatch([("a", 3)], batch=False)
    assert step.batch is None
    assert (step.starts, step.ends) == ([6], [9])
    manager.complete(step)
    assert manager.sequence("a").computed == 9


def test_sequences_are_in_the_order_of_the_work():
    manager = busy()
    step = manager.dispatch([("b", 1), ("a", 2)])
    assert [sequence.request for sequence in step.sequences] == ["b", "a"]
    assert step.batch.positions.tolist() == [3, 6, 7]
    assert step.batch.cu_seqlens.tolist() == [0, 1, 3]


# ---- padding ---------------------------------------------------------------------------------------------------------


def test_padding_writes_nowhere_reads_nothing_and_belongs_to_nobody():
    batch = build([array("i", [5, 2]), array("i", [3])], [2, 0], [6, 1], (), 4)
    assert lists(batch.padded(tokens=8, sequences=4, blocks=3)) == {
        "block_tables": [[5, 2, -1], [3, -1, -1], [-1] * 3, [-1] * 3],
        "context_lengths": [6, 1, 0, 0],
        "cu_seqlens": [0, 4, 5, 5, 5],
        "packed_rows": [0, 1, 2, 3, 4, -1, -1, -1],
        "row_sequences": [0, 0, 0, 0, 1, -1, -1, -1],
        "positions": [2, 3, 4, 5, 0, 0, 0, 0],
        "slot_mapping": [22, 23, 8, 9, 12, -1, -1, -1],
    }


@pytest.mark.parametrize("sizes", [{}, {"tokens": 9}, {"sequences": 5}, {"blocks": 7}, {"tokens": 5, "sequences": 2}])
def test_each_size_can_be_padded_alone(sizes: dict[str, int]):
    batch = build([array("i", [5, 2]), array("i", [3])], [2, 0], [6, 1], (), 4)
    padded = batch.padded(**sizes)
    assert padded.num_tokens == sizes.get("tokens", 5)
    assert padded.num_sequences == sizes.get("sequences", 2)
    assert padded.block_tables.shape == (sizes.get("sequences", 2), sizes.get("blocks", 2))
    assert padded.cu_seqlens.shape == (padded.num_sequences + 1,)
    assert {field.name: getattr(padded, field.name).dtype for field in fields(padded)} == TYPES
    own, more = lists(batch), lists(padded)
    for name in ("packed_rows", "row_sequences", "positions", "slot_mapping", "context_lengths", "cu_seqlens"):
        assert more[name][: len(own[name])] == own[name]


def test_padding_copies():
    batch = build([array("i", [5, 2]), array("i", [3])], [2, 0], [6, 1], (), 4)
    before = lists(batch)
    for padded in (batch.padded(), batch.padded(tokens=8, sequences=4, blocks=3)):
        for field in fields(padded):
            assert not np.shares_memory(getattr(batch, field.name), getattr(padded, field.name))
            getattr(padded, field.name)[...] = 9
    assert lists(batch) == before


def test_padding_a_padded_batch_pads_on():
    batch = build([array("i", [5, 2]), array("i", [3])], [2, 0], [6, 1], (), 4)
    twice = batch.padded(tokens=6, sequences=3).padded(tokens=8, sequences=4, blocks=3)
    assert lists(twice) == lists(batch.padded(tokens=8, sequences=4, blocks=3))
