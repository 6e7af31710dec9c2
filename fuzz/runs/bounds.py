"""What a file may ask for at most, looked at before anything is built of it.

Somebody else may have written the file. One that nests a million brackets, or names a pool of 50 million blocks, must
be refused in a moment and by name, and not take all memory. Each bound is far above what an honest file has; its reason
stands beside it. Every reader of files uses these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "BLANKS",
    "BLOCKS",
    "BLOCK_SIZE",
    "DEPTH",
    "DIGITS",
    "FILE",
    "LINE",
    "OPERATIONS",
    "PLAN",
    "REQUESTS",
    "SLOTS",
    "TOKENS",
    "TOKENS_OF_ONE",
    "TRACE",
    "WORKERS",
    "TooMuch",
    "json_of",
    "pool_within",
    "text_of",
    "tokens_within",
]

FILE = 64 << 20
"""Bytes of a counterexample, a recording, a baseline or a summary. A million operations have about 50 MB; read, they
take ten times that in memory."""

PLAN = 256 << 10
"""Bytes of a plan. Somebody types it; the reader of TOML takes a time that grows with the square of some texts."""

LINE = 4 << 20
"""Bytes of a line of a trace: the ids of 100 million tokens. The file as a whole is read line by line."""

TRACE = 1 << 30
"""Bytes of a trace, unpacked. Its requests are kept in memory, at up to five times that."""

REQUESTS = 1 << 22
"""Requests of a trace: the largest public ones have a million."""

BLANKS = 100_000
"""Blank lines of a trace. Packed, a gigabyte of them is a megabyte."""

DEPTH = 32
"""How deep JSON may nest. A baseline's symptoms, the deepest that is written here, have 8."""

DIGITS = 100
"""Digits of an integer. 64 bits have 20; some wrong token ids are longer on purpose."""

OPERATIONS = 1_000_000
"""Operations of a file: an hour of an engine. They are replayed at some 10,000 a second."""

BLOCKS = 1 << 20
"""Blocks of a pool. The judge keeps about a kilobyte of each."""

BLOCK_SIZE = 1 << 16
"""Slots of a block."""

SLOTS = 1 << 26
"""Slots of a pool: 64 million tokens. The judge keeps 12 bytes of each."""

TOKENS = 1 << 28
"""Token ids of a file: a trace of 20,000 requests of 13,000 tokens. Four bytes each."""

TOKENS_OF_ONE = 1 << 24
"""Token ids of an operation, and of a request of a trace: more than any context is long."""

WORKERS = 1024
"""Processes that a plan may ask for. Each has some 100 MB."""


class TooMuch(ValueError):
    """More than is allowed. found: what; allowed: how much. line: from 1; 0 where there is none."""

    def __init__(self, found: str, allowed: str, line: int = 0) -> None:
        super().__init__(f"{found}; allowed are {allowed}")
        self.found = found
        self.allowed = allowed
        self.line = line


def text_of(path: Path, most: int = FILE) -> str:
    """The text of a file of at most `most` bytes; of a larger one nothing is kept. Raises TooMuch, OSError,
    UnicodeDecodeError."""
    with path.open("rb") as file:
        data = file.read(most + 1)  # and not its size, which a pipe or a device does not have
    if len(data) > most:
        raise TooMuch(f"more than {most:,} bytes", f"{most:,} in a file of this kind")
    return data.decode("utf-8")


def json_of(text: str | bytes) -> Any:
    """`json.loads`, for a text of anybody's. Raises TooMuch for what nests too deep or has too long an integer, and
    JSONDecodeError. O(text)."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if _LONG.search(text) and (wrong := _LONG.search(_STRING.sub(_blank, text))):  # in a string it is harmless
        raise TooMuch(f"an integer of {len(wrong[0]):,} digits", f"{DIGITS}", _line(text, wrong.start()))
    try:
        data = json.loads(text)
    except RecursionError:
        raise _too_deep(text) from None
    if _deeper(data):
        raise _too_deep(text)
    return data


def _deeper(data: Any) -> bool:
    level = [data]
    for _ in range(DEPTH + 1):
        below: list[Any] = []
        for one in level:
            if type(one) is dict:
                below += [value for value in one.values() if type(value) in _NESTED]
            elif type(one) is list:
                below += [value for value in one if type(value) in _NESTED]
        if not below:
            return False
        level = below
    return True


def _too_deep(text: str) -> TooMuch:
    depth = line = 0
    for match in _BRACKET.finditer(text):
        sign = match[0][0]
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        if depth > DEPTH:
            line = _line(text, match.start())
            break
    return TooMuch(f"lists and objects nested more than {DEPTH} deep", f"{DEPTH}", line)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _blank(match: re.Match[str]) -> str:
    return '""'.ljust(len(match[0]))


_NESTED = (list, dict)
_LONG = re.compile(rf"\d{{{DIGITS + 1},}}")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[\[\]{}]')


def pool_within(num_blocks: int, block_size: int) -> None:
    """Raises TooMuch for a pool that no file may ask for."""
    if num_blocks > BLOCKS:
        raise TooMuch(f"a pool of {num_blocks:,} blocks", f"{BLOCKS:,}")
    if block_size > BLOCK_SIZE:
        raise TooMuch(f"blocks of {block_size:,} slots", f"{BLOCK_SIZE:,}")
    if num_blocks * block_size > SLOTS:
        raise TooMuch(f"{num_blocks:,} blocks of {block_size:,}, {num_blocks * block_size:,} slots", f"{SLOTS:,}")


def tokens_within(operations: Iterable[Any]) -> None:
    """Operations as JSON has them, not decoded yet. Raises TooMuch, with the operation's index as `line`, if their runs
    of tokens stand for too many. What is no operation is passed over. O(items)."""
    total = 0
    for number, operation in enumerate(operations):
        tokens = operation.get("tokens") if isinstance(operation, Mapping) else None
        if not isinstance(tokens, list):
            continue
        count = 0
        for item in tokens:
            run = type(item) is list and len(item) > 1 and type(item[1]) is int
            count += item[1] if run and item[1] > 0 else 1
        total += count
        if count > TOKENS_OF_ONE:
            raise TooMuch(f"{count:,} tokens", f"{TOKENS_OF_ONE:,} in an operation", number)
        if total > TOKENS:
            raise TooMuch(f"{total:,} tokens up to here", f"{TOKENS:,} in a file", number)
