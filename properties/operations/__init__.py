"""Operations are data: the small frozen values that a run consists of.

Everything that finds bugs here only *produces* operations, and one `Session` applies them. A run is a list that a
person can read, edit, shorten and keep; it replays on any target. Operations carry names (request ids, step numbers,
match names), never positions in a list, so that deleting a line leaves the meaning of the others alone.

Each kind is a dataclass with its record (see `kind`): what it needs, how it is described, how it is shrunk. `Operation`
lists the kinds; a `match` over it ends in `assert_never`, and a table by kind is made with `for_every_kind`, so that a
new kind is named wherever it was forgotten. The file format (`codec`) is JSON with a schema version. `SCHEMA` only
grows; a frozen corpus of every version is in `tests/corpus/` and must be read for ever.

Imports: properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, get_args

from ..configuration import NAMESPACE_KINDS, REUSES, UNKNOWN, Configuration, Malformed, Namespace, Tokens
from .codec import check_fields, decode_as, encode, encode_tokens
from .growth import Append, Fill, Truncate
from .kind import Kind, Names, WithPrompt
from .prompts import Allocate, Lookup
from .steps import Complete, Dispatch
from .whole import Fork, Free, Reset

__all__ = [
    "NAMESPACE_KINDS",
    "OPERATIONS",
    "REUSES",
    "SCHEMA",
    "UNKNOWN",
    "Allocate",
    "Append",
    "Complete",
    "Configuration",
    "Dispatch",
    "Fill",
    "Fork",
    "Free",
    "Kind",
    "Lookup",
    "Malformed",
    "Names",
    "Namespace",
    "Operation",
    "Reset",
    "Tokens",
    "Truncate",
    "WithPrompt",
    "decode",
    "encode",
    "encode_tokens",
    "for_every_kind",
]

SCHEMA = 1

Operation = Lookup | Allocate | Append | Fill | Dispatch | Complete | Truncate | Fork | Free | Reset

OPERATIONS: dict[str, type[Operation]] = {kind.op: kind for kind in get_args(Operation)}
"""The kinds by their names in files."""

check_fields(OPERATIONS.values())

_T = TypeVar("_T")


def decode(data: Any) -> Operation:
    """The operation that `encode` made this from. Raises Malformed, saying what was expected. O(tokens)."""
    return decode_as(OPERATIONS, data)


def for_every_kind(what: str, table: dict[str, _T], but: Iterable[str] = ()) -> dict[str, _T]:
    """`table`, by names of kinds, if it has every kind but those of `but`, and no other. Raises TypeError, for the
    import to fail: it says which kinds are forgotten or unknown, and `what` the table is. O(kinds)."""
    due = set(OPERATIONS) - set(but)
    if forgotten := sorted(due - set(table)):
        raise TypeError(f"{what} lacks {', '.join(forgotten)}")
    if unknown := sorted(set(table) - due):
        raise TypeError(f"{what} has {', '.join(unknown)}, which it should not; operations are {', '.join(OPERATIONS)}")
    return table
