"""wgmma: products of four warps together. Operands lie in shared memory; products go on until they are waited for.

Operands are read when the instruction is met, and stay busy until its group is waited for: whatever writes there before
that is a fault, and so is a use of the sums.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ..bits import Array
from ..machine import Act, Group, Mask, Site
from ..memory import Fault
from .products import multiplied
from .registry import instruction

__all__: list[str] = []

_LANE = np.arange(128)
_WARP, _GROUP, _PLACE = _LANE // 32, _LANE % 32 // 4, _LANE % 4

_SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a row, by the two upper bits of a descriptor."""


@instruction("wgmma.mma_async.sync.aligned")
def _wgmma(site: Site) -> Act:
    found = re.fullmatch(r"m64n(\d+)k16", site.instruction.parts[4])
    kinds = site.instruction.parts[5:]
    if found is None or kinds not in (["f32", "bf16", "bf16"], ["f32", "f16", "f16"]):
        raise site.instruction.refuse()
    columns = int(found[1])
    sums, left, right, scale, *signs = site.instruction.operands
    names = site.several(sums)
    in_registers = left.startswith("{")
    flags = [int(sign, 0) for sign in signs]
    if flags[:2] != [1, 1] or len(flags) != (3 if in_registers else 4) or len(names) != columns // 2:
        raise site.instruction.refuse()
    left_across, right_across = (0, flags[2]) if in_registers else flags[2:]
    fragments = [site.reader(part, "u32") for part in site.several(left)] if in_registers else []
    left_at = None if in_registers else site.reader(left, "u64")
    right_at = site.reader(right, "u64")
    adds = site.reader(scale, "pred")
    reads, writes = [site.reader(name, "f32") for name in names], [site.writer(name) for name in names]
    places = [
        (16 * _WARP + _GROUP + row, 8 * block + 2 * _PLACE + column)
        for block in range(columns // 8)
        for row, column in ((0, 0), (0, 1), (8, 0), (8, 1))
    ]
    target, kind = site.kernel.target, kinds[1]

    def act(group: Group, mask: Mask) -> None:
        if mask is not None or group.kernel.threads % 128:
            raise Fault("not all threads of a warpgroup take part")
        # The same sums again, in the same group, are no use of them: products of one chain follow each other.
        owed = group.owed
        group.owed = [each - set(names) for each in owed]
        shape = group.ctas, group.kernel.threads // 128, 64
        if left_at is None:
            a = np.empty((*shape, 16), np.uint16)
            for read, (row, inner) in zip(fragments, ((0, 0), (8, 0), (0, 8), (8, 8)), strict=True):
                value = _groups(group, read(group))
                a[:, :, 16 * _WARP + _GROUP + row, 2 * _PLACE + inner] = value & np.uint32(0xFFFF)
                a[:, :, 16 * _WARP + _GROUP + row, 2 * _PLACE + inner + 1] = value >> np.uint32(16)
        else:
            a = _shared(site, group, left_at, 64, left_across)
        b = _shared(site, group, right_at, columns, right_across).swapaxes(2, 3)
        total = np.zeros((*shape, columns), np.float32)
        if (adding := adds(group)).any():
            if not adding.all():
                raise site.instruction.refuse("threads differ in scale-d")
            for read, (rows, at) in zip(reads, places, strict=True):
                total[:, :, rows, at] = _groups(group, read(group))
        total = multiplied(target, kind, a, b, total)
        for write, (rows, at) in zip(writes, places, strict=True):
            write(group, np.ascontiguousarray(total[:, :, rows, at]).reshape(group.ctas, -1), None)
        group.owed = owed
        group.owed[-1] |= set(names)

    return act


def _groups(group: Group, value: Array) -> Array:
    """[CTAs, warpgroups, 128]."""
    return group.spread(value).reshape(group.ctas, -1, 128)


def _shared(site: Site, group: Group, read: Callable[[Group], Array], rows: int, across: int) -> Array:
    """uint16 [CTAs, warpgroups, rows, 16]: an operand in shared memory, which its descriptor says the place of. across:
    consecutive elements are rows, not the inner dimension."""
    descriptors = _groups(group, read(group))
    first = descriptors[:, :, 0]
    if (descriptors != first[:, :, None]).any():
        raise site.instruction.refuse("threads of a warpgroup differ in a descriptor")
    begin, lead, stride = (((first >> np.uint64(bit)) & np.uint64(0x3FFF)).astype(np.int64) << 4 for bit in (0, 16, 32))
    if ((first >> np.uint64(49)) & np.uint64(7)).any():
        raise site.instruction.refuse("a descriptor with a base offset")
    modes = np.unique(first >> np.uint64(62))
    if len(modes) != 1:
        raise site.instruction.refuse("warpgroups differ in the swizzle")
    width = _SWIZZLES[int(modes[0])]
    row, inner = np.meshgrid(np.arange(rows), np.arange(16), indexing="ij")
    begin, lead, stride = (value[:, :, None, None] for value in (begin, lead, stride))
    if across:
        each = width // 2
        at = begin + row // each * lead + inner // 8 * stride + inner % 8 * width + row % each * 2
    else:
        at = begin + row // 8 * stride + row % 8 * width + inner * 2
        if width == 16:
            at = begin + row // 8 * stride + row % 8 * 16 + inner // 8 * lead + inner % 8 * 2
    at = at ^ ((at >> 7 & (width // 16 - 1)) << 4)
    ctas = np.broadcast_to(np.arange(group.ctas)[:, None, None, None], at.shape).reshape(-1)
    # Pieces of eight elements lie together, whatever the swizzle.
    pieces = (at[:, :, ::8, :] if across else at[:, :, :, ::8]).reshape(*at.shape[:2], -1)
    owners = np.broadcast_to(np.arange(group.ctas)[:, None, None], pieces.shape).reshape(-1)
    places = pieces.reshape(-1)
    group.shared.read(owners, places, 16, None)
    group.shared.busy(owners, places, 16, 1)
    group.reads[-1].append((owners, places, 16))
    data = group.shared.data[ctas[:, None], at.reshape(-1)[:, None] + np.arange(2)]
    return np.ascontiguousarray(data).view(np.uint16).reshape(at.shape)


@instruction("wgmma.fence.sync.aligned")
def _order(site: Site) -> Act:
    return lambda group, mask: None


@instruction("wgmma.commit_group.sync.aligned")
def _commit(site: Site) -> Act:
    def act(group: Group, mask: Mask) -> None:
        group.reads.append([])
        group.owed.append(set())

    return act


@instruction("wgmma.wait_group.sync.aligned")
def _wait(site: Site) -> Act:
    left = int(site.instruction.operands[0], 0)

    def act(group: Group, mask: Mask) -> None:
        while len(group.reads) - 1 > left:
            for ctas, places, size in group.reads.pop(0):
                group.shared.busy(ctas, places, size, -1)
            group.owed.pop(0)

    return act
