"""Each arithmetic instruction of the emulator, against what PTX says of it, said again with Python's own integers and
fractions."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product
from random import Random

import pytest

from properties.attention.compiled import Unsupported

from .ptx import executed

# ---- integers --------------------------------------------------------------------------------------------------------


def edges(bits: int) -> list[int]:
    random = Random(bits)
    top = 1 << bits
    return [
        0,
        1,
        2,
        7,
        31,
        32,
        top // 2 - 1,
        top // 2,
        top // 2 + 1,
        top - 2,
        top - 1,
        *(random.randrange(top) for _ in range(6)),
    ]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def quotient(a: int, b: int) -> int:
    """Towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


TWO: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("add.{k}", lambda a, b: a + b),
    "sub": ("sub.{k}", lambda a, b: a - b),
    "mul.lo": ("mul.lo.{k}", lambda a, b: a * b),
    "min": ("min.{k}", min),
    "max": ("max.{k}", max),
    "div": ("div.{k}", quotient),
    "rem": ("rem.{k}", lambda a, b: a - quotient(a, b) * b),
}


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("name", TWO)
def test_two_integers(name: str, kind: str) -> None:
    text, expected = TWO[name]
    bits = int(kind[1:])
    rows = [(a, b) for a, b in product(edges(bits), repeat=2) if b or name not in ("div", "rem")]
    if name in ("div", "rem"):  # the one quotient that does not fit is undefined
        rows = [(a, b) for a, b in rows if kind[0] == "u" or (a, b) != (1 << (bits - 1), (1 << bits) - 1)]
    read = (lambda value: signed(value, bits)) if kind[0] == "s" else (lambda value: value)
    got = executed(text.format(k=kind) + " {d}, {0}, {1};", [bits, bits], bits, rows)
    assert got == [expected(read(a), read(b)) % (1 << bits) for a, b in rows]


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_wide_products(kind: str) -> None:
    rows = [(a, b, c) for (a, b), c in product(product(edges(32), repeat=2), (0, 1 << 63, 2**64 - 5))]
    read = (lambda value: signed(value, 32)) if kind[0] == "s" else (lambda value: value)
    wide = [read(a) * read(b) for a, b, _ in rows]
    assert executed(f"mul.wide.{kind} {{d}}, {{0}}, {{1}};", [32, 32, 64], 64, rows) == [x % 2**64 for x in wide]
    got = executed(f"mad.wide.{kind} {{d}}, {{0}}, {{1}}, {{2}};", [32, 32, 64], 64, rows)
    assert got == [(x + c) % 2**64 for x, (_, _, c) in zip(wide, rows, strict=True)]
    high = executed(f"mul.hi.{kind} {{d}}, {{0}}, {{1}};", [32, 32, 64], 32, rows)
    assert high == [(x >> 32) % 2**32 for x in wide]


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_upper_halves_of_products(kind: str) -> None:
    bits = int(kind[1:])
    rows = list(product(edges(bits), repeat=2))
    read = (lambda value: signed(value, bits)) if kind[0] == "s" else (lambda value: value)
    got = executed(f"mul.hi.{kind} {{d}}, {{0}}, {{1}};", [bits, bits], bits, rows)
    assert got == [(read(a) * read(b) >> bits) % (1 << bits) for a, b in rows]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts(bits: int) -> None:
    rows = list(product(edges(bits), (0, 1, 5, bits - 1, bits, bits + 1, 255, 2**32 - 1)))
    left = executed(f"shl.b{bits} {{d}}, {{0}}, {{1}};", [bits, 32], bits, rows)
    assert left == [(a << b) % (1 << bits) if b < bits else 0 for a, b in rows]
    right = executed(f"shr.u{bits} {{d}}, {{0}}, {{1}};", [bits, 32], bits, rows)
    assert right == [a >> b if b < bits else 0 for a, b in rows]
    arithmetic = executed(f"shr.s{bits} {{d}}, {{0}}, {{1}};", [bits, 32], bits, rows)
    assert arithmetic == [(signed(a, bits) >> min(b, bits)) % (1 << bits) for a, b in rows]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    rows = list(product(edges(bits), repeat=2))
    for name, expected in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
        assert executed(f"{name}.b{bits} {{d}}, {{0}}, {{1}};", [bits] * 2, bits, rows) == [
            expected(*row) for row in rows
        ]
    assert executed(f"not.b{bits} {{d}}, {{0}};", [bits] * 2, bits, rows) == [(1 << bits) - 1 - a for a, _ in rows]


def test_predicates() -> None:
    rows = list(product((0, 1), repeat=2))
    for name, expected in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
        assert executed(f"{name}.pred {{d}}, {{0}}, {{1}};", [1, 1], 1, rows) == [expected(*row) for row in rows]


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64", "b16"])
@pytest.mark.parametrize("how", COMPARISONS)
def test_comparisons_of_integers(how: str, kind: str) -> None:
    bits = int(kind[1:])
    rows = list(product(edges(bits), repeat=2))
    read = (lambda value: signed(value, bits)) if kind[0] == "s" else (lambda value: value)
    got = executed(f"setp.{how}.{kind} {{d}}, {{0}}, {{1}};", [bits, bits], 1, rows)
    assert got == [COMPARISONS[how](read(a), read(b)) for a, b in rows]


def test_fields_of_bits() -> None:
    rows = list(product(edges(32), (0, 1, 4, 17, 31, 32, 40), (0, 1, 3, 8, 32, 33)))

    def field(value: int, position: int, length: int, sign: bool) -> int:
        at = [value >> place & 1 if place < 32 else value >> 31 & sign for place in range(position, position + length)]
        total = sum(bit << place for place, bit in enumerate(at[:32]))
        if sign and 0 < len(at) < 32 and at[-1]:
            total += 2**32 - (1 << len(at))
        return total

    for kind, sign in (("u32", False), ("s32", True)):
        got = executed(f"bfe.{kind} {{d}}, {{0}}, {{1}}, {{2}};", [32, 32, 32], 32, rows)
        assert got == [field(*row, sign) for row in rows], kind


@pytest.mark.parametrize("how", ["l", "r"])
@pytest.mark.parametrize("beyond", ["wrap", "clamp"])
def test_two_words_are_shifted_as_one(how: str, beyond: str) -> None:
    pairs = list(zip(edges(32), reversed(edges(32)), strict=True))
    rows = [(low, high, by) for (low, high), by in product(pairs, (0, 1, 28, 31, 32, 40))]

    def word(low: int, high: int, by: int) -> int:
        count = by % 32 if beyond == "wrap" else min(by, 32)
        both = high << 32 | low
        return (both << count) % 2**64 >> 32 if how == "l" else (both >> count) % 2**32

    got = executed(f"shf.{how}.{beyond}.b32 {{d}}, {{0}}, {{1}}, {{2}};", [32, 32, 32], 32, rows)
    assert got == [word(*row) for row in rows]


def test_bytes_are_picked() -> None:
    random = Random(1)
    rows = [tuple(random.randrange(2**32) for _ in range(3)) for _ in range(64)]

    def picked(low: int, high: int, selector: int) -> int:
        whole = (low | high << 32).to_bytes(8, "little")
        chosen = [selector >> 4 * place & 15 for place in range(4)]
        out = [255 * (whole[one & 7] >> 7) if one & 8 else whole[one & 7] for one in chosen]
        return int.from_bytes(bytes(out), "little")

    assert executed("prmt.b32 {d}, {0}, {1}, {2};", [32, 32, 32], 32, rows) == [picked(*row) for row in rows]


def test_widening_and_narrowing_of_integers() -> None:
    for to, given in product(("s16", "u16", "s32", "u32", "s64", "u64"), repeat=2):
        a, b = int(to[1:]), int(given[1:])
        rows = [(value,) for value in edges(b)]
        got = executed(f"cvt.{to}.{given} {{d}}, {{0}};", [b], a, rows)
        read = (lambda value, b=b: signed(value, b)) if given[0] == "s" else (lambda value: value)
        assert got == [read(value) % (1 << a) for (value,) in rows], (to, given)


# ---- floats, exactly -------------------------------------------------------------------------------------------------

FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
"""Bits of the exponent and of the fraction."""


def decoded(bits: int, form: str) -> Fraction | float:
    """The number; a float if it is infinite or none."""
    exponent_bits, fraction_bits = FORMATS[form]
    width = 1 + exponent_bits + fraction_bits
    sign = -1 if bits >> (width - 1) else 1
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    whole = fraction if exponent == 0 else fraction + (1 << fraction_bits)
    return sign * whole * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def encoded(value: Fraction, form: str, *, negative: bool = False) -> int:
    """To nearest, ties to even. negative: the sign of a zero."""
    exponent_bits, fraction_bits = FORMATS[form]
    width, bias = 1 + exponent_bits + fraction_bits, (1 << (exponent_bits - 1)) - 1
    sign = 1 if value < 0 or (value == 0 and negative) else 0
    size = abs(value)
    if not size:
        return sign << (width - 1)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    units = size / Fraction(2) ** (exponent - fraction_bits)
    whole, rest = divmod(units.numerator, units.denominator)
    half = Fraction(rest, units.denominator)
    if half > Fraction(1, 2) or (half == Fraction(1, 2) and whole & 1):
        whole += 1
    if whole >> (fraction_bits + 1):
        whole, exponent = whole >> 1, exponent + 1
    if exponent > bias:
        return sign << (width - 1) | ((1 << exponent_bits) - 1) << fraction_bits
    biased = exponent + bias if whole >> fraction_bits else 0
    return sign << (width - 1) | biased << fraction_bits | whole & ((1 << fraction_bits) - 1)


NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def is_negative(bits: int, form: str) -> bool:
    return bool(bits >> sum(FORMATS[form]))


def some(form: str, count: int = 20) -> list[int]:
    exponent_bits, fraction_bits = FORMATS[form]
    width = 1 + exponent_bits + fraction_bits
    random = Random(form)
    one = ((1 << (exponent_bits - 1)) - 1) << fraction_bits
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    special = [
        0,
        1,
        (1 << fraction_bits) - 1,
        1 << fraction_bits,
        one,
        one + 1,
        one - 1,
        infinity - 1,
        infinity,
        infinity + 1,
    ]
    near = [
        one + random.randrange(1 << fraction_bits) + (random.randrange(-3, 4) << fraction_bits) for _ in range(count)
    ]
    anything = [random.randrange(1 << (width - 1)) for _ in range(count // 2)]
    values = [*special, *near, *anything]
    return [*values, *(value | 1 << (width - 1) for value in values)]


def plain(name: str, a: float | Fraction, b: float | Fraction) -> float | Fraction:
    """With infinities and NaNs as IEEE 754 has them. Of two numbers exactly."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return {"add": a + b, "sub": a - b, "mul": a * b}[name]
    x, y = (value if isinstance(value, float) else float((value > 0) - (value < 0)) for value in (a, b))
    return {"add": x + y, "sub": x - y, "mul": x * y}[name]


def rounded(exact: float | Fraction, form: str, *, negative: bool) -> int:
    if isinstance(exact, Fraction):
        return encoded(exact, form, negative=negative)
    if math.isnan(exact):
        return NAN[form]
    exponent_bits, fraction_bits = FORMATS[form]
    return int(exact < 0) << sum(FORMATS[form]) | ((1 << exponent_bits) - 1) << fraction_bits


def zero_is_negative(name: str, a: int, b: int, form: str) -> bool:
    """Of an exact zero: a product has the product of the signs, a sum is -0 of two -0 alone."""
    left, right = is_negative(a, form), is_negative(b, form)
    if name == "mul":
        return left != right
    return left and (right if name == "add" else not right)


@pytest.mark.parametrize("form", ["f32", "f64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic_is_rounded_once(name: str, form: str) -> None:
    bits = int(form[1:])
    values = some(form)
    rows = [(a, b) for a in values[::2] for b in values[1::3]]
    expected = [
        rounded(plain(name, decoded(a, form), decoded(b, form)), form, negative=zero_is_negative(name, a, b, form))
        for a, b in rows
    ]
    assert executed(f"{name}.rn.{form} {{d}}, {{0}}, {{1}};", [bits, bits], bits, rows) == expected


@pytest.mark.parametrize("form", ["f32", "f64"])
def test_division_is_rounded_once(form: str) -> None:
    bits = int(form[1:])
    values = [value for value in some(form) if isinstance(decoded(value, form), Fraction)]
    rows = [(a, b) for a in values[::2] for b in values[1::3] if decoded(b, form)]
    expected = [
        encoded(decoded(a, form) / decoded(b, form), form, negative=is_negative(a, form) != is_negative(b, form))  # type: ignore[arg-type]
        for a, b in rows
    ]
    assert executed(f"div.rn.{form} {{d}}, {{0}}, {{1}};", [bits, bits], bits, rows) == expected


@pytest.mark.parametrize("form", ["f32", "f64"])
def test_a_fused_multiplication_is_rounded_once(form: str) -> None:
    bits = int(form[1:])
    random = Random(form)
    _, fraction_bits = FORMATS[form]
    rows = []
    for _ in range(400):
        a, b = (random.choice(some(form)[10:30]) for _ in range(2))
        # Near a tie: the sum's last bits decide.
        product_ = decoded(a, form) * decoded(b, form)
        c = encoded(-product_ * random.choice((1, 1 + Fraction(1, 1 << fraction_bits), Fraction(1, 1 << 20), 3)), form)  # type: ignore[operator,arg-type]
        rows.append((a, b, random.choice((c, random.choice(some(form)[10:30])))))
    # The product is a tie, which a third number that is far too small for a longer sum decides.
    step = Fraction(1, 1 << (fraction_bits + 1) // 2)
    a, b = encoded(1 + step, form), encoded(1 + (step if form == "f32" else step / 2), form)
    rows += [(a, b, encoded(sign * Fraction(1, 1 << 90), form)) for sign in (-1, 0, 1)]
    expected = []
    for a, b, c in rows:
        exact = decoded(a, form) * decoded(b, form) + decoded(c, form)
        assert isinstance(exact, Fraction)
        expected.append(encoded(exact, form))
    assert executed(f"fma.rn.{form} {{d}}, {{0}}, {{1}}, {{2}};", [bits] * 3, bits, rows) == expected


@pytest.mark.parametrize("form", ["f32", "f64"])
@pytest.mark.parametrize("how", [*COMPARISONS, *(f"{how}u" for how in COMPARISONS), "num", "nan"])
def test_comparisons_of_floats(how: str, form: str) -> None:
    bits = int(form[1:])
    values = some(form)
    rows = [(a, b) for a in values[::2] for b in values[1::3]]

    def expected(a: int, b: int) -> bool:
        x, y = decoded(a, form), decoded(b, form)
        unordered = any(isinstance(value, float) and math.isnan(value) for value in (x, y))
        if how in ("num", "nan"):
            return unordered == (how == "nan")
        if unordered:
            return how.endswith("u")
        return COMPARISONS[how[:2]](x, y)  # type: ignore[arg-type]

    got = executed(f"setp.{how}.{form} {{d}}, {{0}}, {{1}};", [bits, bits], 1, rows)
    assert got == [expected(*row) for row in rows]


@pytest.mark.parametrize("form", ["f32", "f64"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_of_a_number_and_a_nan_the_number_is_taken(name: str, form: str) -> None:
    bits = int(form[1:])
    values = some(form)
    rows = [(a, b) for a in values[::2] for b in values[1::3]]

    def expected(a: int, b: int) -> int:
        x, y = decoded(a, form), decoded(b, form)
        lost = [isinstance(value, float) and math.isnan(value) for value in (x, y)]
        if all(lost):
            return NAN[form]
        if any(lost):
            return b if lost[0] else a
        if x == y == 0:  # -0 is below +0
            negative = [is_negative(value, form) for value in (a, b)]
            chosen = any(negative) if name == "min" else all(negative)
            return encoded(Fraction(0), form, negative=chosen)
        return a if (x < y) == (name == "min") else b

    got = executed(f"{name}.{form} {{d}}, {{0}}, {{1}};", [bits, bits], bits, rows)
    assert got == [expected(*row) for row in rows]


CONVERSIONS = [
    ("f32", "f64", "rn."), ("f64", "f32", ""), ("f32", "f16", ""), ("f16", "f32", "rn."), ("f32", "bf16", ""),
    ("bf16", "f32", "rn."), ("bf16", "f16", "rn."), ("f64", "f16", ""),
]  # fmt: skip


@pytest.mark.parametrize(("to", "given", "how"), CONVERSIONS, ids="-".join)
def test_conversions_of_floats(to: str, given: str, how: str) -> None:
    widths = {form: 1 + sum(FORMATS[form]) for form in (to, given)}
    values = some(given, 60)
    if widths[to] < widths[given]:  # ties, and their neighbours
        shift = FORMATS[given][1] - FORMATS[to][1]
        base = encoded(Fraction(5, 4), given)
        values += [base + (place << shift) + (1 << (shift - 1)) + step for place in range(6) for step in (-1, 0, 1)]
    expected = []
    for value in values:
        number = decoded(value, given)
        expected.append(rounded(number, to, negative=is_negative(value, given)))
    got = executed(f"cvt.{how}{to}.{given} {{d}}, {{0}};", [widths[given]], widths[to], [(value,) for value in values])
    assert got == expected


@pytest.mark.parametrize("form", ["f16", "bf16"])
def test_two_floats_become_one_register_the_first_above(form: str) -> None:
    values = some("f32", 60)
    rows = list(pairwise(values))
    halves = [rounded(decoded(value, "f32"), form, negative=is_negative(value, "f32")) for value in values]
    expected = [high << 16 | low for high, low in pairwise(halves)]
    assert executed(f"cvt.rn.{form}x2.f32 {{d}}, {{0}}, {{1}};", [32, 32], 32, rows) == expected


def e4m3(bits: int) -> float | Fraction:
    sign, exponent, fraction = -1 if bits & 128 else 1, bits >> 3 & 15, bits & 7
    if bits & 127 == 127:
        return math.nan
    return sign * (fraction + (8 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 10)


def test_every_fp8_value_becomes_itself() -> None:
    rows = [(low | high << 8,) for low, high in zip(range(256), reversed(range(256)), strict=True)]
    halves = [rounded(e4m3(byte), "f16", negative=byte >= 128) for byte in range(256)]
    expected = [halves[row & 255] | halves[row >> 8] << 16 for (row,) in rows]
    assert executed("cvt.rn.f16x2.e4m3x2 {d}, {0};", [16], 32, rows) == expected


def test_floats_of_integers() -> None:
    for form, kind in product(("f32", "f64"), ("s32", "u32", "s64", "u64")):
        bits, width = int(kind[1:]), int(form[1:])
        values = edges(bits)
        read = (lambda value, bits=bits: signed(value, bits)) if kind[0] == "s" else (lambda value: value)
        got = executed(f"cvt.rn.{form}.{kind} {{d}}, {{0}};", [bits], width, [(value,) for value in values])
        assert got == [encoded(Fraction(read(value)), form) for value in values], (form, kind)


def test_powers_of_two_are_near_and_subnormal_numbers_are_zero() -> None:
    values = [
        struct.unpack("<I", struct.pack("<f", x))[0]
        for x in (0.0, 1.0, -1.0, 0.5, -126.0, -126.5, 127.9, 128.0, -200.0, 3.3)
    ]
    got = executed("ex2.approx.ftz.f32 {d}, {0};", [32], 32, [(value,) for value in values])
    exact = [1.0, 2.0, 0.5, 2**0.5, 2.0**-126, 0.0, 2**127.9, math.inf, 0.0, 2**3.3]
    for bits, wanted in zip(got, exact, strict=True):
        (number,) = struct.unpack("<f", struct.pack("<I", bits))
        assert number == wanted or abs(number - wanted) <= 2e-6 * wanted


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "frobnicate.b32 {d}, {0};",
        "add.sat.s32 {d}, {0}, {1};",
        "add.rz.f32 {d}, {0}, {1};",
        "mul.hi.sat.s32 {d}, {0}, {1};",
        "cvt.rz.f32.f64 {d}, %rd1;",
        "cvt.f32.f64 {d}, %rd1;",
        "setp.eq.and.s32 {d}, {0}, {1}, %p1;",
        "add.s64 {d}, {0}, {1};",
        "prmt.b32.f4e {d}, {0}, {1}, 0;",
        "shfl.sync.bfly.b32 {d}, {0}, 1, 31, 15;",
        "ld.local.b32 {d}, [%rd1];",
        "atom.global.add.u32 {d}, [%rd1], 1;",
        "bar.sync 1;",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {d}, {0}, {0}, {0};",
    ],
)
def test_what_is_not_emulated_is_refused_by_name(text: str) -> None:
    with pytest.raises(Unsupported, match=text.split()[0].replace(".", r"\.")):
        executed(text, [32, 32], 32, [(1, 2)])
