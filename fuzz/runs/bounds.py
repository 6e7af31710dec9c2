"""How large what somebody else wrote may be, before anything is built from it; and JSON that is read within that.

A counterexample is a list that a person can read. The largest that a campaign has ever written had 3 MB; a recording of
an incident may have more. What is beyond these bounds is refused with a sentence, and costs neither memory nor time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from properties.operations import Configuration, Malformed, Operation

__all__ = ["MOST_BYTES", "TooMuch", "checked", "read_json", "read_text"]

MOST_BYTES = 64 << 20
"""Of a counterexample, a recording, a baseline."""

_MOST_BLOCKS = 1 << 21
_MOST_SLOTS = 1 << 28
"""Blocks, and blocks times tokens of a block, of a pool: more than any server's, and some gigabytes for the judge."""

_MOST_OPERATIONS = 2_000_000
_MOST_TOKENS = 50_000_000
"""Of all prompts and appends together: runs are short in a file and long in memory."""


class TooMuch(ValueError):
    """Says what was found and what is allowed."""


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a file, if that is not too long. Raises OSError, UnicodeDecodeError, TooMuch."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TooMuch(f"it has more than {most:,} bytes, which is what is read")
    return data.decode("utf-8")


def read_json(text: str) -> Any:
    """What the text says. Raises json.JSONDecodeError, TooMuch."""
    try:
        return json.loads(text)
    except RecursionError:
        raise TooMuch("it is nested too deep; what this tool writes is nested 4 deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise TooMuch(f"a number in it is too long ({error})") from None


def checked(configuration: Configuration, operations: list[Operation]) -> None:
    """Raises Malformed if the pool, the list or its tokens are larger than what is replayed."""
    blocks, slots = configuration.num_blocks, configuration.num_blocks * configuration.block_size
    if blocks > _MOST_BLOCKS or slots > _MOST_SLOTS:
        raise Malformed(
            f"configuration: {blocks:,} blocks of {configuration.block_size:,} tokens; at most {_MOST_BLOCKS:,} blocks "
            f"and {_MOST_SLOTS:,} tokens in all are replayed"
        )
    if len(operations) > _MOST_OPERATIONS:
        raise Malformed(f"{len(operations):,} operations; at most {_MOST_OPERATIONS:,} are replayed")
    tokens = sum(len(getattr(operation, "tokens", ())) for operation in operations)
    if tokens > _MOST_TOKENS:
        raise Malformed(f"operations with {tokens:,} tokens; at most {_MOST_TOKENS:,} are replayed")
