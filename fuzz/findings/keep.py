"""Housekeeping of a folder of findings: how much of it stays."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Keep"]


@dataclass(frozen=True, slots=True)
class Keep:
    """examples: counterexamples of one signature. days: how long a finding that is not seen again is kept. disk: bytes
    that the folder may have."""

    examples: int = 3
    days: float = 30.0
    disk: int = 500 << 20
