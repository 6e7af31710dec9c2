"""What was read of one compiled launch, and the file of all of them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["SHARED_LIMIT", "Report", "from_json", "label", "to_json", "versions"]

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Bytes of shared memory that one program can have."""

_SHARED_SM = {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}


@dataclass(frozen=True)
class Report:
    """What was read of one compiled launch.

    tiling: rows, tile, warps, stages. registers: of a thread. stack, shared: bytes. spills: loads and stores of local
    memory (LDL, STL). copies, loads, stores: global to shared memory, from global and to global, bits of one thread ->
    instructions; table_copies: how many copies the block tables explain. share: bits of K/V that one access could move,
    128 or all that a thread has of a tile. matrix: opcode -> instructions. floats: FFMA, FADD, FMUL and their kin, as
    launched; fused: with fusion on. narrow: pointers to K/V whose address comes through a 32-bit multiplication.
    unmasked: pointers of which a tensor is accessed without a mask or, of tables and K/V, with one that does not know
    the context. stable: two compiles gave the same code. error: of the compiler; nothing else is known then.
    """

    configuration: str
    kernel: str
    sm: int
    hot: bool = False
    tiling: str = ""
    warps: int = 4
    registers: int = 0
    stack: int = 0
    spills: int = 0
    shared: int = 0
    instructions: int = 0
    share: int = 128
    copies: dict[int, int] = field(default_factory=dict)
    table_copies: int = 0
    loads: dict[int, int] = field(default_factory=dict)
    stores: dict[int, int] = field(default_factory=dict)
    matrix: dict[str, int] = field(default_factory=dict)
    floats: dict[str, int] = field(default_factory=dict)
    fused: dict[str, int] | None = None
    atomics: int = 0
    narrow: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()
    stable: bool | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.configuration, self.kernel, self.sm

    @property
    def programs(self) -> int:
        """How many run at once on one multiprocessor, by registers, shared memory and warps."""
        by_registers = 65536 // (max(8, -(-self.registers // 8) * 8) * 32 * self.warps)
        by_shared = _SHARED_SM[self.sm] // (self.shared + 1024)
        return min(by_registers, by_shared, 64 // self.warps, 32)

    def to_json(self) -> dict[str, Any]:
        """Without what has its default."""
        blank = Report("", "", 0)
        return {
            entry.name: value
            for entry in fields(self)
            if (value := getattr(self, entry.name)) != getattr(blank, entry.name)
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Report:
        data = dict(data)
        for name in ("copies", "loads", "stores"):
            data[name] = {int(width): count for width, count in data.get(name, {}).items()}
        for name in ("narrow", "unmasked"):
            data[name] = tuple(data.get(name, ()))
        return Report(**data)


def label(key: tuple[str, str, int]) -> str:
    return f"{key[0]}, {key[1]}, sm_{key[2]}"


def versions() -> dict[str, str]:
    """Of Triton and of its assemblers: what a table is good for."""
    from triton import knobs

    found = {"triton": importlib.metadata.version("triton")}
    for name in ("ptxas", "ptxas_blackwell"):
        with contextlib.suppress(RuntimeError, AttributeError):
            found[name] = getattr(knobs.nvidia, name).version
    return found


def to_json(made_with: dict[str, str], reports: Sequence[Report]) -> str:
    """One report a line, so that a change is a line of a diff."""
    lines = ",\n".join(json.dumps(report.to_json()) for report in reports)
    return f'{{"versions": {json.dumps(made_with)}, "reports": [\n{lines}\n]}}\n'


def from_json(text: str) -> tuple[dict[str, str], list[Report]]:
    data = json.loads(text)
    return data["versions"], [Report.from_json(entry) for entry in data["reports"]]
