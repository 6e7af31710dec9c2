"""Self-contained HTML pages, made from the summary that is also written as JSON.

One page shows a campaign: what ran, what was checked, which hard states were met, and each finding with its picture.
Another shows all campaigns of a folder: rates, findings, and how to repeat each.

A page loads nothing from outside, and everything that it shows is escaped. It leaves out what the summary does not have
(a timeline, coverage, the status of a finding).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from properties.boundary import UNMADE
from properties.ledger import EVENTS, THRESHOLD
from properties.target import TargetFactory
from properties.targets import UnknownTarget, load
from reference import PROPERTIES, Crash

from ..runs.child import Ended, each
from ..runs.replayed import FATAL
from ..runs.trust import distrusted
from ..runs.values import Counterexample
from .chart import chart, curves, heat, logarithmic, stacks
from .layout import layout
from .picture import NotDrawn, picture
from .timeline import describe

__all__ = ["drawn", "environment", "pictured", "render", "render_history", "render_picture"]


def environment() -> Environment:
    """The templates of this package. They escape what they are given."""
    made = Environment(
        loader=PackageLoader("fuzz.show"), autoescape=select_autoescape(["html"]), trim_blocks=True, lstrip_blocks=True
    )
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}  # for scripts, not for people
    return made


Picture = tuple[dict[str, Any] | None, str]
"""The data of a picture or None, and what a reader must be told about it."""


def pictured(found: Counterexample, factory: TargetFactory | None = None) -> Picture:
    """(the data of its picture or None, what a reader must be told about it), by a replay in this process; `drawn` does
    it in another. `factory`: that of `found.target` if not given. Raises nothing, unless the target ends the process.
    """
    fatal = found.message.startswith(FATAL) and bool(found.operations)
    try:
        if fatal:
            before = replace(found, operations=found.operations[:-1], property_id=None, message="", at=None)
            data = picture(before, factory or load(found.target), drain=False)
            return (
                data,
                f"The picture ends before the operation that its process died of: {describe(found.operations[-1])}.",
            )
        data = picture(found, factory or load(found.target))
    except UnknownTarget as error:
        return None, f"No picture: {error}."
    except NotDrawn as error:
        return None, f"No picture: {error}."
    except Exception as error:  # whatever a target does, or a harness that disagrees with it
        return None, f"No picture: replaying it ended in {type(error).__name__}: {error}"
    if data["property"] == Crash.id != found.property_id and data["message"].startswith(UNMADE):
        return None, f"No picture: {data['message']}."
    if found.property_id is not None and data["property"] is None:
        return None, f"No picture: {found.property_id} no longer fails on {found.target}."
    if found.property_id not in (None, data["property"]):
        return data, f"Replayed, it breaks {data['property']} first; it was found as {found.property_id}."
    return data, ""


def drawn(
    findings: Sequence[Counterexample], targets: Collection[str] = (), kernels: Collection[str] = ()
) -> list[Picture]:
    """What `pictured` says of each, in a process of its own, where no target can do any harm. Never raises: a report is
    written after the work is done, and must not lose it. targets, kernels: those that were given; others than those and
    our own are not imported. A second, and the replays."""
    why = [distrusted(found, targets, kernels) for found in findings]
    answers = each(
        pictured, [found for found, strange in zip(findings, why, strict=True) if not strange], seconds=_DRAWING
    )
    made: list[Picture] = []
    for strange in why:
        if strange:
            made.append((None, f"No picture: it {strange}."))
            continue
        answer = next(answers)
        ended = isinstance(answer, Ended)
        made.append((None, f"No picture: the process that drew it {answer}.") if ended else answer)  # type: ignore[arg-type]
    return made


_DRAWING = 30.0
"""Seconds that one picture may take."""


_MOST = 4_000_000
"""Bytes of all pictures of a page, about."""

_OPEN = 3
"""Pictures that are open at first; the others are folded."""

_SHOWN_TEXT = 400
"""Characters of one operation."""


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]} … ({len(text):,} characters in the file)"


def _within(
    pictures: Sequence[tuple[dict[str, Any] | None, str]],
) -> list[tuple[dict[str, Any] | None, dict[str, Any] | None, str]]:
    """Each with its layout; those for which the page has no room left say so instead."""
    made: list[tuple[dict[str, Any] | None, dict[str, Any] | None, str]] = []
    left = _MOST
    for data, said in pictures:
        drawn = layout(data) if data is not None else None
        if data is not None and drawn is not None:
            # A bar and a column are some hundred bytes of markup each.
            size = len(json.dumps(data)) + 500 * sum(len(row["bars"]) for row in drawn["rows"])
            if size > left:
                data = drawn = None
                said = f"{said} No picture: the page is large already; `replay` has the same.".strip()
            else:
                left -= size
        made.append((data, drawn, said))
    return made


def render(
    summary: dict[str, Any],
    findings: Sequence[Counterexample],
    path: Path,
    pictures: Sequence[Picture] | None = None,
) -> Path:
    """Write the page for `summary` (see `fuzz.campaign.outcome.CampaignResult.to_json`) and return its path.

    `findings` are those of the summary, in its order; `pictures` what `drawn` says of them, if that is known already.
    Of a summary's `timeline`, counts are taken as running totals."""
    if pictures is None:
        pictures = drawn(findings)
    drawings = _within(pictures)
    never = summary.get("never_happened", ())
    most = max(summary["sometimes"].values(), default=0)
    page = (
        environment()
        .get_template("report.html")
        .render(
            summary=summary,
            statements=_statements(),
            violated=_violated(summary["findings"]),
            threshold=THRESHOLD,
            sometimes=[
                {
                    "name": name,
                    "count": count,
                    "why": EVENTS[name].why if name in EVENTS else "",
                    "share": logarithmic(count, most),
                    "possible": bool(count) or name in never,
                }
                # States that never occurred come first, then the rarest: these are what a reader looks for.
                for name, count in sorted(
                    summary["sometimes"].items(), key=lambda item: (item[0] not in never, item[1] == 0, item[1])
                )
            ],
            chart=chart(summary.get("timeline") or ()),
            heat=heat(summary.get("coverage") or {}),
            findings=[
                {
                    "property": found.property_id,
                    "message": found.message,
                    "configuration": str(found.configuration),
                    "operations": [_cut(describe(operation)) for operation in found.operations],
                    "at": found.at,
                    "entry": entry,
                    "picture": data,
                    "drawn": drawn,
                    "open": place < _OPEN,
                    "said": said,
                }
                for place, (found, entry, (data, drawn, said)) in enumerate(
                    zip(findings, summary["findings"], drawings, strict=True)
                )
            ],
        )
    )
    return _write(path, page)


def _violated(findings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Properties that fail now, each with the number of its first finding; other ways to meet a bug count as well."""
    found: dict[str, int] = {}
    for number, entry in enumerate(findings, 1):
        if entry.get("status") != "fixed":
            found.setdefault(entry["property"], number)
            for variant in entry.get("variants") or ():
                found.setdefault(variant["signature"]["property"], number)
    return found


_STATUSES = ("new", "regressed", "known", "fixed")


def render_history(campaigns: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Write the page over `campaigns` (rows of a history as JSON, oldest first) and return its path. O(rows)."""
    engines = sorted({engine for row in campaigns for engine in row["engines"]})
    labels = [str(row["began"])[:10] for row in campaigns]
    found: dict[str, dict[str, Any]] = {}
    for place, row in enumerate(campaigns):
        for entry in row["findings"]:
            one = found.setdefault(
                entry["signature"],
                {**entry, "first": labels[place], "hits": 0, "cells": [""] * len(campaigns)},
            )
            one["hits"] += entry["hits"]
            one.update(status=entry["status"], last=labels[place], message=entry["message"] or one["message"])
            one["cells"][place] = entry["status"]
    order = {status: place for place, status in enumerate(_STATUSES)}
    rates = {
        engine: [
            row["engines"][engine]["operations"] / row["engines"][engine]["seconds"]
            if row["engines"].get(engine, {}).get("seconds")
            else None
            for row in campaigns
        ]
        for engine in engines
    }
    counts = [
        {status: sum(one["status"] == status for one in row["findings"]) for status in _STATUSES} for row in campaigns
    ]
    page = (
        environment()
        .get_template("history.html")
        .render(
            campaigns=list(zip(campaigns, counts, strict=True)),
            statuses=_STATUSES,
            labels=labels,
            rates=curves(rates, labels),
            counts=stacks(counts, labels),
            findings=sorted(found.values(), key=lambda one: (order[one["status"]], one["property"], one["signature"])),
            statements=_statements(),
        )
    )
    return _write(path, page)


def render_picture(found: Counterexample, path: Path, factory: TargetFactory | None = None) -> Path:
    """Write a page with the picture alone, of a counterexample or a scenario. Raises NotDrawn, UnknownTarget."""
    data = picture(found, factory or load(found.target))
    page = environment().get_template("picture_page.html").render(data=data, drawn=layout(data))
    return _write(path, page)


def _statements() -> dict[str, str]:
    return {name: (kind.__doc__ or "").strip() for name, kind in PROPERTIES.items()}


def _write(path: Path, page: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path
