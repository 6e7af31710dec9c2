"""A run that may kill its process, in a process that is forked for it. The shrinker uses it on crashes.

The child writes down every operation before it applies it. What the parent has read when the child ends is the run, and
its last operation is the one at fault. A fork costs milliseconds, so a shrinker can try hundreds. It is not for
processes with a device: a CUDA context does not survive a fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, NoReturn

from properties.operations import Configuration, Operation, decode, encode
from properties.session import Outcome, Session
from properties.target import TargetFactory
from reference import Crash

from .perform import Run, perform
from .processes import OUT_OF_MEMORY
from .values import Judging

__all__ = ["Deaths"]

_PATIENCE = 5.0
"""Seconds after which a child is ended. That does not count as a crash."""


_LIVED = b'{"lived": true}\n'
"""The last line of a child that comes to its end. One that its target ends has not written it, whatever its status."""


class Deaths:
    """`perform`, as the shrinker calls it, for what ends its process with `status` (negative: the signal). `message` is
    that of the violation which such a run has. An instance may be called instead of `fuzz.runs.perform.perform`."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message

    def __call__(
        self,
        factory: TargetFactory,
        configuration: Configuration,
        operations: Iterable[Operation] | Callable[[Session], Iterable[Operation]],
        judging: Judging = Judging(),
        *,
        strict: bool = False,
        drain: bool = True,
    ) -> Run:
        """A run without a session, whose violation is that its process died as was asked for. Raises OSError where no
        process can be made."""
        status, operations_done, outcomes = forked(factory, configuration, operations, judging, strict, drain)
        run = Run(None, operations_done, outcomes)  # type: ignore[arg-type]
        if status == self.status and len(operations_done) > len(outcomes):
            run.violation, run.at = Crash(self.message), len(outcomes)
        return run


def forked(
    factory: TargetFactory,
    configuration: Configuration,
    operations: Iterable[Operation] | Callable[[Session], Iterable[Operation]],
    judging: Judging,
    strict: bool,
    drain: bool,
) -> tuple[int | None, list[Operation], list[Outcome]]:
    """(how the process ended: its exit status, or minus the signal; the operations that it began; the outcomes of those
    that it ended). None: it lived, whatever it found, or took too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _live(writing, factory, configuration, operations, judging, strict, drain)
    os.close(writing)
    text = b""
    deadline = monotonic() + _PATIENCE
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - monotonic()))
        got = os.read(reading, 1 << 16) if ready else b""
        text += got
        if not ready:
            os.kill(child, signal.SIGKILL)
        if not got:
            break
    os.close(reading)
    status: int | None = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not ready or text.endswith(_LIVED):
        status = None
    begun: list[Operation] = []
    ended: list[Outcome] = []
    for line in text.decode().splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        data: dict[str, Any] = json.loads(line)
        if "lived" in data:
            break
        if "outcome" in data:
            ended.append(Outcome(**data["outcome"]))
        else:
            begun.append(decode(data))
    return status, begun, ended


def _live(
    writing: int,
    factory: TargetFactory,
    configuration: Configuration,
    operations: Iterable[Operation] | Callable[[Session], Iterable[Operation]],
    judging: Judging,
    strict: bool,
    drain: bool,
) -> NoReturn:
    """What the child does. It never returns to the parent's code."""
    said = 0

    def put(data: Any) -> None:
        os.write(writing, json.dumps(data).encode() + b"\n")

    def watch(run: Run, operation: Operation) -> None:
        nonlocal said
        if len(run.outcomes) > said:
            said = len(run.outcomes)
            put({"outcome": {"status": run.outcomes[-1].status}})
        put(encode(operation))

    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        perform(factory, configuration, operations, judging, strict=strict, drain=drain, watch=watch)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BaseException:  # a failure of the harness is no crash of the target
        pass
    os.write(writing, _LIVED)
    os._exit(0)
