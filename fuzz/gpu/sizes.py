"""The shapes to run: one set for a device, and one for a test on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from kvcore.kernels import AttentionSpec, Tiling, Tree
from kvcore.storage import DTYPES

__all__ = ["FULL", "TINY", "Decode", "Format", "Prefill", "Setting", "Sizes", "slopes"]


@dataclass(frozen=True)
class Format:
    """dtype: of queries, and of the cache unless `cached` is given; names of `kvcore.storage.DTYPES`."""

    dtype: str
    cached: str = ""

    @property
    def compute(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def storage(self) -> str:
        return self.cached or self.dtype

    def __str__(self) -> str:
        return f"{self.dtype} on {self.cached}" if self.cached else self.dtype


def slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's: a geometric sequence down to 2**-8."""
    return tuple(2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads))


@dataclass(frozen=True)
class Setting:
    """What stays the same while schedules vary. lengths: of the sequences. tilings: tried on the axis of that name."""

    name: str
    fmt: Format
    kv_heads: int
    group: int
    head_dim: int
    block_size: int
    lengths: tuple[int, ...]
    tilings: tuple[Tiling, ...]
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False

    @property
    def spec(self) -> AttentionSpec:
        heads = self.kv_heads * self.group
        return AttentionSpec(
            heads,
            self.kv_heads,
            self.head_dim,
            window=self.window,
            softcap=self.softcap,
            slopes=slopes(heads) if self.alibi else None,
        )


class Decode(NamedTuple):
    """One decode step. lengths: contexts. goal: of `parts.GOALS`. compared: with SDPA, which needs equal lengths."""

    name: str
    lengths: tuple[int, ...]
    fmt: Format
    kv_heads: int
    group: int
    head_dim: int
    block_size: int
    goal: str = ""
    compared: bool = False


class Prefill(NamedTuple):
    """Prompts of one length; with `chunk`, their last so many tokens alone, or with `every` all, chunk by chunk.

    judged: whether goals are about it. compared: with SDPA.
    """

    name: str
    sequences: int
    length: int
    fmt: Format
    kv_heads: int
    group: int
    head_dim: int
    block_size: int
    chunk: int = 0
    every: bool = False
    judged: bool = False
    compared: bool = False


@dataclass(frozen=True)
class Sizes:
    """tree, tiles: None for what suits the device.

    Correctness: axes of the cases, how many of them, sequences in each, kv heads. Bits: settings, row-heads wanted,
    single rows and neighbour prompts tried at a time. Units: rows of the operands, operands of each kind. Benchmarks:
    shapes in order of importance; fp8_pair names the bf16 and the FP8 decode that are compared; tax: (kind, shape,
    schedule); stores: (tokens, block size, dtype), copies: (layers, pairs), the first of each is the goal's;
    most_layers: caches that one measurement goes through.
    Large: elements to exceed, head dim, the longest sequence, and the length of the many short ones.
    """

    axes: dict[str, Sequence[Any]]
    settings: tuple[Setting, ...]
    decode: tuple[Decode, ...]
    prefill: tuple[Prefill, ...]
    tax: tuple[tuple[str, Decode | Prefill, str], ...]
    stores: tuple[tuple[int, int, str], ...]
    copies: tuple[tuple[int, int], ...]
    tree: Tree | None = None
    tiles: tuple[Tiling, ...] | None = None
    most_cases: int = 1000
    most_sequences: int = 1000
    kv_heads: int = 2
    row_heads: int = 10**8
    decode_rows: int = 8192
    neighbours: int = 64
    unit_rows: int = 1 << 16
    unit_repeats: int = 4
    copy_bytes: int = 2**31
    matmul: int = 8192
    fp8_pair: tuple[str, str] = ("", "")
    most_layers: int = 64
    kv_heads_moved: int = 8
    large_elements: int = 2**31 + 2**20
    large_dim: int = 128
    large_length: int = 3000
    large_rows_length: int = 64


# ---- on a device -----------------------------------------------------------------------------------------------------

_BF16, _FP16, _FP32 = Format("bfloat16"), Format("float16"), Format("float32")
_FP8 = Format("bfloat16", "float8_e4m3")

_AXES: dict[str, Sequence[Any]] = {
    "head_dim": (128, 64, 80, 96, 72, 256),
    "group": (4, 8, 1, 5, 3, 7, 2),
    "block_size": (16, 1, 64, 5),
    "fmt": (_BF16, _FP8, _FP16, _FP32, Format("float16", "float8_e4m3")),
    "mask": ("none", "all", "window", "softcap", "alibi"),
    "schedule": ("auto", "split", "mixed", "direct"),
    "strided": (False, True),
}


def _lengths(total: int, longest: int, seed: int) -> tuple[int, ...]:
    """Lengths around the edges of tiles and leaves, then random ones, until there are `total` tokens."""
    rng = np.random.default_rng(seed)
    lengths = [1, 63, 64, 65, 511, 512, 513, 1023, 1025, 1536, longest]
    while sum(lengths) < total:
        lengths.append(int(rng.integers(1, min(longest, 1600))))
    return tuple(lengths)


_MANY_TILINGS = (
    Tiling(16, 4, 3),
    Tiling(64, 4, 2),
    Tiling(128, 8, 3),
    Tiling(32, 4, 3),
    Tiling(64, 8, 2),
    Tiling(16, 2, 2),
    Tiling(16, 8, 1),
)
_TILINGS = (Tiling(16, 4, 2), Tiling(64, 8, 2), Tiling(32, 4, 1))

_SETTINGS = (
    Setting("bf16", _BF16, 8, 4, 128, 16, _lengths(40_000, 4000, 1), _MANY_TILINGS),
    Setting("fp16, window and softcap", _FP16, 4, 8, 64, 64, _lengths(12_000, 2500, 2), _TILINGS, 700, 20.0),
    Setting("FP8 cache, ALiBi", _FP8, 4, 5, 128, 16, _lengths(12_000, 2500, 3), _TILINGS, alibi=True),
    Setting("bf16, D 80, window", _BF16, 3, 3, 80, 5, _lengths(8_000, 1700, 4), _TILINGS, 513),
    Setting("bf16, D 256", _BF16, 2, 7, 256, 1, _lengths(6_000, 1300, 5), _TILINGS),
    Setting("float32", _FP32, 2, 2, 64, 16, _lengths(4_000, 1100, 6), (Tiling(16, 4, 1), Tiling(32, 4, 2))),
)


def _zipf(count: int, longest: int, seed: int) -> tuple[int, ...]:
    """Lengths in proportion to 1 / rank, in random order."""
    lengths = np.maximum(longest / np.arange(1, count + 1), 16).astype(int)
    return tuple(np.random.default_rng(seed).permutation(lengths).tolist())


def _decode(
    name: str, lengths: tuple[int, ...], fmt: Format = _BF16, group: int = 4, block_size: int = 16, **more: Any
) -> Decode:
    return Decode(name, lengths, fmt, 8, group, 128, block_size, **more)


_DECODE = (
    _decode("32 x 4k", (4096,) * 32, goal="decode-uniform", compared=True),
    _decode("128 x 2k", (2048,) * 128, goal="decode-uniform"),
    _decode("Zipf, 128, longest 32k", _zipf(128, 32768, 7), goal="decode-zipf"),
    _decode("32 x 8k", (8192,) * 32, goal="decode-uniform"),
    _decode("32 x 8k, FP8", (8192,) * 32, _FP8),
    _decode("1 x 8k", (8192,), goal="decode-short", compared=True),
    _decode("1 x 128k", (131072,), goal="decode-long", compared=True),
    _decode("32 x 4k, blocks of 1", (4096,) * 32, block_size=1, goal="decode-block-1"),
    _decode("128 x 4k", (4096,) * 128, goal="decode-uniform", compared=True),
    _decode("32 x 4k, group 8", (4096,) * 32, group=8, goal="decode-uniform", compared=True),
    _decode("8 x 1k", (1024,) * 8, compared=True),
    _decode("128 x 256", (256,) * 128, compared=True),
    _decode("64 x 1k", (1024,) * 64, compared=True),
    _decode("32 x 4k, group 1", (4096,) * 32, group=1),
    _decode("Zipf, 64, longest 64k, FP8", _zipf(64, 65536, 8), _FP8),
    _decode("32 x 4k, blocks of 64", (4096,) * 32, block_size=64),
    _decode("128 x 32", (32,) * 128),
)


def _prefill(name: str, sequences: int, length: int, fmt: Format = _BF16, dim: int = 128, **more: Any) -> Prefill:
    return Prefill(name, sequences, length, fmt, 8, 4, dim, 16, **more)


_PREFILL = (
    _prefill("1 x 8k", 1, 8192, judged=True, compared=True),
    _prefill("1 x 16k", 1, 16384, judged=True, compared=True),
    _prefill("2k on a prefix of 16k", 1, 18432, chunk=2048),
    _prefill("16k in chunks of 2k", 1, 16384, chunk=2048, every=True),
    _prefill("1 x 4k", 1, 4096, compared=True),
    _prefill("1 x 2k", 1, 2048, compared=True),
    _prefill("1 x 1k", 1, 1024, compared=True),
    _prefill("8 x 1k", 8, 1024),
    _prefill("1 x 8k, FP8 cache", 1, 8192, _FP8),
    _prefill("1 x 8k, fp16", 1, 8192, _FP16),
    _prefill("1 x 8k, D 64", 1, 8192, dim=64, compared=True),
    _prefill("1 x 32k", 1, 32768),
)

_TAX: tuple[tuple[str, Decode | Prefill, str], ...] = (
    ("decode", _decode("128 x 4k", (4096,) * 128), "direct"),
    ("decode", _decode("128 x 4k", (4096,) * 128), "auto"),
    ("prefill", _prefill("1 x 16k", 1, 16384), "direct"),
    ("decode", _decode("128 x 2k", (2048,) * 128), "direct"),
    ("prefill", _prefill("1 x 8k", 1, 8192), "auto"),
)

FULL = Sizes(
    axes=_AXES,
    settings=_SETTINGS,
    decode=_DECODE,
    prefill=_PREFILL,
    tax=_TAX,
    stores=((16384, 16, "bfloat16"), (128, 16, "bfloat16"), (16384, 16, "float8_e4m3"), (16384, 1, "bfloat16")),
    copies=((1, 1024), (32, 32), (32, 1)),
    fp8_pair=("32 x 8k", "32 x 8k, FP8"),
)
"""For a data-center GPU, in eight minutes."""

# ---- on the CPU ------------------------------------------------------------------------------------------------------

_SMALL = (Tiling(16, 4, 1), Tiling(64, 4, 1))


def _tiny(name: str, lengths: tuple[int, ...], **more: Any) -> Decode:
    return Decode(name, lengths, Format("float32"), 1, 2, 16, 4, **more)


TINY = Sizes(
    axes={
        "head_dim": (16, 20),
        "group": (2, 3),
        "block_size": (4, 1),
        "fmt": (_FP32, _FP8, _FP16),
        "mask": ("none", "all"),
        "schedule": ("split", "mixed"),
        "strided": (False, True),
    },
    settings=(Setting("small", _FP8, 1, 2, 16, 3, (1, 17, 36), (Tiling(16, 4, 1),), 19),),
    decode=(
        _tiny("2 x 34", (34, 34), goal="decode-uniform", compared=True),
        _tiny("1 x 40", (40,), goal="decode-short"),
        Decode("2 x 34, FP8", (34, 34), Format("float32", "float8_e4m3"), 1, 2, 16, 4),
    ),
    prefill=(
        Prefill("1 x 36", 1, 36, _FP32, 1, 2, 16, 4, judged=True, compared=True),
        Prefill("8 on 28", 1, 36, _FP32, 1, 2, 16, 4, chunk=8),
        Prefill("36 in chunks of 18", 1, 36, _FP32, 1, 2, 16, 4, chunk=18, every=True),
    ),
    tax=(
        ("decode", _tiny("2 x 34", (34, 34)), "direct"),
        ("prefill", Prefill("1 x 36", 1, 36, _FP32, 1, 2, 16, 4), "auto"),
    ),
    stores=((20, 16, "bfloat16"), (128, 16, "float8_e4m3")),
    copies=((2, 3),),
    tree=Tree(16, 32),
    tiles=_SMALL,
    most_cases=4,
    most_sequences=5,
    kv_heads=1,
    row_heads=100,
    decode_rows=6,
    neighbours=2,
    unit_rows=128,
    unit_repeats=1,
    copy_bytes=2**16,
    matmul=32,
    fp8_pair=("2 x 34", "2 x 34, FP8"),
    most_layers=2,
    kv_heads_moved=1,
    large_elements=2**14,
    large_dim=16,
    large_length=20,
    large_rows_length=16,
)
"""For Triton's interpreter, in seconds."""
