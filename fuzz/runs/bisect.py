"""One replay as an answer to `git bisect run`.

| what the replay did | status | git takes the commit for |
|---|---|---|
| broke the same property | 1 | bad |
| nothing | 0 | good |
| broke another property, lacked a capability, did not start, died, took too long | 125 | neither: skipped |

A bisection visits commits in which nothing works, this tool included. So the replay is a process of its own, and only a
complete answer counts. If the finding is that a process dies, its death is the answer.
"""

from __future__ import annotations

from pathlib import Path

from . import isolated

__all__ = ["BAD", "GOOD", "SKIP", "bisected"]

GOOD, BAD, SKIP = 0, 1, 125

_WORD = {BAD: "bad", GOOD: "good", SKIP: "skip"}


def bisected(file: Path, target: str, timeout: float, kernels: str = "") -> tuple[int, str]:
    """(exit status for `git bisect run`, why). `target` and `kernels` overrule the file's, unless
    empty."""
    replayed = isolated.replayed(file, target, timeout, kernels=kernels)
    status = {isolated.SAME: BAD, isolated.CLEAN: GOOD}.get(replayed.outcome, SKIP)
    return status, f"{_WORD[status]}: {replayed.said}"
