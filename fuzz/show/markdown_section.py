"""The generated section of a Markdown page: what stands between two marks. The rest of the page is written by hand.

    <!-- compare: begin -->
    (replaced)
    <!-- compare: end -->

The text between the marks comes from the caller.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["marks", "replace_section"]


def marks(name: str) -> tuple[str, str]:
    """The two lines around the section called `name`.

    >>> marks("survey")
    ('<!-- survey: begin -->', '<!-- survey: end -->')
    """
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def replace_section(path: Path, name: str, text: str) -> None:
    """Put `text` between the marks of `name` in the file. Raises ValueError, and changes nothing, without them."""
    begin, end = marks(name)
    whole = path.read_text(encoding="utf-8")
    before, found, rest = whole.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{path} has no markers: expected the lines {begin} and {end} around what is to be replaced")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
