"""What is done with a campaign's folder: `accept`, `promote`, `tidy` and `report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..campaign import ci
from ..campaign.history import BadHistory, History, bars
from ..campaign.summary import SCHEMA, BadSummary, read_summary
from ..findings.baseline import BadBaseline, Baseline
from ..findings.keep import Keep
from ..findings.statuses import FIXED, KNOWN, NEW, REGRESSED
from ..findings.store import Findings, NotAFinding, promote
from ..runs.quantities import bytes_of, seconds_of
from ..runs.status import CLEAN, NOTHING
from ..show.page import render_history
from .common import console, now, usage
from .out import take

__all__ = ["accept", "promoted", "report", "tidy"]

OutOption = Annotated[Path, typer.Option(help="The campaigns' folder.")]
BaselineOption = Annotated[
    Path | None, typer.Option(help="The file of known findings; baseline.json in --out without.")
]


def _summary(out: Path) -> dict[str, Any]:
    try:
        return read_summary(out / "summary.json")
    except BadSummary as error:
        usage(str(error))


def accept(
    context: typer.Context,
    out: OutOption = Path("fuzz-out"),
    baseline: BaselineOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this signature's id; may be repeated.")] = None,
) -> None:
    """Accept the last campaign's findings as the baseline: from now on they are known, and what no longer fails, fixed.

    Examples:

      python -m fuzz accept

      python -m fuzz accept --out night --baseline fuzz/baseline.json --only 1a2b3c4d
    """
    summary = _summary(out)
    take(context, out)
    if summary["schema"] != SCHEMA:
        usage(f"{out}: of an older version, whose findings have no directories; run the campaign again to accept them")
    path = baseline or out / "baseline.json"
    try:
        known = Baseline.load(path)
    except BadBaseline as error:
        usage(str(error))
    findings = Findings(out / "findings", Keep(), now())
    ids = [entry["signature"]["id"] for entry in summary["findings"]]
    if unknown := [id for id in only or () if id not in ids]:
        usage(f"--only: the last campaign has no finding {', '.join(unknown)}; it has {', '.join(ids) or 'none'}")
    accepted = [findings.by_id[id] for id in ids if id in findings.by_id and (not only or id in only)]
    for finding in accepted:
        known.accept(finding.symptoms, finding.counterexample, finding.known_as)
        finding.status = KNOWN
        findings.write(finding)
    fixed = [] if only else summary["fixed"]
    gone = [id for id, entry in known.entries.items() if str(entry.signature) in fixed]
    known.note_fixed(gone)
    known.write(path)
    console.print(f"{len(accepted)} accepted as known, {len(gone)} noted as fixed: {path}", soft_wrap=True)


def promoted(
    finding: Annotated[Path, typer.Argument(help="A finding's directory, or a counterexample file.")],
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder of regressions. In a checkout of this project, fuzz/regressions, which `make test` replays; "
            "elsewhere regressions, with a pytest file for each."
        ),
    ] = None,
    target: Annotated[str, typer.Option(help="The target that must stay clean, if not the one it was found on.")] = "",
    name: Annotated[str, typer.Option(help="What to call the file; by default property and signature.")] = "",
    note: Annotated[str, typer.Option(help="A sentence to keep in the file: what was wrong.")] = "",
) -> None:
    """Make a finding a regression test: copy its counterexample to a folder that tests replay.

    Examples:

      python -m fuzz promote fuzz-out/findings/OWNERSHIP-1a2b3c4d --name stale_mapping --note "fixed in 3f2a"

      python -m fuzz promote OWNERSHIP-1.json --to tests/regressions
    """
    replayed = Path("fuzz", "tests", "test_regressions.py").is_file()  # a checkout, whose tests replay the folder
    to = to or Path("fuzz/regressions" if replayed else "regressions")
    ours = replayed and to.absolute() == Path("fuzz/regressions").absolute()
    try:
        path, test = promote(finding, to, target, name, note, with_test=not ours)
    except (NotAFinding, OSError) as error:
        usage(str(error))
    by = "make test" if test is None else f"pytest {test}"
    console.print(f"{path}: replayed by `{by}`, and red until the bug is fixed", soft_wrap=True)


def tidy(
    context: typer.Context,
    out: OutOption = Path("fuzz-out"),
    keep: Annotated[str, typer.Option(help="Age from which a finding that is known or fixed goes: 30d, 12h.")] = "30d",
    disk: Annotated[str, typer.Option(help="Bytes that the findings may take: 500MiB, 2GiB.")] = "500MiB",
) -> None:
    """Delete what is old or too much: findings that are fixed or known, the longest unseen
    first; never new ones.

    Examples:

      python -m fuzz tidy --keep 14d --disk 100MiB
    """
    try:
        kept = Keep(days=seconds_of(keep) / 86400, disk=bytes_of(disk))
    except (ValueError, OverflowError):
        usage(f"--keep {keep!r} --disk {disk!r}: give a time like 30d or 12h, and a size like 500MiB")
    take(context, out)
    findings = Findings(out / "findings", kept, now())
    gone = findings.tidy()
    for line in (*findings.left, *gone):
        console.print(escape(line), soft_wrap=True)
    console.print(f"{len(gone)} directories deleted")


def report(
    history: Annotated[bool, typer.Option("--history", help="Rates and findings over all campaigns.")] = False,
    out: OutOption = Path("fuzz-out"),
    last: Annotated[int, typer.Option(min=0, help="Only the last so many campaigns; 0: all.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="With --history: write it as a page to this file.")] = None,
) -> None:
    """Show the last campaign again, or, with --history, rates and findings over time.

    Examples:

      python -m fuzz report --out night

      python -m fuzz report --history --last 90

      python -m fuzz report --history --json

      python -m fuzz report --history --html history.html
    """
    if html is not None and not history:
        usage("--html is for --history; the last campaign has its page, report.html, in its folder")
    if not history:
        summary = _summary(out)
        print(json.dumps(summary, indent=2) if as_json else ci.markdown(summary))
        raise typer.Exit(CLEAN)
    path = out / "history.sqlite"
    if not path.exists():
        usage(f"{path}: there is no history; campaigns (`python -m fuzz run`) write it")
    try:
        rows = History(path).campaigns(last)
    except (OSError, BadHistory) as error:
        usage(str(error))
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
        raise typer.Exit(CLEAN if rows else NOTHING)
    if html is not None:
        try:
            console.print(f"history: {render_history([row.to_json() for row in rows], html)}", soft_wrap=True)
        except OSError as error:
            usage(f"{html}: cannot be written: {error.strerror}")
        raise typer.Exit(CLEAN if rows else NOTHING)
    table = Table(title="Campaigns", title_justify="left", box=None, pad_edge=False)
    for name in ("began", "name", "seed", "status", "seconds", "workers", "busy", "operations", "a second", "findings"):
        table.add_column(name, justify="right" if name in ("seconds", "workers", "busy", "operations") else "left")
    for row in rows:
        counts = {
            status: sum(one["status"] == status for one in row.findings) for status in (NEW, REGRESSED, KNOWN, FIXED)
        }
        found = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "-"
        status = "killed or running" if row.status is None else str(row.status)
        table.add_row(
            row.began[:16].replace("T", " "),
            escape(row.name),
            escape(row.seed),
            status,
            f"{row.seconds:.0f}",
            str(row.workers),
            f"{row.busy:.0%}",
            f"{row.operations:,}",
            f"{row.rate:,.0f}",
            found,
        )
    console.print(table)
    _curves(
        [
            ("operations a second", [row.rate for row in rows]),
            ("findings", [sum(one["status"] != FIXED for one in row.findings) for row in rows]),
        ]
    )
    for engine in sorted({engine for row in rows for engine in row.rates}):
        rates = [row.rates.get(engine, (0, 0.0)) for row in rows]
        _curves([(f"{engine}, a second and worker", [done / spent if spent else 0.0 for done, spent in rates])])
    raise typer.Exit(CLEAN if rows else NOTHING)


def _curves(curves: list[tuple[str, list[float]]]) -> None:
    for name, values in curves:
        console.print(f"{name:<34} {bars(values)}  last {values[-1] if values else 0:,.0f}", soft_wrap=True)
