"""What a file names is imported and called only if somebody who is here names it, too.

A counterexample has its target's name, "package.module:factory", and to replay it is to import that and call it. A file
of somebody else's could name anything. So a name in a file counts only if it comes with this tool or with an installed
package that registers it, or if it was given on the command line (`--target`, `--kernels`) or by a plan that was given
there. What is printed for people to type says `--target` where it is needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from .values import Counterexample

__all__ = ["distrusted", "options_of", "replay_command", "shipped"]

_SHIPPED = ("fuzz.example", "fuzz.tests", "fuzz.tools", "fuzz.zoo", "properties.targets")
"""Packages of this tool with targets in them."""


def shipped(name: str) -> bool:
    """Does the target, or do the kernels, of this name come with this tool, or with an installed package?"""
    module, _, factory = name.partition(":")
    return not factory or any(module == one or module.startswith(f"{one}.") for one in _SHIPPED)


def distrusted(found: Counterexample, targets: Iterable[str] = (), kernels: Iterable[str] = ()) -> str:
    """What the file names that is neither shipped nor among those that were given, as the rest of a sentence that says
    how to allow it; "" if there is nothing."""
    targets = tuple(targets)
    for name in (found.target, found.judging.keys):
        if not shipped(name) and name not in targets:
            return (
                f"names the target {name!r}, which would be imported and called, and does not come with this tool; if "
                f"you trust it, give --target {shlex.quote(name)}"
            )
    name = found.judging.kernels
    if not shipped(name) and name not in kernels:
        return (
            f"names the kernels {name!r}, which would be imported and called, and do not come with this tool; if you "
            f"trust them, give --kernels {shlex.quote(name)}"
        )
    return ""


def options_of(found: Counterexample) -> str:
    """What `replay` needs to be told to trust it, with a space before; "" for what is shipped."""
    said = "" if shipped(found.target) else f" --target {shlex.quote(found.target)}"
    kernels = found.judging.kernels
    return said if shipped(kernels) else f"{said} --kernels {shlex.quote(kernels)}"


def replay_command(path: Path, found: Counterexample) -> str:
    """What to type to replay it."""
    return f"python -m fuzz replay {shlex.quote(str(path))}{options_of(found)}"
