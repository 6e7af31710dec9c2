"""cp.async: copies from global to shared memory that are there once somebody has waited for them."""

from __future__ import annotations

import numpy as np

from ..machine import Act, Group, Mask, Site
from .registry import instruction

__all__: list[str] = []


@instruction("cp.async.ca.shared.global", "cp.async.cg.shared.global")
def _copy(site: Site) -> Act:
    operands = site.instruction.operands
    if len(site.instruction.parts) != 5 or len(operands) not in (3, 4):
        raise site.instruction.refuse()
    to, given = site.address(operands[0]), site.address(operands[1])
    size = int(operands[2], 0)
    if size not in (4, 8, 16):
        raise site.instruction.refuse(f"{size} bytes")
    read = site.reader(operands[3], "u32") if len(operands) == 4 else lambda group: np.full((1, 1), size, np.uint32)

    def act(group: Group, mask: Mask) -> None:
        ctas, threads, (places, addresses, sizes) = group.lanes(to(group), given(group), read(group), mask=mask)
        if not np.isin(sizes, (0, size)).all():
            raise site.instruction.refuse(f"a part of {size} bytes is copied")
        data = np.zeros((len(places), size), np.uint8)
        whole = sizes == size
        if whole.any():
            data[whole] = group.machine.memory.load(addresses[whole], size)
        warps = threads // 32
        group.shared.fly(ctas, places, size, warps)
        group.copies[-1].append((ctas, places, data, warps))

    return act


@instruction("cp.async.commit_group")
def _commit(site: Site) -> Act:
    return lambda group, mask: group.copies.append([])


@instruction("cp.async.wait_group")
def _wait(site: Site) -> Act:
    left = int(site.instruction.operands[0], 0)
    return lambda group, mask: _land(group, mask, left)


@instruction("cp.async.wait_all")
def _wait_all(site: Site) -> Act:
    def act(group: Group, mask: Mask) -> None:
        group.copies.append([])
        _land(group, mask, 0)

    return act


def _land(group: Group, mask: Mask, left: int) -> None:
    while len(group.copies) - 1 > left:  # the last is open
        for copy in group.copies.pop(0):
            group.shared.land(*copy)
