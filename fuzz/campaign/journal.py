"""How far a campaign is, in a file that is rewritten every few seconds: if it is cut short, `--resume` goes on from
there.

Where the streams are it is told, and tells (`Streams.noted`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..runs.bounds import json_of, text_of
from ..runs.files import put
from .plan import CampaignPlan

__all__ = ["Journal", "NothingToResume", "journal_of"]


class NothingToResume(Exception):
    """No campaign in this folder was cut short."""


def journal_of(out: Path) -> dict[str, Any]:
    """How far the campaign in `out` was when it was cut short; "plan" is what it was to do. Raises NothingToResume."""
    try:
        journal = json_of(text_of(out / "campaign.json"))
        if not journal["ended"]:
            return dict(journal)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise NothingToResume(f"no campaign in {out} was cut short; start one without --resume")


class Journal:
    """Of a campaign in `out` that is to do all of `plan`. before: seconds that it had, before it was cut short."""

    def __init__(self, out: Path, plan: CampaignPlan) -> None:
        self._out = out
        self._whole = plan
        self.before = 0.0

    def resume(self) -> tuple[CampaignPlan, Mapping[str, Any]]:
        """What is left to do, with the seed of the campaign that was cut short, and where its streams were. Raises
        NothingToResume."""
        journal = journal_of(self._out)
        self.before = float(journal["seconds"])
        self._whole = replace(self._whole, seed=journal["seed"])
        return replace(self._whole, budget=max(0.0, self._whole.budget - self.before)), journal["streams"]

    def note(self, seconds: float, streams: Mapping[str, Any], ended: bool) -> None:
        """It has run for so long, with what it had before. Raises OSError."""
        journal = {
            "seed": self._whole.seed,
            "name": self._whole.name,
            "seconds": round(seconds, 3),
            "ended": ended,
            "plan": self._whole.to_json(),
            "streams": streams,
        }
        put(self._out / "campaign.json", json.dumps(journal, indent=1) + "\n")
