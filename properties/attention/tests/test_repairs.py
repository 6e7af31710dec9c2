"""The interpreter's faults, each shown (so that we hear when Triton fixes it) and repaired; and what dots compute."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size
from triton.runtime import interpreter

from properties.attention import repairs
from properties.attention.repairs import Unrepaired, fused, narrow, sequential, widen

FIXED = "Triton fixes this: remove the repair, and this test"

FP8 = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = repairs.installed()
    yield
    if before is None:
        repairs.uninstall()
    else:
        repairs.install(before)


@pytest.fixture
def stock() -> Iterator[None]:
    """The interpreter as it comes. What its launches leave behind in `tl.core` is cleared away."""
    repairs.uninstall()
    yield
    _clear_core()


@pytest.fixture
def repaired() -> None:
    repairs.install()


def _clear_core() -> None:
    for name, value in list(vars(tl.core).items()):
        member = (getattr(value, "__kwdefaults__", None) or {}).get("member")
        if member is not None and tl.core.is_builtin(member):
            setattr(tl.core, name, member)


# ---- kernels


@triton.jit
def _convert(source, target, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(target + i, tl.load(source + i).to(target.dtype.element_ty))


@triton.jit
def _cut(source, target, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(target + i, tl.load(source + i).to(target.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def _dot(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m = tl.arange(0, M)[:, None]
    n = tl.arange(0, N)[None, :]
    left = tl.load(a + m * K + tl.arange(0, K)[None, :])
    right = tl.load(b + tl.arange(0, K)[:, None] * N + n)
    tl.store(out + m * N + n, tl.dot(left, right, out_dtype=out.dtype.element_ty))


@triton.jit
def _operate(a, b, out, N: tl.constexpr, OP: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i)
    y = tl.load(b + i)
    if OP == "+":
        z = x + y
    elif OP == "-":
        z = x - y
    elif OP == "*":
        z = x * y
    elif OP == "negate":
        z = -x
    elif OP == "<":
        z = tl.where(x < y, 1.0, 0.0)
    elif OP == "==":
        z = tl.where(x == y, 1.0, 0.0)
    elif OP == "maximum":
        z = tl.maximum(x, y)
    elif OP == "fma":
        z = tl.fma(x, y, x)
    elif OP == "sum":
        z = tl.sum(x, 0) + tl.zeros([N], tl.float32)
    elif OP == "argmax":
        z = tl.argmax(x, 0) + tl.zeros([N], tl.int32)
    elif OP == "cumsum":
        z = tl.cumsum(x, 0)
    elif OP == "atomic":
        z = tl.atomic_add(a + i, y)
    tl.store(out + i, z.to(tl.float32))


@triton.jit
def _move(a, b, out, N: tl.constexpr):
    """What only moves patterns, and arithmetic on pointers to them."""
    i = tl.arange(0, N)
    x = tl.load(a + i, mask=i < N - 1, other=1.0)
    y = tl.where(i < N, x, tl.load(b + i))
    z = tl.reshape(tl.trans(tl.broadcast_to(y[None, :], [2, N])), [2 * N])
    tl.store(out + tl.arange(0, 2 * N), z)


@triton.jit
def _integers(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i)
    y = tl.load(b + i)
    tl.store(out + i, tl.where(x > y, x - y, tl.maximum(x * y, x + y)))


@triton.jit
def _row_max(a, out, M: tl.constexpr, N: tl.constexpr):
    m = tl.arange(0, M)
    tl.store(out + m, tl.max(tl.load(a + m[:, None] * N + tl.arange(0, N)[None, :]), 1))


@triton.jit
def _twice(x):
    return x + x


@triton.jit
def _helped(x):
    return _twice(x) + tl.max(x, 0)


@triton.jit
def _helpers(a, out, N: tl.constexpr, TIMES: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i)
    for _ in range(TIMES):
        x = _helped(x) * 0.25
    tl.store(out + i, x)


@triton.jit
def _refused_in_a_helper(a, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, _twice(tl.load(a + i)))


def _converted(source: torch.Tensor, dtype: torch.dtype, kernel: Any = _convert) -> torch.Tensor:
    target = torch.empty(source.shape, dtype=dtype)
    kernel[(1,)](source, target, source.numel())
    return target


def _product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    out = torch.empty(a.shape[0], b.shape[1], dtype=dtype)
    _dot[(1,)](a, b, out, a.shape[0], b.shape[1], a.shape[1])
    return out


def _operated(operation: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(a.shape, dtype=torch.float32)
    _operate[(1,)](a, b, out, a.numel(), operation)
    return out


def _normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _bits(values: np.ndarray) -> list[int]:
    return values.view(f"u{values.itemsize}").ravel().tolist()


# ---- conversions


@pytest.mark.usefixtures("stock")
def test_stock_cuts_bf16_off() -> None:
    values = _normal(4096)
    wrong = _converted(values, torch.bfloat16) != values.to(torch.bfloat16)
    assert wrong.sum() > 1000, FIXED


@pytest.mark.usefixtures("stock")
def test_stock_gets_bf16_subnormals_wrong() -> None:
    values = torch.arange(1, 65, dtype=torch.int16).view(torch.bfloat16)
    assert (_converted(values, torch.float32) != values.float()).any(), FIXED


@pytest.mark.usefixtures("stock")
@pytest.mark.parametrize(
    ("value", "right"),
    [(1.99999, 2.0), (500.0, 448.0), (float("inf"), 448.0), (float("nan"), float("nan"))],
    ids=["carry", "saturation", "infinity", "nan"],
)
def test_stock_gets_e4m3_wrong(value: float, right: float) -> None:
    found = _converted(torch.full((1,), value), torch.float8_e4m3fn).float().item()
    assert not np.array_equal(found, right, equal_nan=True), FIXED


@pytest.mark.usefixtures("stock")
@pytest.mark.parametrize(
    ("value", "right"), [(1.99999, 2.0), (float("inf"), 57344.0)], ids=["carry", "saturation of infinity"]
)
def test_stock_gets_e5m2_wrong(value: float, right: float) -> None:
    assert _converted(torch.full((1,), value), torch.float8_e5m2).float().item() != right, FIXED


@pytest.mark.usefixtures("stock")
def test_stock_reads_special_fp8_values_as_numbers() -> None:
    nan = torch.full((1,), 0x7F, dtype=torch.uint8)
    assert not _converted(nan.view(torch.float8_e4m3fn), torch.float32).isnan().any(), FIXED
    infinity = torch.full((1,), 0x7C, dtype=torch.uint8)
    assert not _converted(infinity.view(torch.float8_e5m2), torch.float32).isinf().any(), FIXED


@pytest.mark.usefixtures("repaired")
@pytest.mark.parametrize("narrow_dtype", [torch.bfloat16, *FP8.values()])
@pytest.mark.parametrize("wide_dtype", [torch.float32, torch.float64, torch.float16])
def test_conversions_in_kernels(narrow_dtype: torch.dtype, wide_dtype: torch.dtype) -> None:
    values = _normal(512, dtype=wide_dtype)
    patterns = _converted(values, narrow_dtype)
    assert torch.equal(patterns.float(), values.to(narrow_dtype).float())
    assert torch.equal(_converted(patterns, wide_dtype), patterns.to(wide_dtype))


@pytest.mark.usefixtures("repaired")
def test_conversions_between_narrow_formats_and_integers() -> None:
    values = _normal(256, dtype=torch.bfloat16) * 20
    for fp8 in FP8.values():
        patterns = _converted(values, fp8)
        assert torch.equal(patterns.float(), values.to(fp8).float())
        assert torch.equal(_converted(patterns, torch.bfloat16), patterns.to(torch.bfloat16))
    assert torch.equal(_converted(values, torch.int32), values.to(torch.int32))
    whole = torch.arange(-512, 512, dtype=torch.int32)
    assert torch.equal(_converted(whole, torch.bfloat16), whole.to(torch.bfloat16))


def _hard_values(name: str) -> np.ndarray:
    """Every value of the format, every tie between two of them, and the float32s on either side of both."""
    patterns = np.arange(1 << (16 if name == "bf16" else 8), dtype=np.uint16 if name == "bf16" else np.uint8)
    values = np.unique(np.abs(widen(patterns, name).astype(np.float64)))
    values = values[np.isfinite(values)]
    middle = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(np.float32)
    around = [middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(3e38))]
    positive = np.concatenate([*around, np.float32([1e9, 3e38, np.inf])])
    return np.concatenate([positive, -positive])


def test_narrow_to_bf16_is_the_rule_for_bits() -> None:
    values = _hard_values("bf16")
    bits = values.view(np.uint32)
    right = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    assert np.array_equal(narrow(values, "bf16"), right)
    assert np.array_equal(narrow(values, "bf16", towards_zero=True), bits >> 16)


@pytest.mark.parametrize("name", FP8)
def test_narrow_to_fp8_is_the_nearest_pattern(name: str) -> None:
    patterns = np.arange(0x7F, dtype=np.uint8)
    finite = widen(patterns, name).astype(np.float64)
    finite = finite[np.isfinite(finite)]
    values = _hard_values(name)
    size = np.minimum(np.abs(values.astype(np.float64)), finite[-1])
    ties = (finite[1:] + finite[:-1]) / 2
    below = np.searchsorted(ties, size, side="left")
    above = np.searchsorted(ties, size, side="right")
    sign = np.where(np.signbit(values), 0x80, 0)
    # On a tie the two differ by one, and the even one is right.
    assert np.array_equal(narrow(values, name), np.where(below % 2 == 0, below, above) | sign)
    assert np.array_equal(
        narrow(values, name, towards_zero=True), (np.searchsorted(finite, size, side="right") - 1) | sign
    )


@pytest.mark.parametrize(("name", "nan"), [("bf16", 0x7FFF), ("fp8e4nv", 0x7F), ("fp8e5", 0x7F)])
def test_nan_stays_the_one_nan_wherever_it_lies(name: str, nan: int) -> None:
    some = np.uint32([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF]).view(np.float32)
    for values in (some, np.tile(some, 9), some[:1], some[0]):
        assert set(np.ravel(narrow(values, name)).tolist()) == {nan}
        assert set(np.ravel(narrow(values, name, towards_zero=True)).tolist()) == {nan}
    assert np.isnan(widen(narrow(some, name), name)).all()


def test_widen_silences_signalling_nan() -> None:
    # Under pytest, numpy's warning at a NaN's first use would stop the kernel that reads the poison.
    nan = widen(np.uint16([0x7F81, 0xFF81]), "bf16")
    assert np.isnan(nan).all() and np.isnan(nan.astype(np.float64) * 2).all()


def test_widen_takes_what_numpy_does_not_let_write() -> None:
    assert widen(np.broadcast_to(np.uint16(0x3F80), (2, 3)), "bf16").tolist() == [[1.0] * 3] * 2
    assert widen(np.asfortranarray(np.uint8([[0x38, 0x40], [0x44, 0x48]])), "fp8e4nv").tolist() == [[1, 2], [3, 4]]


@pytest.mark.usefixtures("repaired")
def test_rounding_towards_zero_when_a_kernel_asks_for_it() -> None:
    values = _normal(1024)
    assert np.array_equal(
        _converted(values, torch.bfloat16, _cut).view(torch.int16).numpy(), values.view(torch.int32).numpy() >> 16
    )


# ---- arithmetic on patterns

REFUSED = ["+", "-", "*", "negate", "<", "==", "maximum", "fma", "sum", "argmax", "cumsum", "atomic"]

CAST_BY_TRITON = {
    # Triton 3.6 casts before these, and 3.9 does not.
    (torch.bfloat16, operation)
    for operation in ("maximum", "argmax", "cumsum")
    if hasattr(tl.core, "_promote_bfloat16_to_float32")
}


@pytest.mark.usefixtures("stock")
@pytest.mark.parametrize("operation", ["+", "*", "<"])
def test_stock_computes_with_bf16_patterns(operation: str) -> None:
    a, b = _normal(64, dtype=torch.bfloat16), _normal(64, dtype=torch.bfloat16, seed=1)
    right = {"+": a + b, "*": a * b, "<": a < b}[operation].float()
    assert not torch.allclose(_operated(operation, a, b), right, rtol=0.01), FIXED


@pytest.mark.usefixtures("stock")
def test_stock_sums_bf16_patterns() -> None:
    ones = torch.ones(64, dtype=torch.bfloat16)
    assert _operated("sum", ones, ones)[0] != 64, FIXED


@pytest.mark.usefixtures("repaired")
@pytest.mark.parametrize(
    ("dtype", "operation"),
    [
        *((torch.bfloat16, operation) for operation in REFUSED),
        # Atomics on fp8 are refused by Triton itself.
        *((torch.float8_e4m3fn, operation) for operation in REFUSED if operation != "atomic"),
    ],
)
def test_arithmetic_on_patterns_is_refused(dtype: torch.dtype, operation: str) -> None:
    a, b = torch.arange(-8, 8).to(dtype), torch.arange(8, -8, -1).to(dtype)
    if (dtype, operation) in CAST_BY_TRITON:
        assert torch.equal(_operated(operation, a, b), _operated(operation, a.float(), b.float()))
        return
    with pytest.raises(Unrepaired, match=r"on (bf16|fp8e4nv): .*Cast to float32 first"):
        _operated(operation, a, b)


@pytest.mark.usefixtures("repaired")
@pytest.mark.parametrize("operation", REFUSED)
def test_arithmetic_on_float32_is_not(operation: str) -> None:
    _operated(operation, torch.ones(16), torch.ones(16))


@pytest.mark.usefixtures("repaired")
def test_a_refusal_in_a_helper_is_what_one_reads_first() -> None:
    values = torch.ones(16, dtype=torch.bfloat16)
    with pytest.raises(Unrepaired, match="add on bf16"):
        _refused_in_a_helper[(1,)](values, values, 16)


@pytest.mark.usefixtures("repaired")
@pytest.mark.parametrize("dtype", [torch.bfloat16, *FP8.values()])
def test_moving_patterns_is_allowed(dtype: torch.dtype) -> None:
    a, b = _normal(16).to(dtype), _normal(16, seed=1).to(dtype)
    out = torch.empty(32, dtype=dtype)
    _move[(1,)](a, b, out, 16)
    a[15] = 1.0
    assert torch.equal(out.float(), a.float().repeat_interleave(2))


@pytest.mark.usefixtures("repaired")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int16])
def test_integers_of_the_same_width_are_not_patterns(dtype: torch.dtype) -> None:
    a, b = torch.arange(16).to(dtype), torch.arange(16).flip(0).to(dtype)
    out = torch.empty(16, dtype=dtype)
    _integers[(1,)](a, b, out, 16)
    x, y = a.int(), b.int()
    assert torch.equal(out.int(), torch.where(x > y, x - y, torch.maximum(x * y, x + y)))


# ---- dots in kernels


@pytest.mark.usefixtures("stock")
def test_stock_multiplies_bf16_patterns() -> None:
    a, b = _normal(16, 32, dtype=torch.bfloat16), _normal(32, 16, dtype=torch.bfloat16, seed=1)
    assert (_product(a, b) - a.float() @ b.float()).abs().max() > 1000, FIXED


def _rows_agree(dot: Callable[[np.ndarray, np.ndarray], np.ndarray], n: int, k: int) -> bool:
    """Whether the first row's bits are the same alone, among few and among many, and wherever it lies."""
    rng = np.random.default_rng(k * 1000 + n)
    a, b = rng.standard_normal((64, k), np.float32), rng.standard_normal((k, n), np.float32)
    alone = _bits(dot(a[:1], b)[0])
    among = [_bits(dot(a[:m], b)[0]) for m in (2, 3, 16, 64)]
    return all(row == alone for row in (*among, _bits(dot(np.roll(a, 37, axis=0), b)[37])))


def _handle_dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What `tl.dot` computes, without a launch."""
    handles = [interpreter.TensorHandle(x, tl.float32) for x in (a, b, np.zeros((len(a), b.shape[1]), np.float32))]
    return interpreter.interpreter_builder.create_dot(*handles, None, 0).data


SHAPES = [(n, k) for k in (16, 17, 64, 128, 256) for n in (1, 8, 16, 33, 64)]


@pytest.mark.usefixtures("stock")
def test_bits_of_a_stock_row_depend_on_its_neighbours() -> None:
    assert not all(_rows_agree(_handle_dot, n, k) for n, k in SHAPES), (
        f"{FIXED} (or this machine's BLAS happens to be batch-invariant)"
    )


@pytest.mark.usefixtures("repaired")
def test_bits_of_a_row_depend_on_nothing_else() -> None:
    assert all(_rows_agree(_handle_dot, n, k) for n, k in SHAPES)


@pytest.mark.usefixtures("stock")
def test_stock_takes_dots_that_a_gpu_does_not() -> None:
    # A few rows are no fault: the NVIDIA backend pads them. But it has no instruction for so small a K.
    least = min_dot_size(GPUTarget("cuda", 90, 32))(tl.float16, tl.float16)
    assert least[:2] == (1, 1)
    assert least[2] == 16
    for m, k in ((1, 16), (2, 16), (8, 16), (16, 4)):
        a, b = _normal(m, k, dtype=torch.float16), _normal(k, 16, dtype=torch.float16, seed=1)
        assert torch.allclose(_product(a, b), a.float() @ b.float(), atol=1e-4), FIXED


@pytest.mark.parametrize("dot", ["sequential", "hopper", "ampere"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, *FP8.values()])
def test_dots_in_kernels(dot: str, dtype: torch.dtype) -> None:
    repairs.install(dot)
    # fp16's subnormals are among its operands: the tensor cores do not normalise them.
    scale = 2.0**-16 if dtype == torch.float16 else 1.0
    a, b = _normal(16, 32).to(dtype), (_normal(32, 16, seed=1) * scale).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    found = _product(a, b, wide)
    right = a.double() @ b.double()
    assert (found - right).abs().max() < (1e-14 if dtype == torch.float64 else 1e-5)
    model = sequential
    if dot != "sequential" and dtype.itemsize == 2:
        products, bits = {"hopper": (16, 25), "ampere": (8, 24)}[dot]

        def model(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
            return fused(a, b, c, products=products, bits=bits, least=torch.finfo(dtype).smallest_normal)

    expected = model(a.to(wide).numpy(), b.to(wide).numpy(), np.zeros((16, 16), found.numpy().dtype))
    assert _bits(found.numpy()) == _bits(expected)


def test_the_models_differ_and_can_be_changed() -> None:
    a, b = _normal(16, 64, dtype=torch.float16), _normal(64, 16, dtype=torch.float16, seed=1)
    found = []
    for dot in ("sequential", "hopper", "ampere", "sequential"):
        repairs.install(dot)
        assert repairs.installed() == dot
        found.append(tuple(_bits(_product(a, b).numpy())))
    assert found[0] == found[3]
    assert len(set(found)) == 3


@pytest.mark.parametrize("dot", repairs.DOTS)
def test_integer_and_half_precision_dots(dot: str) -> None:
    repairs.install(dot)
    a, b = torch.arange(256).view(16, 16).to(torch.int8), torch.arange(256).view(16, 16).flip(0).to(torch.int8)
    assert torch.equal(_product(a, b, torch.int32), a.int() @ b.int())
    half = _product(a.half() / 16, b.half() / 16, torch.float16)
    assert torch.allclose(half.float(), (a.float() / 16) @ (b.float() / 16), rtol=0.01, atol=1)


def test_an_unknown_dot_is_refused() -> None:
    before = repairs.installed()
    with pytest.raises(ValueError) as caught:
        repairs.install("volta")
    assert str(caught.value) == "there is no dot 'volta'; there are sequential, hopper, ampere, stock"
    assert repairs.installed() == before


def test_install_and_uninstall() -> None:
    repairs.uninstall()
    owners = (interpreter.InterpreterBuilder, interpreter.ReduceOps, interpreter.GridExecutor, interpreter)
    members = [dict(vars(owner)) for owner in owners]
    repairs.install()
    repairs.install()
    assert [dict(vars(owner)) for owner in owners] != members
    repairs.uninstall()
    repairs.uninstall()
    assert [dict(vars(owner)) for owner in owners] == members


# ---- what the dots compute


def _loop(a: np.ndarray, b: np.ndarray, accumulator: np.ndarray) -> np.ndarray:
    total = accumulator.copy()
    for k in range(a.shape[-1]):
        total = total + a[..., :, k, None] * b[..., k, None, :]
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sequential_is_a_loop_over_k(dtype: type) -> None:
    rng = np.random.default_rng(0)
    shapes = [(m, n, k) for m in (1, 2, 3, 16) for n in (1, 2, 7, 8, 64) for k in (1, 2, 7, 8, 9, 128, 129)]
    # The last are more than one chunk; one of them is a single element.
    for m, n, k in [*shapes, (64, 64, 64), (300, 300, 3), (1, 1, 70000)]:
        a, b, c = (rng.standard_normal(shape, np.float32).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
        assert np.array_equal(sequential(a, b, c), _loop(a, b, c)), (m, n, k)


def test_sequential_rounds_each_product_and_each_sum() -> None:
    a, b, c = (x.numpy() for x in (_normal(3, 20), _normal(20, 5, seed=1), _normal(3, 5, seed=2)))
    found = sequential(a, b, c)
    for i, j in np.ndindex(3, 5):
        total = c[i, j]
        for k in range(20):
            total = np.float32(float(total) + float(np.float32(float(a[i, k]) * float(b[k, j]))))
        assert total == found[i, j]


def test_batches_are_dots_side_by_side() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(shape, np.float32) for shape in ((2, 3, 4, 40), (2, 3, 40, 5), (2, 3, 4, 5)))
    for dot in (sequential, lambda a, b, c: fused(a, b, c, products=16, bits=25, least=2.0**-126)):
        together = dot(a, b, c)
        for i in np.ndindex(2, 3):
            assert np.array_equal(together[i], dot(a[i], b[i], c[i]))


def _exponent(value: Fraction, least: int) -> int:
    """The exponent that a format gives to a value: that of its leading bit, or of the least normal number."""
    if value == 0:
        return least
    size = abs(value)
    found = size.numerator.bit_length() - size.denominator.bit_length()
    return max(found if Fraction(2) ** found <= size else found - 1, least)


def _tensor_core(
    a: np.ndarray, b: np.ndarray, accumulator: np.float32, products: int, bits: int, least: int
) -> Fraction:
    """One element, in exact fractions."""
    total = Fraction(float(accumulator))
    for start in range(0, len(a), products):
        pairs = [
            (Fraction(float(x)), Fraction(float(y)))
            for x, y in zip(a[start : start + products], b[start : start + products], strict=True)
            if x != 0 and y != 0
        ]
        top = max([_exponent(total, -126), *(_exponent(x, least) + _exponent(y, least) for x, y in pairs)])
        unit = Fraction(2) ** (top - bits)
        total = unit * sum(int(term / unit) for term in (total, *(x * y for x, y in pairs)))
        last = Fraction(2) ** (_exponent(total, -126) - 23)
        total = last * int(total / last)
    return total


@pytest.mark.parametrize(("products", "bits"), [(16, 25), (8, 24)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1.0, 2.0**-14, 2.0**-68], ids=["", "fp16 subnormals", "float32 subnormals"])
def test_fused_is_the_published_arithmetic(products: int, bits: int, dtype: torch.dtype, scale: float) -> None:
    least = {torch.bfloat16: -126, torch.float16: -14}[dtype]
    rng = np.random.default_rng(products)
    for k in (1, products, 2 * products, 40):
        # Wide exponents and zeros, and cancellation: what is cut off must show.
        a, b = (
            torch.from_numpy(
                scale * rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 4, shape) * (rng.random(shape) > 0.2)
            )
            .to(dtype)
            .float()
            .numpy()
            for shape in ((4, k), (k, 4))
        )
        c = (rng.standard_normal((4, 4)) * scale**2).astype(np.float32)
        c[0] = 0
        c[1] = (-a.astype(np.float64) @ b)[1]
        found = fused(a, b, c, products=products, bits=bits, least=2.0**least)
        for i, j in np.ndindex(4, 4):
            assert Fraction(float(found[i, j])) == _tensor_core(a[i], b[:, j], c[i, j], products, bits, least)


def test_fused_does_not_depend_on_the_order_within_a_block() -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(shape, np.float32) for shape in ((16, 64), (64, 16), (16, 16)))
    a, b = (widen(narrow(x, "bf16"), "bf16") for x in (a, b))
    model: dict[str, Any] = {"products": 16, "bits": 25, "least": 2.0**-126}
    within = (np.arange(64).reshape(4, 16)[:, rng.permutation(16)]).ravel()
    across = np.roll(np.arange(64), 5)
    assert _bits(fused(a[:, within], b[within], c, **model)) == _bits(fused(a, b, c, **model))
    assert _bits(fused(a[:, across], b[across], c, **model)) != _bits(fused(a, b, c, **model))


@pytest.mark.parametrize("model", [sequential, lambda a, b, c: fused(a, b, c, products=16, bits=25, least=2.0**-126)])
@pytest.mark.parametrize("where", ["a", "b", "accumulator"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("k", [3, 40], ids=["first block", "last block"])
def test_what_is_not_finite_spreads_to_its_row_and_column_and_no_further(
    model: Callable[..., np.ndarray], where: str, value: float, k: int
) -> None:
    rng = np.random.default_rng(3)
    operands = {
        "a": rng.standard_normal((4, 48), np.float32),
        "b": rng.standard_normal((48, 5), np.float32),
        "accumulator": rng.standard_normal((4, 5), np.float32),
    }
    clean = model(*operands.values())
    operands["b"][k, 4] = 0  # infinity times zero
    before = model(*operands.values())
    operands[where][{"a": (1, k), "b": (k, 2), "accumulator": (1, 2)}[where]] = value
    found = model(*operands.values())
    touched = np.zeros((4, 5), bool)
    touched[{"a": np.s_[1, :], "b": np.s_[:, 2], "accumulator": np.s_[1, 2]}[where]] = True
    assert np.isfinite(clean).all()
    assert _bits(found[~touched]) == _bits(before[~touched])
    assert not np.isfinite(found[touched]).any()
    with np.errstate(invalid="ignore"):
        right = _loop(*operands.values())
    assert np.array_equal(found[touched], right[touched], equal_nan=True)


def test_fused_overflows_to_infinity_and_stays_there() -> None:
    big = np.full((1, 32), 2.0**100, np.float32)
    model: dict[str, Any] = {"products": 16, "bits": 25, "least": 2.0**-126}
    zero = np.zeros((1, 1), np.float32)
    assert fused(big, big.T, zero, **model).item() == np.inf
    assert fused(-big, big.T, zero, **model).item() == -np.inf
    back = big.copy()
    back[0, 16:] *= -1
    # The second block is as large and negative, but infinity less a number is infinity.
    assert fused(back, big.T, zero, **model).item() == np.inf
    back[0, 16] = -np.inf
    assert _bits(fused(back, big.T, zero, **model)) == [0x7FFFFFFF]
    assert sequential(big, big.T, zero).item() == np.inf


# ---- reductions, and NaN


def test_max_passes_over_nan_as_the_gpu_does() -> None:
    # Not a fault: NVIDIA's max.f32 does the same. A poisoned key shows in the output and not in the running maximum.
    values = _normal(4, 8)
    values[1, 3] = values[2, :7] = float("nan")
    right = [row[~row.isnan()].max().item() for row in values]
    for install in (repairs.uninstall, repairs.install):
        install()
        out = torch.empty(4)
        _row_max[(1,)](values, out, 4, 8)
        assert out.tolist() == right
    _clear_core()


@pytest.mark.usefixtures("stock")
def test_stock_warns_where_all_are_nan() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _row_max[(1,)](torch.full((4, 8), float("nan")), torch.empty(4), 4, 8)
    assert caught, FIXED


@pytest.mark.usefixtures("repaired")
def test_where_all_are_nan_so_is_the_maximum() -> None:
    values = _normal(4, 8)
    values[2] = float("nan")
    out = torch.empty(4)
    _row_max[(1,)](values, out, 4, 8)
    assert out.isnan().tolist() == [False, False, True, False]


# ---- helpers


def _launch_helpers(times: int) -> torch.Tensor:
    values, out = _normal(16), torch.empty(16)
    _helpers[(1,)](values, out, 16, times)
    return out


def _patches(monkeypatch: pytest.MonkeyPatch, times: int) -> int:
    calls = []
    patch = interpreter._patch_builtin
    with monkeypatch.context() as patched:
        patched.setattr(interpreter, "_patch_builtin", lambda *args: (calls.append(args), patch(*args))[1])
        _launch_helpers(times)
    return len(calls)


@pytest.mark.usefixtures("stock")
def test_stock_patches_for_every_call_of_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _patches(monkeypatch, 4) > _patches(monkeypatch, 1), FIXED


@pytest.mark.usefixtures("repaired")
def test_helpers_cost_no_more_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    # A module's helpers count once: this one's, with the kernel, and Triton's own.
    assert _patches(monkeypatch, 4) == _patches(monkeypatch, 1)


def test_helpers_compute_the_same() -> None:
    repairs.uninstall()
    right = _launch_helpers(3)
    _clear_core()
    repairs.install()
    assert torch.equal(_launch_helpers(3), right)
    assert torch.equal(_launch_helpers(3), right)


def _language() -> list[dict[str, Any]]:
    return [dict(vars(owner)) for owner in (tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)]


@pytest.mark.usefixtures("stock")
def test_stock_leaves_a_patched_language_behind() -> None:
    _clear_core()
    before = _language()
    _launch_helpers(1)
    assert _language()[0] == before[0]
    assert _language()[1] != before[1], FIXED


@pytest.mark.usefixtures("repaired")
def test_the_language_is_as_it_was_after_a_launch() -> None:
    _clear_core()
    before = _language()
    _launch_helpers(2)
    assert _language() == before


@pytest.mark.usefixtures("repaired")
def test_the_language_is_as_it_was_after_a_launch_that_failed() -> None:
    _clear_core()
    before = _language()
    values = torch.ones(16, dtype=torch.bfloat16)
    with pytest.raises(Unrepaired):
        _refused_in_a_helper[(1,)](values, values, 16)
    assert _language() == before
    assert torch.equal(_launch_helpers(1), _launch_helpers(1))


# ---- what is remembered


def _made(shape: list[int]) -> tuple[Any, Any, Any]:
    """A tensor of float32, its type's name, and all else that Triton says of both."""
    block = tl.block_type(tl.float32, shape)
    tensor = tl.core.tensor(interpreter.TensorHandle(np.zeros(shape, np.float32), tl.float32), block)
    kinds = {name: str(value) for name, value in {**vars(tensor), **vars(block)}.items() if name != "handle"}
    return [int(size) for size in tensor.shape], int(tensor.numel), kinds


@pytest.mark.parametrize("shape", [[1], [64], [16, 1], [1, 16], [16, 32], [2, 4, 8]])
def test_a_tensor_of_a_shape_that_was_met_before_is_as_triton_makes_it(shape: list[int]) -> None:
    repairs.uninstall()
    stock = _made(shape)
    repairs.install()
    assert _made(shape) == stock, "met for the first time"
    assert _made(shape) == stock, "met again"


def test_every_element_type_has_triton_s_own_numpy_type() -> None:
    kinds = [tl.int1, tl.int8, tl.int32, tl.int64, tl.float16, tl.bfloat16, tl.float32, tl.float8e4nv]
    kinds += [tl.block_type(kind, [4]) for kind in kinds] + [tl.pointer_type(tl.float32)]
    kinds.append(tl.block_type(tl.pointer_type(tl.bfloat16), [4]))
    repairs.uninstall()
    stock = [interpreter._get_np_dtype(kind) for kind in kinds]
    repairs.install()
    assert [interpreter._get_np_dtype(kind) for kind in kinds] == stock
    assert [interpreter._get_np_dtype(kind) for kind in kinds] == stock


def test_shapes_and_types_compare_as_in_triton() -> None:
    one, shape = tl.constexpr(1), tl.block_type(tl.int8, [1, 16]).shape
    others: list[Any] = [shape, tl.block_type(tl.int8, [16, 1]).shape, [1, 16], [one, 16], (1, 16), [1], []]
    kinds: list[Any] = [tl.int8, tl.constexpr(tl.int8), tl.uint8, tl.pointer_type(tl.int8), "int8", None]
    kinds.append(tl.block_type(tl.int8, [4]))

    def compared() -> list[bool]:
        found = [bool(shape == other) for other in others] + [bool(shape != other) for other in others]
        return found + [bool(left == right) for left in kinds for right in kinds]

    repairs.uninstall()
    stock = compared()
    repairs.install()
    assert compared() == stock
    assert True in stock
    assert False in stock
