"""Calling the kernels: every argument is checked, then launched; CPU tensors take the torch path of `cpu.py`.

With TRITON_INTERPRET=1 in the environment before the first import, Triton's interpreter runs the kernels themselves on
CPU tensors. That is slow, and it is how the properties are checked.

Nothing here waits for the device unless `debug` is given. Only then the values that only the device knows (slots in a
tensor) are checked. Plans are made and checked on the host, always.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..errors import InvalidAttention, InvalidTensor, PlanTooLarge
from . import cpu
from .plan import Plan
from .spec import padded_dim
from .staging import Layout, Piece, Staging

__all__ = ["DevicePlan", "Room", "audit", "copy_planes", "paged_attention", "store_kv"]

LOG2E = 1.4426950408889634
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FP8 = torch.float8_e4m3fn


class Room(NamedTuple):
    """Sizes of a captured graph's buffers: sequences, table columns, rows, and for each lane (items, merges,
    partials)."""

    sequences: int
    columns: int
    tokens: int
    lanes: tuple[tuple[int, int, int], ...]


class DevicePlan:
    """A `Plan` on a device, with the workspace that its split items need.

    Made for each step, or once with `room` and then refilled in place by `load`: a captured CUDA graph reads the same
    buffers. Padding does nothing. dtype: of the queries. Workspace: partials * kv heads * rows * (padded head dim + 2)
    * 4 bytes (8 for float32) for each lane, shared by all layers. staging: sends it, and is best shared by all plans of
    one device; by default its own.

    Raises PlanTooLarge if the plan does not fit into `room`, InvalidTensor for another dtype. O(plan), one copy to the
    device, for which the host does not wait.
    """

    def __init__(
        self,
        plan: Plan,
        device: torch.device | str,
        dtype: torch.dtype = torch.bfloat16,
        room: Room | None = None,
        staging: Staging | None = None,
    ) -> None:
        if dtype not in FLOATS:
            raise InvalidTensor(f"queries can be {', '.join(map(str, FLOATS))}, not {dtype}")
        self.dtype = dtype
        self.device = torch.device(device)
        self.room = room
        self.plan = plan
        self.checked: set[Hashable] = set()
        """What layers of this plan were called with (shapes, strides, dtypes, devices) and was right."""
        self._staging = staging or Staging(self.device)
        if room is not None:
            _check_fit(plan, room)
        pieces = _pieces(plan)
        self._layout = Layout(_shapes(plan, pieces, room))
        self._buffer = torch.empty(self._layout.size, dtype=torch.uint8, device=self.device)
        self._staging.send(self._layout, pieces, self._buffer)
        views = self._layout.tensors(self._buffer)
        self.slots, self.constants, self.slopes, self.tables, self.cu_seqlens, self.contexts = views[:6]
        self.works, self.merges = views[6 : 6 + len(plan.lanes)], views[6 + len(plan.lanes) :]
        state = torch.float64 if dtype is torch.float32 else torch.float32
        heads, dim = plan.spec.num_kv_heads, padded_dim(plan.spec.head_dim)
        self.workspaces: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        for number, lane in enumerate(plan.lanes):
            partials = lane.partials if room is None else room.lanes[number][2]
            cells = (partials, heads, lane.tiling.rows)
            self.workspaces.append(
                (
                    torch.empty(cells, dtype=state, device=self.device),
                    torch.empty(cells, dtype=state, device=self.device),
                    torch.empty((*cells, dim), dtype=state, device=self.device),
                )
            )

    @property
    def num_tokens(self) -> int:
        """Rows, padding included."""
        return self.slots.shape[0]

    @property
    def full(self) -> bool:
        """Every row belongs to a sequence."""
        return self.room is None and int(self.plan.batch.cu_seqlens[-1]) == self.num_tokens

    def load(self, plan: Plan) -> None:
        """Replace the contents in place, in the order of the current stream; the host does not wait. O(plan).

        Raises PlanTooLarge or InvalidAttention, and changes nothing then."""
        if self.room is None:
            raise InvalidAttention(
                "this plan has no room of its own; make it with DevicePlan(plan, device, dtype, room)"
            )
        own = self.plan
        if _captured(plan) != _captured(own):
            raise InvalidAttention(
                "the plan is for another spec, tree, tiling, block size or pool than the one that was captured"
            )
        _check_fit(plan, self.room)
        self._staging.send(self._layout, _pieces(plan), self._buffer)
        self.plan = plan


def _captured(plan: Plan) -> tuple[Any, ...]:
    """What a captured graph has compiled in."""
    return plan.spec, plan.tree, plan.block_size, plan.num_blocks, [lane.tiling for lane in plan.lanes]


def _pieces(plan: Plan) -> list[Piece]:
    """All that goes to the device, in the order of `DevicePlan`'s tensors. What fills up does nothing."""
    spec, batch = plan.spec, plan.batch
    cap = spec.softcap
    factor = spec.softmax_scale * LOG2E if cap is None else spec.softmax_scale / cap
    return [
        Piece(batch.slot_mapping, -1),
        Piece(np.array([factor, (cap or 1.0) * LOG2E])),
        Piece(np.array(spec.slopes or (0.0,)) * LOG2E),
        Piece(batch.block_tables, -1),
        Piece(batch.cu_seqlens, int(batch.cu_seqlens[-1])),
        Piece(batch.context_lengths),
        *(Piece(lane.work, -1) for lane in plan.lanes),
        *(Piece(lane.merges, -1) for lane in plan.lanes),
    ]


def _shapes(plan: Plan, pieces: Sequence[Piece], room: Room | None) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Of each piece, in `room` if there is one."""
    shapes = [piece.array.shape for piece in pieces]
    if room is not None:
        work, merges = ([(sizes[place], 4) for sizes in room.lanes] for place in (0, 1))
        tables = (room.sequences, room.columns)
        shapes = [(room.tokens,), *shapes[1:3], tables, (room.sequences + 1,), (room.sequences,), *work, *merges]
    return [(shape, piece.array.dtype) for shape, piece in zip(shapes, pieces, strict=True)]


def _check_fit(plan: Plan, room: Room) -> None:
    batch = plan.batch
    if len(room.lanes) != len(plan.lanes):
        raise PlanTooLarge(f"the room has {len(room.lanes)} lanes, the plan {len(plan.lanes)}")
    wanted = (batch.num_sequences, batch.block_tables.shape[1], batch.num_tokens)
    for name, size, own in zip(("sequences", "table columns", "rows"), room, wanted, strict=False):
        if own > size:
            raise PlanTooLarge(f"the plan has {own} {name}, the room {size}; capture again with more")
    for sizes, lane in zip(room.lanes, plan.lanes, strict=True):
        own_sizes = (len(lane.work), len(lane.merges), lane.partials)
        if any(own > size for own, size in zip(own_sizes, sizes, strict=True)):
            raise PlanTooLarge(
                f"a lane has {own_sizes} (items, merges, partials), the room {sizes}; capture again with more"
            )


def store_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    scales: torch.Tensor | None = None,
    tags: torch.Tensor | None = None,
    token_tags: torch.Tensor | None = None,
    debug: bool = False,
) -> None:
    """Write K/V of T tokens to their slots; slot -1 writes nothing.

    keys, values [T, kv heads, D]: of the cache's dtype, or any float for an FP8 cache (value / scale, to nearest even,
    saturated); rows and heads may have any stride, D must be contiguous. key_cache, value_cache [blocks, kv heads,
    block size, D], any strides but the last. slots int64 [T]: block * block size + place; distinct, in the pool.
    scales float32 [2, kv heads], for FP8. tags int64 [blocks * block size] and token_tags int64 [T]: what to note for
    each slot written (see `audit`).
    debug: also check the slots themselves, which waits for the device.

    Raises InvalidTensor before anything is written. O(T * kv heads * D), one launch.
    """
    check_store(keys, values, key_cache, value_cache, slots, scales, tags, token_tags)
    if debug:
        _check_slots(slots, key_cache.shape[0] * key_cache.shape[2])
    launch_store(keys, values, key_cache, value_cache, slots, scales, tags, token_tags)


def check_store(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    scales: torch.Tensor | None,
    tags: torch.Tensor | None,
    token_tags: torch.Tensor | None,
) -> None:
    """What `store_kv` checks without waiting for the device. Raises InvalidTensor. O(1)."""
    blocks, heads, block_size, dim = _check_caches(key_cache, value_cache)
    device, cached = key_cache.device, key_cache.dtype
    _check_rank("keys", keys, 3)
    tokens = keys.shape[0]
    for name, tensor in (("keys", keys), ("values", values)):
        _check(name, tensor, device, (tokens, heads, dim), FLOATS if cached is FP8 else (cached,))
    if keys.dtype != values.dtype:
        raise InvalidTensor(f"keys are {keys.dtype}, values {values.dtype}; give both the same dtype")
    _check("slots", slots, device, (tokens,), (torch.int64,))
    _check_scales(scales, cached, device, heads)
    if (tags is None) != (token_tags is None):
        raise InvalidTensor("tags and token_tags go together; give both or none")
    if tags is not None and token_tags is not None:
        _check("tags", tags, device, (blocks * block_size,), (torch.int64,))
        _check("token_tags", token_tags, device, (tokens,), (torch.int64,))


def launch_store(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    scales: torch.Tensor | None,
    tags: torch.Tensor | None,
    token_tags: torch.Tensor | None,
) -> None:
    """`store_kv` with arguments that have been checked."""
    _, heads, block_size, dim = key_cache.shape
    device, cached = key_cache.device, key_cache.dtype
    tokens = keys.shape[0]
    if not tokens:
        return
    if not _launches(device):
        cpu.store_kv(keys, values, key_cache, value_cache, slots, scales, tags, token_tags)
        return
    from . import cache

    key_scale, value_scale = (slots, slots) if scales is None else (scales[0], scales[1])
    key_bytes, value_bytes = (
        tensor.view(torch.uint8) if cached is FP8 else tensor for tensor in (key_cache, value_cache)
    )
    with _on(device):
        cache.store_kv[(-(-tokens // 16), heads)](
            keys,
            values,
            key_bytes,
            value_bytes,
            slots,
            key_scale,
            value_scale,
            slots if tags is None else tags,
            slots if token_tags is None else token_tags,
            tokens,
            keys.stride(0),
            keys.stride(1),
            values.stride(0),
            values.stride(1),
            key_cache.stride(0),
            key_cache.stride(1),
            key_cache.stride(2),
            value_cache.stride(0),
            value_cache.stride(1),
            value_cache.stride(2),
            BLOCK_SIZE=block_size,
            DIM=dim,
            PADDED=padded_dim(dim),
            TOKENS=16,
            FP8=int(cached is FP8),
            TAGS=tags is not None,
            num_warps=4,
            enable_fp_fusion=False,
        )


def paged_attention(
    queries: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    plan: DevicePlan,
    *,
    scales: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    native_fp8: bool | None = None,
) -> torch.Tensor:
    """Attention of a step's rows over the paged cache, in which the step's own K/V are already written.

    queries [T, query heads, D], float32, float16 or bfloat16, rows in the batch's order; T and dtype as in the plan.
    Caches [blocks, kv heads, block size, D], of the queries' dtype or FP8 (with `scales` float32 [2, kv heads]). out
    [T, query heads, D], of the queries' dtype or float32; made if not given. Strides are free but for the last.
    native_fp8: read FP8 by the type's own conversion, or by integer steps; by default what the device can do.

    A row that belongs to no sequence becomes 0. K/V within a context must be finite (as for every flash kernel: 0 *
    NaN); what lies beyond it, in unused slots or blocks, may be anything.
    Raises InvalidTensor before any launch. At most five launches; O(sum of visible keys * query heads * D).
    """
    check_attention(queries, key_cache, value_cache, plan, scales, out)
    return launch_attention(queries, key_cache, value_cache, plan, scales, out, native_fp8)


def check_attention(
    queries: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    plan: DevicePlan,
    scales: torch.Tensor | None,
    out: torch.Tensor | None,
) -> None:
    """What `paged_attention` checks before it launches anything. Raises InvalidTensor. O(1)."""
    blocks, heads, block_size, dim = _check_caches(key_cache, value_cache)
    if not isinstance(plan, DevicePlan):
        raise InvalidTensor(f"the plan must be a DevicePlan, got {type(plan).__name__}; see PagedAttention.plan")
    host = plan.plan
    spec, device, cached = host.spec, key_cache.device, key_cache.dtype
    if (heads, dim) != (spec.num_kv_heads, spec.head_dim):
        raise InvalidTensor(
            f"the cache has {heads} kv heads of {dim} dims, the spec {spec.num_kv_heads} of {spec.head_dim}"
        )
    if (blocks, block_size) != (host.num_blocks, host.block_size):
        raise InvalidTensor(
            f"the cache has {blocks} blocks of {block_size}, the plan was made for {host.num_blocks} "
            f"of {host.block_size}"
        )
    if plan.device != device and (plan.device.type != device.type or plan.device.index is not None):
        raise InvalidTensor(f"the plan is on {plan.device}, the cache on {device}")
    shape = (plan.num_tokens, spec.num_heads, dim)
    _check("queries", queries, device, shape, FLOATS if cached is FP8 else (cached,))
    if queries.dtype is not plan.dtype:
        raise InvalidTensor(f"the queries are {queries.dtype}, the plan was made for {plan.dtype}")
    _check_scales(scales, cached, device, heads)
    if out is not None:
        _check("out", out, device, shape, (queries.dtype, torch.float32))
        if any(size > 1 and not stride for size, stride in zip(out.shape, out.stride(), strict=True)):
            raise InvalidTensor(f"out is expanded (strides {out.stride()}): its rows share memory; give it its own")


def launch_attention(
    queries: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    plan: DevicePlan,
    scales: torch.Tensor | None,
    out: torch.Tensor | None,
    native_fp8: bool | None = None,
) -> torch.Tensor:
    """`paged_attention` with arguments that have been checked."""
    _, heads, block_size, dim = key_cache.shape
    host = plan.plan
    spec, device, cached = host.spec, key_cache.device, key_cache.dtype
    if out is None:
        out = torch.empty(queries.shape, dtype=queries.dtype, device=device)
    if not plan.full:
        out.zero_()
    if not _launches(device):
        cpu.paged_attention(queries, key_cache, value_cache, plan, scales, out)
        return out
    import triton.language as tl

    from . import attention

    compute = {torch.float32: tl.float64, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[queries.dtype]
    precise = compute is tl.float64
    mode = 0
    if cached is FP8:
        native = capability_of(device) >= 89 if native_fp8 is None else native_fp8
        mode = 1 if native else 2
    key_data, value_data = (tensor.view(torch.uint8) if mode == 2 else tensor for tensor in (key_cache, value_cache))
    key_scale, value_scale = (plan.slopes, plan.slopes) if scales is None else (scales[0], scales[1])
    fixed: dict[str, Any] = {
        "GROUP": spec.group,
        "DIM": dim,
        "PADDED": padded_dim(dim),
        "FP8": mode,
        "STATE": tl.float64 if precise else tl.float32,
        "enable_fp_fusion": False,
    }
    with _on(device):
        for lane, work, merges, (peak, total, mixed) in zip(
            host.lanes, plan.works, plan.merges, plan.workspaces, strict=True
        ):
            if len(work):
                attention.attend[(len(work), heads)](
                    queries,
                    out,
                    key_data,
                    value_data,
                    plan.tables,
                    plan.cu_seqlens,
                    plan.contexts,
                    work,
                    peak,
                    total,
                    mixed,
                    plan.slopes,
                    plan.constants,
                    key_scale,
                    value_scale,
                    spec.window or 0,
                    queries.stride(0),
                    queries.stride(1),
                    out.stride(0),
                    out.stride(1),
                    plan.tables.stride(0),
                    key_cache.stride(0),
                    key_cache.stride(1),
                    key_cache.stride(2),
                    value_cache.stride(0),
                    value_cache.stride(1),
                    value_cache.stride(2),
                    BLOCK_SIZE=block_size,
                    ROWS=lane.tiling.rows,
                    TILE=host.tree.tile,
                    LEAF=host.tree.leaf,
                    WINDOW=spec.window is not None,
                    SOFTCAP=spec.softcap is not None,
                    ALIBI=spec.slopes is not None,
                    COMPUTE=compute,
                    num_warps=lane.tiling.warps,
                    num_stages=lane.tiling.stages,
                    **fixed,
                )
            if len(merges):
                attention.combine[(len(merges), heads, lane.tiling.rows // 16)](
                    out,
                    plan.cu_seqlens,
                    merges,
                    peak,
                    total,
                    mixed,
                    value_scale,
                    out.stride(0),
                    out.stride(1),
                    ROWS=lane.tiling.rows,
                    PART=16,
                    num_warps=4,
                    **fixed,
                )
    return out


def copy_planes(planes: torch.Tensor, index: torch.Tensor) -> None:
    """Copy whole blocks in every plane. planes [planes, blocks, ...], blocks contiguous; index int64 [pairs, 2],
    (source, destination).

    The pairs have been checked (see `KVStorage.copy`). O(pairs * planes * block), one launch.
    """
    device = planes.device
    if not _launches(device):
        planes[:, index[:, 1]] = planes[:, index[:, 0]]
        return
    from . import cache

    size = planes[0, 0].numel() * planes.element_size()
    # As words: the type does not matter, and fewer of them take fewer registers.
    width = next(width for width in (8, 4, 2, 1) if size % width == 0 and planes.data_ptr() % width == 0)
    word = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[width]
    flat = planes.view(torch.uint8).flatten(2).view(word)
    words = size // width
    chunk = min(1024, max(16, 1 << (words - 1).bit_length()))
    with _on(device):
        cache.copy_blocks[(len(index), len(planes), -(-words // chunk))](
            flat, index, flat.stride(0), flat.stride(1), words, CHUNK=chunk, num_warps=4, enable_fp_fusion=False
        )


def audit(
    tags: torch.Tensor, tables: torch.Tensor, expected: torch.Tensor, cu_expected: torch.Tensor, *, block_size: int
) -> torch.Tensor:
    """Compare the tag of every position of every context with what the caller expects there (debug).

    tags int64 [slots], kept by `store_kv`. tables int32 [S, M], block tables. expected int64, concatenated over the
    sequences; cu_expected int64 [S + 1], where each begins; sequence s has as many positions as it expects tags, at
    most M * block_size. Returns int64 of `expected`'s shape: -1 where the tag is right, else the tag found (so expect
    none that is negative), -2 for a block outside the pool.
    Finds what no number shows: a valid block of another request, a stale one, a missed copy. O(expected), one launch.
    Raises InvalidTensor.
    """
    for name, tensor, rank in (("tags", tags, 1), ("tables", tables, 2), ("expected", expected, 1)):
        _check_rank(name, tensor, rank)
    if type(block_size) is not int or block_size < 1:
        raise InvalidTensor(f"block_size must be an integer from 1, got {block_size!r}")
    device = tags.device
    count, columns = tables.shape
    _check("tags", tags, device, tuple(tags.shape), (torch.int64,))
    _check("tables", tables, device, (count, columns), (torch.int32,))
    _check("expected", expected, device, tuple(expected.shape), (torch.int64,))
    _check("cu_expected", cu_expected, device, (count + 1,), (torch.int64,))
    wrong = torch.full_like(expected, -1)
    if not expected.numel():
        return wrong
    if not _launches(device):
        cpu.audit(tags, tables, expected, cu_expected, wrong, block_size)
        return wrong
    from . import cache

    chunk = 128
    with _on(device):
        cache.audit_slots[(-(-columns * block_size // chunk), count)](
            tags,
            tables,
            expected,
            cu_expected,
            wrong,
            tags.shape[0],
            tables.stride(0),
            BLOCK_SIZE=block_size,
            CHUNK=chunk,
            enable_fp_fusion=False,
        )
    return wrong


# ---- what they share -------------------------------------------------------------------------------------------------


def _check(
    name: str, tensor: torch.Tensor, device: torch.device, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]
) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidTensor(f"{name} must be a torch tensor, got {type(tensor).__name__}")
    if tensor.device != device:
        raise InvalidTensor(f"{name} is on {tensor.device}, the cache on {device}; move it there")
    if tuple(tensor.shape) != shape:
        raise InvalidTensor(f"{name} must have the shape {shape}, got {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        raise InvalidTensor(f"{name} must be {' or '.join(map(str, dtypes))}, got {tensor.dtype}")
    if tensor.ndim and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise InvalidTensor(f"{name}: the last dimension must have stride 1, got {tensor.stride(-1)}")


def _check_rank(name: str, tensor: torch.Tensor, rank: int) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != rank:
        got = f"{tensor.ndim}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise InvalidTensor(f"{name} must be a torch tensor of rank {rank}, got {got}")


def _check_caches(key_cache: torch.Tensor, value_cache: torch.Tensor) -> tuple[int, int, int, int]:
    for name, tensor in (("key_cache", key_cache), ("value_cache", value_cache)):
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4:
            raise InvalidTensor(f"{name} must be a tensor [blocks, kv heads, block size, head dim], got {tensor!r:.80}")
        if tensor.shape != key_cache.shape or tensor.dtype != key_cache.dtype or tensor.device != key_cache.device:
            raise InvalidTensor(
                f"value_cache must be like key_cache: {tuple(key_cache.shape)}, {key_cache.dtype} on "
                f"{key_cache.device}; got {tuple(tensor.shape)}, {tensor.dtype} on {tensor.device}"
            )
        _check(name, tensor, tensor.device, tuple(tensor.shape), (*FLOATS, FP8))
    blocks, heads, block_size, dim = key_cache.shape
    return blocks, heads, block_size, dim


def _check_scales(scales: torch.Tensor | None, cached: torch.dtype, device: torch.device, heads: int) -> None:
    if (cached is FP8) != (scales is not None):
        raise InvalidTensor(f"a {cached} cache takes {'' if cached is FP8 else 'no '}scales [2, {heads}]")
    if scales is not None:
        _check("scales", scales, device, (2, heads), (torch.float32,))


def _check_slots(slots: torch.Tensor, num_slots: int) -> None:
    outside = slots[(slots < -1) | (slots >= num_slots)]
    if outside.numel():
        raise InvalidTensor(f"slot {int(outside[0])} is outside the pool's 0 to {num_slots - 1} (-1 writes nothing)")
    written = slots[slots >= 0].sort().values
    twice = written[1:][written[1:] == written[:-1]]
    if twice.numel():
        raise InvalidTensor(f"slot {int(twice[0])} is given twice; the rows of one call have no order")


host_capability: int | None = None
"""Set by whoever has launches on host tensors compiled and run: the capability of the GPU that they are for."""


def _launches(device: torch.device) -> bool:
    """Whether the Triton kernels run there: on CUDA, and on the CPU in Triton's interpreter or where somebody has what
    is compiled run (`host_capability`)."""
    if device.type == "cuda" or host_capability is not None:
        return True
    try:
        from triton import knobs
    except ImportError:
        return False
    return bool(knobs.runtime.interpret)


def capability_of(device: torch.device) -> int:
    """80, 90, 100, ...; of the CPU, where the interpreter can do all that is asked, 90."""
    if device.type != "cuda":
        return host_capability or 90
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
