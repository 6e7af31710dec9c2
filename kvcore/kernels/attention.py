"""The attention kernels: one family for prefill, chunked prefill, decode and mixed batches.

`attend` runs a work list; `combine` merges what several programs computed for one row. The order of operations is the
contract of `spec.py`. These rules keep it the same in every schedule, on every GPU of one architecture:

- every key is read from the cache, also the keys of this step (`store_kv` has written them before);
- tiles and leaves begin at absolute multiples, under a sliding window as well;
- `_merge` with (-inf, 0, 0) is exact, in both directions, and so is a tile or leaf that is masked for a row;
- sums over keys go through the matrix unit, whose order is fixed by the key's index: `tl.sum` depends on how a tile is
  laid out over threads. Numerator and denominator then use the same rounded weights as well;
- every multiplication that feeds an addition is an explicit fma, and fusion is switched off at launch.

Scores, sums and states are float32 for 16-bit queries, with weights rounded to the queries' type for the matrix unit;
float32 queries are computed in float64 throughout (A100, H100 and B200 have matrix units for it), so that the result is
the exact one, rounded once.

Offsets of blocks and rows are 64-bit. Table loads are masked, so that padding is never read.
"""

# No `from __future__ import annotations`: Triton reads the annotations.

import triton
import triton.language as tl

__all__ = ["attend", "combine"]


@triton.jit
def _merge(peak, total, mixed, leaf_peak, leaf_total, leaf_mixed):
    """The running state with one more leaf: (largest score, sum of weights, weighted values), weights 2**(s - peak)."""
    top = tl.maximum(peak, leaf_peak)
    base = tl.where(top == float("-inf"), 0.0, top)
    old = tl.exp2(peak - base)
    new = tl.exp2(leaf_peak - base)
    total = tl.fma(leaf_total, new, total * old)
    mixed = tl.fma(leaf_mixed, tl.broadcast_to(new[:, None], mixed.shape), mixed * old[:, None])
    return top, total, mixed


@triton.jit
def _divide(a, b):
    """Rounded once: `/` of float32 is approximate on a GPU."""
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def _finish(total, mixed, value_scale):
    """Weighted values to the output, [rows, dims]. A row that saw no key is 0; there is one zero, whatever the sign."""
    whole = tl.where(total == 0.0, 1.0, total)
    out = _divide(mixed, tl.broadcast_to(whole[:, None], mixed.shape)) * value_scale
    return tl.where(out == 0.0, 0.0, out)


@triton.jit
def _tanh(x):
    """To 2 ulp in float32: Cephes' polynomial near 0, where 1 - 2 / (e**2x + 1) would cancel."""
    square = x * x
    series = tl.fma(square, tl.full(x.shape, -5.70498872745e-3, x.dtype), 2.06390887954e-2)
    series = tl.fma(series, square, -5.37397155531e-2)
    series = tl.fma(series, square, 1.33314422036e-1)
    series = tl.fma(series, square, -3.33332819422e-1)
    near = tl.fma(series * square, x, x)
    power = tl.exp2(tl.minimum(tl.abs(x), 32.0) * 2.8853900817779268) + 1.0
    # `/` is approximate in float32 (2 ulp); rounded, programs of 128 rows spill.
    far = tl.fma(1.0 / power, tl.full(x.shape, -2.0, x.dtype), 1.0)
    if x.dtype == tl.float64:
        return tl.where(x < 0.0, -far, far)  # what cancels is far below what float32 shows
    else:
        return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0.0, -far, far))


@triton.jit
def _decode_e4m3(byte):
    """FP8 bytes (uint8) to float32, exactly, in integer steps: for GPUs whose compiler has no e4m3 type (sm_80)."""
    wide = byte.to(tl.uint32)
    magnitude = wide & 0x7F
    bits = ((wide & 0x80) << 24) | (magnitude << 20)
    value = bits.to(tl.float32, bitcast=True) * 1.329227995784916e36  # 2**120: between the exponents' biases
    return tl.where(magnitude == 0x7F, float("nan"), value)


@triton.jit
def _load_cache(pointer, mask, compute: tl.constexpr, FP8: tl.constexpr):
    """Cached elements in the query's dtype; FP8 is widened exactly. Its scale is applied to scores and outputs."""
    if FP8 == 2:
        return _decode_e4m3(tl.load(pointer, mask=mask, other=0)).to(compute)
    elif FP8 == 1:
        raw = tl.load(pointer, mask=mask, other=0.0)
        if compute == tl.float64:
            return raw.to(tl.float32).to(compute)
        else:
            return raw.to(compute)
    else:
        return tl.load(pointer, mask=mask, other=0.0).to(compute)


@triton.jit(do_not_specialize=["window"])
def attend(
    q_ptr,
    out_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    cu_seqlens_ptr,
    context_ptr,
    work_ptr,
    peak_ptr,
    total_ptr,
    mixed_ptr,
    slopes_ptr,
    constant_ptr,
    key_scale_ptr,
    value_scale_ptr,
    window,
    q_row,
    q_head,
    out_row,
    out_head,
    table_row,
    k_block,
    k_head,
    k_slot,
    v_block,
    v_head,
    v_slot,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    LEAF: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ALIBI: tl.constexpr,
    FP8: tl.constexpr,
    COMPUTE: tl.constexpr,
    STATE: tl.constexpr,
):
    """One program: one work item and one kv head.

    work int32 [items, 4]: (sequence, first query row in the sequence, leaf or -1 for all, partial); sequence -1 is
    padding. A program holds ROWS packed rows: ROWS // GROUP queries, each with the GROUP heads that share the kv head.
    With a leaf, the state goes to partial STATE [partials, kv heads, ROWS] (and [.., PADDED] for `mixed`).
    constants float64 [2]: the factor of q . k, in powers of two (or of the softcap), and the softcap in powers of two.
    COMPUTE: what the matrix unit multiplies; STATE: what scores and sums are kept in.
    """
    item = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    sequence = tl.load(work_ptr + item * 4)
    if sequence < 0:
        return
    first = tl.load(work_ptr + item * 4 + 1)
    leaf = tl.load(work_ptr + item * 4 + 2)
    begin = tl.load(cu_seqlens_ptr + sequence)
    length = tl.load(cu_seqlens_ptr + sequence + 1) - begin
    context = tl.load(context_ptr + sequence)

    QUERIES: tl.constexpr = ROWS // GROUP
    row = tl.arange(0, ROWS)
    query = first + row // GROUP
    head = kv_head * GROUP + row % GROUP
    live = (query < length) & (row < QUERIES * GROUP)
    position = context - length + query
    dim = tl.arange(0, PADDED)
    key = tl.arange(0, TILE)
    packed = (begin + query).to(tl.int64)
    row_mask = live[:, None] & (dim < DIM)[None, :]
    q_at = q_ptr + packed[:, None] * q_row + head.to(tl.int64)[:, None] * q_head + dim[None, :]
    q = tl.load(q_at, mask=row_mask, other=0.0).to(COMPUTE)

    scale = tl.load(constant_ptr).to(STATE)
    softcap = tl.load(constant_ptr + 1).to(STATE)
    value_scale = 1.0
    if FP8 > 0:
        scale = scale * tl.load(key_scale_ptr + kv_head).to(STATE)
        value_scale = tl.load(value_scale_ptr + kv_head).to(STATE)
    slope = tl.zeros([ROWS], STATE)
    if ALIBI:
        slope = tl.load(slopes_ptr + head, mask=live, other=0.0).to(STATE)

    # The keys that any of these rows sees, from a tile's edge on; of them, this item's leaf.
    last = tl.minimum(first + QUERIES, length) - 1
    high = context - length + last + 1
    low = 0
    if WINDOW:
        low = tl.maximum(context - length + first - window + 1, 0) // TILE * TILE
    if leaf >= 0:
        low = tl.maximum(low, leaf * LEAF)
        high = tl.minimum(high, leaf * LEAF + LEAF)

    # Scalars go to the pointers first: some Triton releases (3.5, 3.6) miscompile them folded into offset tensors.
    table = table_ptr + sequence.to(tl.int64) * table_row
    keys = k_ptr + kv_head.to(tl.int64) * k_head
    values = v_ptr + kv_head.to(tl.int64) * v_head
    ones = tl.full([TILE, 16], 1.0, COMPUTE)

    peak = tl.full([ROWS], float("-inf"), STATE)
    total = tl.zeros([ROWS], STATE)
    mixed = tl.zeros([ROWS, PADDED], STATE)
    leaf_peak = tl.full([ROWS], float("-inf"), STATE)
    leaf_total = tl.zeros([ROWS], STATE)
    leaf_mixed = tl.zeros([ROWS, PADDED], STATE)
    for start in tl.range(low, high, TILE):
        place = start + key
        known = place < context
        block = tl.load(table + place // BLOCK_SIZE, mask=known, other=0).to(tl.int64)
        slot = (place % BLOCK_SIZE).to(tl.int64)
        if DIM == PADDED:
            k_mask = known[None, :]
            v_mask = known[:, None]
        else:
            k_mask = known[None, :] & (dim < DIM)[:, None]
            v_mask = known[:, None] & (dim < DIM)[None, :]
        k = _load_cache(keys + (block * k_block + slot * k_slot)[None, :] + dim[:, None], k_mask, COMPUTE, FP8)
        v = _load_cache(values + (block * v_block + slot * v_slot)[:, None] + dim[None, :], v_mask, COMPUTE, FP8)

        score = tl.dot(q, k, out_dtype=STATE) * scale
        if SOFTCAP:
            score = _tanh(score) * softcap
        if ALIBI:
            distance = (place[None, :] - position[:, None]).to(STATE)
            score = tl.fma(tl.broadcast_to(slope[:, None], score.shape), distance, score)
        seen = (place[None, :] <= position[:, None]) & live[:, None]
        if WINDOW:
            seen = seen & (position[:, None] - place[None, :] < window)
        score = tl.where(seen, score, float("-inf"))

        top = tl.maximum(leaf_peak, tl.max(score, 1))
        base = tl.where(top == float("-inf"), 0.0, top)
        weight = tl.exp2(score - base[:, None]).to(COMPUTE)
        old = tl.exp2(leaf_peak - base)
        added = tl.max(tl.dot(weight, ones, out_dtype=STATE), 1)  # sixteen equal columns
        leaf_total = tl.fma(leaf_total, old, added)
        leaf_mixed = tl.dot(weight, v, leaf_mixed * old[:, None], out_dtype=STATE)
        leaf_peak = top

        if ((start + TILE) % LEAF == 0) | (start + TILE >= high):
            peak, total, mixed = _merge(peak, total, mixed, leaf_peak, leaf_total, leaf_mixed)
            leaf_peak = tl.full([ROWS], float("-inf"), STATE)
            leaf_total = tl.zeros([ROWS], STATE)
            leaf_mixed = tl.zeros([ROWS, PADDED], STATE)

    if leaf >= 0:
        partial = tl.load(work_ptr + item * 4 + 3).to(tl.int64)
        cell = (partial * tl.num_programs(1) + kv_head) * ROWS
        tl.store(peak_ptr + cell + row, peak, mask=live)
        tl.store(total_ptr + cell + row, total, mask=live)
        tl.store(mixed_ptr + cell * PADDED + row[:, None] * PADDED + dim[None, :], mixed, mask=row_mask)
    else:
        out = _finish(total, mixed, value_scale)
        where = out_ptr + packed[:, None] * out_row + head.to(tl.int64)[:, None] * out_head + dim[None, :]
        tl.store(where, out.to(out_ptr.dtype.element_ty), mask=row_mask)


@triton.jit
def combine(
    out_ptr,
    cu_seqlens_ptr,
    merge_ptr,
    peak_ptr,
    total_ptr,
    mixed_ptr,
    value_scale_ptr,
    out_row,
    out_head,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    PART: tl.constexpr,
    FP8: tl.constexpr,
    STATE: tl.constexpr,
):
    """One program: PART of the ROWS rows of one query tile and one kv head, their leaves merged in order.

    merge int32 [tiles, 4]: (sequence, first query row, first partial, leaves); sequence -1 is padding.
    """
    item = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    sequence = tl.load(merge_ptr + item * 4)
    if sequence < 0:
        return
    first = tl.load(merge_ptr + item * 4 + 1)
    partial = tl.load(merge_ptr + item * 4 + 2).to(tl.int64)
    leaves = tl.load(merge_ptr + item * 4 + 3)
    begin = tl.load(cu_seqlens_ptr + sequence)
    length = tl.load(cu_seqlens_ptr + sequence + 1) - begin

    row = tl.program_id(2) * PART + tl.arange(0, PART)
    query = first + row // GROUP
    head = kv_head * GROUP + row % GROUP
    live = (query < length) & (row < ROWS // GROUP * GROUP)
    dim = tl.arange(0, PADDED)
    row_mask = live[:, None] & (dim < DIM)[None, :]

    peak = tl.full([PART], float("-inf"), STATE)
    total = tl.zeros([PART], STATE)
    mixed = tl.zeros([PART, PADDED], STATE)
    # Merges are a chain; the loads of three leaves ahead are not.
    for leaf in tl.range(0, leaves, num_stages=4):
        cell = ((partial + leaf) * tl.num_programs(1) + kv_head) * ROWS
        leaf_peak = tl.load(peak_ptr + cell + row, mask=live, other=float("-inf"))
        leaf_total = tl.load(total_ptr + cell + row, mask=live, other=0.0)
        leaf_at = mixed_ptr + cell * PADDED + row[:, None] * PADDED + dim[None, :]
        leaf_mixed = tl.load(leaf_at, mask=row_mask, other=0.0)
        peak, total, mixed = _merge(peak, total, mixed, leaf_peak, leaf_total, leaf_mixed)

    value_scale = 1.0
    if FP8 > 0:
        value_scale = tl.load(value_scale_ptr + kv_head).to(STATE)
    out = _finish(total, mixed, value_scale)
    packed = (begin + query).to(tl.int64)
    where = out_ptr + packed[:, None] * out_row + head.to(tl.int64)[:, None] * out_head + dim[None, :]
    tl.store(where, out.to(out_ptr.dtype.element_ty), mask=row_mask)
