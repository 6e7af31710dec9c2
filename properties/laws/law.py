"""What a law is, and what it sees of a session.

A module of its own, so that laws and session both import it and not each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import reference
from reference import Judge

from ..target import Capability, Pad, StepArrays, Target

__all__ = ["AtSteps", "AtWalks", "Law", "Seen"]


class Seen(Protocol):
    """What a law may look at: the model, the core, and the core's answers through `see`."""

    judge: Judge
    target: Target
    changed: Sequence[int]
    """Blocks whose references or publication the last operation changed."""
    step: tuple[reference.Step, Sequence[tuple[int, int]], StepArrays, Pad | None] | None
    """The step that the last operation dispatched, its copies, its arrays and what makes them larger; None if it was
    another operation."""

    refused: defaultdict[str, int]
    """How many operations were refused, by the error's name."""

    def around(self, wrap: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] | None) -> None:
        """From the next operation on, what `wrap` makes of it does each operation; with None, nothing but itself."""
        ...

    def see(self, look: Callable[..., Any], *values: Any) -> Any:
        """What a method of the target returns that only shows something. Anything that it raises is a CRASH."""
        ...


class AtWalks:
    """A base for laws that look at the whole state only, at walks: nothing is asked of them after an operation."""

    def after(self, seen: Seen) -> None:
        """Never called."""


class AtSteps:
    """A base for laws that look at steps only: `after` is called where the last operation dispatched one, and nothing
    is asked at walks."""

    def walk(self, seen: Seen, operations: int) -> None:
        """Nothing of the whole state is asked."""


class Law(Protocol):
    """One observer. Raises a `Violation`; changes nothing but its own counters."""

    needs: frozenset[Capability]
    excludes: frozenset[Capability]
    """Capabilities that it cannot follow. They are off in its sessions, and listed like any that is missing."""

    def after(self, seen: Seen) -> None:
        """The last operation succeeded and the judge has no objection; `seen.changed` lists its blocks."""
        ...

    def walk(self, seen: Seen, operations: int) -> None:
        """Compare everything; so many operations have passed since the last time.

        Asked at intervals, and after every refusal: a refused operation changes nothing.
        """
        ...
