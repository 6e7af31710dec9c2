"""The campaign as a self-contained HTML page: what ran, what was checked, what was met, what was found.

This room may not know: how a campaign runs; it is given the summary that is also written as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from properties.ledger import EVENTS
from reference import PROPERTIES

from .counterexample import Counterexample
from .show import describe

__all__ = ["environment", "render"]


def environment() -> Environment:
    """The templates of this package; what they are given is escaped."""
    return Environment(
        loader=PackageLoader("fuzz"), autoescape=select_autoescape(["html"]), trim_blocks=True, lstrip_blocks=True
    )


def render(summary: dict[str, Any], findings: Sequence[Counterexample], path: Path) -> Path:
    """Write the page for `summary` (see `campaign.Result.to_json`) and return its path."""
    page = (
        environment()
        .get_template("report.html")
        .render(
            summary=summary,
            statements={name: (kind.__doc__ or "").strip() for name, kind in PROPERTIES.items()},
            why={name: event.why for name, event in EVENTS.items()},
            findings=[
                {
                    "property": found.property_id,
                    "message": found.message,
                    "configuration": str(found.configuration),
                    "operations": [describe(operation) for operation in found.operations],
                    "at": found.at,
                    "replay": entry["replay"],
                }
                for found, entry in zip(findings, summary["findings"], strict=True)
            ],
        )
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path
