"""How the picture of a counterexample is drawn: what the template `picture.html` needs besides `picture`'s data.

Neighbouring columns in which nothing happened to a block are one bar. Blocks that nothing ever touched share one row.
"""

from __future__ import annotations

from typing import Any

__all__ = ["layout"]

_WIDTHS = ((8, 108), (14, 84), (24, 60), (60, 42))
"""(columns at most, pixels of one)."""
_NARROW = 32
_TALL_ROWS = 16
"""Blocks at most for rows of two lines: holders above, tokens below."""
_HUES = 6
"""Colours that are told apart whatever one's eyes; more requests share them, and names tell."""


def layout(data: dict[str, Any]) -> dict[str, Any]:
    """What the template needs to draw `picture`'s data: bars for each row, widths, colours by request. O(cells)."""
    columns, at = data["columns"], data["at"]
    place_of = {block: place for place, block in enumerate(data["blocks"])}
    width = next((pixels for most, pixels in _WIDTHS if len(columns) <= most), _NARROW)
    ever = {block for column in columns for block in (*column["changed"], *map(int, column["violating"]))}
    wrong_ones = columns[at]["violating"] if at is not None else {}
    touched = [block for block in data["blocks"] if block in ever] or data["blocks"][:4]
    if len(touched) > _TALL_ROWS:  # the others may be out of sight
        touched.sort(key=lambda block: str(block) not in wrong_ones)
    glyph_width = 9 + 7 * max((len(str(sign)) for sign in _signs(data)), default=1)
    tall = len(touched) <= _TALL_ROWS
    rows = []
    for block in touched:
        bars: list[dict[str, Any]] = []
        for place, column in enumerate(columns):
            number = column["blocks"][place_of[block]]
            wrong = place == at and str(block) in column["violating"]
            if bars and bars[-1]["cell"] == number and not wrong:
                bars[-1]["span"] += 1
            else:
                bars.append({"at": place, "span": 1, "cell": number, "wrong": wrong})
        for bar in bars:
            cell = data["cells"][bar["cell"]]
            bar |= _fitting(cell, bar["span"] * width, data["block_size"] * glyph_width, tall)
        rows.append({"block": block, "bars": bars})
    seen = ever | set(touched)
    untouched = [block for block in range(data["num_blocks"]) if block not in seen]
    folded = sorted(ever - set(touched))
    return {
        "rows": rows,
        "width": width,
        "heads": "across" if width >= 84 else "down",
        "tall": tall,
        "untouched": _ranges(untouched),
        "untouched_count": len(untouched),
        "folded": _ranges(folded),
        "folded_count": len(folded),
        "hue": {name: place % _HUES for place, name in enumerate(data["owners"])},
        "selected": _selected(data, touched),
    }


def _selected(data: dict[str, Any], touched: list[int]) -> int:
    """The block that one looks at first: a wrong one, else one of the accused request's, else the first to change."""
    if data["at"] is None:
        return touched[0]
    column = data["columns"][data["at"]]
    tables = [data["lines"][number]["table"] for number in column["requests"]]
    accused = [
        block
        for number, table in zip(column["requests"], tables, strict=True)
        if data["lines"][number]["request"] in column["accused"]
        for block in table[-1:]
    ]
    choices: tuple[int, ...] = (*map(int, column["violating"]), *accused, *column["changed"], *touched)
    return next(block for block in choices if block in touched)


def _fitting(cell: dict[str, Any], width: int, slots: int, tall: bool) -> dict[str, Any]:
    """What of `cell` there is room for in a bar: how many names, the word for its state, and its slots as signs, as a
    meter, or not at all. Colours, and the line of what is published, need no room.
    """
    room = width - (16 if tall else 9)
    chips, used = 0, 0
    for name in cell["holders"]:
        needed = 14 + 7 * min(len(name), 12)
        if chips and used + needed > room:
            break
        chips, used = chips + 1, used + needed
    used += 30 * bool(cell["others"]) + 24 * (chips < len(cell["holders"]))
    mark = bool(cell["published"]) and used + 14 <= room
    label = tall and cell["state"] != "active" and used + 14 * mark + 42 <= room
    left = room if tall else room - used - 14 * mark
    return {
        "chips": chips,
        "mark": mark,
        "label": label,
        "slots": "glyphs" if slots <= left else "meter" if left >= 24 else "",
    }


def _signs(data: dict[str, Any]) -> list[Any]:
    if data["glyphs"] is not None:
        return list(data["glyphs"].values())
    return [token for cell in data["cells"] for token in cell["tokens"]] or ["0"]


def _ranges(blocks: list[int]) -> str:
    """The blocks with stretches of neighbours as first and last."""
    spans: list[list[int]] = []
    for block in blocks:
        if spans and spans[-1][1] == block - 1:
            spans[-1][1] = block
        else:
            spans.append([block, block])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in spans)
