"""Sequences in a paged cache, and any part of them as a batch.

A `Pool` has the cache and the block tables; a `World` also keeps what was written there, and queries for every position
of every sequence, so that each row of each batch can be compared with the same row of any other.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kvcore.attention import PagedAttention
from kvcore.batch import Batch, build
from kvcore.kernels import (
    AttentionSpec,
    DevicePlan,
    Plan,
    Room,
    Schedule,
    Tiling,
    Tree,
    make_plan,
    paged_attention,
    store_kv,
)
from kvcore.storage import KVStorage, StorageConfig

from .sizes import Format

__all__ = ["FP8", "Pool", "Segment", "World", "exact", "half_ulps", "unused_are_poisoned"]

FP8 = torch.float8_e4m3fn

_COLUMNS = 16
"""Tables are padded to multiples of so many columns: Triton compiles anew for a stride that 16 does not divide."""

_SCORES = 2**26
"""Scores in float64 held at a time, 512 MB."""

_PIECE = 2**28
"""Elements drawn or compared at a time."""


class Segment(NamedTuple):
    """Positions start to stop of one sequence: rows of a batch in which the context ends at `stop`."""

    sequence: int
    start: int
    stop: int


class Pool:
    """Block tables for sequences of given lengths, blocks in random order, and a storage for them.

    spare: blocks that nobody owns, anywhere in the pool. high: the sequences' blocks are those with the highest ids.
    cut: (tree, tilings); by default what suits the device. Memory: the storage. Raises StorageTooLarge.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        lengths: Sequence[int],
        fmt: Format,
        device: torch.device,
        *,
        block_size: int,
        seed: int = 0,
        layers: int = 1,
        spare: int = 0,
        poison: bool = False,
        high: bool = False,
        tags: bool = False,
        cut: tuple[Tree | None, tuple[Tiling, ...] | None] = (None, None),
    ) -> None:
        self.spec = spec
        self.lengths = list(lengths)
        self.fmt = fmt
        self.device = device
        self.block_size = block_size
        rng = np.random.default_rng(seed)
        needed = [-(-length // block_size) for length in lengths]
        num_blocks = max(sum(needed) + spare, 1)
        order = rng.permutation(num_blocks if not high else sum(needed)).astype(np.int32)
        if high:
            order += num_blocks - sum(needed)
        ends = np.cumsum(needed)
        self.tables = [
            array("i", order[end - count : end].tobytes()) for count, end in zip(needed, ends.tolist(), strict=True)
        ]
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what the allocator holds back does not count as free in the storage's check
        self.storage = KVStorage(
            StorageConfig(layers, num_blocks, block_size, spec.num_kv_heads, spec.head_dim, fmt.storage),
            device,
            poison=poison,
            tags=tags,
        )
        if self.storage.scales is not None:
            generator = torch.Generator().manual_seed(seed)
            self.storage.scales.copy_(torch.rand(self.storage.scales.shape, generator=generator) * 1.5 + 0.25)
        self.attention = PagedAttention(spec, self.storage, dtype=fmt.compute, tree=cut[0], tiles=cut[1])
        first = np.zeros(len(self.lengths) + 1, dtype=np.int64)
        np.cumsum(self.lengths, out=first[1:])
        self.first = first

    @property
    def total(self) -> int:
        """Tokens of all sequences."""
        return int(self.first[-1])

    def whole(self) -> list[Segment]:
        """Every sequence in one segment."""
        return [Segment(number, 0, length) for number, length in enumerate(self.lengths)]

    def rows(self, segments: Sequence[Segment]) -> torch.Tensor:
        """int64 [rows of the segments]: each one's place among all tokens of all sequences."""
        parts = [np.arange(segment.start, segment.stop) + self.first[segment.sequence] for segment in segments]
        return torch.from_numpy(np.concatenate(parts) if parts else np.zeros(0, np.int64)).to(self.device)

    def batch(self, segments: Sequence[Segment], *, write: bool = False, columns: int = _COLUMNS) -> Batch:
        """The batch of these segments; slots are -1 unless `write`. Tables padded to a multiple of `columns`."""
        built = build(
            [self.tables[segment.sequence] for segment in segments],
            [segment.start for segment in segments],
            [segment.stop for segment in segments],
            () if write else [(place, segment.stop) for place, segment in enumerate(segments)],
            self.block_size,
        )
        wide = built.block_tables.shape[1]
        return built.padded(blocks=-(-max(wide, 1) // columns) * columns)

    def plan(
        self,
        segments: Sequence[Segment],
        *,
        schedule: Schedule = "auto",
        room: Room | None = None,
        tiles: tuple[Tiling, ...] | None = None,
        columns: int = _COLUMNS,
    ) -> DevicePlan:
        """The plan of these segments, which write nothing."""
        return self.device_plan(self.host_plan(segments, schedule=schedule, tiles=tiles, columns=columns), room)

    def device_plan(self, plan: Plan, room: Room | None = None) -> DevicePlan:
        """A host's plan on the device, for queries of this pool's dtype."""
        return DevicePlan(plan, self.device, dtype=self.fmt.compute, room=room)

    def host_plan(
        self,
        segments: Sequence[Segment],
        *,
        schedule: Schedule = "auto",
        tiles: tuple[Tiling, ...] | None = None,
        columns: int = _COLUMNS,
    ) -> Plan:
        """The same before it is sent to the device."""
        attention = self.attention
        return make_plan(
            self.batch(segments, columns=columns),
            self.spec,
            block_size=self.block_size,
            num_blocks=self.storage.config.num_blocks,
            tree=attention.tree,
            tilings=tiles or attention.tiles,
            programs=attention.programs,
            schedule=schedule,
        )

    def attend(
        self,
        queries: torch.Tensor,
        plan: DevicePlan,
        *,
        layer: int = 0,
        out: torch.Tensor | None = None,
        native_fp8: bool | None = None,
    ) -> torch.Tensor:
        """Attention of the plan's rows over one layer. [rows, query heads, D]."""
        storage = self.storage
        scales = None if storage.scales is None else storage.scales[layer]
        return paged_attention(
            queries,
            storage.keys(layer),
            storage.values(layer),
            plan,
            scales=scales,
            out=out,
            native_fp8=native_fp8,
        )

    def fill(self, seed: int = 0) -> None:
        """Normal numbers in every slot of every layer, for shapes that are only timed."""
        generator = torch.Generator(self.device).manual_seed(seed)
        data = self.storage.data
        flat = data.view(-1)
        for start in range(0, flat.numel(), _PIECE):
            piece = flat[start : start + _PIECE]
            if data.dtype is FP8:
                wide = torch.empty(piece.shape, dtype=torch.bfloat16, device=self.device).normal_(generator=generator)
                piece.copy_(wide.to(FP8))
            else:
                piece.normal_(generator=generator)

    def contiguous(self, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of sequences of one length as [sequences, kv heads, length, D], copied; FP8 widened and scaled."""
        length = self.lengths[0]
        tables = torch.tensor(np.array([list(table) for table in self.tables]), device=self.device).long()
        planes = []
        for plane, cache in enumerate((self.storage.keys(layer), self.storage.values(layer))):
            # [sequences, blocks, kv heads, slots, D] -> [sequences, kv heads, blocks * slots, D]
            data = cache.view(torch.uint8)[tables].view(cache.dtype) if cache.dtype is FP8 else cache[tables]
            data = data.transpose(1, 2).flatten(2, 3)[:, :, :length]
            if self.storage.scales is not None:
                scale = self.storage.scales[layer, plane, :, None, None]
                data = (data.to(torch.bfloat16).float() * scale).to(self.fmt.compute)
            planes.append(data.contiguous())
        return planes[0], planes[1]

    @property
    def bytes_per_token(self) -> int:
        """Of K and V in one layer."""
        config = self.storage.config
        return 2 * config.num_kv_heads * config.head_dim * config.torch_dtype.itemsize


class World(Pool):
    """A pool of one layer whose content is known: every sequence is written, each position has a query.

    written: whether the tokens are stored already; else call `write`.
    like: another world with the same content elsewhere: its tokens are written to this one's blocks.
    queries [tokens, query heads, D]; keys, values [tokens, kv heads, D], as they were given to `store_kv`.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        lengths: Sequence[int],
        fmt: Format,
        device: torch.device,
        *,
        seed: int = 0,
        like: World | None = None,
        written: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(spec, lengths, fmt, device, seed=seed, **options)
        self.queries: torch.Tensor
        self.keys: torch.Tensor
        self.values: torch.Tensor
        if like is not None:
            self.queries, self.keys, self.values = like.queries, like.keys, like.values
            if self.storage.scales is not None and like.storage.scales is not None:
                self.storage.scales.copy_(like.storage.scales)
        else:
            generator = torch.Generator(device).manual_seed(seed)

            def normal(heads: int) -> torch.Tensor:
                shape = (self.total, heads, spec.head_dim)
                return torch.empty(shape, dtype=fmt.compute, device=device).normal_(generator=generator)

            self.queries = normal(spec.num_heads)
            self.keys, self.values = normal(spec.num_kv_heads), normal(spec.num_kv_heads)
        self.slots = torch.from_numpy(self.batch(self.whole(), write=True).slot_mapping).to(device)
        if written:
            self.write()

    def write(self) -> None:
        """Store every token's K and V."""
        storage = self.storage
        scales = None if storage.scales is None else storage.scales[0]
        tags: dict[str, Any] = {}
        if storage.tags is not None:
            tags = {"tags": storage.tags, "token_tags": self.slots + 1}
        store_kv(self.keys, self.values, storage.keys(0), storage.values(0), self.slots, scales=scales, **tags)

    def stored(self) -> list[torch.Tensor]:
        """The K and V that the cache should hold, [tokens, kv heads, D], in its dtype: by torch's own conversion."""
        scales = self.storage.scales
        if scales is None:
            return [self.keys, self.values]
        return [
            (plane.float() / scales[0, number, :, None]).clamp(-448.0, 448.0).to(FP8)
            for number, plane in enumerate((self.keys, self.values))
        ]

    def exact(self, segment: Segment, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Attention of a segment's rows in float64, of what the cache should hold. [rows, query heads, D].

        rows: only these, counted from the segment's start; ascending.
        """
        begin = int(self.first[segment.sequence])
        at = torch.arange(segment.start, segment.stop, device=self.device)
        if rows is not None:
            at = at[rows.to(self.device)]
        whole = slice(begin, begin + segment.stop)
        read = []
        for number, plane in enumerate((self.keys, self.values)):
            part = plane[whole]
            if self.storage.scales is None:
                read.append(part.double())
            else:
                scale = self.storage.scales[0, number, :, None]
                held = (part.float() / scale).clamp(-448.0, 448.0).to(FP8)
                read.append(held.to(torch.float32).double() * scale.double())
        return exact(self.queries[begin + at], read[0], read[1], at, self.spec)


def exact(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, spec: AttentionSpec
) -> torch.Tensor:
    """Attention in float64: queries [q, query heads, D] at `positions` int64 [q], ascending, over keys and values
    [n, kv heads, D] at 0 to n - 1. Returns [q, query heads, D]. O(q n heads D), 512 MB of scores at a time.
    """
    asked = queries.double().reshape(len(queries), spec.num_kv_heads, spec.group, spec.head_dim)
    keys, values = keys.double(), values.double()
    result = torch.empty_like(asked)
    step = max(1, _SCORES // max(spec.num_heads * len(keys), 1))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        own = positions[part, None]
        last = int(own.max()) + 1
        place = torch.arange(last, device=queries.device)[None, :]
        score = torch.einsum("qhgd,nhd->hgqn", asked[part], keys[:last]) * spec.softmax_scale
        if spec.softcap is not None:
            score = torch.tanh(score / spec.softcap) * spec.softcap
        if spec.slopes is not None:
            slope = torch.tensor(spec.slopes, dtype=torch.float64, device=queries.device)
            score = score + slope.view(spec.num_kv_heads, spec.group, 1, 1) * (place - own)
        hidden = place > own
        if spec.window is not None:
            hidden |= own - place >= spec.window
        weights = torch.softmax(score.masked_fill_(hidden, float("-inf")), -1)
        result[part] = torch.einsum("hgqn,nhd->qhgd", weights, values[:last])
    return result.flatten(1, 2)


_DIGITS = {torch.float32: (23, -126), torch.float16: (10, -14), torch.bfloat16: (7, -126)}
"""Bits after the point, and the smallest normal number's exponent."""


def half_ulps(out: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The largest error of each row and head, [rows, heads]: in units of half of what separates two numbers of `dtype`
    at that row's largest |right|. Rounding the right output would give up to 1. NaN for what is not finite.
    """
    digits, least = _DIGITS[dtype]
    largest = right.abs().amax(-1)
    exponent = torch.frexp(largest).exponent.clamp(min=least + 1) - 1
    unit = torch.exp2((exponent - digits - 1).double())
    wide = out.double()
    error = (wide - right).abs().amax(-1) / unit
    return torch.where(wide.isfinite().all(-1), error, torch.nan)


def unused_are_poisoned(world: World) -> int:
    """How many slots that were not written hold anything but 0xFF bytes; keys and values are counted alike."""
    config = world.storage.config
    used = torch.zeros(config.num_blocks * config.block_size, dtype=torch.bool, device=world.device)
    used[world.slots] = True
    idle = ~used.view(config.num_blocks, config.block_size)
    count = 0
    for cache in (world.storage.keys(0), world.storage.values(0)):
        # In pieces of blocks: a mask of a large cache is large too.
        step = max(1, _PIECE // max(cache[0].numel() * cache.element_size(), 1))
        for start in range(0, config.num_blocks, step):
            spoiled = (cache[start : start + step].view(torch.uint8) != 0xFF).any(-1).any(1)
            count += int((spoiled & idle[start : start + step]).sum())
    return count
