"""A request of a trace, what its ids stand for, and what is wrong with a file that is not a trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["GENERATED", "ID_RANGE", "LAST_TOKEN", "MAX_HASH_ID", "UNIT", "BadLine", "Request", "TraceError", "short"]

UNIT = 512
"""Tokens that one hash id stands for."""

LAST_TOKEN = 2**31 - 1
"""The first generated token; the next ones count down from here."""

GENERATED = 2**27
"""Token values kept for generated tokens."""

MAX_HASH_ID = (2**31 - GENERATED) // UNIT - 1
"""Larger ids have no 512 values of their own in int32 beside those of the generated tokens (3,932,159)."""

ID_RANGE = f"ids from 0 to {MAX_HASH_ID}, so that {UNIT} token ids for each fit into int32 beside the generated ones"


@dataclass(frozen=True, slots=True)
class Request:
    """One request. input_length, output_length: tokens, at least 1. hash_ids: one for each 512 tokens of the prompt.

    Equal ids are equal tokens after an equal prefix. The last id may stand for fewer than 512 tokens.
    """

    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


class TraceError(ValueError):
    """A file that is not a trace. `file`, `line` (from 1; 0: the file as a whole), `found`, `expected`."""

    def __init__(self, file: str | Path, line: int, found: str, expected: str) -> None:
        super().__init__(f"{file}{f':{line}' if line else ''}: {found}; expected {expected}")
        self.file = str(file)
        self.line = line
        self.found = found
        self.expected = expected


class BadLine(ValueError):
    """A line that is not a request: what was `found`, and what was `expected`. Whoever reads the file says where."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"{found}; expected {expected}")
        self.found = found
        self.expected = expected


def short(value: object) -> str:
    """The value as an error shows it: 80 characters at most."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
