"""Counterexamples as files. Engines write them; replay, the shrinker and people with an editor read them.

A file is one JSON object with one operation a line, so that a line can be deleted (a trailing comma is forgiven). It
replays without Hypothesis, on any target, in any later version: the schema only grows. A recorder writes the same as
JSON Lines: the head, then the operations. A last line that was cut off when the process died is left out. Where the
recorder had to drop operations, a line {"dropped": count, "why": text} ends the record.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from properties.operations import SCHEMA, Configuration, Malformed, Operation, decode, encode
from reference import PROPERTIES

from . import bounds
from .bounds import TooMuch, json_of
from .files import put
from .values import Counterexample, Judging

__all__ = ["Unreadable", "as_line", "as_text", "parsed", "read", "write"]


class Unreadable(ValueError):
    """A file that is not a counterexample: names the file, the line, what was found and what was expected."""


def write(counterexample: Counterexample, path: Path) -> Path:
    """Write it, whole or not at all; returns the path. The same counterexample always gives the same bytes."""
    return put(path, as_text(counterexample))


def as_text(counterexample: Counterexample) -> str:
    """The text of its file. O(operations)."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "target": counterexample.target,
        "property": counterexample.property_id,
        "message": counterexample.message,
        "at": counterexample.at,
        "configuration": counterexample.configuration.to_json(),
        "judging": {"outside": counterexample.judging.outside, "exact": counterexample.judging.exact},
        "engine": counterexample.engine,
        "seed": counterexample.seed,
        "versions": counterexample.versions,
    }
    if counterexample.judging.kernels:
        data["judging"]["kernels"] = counterexample.judging.kernels
    if counterexample.judging.keys:
        data["judging"]["keys"] = counterexample.judging.keys
    if counterexample.judging.sizes:
        data["judging"]["sizes"] = True
    if counterexample.device:
        data["device"] = counterexample.device
    if counterexample.note:
        data["note"] = counterexample.note
    if counterexample.policy:
        data["policy"] = counterexample.policy
    if counterexample.traceback:
        data["traceback"] = counterexample.traceback
    head = json.dumps(data, indent=2)[:-2]
    lines = ",\n".join("    " + json.dumps(encode(operation)) for operation in counterexample.operations)
    return f'{head},\n  "operations": [\n{lines}\n  ]\n}}\n'


def as_line(counterexample: Counterexample) -> str:
    """The same in one line, for where no file can be written: put in a file it is a counterexample. O(operations)."""
    return json.dumps(json.loads(as_text(counterexample)))


def read(path: Path) -> Counterexample:
    """Read a file that `write` made, or that somebody edited. Raises Unreadable, also for a file that asks for more
    than `bounds` allows."""
    try:
        text = bounds.text_of(path)
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error.strerror}); expected a counterexample file") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: not UTF-8 text at byte {error.start}; expected a counterexample in JSON") from None
    except TooMuch as error:
        raise Unreadable(f"{path}: {error}") from None
    return parsed(text, path)


def parsed(text: str, path: Path) -> Counterexample:
    """The counterexample in a text that `as_text` made, or somebody edited. Errors call it `path`.

    Raises Unreadable. O(text).
    """
    try:
        try:
            data = json_of(text)
        except json.JSONDecodeError:
            text = _joined(_TRAILING_COMMA.sub(lambda match: match.group(1) or match.group(2), text))
            data = json_of(text)
    except json.JSONDecodeError as error:
        cut = " (the file is cut off)" if error.pos >= len(text.rstrip()) else ""
        raise Unreadable(f"{path}:{error.lineno}: {error.msg}{cut}; expected a counterexample in JSON") from None
    except TooMuch as error:
        raise Unreadable(f"{path}:{error.line}: {error}") from None
    if not isinstance(data, dict):
        raise Unreadable(
            f"{path}:1: found a {type(data).__name__}; expected an object with configuration and operations"
        )
    schema = data.get("schema")
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise Unreadable(
            f"{path}:{_line_of(text, 'schema')}: schema is {schema!r}; this version reads 1 to {SCHEMA}"
            + ("; use a newer version of this tool" if type(schema) is int and schema > SCHEMA else "")
        )
    try:
        configuration = Configuration.from_json(data.get("configuration"))
        bounds.pool_within(configuration.num_blocks, configuration.block_size)
    except (Malformed, TypeError, TooMuch) as error:
        raise Unreadable(f"{path}:{_line_of(text, 'configuration')}: {error}") from None
    field = "judging"
    try:
        judging = _judging(data.get("judging", {}))
        for field, kind, expected in _FIELDS:
            if not isinstance(data.get(field, kind()), kind) and (data[field] is not None or field == "target"):
                raise Malformed(f"{field} is {data[field]!r:.80}; expected {expected}")
        field = "property"
        property_id = data.get("property")
        if property_id is not None and (not isinstance(property_id, str) or property_id not in PROPERTIES):
            raise Malformed(f"there is no property {property_id!r:.80}; there are {', '.join(PROPERTIES)}, and null")
        field = "at"
        at = data.get("at")
        if at is not None and (type(at) is not int or at < 0):
            raise Malformed(f"at is {at!r:.80}; expected the index of an operation, from 0 on, or null")
        field = "versions"
        versions = data.get("versions") or {}
        if not all(isinstance(value, str) for value in versions.values()):
            raise Malformed(f"versions is {versions!r:.80}; expected an object of texts")
    except Malformed as error:
        raise Unreadable(f"{path}:{_line_of(text, field)}: {error}") from None
    operations, gap = _operations(data.get("operations"), text, path)
    return Counterexample(
        configuration=configuration,
        operations=operations,
        target=data.get("target", "kvcore"),
        property_id=property_id,
        message=data.get("message") or "",
        at=at,
        judging=judging,
        engine=data.get("engine") or "",
        seed=str(data.get("seed") or ""),
        device=data.get("device") or "",
        note=data.get("note") or "",
        traceback=data.get("traceback") or "",
        policy=dict(data.get("policy") or {}),
        versions=dict(versions),
        gap=gap,
    )


_FIELDS: tuple[tuple[str, type, str], ...] = (
    ("target", str, "a name, or package.module:factory"),
    ("message", str, "a text"),
    ("engine", str, "a text"),
    ("device", str, "a text"),
    ("note", str, "a text"),
    ("traceback", str, "a text"),
    ("versions", dict, "an object of texts"),
    ("policy", dict, "an object: what was believed of the core"),
)


def _judging(data: Any) -> Judging:
    """Raises Malformed."""
    if not isinstance(data, dict):
        raise Malformed(f"judging is {data!r:.80}; expected an object")
    plain = asdict(Judging())
    if unknown := [key for key in data if key not in plain]:
        raise Malformed(f"judging: there is no {unknown[0]!r:.80}; there are {', '.join(plain)}")
    values: dict[str, Any] = {}
    for field, default in plain.items():
        value = values[field] = data.get(field, default)
        if type(value) is not type(default):
            expected = "true or false" if type(default) is bool else "a text"
            raise Malformed(f"judging: {field} is {value!r:.80}; expected {expected}")
    return Judging(**values)


def _operations(data: Any, text: str, path: Path) -> tuple[tuple[Operation, ...], str]:
    """The operations, and what is said of those that were not recorded. Raises Unreadable, with the line of the
    operation. O(text)."""
    if not isinstance(data, list):
        raise Unreadable(f"{path}:{_line_of(text, 'operations')}: expected a list of operations")
    if len(data) > bounds.OPERATIONS:
        line = _line_of(text, "operations")
        raise Unreadable(f"{path}:{line}: {len(data):,} operations; allowed are {bounds.OPERATIONS:,}")
    try:
        bounds.tokens_within(data)
    except TooMuch as error:
        raise Unreadable(f"{path}:{_line_of_operation(text, error.line)}: {error}") from None
    operations = []
    gap = ""
    for number, item in enumerate(data):
        if isinstance(item, dict) and "dropped" in item and "op" not in item:
            gap = f"{item['dropped']!r:.20} or more operations after these were not recorded: {item.get('why')!s:.200}"
            break  # without them, what follows would be judged wrongly
        try:
            operations.append(decode(item))
        except Malformed as error:
            raise Unreadable(f"{path}:{_line_of_operation(text, number)}: {error}") from None
    return tuple(operations), gap


def _joined(text: str) -> str:
    """JSON Lines as one object, with each operation on its own line as before. Any other text is returned unchanged."""
    head, *lines = text.split("\n")
    try:
        first = json_of(head)
    except json.JSONDecodeError:
        return text
    if not isinstance(first, dict) or "operations" in first or not lines:
        return text
    if lines.pop():  # every whole line ends
        lines.append("")
    return f'{head.rstrip()[:-1]}, "operations": [\n' + ",\n".join(line for line in lines if line) + "\n]}"


_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(\s*[\]}])')


def _line_of(text: str, key: str) -> int:
    at = text.find(f'"{key}"')
    return text.count("\n", 0, at) + 1 if at >= 0 else 1


def _line_of_operation(text: str, number: int) -> int:
    """The line on which the operation at index `number` begins. O(text)."""
    decoder = json.JSONDecoder()
    at = 0
    with suppress(ValueError, IndexError):  # of a file with two lists of that name: the best that can be said
        at = text.index("[", text.index('"operations"')) + 1
        for left in range(number, -1, -1):
            while text[at] in " \t\r\n,":
                at += 1
            if left:
                at = decoder.raw_decode(text, at)[1]
    return text.count("\n", 0, at) + 1
