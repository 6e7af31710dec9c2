"""A step's arrays, as kernels read them: what is wrong with them. A pure function of the step.

For every scheduled token: its position, its row, the sequence of the row, and the slot that it is written to, which is
table[position // size] * size + position % size; -1 for a token that was hit and is computed only for its output.
"""

from __future__ import annotations

from collections import abc
from typing import Protocol

from .sequence import Step

__all__ = ["StepArrays", "padding_faults", "step_array_faults"]


class StepArrays(Protocol):
    """tables: [sequences][blocks], filled up with -1. context_lengths: [sequences]. cu_seqlens: [sequences + 1]. The
    others: [tokens]."""

    @property
    def tables(self) -> abc.Sequence[abc.Sequence[int]]: ...
    @property
    def context_lengths(self) -> abc.Sequence[int]: ...
    @property
    def cu_seqlens(self) -> abc.Sequence[int]: ...
    @property
    def packed_rows(self) -> abc.Sequence[int]: ...
    @property
    def row_sequences(self) -> abc.Sequence[int]: ...
    @property
    def positions(self) -> abc.Sequence[int]: ...
    @property
    def slots(self) -> abc.Sequence[int]: ...


def step_array_faults(step: Step, arrays: StepArrays, block_size: int) -> list[str]:
    """What is wrong with the arrays of a step over sequences with one group of layers: one sentence for each fault.
    O(scheduled tokens + table entries)."""
    faults: list[str] = []
    spans, size = step.spans, block_size
    tables, context_lengths, cu_seqlens = arrays.tables, arrays.context_lengths, arrays.cu_seqlens
    packed_rows, row_sequences = arrays.packed_rows, arrays.row_sequences
    positions, slots = arrays.positions, arrays.slots
    total = sum([end - start for _, start, end in spans])
    if not len(tables) == len(context_lengths) == len(cu_seqlens) - 1 == len(spans) or not (
        len(packed_rows) == len(row_sequences) == len(positions) == len(slots) == total
    ):
        return [
            f"a step of {len(spans)} sequences and {total} tokens has {len(tables)} tables, {len(context_lengths)} "
            f"context lengths, {len(cu_seqlens)} cu_seqlens and {len(positions)} positions, {len(slots)} slots, "
            f"{len(packed_rows)} packed rows, {len(row_sequences)} row sequences"
        ]
    if packed_rows != list(range(total)):
        faults.append(f"packed rows are {list(packed_rows)[:32]}, not 0 to {total - 1}")
    row = 0
    for index, (sequence, start, end) in enumerate(spans):
        after = row + end - start
        name, group = sequence.request, sequence.tables[0]
        if cu_seqlens[index] != row or cu_seqlens[index + 1] != after:
            faults.append(
                f"cu_seqlens has {name!r} at {cu_seqlens[index]} to {cu_seqlens[index + 1]}, not {row} to {after}"
            )
        if context_lengths[index] != end:
            faults.append(f"context length of {name!r} is {context_lengths[index]}, not {end}")
        table, width = group.blocks, len(group.blocks)
        shown = tables[index]
        if shown[:width] != table or shown[width:].count(-1) != len(shown) - width:
            faults.append(f"the step's block table of {name!r} is {list(shown)}, its table {table}")
        if positions[row:after] != list(range(start, end)):
            faults.append(f"positions of {name!r} are {list(positions[row:after])[:32]}, not {start} to {end - 1}")
        if row_sequences[row:after] != [index] * (end - start):
            faults.append(f"rows {row} to {after - 1} belong to sequence {index}, not {row_sequences[row:after]}")
        position = start
        while position < end:
            logical = position // size
            stop = min(end, (logical + 1) * size)
            first = table[logical] * size + position % size
            expected = list(range(first, first + stop - position))
            if position < group.written_from:
                kept = min(stop, group.written_from) - position
                expected[:kept] = [-1] * kept
            at = row + position - start
            if slots[at : at + stop - position] != expected:
                faults.append(
                    f"slots of {name!r} for positions {position} to {stop - 1} are "
                    f"{list(slots[at : at + stop - position])[:32]}, not {expected[:32]}"
                )
            position = stop
        row = after
    return faults


def padding_faults(arrays: StepArrays, padded: StepArrays, rows: int, sequences: int) -> list[str]:
    """What is wrong with arrays that were filled up by so many rows and sequences: one sentence for each fault.

    What is added writes nothing (slot -1), reads nothing (context length 0, blocks -1) and belongs to nobody (-1).
    O(arrays)."""
    faults: list[str] = []
    room = f"filled up by {rows} rows and {sequences} sequences"
    for name, before, after, added, filler in (
        ("context_lengths", arrays.context_lengths, padded.context_lengths, sequences, 0),
        ("cu_seqlens", arrays.cu_seqlens, padded.cu_seqlens, sequences, arrays.cu_seqlens[-1]),
        ("packed_rows", arrays.packed_rows, padded.packed_rows, rows, -1),
        ("row_sequences", arrays.row_sequences, padded.row_sequences, rows, -1),
        ("slots", arrays.slots, padded.slots, rows, -1),
    ):
        if after != [*before, *[filler] * added]:
            faults.append(f"{room}, {name} are {list(after)[-32:]}, not {[*before, *[filler] * added][-32:]}")
    plain, shown = [*arrays.tables, *[[]] * sequences], padded.tables
    if len(shown) != len(plain) or any(
        table[: len(own)] != own or table.count(-1) < len(table) - len(own) + own.count(-1)
        for own, table in zip(plain, shown, strict=True)
    ):
        faults.append(f"{room}, the block tables are {[list(table) for table in shown]}")
    count = len(arrays.positions)
    if padded.positions[:count] != arrays.positions or len(padded.positions) != count + rows:  # of any value
        faults.append(
            f"{room}, positions are {list(padded.positions)[-32:]}, not {list(arrays.positions)[-32:]} and more"
        )
    return faults
