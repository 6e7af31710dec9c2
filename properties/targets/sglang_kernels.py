"""SGLang's Triton kernels as targets: `decode_attention_fwd`, `extend_attention_fwd` and its unified form.

Three factories, for `--kernels`:

- `sglang`: as its back end `triton` launches them. A step whose sequences have one query row each decodes, over as many
  parts of the keys as `get_num_kv_splits_triton` says for this batch and an H100; any other step extends, by a kernel
  that reads the cached prefix from the cache and the step's own keys from where they were computed.
- `properties.targets.sglang_kernels:deterministic`: as with `--enable-deterministic-inference`: decode in parts of 256
  keys, and the unified extend, which reads all keys from the cache.
- `properties.targets.sglang_kernels:scheduled`: decode with one part or many as the harness asks, for the axis
  "schedule".

The cache is flat there: slots [n, kv heads, head dim], and a table of slots, not of blocks. It is stored by indexing,
as `MHATokenToKVPool.set_kv_buffer` does where there is no CUDA; so storing is not a kernel under test here. SGLang's
page copies are CUDA, and it has no ALiBi. An FP8 cache rounds queries and weights to FP8, by design: no bound on errors
here is meant for that.

Also imports: numpy, torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch

from ..attention.kernels import ByPlace, Cache, How, Spec, Step, Unsupported, Watch
from ._kernel_imports import absent as _absent
from ._kernel_imports import import_kernels, version

__all__ = ["SglangKernels", "absent", "deterministic", "make", "scheduled"]

TESTED = "sglang==0.5.23"
OPS = "sglang.kernels.ops.attention"

MAX_SPLITS = 8
"""`--triton-attention-num-kv-splits`, by default."""
SPLIT_TILE = 256
"""Of deterministic inference: `SGLANG_TRITON_DECODE_SPLIT_TILE_SIZE`, by default."""
PROCESSORS = 132
"""Of an H100, from which the number of splits follows."""


def absent() -> str | None:
    """What to install, or None."""
    return _absent("sglang", TESTED)


def _no(*_: object) -> bool:
    return False


def _load() -> tuple[Any, Any, Any]:
    """The modules of decode, of extend, and of what prepares them."""
    # `is_cuda` and a capability of 9.0: the tiles of an H100. Both are asked at import.
    hopper = mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0))
    with hopper:
        decoding, extending, metadata = import_kernels(
            [f"{OPS}.decode_attention", f"{OPS}.extend_attention", f"{OPS}.metadata"],
            hollow=["sglang.kernels", "sglang.kernels.ops", OPS, "sglang.srt"],
            stand_ins={
                # Read by AMD's paths alone; a name that is asked for fails loudly.
                "sglang.srt.environ": {"envs": SimpleNamespace()},
                "sglang.srt.utils": {
                    "get_device_core_count": lambda *_: PROCESSORS,
                    "is_cuda": lambda: True,
                    "is_hip": _no,
                    "is_gfx95_supported": _no,
                    "is_gfx1250_supported": _no,
                },
            },
        )
    return decoding, extending, metadata


class SglangKernels:
    """Through the protocol. fixed: as deterministic inference does it. by_schedule: decode in as many parts as
    `How.schedule` says."""

    axes = frozenset({"placement", "batch", "chunks", "poison", "repeat"})
    limits: Mapping[str, tuple[Any, ...]] = {
        "dtype": ("bfloat16", "float16", "float32"),
        "layout": ("slots first",),
        "alibi": (False,),
    }
    arithmetic = frozenset({"float32 sums", "unrounded denominator"})

    def __init__(self, name: str = "sglang", *, fixed: bool = False, by_schedule: bool = False) -> None:
        self.name = f"{name} ({version(('sglang',))})"
        self.fixed = fixed
        self.by_schedule = by_schedule
        if by_schedule:
            self.axes = frozenset({"schedule"})
            self.limits = {**self.limits, "query rows": (0, 1)}
        self.decoding, self.extending, self.metadata = _load()

    def supports(self, spec: Spec, dtype: str, block_size: int) -> str | None:
        if spec.window == 1:
            return "a window of one key: SGLang counts the keys before a query's own, and 0 of them means no window"
        return None

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
        if tags is not None:
            raise Unsupported("no tags")
        live = [row for row, slot in enumerate(slots) if slot >= 0]
        where = torch.tensor([slots[row] for row in live], dtype=torch.int64)
        for new, plane in ((keys, cache.keys), (values, cache.values)):
            _flat(plane)[where] = new[live]

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, spec: Spec, how: How, out: torch.Tensor, watch: Watch
    ) -> None:
        # SGLang has no sequence without rows in a batch. Leaving one out moves no rows of the others.
        live = [number for number, length in enumerate(step.lengths) if length]
        if not live:
            return
        block_size = cache.keys.shape[2]
        slots = []
        for number in live:
            places = np.arange(step.contexts[number])
            table = step.tables[number]
            slots.append(table[places // block_size].astype(np.int64) * block_size + places % block_size)
        act = self._decode if max(step.lengths) == 1 else self._unified if self.fixed else self._extend
        act(queries, cache, step, live, slots, spec, how, out, watch)

    def _decode(
        self,
        queries: torch.Tensor,
        cache: Cache,
        step: Step,
        live: list[int],
        slots: list[npt.NDArray[np.int64]],
        spec: Spec,
        how: How,
        out: torch.Tensor,
        watch: Watch,
    ) -> None:
        if spec.num_heads == spec.num_kv_heads and queries.dtype is torch.bfloat16:
            # `(q[None, :] * k).to(tl.float32)` in bf16: the interpreter multiplies bit patterns (see `repairs`).
            raise Unsupported("decode with one query head a kv head multiplies bf16 by bf16, as the interpreter cannot")
        if spec.window is not None:  # the back end gives these kernels the slots of the window, and no others
            slots = [own[-spec.window :] for own in slots]
        lengths = [len(own) for own in slots]
        bounds, indices = _ragged(slots)
        splits, most = self._splits(lengths, spec, how)
        partial = torch.full((len(live), spec.num_heads, most, spec.head_dim), float("nan"))
        lse = torch.full((len(live), spec.num_heads, most), float("nan"))
        own = {"bounds": bounds, "slots": indices, "splits": splits, "partials": partial, "lse": lse}
        with watch(own, (ByPlace(splits, live),)):
            self.decoding.decode_attention_fwd(
                queries,
                _flat(cache.keys),
                _flat(cache.values),
                out,
                bounds,
                indices,
                partial,
                lse,
                splits,
                most,
                spec.scale,
                1.0,
                1.0,
                logit_cap=spec.softcap or 0.0,
            )

    def _splits(self, lengths: list[int], spec: Spec, how: How) -> tuple[torch.Tensor, int]:
        """In how many parts each sequence's keys are read, int32, and the most there may be: `get_num_kv_splits` of
        the back end."""
        if self.by_schedule:
            most = 1 if how.schedule == "direct" else MAX_SPLITS
            return torch.full((len(lengths),), most, dtype=torch.int32), most
        if self.fixed:
            parts = [-(-length // SPLIT_TILE) for length in lengths]
            return torch.tensor(parts, dtype=torch.int32), max(parts)
        splits = torch.empty(len(lengths), dtype=torch.int32)
        self.metadata.get_num_kv_splits_triton[(1,)](
            splits,
            torch.tensor(lengths, dtype=torch.int32),
            len(lengths),
            1,
            spec.num_heads,
            spec.num_kv_heads,
            MAX_SPLITS,
            PROCESSORS,
            MAX_NUM_SEQ=256,
        )
        return splits, MAX_SPLITS

    def _extend(
        self,
        queries: torch.Tensor,
        cache: Cache,
        step: Step,
        live: list[int],
        slots: list[npt.NDArray[np.int64]],
        spec: Spec,
        how: How,
        out: torch.Tensor,
        watch: Watch,
    ) -> None:
        rows = [step.lengths[number] for number in live]
        prefixes = [own[: len(own) - count] for own, count in zip(slots, rows, strict=True)]
        bounds, indices = _ragged(prefixes)
        starts = torch.tensor(list(itertools.accumulate(rows, initial=0)), dtype=torch.int64)
        # The step's own keys and values, as the layer computed them: what was stored of them is the same, bit for bit.
        now = torch.from_numpy(np.concatenate([own[len(own) - n :] for own, n in zip(slots, rows, strict=True)]))
        keys, values = _flat(cache.keys)[now], _flat(cache.values)[now]
        own = {"bounds": bounds, "slots": indices, "starts": starts, "new keys": keys, "new values": values}
        with watch(own, ()):
            self.extending.extend_attention_fwd(
                queries,
                keys,
                values,
                out,
                _flat(cache.keys),
                _flat(cache.values),
                starts,
                bounds,
                indices,
                None,
                True,
                None,
                max(rows),
                1.0,
                1.0,
                sm_scale=spec.scale,
                logit_cap=spec.softcap or 0.0,
                sliding_window_size=-1 if spec.window is None else spec.window - 1,
            )

    def _unified(
        self,
        queries: torch.Tensor,
        cache: Cache,
        step: Step,
        live: list[int],
        slots: list[npt.NDArray[np.int64]],
        spec: Spec,
        how: How,
        out: torch.Tensor,
        watch: Watch,
    ) -> None:
        rows = [step.lengths[number] for number in live]
        bounds, indices = _ragged(slots)
        starts = torch.tensor(list(itertools.accumulate(rows, initial=0)), dtype=torch.int64)
        prefixes = torch.tensor([len(own) - count for own, count in zip(slots, rows, strict=True)], dtype=torch.int32)
        window = torch.zeros(len(live), dtype=torch.int32)
        own = {"bounds": bounds, "slots": indices, "starts": starts, "prefixes": prefixes, "window starts": window}
        with watch(own, (ByPlace(prefixes, live),)):
            self.extending.extend_attention_fwd_unified(
                queries,
                out,
                _flat(cache.keys),
                _flat(cache.values),
                1.0,
                1.0,
                starts,
                bounds,
                indices,
                prefixes,
                max(rows),
                sm_scale=spec.scale,
                logit_cap=spec.softcap or 0.0,
                sliding_window_size=-1 if spec.window is None else spec.window - 1,
                window_start_pos=window,
            )

    def copy(self, cache: Cache, pairs: Sequence[tuple[int, int]], watch: Watch) -> None:
        raise Unsupported("no Triton kernel that copies blocks")

    def audit(
        self,
        tags: torch.Tensor,
        tables: npt.NDArray[np.int32],
        block_size: int,
        expected: Sequence[Sequence[int]],
        watch: Watch,
    ) -> list[int]:
        raise Unsupported("no tags")


def _flat(plane: torch.Tensor) -> torch.Tensor:
    """[blocks, kv heads, block size, head dim] as slots [n, kv heads, head dim], the same memory. Raises Unsupported
    for a layout that has no such view."""
    blocks, heads, size, dim = plane.shape
    rows = plane.transpose(1, 2)
    if size > 1 and blocks > 1 and rows.stride(0) != size * rows.stride(1):
        raise Unsupported("a cache that is not flat")
    slot = rows.stride(1) if size > 1 else rows.stride(0)
    return plane.as_strided((blocks * size, heads, dim), (slot, plane.stride(1), plane.stride(3)))


def _ragged(rows: Sequence[npt.NDArray[np.int64]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each begins, int32 [n + 1], and all of them in one, int64."""
    bounds = torch.tensor(list(itertools.accumulate(map(len, rows), initial=0)), dtype=torch.int32)
    return bounds, torch.from_numpy(np.concatenate([*rows, np.zeros(0, np.int64)]))


def make() -> SglangKernels:
    """The factory that `--kernels sglang` names."""
    return SglangKernels()


def deterministic() -> SglangKernels:
    """As with --enable-deterministic-inference."""
    return SglangKernels("sglang, deterministic", fixed=True)


def scheduled() -> SglangKernels:
    """Decode alone, in one part or in eight."""
    return SglangKernels("sglang, 1 and 8 splits", by_schedule=True)
