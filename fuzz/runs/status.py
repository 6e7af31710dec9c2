"""Exit statuses, the same for every command. A night's exit status is what people act on."""

from __future__ import annotations

__all__ = ["CLEAN", "HARNESS", "INTERRUPTED", "NOTHING", "ONLY_KNOWN", "USAGE", "VIOLATION"]

CLEAN = 0
"""Operations were checked, and nothing was wrong."""

VIOLATION = 1
"""A violation that is new or has come back."""

USAGE = 2
"""The command was given something it cannot use; nothing ran."""

HARNESS = 3
"""The harness failed, or a night was too weak to be called green."""

NOTHING = 4
"""Nothing was checked."""

ONLY_KNOWN = 5
"""Violations, all of them in the baseline."""

INTERRUPTED = 130
"""Ctrl-C. What was done until then is kept."""
