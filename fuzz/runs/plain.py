"""Text that somebody else wrote, fit for a terminal, a log and a page of Markdown."""

from __future__ import annotations

import re

__all__ = ["in_markdown", "plain"]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys and does not show, marks that turn the direction of text round, halves of characters. Lines and
tabs stay."""


def plain(text: str) -> str:
    """With control characters spelled out: ESC is \\x1b. O(text)."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def in_markdown(text: str) -> str:
    """In one line of Markdown, a table's cell as well: nothing in it is markup. O(text)."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", " ".join(text.split()))
