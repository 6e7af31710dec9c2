"""Integers, bits and predicates."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..bits import DTYPES, Array
from ..machine import Act, Group, Mask, Site
from .registry import instruction, only

__all__: list[str] = []


def _of(site: Site, kinds: list[str], function: Callable[..., Array]) -> Act:
    """An instruction that writes its first operand, from the others, read as `kinds`."""
    write = site.writer(site.instruction.operands[0])
    reads = [site.reader(operand, kind) for operand, kind in zip(site.instruction.operands[1:], kinds, strict=True)]

    def act(group: Group, mask: Mask) -> None:
        write(group, function(*(read(group) for read in reads)), mask)

    return act


def _unsigned(kind: str) -> str:
    return f"u{kind[1:]}"


def _whole(site: Site, *lengths: str) -> str:
    """The type of an integer instruction."""
    kind = site.instruction.parts[-1]
    if kind[0] not in "sub" or kind[1:] not in (lengths or ("16", "32", "64")):
        raise site.instruction.refuse(f"type {kind}")
    return kind


@instruction("add.s32", "add.u32", "add.s64", "add.u64", "add.s16", "add.u16")
def _add(site: Site) -> Act:
    only(site)
    return _of(site, [_unsigned(_whole(site))] * 2, operator.add)


@instruction("sub.s32", "sub.u32", "sub.s64", "sub.u64", "sub.s16", "sub.u16")
def _sub(site: Site) -> Act:
    only(site)
    return _of(site, [_unsigned(_whole(site))] * 2, operator.sub)


@instruction("mul.lo")
def _mul_lo(site: Site) -> Act:
    only(site, "lo")
    return _of(site, [_unsigned(_whole(site))] * 2, operator.mul)


@instruction("mul.hi")
def _mul_hi(site: Site) -> Act:
    only(site, "hi")
    return _of(site, [_whole(site)] * 2, _upper)


def _upper(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        upper: Array = (_wide(a) * _wide(b) >> bits).astype(a.dtype)
        return upper
    low32 = np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    (xh, xl), (yh, yl) = ((value >> np.uint64(32), value & low32) for value in (x, y))
    middle = xh * yl + (xl * yl >> np.uint64(32))
    other = xl * yh + (middle & low32)
    upper = xh * yh + (middle >> np.uint64(32)) + (other >> np.uint64(32))
    if a.dtype.kind == "i":  # of what is negative, 2**64 too much was multiplied
        upper = upper - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return upper.view(a.dtype)


def _wide(values: Array) -> Array:
    return values.astype(np.int64 if values.dtype.kind == "i" else np.uint64)


@instruction("mul.wide")
def _mul_wide(site: Site) -> Act:
    only(site, "wide")
    return _of(site, [_whole(site, "32")] * 2, lambda a, b: _wide(a) * _wide(b))


@instruction("mad.lo")
def _mad_lo(site: Site) -> Act:
    only(site, "lo")
    return _of(site, [_unsigned(_whole(site))] * 3, lambda a, b, c: a * b + c)


@instruction("mad.wide")
def _mad_wide(site: Site) -> Act:
    only(site, "wide")
    kind = _whole(site, "32")
    return _of(site, [kind, kind, f"{kind[0]}64"], lambda a, b, c: _wide(a) * _wide(b) + c)


@instruction("div.s32", "div.u32", "div.s64", "div.u64")
def _div(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site)] * 2, _quotient)


@instruction("rem.s32", "rem.u32", "rem.s64", "rem.u64")
def _rem(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site)] * 2, lambda a, b: a - _quotient(a, b) * b)


def _quotient(a: Array, b: Array) -> Array:
    """Towards zero. Of a division by 0 PTX says nothing: all bits are set."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    floor = a // safe
    towards = floor + ((floor < 0) & (floor * safe != a)).astype(a.dtype)
    return np.where(b == 0, np.full(1, -1).astype(a.dtype), towards)


@instruction("min.s32", "min.u32", "min.s64", "min.u64", "min.s16", "min.u16")
def _min(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site)] * 2, np.minimum)


@instruction("max.s32", "max.u32", "max.s64", "max.u64", "max.s16", "max.u16")
def _max(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site)] * 2, np.maximum)


@instruction("neg.s32", "neg.s64", "neg.s16")
def _neg(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site)], operator.neg)


@instruction("abs.s32", "abs.s64")
def _abs(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site)], np.abs)


_LOGIC: dict[str, Callable[..., Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
}


@instruction("and", "or", "xor", "not")
def _logic(site: Site) -> Act:
    only(site)
    name, kind = site.instruction.parts[0], site.instruction.parts[-1]
    if kind not in ("pred", "b16", "b32", "b64"):
        raise site.instruction.refuse(f"type {kind}")
    return _of(site, [kind] * (len(site.instruction.operands) - 1), _LOGIC[name])


@instruction("shl")
def _shl(site: Site) -> Act:
    only(site)
    kind = _whole(site)
    return _of(site, [_unsigned(kind), "u32"], _left)


def _left(values: Array, by: Array) -> Array:
    bits = 8 * values.dtype.itemsize
    shifted: Array = values << np.minimum(by, bits - 1).astype(values.dtype)
    return np.where(by < bits, shifted, values.dtype.type(0))


@instruction("shr")
def _shr(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site).replace("b", "u"), "u32"], _right)


def _right(values: Array, by: Array) -> Array:
    """With copies of the sign, if there is one."""
    bits = 8 * values.dtype.itemsize
    shifted: Array = values >> np.minimum(by, bits - 1).astype(values.dtype)
    return shifted if values.dtype.kind == "i" else np.where(by < bits, shifted, values.dtype.type(0))


@instruction("shf.l.wrap.b32", "shf.l.clamp.b32", "shf.r.wrap.b32", "shf.r.clamp.b32")
def _shf(site: Site) -> Act:
    only(site, "l", "r", "wrap", "clamp")
    left, wraps = "l" in site.instruction.parts, "wrap" in site.instruction.parts
    return _of(site, ["u32"] * 3, lambda low, high, by: _funnel(low, high, by, left=left, wraps=wraps))


def _funnel(low: Array, high: Array, by: Array, *, left: bool, wraps: bool) -> Array:
    """The upper word of (high, low) moved to the left, or the lower word of it moved to the right."""
    count = ((by & np.uint32(31)) if wraps else np.minimum(by, 32)).astype(np.uint64)
    both = high.astype(np.uint64) << np.uint64(32) | low
    moved = (both << count) >> np.uint64(32) if left else both >> count
    word: Array = moved.astype(np.uint32)
    return word


@instruction("bfe")
def _bfe(site: Site) -> Act:
    only(site)
    return _of(site, [_whole(site, "32", "64"), "u32", "u32"], _field)


def _field(values: Array, position: Array, length: Array) -> Array:
    """`length` bits from `position` on; beyond the register come copies of the sign, or zeros."""
    bits = 8 * values.dtype.itemsize
    position, length = position & np.uint32(255), length & np.uint32(255)
    wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64)
    if bits == 64 and values.dtype.kind == "i":
        raise NotImplementedError("bfe.s64")
    moved = wide >> np.minimum(position, 63).astype(wide.dtype)
    if values.dtype.kind != "i":
        moved = np.where(position < bits, moved, wide.dtype.type(0))
        ones = (np.uint64(1) << np.minimum(length, 63).astype(np.uint64)) - np.uint64(1)
        kept: Array = np.where(length < 64, moved & ones, moved).astype(values.dtype)
        return kept
    taken = np.minimum(length, bits).astype(np.int64)
    up = np.minimum(np.int64(64) - taken, 63)
    result: Array = np.where(taken == 0, np.int64(0), (moved << up) >> up).astype(values.dtype)
    return result


@instruction("bfi.b32")
def _bfi(site: Site) -> Act:
    only(site)
    return _of(site, ["u32", "u32", "u32", "u32"], _insert)


def _insert(values: Array, into: Array, position: Array, length: Array) -> Array:
    position, length = np.minimum(position & np.uint32(255), 63), np.minimum(length & np.uint32(255), 32)
    mask = ((np.uint64(1) << length.astype(np.uint64)) - np.uint64(1)) << position.astype(np.uint64)
    put = values.astype(np.uint64) << position.astype(np.uint64)
    return ((put & mask) | (into.astype(np.uint64) & ~mask)).astype(np.uint32)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip


def _unordered(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)


_FLOATING: dict[str, Callable[[Array, Array], Array]] = {
    **{name: _COMPARE[name] for name in ("eq", "lt", "le", "gt", "ge")},
    "ne": lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b),
    **{f"{name}u": _unordered(_COMPARE[name]) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "num": lambda a, b: ~np.isnan(a) & ~np.isnan(b),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}


@instruction("setp")
def _setp(site: Site) -> Act:
    _, how, *middle, kind = site.instruction.parts
    table = _FLOATING if kind in ("f32", "f64") else _COMPARE
    if how not in table or middle or kind not in DTYPES or kind in ("f16", "bf16"):
        raise site.instruction.refuse()
    return _of(site, [kind] * 2, table[how])
