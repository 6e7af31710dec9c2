"""Reads machine code with the tools that ship with Triton."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from typing import Any

__all__ = ["disassemble", "count_floats", "missing_tools", "count_opcodes", "read_sass"]


_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z]\w*(?:\.\w+)*)")
_MATRIX = re.compile(r"(?:[A-Z]*MMA)(?:\.|$)")
_FLOATS = ("FFMA", "FFMA2", "FADD", "FADD2", "FMUL", "FMUL2", "DFMA", "DADD", "DMUL")


def count_opcodes(sass: str) -> Counter[str]:
    return Counter(opcode for opcode in _INSTRUCTION.findall(sass) if opcode != "NOP")  # NOP: padding at the end


def _width(opcode: str) -> int:
    """Bits of one thread that a memory instruction moves. LDGSTS.E.BYPASS.LTC128B.64 moves 64."""
    for part in reversed(opcode.split(".")[1:]):
        if re.fullmatch(r"(?:[US](?:8|16))|64|128|256", part):
            return int(part.lstrip("US"))
    return 32


def _widths(opcodes: Counter[str], *names: str) -> dict[int, int]:
    found: Counter[int] = Counter()
    for opcode, count in opcodes.items():
        if opcode.split(".")[0] in names:
            found[_width(opcode)] += count
    return dict(sorted(found.items(), reverse=True))


def count_floats(opcodes: Counter[str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        if opcode.split(".")[0] in _FLOATS:
            found[opcode.split(".")[0]] += count
    return dict(sorted(found.items()))


def read_sass(sass: str) -> dict[str, Any]:
    """The fields of a `Report` that nvdisasm's text tells."""
    opcodes = count_opcodes(sass)

    def total(*names: str) -> int:
        return sum(count for opcode, count in opcodes.items() if opcode.split(".")[0] in names)

    return {
        "spills": total("LDL", "STL"),
        "instructions": sum(opcodes.values()),
        "copies": _widths(opcodes, "LDGSTS"),
        "loads": _widths(opcodes, "LDG"),
        "stores": _widths(opcodes, "STG"),
        # HFMA2.MMA, which moves constants on sm_80, is none.
        "matrix": {opcode: count for opcode, count in sorted(opcodes.items()) if _MATRIX.match(opcode)},
        "floats": count_floats(opcodes),
        # Of global memory. On sm_100 the compiler takes and returns tensor memory with ATOMS, in shared memory.
        "atomics": total("ATOM", "ATOMG", "RED", "REDG"),
    }


def _tool(name: str, *arguments: str) -> str:
    """The output of one of the CUDA tools that ship with Triton."""
    from triton import knobs

    path = getattr(knobs.nvidia, name).path
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def missing_tools(names: Iterable[str]) -> list[str]:
    from triton import knobs

    missing = []
    for name in names:
        try:
            getattr(knobs.nvidia, name)
        except RuntimeError:
            missing.append(name)
    return missing


def disassemble(cubin: bytes) -> tuple[str, str]:
    """(resource usage, SASS)"""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return _tool("cuobjdump", "-res-usage", file.name), _tool("nvdisasm", "-c", file.name)
