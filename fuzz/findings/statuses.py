"""The four statuses of a finding, against the baseline of what is known."""

from __future__ import annotations

__all__ = ["FIXED", "KNOWN", "NEW", "REGRESSED"]

NEW, KNOWN, FIXED, REGRESSED = "new", "known", "fixed", "regressed"
