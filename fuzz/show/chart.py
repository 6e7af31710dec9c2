"""The geometry of charts: a campaign's curve, curves and stacks over campaigns, bars on a log scale, a heat map.

Geometry only, no markup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["chart", "curves", "heat", "logarithmic", "stacks"]

WIDTH, HEIGHT = 600, 180
"""Size of the plot itself. The template leaves room for the labels."""


def logarithmic(count: int, most: int) -> float:
    """The length of a bar for `count` where `most` has length 1; 1 is seen, 0 is nothing."""
    return round(math.log1p(count) / math.log1p(most), 4) if count > 0 and most > 0 else 0.0


def _ticks(most: float, about: int = 4) -> list[float]:
    """Round values from 0 on that cover `most`, not far from `about` of them."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [round(place * step, 10) for place in range(math.ceil(most / step - 1e-9) + 1)]


def chart(timeline: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Checked operations over time, each engine's area on top of the last one's; None where there is no curve.

    timeline: {"seconds", "operations", "by_engine": {engine: operations}, "findings"}, all running totals."""
    points = [point for point in timeline if point.get("by_engine")]
    if len(points) < 2:
        return None
    engines = list(dict.fromkeys(name for point in points for name in point["by_engine"]))
    seconds = [float(point["seconds"]) for point in points]
    totals = [sum(point["by_engine"].values()) for point in points]
    across, up = _ticks(seconds[-1], 6), _ticks(max(totals))
    last = max(seconds[-1], 1e-9)

    def x(value: float) -> float:
        return round(WIDTH * value / last, 1)

    def y(value: float) -> float:
        return round(HEIGHT * (1 - value / up[-1]), 1)

    areas: list[dict[str, Any]] = []
    floor = [0] * len(points)
    for place, name in enumerate(engines):
        top = [below + point["by_engine"].get(name, 0) for below, point in zip(floor, points, strict=True)]
        forth = [f"{x(at)},{y(value)}" for at, value in zip(seconds, top, strict=True)]
        back = [f"{x(at)},{y(value)}" for at, value in zip(seconds, floor, strict=True)]
        start = f"{x(0)},{y(0)}"
        areas.append(
            {
                "engine": name,
                "operations": top[-1] - floor[-1],
                "area": " ".join([start, *forth, *reversed(back)]),
                "line": " ".join([start, *forth]),
                "hue": place % 6,
                "seen": 100 * (top[-1] - floor[-1]) >= max(totals),  # a thinner one would be all outline
                "label": round((y(top[-1]) + y(floor[-1])) / 2, 1),
            }
        )
        floor = top
    # Labels at the end of each area, unless it is too thin there and its label would lie on another's.
    placed: list[float] = []
    for area in sorted(areas, key=lambda one: -int(one["operations"])):
        if any(abs(area["label"] - other) < 14 for other in placed):
            area["label"] = None
        else:
            placed.append(area["label"])
    found, marks = 0, []
    for point in points:
        if point.get("findings", 0) > found:
            marks.append({"x": x(point["seconds"]), "count": point["findings"]})
            found = point["findings"]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "areas": areas,
        "findings": marks,
        "across": [{"x": x(tick), "label": _clock(tick, last)} for tick in across if tick <= last * 1.0001],
        "up": [{"y": y(tick), "label": _brief(tick)} for tick in up],
    }


def _clock(seconds: float, last: float) -> str:
    if last >= 7200:
        return f"{seconds / 3600:g} h"
    return f"{seconds / 60:.3g} min" if last >= 180 else f"{seconds:g} s"


def _brief(value: float) -> str:
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def curves(series: Mapping[str, Sequence[float | None]], labels: Sequence[str]) -> dict[str, Any] | None:
    """A line for each of `series`, whose values stand evenly from left to right under `labels`; None is a gap. None
    where there is nothing to draw. O(values)."""
    most = max((value for values in series.values() for value in values if value is not None), default=0.0)
    if not labels or most <= 0:
        return None
    up = _ticks(most)

    def y(value: float) -> float:
        return round(HEIGHT * (1 - value / up[-1]), 1)

    lines: list[dict[str, Any]] = []
    for place, (name, values) in enumerate(series.items()):
        parts: list[list[str]] = [[]]
        points = []
        for index, value in enumerate(values):
            if value is None:
                parts.append([])
                continue
            x = _middle(index, len(labels))
            parts[-1].append(f"{x},{y(value)}")
            points.append({"x": x, "y": y(value), "value": value, "label": labels[index]})
        if points:
            lines.append(
                {
                    "name": name,
                    "hue": place % 6,
                    "parts": [" ".join(part) for part in parts if len(part) > 1],
                    "points": points,
                    "last": points[-1]["value"],
                    "label": points[-1]["y"],
                }
            )
    _apart(lines)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "lines": lines,
        "across": _across(labels),
        "up": [{"y": y(tick), "label": _brief(tick)} for tick in up],
    }


def stacks(columns: Sequence[Mapping[str, int]], labels: Sequence[str]) -> dict[str, Any] | None:
    """A column for each of `columns`, one count upon the other in their order, evenly from left to right under
    `labels`; None where all counts are 0. O(counts)."""
    most = max((sum(column.values()) for column in columns), default=0)
    if not most:
        return None
    up = [tick for tick in _ticks(most) if tick == int(tick)]
    wide = round(min(40.0, 0.7 * WIDTH / len(labels)), 1)
    drawn: list[dict[str, Any]] = []
    for index, column in enumerate(columns):
        below = 0
        for name, count in column.items():
            if count:
                drawn.append(
                    {
                        "name": name,
                        "count": count,
                        "label": labels[index],
                        "x": round(_middle(index, len(labels)) - wide / 2, 1),
                        "y": round(HEIGHT * (1 - (below + count) / up[-1]), 1),
                        "height": round(HEIGHT * count / up[-1], 1),
                    }
                )
                below += count
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "wide": wide,
        "boxes": drawn,
        "across": _across(labels),
        "up": [{"y": round(HEIGHT * (1 - tick / up[-1]), 1), "label": _brief(tick)} for tick in up],
    }


def _middle(index: int, count: int) -> float:
    return round(WIDTH * (index + 0.5) / count, 1)


def _across(labels: Sequence[str]) -> list[dict[str, Any]]:
    """As many labels as have room, the last one always."""
    every = -(-len(labels) // 8)
    return [
        {"x": _middle(index, len(labels)), "label": label}
        for index, label in enumerate(labels)
        if (len(labels) - 1 - index) % every == 0
    ]


def _apart(lines: Sequence[dict[str, Any]]) -> None:
    """Labels at the ends of lines, each pushed down until it lies on no other's."""
    floor = -math.inf
    for line in sorted(lines, key=lambda one: float(one["label"])):
        floor = line["label"] = max(line["label"], floor + 14)


def heat(coverage: Mapping[str, Mapping[str, int]]) -> dict[str, Any] | None:
    """A table of kinds of operations by block states, each count with its place between 0 and 1 on a log scale."""
    columns = list(dict.fromkeys(state for row in coverage.values() for state in row))
    if not columns:
        return None
    most = max(count for row in coverage.values() for count in row.values())
    return {
        "columns": columns,
        "rows": [
            {
                "kind": kind,
                "cells": [
                    {"count": row.get(state, 0), "share": logarithmic(row.get(state, 0), most)} for state in columns
                ],
            }
            for kind, row in coverage.items()
        ],
    }
