"""What every worker process does first: end with its main process, and leave Ctrl-C to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

__all__ = ["follow_parent"]


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
