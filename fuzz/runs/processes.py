"""Processes of our own: how one is started, and what each worker does first: end with its main process, and leave
Ctrl-C to it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

__all__ = ["follow_parent", "ourselves"]

_DOOR = Path(__file__).parents[2] / "kvcore_fuzz.py"


def ourselves(module: str = "fuzz") -> list[str]:
    """How a command begins that runs `module` of ours in a process of its own, as `python -m` would.

    `python -m fuzz` would run a user's fuzz.py where one is in the working folder. This never does, and it finds the
    user's targets there all the same."""
    return [sys.executable, "-P", str(_DOOR), module]


def follow_parent() -> None:
    """An initializer for pools of spawned processes. O(1), and a thread that sleeps.

    Without it, a worker whose main process was killed would wait for work, or go on working, for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process says when to stop
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
