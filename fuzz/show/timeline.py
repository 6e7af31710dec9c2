"""Showing a run to a person: each operation, the blocks around it, and the violation.

What a block holds is taken from the judge (the model follows the core, so until the violation they agree); where the
core can be inspected and counts otherwise, its own count is shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from properties.operations import Operation
from properties.session import Outcome, Session
from properties.target import Capability
from reference import Violation

from ..runs.foreign import visible

__all__ = ["Timeline", "describe", "states"]

_WIDEST = 12
"""Blocks shown at most after an operation; of larger pools those that changed come first."""


def describe(operation: Operation) -> str:
    """One operation in one line, as a person would write it down."""
    return " ".join(visible(operation.describe()).split("\n"))


def hard_states(summary: Mapping[str, Any]) -> str:
    """One line: how many of the hard states that were possible a campaign's summary counts, and the rarest."""
    met = [(count, name) for name, count in summary["sometimes"].items() if count]
    count, name = min(met, default=(0, "none"))
    return (
        f"hard states met: {len(met)} of {len(met) + len(summary['never_happened'])} (rarest: {name}, {count:,} times)"
    )


def states(session: Session, blocks: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """The state of each of `blocks` (all without), as data: block, state, references, published, tokens (its slots),
    and the core's own counts.
    """
    judge = session.judge
    if blocks is None:
        blocks = range(judge.policy.num_blocks)
    inside: list[tuple[int, bool]] | None = None
    if Capability.INSPECT in session.capabilities:
        inside = session.target.states(blocks)
    holders: dict[int, list[str]] = {}
    for request, line in judge.sequences.items():
        for block in line.table:
            holders.setdefault(block, []).append(request)
    rows = []
    for place, block in enumerate(blocks):
        references = judge.blocks.references[block]
        published = judge.blocks.published[block] is not None
        row: dict[str, Any] = {
            "block": block,
            "state": "active" if references else "cached" if published else "free",
            "references": references,
            "published": published,
            "tokens": judge.slots.content(block)[1].tolist(),
            "holders": holders.get(block, []),
        }
        if inside is not None and inside[place] != (references, published):
            row["core"] = {"references": inside[place][0], "published": inside[place][1]}
        rows.append(row)
    return rows


_STYLES = {"free": "dim", "cached": "yellow", "active": "green"}


def _cell(row: dict[str, Any], size: int, changed: bool) -> str:
    tokens = [
        "·" if at >= len(row["tokens"]) else str(row["tokens"][at]).replace("-1", "?") for at in range(min(size, 8))
    ]
    content = " ".join(tokens) + (" …" if size > 8 else "")
    state = f"{row['state']}×{row['references']}" if row["references"] else row["state"]
    mark = "=" if row["published"] else " "
    text = f"{row['block']}: {state:<8}{mark} {content}"
    if row["holders"]:
        text += "  " + visible(",".join(row["holders"])).replace("\n", "\\n")
    if "core" in row:
        core = row["core"]
        text += f"  core: ×{core['references']}{' =' if core['published'] else ''}"
    style = ("bold " if changed else "") + ("red" if "core" in row else _STYLES[row["state"]])
    return f"[{style}]{escape(text)}[/]"


class Timeline:
    """Collects a run as it goes and prints it as a table. One `add` before each operation, one `finish` after the
    last.
    """

    def __init__(self, title: str, drain_from: int | None = None) -> None:
        self._rows: list[tuple[str, str, str]] = []
        self._title = visible(title)
        self._drain_from = drain_from
        self._pending: str | None = None
        self._before: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []

    def add(self, session: Session, operation: Operation, previous: Outcome | None) -> None:
        """The state that `previous` led to, and the operation that comes next."""
        self.settle(session, previous)
        self._pending = describe(operation)

    def settle(self, session: Session, outcome: Outcome | None, error: str = "") -> None:
        now = states(session)
        if self._pending is not None:
            if outcome is None:
                said = error
            else:
                said = outcome.detail if outcome.status == "refused" else outcome.status
                said = f"skipped: {outcome.detail}" if outcome.status == "skipped" else said
            self._rows.append((self._pending, said, self._blocks(session, now)))
            self.steps.append({"operation": self._pending, "outcome": said, "blocks": now})
            self._pending = None
        self._before = now

    def _blocks(self, session: Session, now: list[dict[str, Any]]) -> str:
        changed = {row["block"] for row, old in zip(now, self._before, strict=True) if row != old}
        shown = now
        if len(now) > _WIDEST:
            shown = [row for row in now if row["block"] in changed][:_WIDEST]
        size = session.judge.policy.block_size
        return "\n".join(_cell(row, size, row["block"] in changed) for row in shown) or "[dim]nothing changed[/]"

    def finish(self, console: Console, violation: Violation | None, at: int) -> None:
        table = Table(title=self._title, title_justify="left", header_style="bold", show_lines=True, pad_edge=False)
        table.add_column("#", justify="right")
        table.add_column("operation", overflow="fold", max_width=44)
        table.add_column("outcome", overflow="fold", max_width=16)
        table.add_column("blocks after it: state×references, = published, slots, holders", overflow="fold")
        for number, (operation, outcome, blocks) in enumerate(self._rows, 1):
            if self._drain_from is not None and number > self._drain_from and violation is None:
                continue
            failing = violation is not None and number - 1 == at
            style = "[bold red]" if failing else ""
            table.add_row(str(number), style + escape(operation), style + escape(outcome), blocks)
        console.print(table)
