"""The results as text: which device, what holds, how fast, and the goals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .results import Results

__all__ = ["show", "size_of"]

_MARK = {True: "[green]holds[/]", False: "[bold red]FAILED[/]", None: "[yellow]undecided[/]"}
_PART = {"done": "[green]done[/]", "cut": "[yellow]cut short[/]", "skipped": "[yellow]skipped[/]"}


def show(results: Results, console: Console) -> None:
    """Print everything worth reading, the verdict last."""
    data = results.data
    _device(data, console)
    _parts(data, console)
    _bits(data, console)
    _units(data, console)
    _decode(data, console)
    _prefill(data, console)
    _others(data, console)
    _goals(data, console)
    _checks(results, console)


def size_of(count: float) -> str:
    """Bytes, to three digits or so."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _table(title: str, *columns: str) -> Table:
    """A table whose columns are numbers, to the right, unless their name ends with a blank."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.rstrip(), justify="left" if column.endswith(" ") else "right")
    return table


def _print(console: Console, table: Table) -> None:
    if table.row_count:
        console.print()
        console.print(table)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _device(data: dict[str, Any], console: Console) -> None:
    device = data["device"]
    facts = [str(device.get("name", "unknown device"))]
    if "processors" in device:
        facts.append(f"compute capability {device['capability']}, {device['processors']} processors")
        facts.append(f"{device['memory_bytes'] / 1e9:.0f} GB")
    driver = device.get("clocks", {}).get("driver_version")
    if driver:
        facts.append(f"driver {driver}")
    facts += [f"{name} {device[name]}" for name in ("cuda", "torch", "triton", "python") if device.get(name)]
    facts.append(f"kernels' source {device.get('source', 'unknown')}")
    console.print(f"\n[bold]{escape(facts[0])}[/]: {escape(', '.join(facts[1:]))}", soft_wrap=True)
    measured = data["measured"]
    if measured:
        said = [
            f"{label} {measured[name] / 1e12:.2f} {unit}"
            for name, label, unit in (
                ("copy_bytes_per_s", "copy (read and write)", "TB/s"),
                ("read_bytes_per_s", "read", "TB/s"),
                ("matmul_flop_per_s", "bf16 products", "TFLOP/s"),
            )
            if name in measured
        ]
        console.print(f"measured: {', '.join(said)}", soft_wrap=True)


def _parts(data: dict[str, Any], console: Console) -> None:
    table = _table("What ran", "part ", "what ", "seconds", "status ")
    for part in data["parts"]:
        status = _PART.get(part["status"], f"[bold red]{part['status']}[/]")
        table.add_row(part["name"], part["title"], f"{part['seconds']:.1f}", status)
    _print(console, table)
    for part in data["parts"]:
        for note in part["notes"]:
            console.print(f"[yellow]{part['name']}:[/] {escape(note)}", soft_wrap=True)


def _summed(rows: Iterable[dict[str, Any]], key: str) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for row in rows:
        compared, differing = totals.get(row[key], (0, 0))
        totals[row[key]] = (compared + row["compared"], differing + row["differing"])
    return totals


def _count(differing: int) -> str:
    return f"[bold red]{differing:,}[/]" if differing else "[green]0[/]"


def _bits(data: dict[str, Any], console: Console) -> None:
    rows = data["tables"].get("bits", [])
    table = _table("Bits: one data set, many schedules", "what was varied ", "row-heads compared", "differing")
    for axis, (compared, differing) in _summed(rows, "axis").items():
        table.add_row(axis, f"{compared:,}", _count(differing))
    if rows:
        totals = _summed(({**row, "all": "all"} for row in rows), "all")["all"]
        table.add_row("[bold]all[/]", f"[bold]{totals[0]:,}[/]", _count(totals[1]))
    _print(console, table)
    table = _table("Errors against float64", "format ", "half ulps", "limit", "worst case ")
    for row in data["tables"].get("errors", []):
        table.add_row(
            row["dtype"],
            "" if row["half_ulps"] is None else f"{row['half_ulps']:.2f}",
            f"{row['limit']:g}",
            row["case"],
        )
    _print(console, table)


def _units(data: dict[str, Any], console: Console) -> None:
    table = _table("Matrix units: 16 rows against 64 and 128", "dtype ", "operands ", "compared", "differing")
    for row in data["tables"].get("units", []):
        table.add_row(row["dtype"], row["kind"], f"{row['compared']:,}", _count(row["differing"]))
    _print(console, table)
    table = _table("What their sums depend on (nothing that must hold)", "dtype ", "keys ", "numbers that change")
    for row in data["tables"].get("order", []):
        table.add_row(row["dtype"], row["what"], f"{row['differing']:,} of {row['compared']:,}")
    _print(console, table)


def _rows(data: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [row for row in data["rows"] if row["part"] == part]


def _decode(data: dict[str, Any], console: Console) -> None:
    table = _table("Decode", "contexts ", "who ", "KV", "us", "TB/s", "of copy", "tokens/s", "how ")
    for row in _rows(data, "decode"):
        table.add_row(
            row["name"],
            row["who"],
            size_of(row["bytes"]),
            f"{row['seconds'] * 1e6:.1f}",
            f"{row['bytes_per_s'] / 1e12:.2f}",
            _share(row["of_copy"]),
            f"{row['tokens_per_s']:,.0f}",
            ", ".join(filter(None, [row["note"], row["how"]])),
        )
    _print(console, table)


def _prefill(data: dict[str, Any], console: Console) -> None:
    table = _table("Prefill, causal", "prompts ", "who ", "ms", "TFLOP/s", "of bf16 products", "how ")
    for row in _rows(data, "prefill"):
        table.add_row(
            row["name"],
            row["who"],
            f"{row['seconds'] * 1e3:.3f}",
            f"{row['flop_per_s'] / 1e12:.0f}",
            _share(row["of_matmul"]),
            ", ".join(filter(None, [row["note"], row["how"]])),
        )
    _print(console, table)


def _others(data: dict[str, Any], console: Console) -> None:
    table = _table("The price of invariance", "shape ", "schedule ", "kernel ", "us", "price")
    for row in _rows(data, "tax"):
        price = f"{row['price']:+.1%}" if row["who"] != "one leaf" else ""
        table.add_row(f"{row['kind']} {row['name']}", row["schedule"], row["who"], f"{row['seconds'] * 1e6:.1f}", price)
    _print(console, table)
    table = _table("Store and copy", "what ", "moved", "us", "TB/s", "of copy")
    for row in _rows(data, "moves"):
        table.add_row(
            row["name"],
            size_of(row["bytes"]),
            f"{row['seconds'] * 1e6:.1f}",
            f"{row['bytes_per_s'] / 1e12:.2f}",
            _share(row["of_copy"]),
        )
    _print(console, table)


def _goals(data: dict[str, Any], console: Console) -> None:
    table = _table("Aimed at (no check: a missed one does not fail the run)", "what ", "goal", "measured", "")
    for goal in data["goals"]:
        if goal["measured"] is None:
            measured, mark = "", "[dim]not measured[/]"
        else:
            measured = _number(goal["measured"], goal["unit"])
            mark = {True: "[green]met[/]", False: "[yellow]missed[/]", None: f"[dim]for {goal['device']}[/]"}[
                goal["met"]
            ]
        sign = "at least" if goal["at_least"] else "at most"
        table.add_row(goal["what"], f"{sign} {_number(goal['target'], goal['unit'])}", measured, mark)
    if any(goal["measured"] is not None for goal in data["goals"]):
        _print(console, table)


def _number(value: float, unit: str) -> str:
    return f"{value:.1%} {unit}" if unit.startswith("of ") or unit == "more time" else f"{value:.3g} {unit}"


def _checks(results: Results, console: Console) -> None:
    checks = results.data["checks"]
    table = _table("Checks that do not hold", "part ", "check ", "", "what was seen ")
    for check in checks:
        if check["holds"] is not True:
            table.add_row(check["part"], escape(check["name"]), _MARK[check["holds"]], escape(check["said"]))
    _print(console, table)
    held = sum(1 for check in checks if check["holds"])
    console.print()
    said = f"{held:,} of {len(checks):,} checks hold"
    if results.broken:
        failed = "1 check" if len(results.broken) == 1 else f"{len(results.broken):,} checks"
        console.print(f"[bold red]{failed} failed[/]: {said}")
    elif results.failed:
        names = ", ".join(part["name"] for part in results.failed)
        console.print(f"[bold red]failed to run: {names}[/]; {said}", soft_wrap=True)
    elif checks:
        open_ = len(checks) - held
        console.print(f"[bold green]{said}[/]" + (f", {open_} not decided" if open_ else ""))
    elif results.data["rows"]:
        console.print("measured; nothing was checked")
    else:
        console.print("[yellow]nothing was run[/]")
