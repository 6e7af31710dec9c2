"""docs/generated/gates.md, and the table on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .judging import list_counts, pieces
from .reports import SHARED_LIMIT, Report

__all__ = ["markdown", "show"]


_PREFACE = """# Static gates

What the compiler makes of every kernel launch of kvcore, without a GPU. `python -m fuzz.tools.gates` makes the
real calls with recorders in place of the kernels, lets Triton's JIT compile what was recorded for sm_80, sm_90 and
sm_100, and reads the machine code with the tools that ship with Triton. Nothing here is a timing.

This page and `gates.json` beside it were written by `python -m fuzz.tools.gates --write` with {versions}.
`--check` compares a fresh run with them: it fails if registers, shared memory or instructions moved by more than 5 %,
or if spills or matrix instructions changed at all. Another Triton or ptxas gives other numbers, so it compares under
these versions alone; `--compile-only` compiles under any Triton and reads nothing.

The gates, for every launch:

- it compiles, and its shared memory fits ({limits});
- no address of K/V contains a 32-bit multiplication;
- every access to a tensor is masked, to tables and K/V by the length of the context;
- no atomics;
- 16-bit and float32 K/V move 128 bits at a time, if the head dim is a multiple of 16 (less where a whole tile has less
  for each thread);
- `attend` uses one kind of matrix instruction, the expected one: HMMA below 64 rows and on sm_80, else HGMMA (sm_90)
  or UTCHMMA (sm_100); DMMA for float32 queries;
- `attend` and `combine` have as many float additions and fmas with fusion on as without: every fma is spelled out, none
  is left to the compiler (looked at with head dim 128 and with every feature, but for the softcap of float32 queries).

Hot launches also have no spills and no stack on sm_90 and sm_100, and two compiles give the same code.

Spills are instructions that load or store local memory (LDL, STL). Programs: how many fit on one multiprocessor at
once. Copies go from global to shared memory; 6x32 of them are block tables. "small" is the lane of decodes and short
chunks, "large" that of prompts; split and direct schedules run the same code. Tilings: rows x keys, warps, stages.
"""


def markdown(made_with: dict[str, str], reports: Sequence[Report]) -> str:
    limits = ", ".join(f"{limit // 1024} KB on sm_{sm}" for sm, limit in SHARED_LIMIT.items())
    named = ", ".join(f"{name.replace('_', '-')} {version}" for name, version in made_with.items())
    parts = [_PREFACE.format(versions=named, limits=limits)]
    for name in dict.fromkeys(report.configuration for report in reports if report.hot):
        rows = [report for report in reports if report.configuration == name]
        order = list(dict.fromkeys(report.kernel for report in rows))
        rows.sort(key=lambda report: (order.index(report.kernel), report.sm))
        parts.append(f"## Hot: {name}\n\n{_grid(_DETAILS, [_details(report) for report in rows])}")
    parts.append(
        "## All\n\nBy launch: tiling, registers, shared memory; spills in bold. D: head dim, G: query heads for each "
        "kv head, B: block size.\n"
    )
    architectures = sorted({report.sm for report in reports})
    for title in ("attend", "combine", "store, copy, audit"):
        cells: dict[tuple[str, str], dict[int, str]] = {}
        for report in reports:
            if report.kernel.split()[0] in title.split(", "):
                cells.setdefault((report.configuration, report.kernel), {})[report.sm] = _cell(report)
        rows_of_all = [[*key, *(by_sm.get(sm, "") for sm in architectures)] for key, by_sm in cells.items()]
        header = ("configuration", "launch", *(f"sm_{sm}" for sm in architectures))
        parts.append(f"### {title}\n\n{_grid(header, rows_of_all)}")
    return "\n".join(parts)


_DETAILS = (
    "launch",
    "sm",
    "tiling",
    "registers",
    "spills",
    "stack",
    "shared",
    "programs",
    "copies",
    "loads",
    "stores",
    "matrix",
    "floats, fusion off",
    "fusion on",
    "instructions",
)


def _details(report: Report) -> list[str]:
    if report.error is not None:
        return [report.kernel, str(report.sm), report.tiling, report.error, *[""] * (len(_DETAILS) - 4)]
    fused = "" if report.fused is None else "same" if report.fused == report.floats else list_counts(report.fused)
    return [
        report.kernel,
        str(report.sm),
        report.tiling,
        str(report.registers),
        str(report.spills),
        str(report.stack),
        _bytes(report.shared),
        str(report.programs),
        *map(pieces, (report.copies, report.loads, report.stores)),
        ", ".join(f"{count} {opcode}" for opcode, count in report.matrix.items()),
        ", ".join(f"{count} {name}" for name, count in report.floats.items()),
        fused,
        str(report.instructions),
    ]


def _cell(report: Report) -> str:
    if report.error is not None:
        return f"**{report.error}**"
    parts = [f"{report.tiling}:" if report.tiling else "", f"{report.registers}"]
    text = " ".join(filter(None, parts))
    if report.shared:
        text += f", {_bytes(report.shared)}"
    return text + (f", **{report.spills} spills**" if report.spills else "")


def _bytes(size: int) -> str:
    return f"{size / 1024:.0f} KB" if size >= 1024 else str(size)


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def show(reports: Sequence[Report], console: Console) -> None:
    table = Table(header_style="bold")
    for name in ("configuration", "launch", "sm", "tiling"):
        table.add_column(name, no_wrap=True)
    for name in ("registers", "spills", "shared", "programs", "instructions"):
        table.add_column(name, justify="right")
    for report in reports:
        spills = f"[red]{report.spills}[/]" if report.spills else "0"
        numbers = (str(report.registers), spills, _bytes(report.shared), str(report.programs), str(report.instructions))
        table.add_row(report.configuration, report.kernel, str(report.sm), report.tiling, *numbers)
    console.print(table)
