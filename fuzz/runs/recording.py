"""Reproducing a crash: the same is done again, with every operation on disk before it is applied.

What is left in the file if the process dies is read by `operations_in`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from properties.operations import Configuration, Malformed, Operation, decode, encode
from properties.session import Outcome, Session, watched
from properties.target import Target, TargetFactory

__all__ = ["operations_in", "recording"]


@contextmanager
def recording(path: Path, factory: TargetFactory) -> Iterator[TargetFactory]:
    """While this lasts, the last session of this process has its operations in `path`, its configuration before them.
    For a process that does nothing else and may die: nothing is paid for it elsewhere. Gives the factory to use."""
    configuration = Configuration()
    lines: WeakKeyDictionary[Session, list[str]] = WeakKeyDictionary()
    last: Session | None = None

    def make(chosen: Configuration) -> Target:
        nonlocal configuration
        configuration = chosen
        return factory(chosen)

    with path.open("w", encoding="utf-8", buffering=1) as file:

        def put(session: Session, line: str) -> None:
            nonlocal last
            lines[session].append(line)
            if session is not last:
                last = session
                file.seek(0)
                file.truncate()
                line = "".join(lines[session])
            file.write(line)

        def begun(session: Session, origin: Session | None) -> None:
            apply = partial(Session.apply, session)  # a clone has its origin's in its place

            def applied(operation: Operation) -> Outcome:
                put(session, json.dumps(encode(operation)) + "\n")
                return apply(operation)

            if origin is not None:
                lines[session] = list(lines[origin])
            else:
                lines[session] = []
                put(session, json.dumps(configuration.to_json()) + "\n")
            vars(session)["apply"] = applied

        with watched(begun):
            yield make


def operations_in(text: str) -> tuple[Configuration, list[Operation]]:
    """The configuration and the operations that `recording` has written, up to the line that the process died in."""
    configuration, operations = Configuration(), []
    for number, line in enumerate(text.splitlines()):
        try:
            data = json.loads(line)
            if number:
                operations.append(decode(data))
            else:
                configuration = Configuration.from_json(data)
        except (ValueError, Malformed, TypeError):
            break
    return configuration, operations
