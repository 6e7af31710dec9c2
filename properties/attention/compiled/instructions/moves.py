"""Values to registers and memory: mov, selp, prmt, ld, st."""

from __future__ import annotations

import re

import numpy as np

from ..bits import DTYPES, UNSIGNED, Array
from ..machine import Act, Group, Mask, Site
from .registry import instruction, only

__all__: list[str] = []

_HINTS = frozenset(
    {"nc", "ca", "cg", "cs", "cv", "wb", "wt", "relaxed", "gpu", "volatile", "L1::evict_last", "L1::evict_first",
     "L1::evict_normal", "L1::no_allocate", "L2::evict_last", "L2::evict_first", "L2::128B", "L2::256B"}
)  # fmt: skip
"""Of how caches serve an access; no number depends on them."""


@instruction("mov")
def _mov(site: Site) -> Act:
    only(site)
    to, given = site.instruction.operands
    kind = site.instruction.parts[-1]
    if kind not in DTYPES:
        raise site.instruction.refuse(f"type {kind}")
    if given.startswith("{"):
        return _joined(site, site.several(given), to)
    if to.startswith("{"):
        return _split(site, site.several(to), given)
    write, read = site.writer(to), site.reader(given, kind)
    return lambda group, mask: write(group, read(group), mask)


def _joined(site: Site, parts: list[str], to: str) -> Act:
    whole = 8 * np.dtype(DTYPES[site.instruction.parts[-1]]).itemsize
    small = whole // len(parts)
    write = site.writer(to)
    reads = [site.reader(part, f"u{small}") for part in parts]
    wide = UNSIGNED[whole]

    def act(group: Group, mask: Mask) -> None:
        total: Array = np.zeros((1, 1), wide)
        for place, read in enumerate(reads):
            total = total | (read(group).astype(wide) << np.array(place * small, wide))
        write(group, total, mask)

    return act


def _split(site: Site, parts: list[str], given: str) -> Act:
    whole = 8 * np.dtype(DTYPES[site.instruction.parts[-1]]).itemsize
    small = whole // len(parts)
    read = site.reader(given, f"u{whole}")
    writes = [site.writer(part) for part in parts]

    def act(group: Group, mask: Mask) -> None:
        value = read(group)
        for place, write in enumerate(writes):
            write(group, (value >> np.array(place * small, value.dtype)).astype(UNSIGNED[small]), mask)

    return act


@instruction("selp")
def _selp(site: Site) -> Act:
    only(site)
    to, one, other, which = site.instruction.operands
    kind = site.instruction.parts[-1]
    write = site.writer(to)
    reads = site.reader(one, kind), site.reader(other, kind)
    choose = site.reader(which, "pred")

    def act(group: Group, mask: Mask) -> None:
        write(group, np.where(choose(group), reads[0](group), reads[1](group)), mask)

    return act


@instruction("prmt.b32")
def _prmt(site: Site) -> Act:
    only(site)
    to, low, high, selector = site.instruction.operands
    write = site.writer(to)
    reads = [site.reader(operand, "u32") for operand in (low, high, selector)]

    def act(group: Group, mask: Mask) -> None:
        first, second, select = (read(group).astype(np.uint64) for read in reads)
        whole = first | (second << np.uint64(32))
        total: Array = np.zeros((1, 1), np.uint32)
        for place in range(4):
            nibble = (select >> np.uint64(4 * place)) & np.uint64(15)
            byte = (whole >> (np.uint64(8) * (nibble & np.uint64(7)))) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            chosen = np.where(nibble & np.uint64(8), sign, byte)
            total = total | (chosen.astype(np.uint32) << np.uint32(8 * place))
        write(group, total, mask)

    return act


@instruction("ld.param")
def _ld_param(site: Site) -> Act:
    to, given = site.instruction.operands
    kind = site.instruction.parts[-1]
    name = given.strip("[] ")
    if name not in dict(site.kernel.parameters):
        raise site.instruction.refuse("no such parameter")
    write = site.writer(to, extend=kind if kind[0] in "su" else "u")

    def act(group: Group, mask: Mask) -> None:
        value = group.machine.parameters[name]
        if value.dtype.itemsize != np.dtype(DTYPES[kind]).itemsize:
            raise site.instruction.refuse(f"parameter {name} has {8 * value.dtype.itemsize} bits")
        write(group, value.view(DTYPES[kind]), mask)

    return act


def _access(site: Site) -> tuple[str, int, str]:
    """(space, numbers, type)."""
    _, space, *middle, kind = site.instruction.parts
    several = 1
    for part in middle:
        if vector := re.fullmatch(r"v([24])", part):
            several = int(vector[1])
        elif part not in _HINTS:
            raise site.instruction.refuse(f"modifier .{part}")
    if space not in ("global", "shared") or kind not in DTYPES or len(site.instruction.operands) != 2:
        raise site.instruction.refuse()
    return space, several, kind


@instruction("ld.global", "ld.shared")
def _ld(site: Site) -> Act:
    space, several, kind = _access(site)
    to, at = site.instruction.operands
    address = site.address(at)
    writes = [site.writer(part, extend=kind if kind[0] in "su" else "u") for part in site.several(to)]
    dtype = np.dtype(DTYPES[kind])
    size = several * dtype.itemsize
    if len(writes) != several:
        raise site.instruction.refuse()

    def act(group: Group, mask: Mask) -> None:
        where = address(group)
        if space == "global" and mask is None and where.size == 1:
            values = group.machine.memory.load(where.reshape(1), size).view(dtype)
            for place, write in enumerate(writes):
                write(group, values[:, place : place + 1], None)
            return
        ctas, threads, (places,) = group.lanes(where, mask=mask)
        if space == "global":
            data = group.machine.memory.load(places, size)
        else:
            data = group.shared.read(ctas, places, size, threads // 32)
        values = np.ascontiguousarray(data).view(dtype)
        for place, write in enumerate(writes):
            full = np.zeros((group.ctas, group.kernel.threads), dtype)
            full[ctas, threads] = values[:, place]
            write(group, full, mask)

    return act


@instruction("st.global", "st.shared")
def _st(site: Site) -> Act:
    space, several, kind = _access(site)
    at, given = site.instruction.operands
    address = site.address(at)
    dtype = np.dtype(DTYPES[kind])
    reads = [site.reader(part, kind, narrow=True) for part in site.several(given)]
    if len(reads) != several:
        raise site.instruction.refuse()

    def act(group: Group, mask: Mask) -> None:
        ctas, threads, (places, *values) = group.lanes(address(group), *(read(group) for read in reads), mask=mask)
        data = np.stack(values, 1).astype(dtype, copy=False)
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(len(places), -1)
        if space == "global":
            group.machine.memory.store(places, raw)
        else:
            group.shared.write(ctas, places, raw, threads // 32)

    return act
