"""Operations are data: the small frozen values that a run consists of.

Everything that finds bugs here only *produces* operations, and one `Session` applies them. A run is a list that a
person can read, edit, shorten and keep; it replays on any target. Operations carry names (request ids, step numbers,
match names), never positions in a list, so that deleting a line leaves the meaning of the others alone.

The file format is JSON with a schema version. `SCHEMA` only grows; a frozen corpus of every version is in
`tests/corpus/` and must be read for ever.

This room may not know: targets, models, Hypothesis.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

__all__ = [
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
    "Lookup",
    "Malformed",
    "Namespace",
    "Operation",
    "Reset",
    "Tokens",
    "Truncate",
    "decode",
    "encode",
]

SCHEMA = 1

UNKNOWN = -1
"""A placeholder token in `Append`; `Fill` names it."""

Tokens = Sequence[int]
"""Token ids: a tuple, or `array('i')` where they are many (a trace)."""

Namespace = tuple[tuple[str, str], ...]
"""What K/V depend on besides tokens: (kind, value) pairs sorted by kind; () is the default. See `KINDS`."""

REUSES = ("last_block", "last_token")
"""What `Configuration.reuse` can be."""

KINDS = ("adapter", "media", "model", "salt", "weights")


class Malformed(ValueError):
    """JSON that is not an operation or a configuration. Says what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a target is built with.

    num_blocks, block_size: the pool. hash_bits: 0 (constant) to 128, for targets whose hash can be chosen.
    reuse: "last_block" or "last_token" (see kvcore.ReusePolicy). caching: prefix reuse on or off.
    """

    num_blocks: int = 8
    block_size: int = 4
    hash_bits: int = 128
    reuse: str = "last_block"
    caching: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (("num_blocks", 1, 2**31 - 1), ("block_size", 1, 2**31 - 1), ("hash_bits", 0, 128)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise Malformed(f"configuration: {name} must be an integer from {low} to {high}, got {value!r}")
        if self.reuse not in REUSES:
            raise Malformed(f"configuration: reuse must be 'last_block' or 'last_token', got {self.reuse!r}")
        if type(self.caching) is not bool:
            raise Malformed(f"configuration: caching must be true or false, got {self.caching!r}")

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, data: Any) -> Configuration:
        if not isinstance(data, dict):
            raise Malformed(f"configuration must be an object, got {data!r:.80}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise Malformed(f"configuration has unknown fields {unknown}; known are {sorted(known)}")
        return cls(**data)

    def __str__(self) -> str:
        return (
            f"{self.num_blocks} block{'s' * (self.num_blocks > 1)} of {self.block_size}, {self.reuse}, "
            f"{'caching' if self.caching else 'no caching'}, {self.hash_bits}-bit hash"
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ask what would be hit. With `match`, keep the answer under that name for a later `Allocate`."""

    op: ClassVar[str] = "lookup"
    tokens: Tokens
    namespace: Namespace = ()
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Allocate:
    """Admit a request. With `match`, pass the answer kept under that name (however old)."""

    op: ClassVar[str] = "allocate"
    request: str
    tokens: Tokens
    namespace: Namespace = ()
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Add decode or draft tokens, or placeholders (`UNKNOWN`)."""

    op: ClassVar[str] = "append"
    request: str
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Fill:
    """Name placeholders from `position` on."""

    op: ClassVar[str] = "fill"
    request: str
    position: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Schedule the next n unscheduled tokens of each (request, n). `step` is this run's own name for the step."""

    op: ClassVar[str] = "dispatch"
    step: int
    work: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """The step's K/V are written."""

    op: ClassVar[str] = "complete"
    step: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut a sequence to `length` tokens."""

    op: ClassVar[str] = "truncate"
    request: str
    length: int


@dataclass(frozen=True, slots=True)
class Fork:
    """A second sequence with the same tokens in the same blocks."""

    op: ClassVar[str] = "fork"
    request: str
    child: str


@dataclass(frozen=True, slots=True)
class Free:
    """Finish, abort or preempt a request."""

    op: ClassVar[str] = "free"
    request: str


@dataclass(frozen=True, slots=True)
class Reset:
    """Forget all cached content."""

    op: ClassVar[str] = "reset"


Operation = Lookup | Allocate | Append | Fill | Dispatch | Complete | Truncate | Fork | Free | Reset

OPERATIONS: dict[str, type[Operation]] = {
    kind.op: kind for kind in (Lookup, Allocate, Append, Fill, Dispatch, Complete, Truncate, Fork, Free, Reset)
}


# ---- JSON ------------------------------------------------------------------------------------------------------------

_RUN = 4
"""Shortest stretch of evenly spaced tokens that is written as a run."""


def encode(operation: Operation) -> dict[str, Any]:
    """The operation as JSON-ready data. Fields at their default are left out; long token lists become runs.
    O(tokens).
    """
    data: dict[str, Any] = {"op": operation.op}
    for field in fields(operation):
        value = getattr(operation, field.name)
        if field.name == "tokens":
            value = encode_tokens(value)
        elif field.name == "namespace":
            value = dict(value)
            if not value:
                continue
        elif field.name == "work":
            value = [list(entry) for entry in value]
        elif value is None:
            continue
        data[field.name] = value
    return data


def encode_tokens(tokens: Tokens) -> list[Any]:
    """Token ids with runs: [first, count] stands for consecutive ids, [first, count, step] for evenly spaced ones."""
    encoded: list[Any] = []
    start, size = 0, len(tokens)
    while start < size:
        end = start + 1
        if end < size and type(tokens[start]) is int and type(tokens[end]) is int:
            step = tokens[end] - tokens[start]
            while end < size and type(tokens[end]) is int and tokens[end] - tokens[end - 1] == step:
                end += 1
            if end - start >= _RUN:
                encoded.append([tokens[start], end - start] if step == 1 else [tokens[start], end - start, step])
                start = end
                continue
        encoded.append(tokens[start])
        start += 1
    return encoded


def decode(data: Any) -> Operation:
    """The operation that `encode` made this from. Raises Malformed, saying what was expected. O(tokens)."""
    if not isinstance(data, Mapping) or "op" not in data:
        raise Malformed(f'expected an object with "op", got {data!r:.80}')
    kind = OPERATIONS.get(data["op"]) if isinstance(data["op"], str) else None
    if kind is None:
        raise Malformed(f"unknown operation {data['op']!r}; known are {', '.join(OPERATIONS)}")
    known = {field.name: field for field in fields(kind)}
    if unknown := sorted(set(data) - set(known) - {"op"}):
        raise Malformed(f"{kind.op} has no fields {unknown}; it has {', '.join(known) or 'none'}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name == "op":
            continue
        decoder, expected = _DECODERS[name]
        try:
            values[name] = decoder(value)
        except (TypeError, ValueError, KeyError):
            raise Malformed(f"{kind.op}: {name} must be {expected}, got {value!r:.80}") from None
    try:
        return kind(**values)
    except TypeError:
        missing = [name for name in known if name not in values and name not in ("namespace", "match")]
        raise Malformed(f"{kind.op} lacks {', '.join(missing)}") from None


def decode_tokens(data: Any) -> Tokens:
    """What `encode_tokens` wrote. Invalid token ids pass: refusing them is the target's business. O(tokens)."""
    if not isinstance(data, list):
        raise TypeError
    tokens: list[Any] = []
    for item in data:
        if isinstance(item, list):
            first, count, step = item if len(item) == 3 else (*item, 1)
            if not all(type(number) is int for number in (first, count, step)) or not 0 <= count <= 2**31:
                raise TypeError
            tokens.extend(range(first, first + count * step, step) if step else [first] * count)
        else:
            tokens.append(item)
    if len(tokens) > 4096:
        try:
            return array("i", tokens)
        except (TypeError, OverflowError):
            pass
    return tuple(tokens)


def _typed(kind: type) -> Any:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return check


def _namespace(value: Any) -> Namespace:
    if not isinstance(value, dict) or any(
        kind not in KINDS or not isinstance(part, str) for kind, part in value.items()
    ):
        raise TypeError
    return tuple(sorted(value.items()))


def _work(value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return tuple((_typed(str)(request), _typed(int)(count)) for request, count in value)


_DECODERS: dict[str, tuple[Any, str]] = {
    "request": (_typed(str), "a string"),
    "child": (_typed(str), "a string"),
    "match": (_typed(str), "a string"),
    "step": (_typed(int), "an integer"),
    "length": (_typed(int), "an integer"),
    "position": (_typed(int), "an integer"),
    "tokens": (decode_tokens, "a list of token ids and runs [first, count] or [first, count, step]"),
    "namespace": (_namespace, f"an object with string values and keys among {', '.join(KINDS)}"),
    "work": (_work, "a list of [request, count] pairs"),
}
