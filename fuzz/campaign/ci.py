"""What machines read of a campaign: JUnit XML, a Markdown page for CI, and annotations, one a signature.

Each is made of the summary that is also written as JSON.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..runs.foreign import code, in_markdown, visible

__all__ = ["annotated", "junit", "markdown"]

_OPEN = ("new", "regressed")


def junit(summary: dict[str, Any], path: Path) -> Path:
    """One test case a target and property: failed for what is new or regressed, skipped where nothing was checked or
    only known findings are there. A complaint of the harness is an error of its own. Raises OSError."""
    suites = ElementTree.Element("testsuites", name="fuzz")
    failed = skipped = errors = count = 0
    suite = ElementTree.SubElement(suites, "testsuite", name=f"campaign {summary['name']}")
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("seed", "operations", "workers", "budget_seconds"):
        ElementTree.SubElement(properties, "property", name=name, value=str(summary[name]))
    for target in summary["targets"]:
        for name, state in summary["properties"].items():
            case = ElementTree.SubElement(suite, "testcase", classname=f"fuzz.{_clean(target)}", name=name, time="0")
            count += 1
            found = [
                entry
                for entry in summary["findings"]
                if entry["signature"]["target"] == target and entry["property"] == name
            ]
            broken = [entry for entry in found if entry["status"] in _OPEN]
            if broken:
                failed += 1
                failure = ElementTree.SubElement(
                    case,
                    "failure",
                    type=name,
                    message=_clean("; ".join(f"{entry['status']}: {entry['message']}" for entry in broken)),
                )
                failure.text = _clean("\n".join(_told(entry) for entry in broken))
            elif found:
                skipped += 1
                known = ", ".join(entry["signature"]["id"] for entry in found)
                ElementTree.SubElement(case, "skipped", message=f"known: {known}")
            elif state != "checked":
                skipped += 1
                ElementTree.SubElement(case, "skipped", message=_clean(state))
    if summary["complaint"] and summary["status"] in (3, 4, 130):
        count, errors = count + 1, 1
        case = ElementTree.SubElement(suite, "testcase", classname="fuzz", name="the campaign itself", time="0")
        ElementTree.SubElement(case, "error", type="harness", message=_clean(summary["complaint"]))
    for element in (suites, suite):
        for name, value in (("tests", count), ("failures", failed), ("errors", errors), ("skipped", skipped)):
            element.set(name, str(value))
        element.set("time", f"{summary['seconds']:.3f}")
    ElementTree.indent(suites)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)
    return path


def _told(entry: dict[str, Any]) -> str:
    return (
        f"{entry['property']} ({entry['status']}, {entry['hits']} hits, {entry['replays']}): {entry['message']}\n"
        f"  {entry['replay']}"
        + (f"\n  found on {entry['device']}: {entry['interpreter']['told']}" if entry["interpreter"] else "")
        + _harm(entry)
        + "".join(f"\n  also met as {variant['said']}\n  {variant['replay']}" for variant in entry["variants"])
    )


def _clean(text: str) -> str:
    """What XML may not hold goes."""
    return re.sub(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD]", "?", text)


def _harm(entry: dict[str, Any]) -> str:
    """What worse it leads to. Summaries of older versions say nothing of that."""
    harm = entry.get("leads_to")
    return f"\n  leads to {harm['property']}: {harm['message']}\n  {harm['replay']}" if harm else ""


def markdown(summary: dict[str, Any]) -> str:
    """For a job's page, e.g. $GITHUB_STEP_SUMMARY. O(summary)."""
    rate = summary["operations"] / summary["seconds"] if summary["seconds"] else 0
    where = f"on {summary['workers']} workers, {summary['busy']:.0%} busy"
    if summary.get("in_process"):
        where = "in one process"
    lines = [
        f"## Campaign {in_markdown(summary['name'])}: {in_markdown(summary['verdict'])}",
        "",
        f"{summary['operations']:,} checked operations in {summary['seconds']:.0f} s ({rate:,.0f}/s) {where}; "
        f"seed {code(summary['seed'])}, exit status {summary['status']}.",
        "",
    ]
    if summary["complaint"]:
        lines += [f"**{in_markdown(summary['complaint'])}**", ""]
    if summary["findings"]:
        lines += [
            "| status | property | what | hits | replays | operations | replay |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {entry['status']} | {entry['property']} | {in_markdown(_what(entry))} | {entry['hits']:,} | "
            f"{entry['replays']} | {entry['operations']} | {code(entry['replay'])} |"
            for entry in summary["findings"]
        ]
        lines.append("")
    if summary["fixed"]:
        lines += [
            "Fixed, as their operations run clean now: " + ", ".join(in_markdown(one) for one in summary["fixed"]),
            "",
        ]
    lines += ["| engine | checked operations | a second and worker |", "|---|---|---|"]
    lines += [
        f"| {engine} | {row['operations']:,} | {row['operations_per_second'] or 0:,} |"
        for engine, row in summary["engines"].items()
    ]
    if summary["never_happened"]:
        lines += ["", f"Never happened: {', '.join(summary['never_happened'])}."]
    return "\n".join(lines) + "\n"


def _what(entry: dict[str, Any]) -> str:
    """The message, in how many other ways the bug was met, and whether it takes a device to see it."""
    others, device = len(entry["variants"]), entry["interpreter"]
    on_device = f" (found on {entry['device']}: {device['told']})" if device else ""
    harm = entry.get("leads_to")
    on_device += f" (leads to {harm['property']}: {harm['message']})" if harm else ""
    return (
        str(entry["message"]) + on_device + (f" (and met in {others} other way{'s' * (others > 1)})" if others else "")
    )


def annotated(summary: dict[str, Any]) -> list[str]:
    """Lines for GitHub's log, one a signature: an error for what is new or regressed, else a warning."""
    lines = []
    for entry in summary["findings"]:
        level = "error" if entry["status"] in _OPEN else "warning"
        title = f"{entry['property']} {entry['status']} ({entry['signature']['id']})"
        text = f"{entry['message']} -- {entry['replay']}"
        lines.append(f"::{level} title={_escaped(title, ',:')}::{_escaped(text)}")
    if summary["complaint"]:
        lines.append(f"::warning title=campaign::{_escaped(summary['complaint'])}")
    return lines


def _escaped(text: str, more: str = "") -> str:
    text = visible(text)
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
