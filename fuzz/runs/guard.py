"""A command that runs a target in its own process, and another process that guards it: the guard's exit status is what
people act on, and no target can touch it.

The guard starts the same command once more, as a child, and waits. The child says over a pipe what it is about, that it
goes on, and at its end the status to exit with. A child that ends without having said that was ended by its target: it
exited, was killed, or was silent for too long. Then the guard starts it again, with every operation written down before
it is applied, so that there is something to replay.

Both have the same terminal, so that a debugger in an adapter works. Where there is no terminal, what the target prints
goes to a file that is kept short, and nobody's log has more of it than the last words (see `hushed`).

`watched` is the guard's side; `begin`, `beat`, `about`, `hushed`, `record_to` and `signed_off` are the child's. All but
the last do nothing in a process that is not guarded.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, NoReturn, TextIO

from .output import Output, print_to
from .processes import WHERE, die_with_parent, ended, limit_memory, say_where

__all__ = ["HANG", "Ending", "about", "beat", "begin", "child", "hushed", "record_to", "signed_off", "watched"]

HANG = 120.0
"""Seconds without a word after which a child is ended."""

_PATIENCE = 3.0
"""Seconds in which a child that was asked to stop may do so."""

_PIPE, _RECORD, _OUTPUT = "KVCORE_FUZZ_GUARD", "KVCORE_FUZZ_RECORD", "KVCORE_FUZZ_OUTPUT"
"""What the environment of a child tells it: the pipe's file descriptor, where operations are written down, and where
what its target prints goes."""

_MEMORY = 0.75
"""The part of this machine's memory that a child may write to."""

_SPARING = 0.2
"""Seconds between two beats that are sent."""


@dataclass
class Ending:
    """How a guarded command ended. status: what it said that it ends with; None if it did not, and then `how` says what
    happened, as the rest of a sentence. again: how the second run ended, "" if it ended well. about: what the child has
    said of its work. record: the operations of the run that died, as text. stopped: a signal asked it to stop."""

    status: int | None
    how: str = ""
    again: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    record: str = ""
    stopped: bool = False


# ---- the guard -------------------------------------------------------------------------------------------------------


def watched(
    command: Sequence[str], *, record: bool, say: Callable[[str], None], hang: float = HANG, told: Sequence[str] = ()
) -> Ending:
    """Run `command` as a child, and once more if it dies. record: write operations down in the first run, too. say:
    given a line for people. told: more arguments of the second run."""
    with TemporaryDirectory(prefix="kvcore-fuzz-") as folder:
        path, output = Path(folder) / "operations.jsonl", Output(Path(folder) / "output")
        ending = _once(command, path if record else None, output, say, hang)
        if ending.status is not None or ending.stopped:
            return ending
        if not record:
            say(f"the process that runs the target {ending.how}; once more, with every operation written down first")
            second = _once([*command, *told], path, output, say, hang)
            if second.stopped:
                return second
            ending.again = second.how if second.status is None else ""
            ending.about = second.about or ending.about
        else:
            ending.again = ending.how
        if said := output.last_words().strip():
            say(f"the last that it printed:\n{said}")
        if ending.again and path.exists():
            ending.record = path.read_text(encoding="utf-8", errors="replace")
        return ending


def _once(
    command: Sequence[str], record: Path | None, output: Output, say: Callable[[str], None], hang: float
) -> Ending:
    reading, writing = os.pipe()
    environment = {**os.environ, _PIPE: str(writing), _OUTPUT: str(output.path)}
    if record is not None:
        environment[_RECORD] = str(record)
    asked: list[float] = []

    def stop(number: int, _: object) -> None:
        asked.append(monotonic())
        if number != signal.SIGINT:  # a terminal's Ctrl-C has reached the child already
            process.send_signal(signal.SIGTERM)
        if len(asked) > 1:
            process.kill()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in signals}
    process = subprocess.Popen(command, env=environment, pass_fds=(writing,))
    try:
        for number in signals:
            if before[number] is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, stop)
        os.close(writing)
        return _listen(process, reading, output, asked, say, hang)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        process.kill()
        process.wait()
        os.close(reading)


def _listen(
    process: subprocess.Popen[bytes],
    reading: int,
    output: Output,
    asked: list[float],
    say: Callable[[str], None],
    hang: float,
) -> Ending:
    ending = Ending(None)
    rest, heard, warned = b"", monotonic(), False
    while True:
        ready, _, _ = select.select([reading], [], [], 0.1)
        output.look()
        got = os.read(reading, 1 << 16) if ready else b""
        if got:
            heard = monotonic()
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    ending.about = json.loads(line)
                elif line.startswith(b"="):
                    ending.status = int(line[1:])
        elif process.poll() is not None:
            break
        elif ending.status is not None and monotonic() - heard > _PATIENCE:
            break  # it has said all; what is left of it is a thread of the target's
        elif ready:
            sleep(0.05)  # its end of the pipe is closed, and it has not ended yet
        if asked and not warned and monotonic() - asked[0] > _PATIENCE:
            warned = True
            say("the target does not return; Ctrl-C again ends it")
        if not asked and hang and ending.status is None and monotonic() - heard > hang:
            process.send_signal(WHERE)
            sleep(0.3)
            process.kill()
            process.wait()
            ending.how = f"hung: not a word for {hang:g} seconds"
            return ending
    if ending.status is None:
        ending.stopped = bool(asked)
        ending.how = ended(process.wait())
    return ending


# ---- the child -------------------------------------------------------------------------------------------------------

_descriptor = int(os.environ.pop(_PIPE, "-1"))
_record = os.environ.pop(_RECORD, "")
_output = os.environ.pop(_OUTPUT, "")
_streams: list[TextIO] = []
_mine = os.getpid()
_beaten = 0.0


def child() -> bool:
    """Is this process a child that is guarded? One that the target has forked is not."""
    return _descriptor >= 0 and os.getpid() == _mine


def begin() -> None:
    """What a child does first: it ends with its guard, has bounded memory, and says where it was when it dies."""
    if child():
        die_with_parent()
        limit_memory(int(_MEMORY * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
        say_where()


def record_to() -> Path | None:
    """Where operations are to be written down, if they are."""
    return Path(_record) if _record else None


def hushed() -> tuple[TextIO, TextIO] | None:
    """From here on, what is printed goes to the guard's file; the streams that go on where standard output and standard
    error went, for what the command itself says. None, and nothing is changed, if it is not guarded or has a terminal.
    """
    if not child() or os.isatty(1):
        return None
    if not _streams:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            copy = os.dup(stream.fileno())
            _streams.append(os.fdopen(copy, "w", 1, stream.encoding, stream.errors))
        print_to(Path(_output))
    return _streams[0], _streams[1]


def beat() -> None:
    """It goes on. A microsecond."""
    global _beaten
    if _descriptor >= 0 and (now := monotonic()) - _beaten > _SPARING:
        _beaten = now
        _tell(b".\n")


def about(what: Mapping[str, Any]) -> None:
    """What is needed to make a finding of this process's death."""
    _tell(json.dumps(what).encode() + b"\n")


def signed_off(status: int) -> NoReturn:
    """End this process with `status`, whatever threads there are."""
    for stream in (sys.stdout, sys.stderr, *_streams):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 3  # what was printed is lost: that is not well
    _tell(b"=%d\n" % status)
    os._exit(status)


def _tell(line: bytes) -> None:
    if child():
        try:
            os.write(_descriptor, line)
        except OSError:  # the guard is gone: nobody waits for this process
            os._exit(1)
