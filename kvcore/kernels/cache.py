"""The kernels that move K/V: `store_kv` writes a step's, `copy_blocks` copies on write, `audit_slots` looks at tags."""

# No `from __future__ import annotations`: Triton reads the annotations.

import triton
import triton.language as tl

__all__ = ["audit_slots", "copy_blocks", "store_kv"]


@triton.jit
def _encode_e4m3(x):
    """float32 to FP8 bytes (uint8), to nearest even, saturated at +-448; NaN stays NaN.

    In integer and float steps that every GPU has (sm_80's compiler has no e4m3 type); the same bits as the conversion
    instruction.
    """
    bits = x.to(tl.uint32, bitcast=True)
    sign = (bits >> 24) & 0x80
    size = bits & 0x7FFFFFFF
    # Normal: round away 20 bits of the significand, to even, then move the exponent's bias from 127 to 7.
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2**-6 the steps are 2**-9: adding 2**14 leaves just those in the significand, rounded to even.
    small = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.uint32, bitcast=True) - 0x46800000
    code = tl.where(size < 0x3C800000, small, normal)
    code = tl.where(size > 0x43E00000, 0x7E, code)
    code = tl.where(size > 0x7F800000, 0x7F, code)
    return (sign | code).to(tl.uint8)


@triton.jit(do_not_specialize=["num_tokens"])
def store_kv(
    k_ptr,
    v_ptr,
    key_cache_ptr,
    value_cache_ptr,
    slot_ptr,
    key_scale_ptr,
    value_scale_ptr,
    tag_ptr,
    token_tag_ptr,
    num_tokens,
    k_row,
    k_head,
    v_row,
    v_head,
    key_block,
    key_head,
    key_slot,
    value_block,
    value_head,
    value_slot,
    BLOCK_SIZE: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    TOKENS: tl.constexpr,
    FP8: tl.constexpr,
    TAGS: tl.constexpr,
):
    """One program: TOKENS tokens of one kv head. Slots int64 [tokens]; a negative slot writes nothing."""
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1).to(tl.int64)
    slot = tl.load(slot_ptr + token, mask=token < num_tokens, other=-1)
    live = slot >= 0
    dim = tl.arange(0, PADDED)
    mask = live[:, None] & (dim < DIM)[None, :]
    k = tl.load(k_ptr + head * k_head + token[:, None] * k_row + dim[None, :], mask=mask, other=0.0)
    v = tl.load(v_ptr + head * v_head + token[:, None] * v_row + dim[None, :], mask=mask, other=0.0)
    if FP8 > 0:
        k = tl.div_rn(k.to(tl.float32), tl.full(k.shape, 1.0, tl.float32) * tl.load(key_scale_ptr + head))
        v = tl.div_rn(v.to(tl.float32), tl.full(v.shape, 1.0, tl.float32) * tl.load(value_scale_ptr + head))
        k = _encode_e4m3(k)
        v = _encode_e4m3(v)
    block = tl.where(live, slot // BLOCK_SIZE, 0)
    place = tl.where(live, slot % BLOCK_SIZE, 0)
    to_k = (block * key_block + place * key_slot)[:, None] + dim[None, :]
    to_v = (block * value_block + place * value_slot)[:, None] + dim[None, :]
    tl.store(key_cache_ptr + head * key_head + to_k, k, mask=mask)
    tl.store(value_cache_ptr + head * value_head + to_v, v, mask=mask)
    if TAGS and tl.program_id(1) == 0:
        tl.store(tag_ptr + slot, tl.load(token_tag_ptr + token, mask=live, other=0), mask=live)


@triton.jit
def copy_blocks(cache_ptr, pair_ptr, plane_stride, block_stride, words, CHUNK: tl.constexpr):
    """One program: CHUNK words of one (source, destination) pair in one plane. pairs int64 [pairs, 2]."""
    pair = tl.program_id(0)
    plane = tl.program_id(1).to(tl.int64)
    word = tl.program_id(2).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    source = tl.load(pair_ptr + pair * 2)
    destination = tl.load(pair_ptr + pair * 2 + 1)
    base = cache_ptr + plane * plane_stride
    data = tl.load(base + source * block_stride + word, mask=word < words, other=0)
    tl.store(base + destination * block_stride + word, data, mask=word < words)


@triton.jit(do_not_specialize=["num_slots"])
def audit_slots(
    tag_ptr,
    table_ptr,
    expected_ptr,
    cu_expected_ptr,
    wrong_ptr,
    num_slots,
    table_row,
    BLOCK_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """One program: CHUNK positions of one sequence; wrong int64 [expected]: the tag found where it differs, else -1.

    Every position of every context, against what the caller expects there; a table entry outside the pool is -2.
    """
    sequence = tl.program_id(1)
    begin = tl.load(cu_expected_ptr + sequence)
    length = tl.load(cu_expected_ptr + sequence + 1) - begin
    position = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    known = position < length
    table = table_ptr + sequence.to(tl.int64) * table_row
    block = tl.load(table + position // BLOCK_SIZE, mask=known, other=0).to(tl.int64)
    slot = block * BLOCK_SIZE + position % BLOCK_SIZE
    inside = (slot >= 0) & (slot < num_slots)
    tag = tl.load(tag_ptr + slot, mask=known & inside, other=-2)
    expected = tl.load(expected_ptr + begin + position, mask=known, other=0)
    tl.store(wrong_ptr + begin + position, tl.where(tag == expected, -1, tag), mask=known)
