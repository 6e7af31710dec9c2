"""What processes that run a target have in common: how they begin, what they may use, and how their end is told.

Each of them ends with its main process, leaves Ctrl-C to that, and says on standard error where it was if it dies of a
signal.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

__all__ = [
    "FROM_OUTSIDE",
    "LOST_DEVICE",
    "NO_DISK",
    "OUT_OF_MEMORY",
    "THREADS_LEFT",
    "WHERE",
    "die_with_parent",
    "ended",
    "follow_parent",
    "limit_memory",
    "ourselves",
    "say_where",
]

OUT_OF_MEMORY, LOST_DEVICE, THREADS_LEFT, NO_DISK = 71, 70, 72, 73
"""Exit statuses of a process that runs a target: what it cannot say any more in another way."""

WHERE = signal.SIGUSR1
"""A process that gets this signal writes where each of its threads is to its standard error, and goes on."""


_STANDARD_ERROR = 2


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


def die_with_parent() -> None:
    """From here on this process ends with the one that started it, whatever it is at; on Linux. For processes that a
    main thread starts."""
    if sys.platform == "linux":
        import ctypes

        parent = os.getppid()
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


_DEATH_SIGNAL = 1


def say_where() -> None:
    """From here on this process says where it was if it dies of a signal, and where it is if it is sent `WHERE`."""
    faulthandler.enable(_STANDARD_ERROR)
    faulthandler.register(WHERE, _STANDARD_ERROR, all_threads=True)


def limit_memory(memory: int) -> None:
    """Bytes that this process may write to; 0: no limit. Address space alone is no matter, and CUDA reserves a great
    deal of it."""
    import resource

    if memory:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))


FROM_OUTSIDE = frozenset(f"was killed by {name}" for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"))
"""Ends that somebody else may have made: a person, a batch system, a kernel that is out of memory."""


def ended(status: int | None) -> str:
    """How a process ended, as the rest of a sentence, without numbers that change from run to run. status: minus the
    signal that killed it, or its exit status."""
    if status == OUT_OF_MEMORY:
        return "ran out of memory"
    if status == LOST_DEVICE:
        return "lost its device: a CUDA error"
    if status == NO_DISK:
        return "could not write to the disk"
    if status == THREADS_LEFT:
        return "was left with threads that targets had started and not ended"
    if status is not None and status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"ended by itself with status {status}"
