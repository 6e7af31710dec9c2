"""The outcome of a replay in a process of its own, as a value (`isolated` replays)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CLEAN", "FATAL", "NOT_RUN", "OTHER", "SAME", "Replayed"]

SAME, OTHER, CLEAN, NOT_RUN = "same", "other", "clean", "not run"
"""The outcomes: the same property broke, another one did, none did, or the replay could not be run."""

FATAL = "its process "
"""Begins the message of a finding that kills its process."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """outcome: one of the above. said: one line for people."""

    outcome: str
    said: str
