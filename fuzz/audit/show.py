"""An audit for people: tables on a terminal, one bug in detail, a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from reference import PROPERTIES

from ..runs.counterexample import read
from ..show.page import environment
from ..show.timeline import describe
from ..zoo import Bug, diff
from .audit import Audit, Row

__all__ = ["detail", "list_zoo", "markdown", "render", "tables"]


def by_class(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the class of their bugs, in order."""
    classes: dict[str, list[Row]] = {}
    for row in rows:
        classes.setdefault(row.bug.kind, []).append(row)
    return classes


def list_zoo(bugs: Sequence[Bug], console: Console) -> None:
    """What there is to plant."""
    table = Table(box=None, pad_edge=False)
    for name in ("id", "class", "bug", "reported as", "expected"):
        table.add_column(name)
    for bug in bugs:
        table.add_row(bug.id, bug.kind, escape(bug.title), escape(bug.reference or "-"), bug.expected)
    console.print(table)
    console.print(f"{len(bugs)} bugs")


def tables(result: Audit, console: Console) -> None:
    """A table for each class, the totals, the survivors."""
    numbers = ("trials", "expected", "ops", "secs", "length", "known")
    for kind, rows in by_class(result.rows).items():
        table = Table(title=kind, title_justify="left", box=None, pad_edge=False)
        for name, width in (("bug", 6), ("", max(10, console.width - 73)), ("killed by", 12)):
            table.add_column(name, no_wrap=True, min_width=width, max_width=width)
        for name in numbers:
            table.add_column(name, justify="right", no_wrap=True, min_width=max(len(name), 5))
        for row in rows:
            table.add_row(
                row.bug.id,
                escape(row.bug.title),
                f"[green]{row.by}[/]" if row.killed else f"[bold red]{row.by or 'survives'}[/]",
                f"{len(row.found)}/{len(row.trials)}",
                f"{row.as_expected}/{len(row.trials)}",
                f"{row.operations:,.0f}",
                f"{row.seconds:.2f}",
                _span(row.lengths),
                str(row.minimum or ""),
            )
        console.print(table)
    for line in _totals(result):
        console.print(line, soft_wrap=True)
    for row in result.survivors:
        console.print(f"[bold red]survives:[/] {row.bug.id} {escape(row.bug.title)}", soft_wrap=True)


def _totals(result: Audit) -> list[str]:
    figures = result.figures()
    lines = [
        f"{figures['bugs_killed']} of {figures['bugs']} bugs killed, "
        f"{figures['trials_found']} of {figures['trials']} trials; median {figures['operations_median']} operations, "
        f"{figures['seconds_median']} s, longest {figures['seconds_longest']} s; by the engine that is quicker for a "
        f"bug, median {figures['seconds_quicker_engine_median']} s, "
        f"longest {figures['seconds_quicker_engine_longest']} s",
        f"{_percent(figures['expected_property_share'])} of the kills by the expected property; "
        f"{_percent(figures['shrunk_share'])} of {figures['shrunk_measured']} shrunk to the known minimum or one more",
    ]
    if figures["bugs_only_replayed"]:
        lines.append(
            f"of those, {figures['bugs_only_replayed']} only by replaying its regression: it takes hours to find"
        )
    if result.plan.canary:
        lines.append(f"canary: reported by {figures['canary_reported']} of {figures['canary_seeds']} short runs")
    return lines


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"


def _span(lengths: Sequence[int]) -> str:
    if not lengths:
        return ""
    return f"{lengths[0]}" if lengths[0] == lengths[-1] else f"{lengths[0]}-{lengths[-1]}"


def detail(row: Row, out: Path, console: Console) -> None:
    """One bug: what it is, its patch, its shortest counterexample and the command that replays it."""
    bug = row.bug
    console.print(
        f"\n[bold]{bug.id}[/]  {escape(bug.title)}  ({escape(bug.reference or 'thought up here')})", soft_wrap=True
    )
    console.print(f"  {escape(bug.breaks)}", soft_wrap=True)
    console.print(f"  ought to be killed by {bug.expected}; may be by {', '.join(bug.properties)}")
    console.print(Syntax(diff(bug), "diff", background_color="default"))
    best = row.best
    if best is None:
        return
    path = out / "counterexamples" / best.file
    if best.engine == "cases":
        console.print(f"  python -m fuzz attention --kernels fuzz.zoo:{bug.id} --case {path}", soft_wrap=True)
        return
    stored = read(path)
    console.print(f"[bold red]{stored.property_id}[/]: {escape(stored.message)}", soft_wrap=True)
    console.print(f"  {stored.configuration}", style="dim")
    for number, operation in enumerate(stored.operations):
        mark = "[bold red]" if number == stored.at else ""
        console.print(f"  {mark}{number + 1:>2}  {escape(describe(operation))}", soft_wrap=True)
    console.print(f"  python -m fuzz replay {path}", style="bold", soft_wrap=True)


def markdown(result: Audit, path: Path) -> Path:
    """Write the table as Markdown and return its path. No times of single hunts: they are the machine's."""
    lines = ["# The audit", "", f"`python -m fuzz audit{_options(result)}`", ""]
    lines += [f"- {line}" for line in _totals(result)]
    for kind, rows in by_class(result.rows).items():
        lines += ["", f"## {kind[0].upper()}{kind[1:]}", ""]
        lines += ["| bug | what it is | reported as | killed by | trials | expected | operations | length | known |"]
        lines += ["|---|---|---|---|---|---|---|---|---|"]
        for row in rows:
            bug, trials = row.bug, len(row.trials)
            by = row.by or "survives"
            lines.append(
                f"| {bug.id} | {bug.title} | {bug.reference or 'here'} | "
                f"{by if row.killed else f'**{by}**'} | {len(row.found)}/{trials} | {row.as_expected}/{trials} | "
                f"{row.operations:,.0f} | {_span(row.lengths)} | {row.minimum or ''} |"
            )
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def _options(result: Audit) -> str:
    plan = result.plan
    engine = f" --engine {plan.engines[0]}" if len(plan.engines) == 1 else ""
    kernels = " --kernels" if all(row.bug.by != "walk" for row in result.rows) else ""
    return f"{kernels}{engine} --seeds {len(plan.seeds)}{' --outside' if plan.outside else ''}"


def render(result: Audit, path: Path) -> Path:
    """Write the page and return its path."""
    page = (
        environment()
        .get_template("audit.html")
        .render(
            data=result.to_json(),
            totals=_totals(result),
            classes={
                kind: [
                    {
                        "bug": row.bug,
                        "row": row,
                        "lengths": _span(row.lengths),
                        "diff": diff(row.bug).splitlines(),
                        "lines": _counterexample(row, result.plan.out),
                    }
                    for row in rows
                ]
                for kind, rows in by_class(result.rows).items()
            },
            statements={name: (kind.__doc__ or "").strip() for name, kind in PROPERTIES.items()},
        )
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def _counterexample(row: Row, out: Path) -> list[str]:
    best = row.best
    if best is None or best.engine == "cases":
        return []
    stored = read(out / "counterexamples" / best.file)
    lines = [f"{number + 1:>2}  {describe(operation)}" for number, operation in enumerate(stored.operations)]
    return [str(stored.configuration), *lines, f"{stored.property_id}: {stored.message}"]
