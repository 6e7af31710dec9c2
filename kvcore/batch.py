"""What a step's kernels need to know, as arrays: snapshots, never views of anything that changes later.

Three indices, never to be used for one another:

- *packed row*: the token's row in this step's query tensor;
- *position*: its absolute index in the sequence (for RoPE and masking);
- *slot*: where its K/V are written, `block_table[position // B] * B + position % B`.

Built with array operations: one Python step for each sequence, none for each token.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InvalidPadding

__all__ = ["Batch"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's metadata for S sequences, T scheduled tokens and at most M blocks a sequence.

    block_tables     int32 [S, M]   physical blocks in logical order; padding -1
    context_lengths  int32 [S]      tokens in the cache after this step; padding rows 0
    cu_seqlens       int32 [S + 1]  packed rows of sequence s are cu_seqlens[s] to cu_seqlens[s + 1]; padding rows empty
    packed_rows      int32 [T]      row in the query tensor; padding -1
    row_sequences    int32 [T]      the sequence that a row belongs to; padding -1
    positions        int64 [T]      absolute position; padding 0
    slot_mapping     int64 [T]      slot to write; -1 writes nothing (padding, and K/V that are in the cache already)
    """

    block_tables: Int32
    context_lengths: Int32
    cu_seqlens: Int32
    packed_rows: Int32
    row_sequences: Int32
    positions: Int64
    slot_mapping: Int64

    @property
    def num_sequences(self) -> int:
        return int(self.context_lengths.shape[0])

    @property
    def num_tokens(self) -> int:
        return int(self.positions.shape[0])

    def padded(self, *, tokens: int | None = None, sequences: int | None = None, blocks: int | None = None) -> Batch:
        """A copy with room for `tokens` rows, `sequences` sequences and `blocks` table columns, for CUDA graphs.

        Padding writes nowhere (slot -1), reads nothing (context length 0, table -1) and belongs to no sequence.
        Raises InvalidPadding if a size is smaller than the batch. O(size of the result).
        """
        rows, columns = self.block_tables.shape
        wanted_tokens = self.num_tokens if tokens is None else tokens
        wanted_rows = rows if sequences is None else sequences
        wanted_columns = columns if blocks is None else blocks
        for name, wanted, own in (
            ("tokens", wanted_tokens, self.num_tokens),
            ("sequences", wanted_rows, rows),
            ("blocks", wanted_columns, columns),
        ):
            if type(wanted) is not int or wanted < own:
                raise InvalidPadding(f"cannot pad to {wanted!r} {name}: the batch has {own}; give an int from {own} on")
        tables = np.empty((wanted_rows, wanted_columns), dtype=np.int32)
        tables.fill(-1)
        tables[:rows, :columns] = self.block_tables
        return Batch(
            block_tables=tables,
            context_lengths=_extend(self.context_lengths, wanted_rows, 0),
            cu_seqlens=_extend(self.cu_seqlens, wanted_rows + 1, int(self.cu_seqlens[-1])),
            packed_rows=_extend(self.packed_rows, wanted_tokens, -1),
            row_sequences=_extend(self.row_sequences, wanted_tokens, -1),
            positions=_extend(self.positions, wanted_tokens, 0),
            slot_mapping=_extend(self.slot_mapping, wanted_tokens, -1),
        )


def _extend(values: npt.NDArray[Any], size: int, filler: int) -> npt.NDArray[Any]:
    own = len(values)
    result = np.empty(size, dtype=values.dtype)  # not np.full: that takes longer than all the rest
    result[:own] = values
    result[own:] = filler
    return result


_PADDING = b"\xff\xff\xff\xff"
"""-1 as int32."""


def build(
    tables: Sequence[array[int]],
    starts: list[int],
    ends: list[int],
    cached: Iterable[tuple[int, int]],
    block_size: int,
) -> Batch:
    """The batch that schedules positions starts[s] to ends[s] of each sequence s.

    tables: int32, copied here. cached: (s, first position to write) where K/V at or after starts[s] are in the cache.
    O(scheduled tokens + table entries), in array operations.
    """
    count = len(tables)
    columns = max(map(len, tables))
    parts: list[array[int] | bytes] = []
    for table in tables:
        parts += table, _PADDING * (columns - len(table))
    block_tables = np.frombuffer(bytearray().join(parts), dtype=np.int32).reshape(count, columns)

    bounds = np.array((starts, ends))
    scheduled = bounds[1] - bounds[0]
    cu_seqlens = np.zeros(count + 1, dtype=np.int32)
    scheduled.cumsum(out=cu_seqlens[1:])
    total = int(cu_seqlens[-1])
    packed_rows = np.arange(total, dtype=np.int32)
    sequences = np.arange(count, dtype=np.int32)
    rows = sequences * np.int64(columns)  # where each sequence's table begins in the flat tables
    if total == count:  # one token each: row s is sequence s
        row_sequences = sequences
        positions = bounds[0].copy()
    else:
        row_sequences = sequences.repeat(scheduled)
        positions = (bounds[0] - cu_seqlens[:-1]).repeat(scheduled)
        positions += packed_rows
        rows = rows.repeat(scheduled)
    logical = positions // block_size
    rows += logical
    slots = block_tables.reshape(-1).take(rows).astype(np.int64)
    slots -= logical
    slots *= block_size
    slots += positions
    for place, written_from in cached:
        low = int(cu_seqlens[place])
        slots[low : min(low + written_from - starts[place], int(cu_seqlens[place + 1]))] = -1
    return Batch(
        block_tables=block_tables,
        context_lengths=bounds[1].astype(np.int32),
        cu_seqlens=cu_seqlens,
        packed_rows=packed_rows,
        row_sequences=row_sequences,
        positions=positions,
        slot_mapping=slots,
    )
