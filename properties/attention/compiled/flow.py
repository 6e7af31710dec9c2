"""Where ways meet again that parted at a branch: the first instruction that every way from there comes to."""

from __future__ import annotations

from itertools import pairwise

from .text import Kernel

__all__ = ["meetings"]


def meetings(kernel: Kernel) -> dict[int, int]:
    """By conditional branch, the instruction where its ways meet; the number of instructions if they never do.

    The immediate postdominators of the kernel's blocks. O(blocks^2), of bits."""
    program = kernel.instructions
    ends = len(program)
    jumps = {at: kernel.labels[each.operands[0]] for at, each in enumerate(program) if each.opcode.startswith("bra")}
    leaders = [*sorted({0, *jumps.values(), *(at + 1 for at in jumps), *kernel.labels.values()} - {ends}), ends]
    block_of = {leader: number for number, leader in enumerate(leaders)}
    following: list[list[int]] = []
    for begin, end in pairwise(leaders):
        last = program[end - 1]
        ways = []
        if end - 1 in jumps:
            ways.append(block_of[jumps[end - 1]])
        if last.opcode.startswith("ret") and not last.guard:
            ways.append(block_of[ends])
        elif end - 1 not in jumps or last.guard:
            ways.append(block_of[end])
        if any(each.opcode.startswith("ret") for each in program[begin : end - 1]):
            ways.append(block_of[ends])
        following.append(ways)
    every = (1 << len(leaders)) - 1
    behind = [every] * len(following) + [1 << len(following)]
    changed = True
    while changed:
        changed = False
        for block in reversed(range(len(following))):
            common = every
            for way in following[block]:
                common &= behind[way]
            if (common | 1 << block) != behind[block]:
                behind[block] = common | 1 << block
                changed = True
    result = {}
    for number, end in enumerate(leaders[1:]):
        if end - 1 in jumps and program[end - 1].guard:
            others = behind[number] & ~(1 << number)
            nearest = max((at for at in range(len(leaders)) if others >> at & 1), key=lambda at: behind[at].bit_count())
            result[end - 1] = leaders[nearest]
    return result
