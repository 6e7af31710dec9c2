"""cvt: between integers, and between floats of any width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..bits import (
    DTYPES,
    Array,
    as_bf16,
    as_e4m3,
    as_f16,
    canonical,
    from_bf16,
    from_e4m3,
    from_e5m2,
)
from ..machine import Act, Group, Mask, Site
from .registry import instruction

__all__: list[str] = []

_WHOLE = frozenset(name for name in DTYPES if name[0] in "su")


def _single(values: Array) -> Array:
    return canonical(values.astype(np.float32))


def _double(values: Array) -> Array:
    return canonical(values.astype(np.float64))


def _pair(low: Array, high: Array) -> Array:
    low, high = np.broadcast_arrays(low, high)
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


_OF_ONE: dict[tuple[str, str], tuple[Callable[[Array], Array], tuple[str, ...]]] = {
    ("f32", "f64"): (_single, ("rn",)),
    ("f64", "f32"): (_double, ()),
    ("f32", "f16"): (_single, ()),
    ("f64", "f16"): (_double, ()),
    ("f32", "bf16"): (lambda bits: canonical(from_bf16(bits)), ()),
    ("f16", "f32"): (as_f16, ("rn",)),
    ("f16", "f64"): (as_f16, ("rn",)),
    ("bf16", "f32"): (as_bf16, ("rn",)),
    ("bf16", "f16"): (lambda values: as_bf16(_single(values)), ("rn", "")),
    ("f16x2", "e4m3x2"): (lambda bits: _halves(bits, from_e4m3), ("rn",)),
    ("f16x2", "e5m2x2"): (lambda bits: _halves(bits, from_e5m2), ("rn",)),
}
"""(to, from) -> what is done, and the roundings of which one has to be given; "": none may be."""


def _halves(bits: Array, widen: Callable[[Array], Array]) -> Array:
    return _pair(as_f16(widen(bits & np.uint16(0xFF))), as_f16(widen(bits >> np.uint16(8))))


_OF_TWO: dict[str, tuple[Callable[[Array, Array], Array], tuple[str, ...]]] = {
    "f16x2": (lambda high, low: _pair(as_f16(low), as_f16(high)), ("rn",)),
    "bf16x2": (lambda high, low: _pair(as_bf16(low), as_bf16(high)), ("rn",)),
    "e4m3x2": (lambda high, low: as_e4m3(low).astype(np.uint16) | as_e4m3(high).astype(np.uint16) << np.uint16(8),
               ("rn", "satfinite")),
}  # fmt: skip
"""Of two float32: the first becomes the upper half."""


@instruction("cvt")
def _cvt(site: Site) -> Act:
    parts, operands = site.instruction.parts, site.instruction.operands
    to, given, how = parts[-2], parts[-1], parts[1:-2]
    if len(operands) == 3 and given == "f32" and to in _OF_TWO:
        two, needed = _OF_TWO[to]
        if set(how) != set(needed):
            raise site.instruction.refuse(f"modifiers {how}; {needed} are known")
        return _act(site, to, ["f32", "f32"], two)
    if len(operands) != 2:
        raise site.instruction.refuse()
    if (to, given) in _OF_ONE:
        one, roundings = _OF_ONE[to, given]
        if (how[0] if how else "") not in (roundings or ("",)) or len(how) > 1:
            raise site.instruction.refuse(f"modifiers {how}")
        return _act(site, to, [given], one)
    if to in _WHOLE and given in _WHOLE and not how:
        return _act(site, to, [given], lambda values: values.astype(DTYPES[to]), narrow=True)
    if to in ("f32", "f64") and given in _WHOLE and how == ["rn"]:
        return _act(site, to, [given], lambda values: values.astype(DTYPES[to]))
    if to in _WHOLE and given in ("f32", "f64") and how in (["rzi"], ["rni"], ["rmi"], ["rpi"]):
        return _act(site, to, [given], lambda values: _integers(values, how[0], to))
    raise site.instruction.refuse()


def _act(site: Site, to: str, kinds: list[str], function: Callable[..., Array], *, narrow: bool = False) -> Act:
    operands = site.instruction.operands
    write = site.writer(operands[0], extend=to if to in _WHOLE else "")
    reads = [site.reader(operand, kind, narrow=narrow) for operand, kind in zip(operands[1:], kinds, strict=True)]

    def act(group: Group, mask: Mask) -> None:
        write(group, function(*(read(group) for read in reads)), mask)

    return act


_ROUND: dict[str, Callable[[Array], Array]] = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


def _integers(values: Array, how: str, to: str) -> Array:
    """Saturated; a NaN becomes 0."""
    limits = np.iinfo(np.dtype(DTYPES[to]))
    whole = _ROUND[how](values.astype(np.float64))
    inside = np.where(np.isnan(whole) | (np.abs(whole) >= 2.0**62), 0.0, whole).astype(np.int64)
    kept = np.clip(inside, max(limits.min, -(2**62)), min(limits.max, 2**62))
    kept = np.where(whole >= 2.0**62, limits.max if limits.max < 2**63 else 2**63 - 1, kept)
    return np.where(whole <= -(2.0**62), limits.min, kept).astype(DTYPES[to])
