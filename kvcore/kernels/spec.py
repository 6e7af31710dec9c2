"""What attention computes, and in which order it adds up: the numeric contract, apart from how it is launched.

**Fixed tree, free schedule.** The keys of a sequence are cut into *tiles* of `tile` and *leaves* of `leaf` consecutive
tokens, both at absolute multiples. Within a leaf: online softmax over its tiles in order. Across leaves: one `merge`,
in order. A masked tile or leaf is an exact no-op of both. So each row's result is one expression over its own history,
whoever computes which part of it: how a prompt was cut into chunks, what was hit, which other sequences are in the
batch, where its blocks lie, whether one program walks all leaves or many do one each. The scheduler is free, and no
bit moves. (Others fix the number of splits or forbid them: see docs/kernels.md.) The bits depend on the tree and on the
GPU's matrix units, so `Tree.identity` goes with stored results.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from numbers import Real

from ..errors import InvalidAttention

__all__ = ["AttentionSpec", "Tiling", "Tree", "default_tree", "padded_dim", "tilings"]

_VERSION = 1
"""Version of the order of operations in `attention.py`. A change that can move a bit raises it."""


@dataclass(frozen=True)
class AttentionSpec:
    """One layer's attention.

    num_heads, num_kv_heads: query and K/V heads; any ratio (GQA). head_dim: 1 to 256.
    scale: of the dot products; 1 / sqrt(head_dim) by default.
    window: the query at position p sees keys above p - window (sliding window); None for all.
    softcap: c * tanh(score / c) after the scale (Gemma 2); None for none.
    slopes: one ALiBi slope for each query head, added as slope * (key position - query position) after the softcap.

    Causal and bottom-right aligned: the queries of a step are the last positions of their context.
    Raises InvalidAttention.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    slopes: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_kv_heads", "head_dim"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidAttention(f"{name} must be an integer from 1, got {value!r}")
        if self.num_heads % self.num_kv_heads:
            raise InvalidAttention(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )
        if self.group > 128:
            raise InvalidAttention(f"at most 128 query heads share a kv head, got {self.group}")
        if self.head_dim > 256:
            raise InvalidAttention(f"head_dim must be at most 256, got {self.head_dim}")
        if self.scale is not None and not (_finite(self.scale) and self.scale > 0):
            raise InvalidAttention(f"scale must be a positive number, got {self.scale!r}")
        if self.window is not None and (type(self.window) is not int or not 1 <= self.window < 2**62):
            raise InvalidAttention(
                f"window must be an integer from 1 or None, got {self.window!r}; 1 sees itself alone"
            )
        if self.softcap is not None and not (_finite(self.softcap) and self.softcap > 0):
            raise InvalidAttention(f"softcap must be a positive number or None, got {self.softcap!r}")
        if self.slopes is not None:
            if not isinstance(self.slopes, Collection) or (
                len(self.slopes) != self.num_heads or not all(map(_finite, self.slopes))
            ):
                raise InvalidAttention(
                    f"slopes must be one finite number for each of {self.num_heads} query heads, got {self.slopes!r}"
                )
            object.__setattr__(self, "slopes", tuple(map(float, self.slopes)))

    @property
    def group(self) -> int:
        """Query heads for each kv head."""
        return self.num_heads // self.num_kv_heads

    @property
    def softmax_scale(self) -> float:
        return 1 / math.sqrt(self.head_dim) if self.scale is None else self.scale


@dataclass(frozen=True)
class Tree:
    """Where tiles and leaves are cut: part of the numeric contract.

    tile: keys of one tile, a power of two from 16. leaf: keys of one leaf, a multiple of `tile`.
    Raises InvalidAttention.
    """

    tile: int = 64
    leaf: int = 512

    def __post_init__(self) -> None:
        if type(self.tile) is not int or self.tile < 16 or self.tile & (self.tile - 1):
            raise InvalidAttention(f"tile must be a power of two from 16, got {self.tile!r}")
        if type(self.leaf) is not int or self.leaf < self.tile or self.leaf % self.tile:
            raise InvalidAttention(f"leaf must be a multiple of tile ({self.tile}), got {self.leaf!r}")

    @property
    def identity(self) -> str:
        """Equal identities on one GPU architecture give equal bits."""
        return f"v{_VERSION}/tile{self.tile}/leaf{self.leaf}"


@dataclass(frozen=True)
class Tiling:
    """How one launch cuts the rows: no bit depends on it.

    rows: packed rows (queries x heads of a group) of one program, a power of two from 16. warps, stages: Triton's.
    """

    rows: int
    warps: int = 4
    stages: int = 3

    def __post_init__(self) -> None:
        if type(self.rows) is not int or self.rows < 16 or self.rows & (self.rows - 1):
            raise InvalidAttention(f"rows must be a power of two from 16, got {self.rows!r}")


def padded_dim(head_dim: int) -> int:
    """The width of a program's tiles: the next power of two, at least 16."""
    return max(16, 1 << (head_dim - 1).bit_length())


def default_tree(head_dim: int, itemsize: int) -> Tree:
    """The tree for a head dim and for queries of `itemsize` bytes an element: a tile that fits into registers."""
    pressure = _pressure(head_dim, itemsize)
    return Tree(tile=64 if pressure <= 128 else 32 if pressure <= 512 else 16, leaf=512)


def tilings(head_dim: int, itemsize: int, group: int, capability: int) -> tuple[Tiling, Tiling]:
    """(for few rows, for many rows), by the query's width and the device's compute capability (80, 90, 100, ...).

    From the compile tables in docs/generated/gates.md: none spill on 90 and 100, few on 80. Two cases still spill, in
    at most 2 % of their instructions: prompts with a window on 100, and prompts over FP8 caches of more than 128 dims
    on 90. Two cases spill more: head dims that are no multiple of 16, and more than 64 heads in a group with head dim
    256 or float32 queries.
    """
    pressure = _pressure(head_dim, itemsize)
    stages = 3 if pressure <= 128 else 2
    narrow = max(16, 1 << (group - 1).bit_length())
    small = Tiling(narrow, warps=4 if narrow == 16 and pressure <= 256 else 8, stages=stages)
    if itemsize == 4:
        # Below 64 rows: with more, Triton 3.6 takes float64 for something that the matrix unit of 100 could do.
        large = Tiling(32 if pressure <= 512 else 16, warps=8, stages=2)
    elif pressure <= 128 and capability >= 90:
        large = Tiling(128, warps=8, stages=3)
    elif pressure <= 64:
        large = Tiling(64, warps=4, stages=3)
    else:
        large = Tiling(64, warps=8, stages=2)
    return small, large if large.rows >= narrow else Tiling(narrow, warps=8, stages=stages)


def _pressure(head_dim: int, itemsize: int) -> int:
    """What a row costs in registers, 1 for a 16-bit dim: float32 queries are computed in float64, twice, with operands
    twice as wide again."""
    return padded_dim(head_dim) * (4 if itemsize == 4 else 1)


def _finite(value: object) -> bool:
    """A number, of Python or numpy."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
