"""Supervises a worker: gives it the parts, and replaces it when it dies or hangs.

A kernel that reads a wrong address makes the device unusable for its whole process, a compiler may abort, and a loop
may never end. None of this may lose earlier results, or prevent later ones. So results are on disk after every part,
and the next worker goes on with the rest.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ..runs.processes import ourselves
from .results import BadResults, Results

__all__ = ["LOST", "NO_DEVICE", "NoDevice", "WorkerFailed", "watch"]

NO_DEVICE, LOST = 4, 70
"""Exit statuses of a worker."""

_ENDING = 6.0
"""Seconds kept for showing the results."""

_PATIENCE = 60.0
"""Seconds that a part may overstep its limit by, compiling or measuring, before its worker is ended."""


class NoDevice(Exception):
    """There is no device. The worker has said so."""


class WorkerFailed(Exception):
    """A worker ended before it began any part. Says how."""


def watch(
    path: Path,
    parts: tuple[str, ...],
    minutes: float,
    *,
    quiet: bool = False,
    say: Callable[[str], None] = print,
    command: tuple[str, ...] = (),
) -> Results:
    """Run `parts` within `minutes`, in as many workers as it takes, and return the results, which are at `path`.

    quiet: workers write to standard error. command: what starts a worker; for tests.
    Raises NoDevice or WorkerFailed.
    """
    begun = time.time()
    until = begun + 60 * minutes - min(_ENDING, 6 * minutes)
    run = secrets.token_hex(8)
    left = parts
    resume = False
    while True:
        request = {
            "path": str(path),
            "run": run,
            "parts": left,
            "minutes": minutes,
            "until": until,
            "resume": resume,
            "quiet": quiet,
        }
        status = _worker(command or tuple(ourselves("fuzz.gpu")), json.dumps(request), path, run, until, quiet)
        if status == NO_DEVICE and not resume:
            raise NoDevice
        results = _read(path, run)
        if results is None:
            raise WorkerFailed(f"the worker {_ended(status)} before it had begun")
        for part in results.data["parts"]:
            if part["status"] == "running":
                late = status is None and time.time() >= until
                part["status"] = "cut" if late else "failed"
                part["notes"].append(f"its worker {_ended(status)}")
                colour, word = ("yellow", "cut") if late else ("bold red", "failed")
                say(f"[{colour}]{word}:[/] {part['name']}: its worker {_ended(status)}")
        pending = tuple(part["name"] for part in results.data["parts"] if part["status"] == "pending")
        if not pending or time.time() >= until or pending == left:
            for part in results.data["parts"]:
                if part["status"] == "pending":
                    part["status"] = "skipped"
                    part["notes"].append("no time was left" if time.time() >= until else f"its worker {_ended(status)}")
            results.flush()
            return results
        results.flush()
        say(f"[yellow]another worker goes on with {', '.join(pending)}[/]")
        left, resume = pending, True


def _worker(command: tuple[str, ...], request: str, path: Path, run: str, until: float, quiet: bool) -> int | None:
    """Start one and wait for it: its exit status, None if it had to be ended."""
    root = str(Path(__file__).parents[2])
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
    environment.pop("TRITON_INTERPRET", None)  # set where kernels run on the CPU
    child = subprocess.Popen([*command, request], env=environment, stdout=2 if quiet else None)
    running, since = "", time.time()
    try:
        while True:
            try:
                return child.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                pass
            now = time.time()
            name, limit = _running(path, run)
            if name != running:
                running, since = name, now
            if now > until + _ENDING / 2 or (running and now > since + limit + _PATIENCE):
                child.kill()
                child.wait()
                return None
    except BaseException:
        child.kill()
        child.wait()
        raise


def _running(path: Path, run: str) -> tuple[str, float]:
    """The part that the file says is running, and its limit in seconds; ("", 0) for none."""
    results = _read(path, run)
    for part in results.data["parts"] if results is not None else ():
        if part["status"] == "running":
            return part["name"], part["limit"]
    return "", 0.0


def _read(path: Path, run: str) -> Results | None:
    """This run's results, None if there are none yet."""
    try:
        results = Results.load(path)
    except BadResults:
        return None
    return results if results.data["run"] == run else None


def _ended(status: int | None) -> str:
    if status is None:
        return "was ended, since its time was up"
    if status == LOST:
        return "lost the device"
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
