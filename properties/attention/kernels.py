"""The protocol for kernels under test, and the plain values that go through it.

An adapter is one file (`properties/targets/kvcore_kernels.py` is ours). It says along which axes it can be driven,
which cases it takes (`limits`), and how its arithmetic differs from ours (`arithmetic`). What it leaves out is not
checked, and the summary says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

__all__ = [
    "ARITHMETIC",
    "AXES",
    "DTYPES",
    "ByPlace",
    "Cache",
    "How",
    "Kernels",
    "Spec",
    "Step",
    "Unsupported",
    "Watch",
    "unwatched",
]

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
}

AXES = {
    "schedule": "split, direct and mixed schedules",
    "rows": "how many rows one program holds",
    "order": "the order of the work list",
    "placement": "which physical blocks hold the context",
    "batch": "the other sequences of the batch, and their order",
    "chunks": "where the prompt is cut, down to single tokens",
    "padding": "padding of a captured graph",
    "poison": "what unused slots and blocks hold",
    "copies": "blocks copied on write, and tables switched to the copies",
    "repeat": "running again",
}
"""What must not move a bit. The first three and `padding` need the adapter's help."""

ARITHMETIC = {
    "float32 sums": "float32 queries are summed in float32, not in float64",
    "unrounded denominator": "the denominator sums the weights before they are rounded to the queries' dtype, so that "
    "their rounding does not cancel where values are alike",
    "rounded dequantization": "an element of an FP8 cache is scaled and rounded to the queries' dtype, then multiplied",
}
"""How the arithmetic of kernels may differ from ours, by design, so that their error differs. See `tolerance`."""


class Unsupported(Exception):
    """These kernels cannot run this call. Says why; the case, or what is left of it, counts as skipped."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What is computed. slopes: one a query head, or None. See `reference.attention`."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    slopes: tuple[float, ...] | None = None


@dataclass(slots=True)
class Cache:
    """keys, values [blocks, kv heads, block size, head dim]: views, of any strides but for the last. scales float32
    [2, kv heads] for FP8, else None."""

    keys: torch.Tensor
    values: torch.Tensor
    scales: torch.Tensor | None = None


@dataclass(slots=True)
class Step:
    """One step. tables int32 [S, M], anything beyond a context; contexts, lengths (query rows) by sequence; slots
    [rows], -1 for what is not written."""

    tables: npt.NDArray[np.int32]
    contexts: Sequence[int]
    lengths: Sequence[int]
    slots: Sequence[int]

    @property
    def cu_seqlens(self) -> list[int]:
        return list(itertools.accumulate(self.lengths, initial=0))


@dataclass(frozen=True, slots=True)
class How:
    """How the step is to be run. Nothing of it may move a bit, except tile and leaf.

    schedule: direct, split, mixed (every second sequence) or auto. rows: of the two lanes, few rows first. shuffle: a
    seed for the order of the work list. padded: as a captured graph pads. tile, leaf: where tiles and leaves are cut,
    for kernels that can choose; native_fp8: by the type's conversion, or by integer steps.
    """

    schedule: str = "auto"
    rows: tuple[int, ...] = (16, 64)
    shuffle: int | None = None
    padded: bool = False
    tile: int = 32
    leaf: int = 64
    native_fp8: bool = True


@dataclass(frozen=True, slots=True)
class ByPlace:
    """A chooser of another kind: the program that loads element s of this contiguous tensor, alone, works for
    sequence `sequences[s]` of the step."""

    tensor: torch.Tensor
    sequences: Sequence[int]


Watch = Callable[[dict[str, torch.Tensor], Sequence[torch.Tensor | ByPlace]], AbstractContextManager[None]]
"""What an adapter calls around its launches, for the sanitizer: its own tensors by name, free to be touched, and its
choosers: int32 tensors [n, k] whose first column, when a program loads it, says for which sequence that program works
(without one, a program may read what any sequence of the batch may); or `ByPlace`."""


class Kernels(Protocol):
    """Kernels under test. Every call does what it says, or raises; Unsupported where the kernels have no such thing.

    limits: for fields of a `Case`, and for "query rows" of a sequence, the values that these kernels take; a case with
    another one is checked with one of these, and counted as `off`. arithmetic: see `ARITHMETIC`.
    """

    name: str
    axes: frozenset[str]
    limits: Mapping[str, tuple[Any, ...]]
    arithmetic: frozenset[str]

    def supports(self, spec: Spec, dtype: str, block_size: int) -> str | None:
        """Why it cannot run this, or None."""
        ...

    def store(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        cache: Cache,
        slots: Sequence[int],
        watch: Watch,
        *,
        tags: torch.Tensor | None = None,
        token_tags: Sequence[int] | None = None,
    ) -> None:
        """Write T tokens' K/V [T, kv heads, D] to their slots."""
        ...

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, spec: Spec, how: How, out: torch.Tensor, watch: Watch
    ) -> None:
        """Fill out [T, heads, D] (float32 or the queries' dtype)."""
        ...

    def copy(self, cache: Cache, pairs: Sequence[tuple[int, int]], watch: Watch) -> None:
        """Copy whole blocks, (source, destination)."""
        ...

    def audit(
        self,
        tags: torch.Tensor,
        tables: npt.NDArray[np.int32],
        block_size: int,
        expected: Sequence[Sequence[int]],
        watch: Watch,
    ) -> list[int]:
        """For each expected tag of each sequence's first positions, concatenated: -1 if it is there, else another
        number."""
        ...


def unwatched(
    tensors: dict[str, torch.Tensor], choosers: Sequence[torch.Tensor | ByPlace]
) -> AbstractContextManager[None]:
    """No sanitizer."""
    return nullcontext()
