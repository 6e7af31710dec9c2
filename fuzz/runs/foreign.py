"""Text of somebody else's, made fit for where it goes: a terminal, a page of Markdown.

A request id, a message, a note or a target's exception may hold anything. In a terminal an escape sequence moves the
cursor, renames the window or hides what was printed; in Markdown a tag or a link is shown as ours.
"""

from __future__ import annotations

import os
import re

__all__ = ["code", "in_markdown", "printed", "visible"]

_CONTROL = {
    number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0)) if chr(number) not in "\n\t"
} | {number: f"\\u{number:04x}" for number in (0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))}
"""Control characters, and those that turn the direction of a line, as Python writes them."""

_MARKUP = {ord(sign): f"\\{sign}" for sign in "\\`*[]|#~!"} | {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord("\n"): " ",
    ord("\t"): " ",
}


_EMPHASIS = re.compile(r"(?<!\w)_|_(?!\w)")
"""Within a word it is none."""


def visible(text: str) -> str:
    """`text` with each control character written out, but for line ends and tabs. O(text).

    >>> visible("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return text.translate(_CONTROL)


def printed(text: str) -> str:
    """What is visible of `text`, as it may be printed: in GitHub's log, no line of it is a command. O(text)."""
    text = visible(text)
    return _COMMAND.sub(r"\1 ", text) if os.environ.get("GITHUB_ACTIONS") == "true" else text


_COMMAND = re.compile(r"(^\s*:(?=:)|#(?=#\[))", re.MULTILINE)
"""The first sign of what would be one: a space goes after it."""


def in_markdown(text: str) -> str:
    """`text` in one line of Markdown, also in a table's cell, that shows as it is and is no markup. O(text).

    >>> in_markdown("<b>|*x*")
    '&lt;b&gt;\\\\|\\\\*x\\\\*'
    """
    return _EMPHASIS.sub(r"\\_", visible(text).translate(_MARKUP))


def code(text: str) -> str:
    """`text` as code in a line of Markdown, also in a table's cell. O(text)."""
    text = " ".join(visible(text).split("\n")).replace("|", "\\|")
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (max(map(len, "".join(sign if sign == "`" else " " for sign in text).split())) + 1)
    return f"{fence} {text} {fence}"
