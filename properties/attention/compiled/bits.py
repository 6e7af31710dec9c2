"""Numbers as a GPU holds them: bit patterns, and operations that round once.

Every array is of unsigned integers as wide as a register, or a view of one. Two formats of less than 16 bits come by
table. Where PTX says that a NaN has one pattern, it has that here.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = [
    "DTYPES", "UNSIGNED", "Array", "as_bf16", "as_e4m3", "as_f16", "canonical", "fma32", "fma64", "from_bf16",
    "from_e4m3", "from_e5m2", "round_to_odd_sum",
]  # fmt: skip

Array = npt.NDArray[Any]

UNSIGNED: dict[int, type[np.generic]] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

DTYPES: dict[str, type[np.generic]] = {
    "pred": np.bool_, "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16,
    "s16": np.int16, "f16": np.float16, "bf16": np.uint16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32,
    "f32": np.float32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64, "f16x2": np.uint32,
    "bf16x2": np.uint32, "e4m3x2": np.uint16, "e5m2x2": np.uint16,
}  # fmt: skip
"""Of PTX's types."""

_NANS: dict[Any, Any] = {
    np.dtype(np.float32): np.uint32(0x7FFFFFFF),
    np.dtype(np.float64): np.uint64(0x7FFFFFFFFFFFFFFF),
}


def canonical(values: Array) -> Array:
    """float32 or float64 with the one NaN that arithmetic gives."""
    lost = np.isnan(values)
    if lost.any():
        values = np.where(lost, _NANS[values.dtype].view(values.dtype), values)
    return values


def round_to_odd_sum(a: Array, b: Array) -> Array:
    """a + b in float64: if it is not exact, of the two neighbours the one whose last bit is 1.

    Rounded once more, to fewer bits, that is the exact sum rounded once (Boldo and Melquiond, 2008)."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view(np.int64)
    # One step towards the exact sum, where the last bit is 0: away from zero if the error has the total's sign.
    inexact = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32, rounded once: the product is exact in float64."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return canonical(round_to_odd_sum(*np.broadcast_arrays(product, c.astype(np.float64))).astype(np.float32))


_SPLIT = 134217729.0  # 2**27 + 1


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = _SPLIT * x
    high = scaled - (scaled - x)
    return high, x - high


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float64, rounded once, where nothing is near overflow or underflow; elsewhere the product is rounded
    first, too. (Boldo and Melquiond, Emulation of FMA, 2008; Dekker's product.)"""
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    rest = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    low = c + rest
    part = low - c
    low_error = (c - (low - part)) + (rest - part)
    high = product + low
    part = high - product
    high_error = (product - (high - part)) + (low - part)
    exact = high + round_to_odd_sum(low_error, high_error)
    plain = product + c
    usable = np.isfinite(exact) & (np.abs(product) < 1e290) & ((np.abs(product) > 1e-260) | (product == 0))
    usable &= (np.abs(a) < 1e290) & (np.abs(b) < 1e290)
    return canonical(np.where(usable, exact, plain))


def from_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def as_bf16(values: Array) -> Array:
    """Of float32, to nearest even."""
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def as_f16(values: Array) -> Array:
    """Of float32 or float64, to nearest even."""
    return np.where(np.isnan(values), np.uint16(0x7FFF), values.astype(np.float16).view(np.uint16))


@functools.cache
def _table(dtype: torch.dtype) -> Array:
    values: Array = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).numpy()
    return values


def from_e4m3(bits: Array) -> Array:
    return _table(torch.float8_e4m3fn)[bits]


def from_e5m2(bits: Array) -> Array:
    return _table(torch.float8_e5m2)[bits]


def as_e4m3(values: Array) -> Array:
    """Of float32, to nearest even, saturated at 448."""
    kept = np.ascontiguousarray(np.clip(values, -448.0, 448.0).astype(np.float32))
    bits: Array = torch.from_numpy(kept).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    return np.where(np.isnan(values), np.uint8(0x7F), bits)
