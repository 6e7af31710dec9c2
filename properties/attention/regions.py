"""Which memory each program may touch in one launch: a program of a sequence reads that sequence's slots and rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from .kernels import Cache, Step
from .sanitizer import Allowed, Region, labelled

__all__ = ["for_attend", "for_copy", "for_store"]


def for_attend(cache: Cache, step: Step, queries: torch.Tensor, out: torch.Tensor) -> list[Region]:
    """Reads: of the cache, the slots of a sequence's context; of the queries, its rows. Writes: its rows of `out`."""
    blocks, _, block_size, _ = cache.keys.shape
    num_slots = blocks * block_size
    contexts = []
    for table, context in zip(step.tables.tolist(), step.contexts, strict=True):
        places = np.arange(context)
        contexts.append(np.array(table, dtype=np.int64)[places // block_size] * block_size + places % block_size)
    bounds = step.cu_seqlens
    rows = [np.arange(start, end) for start, end in itertools.pairwise(bounds)]
    slots, own = _allow(num_slots, contexts), _allow(len(queries), rows)
    return [
        *_cache_regions(cache, reads=slots),
        labelled("query row", queries, _rows(queries), reads=own),
        labelled("output row", out, _rows(out), writes=own),
    ]


def for_store(cache: Cache, slots: Sequence[int], keys: torch.Tensor, values: torch.Tensor) -> list[Region]:
    """Reads: the rows that have a slot. Writes: those slots."""
    blocks, _, block_size, _ = cache.keys.shape
    rows = _allow(len(slots), [np.array([row for row, slot in enumerate(slots) if slot >= 0], dtype=np.int64)])
    written = _allow(blocks * block_size, [np.array([slot for slot in slots if slot >= 0], dtype=np.int64)])
    return [
        *_cache_regions(cache, writes=written),
        labelled("key row", keys, _rows(keys), reads=rows),
        labelled("value row", values, _rows(values), reads=rows),
    ]


def for_copy(cache: Cache, pairs: Sequence[tuple[int, int]]) -> list[Region]:
    """Reads: the slots of the sources. Writes: those of the destinations."""
    blocks, _, block_size, _ = cache.keys.shape
    sides = (
        np.concatenate([np.arange(block * block_size, (block + 1) * block_size) for block in side])
        for side in zip(*pairs, strict=True)
    )
    reads, writes = (_allow(blocks * block_size, [side]) for side in sides)
    return _cache_regions(cache, reads=reads, writes=writes)


def _cache_regions(cache: Cache, reads: Allowed | None = None, writes: Allowed | None = None) -> list[Region]:
    """Keys and values usually lie in one memory: one region with the labels of both."""
    blocks, heads, block_size, dim = cache.keys.shape
    labels = torch.arange(blocks * block_size, dtype=torch.int32).view(blocks, 1, block_size, 1)
    labels = labels.expand(blocks, heads, block_size, dim)
    regions = [
        labelled("cache slot", tensor, labels, reads=reads, writes=writes) for tensor in (cache.keys, cache.values)
    ]
    if regions[0].low == regions[1].low:
        first, second = (region.labels for region in regions)
        assert first is not None and second is not None
        np.maximum(first, second, out=first)
        return regions[:1]
    return regions


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    labels = torch.arange(len(tensor), dtype=torch.int32).view(-1, *[1] * (tensor.ndim - 1))
    return labels.expand(tensor.shape)


def _allow(size: int, labels: Sequence[np.ndarray]) -> Allowed:
    """For each sequence its labels, and for a program without one those of all. The entry for label -1 is False."""
    allowed: dict[int | None, np.ndarray] = {None: np.zeros(size + 1, dtype=np.bool_)}
    for sequence, own in enumerate(labels):
        allowed[sequence] = np.zeros(size + 1, dtype=np.bool_)
        allowed[sequence][own] = True
        allowed[None] |= allowed[sequence]
    return allowed
