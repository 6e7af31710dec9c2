"""The comparison: cores by properties, each core in a process of its own, and their speed side by side.

    python -m fuzz compare kvcore vllm --budget 5m --speed

Each core gets the same campaign (walk and Hypothesis, one seed) from `python -m fuzz run`, whose summary and findings
stay under the output folder, so that a cell can be followed to its counterexample. What was not executed is never a
pass. Cores that are not installed have a column that says so.

How the tables look on a page is in templates/compare.html.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reference import PROPERTIES

from ..runs.counterexample import read
from ..runs.foreign import in_markdown
from ..runs.processes import ourselves
from ..runs.values import Counterexample
from ..show.page import environment

__all__ = ["Cell", "Column", "Comparison", "compare", "keep", "markdown", "render"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One core and one property. verdict: "pass", "violated", "not supported" (the core has no such thing, or another
    policy), "not checked" (nothing here executed it). why: the reason, or the violation's message. file: the
    counterexample's path under the output folder."""

    verdict: str
    why: str = ""
    file: str = ""
    operations: int = 0


@dataclass(slots=True)
class Column:
    """One core. operations: checked ones. missing: why it could not be run; then there are no cells."""

    target: str
    name: str
    version: str = ""
    operations: int = 0
    seconds: float = 0.0
    rate: int = 0
    cells: dict[str, Cell] = field(default_factory=dict)
    missing: str = ""
    speed: dict[str, Any] | None = None


@dataclass(slots=True)
class Comparison:
    """The whole, with what it was made by."""

    budget: str
    seed: str
    columns: list[Column] = field(default_factory=list)

    @property
    def violated(self) -> bool:
        return any(cell.verdict == "violated" for column in self.columns for cell in column.cells.values())

    @property
    def executed(self) -> bool:
        return any(column.operations for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "budget": self.budget,
            "seed": self.seed,
            "cores": [
                {
                    "target": column.target,
                    "version": column.version,
                    "operations": column.operations,
                    "seconds": column.seconds,
                    "operations_per_second": column.rate,
                    "missing": column.missing,
                    "speed": column.speed,
                    "properties": {name: asdict(cell) for name, cell in column.cells.items()},
                }
                for column in self.columns
            ],
        }


def compare(
    targets: Sequence[str],
    out: Path,
    *,
    budget: str,
    seed: str,
    speed: bool,
    say: Callable[[str], None],
    rounds: int = 5,
) -> Comparison:
    """Run every target for `budget` and fill the table. Their output goes to `out`, a folder a target, with a log.

    O(targets * budget); a target's failure is a cell or a column, never the end of the others."""
    result = Comparison(budget, seed)
    for target in targets:
        folder = out / _slug(target)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").unlink(missing_ok=True)  # that of an earlier comparison would count for this one
        say(f"{target}: walk and hypothesis for {budget}, log in {folder / 'log.txt'}")
        command = [*ourselves(), "run", "--target", target, "--engine", "walk", "--engine", "hypothesis"]
        command += ["--budget", budget, "--seed", seed, "--max-findings", str(len(PROPERTIES)), "--out", str(folder)]
        with (folder / "log.txt").open("w", encoding="utf-8") as log:
            ended = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
        column = _column(target, folder, ended.returncode)
        result.columns.append(column)
        bad = sum(cell.verdict == "violated" for cell in column.cells.values())
        say(f"  {column.missing or f'{column.operations:,} checked operations, {bad} properties violated'}")
    if speed:
        _speeds(result, out, rounds, say)
    (out / "compare.json").write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    return result


def _slug(target: str) -> str:
    return re.sub(r"\W+", "-", target).strip("-")


def _column(target: str, folder: Path, status: int) -> Column:
    column = Column(target, target.rpartition(".")[2])
    path = folder / "summary.json"
    if status in (2, 3) or not path.is_file():
        log = [line for line in (folder / "log.txt").read_text(encoding="utf-8").splitlines() if line.strip()]
        column.missing = f"not run (exit status {status}): {log[0] if log else 'it said nothing'}"
        return column
    summary = json.loads(path.read_text(encoding="utf-8"))
    column.operations = summary["operations"]
    column.seconds = summary["seconds"]
    walk = summary["engines"].get("walk", {})
    column.rate = walk.get("operations_per_second") or 0
    column.version = next(
        (f"{name} {version}" for name, version in summary["versions"].items() if _is_of(name, target)), ""
    )
    found = _found(summary, folder)
    for name in PROPERTIES:
        why = summary["properties"].get(name, "it was not asked about")
        if name in found:
            file, counterexample = found[name]
            where = (Path(folder.name) / "findings" / file).as_posix()
            column.cells[name] = Cell("violated", counterexample.message, where, len(counterexample.operations))
        elif why == "checked":
            column.cells[name] = Cell("pass" if column.operations else "not checked", operations=column.operations)
        else:
            column.cells[name] = Cell("not supported" if why.startswith("the target") else "not checked", why)
    return column


def _found(summary: dict[str, Any], folder: Path) -> dict[str, tuple[str, Counterexample]]:
    """The first counterexample of each property, by its file: a finding's own, or of another way to meet it."""
    files = [
        file
        for finding in summary["findings"]
        for file in (finding["file"], *(variant["file"] for variant in finding["variants"]))
    ]
    found: dict[str, tuple[str, Counterexample]] = {}
    for file in files:
        counterexample = read(folder / "findings" / file)
        found.setdefault(str(counterexample.property_id), (file, counterexample))
    return found


def _is_of(package: str, target: str) -> bool:
    stem = target.rpartition(".")[2].partition(":")[0]
    return package.replace("-", "_").startswith(stem)


def _speeds(result: Comparison, out: Path, rounds: int, say: Callable[[str], None]) -> None:
    """Of the targets that the benchmark knows, all in one process, in turn."""
    from fuzz.benchmarks.cores import CORES

    present = [column for column in result.columns if not column.missing and column.target in CORES]
    if len(present) < 2:
        say("speed: fewer than two of the cores are installed and known to the benchmark; not compared")
        return
    path = out / "speed.json"
    names = [column.target for column in present]
    say(f"speed: {', '.join(names)}, {rounds} rounds in turn")
    ended = subprocess.run(
        [*ourselves("fuzz.benchmarks.cores"), *names, "--rounds", str(rounds), "--json", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        say(f"speed: the benchmark failed: {(ended.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
        return
    speeds = json.loads(path.read_text(encoding="utf-8"))
    for column in present:
        column.speed = speeds[column.target]
        say(f"  {column.target}: {column.speed['ratio']} times {names[0]}'s time a request")


_MARKS = {"pass": "pass", "violated": "**violated**", "not supported": "–", "not checked": "(not checked)"}


def keep(result: Comparison, out: Path, folder: Path) -> dict[str, Path]:
    """Copy each violated cell's counterexample to `folder`, as CORE-PROPERTY.json; the copies, by the cell's file."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {}
    for column in result.columns:
        for name, cell in column.cells.items():
            if cell.file:
                kept[cell.file] = folder / f"{_slug(column.name)}-{name}.json"
                shutil.copyfile(out / cell.file, kept[cell.file])
    return kept


def markdown(result: Comparison, links: Callable[[str], str] = lambda file: "") -> str:
    """The table in Markdown: a row a property, a column a core. links: where a violated cell's file is, or ""."""
    head = ["property", *(in_markdown(column.name) for column in result.columns)]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in PROPERTIES:
        row = [name]
        for column in result.columns:
            cell = column.cells.get(name)
            mark = _MARKS[cell.verdict] if cell is not None else "not run"
            link = links(cell.file) if cell is not None and cell.file else ""
            row.append(f"[{mark}]({link})" if link else mark)
        lines.append(f"| {' | '.join(row)} |")
    lines.append(f"| checked operations | {' | '.join(f'{column.operations:,}' for column in result.columns)} |")
    lines.append(f"| of the walk, a second | {' | '.join(f'{column.rate:,}' for column in result.columns)} |")
    if any(column.speed for column in result.columns):
        times = (f"{column.speed['ratio']:.1f}" if column.speed else "" for column in result.columns)
        lines.append(f"| time a request, by the first one's | {' | '.join(times)} |")
    lines.append(f"| version | {' | '.join(column.version or 'this checkout' for column in result.columns)} |")
    command = f"python -m fuzz compare {' '.join(column.target for column in result.columns)}"
    speed = " --speed" if any(column.speed for column in result.columns) else ""
    lines += ["", f"`{command} --budget {result.budget} --seed {result.seed}{speed}`"]
    lines.append("– : the core has no such thing, or has decided otherwise (its policy).")
    lines += [
        f"\n{in_markdown(column.name)}: {in_markdown(column.missing)}" for column in result.columns if column.missing
    ]
    return "\n".join(lines)


def render(result: Comparison, out: Path) -> Path:
    """Write the page, with links to findings beside it; returns its path."""
    properties: Iterable[tuple[str, str]] = ((name, (kind.__doc__ or "").strip()) for name, kind in PROPERTIES.items())
    page = environment().get_template("compare.html").render(result=result, properties=list(properties))
    path = out / "compare.html"
    path.write_text(page, encoding="utf-8")
    return path
