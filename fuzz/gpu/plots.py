"""The results as pictures, from the file alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .results import Results

__all__ = ["NoMatplotlib", "draw"]


class NoMatplotlib(Exception):
    """There is no matplotlib here."""


def draw(results: Results, folder: Path) -> list[Path]:
    """Write a PNG for each kind of measurement that there is. Returns their paths. Raises NoMatplotlib."""
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise NoMatplotlib from None
    matplotlib.use("Agg")
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    folder.mkdir(parents=True, exist_ok=True)
    device = str(results.data["device"].get("name", "unknown device"))
    written = []
    pictures: tuple[tuple[str, str, Callable[[Any, dict[str, Any]], bool]], ...] = (
        ("decode", "Decode: bytes of K and V in a second", _decode),
        ("prefill", "Prefill, causal", _prefill),
        ("price", "The price of invariance", _price),
        ("goals", "Against what was aimed at", _goals),
    )
    for name, title, picture in pictures:
        figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
        if picture(axes, results.data):
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(f"{title}, {device}", loc="left")
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=150)
            written.append(path)
        pyplot.close(figure)
    return written


def _kind(row: dict[str, Any]) -> str:
    """kvcore's rows by the special feature that their names give; SDPA's by back end."""
    if row["who"] != "kvcore":
        return str(row["who"])
    first, *more = (word.strip() for word in row["name"].split(","))
    special = [word for word in [first, *more] if word.startswith(("Zipf", "FP8", "blocks", "group"))]
    return f"kvcore, {', '.join(special)}" if special else "kvcore"


def _decode(axes: Any, data: dict[str, Any]) -> bool:
    """Bandwidth over the bytes of K and V, with the copy bandwidth as a line."""
    rows = [row for row in data["rows"] if row["part"] == "decode"]
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        series.setdefault(_kind(row), []).append((row["bytes"] / 1e6, row["bytes_per_s"] / 1e12))
    for kind, points in series.items():
        ours = kind.startswith("kvcore")
        marker = "o" if kind == "kvcore" else "D" if ours else "x"
        x, y = zip(*sorted(points), strict=True)
        axes.plot(x, y, marker=marker, linestyle="", label=kind, zorder=3 if ours else 2)
    copy = data["measured"].get("copy_bytes_per_s")
    if copy:
        axes.axhline(copy / 1e12, color="gray", linewidth=1)
        axes.annotate("copy, read and write", (0.01, copy / 1e12), xycoords=("axes fraction", "data"), va="bottom")
        axes.axhline(0.9 * copy / 1e12, color="gray", linewidth=1, linestyle="--")
        axes.annotate("90 %", (0.01, 0.9 * copy / 1e12), xycoords=("axes fraction", "data"), va="top")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set(xlabel="K and V, MB", ylabel="TB/s")
    if rows:
        axes.legend(frameon=False, loc="lower right", fontsize=8)
    return bool(rows)


def _prefill(axes: Any, data: dict[str, Any]) -> bool:
    """Rate over the prompt's length, with the rate of matrix products as a line."""
    rows = [row for row in data["rows"] if row["part"] == "prefill"]
    whole = [row for row in rows if not row["chunk"] and row["name"].startswith("1 x ") and "," not in row["name"]]
    series: dict[str, list[tuple[float, float]]] = {}
    for row in whole:
        series.setdefault(row["who"], []).append((row["length"], row["flop_per_s"] / 1e12))
    for who, points in series.items():
        ours = who == "kvcore"
        x, y = zip(*sorted(points), strict=True)
        axes.plot(x, y, marker="o" if ours else "x", linestyle="-" if ours else ":", label=who)
    for row in rows:
        if row not in whole and row["who"] == "kvcore":
            axes.plot([row["length"]], [row["flop_per_s"] / 1e12], marker="D", linestyle="", color="gray")
            axes.annotate(
                row["name"],
                (row["length"], row["flop_per_s"] / 1e12),
                textcoords="offset points",
                xytext=(4, -9),
                fontsize=7,
            )
    product = data["measured"].get("matmul_flop_per_s")
    if product:
        axes.axhline(product / 1e12, color="gray", linewidth=1)
        axes.annotate("bf16 products", (0.01, product / 1e12), xycoords=("axes fraction", "data"), va="bottom")
    axes.set_xscale("log", base=2)
    ticks = sorted({row["length"] for row in whole})
    axes.set_xticks(ticks, [f"{tick // 1024}k" if tick % 1024 == 0 else str(tick) for tick in ticks])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="tokens of a prompt", ylabel="TFLOP/s")
    if whole:
        axes.legend(frameon=False, loc="lower right")
    return bool(rows)


def _price(axes: Any, data: dict[str, Any]) -> bool:
    """What leaves of 512 cost."""
    rows = [row for row in data["rows"] if row["part"] == "tax" and row["who"] != "one leaf"]
    labels = [f"{row['kind']} {row['name']}, {row['schedule']}" for row in rows]
    axes.barh(range(len(rows)), [100 * row["price"] for row in rows], height=0.6)
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.axvline(3, color="gray", linestyle="--", linewidth=1)
    axes.annotate("3 %", (3, 0), xycoords=("data", "axes fraction"), ha="left", va="bottom")
    axes.set(xlabel="more time than with one leaf, %")
    return bool(rows)


def _goals(axes: Any, data: dict[str, Any]) -> bool:
    """Measured over target, or target over measured where less is better."""
    goals = [
        goal for goal in data["goals"] if goal["measured"] is not None and goal["measured"] > 0 and goal["target"] > 0
    ]
    ratios = [
        goal["measured"] / goal["target"] if goal["at_least"] else goal["target"] / goal["measured"] for goal in goals
    ]
    shown = [min(ratio, 2.0) for ratio in ratios]
    colours = ["tab:green" if ratio >= 1 else "tab:orange" for ratio in ratios]
    axes.barh(range(len(goals)), shown, height=0.6, color=colours)
    axes.set_yticks(range(len(goals)), [goal["name"] for goal in goals])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xlabel="times the goal (cut off at 2)")
    return bool(goals)
