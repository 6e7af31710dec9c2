"""What a fault is, and the place in which it is tried: a folder of its own, in which commands run as a user types them.

@fault("exit-0", "the target ends its process with status 0 in allocate", quick=True)
def exits(place: Place) -> Came:
    place.write("toy.py", ...)
    said = place.fuzz("run", "--target", "toy:make", "--budget", "3s")
    if said.status != 1:
        raise Wrong(f"false green: status {said.status}")
    return said.came("CRASH, with its operations")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from time import monotonic
from typing import Any

__all__ = ["ROOT", "Came", "Cannot", "Fault", "Place", "Said", "Wrong", "fault"]

ROOT = Path(__file__).parents[3]
"""The checkout."""


def _heard() -> None:
    """A command hears of Ctrl-C and of a closed terminal, whatever `nohup` or a shell's `&` has told this process."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Wrong(AssertionError):
    """What came of a fault is not what has to: says what, and begins with what kind of harm it is ("false green: ...",
    "false finding: ...", "lost: ...", "wrong blame: ...", "no end: ...")."""


class Cannot(Exception):
    """The fault cannot be tried on this machine. Says why."""


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a fault. status: of its command. said: in a few words, for the table."""

    status: int
    said: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. kind: the file that it is in. what: what is done, as a sentence's rest. quick: it takes a second or
    two. attempt: does it, in a place of its own; raises Wrong or Cannot."""

    name: str
    kind: str
    what: str
    quick: bool
    attempt: Callable[[Place], Came]


def fault(name: str, what: str, *, quick: bool = False) -> Callable[[Callable[[Place], Came]], Fault]:
    """Makes a fault of a function. `table` finds it in its module."""

    def make(attempt: Callable[[Place], Came]) -> Fault:
        return Fault(name, attempt.__module__.rpartition(".")[2], what, quick, attempt)

    return make


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said. status: minus the signal if it died of one."""

    command: str
    status: int
    out: str
    err: str
    seconds: float

    @property
    def all(self) -> str:
        return self.out + self.err

    def came(self, said: str) -> Came:
        return Came(self.status, said)

    def must(self, status: int, *texts: str, harm: str = "wrong blame") -> Said:
        """Raises Wrong unless it ended with `status` and said all of `texts`. harm: the kind that it is if not."""
        if self.status != status:
            harm = "false green" if self.status == 0 else harm
            raise Wrong(f"{harm}: status {self.status}, not {status}: {self.last}")
        flat = " ".join(self.all.split())
        for text in texts:
            if text not in flat:
                raise Wrong(f"{harm}: nowhere is said {text!r}: {self.last}")
        if "the harness itself failed" in flat and status != 3:
            raise Wrong(f"wrong blame: the harness itself failed: {self.last}")
        return self

    @property
    def last(self) -> str:
        """The last lines, in one."""
        return " | ".join(line.strip() for line in self.all.strip().splitlines()[-4:])[-600:]


@dataclass
class Place:
    """A folder, empty at first, in which commands run. It is on their import path, the checkout behind it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def sub(self, name: str) -> Place:
        """Another place, in a folder of this one."""
        (self.folder / name).mkdir()
        return Place(self.folder / name, self.environment)

    def write(self, name: str, text: str) -> Path:
        """A file in the folder; its common indentation goes."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def fuzz(self, *arguments: object, timeout: float = 120.0, environment: Mapping[str, str] = {}) -> Said:
        """`python -m fuzz ...` in the folder. Raises Wrong if it does not end in time."""
        return self.python("-m", "fuzz", *arguments, timeout=timeout, environment=environment)

    def python(self, *arguments: object, timeout: float = 120.0, environment: Mapping[str, str] = {}) -> Said:
        """This interpreter in the folder. What outlives its main process is ended."""
        command = [sys.executable, *map(str, arguments)]
        began = monotonic()
        process = self.begin(*command[1:], environment=environment)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            raise Wrong(
                f"no end: {' '.join(command[1:])} takes more than {timeout:g} s: {(out + err)[-300:]}"
            ) from None
        return Said(" ".join(command[1:]), process.returncode, out, err, monotonic() - began)

    def begin(self, *arguments: object, environment: Mapping[str, str] = {}) -> subprocess.Popen[str]:
        """The same, and does not wait for its end. It leads a process group of its own."""
        path = os.pathsep.join([str(self.folder), str(ROOT)])
        # A terminal's width, an override of the caller's, and CI's own habits are nothing to a fault.
        kept = {name: value for name, value in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS", "COLUMNS")}
        return subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=self.folder,
            env={**kept, "PYTHONPATH": path, "PYTHONSAFEPATH": "", "COLUMNS": "200", **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_heard,
        )

    def summary(self, out: str = "fuzz-out") -> dict[str, Any]:
        """summary.json of a campaign. Raises Wrong if there is none."""
        try:
            data: dict[str, Any] = json.loads((self.folder / out / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Wrong(f"lost: no summary: {error}") from error
        return data

    def findings(self, out: str = "fuzz-out") -> list[dict[str, Any]]:
        """The counterexamples in a campaign's folder, as JSON."""
        paths = sorted((self.folder / out / "findings").glob("*/counterexample.json"))
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    @contextmanager
    def disk(self, size: int, name: str = "disk") -> Iterator[Path]:
        """A disk of `size` bytes at a folder. Raises Cannot where this user may not mount one."""
        path = self.folder / name
        path.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "faults", str(path)], capture_output=True, text=True
        )
        if made.returncode:
            raise Cannot(f"no disk of its own: {made.stderr.strip()}")
        try:
            yield path
        finally:
            subprocess.run(["umount", "-l", str(path)], capture_output=True)
