"""Isolated replay: a replay in a process of its own, and its outcome.

It serves bisection (the same code at another commit), and findings on a device (replayed in Triton's interpreter on the
CPU). A replay that crashes, hangs or cannot be imported never affects the caller; that it ends its process is what it
says, like anything else that it finds.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from reference import Crash

from .counterexample import Unreadable, read
from .processes import ourselves
from .replayed import CLEAN, FATAL, NOT_RUN, OTHER, SAME, Replayed

__all__ = ["CLEAN", "FATAL", "INTERPRETED", "NOT_RUN", "OTHER", "SAME", "Replayed", "replayed"]

INTERPRETED = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
"""The environment of a replay that uses no device."""


def replayed(
    file: Path,
    target: str = "",
    timeout: float = 300.0,
    environment: Mapping[str, str] = {},
    beat: Callable[[], None] = lambda: None,
    kernels: str = "",
) -> Replayed:
    """Replay `file`, on `target` and `kernels` unless these are empty, within `timeout` seconds; `beat` is called
    now and then. Never raises. A second to start, or several where torch is needed."""
    try:
        stored = read(file)
    except Unreadable as error:
        return Replayed(NOT_RUN, str(error))
    command = [*ourselves(), "replay", "--json", str(file), *(["--target", target] if target else [])]
    command += ["--kernels", kernels] if kernels else []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    deadline = monotonic() + timeout
    while True:
        try:
            out, err = process.communicate(timeout=min(0.5, max(0.0, deadline - monotonic())))
            break
        except subprocess.TimeoutExpired:
            beat()
            if monotonic() >= deadline:
                _end(process)
                if stored.property_id == Crash.id and stored.message.startswith(f"{FATAL}hung"):
                    return Replayed(SAME, "the replay hangs, as the finding says")
                return Replayed(NOT_RUN, f"the replay takes longer than {timeout:g} s")
    try:
        said = json.loads(out)
        property_id = said["property"]
        lacking = [step["outcome"] for step in said["steps"] if "no capability" in step["outcome"]]
    except (ValueError, KeyError, TypeError):
        last = (err.strip().splitlines() or ["nothing said"])[-1]
        return Replayed(NOT_RUN, f"no replay (status {process.returncode}): {last}")
    if property_id is not None and property_id == stored.property_id:
        return Replayed(SAME, f"{property_id} fails: {said['message']}")
    if property_id is not None:
        return Replayed(OTHER, f"{property_id} fails, and {stored.property_id} is looked for")
    if lacking:  # a step that there is not, since the fault is not there to admit its request, is no such thing
        return Replayed(NOT_RUN, f"{len(lacking)} operations cannot be done on this target: {lacking[0]}")
    return Replayed(CLEAN, f"{stored.property_id or 'the scenario'} is clean")


def _end(process: subprocess.Popen[str]) -> None:
    """End a guard, and with it the process that it guards: asked once it asks, asked twice it kills."""
    for _ in range(2):
        process.terminate()
        try:
            process.communicate(timeout=1.0)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.communicate()
