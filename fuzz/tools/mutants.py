"""Mutation testing: which small changes of the code do the tests not notice, and is each of them known and explained?

    python -m fuzz.tools.mutants run          # mutmut on both suites, in build/mutants; goes on where it was stopped
    python -m fuzz.tools.mutants report       # the results against docs/mutants.toml; with --write into docs/mutants.md
                                              # and docs/generated/mutants.json

`SUITES` names what is mutated and by which tests it has to be killed. Each suite has a folder of its own, a copy of the
rooms in which only that suite's files are mutated: planting faults in kvcore, which the tests of the reference do,
needs kvcore's source as it is.

A survivor is identified by its module, its function and what it changes (`changes.py`), since mutmut's numbers shift
with every edit. Where a function has moved to another module, or a local variable has another name, the survivor is
still known, and it is said.

    python -m fuzz.tools.mutants tidy         # entries whose function has moved are corrected; those whose code is gone
                                              # are marked, until the next run tells what became of them
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from .changes import change, functions, loosely
from .reviews import Key, Review, entry, module_of, place, read_reviews, tidied, write_reviews

__all__ = ["SUITES", "Mutant", "Review", "Suite", "compare", "is_message", "read_results", "read_reviews", "stage"]

ROOT = Path(__file__).parents[2]
ROOMS = ("kvcore", "reference", "properties", "fuzz")
BUILD = ROOT / "build" / "mutants"


@dataclass(frozen=True)
class Suite:
    """`files` of `room` are mutated; `tests` must kill the mutants, in this order, in `seconds` at most.

    target: the least score, of the mutants that are not equivalent, in percent.
    """

    name: str
    room: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    target: float
    seconds: float = 15.0


SHORT_WALK = "fuzz/tests/test_seeded_walk.py::test_a_short_walk_is_clean"
LONGER_WALK = "fuzz/tests/test_seeded_walk.py::test_a_longer_walk_is_clean"
SUITES = {
    "allocator": Suite(
        "allocator",
        "kvcore",
        (
            "config.py",
            "identity.py",
            "pool.py",
            "prefix.py",
            "sequence.py",
            "manager.py",
            "batch.py",
            "statistics.py",
            "invariants.py",
            "errors.py",
        ),
        (
            SHORT_WALK,
            "fuzz/tests/test_regressions.py",
            "kvcore/tests/test_manager.py",
            "kvcore/tests/test_identity.py",
            "kvcore/tests/test_pool.py",
            "kvcore/tests/test_prefix.py",
            "kvcore/tests/test_bad_input.py",
            "kvcore/tests/test_batch.py",
            "kvcore/tests/test_invariants.py",
            "kvcore/tests/test_lesson.py",
            LONGER_WALK,
        ),
        95.0,
    ),
    "reference": Suite(
        "reference",
        "reference",
        (
            "judge.py",
            "due.py",
            "sequence.py",
            "admission.py",
            "whole_request.py",
            "by_step.py",
            "allocation.py",
            "hits.py",
            "groups.py",
            "publication.py",
            "release.py",
            "rollback.py",
            "stream.py",
            "batch.py",
            "blocks.py",
            "slots.py",
            "histories.py",
            "predictor.py",
            "verdicts.py",
            "policy.py",
            "attention.py",
        ),
        (
            "reference/tests/test_accusations.py",
            "reference/tests/test_judge.py",
            "reference/tests/test_batch.py",
            "reference/tests/test_events.py",
            "reference/tests/test_steps.py",
            "reference/tests/test_by_step.py",
            "reference/tests/test_step_limits.py",
            "reference/tests/test_clone.py",
            "reference/tests/test_by_request.py",
            "reference/tests/test_window.py",
            "reference/tests/test_drafts.py",
            "reference/tests/test_policy.py",
            "reference/tests/test_slots.py",
            "reference/tests/test_histories.py",
            "reference/tests/test_predictor.py",
            "reference/tests/test_verdicts.py",
            "reference/tests/test_attention.py",
            SHORT_WALK,
            "fuzz/tests/test_regressions.py",
            "fuzz/tests/test_accusations.py",
            LONGER_WALK,
        ),
        90.0,
    ),
}

_CONFIGURATION = """\
[tool.pytest.ini_options]
# Two plugins collect garbage again and again, which is half the time of a mutant that is killed at once.
addopts = [
  "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:threadexception",
  "-p", "fuzz.tools.mutants",
]
filterwarnings = ["error"]

[tool.mutmut]
source_paths = ["{room}"]
only_mutate = {files}
also_copy = {also}
pytest_add_cli_args_test_selection = {tests}
# A mutant that loops is ended soon after its tests would be done. Four seconds more than they should take, since on a
# busy machine a survivor that is ended too early would be counted as killed.
timeout_constant = 4.0
timeout_multiplier = 3.0
track_dependencies = false
use_git_change_detection = false
"""


def stage(suite: Suite, folder: Path, root: Path = ROOT) -> None:
    """Bring `folder` up to date with the sources: only what has changed is touched, so that old results stand.

    When a test of the suite or other code that is not mutated has changed, the survivors are to be tried again.
    """
    wanted = {"conftest.py": root / "conftest.py"}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md":
                wanted[path.relative_to(root).as_posix()] = path
    mutated = [f"{suite.room}/{file}" for file in suite.files]
    digest = hashlib.sha256(json.dumps(suite.tests).encode())
    for name, path in wanted.items():
        target = folder / name
        content = path.read_bytes()
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            os.utime(target)  # newer than what was made of the old one
        if name not in mutated and not name.startswith("fuzz/tools/") and _matters(Path(name), suite):
            digest.update(f"{name}\0".encode() + content)
    for path in [*folder.glob("*/**/*.py")]:
        if path.relative_to(folder).parts[0] in ROOMS and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
    (folder / "pyproject.toml").write_text(
        _CONFIGURATION.format(
            room=suite.room,
            files=json.dumps(mutated),
            also=json.dumps([room for room in ROOMS if room != suite.room] + ["conftest.py"]),
            tests=json.dumps(suite.tests),
        ),
        encoding="utf-8",
    )
    mark = folder / "suite.sha256"
    if not mark.exists() or mark.read_text() != digest.hexdigest():
        _forget_survivors(folder / "mutants", mutated)
        mark.write_text(digest.hexdigest())


def _matters(path: Path, suite: Suite) -> bool:
    """Whether the file can change a result of the suite: no test that is not one of its own does."""
    tests = {Path(test.partition("::")[0]) for test in suite.tests}
    if "tests" not in path.parts or path in tests:
        return True
    return not path.name.startswith("test_") and any(test.parent == path.parent for test in tests)


def _forget_survivors(folder: Path, files: Iterable[str]) -> None:
    (folder / "mutmut-stats.json").unlink(missing_ok=True)
    for file in files:
        meta = folder / f"{file}.meta"
        if meta.exists():
            data = json.loads(meta.read_text(encoding="utf-8"))
            codes = data["exit_code_by_key"]
            for name, code in codes.items():
                if _STATUS.get(code) != "killed":
                    codes[name] = None
            meta.write_text(json.dumps(data, indent=4), encoding="utf-8")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """The suite's tests in the suite's order; mutmut gives them in none.

    Which suite it is nobody says here, so places are counted from the short walk, which all of them have.
    pytest calls this where `-p fuzz.tools.mutants` names this module, which is in the suites' own configuration.
    """
    order: dict[str, int] = {}
    for suite in SUITES.values():
        for number, test in enumerate(suite.tests, -suite.tests.index(SHORT_WALK)):
            order[test] = max(number, order.get(test, number))

    def place(item: Any) -> int:
        function = item.nodeid.partition("[")[0]
        return order.get(function, order.get(function.partition("::")[0], len(order)))

    items.sort(key=place)


# ---- results ---------------------------------------------------------------------------------------------------------

_STATUS: dict[int | None, str] = {
    1: "killed",
    3: "killed",  # pytest itself failed
    0: "survived",
    5: "survived",  # no test
    33: "survived",  # no test calls the function
    None: "left",
    24: "timeout",
    -24: "timeout",
    152: "timeout",
    -9: "timeout",
    36: "timeout",
}


@dataclass(frozen=True)
class Mutant:
    """One mutant. change: see `changes.change`. message: nothing changes but the text of an error."""

    name: str
    file: str
    function: str
    status: str
    seconds: float
    change: str = ""
    message: bool = False

    @property
    def module(self) -> str:
        return module_of(self.file)

    @property
    def key(self) -> Key:
        return self.module, self.function, self.change


def read_results(suite: Suite, folder: Path) -> list[Mutant]:
    """What mutmut has found out so far."""
    mutants = []
    for file in suite.files:
        path = f"{suite.room}/{file}"
        meta = folder / "mutants" / f"{path}.meta"
        if not meta.exists():
            continue
        data = json.loads(meta.read_text(encoding="utf-8"))
        spans = json.loads((folder / "mutants" / f"{path}.spans").read_text(encoding="utf-8"))["spans"]
        lines = (folder / "mutants" / path).read_text(encoding="utf-8").splitlines()

        for name, code in data["exit_code_by_key"].items():
            mangled = name.rpartition(".")[2]
            function = mangled.partition("__mutmut_")[0]
            shown = function[2:] if function.startswith("x_") else ".".join(function.split("ǁ")[1:])
            texts = []
            for version in (f"{function}__mutmut_orig", mangled):
                first, last = spans[version]
                texts.append("\n".join(lines[first - 1 : last]).replace(version, shown.rpartition(".")[2]))
            status = _STATUS.get(code, "killed")
            mutants.append(
                Mutant(
                    name,
                    path,
                    shown,
                    status,
                    data["durations_by_key"].get(name) or 0.0,
                    change(*texts),
                    is_message(*texts),
                )
            )
    return mutants


_MESSAGE_FROM = {"_require": 2, "accuse": 1, "_refuse": 2, "ValueError": 0}
"""Calls that take an error's text, and from which argument on. So do exceptions of kvcore, by their names."""


class _Blank(ast.NodeTransformer):
    """Replaces the text of errors, so that what is left can be compared."""

    def __init__(self, errors: frozenset[str]) -> None:
        self.errors = errors

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = _MESSAGE_FROM.get(called, 0 if called in self.errors else len(node.args))
        for number in range(first, len(node.args)):
            value = node.args[number]
            if isinstance(value, ast.JoinedStr) or (
                isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, str))
            ):
                node.args[number] = ast.Constant("message")
        return node


def is_message(original: str, mutated: str) -> bool:
    """Whether two versions of a function differ in nothing but the text of an error."""
    import textwrap

    blank = _Blank(_errors())
    trees = [ast.dump(blank.visit(ast.parse(textwrap.dedent(text)))) for text in (original, mutated)]
    return trees[0] == trees[1]


def _errors() -> frozenset[str]:
    tree = ast.parse((ROOT / "kvcore" / "errors.py").read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef))


# ---- held against what is known --------------------------------------------------------------------------------------


def sources_of(suite: Suite, root: Path = ROOT) -> dict[tuple[str, str], str]:
    """The source of every function that the suite mutates."""
    return {
        (module_of(f"{suite.room}/{file}"), function): source
        for file in suite.files
        for function, source in functions(root / suite.room / file).items()
    }


@dataclass
class Row:
    """Counts of one file, or of all."""

    mutants: int = 0
    killed: int = 0
    timeout: int = 0
    equivalent: int = 0
    message: int = 0
    missed: int = 0
    unreviewed: int = 0
    left: int = 0

    def add(self, other: Row) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def score(self) -> float:
        """Killed, of all, in percent. What is not tried yet counts as a survivor."""
        return _percent(self.killed + self.timeout, self.mutants)

    @property
    def strict(self) -> float:
        """Killed, of those that are not known to be equivalent. A changed message is not: it counts as a survivor."""
        return _percent(self.killed + self.timeout, self.mutants - self.equivalent)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


@dataclass
class Comparison:
    """rows: by file. unreviewed: survivors that nobody has explained. gone: what is explained and no survivor matches,
    by module, function and change. moved: survivors that are explained under another module, function or name."""

    rows: dict[str, Row] = field(default_factory=dict)
    total: Row = field(default_factory=Row)
    unreviewed: list[Mutant] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)
    moved: list[tuple[Key, Mutant]] = field(default_factory=list)


def compare(mutants: Sequence[Mutant], reviews: Sequence[Review]) -> Comparison:
    """Hold the survivors against what is known of them. Each change of a review explains one survivor.

    First those that read just the same; then, of the functions that have moved and of changes in which only names
    differ, those that are left."""
    result = Comparison()
    for mutant in mutants:
        row = result.rows.setdefault(mutant.file, Row())
        row.mutants += 1
        if mutant.status != "survived":
            setattr(row, mutant.status, getattr(row, mutant.status) + 1)
    known = {(mutant.module, mutant.function) for mutant in mutants}
    survivors = [mutant for mutant in mutants if mutant.status == "survived"]
    open_keys = [(review, key) for review in reviews for key in review.keys]
    kinds: dict[str, str] = {}

    def match(told: Callable[[Key], Key | None]) -> None:
        """Give each open explanation a survivor of the key that `told` makes of both, where there is one."""
        left: dict[Key, list[Mutant]] = {}
        for mutant in survivors:
            if mutant.name not in kinds and (key := told(mutant.key)) is not None:
                left.setdefault(key, []).append(mutant)
        for review, key in open_keys[:]:
            found = left.get(told(key) or key)
            if found:
                mutant = found.pop(0)
                kinds[mutant.name] = review.kind
                open_keys.remove((review, key))
                if mutant.key != key:
                    result.moved.append((key, mutant))

    def moved(key: Key) -> Key | None:
        where = place(known, *key[:2])
        return None if where is None else (*where, key[2])

    def loose(key: Key) -> Key | None:
        where = moved(key)
        return None if where is None else (*where[:2], loosely(where[2]))

    for told in (lambda key: key, moved, loose):
        match(told)
    for mutant in survivors:
        row = result.rows[mutant.file]
        if mutant.name in kinds:
            setattr(row, kinds[mutant.name], getattr(row, kinds[mutant.name]) + 1)
        elif mutant.message:
            row.message += 1
        else:
            row.unreviewed += 1
            result.unreviewed.append(mutant)
    for row in result.rows.values():
        result.total.add(row)
    tried = {mutant.module for mutant in mutants}
    left = Counter(mutant.key for mutant in mutants if mutant.status == "left")
    for review, key in open_keys:
        where = moved(key)
        lost = key[0] in tried if where is None else where[0] in tried and not left[where]
        if lost or review.gone:
            result.gone.append(key)
    return result


app = typer.Typer(add_completion=False, help=(__doc__ or "").split("\n\n")[0])


@app.command()
def run(
    suites: list[str] = typer.Argument(None, help="allocator, reference; both by default"),
    max_children: int = typer.Option(1, help="processes"),
    only: list[str] = typer.Option([], help="mutants, by mutmut's names, with *; these are tried again"),
) -> None:
    """Run mutmut. What has a result already is not run again, unless what it was run with has changed."""
    for name in suites or SUITES:
        suite, folder = SUITES[name], BUILD / name
        stage(suite, folder)
        command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(max_children), *only]
        environment = {**os.environ, "PYTHONPATH": "", "PYTHONHASHSEED": "0"}
        subprocess.run(command, cwd=folder, check=True, env=environment)


@app.command()
def report(
    show: bool = typer.Option(False, help="print every survivor that is not explained, as an entry to fill in"),
    write: bool = typer.Option(False, help="also write docs/generated/mutants.json and the figures in docs/mutants.md"),
) -> None:
    """Hold the results against docs/mutants.toml. Exits with 1 if a mutant has not been tried, a survivor is not
    explained, an explained one is no more, a score is too low or a suite too slow."""
    reviews = read_reviews(ROOT / "docs" / "mutants.toml")
    faults: list[str] = []
    figures: dict[str, Any] = {}
    tables: list[str] = []
    for suite in SUITES.values():
        mutants = read_results(suite, BUILD / suite.name)
        result = compare(mutants, [review for review in reviews if review.module.partition(".")[0] == suite.room])
        if show:
            typer.echo("\n".join(f"# {one.name}\n{entry(unexplained(one))}" for one in result.unreviewed))
        for (module, function, told), mutant in result.moved:
            typer.echo(f"{suite.name}: {module}.{function}: {told!r} is {mutant.change!r} in {mutant.name}")
        seconds = suite_seconds(BUILD / suite.name)
        faults += complaints(suite, result, seconds)
        tables += tabulate(suite, result, seconds, mutants)
        figures[suite.name] = {
            "files": {
                name: {**vars(row), "score": round(row.score, 2), "of non-equivalent": round(row.strict, 2)}
                for name, row in [*result.rows.items(), ("all", result.total)]
            },
            "suite seconds": seconds,
            "survivors": [
                {"module": one.module, "function": one.function, "change": one.change, "message": one.message}
                for one in mutants
                if one.status == "survived"
            ],
        }
    typer.echo("\n".join(tables))
    for fault in faults:
        typer.echo(fault)
    if write:
        data = ROOT / "docs" / "generated" / "mutants.json"
        data.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        page = ROOT / "docs" / "mutants.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
        page.write_text(before + "\n".join([_BEGIN, "", *tables, _END]) + rest.partition(_END)[2], encoding="utf-8")
    raise typer.Exit(bool(faults))


@app.command()
def tidy(write: bool = typer.Option(False, help="write docs/mutants.toml")) -> None:
    """Say which entries of docs/mutants.toml are no longer true of the code, without a run. Exits with 1 if there are
    any and nothing is written."""
    path = ROOT / "docs" / "mutants.toml"
    reviews = read_reviews(path)
    sources = {key: text for suite in SUITES.values() for key, text in sources_of(suite).items()}
    now = tidied(reviews, sources)
    for review in now:
        if review not in reviews:
            typer.echo(f"{'gone' if review.gone else 'moved'}: {review.module}.{review.function}: {review.changes}")
    if write:
        write_reviews(path, now)
    raise typer.Exit(now != reviews and not write)


_BEGIN, _END = "<!-- figures: written by python -m fuzz.tools.mutants report --write -->", "<!-- end of figures -->"


def suite_seconds(folder: Path) -> float:
    """Processor time of one run of the whole suite over code that is prepared for mutation; 0 if there was none."""
    path = folder / "mutants" / "mutmut-stats.json"
    return round(json.loads(path.read_text(encoding="utf-8"))["stats_time"], 1) if path.exists() else 0.0


def complaints(suite: Suite, result: Comparison, seconds: float) -> list[str]:
    """All that is wrong with the results of a suite."""
    total = result.total
    faults = [f"{suite.name}: not explained: {one.name}" for one in result.unreviewed]
    faults += [
        f"{suite.name}: no such survivor any more: {module}.{function}: {told!r}"
        for module, function, told in result.gone
    ]
    if total.left or not total.mutants:
        faults.append(f"{suite.name}: {total.left} of {total.mutants} mutants are not tried yet")
    if total.strict < suite.target:
        faults.append(f"{suite.name}: {total.strict:.1f}% are killed; {suite.target:.0f}% are demanded")
    if seconds > suite.seconds:
        faults.append(f"{suite.name}: the suite takes {seconds} s; {suite.seconds:.0f} s are allowed")
    return faults


def unexplained(mutant: Mutant) -> Review:
    """The entry of a survivor, to be filled in."""
    return Review(mutant.module, mutant.function, (mutant.change,), "", "")


_COLUMNS = ("mutants", "killed", "timeout", "equivalent", "message", "missed", "unreviewed", "left")


def tabulate(suite: Suite, result: Comparison, seconds: float, mutants: Sequence[Mutant]) -> list[str]:
    """Markdown, readable as it is."""
    head = ["file", *_COLUMNS, "killed of all", "of non-equivalent"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for file, row in [*result.rows.items(), ("**all**", result.total)]:
        counts = [str(getattr(row, name)) for name in _COLUMNS]
        rows.append([file, *counts, f"{row.score:.1f}%", f"{row.strict:.1f}%"])
    width = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(size) for cell, size in zip(row, width, strict=True)) + " |" for row in rows]
    times = sorted(one.seconds for one in mutants if one.status != "left")
    if times:
        middle, spent = times[len(times) // 2], sum(times) / 60
        lines += [
            "",
            f"The suite takes {seconds} s of processor time over the prepared code, where every call goes through a "
            f"switch. The {len(times)} mutants took {spent:.0f} minutes of one process, half of them "
            f"less than {middle:.2f} s, the longest {times[-1]:.0f} s.",
        ]
    return [f"### {suite.name}", "", *lines, ""]


if __name__ == "__main__":
    app()
