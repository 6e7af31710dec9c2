"""A case's tensors: each sequence's keys, values and queries, and a paged cache that holds them.

Everything follows from the case and its seed. The cache lies between red zones, in one of several memory layouts. It
begins as poison, so that reading what was never written shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from .cases import Case
from .kernels import DTYPES, Cache, Spec

__all__ = ["NAN", "Arena", "Placement", "World"]

NAN = 0xFF
"""The byte that is a NaN in every dtype here, however many stand together."""

GUARD = 4096
"""Bytes of red zone on either side of a tensor."""

_LARGEST = 2**31 - 1


@dataclass(slots=True)
class Arena:
    """Memory with red zones, and a view into it. memory uint8: all of it."""

    memory: torch.Tensor
    cache: Cache

    def clone(self) -> Arena:
        memory = self.memory.clone()
        keys, values = (
            memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            for tensor in (self.cache.keys, self.cache.values)
        )
        return Arena(memory, Cache(keys, values, self.cache.scales))


@dataclass(frozen=True, slots=True)
class Placement:
    """Which physical blocks hold what. tables: for each sequence, its blocks in logical order."""

    num_blocks: int
    tables: tuple[tuple[int, ...], ...]

    def slots(self, sequence: int, start: int, end: int, block_size: int) -> list[int]:
        table = self.tables[sequence]
        return [table[place // block_size] * block_size + place % block_size for place in range(start, end)]


class World:
    """keys, values [n, Hkv, D] and queries [q, Hq, D] of each sequence, in the dtype that is handed to the kernels;
    stored_keys, stored_values: the same as float64, as the cache gives them back (FP8 rounds and scales)."""

    def __init__(self, case: Case, device: torch.device | str = "cpu") -> None:
        self.case = case
        self.device = torch.device(device)
        self.dtype = DTYPES[case.dtype]
        self.compute = torch.bfloat16 if case.dtype == "float8_e4m3" else self.dtype
        if case.dtype == "float8_e4m3" and case.seed % 3 == 1:
            self.compute = torch.float16
        heads = case.kv_heads * case.group
        self.spec = Spec(
            num_heads=heads,
            num_kv_heads=case.kv_heads,
            head_dim=case.head_dim,
            scale=1 / math.sqrt(case.head_dim),
            window=case.window,
            softcap=case.softcap,
            slopes=tuple(2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)) if case.alibi else None,
        )
        rng = np.random.default_rng([case.seed, 1])
        self.scales: torch.Tensor | None = None
        if self.dtype is torch.float8_e4m3fn:
            # Different for each head, and such that a few values saturate. Half of them are 1 or 7 times a power
            # of two: values half way between two that FP8 has, and a reciprocal that does not do for a division.
            shape = (2, case.kv_heads)
            any_scale = rng.uniform(0.004, 0.3, shape)
            round_scale = rng.choice([1, 7], shape) * 2.0 ** rng.integers(-8, -4, shape)
            chosen = np.where(rng.random(shape) < 0.5, any_scale, round_scale)
            self.scales = torch.tensor(chosen, dtype=torch.float32, device=self.device)
        prefix = case.shared * case.block_size
        shape = (case.kv_heads, case.head_dim)
        common = [self._values(rng, (prefix, *shape), plane) for plane in (0, 1)]
        self.queries: list[torch.Tensor] = []
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        for context, rows in case.sequences:
            for plane, store in ((0, self.keys), (1, self.values)):
                own = self._values(rng, (context, *shape), plane)
                own[:prefix] = common[plane][:context]
                store.append(own.to(self.device))
            self.queries.append(self._values(rng, (rows, heads, case.head_dim), 2).to(self.device))
        self.stored_keys, self.stored_values = (
            [self.stored(tensor, plane) for tensor in tensors] for plane, tensors in enumerate((self.keys, self.values))
        )

    def _values(self, rng: np.random.Generator, shape: tuple[int, ...], plane: int) -> torch.Tensor:
        """plane: 0 keys, 1 values, 2 queries."""
        kind = self.case.values
        data = rng.standard_normal(shape)
        if kind == "uniform weights" and plane == 0:
            data = np.broadcast_to(rng.standard_normal(shape[1:]), shape).copy()
        elif kind == "wide scores" and plane != 1:
            data *= 3.0
        elif kind == "one key wins" and plane != 1:
            data *= 8.0
        elif kind == "large scores" and plane != 1:
            data *= 150.0
        elif kind == "tiny":
            data *= 1e-6
        elif kind == "zero keys" and plane == 0:
            data = np.where(data < 0, -0.0, 0.0)
        elif kind == "large values" and plane == 1:
            data *= 3e3
        elif kind == "signs" and plane == 1:
            data = np.sign(data)
        return torch.from_numpy(data).to(torch.float32).to(self.compute)

    def stored(self, tensor: torch.Tensor, plane: int, *, rounded: bool = False) -> torch.Tensor:
        """float64: what the cache gives back for these keys (plane 0) or values (1), its scale included; rounded: to
        the queries' dtype, for kernels that do so."""
        if self.scales is None:
            return tensor.double()
        encoded, scale = self.encoded(tensor, plane), self.scales[plane, :, None]
        if rounded:
            return (encoded.float() * scale).to(self.compute).double()
        return encoded.double() * scale.double()

    def encoded(self, tensor: torch.Tensor, plane: int) -> torch.Tensor:
        """What the cache holds for these keys (plane 0) or values (1), in its dtype."""
        if self.scales is None:
            return tensor
        return (tensor.float() / self.scales[plane, :, None]).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)

    # ---- placing -----------------------------------------------------------------------------------------------------

    def place(self, seed: int, spare: int | None = None) -> Placement:
        """Physical blocks for every sequence, at random; full blocks of a common prefix are shared."""
        case = self.case
        rng = np.random.default_rng([case.seed, 2, seed])
        counts = [-(-context // case.block_size) for context, _ in case.sequences]
        full = [context // case.block_size for context, _ in case.sequences]
        common = min(case.shared, max(full, default=0))
        own = [count - min(common, whole) for count, whole in zip(counts, full, strict=True)]
        total = common + sum(own)
        num_blocks = max(total + (case.spare if spare is None else spare), 1)
        free = rng.permutation(num_blocks).tolist()
        prefix = free[:common]
        free = free[common:]
        tables = []
        for count, whole in zip(counts, full, strict=True):
            hit = min(common, whole)
            tables.append((*prefix[:hit], *free[: count - hit]))
            free = free[count - hit :]
        return Placement(num_blocks, tuple(tables))

    def table(
        self, rows: Sequence[tuple[tuple[int, ...], int]], columns: int, num_blocks: int
    ) -> npt.NDArray[np.int32]:
        """(blocks, how many of them count) for each row, int32 [rows, columns], the rest filled as the case says."""
        filler = self.case.filler
        result = np.full((len(rows), columns), {"zero": 0, "largest": _LARGEST}.get(filler, -1), dtype=np.int32)
        for row, (blocks, count) in enumerate(rows):
            if filler == "stale":  # what an earlier, longer request left there
                result[row] = (np.arange(columns) * 7 + row) % num_blocks
                result[row, : min(len(blocks), columns)] = blocks[:columns]
            result[row, :count] = blocks[:count]
        return result

    def arena(self, num_blocks: int, poison: int = NAN) -> Arena:
        """A cache full of poison, between red zones of it."""
        case = self.case
        heads, slots, dim = case.kv_heads, case.block_size, case.head_dim
        size = torch.empty((), dtype=self.dtype).element_size()
        layout = case.layout
        width = dim + 8 if layout in ("padded rows", "unlike") else dim
        plane = num_blocks * heads * slots * width
        memory = torch.full((2 * GUARD + 2 * plane * size,), poison, dtype=torch.uint8, device=self.device)
        data = memory[GUARD : GUARD + 2 * plane * size].view(self.dtype)
        if layout == "interleaved":
            both = data.view(num_blocks, 2, heads, slots, dim)
            keys, values = both[:, 0], both[:, 1]
        elif layout == "unlike":  # no stride of the values is one of the keys
            half = data.view(2, -1)
            keys = half[0, : num_blocks * heads * slots * dim].view(num_blocks, heads, slots, dim)
            values = half[1].view(num_blocks, slots, heads, width)[..., :dim].transpose(1, 2)
        elif layout == "slots first":
            both = data.view(2, num_blocks, slots, heads, dim)
            keys, values = both[0].transpose(1, 2), both[1].transpose(1, 2)
        else:
            both = data.view(2, num_blocks, heads, slots, width)[..., :dim]
            keys, values = both[0], both[1]
        return Arena(memory, Cache(keys, values, self.scales))

    def given(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values to be stored; if the case says so, slices of rows of different width, NaN around them."""
        if not self.case.fused:
            return keys, values
        given = []
        for before, data in ((1, keys), (3, values)):
            rows, heads, dim = data.shape
            wide = torch.full((rows, before + heads + 1, dim), float("nan"), dtype=data.dtype, device=data.device)
            wide[:, before : before + heads] = data
            given.append(wide[:, before : before + heads])
        return given[0], given[1]

    def packed(self, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """Queries of a step, [rows, heads, D]; if the case says so, a slice of rows as wide as a fused projection."""
        case = self.case
        heads = case.kv_heads * case.group
        rows = torch.cat([*pieces, torch.empty(0, heads, case.head_dim, dtype=self.compute, device=self.device)])
        if not case.fused:
            return rows
        wide = torch.full(
            (len(rows), heads + 2 * case.kv_heads, case.head_dim), float("nan"), dtype=self.compute, device=self.device
        )
        wide[:, :heads] = rows
        return wide[:, :heads]
