"""Reads summaries of campaigns, those of older versions too.

Schema 1 was that of runs in one process, which had their own until they became campaigns: findings were files without a
directory, and nothing was compared with a baseline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..runs.bounds import json_of, text_of

__all__ = ["SCHEMA", "BadSummary", "read_summary"]

SCHEMA = 2
"""What is written now (`outcome.CampaignResult.to_json`)."""

_ADDED_TO_EACH_FINDING: dict[str, Any] = {"variants": [], "interpreter": None, "device": "", "known_as": ""}


class BadSummary(ValueError):
    """The file is no summary, or a newer version's. Says which file and why."""


def read_summary(path: Path) -> dict[str, Any]:
    """The summary in `path`, as one of this version; "schema" stays what it was. Raises BadSummary."""
    try:
        data = json_of(text_of(path))
        if data["schema"] not in (1, SCHEMA):
            raise ValueError(f"its schema is {data['schema']}: it is of a newer version")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadSummary(f"{path}: not the summary of a campaign ({error}); `python -m fuzz run` writes one") from None
    assert isinstance(data, dict)
    if data["schema"] == SCHEMA:
        return data
    findings = [{**_ADDED_TO_EACH_FINDING, **finding} for finding in data["findings"]]
    found = ", ".join(str(finding["property"]) for finding in findings)
    verdict = (
        f"violated: {found}" if found else data["complaint"] or f"no violation in {data['operations']:,} operations"
    )
    added = {
        "name": "run",
        "verdict": verdict,
        "targets": [data["target"]],
        "in_process": True,
        "workers": 1,
        "cpu_seconds": data["seconds"],
        "busy": 1.0,
        "not_counted": {},
        "fixed": [],
        "known_not_met": [],
        "replayed": [],
        "command": "",
        "dead_workers": [],
        "tidied": [],
        "warnings": [],
    }
    return {**added, **data, "findings": findings}
