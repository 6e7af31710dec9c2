"""What a law is, and what it sees of a session. It imports neither: laws and the session import it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import reference
from reference import Judge

from ..target import Capability, StepArrays, Target

__all__ = ["Law", "Seen"]


class Seen(Protocol):
    """What a law may look at: the model, the core, and the core's answers through `see`."""

    judge: Judge
    target: Target
    changed: Sequence[int]
    """Blocks whose references or publication the last operation changed."""
    step: tuple[reference.Step, Sequence[tuple[int, int]], StepArrays] | None
    """The step that the last operation dispatched, its copies and its arrays; None if it was another operation."""

    def see(self, look: Callable[..., Any], *values: Any) -> Any:
        """What a method of the target that only shows something returns; whatever it raises is a CRASH."""
        ...


class Law(Protocol):
    """One observer. Raises a `Violation`; changes nothing but its own counters."""

    needs: frozenset[Capability]
    excludes: frozenset[Capability]
    """What it cannot follow: switched off in its sessions, and said like any capability that is missing."""

    def after(self, seen: Seen) -> None:
        """The last operation succeeded and the judge has no objection; `seen.changed` lists its blocks."""
        ...

    def walk(self, seen: Seen, operations: int) -> None:
        """Compare everything; so many operations have passed since the last time.

        Asked at intervals, and after every refusal: a refused operation changes nothing.
        """
        ...
