"""What holds of somebody else's kernels, and what not: every verdict on a stream of cases, and a table of them.

`python -m fuzz attention` stops at what is broken first. Kernels that were not made for the same bits break an axis in
many cases, and what one wants to know is which axes hold. So here each case is run once under watch, compared with the
oracle and along every axis that the kernels can be driven along, and each verdict is counted by itself. The first case
that breaks one is shrunk and written down; `python -m fuzz attention --kernels ... --case ...` runs it again.

    python -m fuzz.tools.survey --kernels vllm --cases 60 --seed survey --write docs/foreign-kernels.md

`--write` puts the tables of all surveys in `--out` between the markers of a page; the rest of it is written by hand.

Case n of a seed is the same on every machine. Engines send decodes another way, so every third case is one, and another
third has one beside what else it has.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from properties.attention.cases import Case
from properties.targets import UnknownTarget, load_kernels

from ..engines.attention import shrink
from ..engines.bench import case_of
from ..show.markdown_section import replace_section

if TYPE_CHECKING:
    from properties.attention.checks import Checker

__all__ = ["Row", "Survey", "page", "run_survey", "survey_case"]


@dataclass(slots=True)
class Row:
    """One verdict over all cases. broken: numbers of the cases; first: the message of the first; case: it, shrunk."""

    judged: int = 0
    broken: list[int] = field(default_factory=list)
    property: str = ""
    message: str = ""
    case: str = ""


@dataclass(slots=True)
class Survey:
    """Of one set of kernels. counts: see `properties.attention.checks.Counts`."""

    kernels: str
    name: str
    seed: str
    cases: int
    tiles: int
    watch: bool
    seconds: float = 0.0
    rows: dict[str, Row] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def survey_case(seed: str, number: int, axes: tuple[str, ...], tiles: int) -> Case:
    """Case `number` of a survey, with all `axes`. Of every three the last decodes; in the one before it, one sequence
    does, beside a prefill, and is the one that the axis "batch" runs alone. O(1)."""
    case = replace(case_of(seed, number, axes, tiles), axes=axes)
    if number % 3 == 2:
        return replace(case, sequences=tuple((context + 60, 1) for context, _ in case.sequences))
    if number % 3 == 1:
        (context, _), *rest = case.sequences
        sequences = ((context + 60, 1), *rest, (9, 3))
        return replace(case, sequences=sequences, seed=case.seed - case.seed % len(sequences))
    return case


def run_survey(
    kernels: str, seed: str, cases: int, tiles: int = 32, patience: float = 60.0, watch: bool = True
) -> Survey:
    """Survey `cases` cases, in this process. patience: seconds to shrink each first failure. watch: sanitize.

    Raises UnknownTarget. 1 to 10 s a case.
    """
    from properties.attention.interpret import prepare

    prepare()
    from properties.attention.checks import Checker
    from properties.attention.kernels import AXES

    checker = Checker(load_kernels(kernels)(), sanitize=watch)
    axes = tuple(axis for axis in AXES if axis in checker.kernels.axes)
    result = Survey(kernels, checker.kernels.name, seed, cases, tiles, watch, versions=_versions())
    result.rows = {what: Row() for what in ("run", "oracle", *axes)}
    began = time.monotonic()
    firsts: dict[str, Case] = {}
    for number in range(cases):
        case = survey_case(seed, number, axes, tiles)
        for what, violation in checker.survey(case).items():
            row = result.rows[what]
            row.judged += 1
            if violation is not None:
                row.broken.append(number)
                if what not in firsts:
                    firsts[what] = case
                    row.property, row.message = violation.id, violation.message
    result.counts = asdict(checker.counts)
    result.seconds = round(time.monotonic() - began, 1)
    for what, case in firsts.items():
        _shrink(checker, what, case, result.rows[what], time.monotonic() + patience)
    return result


def _shrink(checker: Checker, what: str, case: Case, row: Row, deadline: float) -> None:
    narrow = replace(case, axes=(what,) if what not in ("run", "oracle") else ())
    messages: dict[Case, str] = {}

    def fails(smaller: Case) -> bool:
        violation = checker.survey(smaller).get(what)
        if violation is None or violation.id != row.property:
            return False
        messages[smaller] = violation.message
        return True

    small, _ = shrink(narrow, fails, checker.kernels.limits, lambda: time.monotonic() > deadline)
    row.case, row.message = small.to_json(), messages.get(small, row.message)


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("torch", "triton", "numpy")}


# ---- the page --------------------------------------------------------------------------------------------------------


def page(surveys: list[Survey]) -> str:
    """The tables, in Markdown."""
    whats = ("run", "oracle", "schedule", "placement", "batch", "chunks", "padding", "poison", "repeat")
    lines = [
        "| kernels | cases | " + " | ".join(whats) + " |",
        "|---|---|" + "---|" * len(whats),
    ]
    for one in surveys:
        cells = []
        for what in whats:
            row = one.rows.get(what)
            if row is None or not row.judged:
                cells.append("")
            elif row.broken:
                cells.append(f"**{len(row.broken)} of {row.judged} broken**")
            else:
                cells.append(f"{row.judged} hold" + ("" if one.watch or what != "run" else ", unwatched"))
        lines.append(f"| {one.name} | {one.counts['cases']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| kernels | row-heads against the oracle | largest error, as a part of what is allowed | accesses watched |",
    ]
    lines += ["|---|---|---|---|"]
    for one in surveys:
        worst = ", ".join(f"{name} {part:.2f}" for name, part in sorted(one.counts["worst"].items()))
        lines.append(f"| {one.name} | {one.counts['row_heads']:,} | {worst} | {one.counts['accesses']:,} |")
    lines += [
        "",
        "Not checked, with the number of cases: features that were switched off, and cases that were skipped.",
        "",
    ]
    for one in surveys:
        off = _grouped(one.counts["off"])
        skipped = "; ".join(f"{reason} ({count})" for reason, count in sorted(one.counts["skipped"].items()))
        lines.append(f"- {one.name}: off {off or 'nothing'}. Skipped: {skipped or 'nothing'}.")
    lines += ["", "Commands, each with the versions it ran with:", "", "```"]
    for one in surveys:
        lines.append(
            f"python -m fuzz.tools.survey --kernels {one.kernels} --cases {one.cases} --seed {one.seed} "
            f"--tiles {one.tiles}"
            f"{'' if one.watch else ' --no-watch'}   # {one.seconds:.0f} s"
        )
    versions = sorted({", ".join(f"{name} {number}" for name, number in one.versions.items()) for one in surveys})
    lines += ["```", "", "; ".join(versions) + "."]
    return "\n".join(lines)


def _grouped(off: dict[str, int]) -> str:
    """`head_dim 16` and `head_dim 24` together."""
    fields: dict[str, list[tuple[str, int]]] = {}
    for what, count in sorted(off.items()):
        name, _, value = what.partition(" ")
        fields.setdefault(name, []).append((value, count))
    return "; ".join(
        f"{name.replace('_', ' ')} "
        + ", ".join(f"{value} ({count})" if value else f"({count})" for value, count in values)
        for name, values in fields.items()
    )


def _read(path: Path) -> Survey:
    data = json.loads(path.read_text(encoding="utf-8"))
    data["rows"] = {what: Row(**row) for what, row in data["rows"].items()}
    return Survey(**data)


def _file(kernels: str) -> str:
    return kernels.rpartition(".")[2].replace(":", "-") + ".json"


def main(
    kernels: Annotated[list[str] | None, typer.Option(help="As for `fuzz attention`; again for more than one.")] = None,
    cases: Annotated[int, typer.Option(min=1, help="How many.")] = 60,
    seed: Annotated[str, typer.Option(help="Of the stream of cases.")] = "survey",
    tiles: Annotated[int, typer.Option(min=4, help="Size of a case: tiles of its base run.")] = 32,
    patience: Annotated[float, typer.Option(help="Seconds to shrink the first case of each kind.")] = 60.0,
    watch: Annotated[bool, typer.Option(help="Sanitize every access.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for the surveys, as JSON.")] = Path("fuzz-out/survey"),
    write: Annotated[Path | None, typer.Option(help="A page to put the tables of all surveys in --out into.")] = None,
) -> None:
    """Survey kernels: what holds of them, case by case, and what does not."""
    out.mkdir(parents=True, exist_ok=True)
    for name in kernels or ():
        try:
            one = run_survey(name, seed, cases, tiles, patience, watch)
        except UnknownTarget as error:
            raise typer.BadParameter(str(error)) from None
        (out / _file(name)).write_text(json.dumps(asdict(one), indent=2) + "\n", encoding="utf-8")
        typer.echo(f"{one.name}: {one.counts['cases']} cases in {one.seconds:.0f} s")
        for what, row in one.rows.items():
            typer.echo(f"  {what:10} {len(row.broken):4} of {row.judged} broken  {row.message}")
            if row.case:
                typer.echo(f"             {row.case}")
    if write is not None:
        surveys = [_read(path) for path in sorted(out.glob("*.json"))]
        try:
            replace_section(write, "survey", f"\n{page(surveys)}\n")
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


if __name__ == "__main__":
    typer.run(main)
