"""mma.sync: products of small matrices that a warp holds in registers, by the models of each architecture."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...repairs import fused
from ..bits import Array, fma64, from_bf16
from ..machine import Act, Group, Mask, Site
from ..memory import Fault
from .registry import instruction

__all__ = ["multiplied"]

_CORES = {80: (8, 24), 90: (16, 25)}
"""Products that are summed at once, and fractional bits kept, of 16-bit operands; 8.x and 9.x. Later ones are taken for
9.x: no published model says more."""

_LEAST = {"f16": 2.0**-14, "bf16": 2.0**-126}


def multiplied(target: int, kind: str, a: Array, b: Array, total: Array) -> Array:
    """total + a @ b. a [..., M, K] and b [..., K, N] uint16 of `kind`, total float32."""
    products, bits = _CORES[80 if target < 90 else 90]
    widen: Callable[[Array], Array] = from_bf16 if kind == "bf16" else _from_f16
    return fused(widen(a), widen(b), total, products=products, bits=bits, least=_LEAST[kind])


def _from_f16(bits: Array) -> Array:
    return bits.view(np.float16).astype(np.float32)


_LANE = np.arange(32)
_GROUP, _PLACE = _LANE // 4, _LANE % 4


@instruction("mma.sync.aligned")
def _mma(site: Site) -> Act:
    parts = site.instruction.parts[3:]
    if len(parts) != 7 or parts[1:3] != ["row", "col"]:
        raise site.instruction.refuse()
    shape, kinds = parts[0], parts[3:]
    if shape == "m16n8k16" and kinds in (["f32", "bf16", "bf16", "f32"], ["f32", "f16", "f16", "f32"]):
        return _halves(site, kinds[1])
    if kinds == ["f64"] * 4 and shape in _DOUBLES:
        return _doubles(site, shape)
    raise site.instruction.refuse()


def _operands(site: Site, kinds: list[str], counts: list[int]) -> list[list[Callable[[Group], Array]]]:
    groups = [site.several(operand) for operand in site.instruction.operands[1:]]
    if list(map(len, groups)) != counts:
        raise site.instruction.refuse()
    return [[site.reader(name, kind) for name in names] for names, kind in zip(groups, kinds, strict=True)]


def _warps(group: Group, reads: list[Callable[[Group], Array]]) -> list[Array]:
    """[CTAs, warps, 32] each."""
    return [group.spread(read(group)).reshape(group.ctas, -1, 32) for read in reads]


def _whole(mask: Mask) -> None:
    if mask is not None:
        raise Fault("not all threads of a warp take part")


def _halves(site: Site, kind: str) -> Act:
    reads = _operands(site, ["u32", "u32", "f32"], [4, 2, 4])
    writes = [site.writer(part) for part in site.several(site.instruction.operands[0])]
    target = site.kernel.target

    def act(group: Group, mask: Mask) -> None:
        _whole(mask)
        left, right, sums = (_warps(group, each) for each in reads)
        shape = left[0].shape[:2]
        a, b = np.empty((*shape, 16, 16), np.uint16), np.empty((*shape, 16, 8), np.uint16)
        total = np.empty((*shape, 16, 8), np.float32)
        for value, (row, inner) in zip(left, ((0, 0), (8, 0), (0, 8), (8, 8)), strict=True):
            a[:, :, _GROUP + row, 2 * _PLACE + inner] = value & np.uint32(0xFFFF)
            a[:, :, _GROUP + row, 2 * _PLACE + inner + 1] = value >> np.uint32(16)
        for value, inner in zip(right, (0, 8), strict=True):
            b[:, :, 2 * _PLACE + inner, _GROUP] = value & np.uint32(0xFFFF)
            b[:, :, 2 * _PLACE + inner + 1, _GROUP] = value >> np.uint32(16)
        places = [(_GROUP + row, 2 * _PLACE + column) for row, column in ((0, 0), (0, 1), (8, 0), (8, 1))]
        for value, (rows, columns) in zip(sums, places, strict=True):
            total[:, :, rows, columns] = value
        total = multiplied(target, kind, a, b, total)
        for write, (rows, columns) in zip(writes, places, strict=True):
            write(group, np.ascontiguousarray(total[:, :, rows, columns]).reshape(group.ctas, -1), None)

    return act


_DOUBLES: dict[str, tuple[list[tuple[int, int]], list[int], list[tuple[int, int]], int]] = {
    "m8n8k4": ([(0, 0)], [0], [(0, 0), (0, 1)], 4),
    "m16n8k4": ([(0, 0), (8, 0)], [0], [(0, 0), (0, 1), (8, 0), (8, 1)], 4),
    "m16n8k8": ([(0, 0), (8, 0), (0, 4), (8, 4)], [0, 4], [(0, 0), (0, 1), (8, 0), (8, 1)], 8),
    "m16n8k16": (
        [(row, inner) for inner in (0, 4, 8, 12) for row in (0, 8)],
        [0, 4, 8, 12],
        [(0, 0), (0, 1), (8, 0), (8, 1)],
        16,
    ),
}
"""Of float64: where each register of a thread lies, (row, inner) of A, inner of B, (row, column) of the sum, and K."""


def _doubles(site: Site, shape: str) -> Act:
    lefts, rights, ends, inner = _DOUBLES[shape]
    reads = _operands(site, ["f64"] * 3, [len(lefts), len(rights), len(ends)])
    writes = [site.writer(part) for part in site.several(site.instruction.operands[0])]
    rows = 8 if shape.startswith("m8") else 16

    def act(group: Group, mask: Mask) -> None:
        _whole(mask)
        left, right, sums = (_warps(group, each) for each in reads)
        base = left[0].shape[:2]
        a, b = np.empty((*base, rows, inner)), np.empty((*base, inner, 8))
        total: Array = np.empty((*base, rows, 8))
        for value, (row, k) in zip(left, lefts, strict=True):
            a[:, :, _GROUP + row, _PLACE + k] = value
        for value, k in zip(right, rights, strict=True):
            b[:, :, _PLACE + k, _GROUP] = value
        places = [(_GROUP + row, 2 * _PLACE + column) for row, column in ends]
        for value, (where, columns) in zip(sums, places, strict=True):
            total[:, :, where, columns] = value
        for k in range(inner):
            total = fma64(a[..., :, k, None], b[..., k, None, :], total)
        for write, (where, columns) in zip(writes, places, strict=True):
            write(group, np.ascontiguousarray(total[:, :, where, columns]).reshape(group.ctas, -1), None)

    return act
