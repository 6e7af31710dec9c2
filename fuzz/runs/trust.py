"""Whose code is run: a file's target is imported only if it is one of ours, or the user has named it.

To import a target is to run its module, and to call it is to run anything: a file that came by mail and names os:system
must do neither. Targets of this harness, and those that an installed package has registered, are ours to import. What a
campaign has written itself names its target in the command that replays it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

__all__ = ["Untrusted", "replay_command", "shipped", "trusted"]

_OURS = ("fuzz", "kvcore", "properties")


class Untrusted(ValueError):
    """A file names a target that the user has not. Says how to name it."""


def shipped(target: str) -> bool:
    """Is it one of ours, or one that an installed package has registered by a name without a colon?"""
    module, colon, _ = target.partition(":")
    return not colon or module.split(".")[0] in _OURS


def trusted(target: str, file: Path, named: Collection[str] = ()) -> str:
    """`target`, which `file` names, if it may be imported. Raises Untrusted."""
    if shipped(target) or target in named:
        return target
    raise Untrusted(
        f"{file} names the target {target}, which is not imported because a file says so; if you trust it, give "
        f"--target {shlex.quote(target)}"
    )


def replay_command(path: Path | str, target: str, *options: str) -> str:
    """What a person types to replay a counterexample of `target`."""
    named = [] if shipped(target) else ["--target", target]
    return shlex.join(["python", "-m", "fuzz", "replay", *options, str(path), *named])
