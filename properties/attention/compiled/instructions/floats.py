"""float32 and float64. What PTX calls approximate is rounded correctly here: no device does better."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from ..bits import Array, canonical, fma32, fma64
from ..machine import Act, Group, Mask, Site
from .registry import instruction, only

__all__: list[str] = []

_LEAST = np.float32(2.0**-126)


def _flushed(values: Array) -> Array:
    """Subnormal numbers are zeros of their sign."""
    return np.where(np.abs(values) < _LEAST, np.copysign(np.float32(0), values), values)


def _of(site: Site, function: Callable[..., Array], *, exact: bool = False) -> Act:
    """exact: bits pass through, so that a NaN keeps its own."""
    parts = site.instruction.parts
    kind, flush = parts[-1], "ftz" in parts[1:-1]
    if kind not in ("f32", "f64") or (flush and kind == "f64"):
        raise site.instruction.refuse(f"type {kind}")
    write = site.writer(site.instruction.operands[0])
    reads = [site.reader(operand, kind) for operand in site.instruction.operands[1:]]

    def act(group: Group, mask: Mask) -> None:
        values = [read(group) for read in reads]
        if flush:
            values = list(map(_flushed, values))
        result = function(*values)
        if flush:
            result = _flushed(result)
        write(group, result if exact else canonical(result), mask)

    return act


_TWO: dict[str, Callable[[Array, Array], Array]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


@instruction("add", "sub", "mul")
def _arithmetic(site: Site) -> Act:
    only(site, "rn", "ftz")
    return _of(site, _TWO[site.instruction.parts[0]])


@instruction("fma")
def _fma(site: Site) -> Act:
    only(site, "rn", "ftz")
    if "rn" not in site.instruction.parts:
        raise site.instruction.refuse("no rounding")
    return _of(site, fma32 if site.instruction.parts[-1] == "f32" else fma64)


@instruction("div.rn", "div.full", "div.approx")
def _div(site: Site) -> Act:
    only(site, "rn", "full", "approx", "ftz")
    return _of(site, operator.truediv)


@instruction("rcp")
def _rcp(site: Site) -> Act:
    only(site, "rn", "approx", "ftz")
    return _of(site, lambda x: x.dtype.type(1) / x)


@instruction("sqrt")
def _sqrt(site: Site) -> Act:
    only(site, "rn", "approx", "ftz")
    return _of(site, np.sqrt)


@instruction("rsqrt")
def _rsqrt(site: Site) -> Act:
    only(site, "approx", "ftz")
    return _of(site, lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype))


@instruction("ex2")
def _ex2(site: Site) -> Act:
    only(site, "approx", "ftz")
    return _of(site, lambda x: np.exp2(x.astype(np.float64)).astype(np.float32))


@instruction("lg2")
def _lg2(site: Site) -> Act:
    only(site, "approx", "ftz")
    return _of(site, lambda x: np.log2(x.astype(np.float64)).astype(np.float32))


@instruction("tanh.approx.f32")
def _tanh(site: Site) -> Act:
    only(site, "approx")
    return _of(site, lambda x: np.tanh(x.astype(np.float64)).astype(np.float32))


@instruction("neg")
def _neg(site: Site) -> Act:
    only(site, "ftz")
    return _of(site, operator.neg, exact=True)


@instruction("abs")
def _abs(site: Site) -> Act:
    only(site, "ftz")
    return _of(site, np.abs, exact=True)


def _extreme(choose: Callable[[Array, Array], Array], zeros: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """Of a number and a NaN, the number; -0 is below +0."""

    def extreme(a: Array, b: Array) -> Array:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        equal = zeros(a.view(unsigned), b.view(unsigned)).view(a.dtype)
        chosen = np.where(np.isnan(a), b, np.where(np.isnan(b), a, choose(a, b)))
        return np.where((a == b) & (a == 0), equal, chosen)

    return extreme


def _propagating(extreme: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), extreme(a, b))


@instruction("max", "min")
def _minmax(site: Site) -> Act:
    only(site, "ftz", "NaN")
    top = site.instruction.parts[0] == "max"
    extreme = _extreme(np.maximum, operator.and_) if top else _extreme(np.minimum, operator.or_)
    return _of(site, _propagating(extreme) if "NaN" in site.instruction.parts else extreme)
