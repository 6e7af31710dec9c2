"""A recorder stands between an engine and its core, passes everything on, and writes operations as they happen.

    core = Recorder(make(configuration), configuration, Path("incident.jsonl"), name="mycore.testing:make")

The file is a counterexample without a verdict, in JSON Lines: the head first, then one operation a line. An operation
is on disk before the core is called, so that the file also has the operation that killed the process. `python -m fuzz
replay` reads it. With `private=True` tokens, requests and the values of namespaces are renamed by first appearance:
prefixes, hits and block boundaries stay the same, and the file says nothing of what users wrote.

A target's own answers are never changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from properties.operations import (
    OPERATIONS,
    SCHEMA,
    Allocate,
    Complete,
    Configuration,
    Dispatch,
    Free,
    Lookup,
    Namespace,
    Operation,
    Tokens,
    encode,
)
from properties.target import Found, Numbers, StepView, Target
from reference.sequence import MAX_TOKEN

from .runs.values import versions

__all__ = ["Recorder"]


class Recorder:
    """`target`, with every operation on it written to `path`. It is a target itself; what it does not record (tables,
    counts, ...) it passes on.

    configuration: what the target was made with. name: what replay is to call it ("mycore.testing:make"). private:
    rename what is private. An operation costs one short write and no fsync: it survives the process, not the machine.
    Memory: O(distinct tokens + live requests + steps in flight + lookups not used yet)."""

    def __init__(
        self, target: Target, configuration: Configuration, path: Path, *, name: str = "", private: bool = False
    ) -> None:
        self._target = target
        self._private = private
        self._tokens = Numbers()
        self._names: dict[str, str] = {}
        self._values: dict[str, str] = {"": ""}
        self._steps: list[tuple[Any, int]] = []
        self._dispatched = 0
        self._matches: list[tuple[Any, str]] = []
        self._looked_up = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        head = {
            "schema": SCHEMA,
            "target": name or target.name,
            "property": None,
            "configuration": configuration.to_json(),
            "engine": "recorder",
            "versions": versions(),
        }
        self._file.write(json.dumps(head) + "\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the file. The target goes on."""
        self._file.close()

    # ---- calls that do not have the fields of their operations; `_recording` makes the others ------------------------

    def lookup(self, tokens: Tokens, namespace: Namespace) -> Found:
        self._looked_up += 1
        match = f"m{self._looked_up}"
        self._write(Lookup(self._told(tokens), self._space(namespace), match))
        found = self._target.lookup(tokens, namespace)
        if found.handle is not None:
            self._matches = [*self._matches[-_MATCHES:], (found.handle, match)]
        return found

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        match = next((name for known, name in self._matches if known is handle), None) if handle is not None else None
        self._write(Allocate(self._name(request), self._told(tokens), self._space(namespace), match))
        return self._target.allocate(request, tokens, namespace, handle)

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        self._dispatched += 1
        number = self._dispatched
        self._write(Dispatch(number, tuple((self._name(request), count) for request, count in work)))
        view = self._target.dispatch(work)
        self._steps.append((view.handle, number))
        return view

    def complete(self, handle: Any) -> None:
        at = next((at for at, (known, _) in enumerate(self._steps) if known is handle), None)
        self._write(Complete(self._steps.pop(at)[1] if at is not None else 0))
        self._target.complete(handle)

    def free(self, request: str) -> None:
        self._write(Free(self._name(request)))
        self._target.free(request)
        if self._private:
            self._names.pop(request, None)

    # ---- how ---------------------------------------------------------------------------------------------------------

    def _shown(self, field: str, value: Any) -> Any:
        """The value of an operation's field as it is written."""
        if field in ("request", "child"):
            return self._name(value)
        if field == "tokens":
            return self._told(value)
        return self._space(value) if field == "namespace" else value

    def _write(self, operation: Operation) -> None:
        self._file.write(json.dumps(encode(operation)) + "\n")
        self._file.flush()

    def _told(self, tokens: Tokens) -> tuple[int, ...]:
        if not self._private:
            return tuple(tokens)
        # A value that is no token stays as it is: the core has to refuse it.
        return tuple(
            self._tokens[token] if type(token) is int and 0 <= token <= MAX_TOKEN else token for token in tokens
        )

    def _name(self, request: str) -> str:
        if not self._private:
            return request
        name = self._names.get(request)
        if name is None:
            taken = set(self._names.values())
            name = next(name for number in range(len(taken) + 1) if (name := f"r{number}") not in taken)
            self._names[request] = name
        return name

    def _space(self, namespace: Namespace) -> Namespace:
        if not self._private:
            return namespace
        return tuple((part, self._values.setdefault(value, f"v{len(self._values)}")) for part, value in namespace)


def _recording(kind: type[Operation]) -> Callable[..., Any]:
    """The method of a kind whose call on a target has the operation's fields, in their order."""
    names = [field.name for field in fields(kind)]

    def method(self: Recorder, *values: Any, **named: Any) -> Any:
        given = dict(zip(names, values, strict=False)) | named
        self._write(kind(**{name: self._shown(name, value) for name, value in given.items()}))
        return getattr(self._target, kind.op)(*values, **named)

    return method


# A call that has no method here goes to the target without being written. So every kind of operation has one.
for _kind in OPERATIONS.values():
    if _kind.op not in vars(Recorder):
        setattr(Recorder, _kind.op, _recording(_kind))

_MATCHES = 64
"""Lookups that are remembered. If an engine passes an older answer to `allocate`, the record has none."""
