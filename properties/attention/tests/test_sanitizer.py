"""The sanitizer sees what no number shows: another sequence's slot, a wild address, a store that is not one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from properties.attention.kernels import Cache, Step
from properties.attention.regions import for_attend, for_copy, for_store
from properties.attention.sanitizer import Sanitizer, labelled


@triton.jit
def gather(source_ptr, out_ptr, index_ptr, work_ptr, limit, SIZE: tl.constexpr):
    """Program i works for sequence work[i] and copies source[index] where index >= 0."""
    program = tl.program_id(0)
    sequence = tl.load(work_ptr + program * 2)
    if sequence < 0:
        return
    place = tl.arange(0, SIZE)
    index = tl.load(index_ptr + program * SIZE + place)
    data = tl.load(source_ptr + index, mask=index < limit, other=0.0)
    tl.store(out_ptr + program * SIZE + place, data, mask=index < limit)


SIZE = 4


def run(index: list[list[int]], work: list[int], limit: int = 8) -> tuple[Sanitizer, torch.Tensor]:
    """Two sequences: labels 0 to 3 of the source are sequence 0's, 4 to 7 sequence 1's; program i writes row i."""
    source = torch.arange(16.0)[4:12]  # a view into wider memory
    out = torch.zeros(len(index), SIZE)
    allowed = np.zeros((3, 9), dtype=np.bool_)
    allowed[0, :4] = allowed[1, 4:8] = allowed[2, :8] = True
    regions = [
        labelled(
            "slot", source, torch.arange(8, dtype=torch.int32), reads={0: allowed[0], 1: allowed[1], None: allowed[2]}
        ),
        labelled(
            "row", out, torch.arange(len(index), dtype=torch.int32)[:, None].expand(out.shape), writes=rows(len(index))
        ),
    ]
    own = {
        "index": torch.tensor(index, dtype=torch.int32),
        "work": torch.tensor([[who, 0] for who in work], dtype=torch.int32),
    }
    sanitizer = Sanitizer()
    with sanitizer.watch(regions, own, [own["work"]]):
        gather[(len(index),)](source, out, own["index"], own["work"], limit, SIZE=SIZE)
    return sanitizer, out


def rows(count: int) -> dict[Any, Any]:
    every = np.ones(count + 1, dtype=np.bool_)
    every[-1] = False
    return {None: every}


def test_what_is_allowed_is_done_and_not_reported() -> None:
    sanitizer, out = run([[0, 1, 2, 3], [4, 5, 6, 7]], [0, 1])
    assert sanitizer.reports == []
    assert out.tolist() == [[4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]
    assert sanitizer.accesses > 0


def test_another_sequences_slot_is_reported_and_masked_off() -> None:
    sanitizer, out = run([[0, 1, 2, 5], [4, 5, 6, 7]], [0, 1])
    assert [str(report) for report in sanitizer.reports] == [
        "load of slot 5 by program (0, 0, 0), which works for sequence 0, to whom it is not allowed"
    ]
    assert out[0].tolist() == [4.0, 5.0, 6.0, 0.0]


def test_a_program_without_a_sequence_may_read_what_any_may() -> None:
    sanitizer, _ = run([[0, 1, 6, 7]], [2])
    assert sanitizer.reports == []


def test_padding_in_the_work_list_touches_nothing() -> None:
    sanitizer, out = run([[7, 7, 7, 7]], [-1])
    assert (sanitizer.reports, out.sum()) == ([], 0.0)


@pytest.mark.parametrize("index", [-3, 11, 8])
def test_memory_behind_the_view_is_nobodys(index: int) -> None:
    sanitizer, _ = run([[0, 1, 2, index]], [0], limit=12)
    assert [report.labels for report in sanitizer.reports] == [(-1,)]


@pytest.mark.parametrize("index", [1_000_000, -1_000_000])
def test_a_wild_access_is_reported_and_never_made(index: int) -> None:
    sanitizer, _ = run([[0, 1, 2, index]], [0], limit=2_000_000)
    assert str(sanitizer.reports[0]).startswith("load outside every tensor by program (0, 0, 0)")


def test_the_interpreter_is_left_as_it_was() -> None:
    from triton.runtime import interpreter

    before = interpreter.InterpreterBuilder.create_masked_load
    run([[0, 1, 2, 3]], [0])
    assert interpreter.InterpreterBuilder.create_masked_load is before


def test_attention_may_read_its_context_and_write_its_rows() -> None:
    """Sequence 0: 5 tokens in blocks 2, 0 of 4 slots; sequence 1: 3 tokens in block 1."""
    cache = Cache(torch.zeros(3, 1, 4, 2), torch.zeros(3, 1, 4, 2))
    step = Step(np.array([[2, 0], [1, -1]], dtype=np.int32), [5, 3], [2, 1], [-1, -1, -1])
    regions = for_attend(cache, step, torch.zeros(3, 1, 2), torch.zeros(3, 1, 2))
    keys, _, queries, out = regions
    assert keys.reads is not None
    assert {who: np.flatnonzero(allowed).tolist() for who, allowed in keys.reads.items()} == {
        None: [0, 4, 5, 6, 8, 9, 10, 11],
        0: [0, 8, 9, 10, 11],
        1: [4, 5, 6],
    }
    assert queries.reads is not None
    assert out.writes is not None
    assert np.flatnonzero(queries.reads[0]).tolist() == np.flatnonzero(out.writes[0]).tolist() == [0, 1]
    assert (keys.writes, queries.writes, out.reads) == (None, None, None)


def test_storing_and_copying_may_touch_their_slots_alone() -> None:
    both = torch.zeros(3, 2, 1, 2, 2)  # interleaved: one memory
    cache = Cache(both[:, 0], both[:, 1])
    cached, keys, _ = for_store(cache, [5, -1, 0], torch.zeros(3, 1, 2), torch.zeros(3, 1, 2))
    assert cached.writes is not None
    assert keys.reads is not None
    assert np.flatnonzero(cached.writes[None]).tolist() == [0, 5]
    assert np.flatnonzero(keys.reads[None]).tolist() == [0, 2]
    assert cached.labels is not None
    assert cached.labels.tolist() == [
        slot for block in range(3) for _ in "kv" for slot in (2 * block,) * 2 + (2 * block + 1,) * 2
    ]
    (copied,) = for_copy(cache, [(2, 0)])
    assert copied.reads is not None
    assert copied.writes is not None
    assert (np.flatnonzero(copied.reads[None]).tolist(), np.flatnonzero(copied.writes[None]).tolist()) == (
        [4, 5],
        [0, 1],
    )
