"""What a command finds that is no campaign: kept in its folder as a directory like any other, under its own name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from ..runs.values import Counterexample
from .keep import Keep
from .signature import Symptom, signature_of
from .statuses import NEW
from .store import Findings

__all__ = ["filed"]


def filed(found: Counterexample, out: Path, now: datetime, replays: str = "1 of 1") -> Path:
    """Where its counterexample is, under `out`. The same again is one more hit of it; another is another directory.
    Raises OSError."""
    findings = Findings(out / "findings", Keep(), now)
    return findings.file(Symptom(signature_of(found)), found, found, status=NEW, replays=replays).path
