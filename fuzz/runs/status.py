"""Exit statuses, the same for every command. People and CI act on them."""

from __future__ import annotations

__all__ = ["CLEAN", "HARNESS", "INTERRUPTED", "NOTHING", "ONLY_KNOWN", "USAGE", "VIOLATION"]

CLEAN = 0
"""Operations were checked, and nothing was wrong."""

VIOLATION = 1
"""A violation that is new or has come back."""

USAGE = 2
"""The command was given something it cannot use; nothing ran."""

HARNESS = 3
"""The harness failed, or a campaign was too weak to count as clean."""

NOTHING = 4
"""Nothing was checked."""

ONLY_KNOWN = 5
"""Violations, all of them in the baseline."""

INTERRUPTED = 130
"""Ctrl-C. What was done until then is kept."""
