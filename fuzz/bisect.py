"""One replay as an answer to `git bisect run`.

| what the replay did | status | git takes the commit for |
|---|---|---|
| broke the same property | 1 | bad |
| nothing | 0 | good |
| broke another property, lacked a capability, did not start, died, took too long | 125 | neither: skipped |

Bisecting runs through commits in which nothing works, this tool included. So the replay is a process of its own, and
only what it says in full counts. Where the finding is that a process dies, its death is what is looked for.

This room may not know: how a replay is done.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from reference import Crash

from .counterexample import Unreadable, read

__all__ = ["BAD", "GOOD", "SKIP", "bisected"]

GOOD, BAD, SKIP = 0, 1, 125


def bisected(file: Path, target: str, timeout: float) -> tuple[int, str]:
    """(exit status for `git bisect run`, why). `target` overrules the file's, unless empty."""
    try:
        stored = read(file)
    except Unreadable as error:
        return SKIP, f"skip: {error}"
    command = [sys.executable, "-m", "fuzz", "replay", "--json", str(file), *(["--target", target] if target else [])]
    fatal = stored.property_id == Crash.id and stored.message.startswith("its process ")
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        if fatal and "hung" in stored.message:
            return BAD, "bad: the replay hangs, as the finding says"
        return SKIP, f"skip: the replay takes longer than {timeout:g} s"
    if ran.returncode < 0:
        if fatal:
            return BAD, f"bad: the replay's process died of signal {-ran.returncode}"
        return SKIP, f"skip: the replay's process died of signal {-ran.returncode}"
    try:
        said = json.loads(ran.stdout)
        property_id = said["property"]
        lacking = [step["outcome"] for step in said["steps"] if "no capability" in step["outcome"]]
    except (ValueError, KeyError, TypeError):
        last = (ran.stderr.strip().splitlines() or ["nothing said"])[-1]
        return SKIP, f"skip: no replay (status {ran.returncode}): {last}"
    if property_id is not None and property_id == stored.property_id:
        return BAD, f"bad: {property_id} fails: {said['message']}"
    if property_id is not None:
        return SKIP, f"skip: {property_id} fails, and {stored.property_id} is looked for"
    if lacking:  # a step that there is not, since the fault is not there to admit its request, is no such thing
        return SKIP, f"skip: {len(lacking)} operations cannot be done on this target: {lacking[0]}"
    return GOOD, f"good: {stored.property_id or 'the scenario'} is clean"
