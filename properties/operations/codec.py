"""Operations as JSON: which fields there are, how each is written, and what is read back.

Fields are told by name. The same name is written alike in every kind, so a kind with a new field needs an entry in
`_FIELDS`; one without is a TypeError at import. The format only grows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import repeat
from typing import Any, NamedTuple, TypeVar, cast

from ..configuration import NAMESPACE_KINDS, Malformed, Namespace, Tokens
from .kind import Kind

__all__ = ["check_fields", "decode_as", "decode_tokens", "encode", "encode_tokens"]

_K = TypeVar("_K", bound=Kind)

_LONGEST = 1 << 26
"""Tokens of the longest run that is read: it is short in a file, and long in memory."""

_RUN = 4
"""Shortest stretch of evenly spaced tokens that is written as a run."""


def encode(operation: Kind) -> dict[str, Any]:
    """The operation as JSON-ready data. Fields at their default are left out; long token lists become runs.
    O(tokens).
    """
    data: dict[str, Any] = {"op": operation.op}
    for field in fields(cast(Any, operation)):
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


def decode_as(kinds: Mapping[str, type[_K]], data: Any) -> _K:
    """The operation of one of `kinds` that `encode` made this from. Raises Malformed, saying what was expected.
    O(tokens)."""
    if not isinstance(data, Mapping) or "op" not in data:
        raise Malformed(f'expected an object with "op", got {data!r:.80}')
    kind = kinds.get(data["op"]) if isinstance(data["op"], str) else None
    if kind is None:
        raise Malformed(f"unknown operation {data['op']!r}; known are {', '.join(kinds)}")
    known = _names(kind)
    if unknown := sorted(set(data) - set(known) - {"op"}):
        raise Malformed(f"{kind.op} has no fields {unknown}; it has {', '.join(known) or 'none'}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name == "op":
            continue
        read, expected = _FIELDS[name]
        try:
            values[name] = read(value)
        except (TypeError, ValueError, KeyError):
            raise Malformed(f"{kind.op}: {name} must be {expected}, got {value!r:.80}") from None
    try:
        return kind(**values)
    except TypeError:
        missing = [name for name in known if name not in values and name not in ("namespace", "match")]
        raise Malformed(f"{kind.op} lacks {', '.join(missing)}") from None


def check_fields(kinds: Iterable[type[Kind]]) -> None:
    """Raises TypeError if a kind has a field that cannot be written."""
    for kind in kinds:
        if unknown := [name for name in _names(kind) if name not in _FIELDS]:
            raise TypeError(f"operation {kind.op!r} has fields {unknown} that the file format does not know")


def _names(kind: type[Kind]) -> list[str]:
    return [field.name for field in fields(cast(Any, kind))]


def decode_tokens(data: Any) -> Tokens:
    """What `encode_tokens` wrote. Invalid token ids pass: refusing them is the target's business. O(tokens)."""
    if not isinstance(data, list):
        raise TypeError
    size = 0
    for item in data:
        if isinstance(item, list):
            first, count, step = item if len(item) == 3 else (*item, 1)
            if not all(type(number) is int for number in (first, count, step)) or not 0 <= count <= _LONGEST:
                raise TypeError
            size += count
        else:
            size += 1
    if size > 4096:
        try:
            return array("i", _values(data))  # without an integer of Python's for each at a time
        except (TypeError, OverflowError):
            pass
    return tuple(_values(data))


def _values(data: list[Any]) -> Iterator[Any]:
    for item in data:
        if isinstance(item, list):
            first, count, step = item if len(item) == 3 else (*item, 1)
            yield from range(first, first + count * step, step) if step else repeat(first, count)
        else:
            yield item


def _typed(kind: type) -> Any:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return check


def _namespace(value: Any) -> Namespace:
    if not isinstance(value, dict) or any(
        kind not in NAMESPACE_KINDS or not isinstance(part, str) for kind, part in value.items()
    ):
        raise TypeError
    return tuple(sorted(value.items()))


def _work(value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return tuple((_typed(str)(request), _typed(int)(count)) for request, count in value)


class _Field(NamedTuple):
    read: Callable[[Any], Any]
    expected: str


_FIELDS: dict[str, _Field] = {
    "request": _Field(_typed(str), "a string"),
    "child": _Field(_typed(str), "a string"),
    "match": _Field(_typed(str), "a string"),
    "step": _Field(_typed(int), "an integer"),
    "length": _Field(_typed(int), "an integer"),
    "position": _Field(_typed(int), "an integer"),
    "tokens": _Field(decode_tokens, "a list of token ids and runs [first, count] or [first, count, step]"),
    "namespace": _Field(_namespace, f"an object with string values and keys among {', '.join(NAMESPACE_KINDS)}"),
    "work": _Field(_work, "a list of [request, count] pairs"),
}
