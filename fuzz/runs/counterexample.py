"""Counterexamples as files. Engines write them; replay, the shrinker and people with an editor read them.

A file is one JSON object with one operation a line, so that a line can be deleted (a trailing comma is forgiven). It
replays without Hypothesis, on any target, in any later version: the schema only grows. A recorder writes the same as
JSON Lines: the head, then the operations. A last line that was cut off when the process died is left out. Where the
recorder had to drop operations, a line {"dropped": count, "why": text} ends the record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from properties.operations import SCHEMA, Configuration, Malformed, decode, encode
from reference import PROPERTIES

from .bounds import TooMuch, checked, read_json, read_text
from .files import put
from .plain import plain
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
    """Read a file that `write` made, or that somebody edited. Raises Unreadable."""
    try:
        text = read_text(path)
    except TooMuch as error:
        raise Unreadable(f"{path}: {error}; expected a counterexample file") from None
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error.strerror}); expected a counterexample file") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: not UTF-8 text at byte {error.start}; expected a counterexample in JSON") from None
    return parsed(text, path)


def parsed(text: str, path: Path) -> Counterexample:
    """The counterexample in a text that `as_text` made, or somebody edited. Errors call it `path`.

    Raises Unreadable. O(text).
    """
    text = _TRAILING_COMMA.sub(lambda match: match.group(1) or match.group(2), text)
    try:
        text = _joined(text)
        data = read_json(text)
    except TooMuch as error:
        raise Unreadable(f"{path}: {error}; expected a counterexample in JSON") from None
    except json.JSONDecodeError as error:
        cut = " (the file is cut off)" if error.pos >= len(text.rstrip()) else ""
        raise Unreadable(f"{path}:{error.lineno}: {error.msg}{cut}; expected a counterexample in JSON") from None
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
    except (Malformed, TypeError) as error:
        raise Unreadable(f"{path}:{_line_of(text, 'configuration')}: {error}") from None
    if not isinstance(data.get("operations"), list):
        raise Unreadable(f"{path}:{_line_of(text, 'operations')}: expected a list of operations")
    operations = []
    gap = ""
    for number, item in enumerate(data["operations"]):
        if isinstance(item, dict) and "dropped" in item and "op" not in item:
            gap = f"{item['dropped']!r:.20} or more operations after these were not recorded: {item.get('why')!s:.200}"
            break  # without them, what follows would be judged wrongly
        try:
            operations.append(decode(item))
        except Malformed as error:
            line = next(islice(_lines_of_operations(text), number, None))
            raise Unreadable(f"{path}:{line}: {error}") from None
    try:
        checked(configuration, operations)
    except Malformed as error:
        raise Unreadable(f"{path}:{_line_of(text, 'configuration')}: {error}") from None
    for name, (kind, expected) in _FIELDS.items():
        if name in data and not isinstance(data[name], kind):
            raise Unreadable(f"{path}:{_line_of(text, name)}: {name} is {data[name]!r:.80}; expected {expected}")
    property_id = data.get("property")
    if property_id is not None and property_id not in PROPERTIES:
        raise Unreadable(
            f"{path}:{_line_of(text, 'property')}: property is {property_id!r:.80}; there are {', '.join(PROPERTIES)}"
        )
    judging = data.get("judging", {})
    return Counterexample(
        configuration=configuration,
        operations=tuple(operations),
        target=plain(str(data.get("target", "kvcore"))),
        property_id=property_id,
        message=plain(str(data.get("message", ""))),
        at=data.get("at"),
        judging=Judging(
            bool(judging.get("outside", False)),
            bool(judging.get("exact", True)),
            str(judging.get("kernels", "")),
            str(judging.get("keys", "")),
            bool(judging.get("sizes", False)),
        ),
        engine=plain(str(data.get("engine", ""))),
        seed=plain(str(data.get("seed", ""))),
        device=plain(str(data.get("device", ""))),
        note=plain(str(data.get("note", ""))),
        traceback=plain(str(data.get("traceback", ""))),
        policy=dict(data.get("policy", {})),
        versions=dict(data.get("versions", {})),
        gap=plain(gap),
    )


_FIELDS: dict[str, tuple[Any, str]] = {
    "at": ((int, type(None)), "the number of an operation, or null"),
    "judging": (dict, "an object with outside, exact and kernels"),
    "versions": (dict, "an object: a version for each package"),
    "policy": (dict, "an object: what was believed of the core"),
    "property": ((str, type(None)), "a property's name, or null"),
    "target": (str, "a target's name"),
}
"""What a field of the head may be, and how that is said."""


def _joined(text: str) -> str:
    """JSON Lines as one object, with each operation on its own line as before. Any other text is returned unchanged."""
    head, *lines = text.split("\n")
    try:
        first = read_json(head)
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


def _lines_of_operations(text: str) -> Iterator[int]:
    """The line on which each element of "operations" begins."""
    decoder = json.JSONDecoder()
    at = text.index("[", text.index('"operations"')) + 1
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return
        yield text.count("\n", 0, at) + 1
        at = decoder.raw_decode(text, at)[1]
