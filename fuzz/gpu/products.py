"""A product on the matrix units, by programs of any number of rows."""

# No `from __future__ import annotations`: Triton reads the annotations.
# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"

import triton
import triton.language as tl

__all__ = ["products"]


@triton.jit
def products(
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    STEP: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """out = c + a @ b, float32: a [rows, INNER], b [INNER, COLUMNS], in steps of STEP along INNER.

    CHAINED: the result, rounded to a's dtype, is multiplied by b's transpose [COLUMNS, INNER], as attention does
    with its weights; out is [rows, INNER] then.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    step = tl.arange(0, STEP)
    total = tl.load(c_ptr + row[:, None] * COLUMNS + column[None, :])
    for start in tl.range(0, INNER, STEP):
        place = start + step
        a = tl.load(a_ptr + row[:, None] * INNER + place[None, :])
        b = tl.load(b_ptr + place[:, None] * COLUMNS + column[None, :])
        total = tl.dot(a, b, total)
    if CHAINED:
        inner = tl.arange(0, INNER)
        turned = tl.load(b_ptr + inner[None, :] * COLUMNS + column[:, None])
        again = tl.dot(total.to(a_ptr.dtype.element_ty), turned)
        tl.store(out_ptr + row[:, None] * INNER + inner[None, :], again)
    else:
        tl.store(out_ptr + row[:, None] * COLUMNS + column[None, :], total)
