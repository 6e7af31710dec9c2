"""Between threads: shfl, ldmatrix, stmatrix, barriers and fences."""

from __future__ import annotations

import numpy as np

from ..bits import Array
from ..machine import Act, Group, Mask, Site
from ..memory import Fault
from .registry import instruction

__all__: list[str] = []


@instruction("shfl.sync")
def _shfl(site: Site) -> Act:
    how, kind = site.instruction.parts[2], site.instruction.parts[-1]
    to, given, by, limits, members = site.instruction.operands
    if how not in ("up", "down", "bfly", "idx") or kind != "b32" or members not in ("-1", "0xffffffff", "4294967295"):
        raise site.instruction.refuse()
    name, _, valid = to.partition("|")
    write = site.writer(name)
    write_valid = site.writer(valid) if valid else None
    reads = [site.reader(operand, "u32") for operand in (given, by, limits)]

    def act(group: Group, mask: Mask) -> None:
        if mask is not None:
            raise Fault("not all threads of a warp take part, of which all are named")
        values = group.spread(reads[0](group))
        step, bounds = reads[1](group).astype(np.int64), reads[2](group).astype(np.int64)
        lane = np.arange(group.kernel.threads)[None, :] % 32
        clamp, segment = bounds & 31, (bounds >> 8) & 31
        most = (lane & segment) | (clamp & ~segment)
        if how == "up":
            source = lane - (step & 31)
            fine = source >= most
        elif how == "down":
            source = lane + (step & 31)
            fine = source <= most
        elif how == "bfly":
            source = lane ^ (step & 31)
            fine = source <= most
        else:
            source = (lane & segment) | (step & 31 & ~segment)
            fine = source <= most
        fine, source = group.spread(fine), group.spread(np.where(fine, source, lane))
        first = np.arange(group.kernel.threads)[None, :] // 32 * 32
        write(group, np.take_along_axis(values, first + source, 1), None)
        if write_valid is not None:
            write_valid(group, fine, None)

    return act


def _shape(site: Site) -> tuple[int, bool]:
    """(matrices, transposed)."""
    parts = site.instruction.parts
    if parts[:4] != [parts[0], "sync", "aligned", "m8n8"] or parts[-2:] != ["shared", "b16"]:
        raise site.instruction.refuse()
    middle = parts[4:-2]
    count = {"x1": 1, "x2": 2, "x4": 4}.get(middle[0] if middle else "")
    if count is None or middle[1:] not in ([], ["trans"]):
        raise site.instruction.refuse()
    return count, middle[1:] == ["trans"]


def _rows(group: Group, address: Array, matrix: int) -> tuple[Array, Array, Array]:
    """(CTAs, offsets, warps) of a matrix's rows: lanes 8 * matrix to 8 * matrix + 7 of each warp hold where they
    begin."""
    warps = group.kernel.threads // 32
    every = group.spread(address).reshape(group.ctas, warps, 32)[:, :, 8 * matrix : 8 * matrix + 8]
    ctas = np.arange(group.ctas)[:, None, None]
    numbers = np.arange(warps)[None, :, None]
    return tuple(np.broadcast_to(each, every.shape).reshape(-1) for each in (ctas, every, numbers))  # type: ignore[return-value]


@instruction("ldmatrix")
def _ldmatrix(site: Site) -> Act:
    count, transposed = _shape(site)
    to, at = site.instruction.operands
    address = site.address(at)
    writes = [site.writer(part) for part in site.several(to)]
    if len(writes) != count:
        raise site.instruction.refuse()

    def act(group: Group, mask: Mask) -> None:
        if mask is not None:
            raise Fault("not all threads of a warp take part")
        where = address(group)
        lane = np.arange(32)
        for matrix, write in enumerate(writes):
            data = group.shared.read(*_split(_rows(group, where, matrix)))
            values = np.ascontiguousarray(data).view(np.uint16).reshape(group.ctas, -1, 8, 8)
            if transposed:
                values = values.swapaxes(2, 3)
            low = values[:, :, lane // 4, 2 * (lane % 4)].astype(np.uint32)
            high = values[:, :, lane // 4, 2 * (lane % 4) + 1].astype(np.uint32)
            write(group, (low | (high << np.uint32(16))).reshape(group.ctas, -1), None)

    return act


def _split(rows: tuple[Array, Array, Array]) -> tuple[Array, Array, int, Array]:
    ctas, offsets, warps = rows
    return ctas, offsets, 16, warps


@instruction("stmatrix")
def _stmatrix(site: Site) -> Act:
    count, transposed = _shape(site)
    at, given = site.instruction.operands
    address = site.address(at)
    reads = [site.reader(part, "u32") for part in site.several(given)]
    if len(reads) != count:
        raise site.instruction.refuse()

    def act(group: Group, mask: Mask) -> None:
        if mask is not None:
            raise Fault("not all threads of a warp take part")
        where = address(group)
        lane = np.arange(32)
        for matrix, read in enumerate(reads):
            given = group.spread(read(group)).reshape(group.ctas, -1, 32)
            values = np.empty((*given.shape[:2], 8, 8), np.uint16)
            values[:, :, lane // 4, 2 * (lane % 4)] = given & np.uint32(0xFFFF)
            values[:, :, lane // 4, 2 * (lane % 4) + 1] = given >> np.uint32(16)
            if transposed:
                values = values.swapaxes(2, 3)
            ctas, offsets, warps = _rows(group, where, matrix)
            raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 16)
            group.shared.write(ctas, offsets, raw, warps)

    return act


@instruction("bar.sync", "barrier.sync")
def _barrier(site: Site) -> Act:
    operands = site.instruction.operands
    if operands[0] != "0" or operands[1:] not in ((), (str(site.kernel.threads),)):
        raise site.instruction.refuse("a barrier of some threads")

    def act(group: Group, mask: Mask) -> None:
        if mask is not None:
            raise Fault("not all threads of a CTA reach the barrier")
        group.shared.barrier()

    return act


@instruction("bar.warp.sync")
def _warp_barrier(site: Site) -> Act:
    return lambda group, mask: None


@instruction("fence.proxy.async")
def _fence(site: Site) -> Act:
    if site.instruction.parts[3:] not in ([], ["shared"]):
        raise site.instruction.refuse()
    return lambda group, mask: group.shared.fence()
