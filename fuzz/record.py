"""A recorder stands between an engine and its core, passes everything on, and writes operations as they happen.

    core = Recorder(make(configuration), configuration, Path("incident.jsonl"), name="mycore.testing:make")

The file is a counterexample without a verdict, in JSON Lines: the head first, then one operation a line. An operation
is on disk before the core is called, so that the file also has the operation that killed the process. `python -m fuzz
replay` reads it. With `private=True` tokens, requests and the values of namespaces are renamed by first appearance:
prefixes, hits and block boundaries stay the same, and the file says nothing of what users wrote.

A core that is new starts with nothing, so each recorder has a file of its own. Where incident.jsonl is there, from
before a crash or from another worker of the same engine, this one writes incident-2.jsonl: the file of the incident is
the one that had the name first, and two engines never write into one another's lines.

A target's own answers are never changed, and nothing of a recorder's own reaches the engine: no full disk, no closed
file, no value that cannot be written. The first operation that is not written ends the record, since what comes after
it would be judged wrongly without it. The others are counted.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import count
from operator import index
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
    decode,
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
    Memory: O(distinct tokens + live requests + steps in flight + lookups not used yet).

    path: where it is written; another name than was given if that is taken. dropped: operations that were not written.
    why: what ended the record early, or "". All three may be read at any time. It raises nothing of its own, here or
    in a call: it logs, as "fuzz.record", when a record ends early and what was dropped at its end."""

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
        self._lines = _Lines(path, lambda: _head(target, configuration, name))

    def __getattr__(self, name: str) -> Any:
        if name == "_target":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._target, name)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the file; its last line says how much was dropped, if anything was and there is room. The target goes
        on."""
        self._lines.close()

    @property
    def path(self) -> Path:
        return self._lines.path

    @property
    def dropped(self) -> int:
        return self._lines.dropped

    @property
    def why(self) -> str:
        return self._lines.why

    # ---- calls that do not have the fields of their operations; `_recording` makes the others ------------------------

    def lookup(self, tokens: Tokens, namespace: Namespace) -> Found:
        self._looked_up += 1
        match = f"m{self._looked_up}"
        self._write(lambda: Lookup(self._told(tokens), self._space(namespace), match))
        found = self._target.lookup(tokens, namespace)
        if (handle := getattr(found, "handle", None)) is not None:
            self._matches = [*self._matches[-_MATCHES:], (handle, match)]
        return found

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        match = next((name for known, name in self._matches if known is handle), None) if handle is not None else None
        self._write(lambda: Allocate(self._name(request), self._told(tokens), self._space(namespace), match))
        return self._target.allocate(request, tokens, namespace, handle)

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        self._dispatched += 1
        number = self._dispatched
        self._write(lambda: Dispatch(number, tuple((self._name(name), index(count)) for name, count in _again(work))))
        view = self._target.dispatch(work)
        self._steps.append((getattr(view, "handle", None), number))
        return view

    def complete(self, handle: Any) -> None:
        at = next((at for at, (known, _) in enumerate(self._steps) if known is handle), None)
        number = self._steps.pop(at)[1] if at is not None else 0
        self._write(lambda: Complete(number))
        self._target.complete(handle)

    def free(self, request: str) -> None:
        self._write(lambda: Free(self._name(request)))
        self._target.free(request)
        if self._private and not self._lines.over:
            self._names.pop(request, None)

    # ---- how ---------------------------------------------------------------------------------------------------------

    def _shown(self, field: str, value: Any) -> Any:
        """The value of an operation's field as it is written."""
        if field in ("request", "child"):
            return self._name(value)
        if field == "tokens":
            return self._told(value)
        return self._space(value) if field == "namespace" else index(value)

    def _write(self, operation: Callable[[], Operation]) -> None:
        """Write what `operation` makes, or count it. It is made here, so that a value that is none harms nobody."""
        self._lines.add(lambda: _line(operation()))

    def _told(self, tokens: Tokens) -> tuple[int, ...]:
        told = tuple(_plain(token) for token in _again(tokens))
        if not self._private:
            return told
        # A value that is no token stays no token, and the core has to refuse it; but it does not say what it was.
        return tuple(
            (self._tokens[token] if 0 <= token <= MAX_TOKEN else token) if type(token) is int else _NO_TOKEN
            for token in told
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
        def operation() -> Operation:
            given = dict(zip(names[: len(values)], values, strict=True)) | named
            return kind(**{name: self._shown(name, value) for name, value in given.items()})

        self._write(operation)
        return getattr(self._target, kind.op)(*values, **named)

    return method


# A call that has no method here goes to the target without being written. So every kind of operation has one.
for _kind in OPERATIONS.values():
    if _kind.op not in vars(Recorder):
        setattr(Recorder, _kind.op, _recording(_kind))


# ---- values ----------------------------------------------------------------------------------------------------------


def _head(target: Target, configuration: Configuration, name: str) -> str:
    head = {
        "schema": SCHEMA,
        "target": name or target.name,
        "property": None,
        "configuration": configuration.to_json(),
        "engine": "recorder",
        "versions": versions(),
    }
    return json.dumps(head)


def _line(operation: Operation) -> str:
    """Raises whatever comes of values that cannot be written, or not read back."""
    data = encode(operation)
    decode({**data, "tokens": []} if "tokens" in data else data)  # tokens are in order, and may be many
    return json.dumps(data)


def _again(values: Any) -> Any:
    """`values`, which can be gone through once more. Raises TypeError for an iterator: what is read of it here would be
    missing in the core."""
    if isinstance(values, Iterator):
        raise TypeError(f"an iterator ({type(values).__name__}) can be read only once")
    return values


def _plain(token: Any) -> Any:
    """A token as JSON has it: NumPy's integers are integers. Raises TypeError for what JSON does not have, and for a
    list, which would be read as a run."""
    if type(token) is int or token is None or isinstance(token, (bool, float, str)):
        return token
    return index(token)


_NO_TOKEN: Any = None


# ---- the file --------------------------------------------------------------------------------------------------------


class _Lines:
    """A file that only this process writes: a head, then lines, each whole or not there. Raises nothing.

    path, dropped, why: see Recorder. An engine may call from several threads, and from a signal's handler."""

    def __init__(self, path: Path, head: Callable[[], str]) -> None:
        self.path = path
        self.dropped = 0
        self.why = ""
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._file = -1
        self._size = 0
        """Bytes of whole lines."""
        self._closed = False
        try:
            self._create(path)
            self._put(head())
        except Exception as error:
            self._end(error)
            if self._file >= 0:
                with suppress(OSError):
                    self.path.unlink()  # a file without a head is none

    @property
    def over(self) -> bool:
        """Nothing more is written."""
        return bool(self.why) or self._closed

    def add(self, line: Callable[[], str]) -> None:
        """Write a line, or count it. O(line)."""
        if os.getpid() != self._process:
            if not self.over:
                self._end(RuntimeError("this process was forked from the one that records"))
            self.dropped += 1
            return
        with self._lock:
            if not self.over:
                try:
                    self._put(line())
                    return
                except Exception as error:
                    self._end(error)
            elif not self.why:
                self._end(RuntimeError("the recorder was closed"))
            self.dropped += 1
            if self.dropped == 1:
                self._note()  # the process may be killed before there is another moment for it

    def close(self) -> None:
        if self._closed:
            return
        if self.dropped:
            self._note()
            _say(f"{self.path}: operations that were not recorded: {self.dropped:,} ({self.why})")
        self._closed = True
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)

    def _create(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            self.path = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            with suppress(FileExistsError):
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                return

    def _put(self, line: str) -> None:
        """Raises OSError; then the line is not there."""
        data, at = memoryview(line.encode("utf-8") + b"\n"), self._size
        try:
            while data:
                written = os.pwrite(self._file, data, at)
                data, at = data[written:], at + written
            self._size = at
        except BaseException:  # Ctrl-C, too: the core is not called then
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise

    def _note(self) -> None:
        """The last line: that it is the last, and how much was dropped. It takes the place of the one before."""
        if self._file < 0 or self._closed or os.getpid() != self._process:
            return
        size = self._size
        with suppress(OSError):
            os.ftruncate(self._file, size)
            self._put(json.dumps({"dropped": self.dropped, "why": self.why}))
        self._size = size

    def _end(self, error: Exception) -> None:
        """From here on nothing is recorded."""
        told = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        self.why = told or type(error).__name__
        _say(f"{self.path}: nothing more is recorded: {self.why}")


def _say(text: str) -> None:
    with suppress(Exception):  # an engine's own handler
        logging.getLogger("fuzz.record").warning("%s", text)


_MATCHES = 64
"""Lookups that are remembered. If an engine passes an older answer to `allocate`, the record has none."""
