"""The K/V tensors of all layers, on one device.

Layout, in elements: `[layer, plane, block, kv head, slot in block, head dim]`, plane 0 the keys and plane 1 the values.
The D numbers of one token and one head are contiguous, a block's slots of one head follow each other (what one program
of the attention kernel reads), and a block of one layer and plane is one contiguous stretch (what a copy moves).
Kernels are passed strides and assume nothing of this but a last stride of 1.

An FP8 (e4m3) cache holds `value / scale`, rounded to nearest even and saturated at +-448, with one float32 scale for
each layer, plane and kv head, 1 until `scales` is filled. A scale must not change while what was written under it is
read.

Poison (debug): blocks whose content is gone are filled with 0xFF bytes, a NaN in every dtype here, so that reading them
shows. Pass `storage.poison` as `BlockManager(..., on_discard=storage.poison)`.

Also imports: numpy, torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .errors import InvalidBatch, InvalidConfiguration, InvalidCopies, StorageTooLarge
from .kernels.calls import copy_planes
from .kernels.staging import Staging

__all__ = ["DTYPES", "KVStorage", "StorageConfig"]

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
}
"""What a cache may hold, by name."""


@dataclass(frozen=True)
class StorageConfig:
    """Sizes of a `KVStorage`; nothing is allocated yet.

    num_layers, num_blocks, block_size, num_kv_heads, head_dim: integers from 1; head_dim at most 256.
    dtype: a name in `DTYPES` or that torch dtype.

    Raises InvalidConfiguration.
    """

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype | str = "bfloat16"

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_blocks", "block_size", "num_kv_heads", "head_dim"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value < 2**31:
                raise InvalidConfiguration(f"{name} must be an integer from 1 to 2**31 - 1, got {value!r}")
        if self.head_dim > 256:
            raise InvalidConfiguration(f"head_dim must be at most 256, got {self.head_dim}")
        if self.block_size * self.num_kv_heads * self.head_dim >= 2**31:
            raise InvalidConfiguration(
                f"one block of {self.block_size} slots, {self.num_kv_heads} heads and {self.head_dim} dims has "
                f"{self.block_size * self.num_kv_heads * self.head_dim} elements; at most 2**31 - 1 fit"
            )
        known = DTYPES if isinstance(self.dtype, str) else DTYPES.values()
        if not isinstance(self.dtype, (str, torch.dtype)) or self.dtype not in known:
            raise InvalidConfiguration(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype] if isinstance(self.dtype, str) else self.dtype

    @property
    def shape(self) -> tuple[int, int, int, int, int, int]:
        return (self.num_layers, 2, self.num_blocks, self.num_kv_heads, self.block_size, self.head_dim)

    @property
    def bytes_per_block(self) -> int:
        """Bytes that one block takes in all layers, keys and values."""
        elements = self.num_layers * 2 * self.num_kv_heads * self.block_size * self.head_dim
        return elements * self.torch_dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole cache; FP8 scales (8 bytes a layer and kv head) and tags not counted."""
        return self.num_blocks * self.bytes_per_block

    def blocks_in(self, num_bytes: int) -> int:
        """How many blocks of this shape fit into `num_bytes`: what an engine sizes its pool by."""
        return num_bytes // self.bytes_per_block


class KVStorage:
    """The cache's tensors.

    data [layers, 2, blocks, kv heads, block size, head dim], of the configured dtype; not initialised (no kernel may
    depend on what was never written). scales float32 [layers, 2, kv heads] for FP8, else None. tags int64 [blocks *
    block size] if asked for, else None: what each slot holds, for `kvcore.kernels.audit` (debug); 0 for never written.

    Raises StorageTooLarge before anything is allocated. O(1) without poison, else O(size).
    """

    def __init__(
        self, config: StorageConfig, device: torch.device | str = "cuda", *, poison: bool = False, tags: bool = False
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.poisoning = poison
        _require(config, self.device)
        self.staging = Staging(self.device)
        """Sends what a step needs to the device; the plans of `PagedAttention` share it."""
        self.data = torch.empty(config.shape, dtype=config.torch_dtype, device=self.device)
        self.scales: torch.Tensor | None = None
        if config.torch_dtype is torch.float8_e4m3fn:
            self.scales = torch.ones(config.num_layers, 2, config.num_kv_heads, device=self.device)
        self.tags: torch.Tensor | None = None
        if tags:
            self.tags = torch.zeros(config.num_blocks * config.block_size, dtype=torch.int64, device=self.device)
        if poison:
            self.data.view(torch.uint8).fill_(0xFF)

    def keys(self, layer: int) -> torch.Tensor:
        """[blocks, kv heads, block size, head dim], a view."""
        return self.data[layer, 0]

    def values(self, layer: int) -> torch.Tensor:
        """[blocks, kv heads, block size, head dim], a view."""
        return self.data[layer, 1]

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, destination), in all layers: a step's copy-on-write, before its K/V are written.

        The pairs of one call are unordered, so a destination may be neither a source nor a destination of another.
        Raises InvalidCopies. O(pairs * bytes_per_block), one launch.
        """
        check_copies(pairs, self.config.num_blocks)
        if not pairs:
            return
        index = self.staging.sent(np.array(pairs, dtype=np.int64))
        copy_planes(self.data.flatten(0, 1), index)
        if self.tags is not None:
            tags = self.tags.view(self.config.num_blocks, -1)
            tags[index[:, 1]] = tags[index[:, 0]]

    def poison(self, blocks: Iterable[int]) -> None:
        """Fill `blocks` with 0xFF bytes in all layers, and their tags with 0, if this storage poisons; else nothing.

        Raises InvalidBatch for a block outside the pool. O(blocks * bytes_per_block).
        """
        chosen = list(blocks)
        for block in chosen:
            if type(block) is not int or not 0 <= block < self.config.num_blocks:
                raise InvalidBatch(f"cannot poison block {block!r}: blocks are 0 to {self.config.num_blocks - 1}")
        if not self.poisoning or not chosen:
            return
        index = self.staging.sent(np.array(chosen, dtype=np.int64))
        self.data.view(torch.uint8).index_fill_(2, index, 0xFF)
        if self.tags is not None:
            self.tags.view(self.config.num_blocks, -1).index_fill_(0, index, 0)


def check_copies(pairs: Sequence[tuple[int, int]], num_blocks: int) -> None:
    """Raises InvalidCopies unless the pairs can be copied in any order. O(pairs)."""
    destinations: set[int] = set()
    for source, destination in pairs:
        for block in (source, destination):
            if type(block) is not int or not 0 <= block < num_blocks:
                raise InvalidCopies(f"copy {source!r} -> {destination!r}: the pool has blocks 0 to {num_blocks - 1}")
        if source == destination:
            raise InvalidCopies(f"copy {source} -> {destination}: a block cannot be copied to itself; leave it out")
        if destination in destinations:
            raise InvalidCopies(f"two copies in one call write block {destination}; give each destination once")
        destinations.add(destination)
    for source, destination in pairs:
        if source in destinations:
            raise InvalidCopies(
                f"copy {source} -> {destination}: another copy of this call writes block {source}; "
                "the copies of one call have no order, so make two calls"
            )


def _require(config: StorageConfig, device: torch.device) -> None:
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidConfiguration("device is cuda, and torch finds none; install a CUDA build of torch, or give cpu")
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    elif device.type == "cpu":
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        raise InvalidConfiguration(f"device must be cuda or cpu, got {device}")
    if config.num_bytes > free:
        raise StorageTooLarge(
            f"{config.num_blocks} blocks of {config.bytes_per_block} bytes need {config.num_bytes / 2**30:.1f} GiB; "
            f"{device} has {free / 2**30:.1f} GiB: at most {config.blocks_in(free)} blocks fit"
        )
