"""The zoo is alive: every bug applies, is found, and ends with a property that it names; some are shrunk to the least.

`python -m fuzz audit` does all of this for every bug with both engines and several seeds; here it is one seed, and the
clock stands still, so that a result depends on the seed alone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import zoo
from fuzz.engines.engine import Assignment
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.findings.shrink import shrink
from fuzz.runs.perform import perform
from fuzz.runs.values import Counterexample, Judging
from fuzz.zoo import Bug, InvalidBug, allocator_bugs, find, kernel_bugs
from fuzz.zoo.planting import Change, DoesNotApply, plant
from properties.target import TargetFactory
from properties.targets import UnknownTarget, load

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLIND = Judging(outside=True, exact=False)
"""As if model and core shared the mistake: nothing is seen inside, and nothing predicted."""

WITHIN = 40_000
"""Checked operations in which a bug must be found: about a second."""

RARE = {"KC-3": "3 million operations or more: `fuzz/regressions/copy_source_outlives_prefix.json` stands for it"}
SEEDS = {"KC-2": "5", "SD-1": "2", "VL-30": "2"}
"""Where seed 1 is not a good one."""

LONGER = {("KC-1", "full"): 13, ("TR-4b", "blind"): 5}
"""Where the shrinker ends with more than the least that is known, with the seed used here."""

SHRUNK = [bug for bug in allocator_bugs() if bug.blind]


def shrunk() -> list[object]:
    """Bugs and modes. One bug of each kind is shrunk by day, in both modes, the others by night."""
    kinds: set[str] = set()
    parameters = []
    for bug in SHRUNK:
        marks = [pytest.mark.nightly] if bug.kind in kinds else []
        kinds.add(bug.kind)
        parameters += [pytest.param(bug, mode, id=f"{mode}-{bug.id}", marks=marks) for mode in ("full", "blind")]
    return parameters


def hunt(factory: TargetFactory, judging: Judging, seed: str = "1") -> tuple[Counterexample, Tally]:
    tally = Tally()
    found, _ = WalkEngine().hunt(
        Assignment(factory, "planted", seed, judging, tally, clock=lambda: 0.0, deadline=1.0, count=2000)
    )
    assert found is not None, "not found"
    return found, tally


@pytest.mark.parametrize("bug", [bug for bug in allocator_bugs() if bug.id not in RARE], ids=lambda bug: bug.id)
def test_the_walk_finds_it(bug: Bug) -> None:
    found, tally = hunt(bug.factory(), Judging(), SEEDS.get(bug.id, "1"))
    assert tally.operations <= WITHIN
    strict = perform(bug.factory(), found.configuration, found.operations, strict=True)
    assert strict.violation is not None
    assert {found.property_id, strict.violation.id} & set(bug.properties), (found.property_id, strict.violation)


@pytest.mark.parametrize(("bug", "mode"), shrunk())
def test_it_is_shrunk_to_the_least(bug: Bug, mode: str) -> None:
    factory = bug.factory()
    found, tally = hunt(factory, BLIND if mode == "blind" else Judging(), SEEDS.get(bug.id, "1"))
    assert tally.operations <= WITHIN
    small = shrink(found, factory, clock=lambda: 0.0, seconds=1.0, episodes=300).counterexample
    assert small.property_id in (bug.blind if mode == "blind" else bug.properties), small.message
    least = bug.blind_minimum if mode == "blind" else bug.minimum
    assert len(small.operations) <= LONGER.get((bug.id, mode), least), small.operations

    again = perform(factory, small.configuration, small.operations, small.judging, strict=True)
    assert again.violation is not None
    assert (again.violation.id, again.violation.message) == (small.property_id, small.message)
    assert perform(load("kvcore"), small.configuration, small.operations, small.judging, strict=True).violation is None


def test_there_are_enough() -> None:
    """Sixty from the catalogue, twenty that are shrunk in both modes; all ids in the catalogue's form or our own."""
    bugs = (*allocator_bugs(), *kernel_bugs())
    reported = {match[1] for bug in bugs if (match := re.fullmatch(r"((?!KC|KK)[A-Z]{2}-\d+)[a-z]?", bug.id))}
    assert len(reported) >= 60
    assert len(SHRUNK) >= 20
    assert all(bug.reference for bug in bugs if not bug.id.startswith(("KC", "KK")))


def test_what_was_not_planted_is_said() -> None:
    text = (DOCS / "zoo.md").read_text(encoding="utf-8").partition("## What was not planted")[2]
    rows = re.findall(r"^\| ([^|]*) \|", text, flags=re.MULTILINE)
    named = {id for row in rows for id in re.findall(r"[A-Z]{2}-\d+", row)}
    planted = {bug.id for bug in (*allocator_bugs(), *kernel_bugs())}
    assert len(named) >= 30
    assert not named & planted


def test_every_kernel_bug_applies() -> None:
    for bug in kernel_bugs():
        assert zoo.diff(bug)


def test_the_regression_of_the_rare_one_still_shows_it() -> None:
    from fuzz.runs.counterexample import read

    stored = read(Path(__file__).parents[1] / "regressions" / "copy_source_outlives_prefix.json")
    run = perform(find("KC-3").factory(), stored.configuration, stored.operations, stored.judging, strict=True)
    assert run.violation is not None
    assert run.violation.id in find("KC-3").properties


def test_the_same_seed_finds_and_shrinks_the_same() -> None:
    factory = find("NV-11").factory()
    results = []
    for _ in range(2):
        found, _ = hunt(factory, Judging())
        results.append(shrink(found, factory, clock=lambda: 0.0, seconds=1.0, episodes=20).counterexample)
    assert results[0] == results[1]


def test_a_fault_that_does_not_apply_is_an_error() -> None:
    with pytest.raises(DoesNotApply, match="occurs 0 times, not once"):
        plant([Change("pool.py", "no such text", "")])
    with pytest.raises(DoesNotApply, match=r"kvcore/none\.py"):
        plant([Change("none.py", "x", "y")])


def test_a_planted_copy_leaves_the_real_core_alone() -> None:
    import kvcore

    core = plant(find("NV-1").changes)
    assert core.BlockManager is not kvcore.BlockManager
    assert core.__name__ != "kvcore"
    assert plant(find("NV-1").changes) is core


def test_a_planted_copy_has_its_source_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """No file is left of a killed process; tracebacks and `inspect` show the changed text."""
    code = """
import inspect, os, signal, traceback
from fuzz.zoo.planting import Change, plant
core = plant([Change("pool.py", "popleft = self.free.popleft", "popleft = self.planted")])
assert inspect.getsource(core.pool.BlockPool).startswith("class BlockPool:")
pool = core.pool.BlockPool(1)
try:
    pool.take(1)
except AttributeError:
    print(traceback.format_exc(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert "popleft = self.planted\n" in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_bug_is_a_target() -> None:
    factory = load("fuzz.zoo:NV-1")
    found, _ = hunt(factory, Judging())
    assert found.property_id in find("NV-1").properties
    with pytest.raises(UnknownTarget, match="NV-9999"):
        load("fuzz.zoo:NV-9999")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id = ", "not TOML"),
        ('id = "X-1"', "no title, reference"),
        ("id = 5", "id = 5 is not one of"),
        ('colour = "red"', "colour = 'red' is not one of"),
    ],
)
def test_a_file_that_is_no_bug_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x-1-some.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidBug, match=message):
        zoo.read(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('properties = ["NOPE"]', "no properties"),
        ("properties = []", "at least one property"),
        ('properties = ["EXACT"]\nby = "magic"', "by = 'magic'"),
        ('properties = ["EXACT"]\n[[change]]\nfile = "pool.py"', "a change has file, old and new"),
    ],
)
def test_a_bug_that_cannot_be_hunted_is_an_error(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x-1-some.toml"
    head = 'id = "X-1"\ntitle = ""\nreference = ""\nclass = ""\nbreaks = ""\n'
    tail = "" if "[[change]]" in line else '\n[[change]]\nfile = "pool.py"\nold = "x"\nnew = "y"\n'
    path.write_text(head + line + tail, encoding="utf-8")
    with pytest.raises(InvalidBug, match=message):
        zoo.read(path)


def test_the_shrinker_stops_at_its_deadline() -> None:
    factory = find("NV-11").factory()
    found, _ = hunt(factory, Judging())
    ticks = iter(range(10_000))
    result = shrink(found, factory, clock=lambda: float(next(ticks)), seconds=30.0)
    assert not result.finished
    assert result.replays <= 32
    small = result.counterexample
    run = perform(factory, small.configuration, small.operations, small.judging, strict=True)
    assert run.violation is not None
    assert run.violation.id == small.property_id


def test_what_does_not_fail_comes_back_unchanged() -> None:
    found, _ = hunt(find("NV-11").factory(), Judging())
    result = shrink(found, load("kvcore"), clock=lambda: 0.0, seconds=1.0)
    assert result.counterexample == found
