"""Runs a kernel: many CTAs in lockstep, each instruction one operation on arrays.

CTAs that take another way at a branch go on as a group of their own. Threads of one CTA that part wait for each other
where their ways meet again.

A register is an array [CTAs or 1, threads or 1], so that what is the same for all is computed once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np

from .bits import DTYPES, UNSIGNED, Array
from .flow import meetings
from .memory import Fault, Global, Shared
from .text import Instruction, Kernel, Unsupported

__all__ = ["Act", "Group", "Machine", "Mask", "Site"]

Mask = Array | None
"""Which threads do it; None for all."""


class Group:
    """CTAs at one place of the program. x, y, z: their coordinates, [CTAs, 1].

    copies: commit groups of cp.async, the last one open; each copy (CTAs, offsets, bytes, warps). reads: the same of
    wgmma, each read (CTAs, offsets, bytes a place). owed: accumulators that wgmma has not finished, by commit group.
    active: the threads that are on this way; None for all. ways: where it meets others, the way that is still to be
    gone and its threads, and all of these threads.
    """

    def __init__(self, kernel: Kernel, machine: Machine, coordinates: Sequence[Array], shared: Shared) -> None:
        self.kernel, self.machine = kernel, machine
        self.x, self.y, self.z = coordinates
        self.shared = shared
        self.at = 0
        self.active: Mask = None
        self.ways: list[tuple[int, tuple[int, Array] | None, Mask]] = []
        self.registers: dict[str, Array] = {}
        self.copies: list[list[tuple[Array, Array, Array, Array]]] = [[]]
        self.reads: list[list[tuple[Array, Array, int]]] = [[]]
        self.owed: list[set[str]] = [set()]

    @property
    def ctas(self) -> int:
        return len(self.x)

    def part(self, chosen: Array) -> Group:
        """Those CTAs as a group of their own. chosen: bool [CTAs]."""
        if any(self.reads) or any(self.owed):
            raise Unsupported("CTAs that part while wgmma is at work")
        number = chosen.cumsum() - 1
        other = Group(
            self.kernel, self.machine, [self.x[chosen], self.y[chosen], self.z[chosen]], self.shared.select(chosen)
        )
        other.registers = {
            name: value[chosen] if len(value) == self.ctas and self.ctas > 1 else value
            for name, value in self.registers.items()
        }
        other.copies = [
            [
                (number[ctas[own]], offsets[own], data[own], warps[own])
                for ctas, offsets, data, warps in group
                if (own := chosen[ctas]).any()
            ]
            for group in self.copies
        ]
        return other

    def spread(self, value: Array) -> Array:
        """[CTAs, threads]."""
        return np.broadcast_to(value, (self.ctas, self.kernel.threads))

    def lanes(self, *values: Array, mask: Mask) -> tuple[Array, Array, list[Array]]:
        """(CTA, thread, values) of all threads that do it, flat."""
        chosen = self.spread(np.ones((1, 1), np.bool_) if mask is None else mask)
        ctas, threads = chosen.nonzero()
        return ctas, threads, [self.spread(value)[ctas, threads] for value in values]


Act = Callable[[Group, Mask], None]
"""What an instruction does."""


class Site:
    """Where an instruction is: makes readers and writers of its operands, and checks that their widths are right."""

    def __init__(self, kernel: Kernel, instruction: Instruction) -> None:
        self.kernel = kernel
        self.instruction = instruction

    def reader(self, operand: str, kind: str, *, narrow: bool = False) -> Callable[[Group], Array]:
        """Values of type `kind`. narrow: the register may be wider; its low bits count."""
        dtype = np.dtype(DTYPES[kind])
        if operand in self.kernel.widths:
            return self._register(operand, dtype, narrow)
        if operand in _SPECIAL:
            return _SPECIAL[operand]
        if operand in self.kernel.symbols:
            value = np.full((1, 1), self.kernel.symbols[operand], dtype)
        else:
            value = self._immediate(operand, dtype)
        return lambda group: value

    def _register(self, name: str, dtype: np.dtype[np.generic], narrow: bool) -> Callable[[Group], Array]:
        bits = self.kernel.widths[name]
        wide = np.dtype(UNSIGNED[bits])
        if wide.itemsize == dtype.itemsize and (bits == 1) == (dtype == np.bool_):
            return lambda group: _held(group, name).view(dtype)
        if narrow and wide.itemsize > dtype.itemsize:
            small = np.dtype(UNSIGNED[8 * dtype.itemsize])
            return lambda group: _held(group, name).astype(small).view(dtype)
        raise self.instruction.refuse(f"{name} has {bits} bits and is read as {dtype}")

    def _immediate(self, text: str, dtype: np.dtype[np.generic]) -> Array:
        bits = 8 * dtype.itemsize
        if (found := re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", text)) and len(found[2]) * 4 == bits:
            return np.array([[int(found[2], 16)]], UNSIGNED[bits]).view(dtype)
        if found := re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|\d+)U?", text):
            number = int(found[2], 0) * (-1 if found[1] else 1)
            if dtype == np.bool_:
                return np.array([[number != 0]])
            return np.array([[number & ((1 << bits) - 1)]], UNSIGNED[bits]).view(dtype)
        raise self.instruction.refuse(f"operand {text!r}")

    def writer(self, operand: str, *, extend: str = "") -> Callable[[Group, Array, Mask], None]:
        """Puts values into a register of their width. extend: the type by which narrower ones fill a wider register."""
        if operand == "_":
            return lambda group, values, mask: None
        if operand not in self.kernel.widths:
            raise self.instruction.refuse(f"{operand} is no register")
        bits = self.kernel.widths[operand]
        wanted = np.dtype(UNSIGNED[bits])
        signed = extend.startswith("s")

        def write(group: Group, values: Array, mask: Mask) -> None:
            if values.dtype.itemsize < wanted.itemsize and extend:
                values = values.astype(np.dtype(f"i{wanted.itemsize}") if signed else wanted)
            if values.dtype.itemsize != wanted.itemsize:
                raise self.instruction.refuse(f"{values.dtype} for {operand} of {bits} bits")
            values = values.view(wanted)
            if mask is not None and not mask.all():
                # A register that nothing has written holds anything: here, what is seldom a sensible number.
                old = group.registers.get(operand, _UNWRITTEN[bits])
                values = np.where(mask, values, old)
            group.registers[operand] = values

        return write

    def address(self, operand: str) -> Callable[[Group], Array]:
        """Of `[register or symbol + offset]`, int64."""
        found = re.fullmatch(r"\[\s*([%$\w@]+)\s*(?:\+\s*(-?\d+)\s*)?\]", operand)
        if found is None:
            raise self.instruction.refuse(f"address {operand!r}")
        base, offset = found[1], int(found[2] or 0)
        read = self.reader(base, "u64" if self.kernel.widths.get(base) == 64 else "u32")
        return lambda group: read(group).astype(np.int64) + offset

    @staticmethod
    def several(operand: str) -> list[str]:
        """The operands of `{a, b}`, or the one that it is."""
        return [part.strip() for part in operand.strip("{} ").split(",")] if operand.startswith("{") else [operand]


_UNWRITTEN = {
    bits: np.full((1, 1), pattern, UNSIGNED[bits])
    for bits, pattern in ((1, False), (16, 0xDEAD), (32, 0xDEADBEEF), (64, 0xDEADBEEFDEADBEEF))
}


def _held(group: Group, name: str) -> Array:
    for owed in group.owed:
        if name in owed:
            raise Fault(f"{name} is used while wgmma is still computing it")
    # Compilers name registers that nothing has written where their bits do not count (a byte that prmt leaves out).
    held = group.registers.get(name)
    return _UNWRITTEN[group.kernel.widths[name]] if held is None else held


def _every(name: str) -> Callable[[Group], Array]:
    return lambda group: (
        np.arange(group.kernel.threads, dtype=np.uint32)[None, :] % np.uint32(32 if name == "lane" else 1 << 31)
    )


_SPECIAL: dict[str, Callable[[Group], Array]] = {
    "%tid.x": _every("thread"),
    "%laneid": _every("lane"),
    "%tid.y": lambda group: np.zeros((1, 1), np.uint32),
    "%tid.z": lambda group: np.zeros((1, 1), np.uint32),
    "%ntid.x": lambda group: np.array([[group.kernel.threads]], np.uint32),
    "%ctaid.x": lambda group: group.x,
    "%ctaid.y": lambda group: group.y,
    "%ctaid.z": lambda group: group.z,
    "%nctaid.x": lambda group: np.array([[group.machine.grid[0]]], np.uint32),
    "%nctaid.y": lambda group: np.array([[group.machine.grid[1]]], np.uint32),
    "%nctaid.z": lambda group: np.array([[group.machine.grid[2]]], np.uint32),
}


class Machine:
    """Runs one kernel, again and again. together: CTAs at a time. steps: instructions of groups that have been run."""

    def __init__(self, kernel: Kernel, *, together: int = 16) -> None:
        from .instructions import build

        self.kernel = kernel
        self.together = together
        self.grid: tuple[int, int, int] = (1, 1, 1)
        self.parameters: dict[str, Array] = {}
        self.memory = Global([])
        self.steps = 0
        self._program = [_guarded(build(Site(kernel, each)), kernel, each) for each in kernel.instructions]
        sizes = [4]
        for each in kernel.instructions:
            if each.opcode.startswith(("ld.shared", "st.shared")):
                bits = re.search(r"\d+$", each.opcode)
                sizes.append(int(bits[0]) // 8 if bits else 4)
        self._granule = min(sizes)
        self._meetings = meetings(kernel)

    def run(self, grid: tuple[int, int, int], parameters: Sequence[Array], memory: Global, shared: int) -> None:
        """One launch. parameters: of the declared widths, [1, 1] each. shared: bytes of dynamic shared memory. Raises
        Fault, with the line; Unsupported. O(instructions * threads)."""
        self.grid, self.memory = grid, memory
        self.parameters = dict(zip((name for name, _ in self.kernel.parameters), parameters, strict=True))
        # Those of one x follow each other: of one work item, they take one way.
        every = np.array(list(itertools.product(*map(range, grid))), np.uint32).reshape(-1, 3)
        with np.errstate(all="ignore"):
            for first in range(0, len(every), self.together):
                chosen = [every[first : first + self.together, axis, None] for axis in range(3)]
                held = Shared(len(chosen[0]), self.kernel.static + shared, self._granule)
                groups = [Group(self.kernel, self, chosen, held)]
                while groups:
                    groups += self._to_a_fork(groups.pop())

    def _to_a_fork(self, group: Group) -> list[Group]:
        """Run until it ends (no groups) or parts (several)."""
        program, instructions = self._program, self.kernel.instructions
        while group.at < len(program):
            at = group.at
            if group.ways and at == group.ways[-1][0]:
                _meet(group)
                continue
            group.at = at + 1
            self.steps += 1
            opcode = instructions[at].opcode
            try:
                if opcode.startswith("bra"):
                    if parted := self._branch(group, at):
                        return parted
                elif opcode.startswith("ret"):
                    if parted := self._end(group, instructions[at]):
                        return parted[1:]
                else:
                    program[at](group)
            except Fault as fault:
                raise Fault(f"line {instructions[at].line}, {opcode}: {fault}") from fault
        return []

    def _branch(self, group: Group, at: int) -> list[Group]:
        instruction = self.kernel.instructions[at]
        to = self.kernel.labels[instruction.operands[0]]
        taken, here = _taken(group, instruction)
        if not taken.any():
            return []
        if (taken == here).all():
            group.at = to
            return []
        each = group.spread(taken)
        ways: Array = np.asarray(each.any(1))
        if group.active is None and (ways == each.all(1)).all():
            left, right = group.part(ways), group.part(~ways)
            left.at, right.at = to, group.at
            return [left, right]
        group.ways.append((self._meetings[at], (to, taken), group.active))
        group.active = here & ~taken
        return []

    def _end(self, group: Group, instruction: Instruction) -> list[Group]:
        """[what has ended, what goes on]; empty if nothing ends."""
        taken, here = _taken(group, instruction)
        if not taken.any():
            return []
        each = group.spread(taken)
        ended: Array = np.asarray(each.any(1))
        if group.active is not None or (ended != each.all(1)).any():
            raise instruction.refuse("some threads of a CTA end")
        return [group] if (taken == here).all() else [group, group.part(~ended)]


def _taken(group: Group, instruction: Instruction) -> tuple[Array, Array]:
    """Which threads do it, of which."""
    here = np.ones((1, 1), np.bool_) if group.active is None else group.active
    mask = _mask(group, instruction.guard)
    return here if mask is None else mask, here


def _meet(group: Group) -> None:
    """Threads are where their way meets another: that is gone first, then all of them go on."""
    meeting, other, every = group.ways.pop()
    if other is None:
        group.active = every
        return
    group.at, group.active = other
    group.ways.append((meeting, None, every))


def _mask(group: Group, guard: str) -> Mask:
    """Threads that are here and whose guard holds."""
    if not guard:
        return group.active
    held = _held(group, guard.lstrip("!"))
    chosen = ~held if guard.startswith("!") else held
    return chosen if group.active is None else chosen & group.active


def _guarded(act: Act, kernel: Kernel, instruction: Instruction) -> Callable[[Group], None]:
    guard = instruction.guard
    if not guard:
        return lambda group: act(group, group.active)
    if kernel.widths.get(guard.lstrip("!")) != 1:
        raise instruction.refuse(f"guard {guard}")

    def run(group: Group) -> None:
        mask = _mask(group, guard)
        if mask is not None and mask.any():
            act(group, None if mask.all() else mask)

    return run
