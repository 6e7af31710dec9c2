"""Repairs for the Triton interpreter, which runs our kernels on the CPU (`TRITON_INTERPRET=1`).

The interpreter holds bf16 and fp8 values as bare bit patterns, and often treats them as numbers: `tl.dot` multiplies
the patterns, `+` adds them, and the conversions truncate where a GPU rounds. Its fp32 dot is numpy's matmul, whose bits
depend on the shape, so that a batch-invariant kernel does not look like one. `install` repairs this: conversions round
and saturate as the GPU's `cvt` does, dots have an arithmetic that is written down here, and arithmetic on patterns is
an error. It also makes the interpreter much faster (one patch a launch, and `memos.py`). `tests/test_repairs.py` says
what exactly Triton 3.9.0 does wrong. Each fault has a test that fails once Triton has fixed it.
"""

# Triton comes without types, so whatever is taken from it is `Any` here: builders, handles, scopes.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from triton.runtime import interpreter as _interpreter  # type: ignore[import-untyped,unused-ignore]

from ..stack import with_room
from .memos import MEMOS

__all__ = ["DOTS", "Unrepaired", "fused", "install", "installed", "narrow", "sequential", "uninstall", "widen"]

Array = npt.NDArray[Any]

DOTS = ("sequential", "hopper", "ampere", "stock")
"""What `install` takes as `dot`."""

_I: Any = _interpreter
_Builder: Any = _I.InterpreterBuilder


class Unrepaired(RuntimeError):
    """A kernel asked the interpreter for something that it gets wrong and that is not repaired here."""


# ---- conversions


class _Format(NamedTuple):
    torch: torch.dtype
    bits: torch.dtype
    """An integer of that width that torch and numpy agree on."""
    nan: int
    """The one NaN that the GPU's cvt gives. Torch's depend on where in a vector the element lies."""
    most: float | None
    """Where the GPU's cvt saturates (`.satfinite` is not optional for fp8); None: it rounds to infinity."""


_FORMATS = {
    "bf16": _Format(torch.bfloat16, torch.int16, 0x7FFF, None),
    "fp8e4nv": _Format(torch.float8_e4m3fn, torch.uint8, 0x7F, 448.0),
    "fp8e5": _Format(torch.float8_e5m2, torch.uint8, 0x7F, 57344.0),
}
"""The formats that are repaired, by Triton's names."""

_PATTERNS = frozenset({*_FORMATS, "fp8e4b15", "fp8e4b8", "fp8e5b16"})
"""The formats that the interpreter holds as unsigned integers. Names, because Triton's pointer types have no hash."""


def widen(bits: Array, name: str) -> npt.NDArray[np.float32]:
    """The float32 values of bit patterns, exactly. `name` is Triton's: bf16, fp8e4nv or fp8e5."""
    form = _FORMATS[name]
    # A copy: broadcast arrays are read-only, and torch warns about those.
    raw = torch.from_numpy(np.array(bits, order="C").view(np.int16 if form.bits == torch.int16 else np.uint8))
    wide: npt.NDArray[np.float32] = raw.view(form.torch).to(torch.float32).numpy()
    # A signalling NaN, which any poison may be, would make numpy warn at its next use.
    wide[np.isnan(wide)] = np.nan
    return wide


def narrow(values: Array, name: str, *, towards_zero: bool = False) -> Array:
    """The bit patterns of values, rounded as the GPU's cvt does: to the nearest, ties to even; fp8 saturates.

    As on sm_89 and later, where a cvt for fp8 exists. float64 goes through float32 and is rounded twice.
    """
    form = _FORMATS[name]
    with np.errstate(all="ignore"):
        exact = np.array(values, dtype=np.float32, order="C")
    lost = np.isnan(exact)
    # Not left to torch: its releases differ in what they do beyond the range of e4m3.
    kept = exact if form.most is None else np.asarray(np.clip(exact, -form.most, form.most))
    raw: Array = torch.from_numpy(kept).to(form.torch).view(form.bits).numpy()
    raw = raw.view(np.uint16 if form.bits == torch.int16 else np.uint8)
    if towards_zero:
        # Patterns of one sign are ordered like their magnitudes, so one less is the next value towards zero.
        with np.errstate(all="ignore"):
            raw = raw - (np.abs(widen(raw, name)) > np.abs(kept)).astype(raw.dtype)
    return np.where(lost, raw.dtype.type(form.nan), raw)


def _convert(source: Any, target: Any, *, towards_zero: bool = False) -> Any:
    """A handle of the target type, or None where the interpreter's own conversion is right (or is not repaired
    here)."""
    old, new = source.dtype.scalar.name, target.scalar.name
    if {old, new}.isdisjoint(_FORMATS) or not (_PATTERNS & {old, new}) <= _FORMATS.keys():
        return None
    data: Array = widen(source.data, old) if old in _FORMATS else source.data
    if new in _FORMATS:
        data = narrow(data, new, towards_zero=towards_zero)
    else:
        with np.errstate(all="ignore"):
            data = data.astype(_I._get_np_dtype(target))
    return _I.TensorHandle(data, target.scalar)


def _cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
    repaired = _convert(src, dst_type)
    return _stock("cast_impl")(self, src, dst_type) if repaired is None else repaired


def _create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
    repaired = _convert(src, dst_type, towards_zero=rounding_mode == _I._ir.ROUNDING_MODE.RTZ)
    return _stock("create_fp_to_fp")(self, src, dst_type, rounding_mode) if repaired is None else repaired


# ---- dots

_CHUNK = 1 << 16
"""Products held at a time, about what a core's own cache holds."""


def _outer_first(a: Array, b: Array) -> tuple[Array, Array]:
    """[..., M, K] and [..., K, N] as [K, ..., M, 1] and [K, ..., 1, N]: a product of slices is an outer product."""
    *batch, first, second = range(a.ndim)
    left = np.ascontiguousarray(a.transpose(second, *batch, first))
    return left[..., None], b.transpose(first, *batch, second)[..., None, :]


@np.errstate(all="ignore")
def sequential(a: Array, b: Array, accumulator: Array) -> Array:
    """accumulator + a @ b in the accumulator's precision: k after k, each product and each sum rounded once.

    Every element is computed alone, so that its bits depend on its row and its column and on nothing else.
    """
    total = accumulator
    left, right = _outer_first(a.astype(accumulator.dtype, copy=False), b.astype(accumulator.dtype, copy=False))
    step = max(1, _CHUNK // max(1, accumulator.size))
    for start in range(0, len(left), step):
        part = slice(start, start + step)
        terms = np.empty((1 + len(left[part]), *accumulator.shape), accumulator.dtype)
        terms[0] = total
        np.multiply(left[part], right[part], out=terms[1:])
        # Along an outer axis numpy adds whole slices one after the other. If there is but one element, that axis
        # becomes the inner one, and numpy sums pairwise.
        total = np.add.reduce(terms, axis=0) if accumulator.size > 1 else np.add.accumulate(terms, axis=0)[-1]
    return total


def _power(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The power of two at or below each magnitude: a float64 without its fraction."""
    return (values.view(np.uint64) & np.uint64(0x7FF0000000000000)).view(np.float64)


def _exponents(operand: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.float64]:
    """Two to the exponent that the hardware reads: a subnormal has the format's least, and a zero does not count."""
    return np.where(operand == 0, 0.0, np.maximum(_power(operand), least))


@np.errstate(all="ignore")
def fused(
    a: Array, b: Array, accumulator: npt.NDArray[np.float32], *, products: int, bits: int, least: float
) -> npt.NDArray[np.float32]:
    """accumulator + a @ b as tensor cores compute it, after what Fasi et al. and MMA-Sim (arXiv 2511.10909) measured.

    `products` of them and the accumulator are aligned to the largest exponent (a product's is the sum of its
    operands'), cut off after `bits` fractional bits, summed exactly and cut off to float32. `least` is the operands'
    smallest normal number. A block that K does not fill counts as filled with zeros.
    """
    left, right = _outer_first(a.astype(np.float64), b.astype(np.float64))
    finite = bool(np.isfinite(left).all() and np.isfinite(right).all() and np.isfinite(accumulator).all())
    usable = (left, right) if finite else tuple(np.where(np.isfinite(x), x, 0.0) for x in (left, right))
    left_power, right_power = (_exponents(x, least) for x in usable)
    smallest = 2.0**-126  # of float32, and the exponent of a zero accumulator
    total: npt.NDArray[np.float64] = accumulator.astype(np.float64)
    for start in range(0, len(left), products):
        part = slice(start, start + products)
        before = np.where(np.isfinite(total), total, 0.0)
        top = np.maximum(_power(before), smallest)
        np.maximum(top, np.maximum.reduce(left_power[part] * right_power[part], axis=0), out=top)
        # Everything from here is exact in float64: below 2**33 units, and units are powers of two.
        units = 2.0**bits / top
        terms = usable[0][part] * usable[1][part]
        terms *= units
        np.trunc(terms, out=terms)
        after = (np.add.reduce(terms, axis=0) + np.trunc(before * units)) / units
        last = 2.0**23 / np.maximum(_power(after), smallest)
        after = np.trunc(after * last) / last
        after = np.where(np.abs(after) < 2.0**128, after, np.copysign(np.inf, after))
        if not finite:
            # Infinities and NaNs propagate as in plain arithmetic, which cannot overflow here, in float64.
            plain = total + np.add.reduce(left[part] * right[part], axis=0)
            after = np.where(np.isfinite(plain), after, plain)
        finite = finite and bool(np.isfinite(after).all())
        total = after
    result = total.astype(np.float32)
    result[np.isnan(result)] = np.uint32(0x7FFFFFFF).view(np.float32)  # the one NaN that tensor cores give
    return result


_TENSOR_CORES = {"hopper": (16, 25), "ampere": (8, 24)}
"""Products a block, and fractional bits kept, for 16-bit operands."""

_LEAST = {"fp16": 2.0**-14, "bf16": 2.0**-126}
"""The smallest normal number of the operands that `fused` describes."""


def _values(handle: Any) -> Array:
    name = handle.dtype.scalar.name
    return widen(handle.data, name) if name in _FORMATS else handle.data


def _create_dot(model: str) -> Callable[..., Any]:
    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        names = {handle.dtype.scalar.name for handle in (a, b)}
        if not all(handle.dtype.scalar.is_floating() for handle in (a, b)) or (names & _PATTERNS) - _FORMATS.keys():
            return _stock("create_dot")(self, a, b, d, input_precision, max_num_imprecise_acc)
        kind = d.data.dtype
        if model in _TENSOR_CORES and names <= _LEAST.keys() and kind == np.float32:
            products, bits = _TENSOR_CORES[model]
            least = max(_LEAST[name] for name in names)
            total: Array = fused(_values(a), _values(b), d.data, products=products, bits=bits, least=least)
        else:
            # A half-precision accumulator is rounded once, at the end.
            with np.errstate(all="ignore"):
                wide = d.data.astype(np.float32) if kind == np.float16 else d.data
                total = sequential(_values(a), _values(b), wide).astype(kind, copy=False)
        return _I.TensorHandle(total, d.dtype.scalar)

    return create_dot


# ---- what is refused


def _refuse(handle: Any, operation: str) -> None:
    name = handle.dtype.scalar.name
    if name in _PATTERNS:
        raise Unrepaired(
            f"{operation} on {name}: the interpreter would compute with the bit patterns, which it holds as integers. "
            "Cast to float32 first: x.to(tl.float32)"
        )


def _binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
    _refuse(lhs, op.__name__)
    return _stock("binary_op")(self, lhs, rhs, op)


def _ternary_op(self: Any, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
    if op is not np.where:  # a selection moves patterns, and that is right
        _refuse(other, op.__name__)
    return _stock("ternary_op")(self, lhs, rhs, other, op)


def _unary_op(self: Any, arg: Any, op: Any) -> Any:
    _refuse(arg, op.__name__)
    return _stock("unary_op")(self, arg, op)


def _create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    _refuse(z, "fma")
    return _stock("create_fma")(self, x, y, z)


def _create_erf(self: Any, arg: Any) -> Any:
    _refuse(arg, "erf")
    return _stock("create_erf")(self, arg)


def _create_rsqrt(self: Any, arg: Any) -> Any:
    _refuse(arg, "rsqrt")
    return _stock("create_rsqrt")(self, arg)


def _create_atomic_rmw(self: Any, rmwOp: Any, ptr: Any, val: Any, *rest: Any) -> Any:
    if rmwOp != _I._ir.ATOMIC_OP.XCHG:
        _refuse(val, "an atomic")
    return _stock("create_atomic_rmw")(self, rmwOp, ptr, val, *rest)


def _check_tensor(self: Any, input: Any) -> None:
    _stock("check_tensor", _I.ReduceScanOpInterface)(self, input)
    # Triton's own combinations are replaced by numpy's and never reach the builder. One of the kernel's does, and may
    # cast as it should.
    if getattr(getattr(self.combine_fn, "fn", None), "__module__", None) == "triton.language.standard":
        for arg in input:
            _refuse(arg, self.combine_fn.fn.__name__)


_QUIET = {np.nanmax: np.fmax.reduce, np.nanmin: np.fmin.reduce}
"""The same values. numpy's functions warn if all are NaN, and tests that poison a cache want to see what comes out."""


def _min_max(self: Any, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
    quiet = _QUIET.get(val_reduce_op, val_reduce_op)
    return _stock("min_max", _I.ReduceOps)(self, input, quiet, idx_reduce_op)


# ---- one patch a launch


class _Launch:
    """What has been patched since a launch began."""

    def __init__(self) -> None:
        self.scope: Any = None
        """The launch's own, that it will restore."""
        self.seen: dict[int, Any] = {}
        """Globals of functions that are patched for, by identity; held, so that an identity is not used twice."""


_launch: _Launch | None = None


def _patch_lang(fn: Any) -> Any:
    """Triton replaces the language's functions for a launch, and again, 0.2 ms a time, at each call of a helper.

    The first time for each module stays; the rest change nothing. What a helper's module needed on top is restored with
    the launch's own; the interpreter leaves it behind.
    """
    stock = _stock("_patch_lang", _I)
    if _launch is None:
        return stock(fn)
    module = fn.__globals__
    if id(module) in _launch.seen:
        return _I._LangPatchScope()
    scope = stock(fn)
    _launch.seen[id(module)] = module
    if _launch.scope is None:
        _launch.scope = scope
    else:
        _launch.scope._changes.extend(scope._changes)
    return scope


def _run_grid(self: Any, *args: Any, **kwargs: Any) -> Any:
    global _launch
    outer, _launch = _launch, _Launch()
    try:
        with np.errstate(all="ignore"):  # a GPU says nothing when a number overflows, and poison is meant to be read
            return with_room(_stock("__call__", _I.GridExecutor), self, *args, **kwargs)
    except _I.InterpreterError as error:
        # Each call of a helper wraps the error once more; what was refused should be the first thing to read.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, Unrepaired):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from None
    finally:
        _launch = outer


# ---- installing

_REPAIRS: dict[tuple[Any, str], Any] = {
    (_Builder, "cast_impl"): _cast_impl,
    (_Builder, "create_fp_to_fp"): _create_fp_to_fp,
    (_Builder, "binary_op"): _binary_op,
    (_Builder, "ternary_op"): _ternary_op,
    (_Builder, "unary_op"): _unary_op,
    (_Builder, "create_fma"): _create_fma,
    (_Builder, "create_erf"): _create_erf,
    (_Builder, "create_rsqrt"): _create_rsqrt,
    (_Builder, "create_atomic_rmw"): _create_atomic_rmw,
    (_I.ReduceScanOpInterface, "check_tensor"): _check_tensor,
    (_I.ReduceOps, "min_max"): _min_max,
    (_I.GridExecutor, "__call__"): _run_grid,
    (_I, "_patch_lang"): _patch_lang,
    **MEMOS,
}

_STOCK: dict[tuple[Any, str], Any] = {
    # A member that a Triton lacks fails here, at import, and not as a repair that never runs.
    (owner, name): vars(owner)[name]
    for owner, name in (*_REPAIRS, (_Builder, "create_dot"))
}

_model: str | None = None


def _stock(name: str, owner: Any = _Builder) -> Any:
    return _STOCK[owner, name]


def install(dot: str = "sequential") -> None:
    """Repair the interpreter of this process, until `uninstall`. Call it again to change what `tl.dot` computes.

    "sequential" is float32 (float64 for such accumulators), k after k. "hopper" and "ampere" are those tensor cores,
    for fp16 and bf16 operands; for others they are "sequential" (so is fp32: nothing is rounded to tf32). "stock"
    leaves the dot alone.
    """
    global _model
    if dot not in DOTS:
        raise ValueError(f"there is no dot {dot!r}; there are {', '.join(DOTS)}")
    for (owner, name), repair in _REPAIRS.items():
        setattr(owner, name, repair)
    _Builder.create_dot = _stock("create_dot") if dot == "stock" else _create_dot(dot)
    _model = dot


def installed() -> str | None:
    """The dot of the last `install`, or None where the interpreter is as it came."""
    return _model


def uninstall() -> None:
    """Restore the interpreter as it was when this module was first imported."""
    global _model
    for (owner, name), original in _STOCK.items():
        setattr(owner, name, original)
    _model = None
