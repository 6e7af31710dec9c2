"""What a report must be: the gates, and the comparison with a table made before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .configurations import CONFIGURATIONS, Configuration
from .reports import SHARED_LIMIT, Report, label

__all__ = ["GATES", "drifts", "failures", "known", "list_counts", "pieces"]

TOLERANCE = 0.05
"""Of registers, shared memory and instructions against the committed table."""


def _configuration(report: Report) -> Configuration:
    return next(entry for entry in CONFIGURATIONS if entry.name == report.configuration)


def _compiles(report: Report) -> str | None:
    return report.error


def _spills(report: Report) -> str | None:
    if report.hot and report.sm >= 90 and (report.spills or report.stack):
        return f"{report.spills} loads and stores of local memory, {report.stack} bytes of stack; a hot launch has none"
    return None


def _shared_memory(report: Report) -> str | None:
    limit = SHARED_LIMIT[report.sm]
    return f"{report.shared} bytes, sm_{report.sm} has {limit}" if report.shared > limit else None


def _wide_copies(report: Report) -> str | None:
    configuration = _configuration(report)
    # 72 * 2 bytes: Triton knows no alignment but 16 elements. One operand of an FP8 cache comes in 64 bits.
    if not report.kernel.startswith("attend") or configuration.cached or configuration.head_dim % 16:
        return None
    wide = report.share
    narrow = sum(count for width, count in report.copies.items() if width < wide)
    if not (report.copies or report.loads).get(wide):
        return f"no {wide}-bit access to K/V at all: copies {report.copies}, loads {report.loads}"
    if narrow > report.table_copies or any(32 < width < wide for width in report.copies):
        return f"K/V copies below {wide} bits: {pieces(report.copies)}, of which {report.table_copies} are of tables"
    return None


def _wide_stores(report: Report) -> str | None:
    if report.kernel not in ("store", "copy") or _configuration(report).head_dim % 16:
        return None
    if set(report.stores) == {report.share}:
        return None
    return f"stores of {report.stores} bits, all could have {report.share}"


def _matrix_units(report: Report) -> str | None:
    if not report.kernel.startswith("attend"):
        return None
    dtype = _configuration(report).dtype
    if dtype == "float32":
        wanted, kind = "DMMA", ""
    else:
        tall = int(report.tiling.split("x")[0]) >= 64
        wanted = {90: "HGMMA", 100: "UTCHMMA"}.get(report.sm, "HMMA") if tall else "HMMA"
        kind = ".BF16" if dtype == "bfloat16" else ".F32"
    found = {opcode.split(".")[0] for opcode in report.matrix}
    if found != {wanted}:
        return f"{wanted} alone was expected, found {', '.join(report.matrix) or 'none'}"
    # tcgen05 keeps the type in a descriptor.
    if wanted != "UTCHMMA" and not all(opcode.endswith(kind) for opcode in report.matrix):
        return f"{wanted} of type {kind} was expected, found {', '.join(report.matrix)}"
    return None


def _unfused(report: Report) -> str | None:
    # libdevice's float64 exp2 begins with an addition, which can take in the multiplication before it.
    doubled = report.configuration.startswith("fp32") and "softcap" in report.configuration
    if report.fused is None or doubled:
        return None
    # Fusion turns additions into fmas. The number of multiplications alone may differ: those of a division's scaling.
    launched, fused = (
        {name: count for name, count in counts.items() if "MUL" not in name} for counts in (report.floats, report.fused)
    )
    if launched == fused:
        return None
    floats, with_fusion = list_counts(report.floats), list_counts(report.fused)
    return f"{floats} as launched, {with_fusion} with fusion on: an fma is not spelled out"


def _no_atomics(report: Report) -> str | None:
    return f"{report.atomics} atomic instructions" if report.atomics else None


def _wide_addresses(report: Report) -> str | None:
    if report.narrow:
        return f"the address of {', '.join(report.narrow)} contains a 32-bit multiplication"
    return None


def _masked(report: Report) -> str | None:
    if report.unmasked:
        return f"{', '.join(report.unmasked)}: not masked, or by a mask that does not know the context"
    return None


def _stable(report: Report) -> str | None:
    return "two compiles gave different code" if report.stable is False else None


def list_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


GATES: dict[str, Callable[[Report], str | None]] = {
    "compiles": _compiles,
    "spills": _spills,
    "shared memory": _shared_memory,
    "128-bit copies": _wide_copies,
    "128-bit stores": _wide_stores,
    "matrix units": _matrix_units,
    "fusion": _unfused,
    "atomics": _no_atomics,
    "64-bit addresses": _wide_addresses,
    "masks": _masked,
    "stable": _stable,
}
"""Name -> what is wrong with a report, or None."""


def failures(reports: Iterable[Report]) -> list[str]:
    """One line for each gate that a report does not pass. A report with an error has just that one."""
    lines = []
    for report in reports:
        for name, gate in GATES.items():
            if (fault := gate(report)) is not None:
                lines.append(f"{label(report.key)}: {name}: {fault}")
            if report.error is not None:
                break
    return lines


def drifts(now: Sequence[Report], before: Sequence[Report]) -> list[str]:
    """One line for each difference that matters: over 5 % of registers, shared memory or instructions, and any change
    of spills or matrix opcodes. Both ways: what became better is to be committed as well."""
    old = {report.key: report for report in before}
    lines = [f"{label(key)}: no longer compiled" for key in old.keys() - {report.key for report in now}]
    for report in now:
        was = old.get(report.key)
        if was is None:
            lines.append(f"{label(report.key)}: not in the table")
            continue
        for name in ("registers", "shared", "instructions"):
            value, reference = getattr(report, name), getattr(was, name)
            if abs(value - reference) > TOLERANCE * reference:
                lines.append(f"{label(report.key)}: {name} {reference} -> {value}")
        for name in ("spills", "stack", "error"):
            value, reference = getattr(report, name), getattr(was, name)
            if value != reference:
                lines.append(f"{label(report.key)}: {name} {reference} -> {value}")
        if report.matrix.keys() != was.matrix.keys():
            lines.append(f"{label(report.key)}: matrix opcodes {', '.join(was.matrix)} -> {', '.join(report.matrix)}")
    return sorted(lines)


def known(report: Report, triton: str) -> str | None:
    """Why a launch does not compile under an older Triton, if that is known and accepted."""
    configuration = _configuration(report)
    if triton.startswith("3.6.") and configuration.dtype == "float32" and configuration.cached and report.sm < 100:
        return "Triton 3.6 cannot multiply FP8 widened to float64: float32 queries over an FP8 cache need a newer one"
    return None


def pieces(pieces: dict[int, int]) -> str:
    return ", ".join(f"{count}x{width}" for width, count in pieces.items())
