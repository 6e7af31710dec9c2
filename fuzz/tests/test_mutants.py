"""The tool that reads mutation tests: what it counts, whom it forgives, and that it fails where it has to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fuzz.tools import mutants
from fuzz.tools.mutants import (
    SUITES,
    Mutant,
    Review,
    Suite,
    changed_lines,
    compare,
    is_message,
    read_results,
    read_reviews,
)

ROOT = Path(__file__).parents[2]


def mutant(number: int, status: str, before: str = "a = 1", after: str = "a = 2", message: bool = False) -> Mutant:
    return Mutant(f"kvcore.pool.x_f__mutmut_{number}", "kvcore/pool.py", "f", status, 0.5, before, after, message)


def review(kind: str = "equivalent", after: str = "a = 2", times: int = 1) -> Review:
    return Review("kvcore/pool.py", "f", "a = 1", after, kind, "It is not read.", times)


def test_the_files_and_tests_of_the_suites_exist() -> None:
    for suite in SUITES.values():
        for name in (*(f"{suite.room}/{file}" for file in suite.files), *suite.tests):
            file, _, test = name.partition("::")
            assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), name
            assert (ROOT / file).exists(), name


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_keeps_its_order(suite: str) -> None:
    @dataclass
    class Item:
        nodeid: str

    items = [Item(f"{name}[1]" if "::" in name else f"{name}::test_x[a/b.py]") for name in SUITES[suite].tests]
    shuffled = items[::-1]
    mutants.pytest_collection_modifyitems(shuffled)
    assert shuffled == items


def test_every_test_of_the_reference_is_in_its_suite() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "reference" / "tests").glob("test_*.py")}
    assert files <= set(SUITES["reference"].tests)


def test_a_survivor_must_be_explained() -> None:
    found = [mutant(1, "killed"), mutant(2, "survived"), mutant(3, "timeout"), mutant(4, "left")]
    result = compare(found, [])
    assert [one.name for one in result.unreviewed] == ["kvcore.pool.x_f__mutmut_2"]
    row = result.total
    assert (row.mutants, row.killed, row.timeout, row.left, row.unreviewed) == (4, 1, 1, 1, 1)
    assert row.score == row.strict == 50  # what is not tried may survive
    assert result.rows == {"kvcore/pool.py": row}


def test_equivalent_ones_are_left_out_of_the_strict_score_and_missed_ones_are_not() -> None:
    found = [mutant(1, "killed"), mutant(2, "survived"), mutant(3, "survived", after="a = 3")]
    result = compare(found, [review(), review("missed", "a = 3")])
    assert result.unreviewed == [] and result.gone == []
    assert (result.total.equivalent, result.total.missed) == (1, 1)
    assert result.total.score == pytest.approx(100 / 3)
    assert result.total.strict == 50


def test_a_message_needs_no_explanation_and_counts_as_a_survivor() -> None:
    result = compare([mutant(1, "killed"), mutant(2, "survived", message=True)], [])
    assert result.unreviewed == []
    assert result.total.message == 1
    assert result.total.strict == 50


def test_an_explanation_serves_as_often_as_it_says() -> None:
    found = [mutant(1, "survived"), mutant(2, "survived")]
    assert len(compare(found, [review()]).unreviewed) == 1
    assert compare(found, [review(times=2)]).unreviewed == []
    assert compare(found[:1], [review(times=2)]).gone == [review(times=2)]


def test_an_explanation_of_what_is_killed_now_is_told() -> None:
    assert compare([mutant(1, "killed")], [review()]).gone == [review()]
    assert compare([mutant(1, "left")], [review()]).gone == []  # nobody knows yet
    assert compare([], [review()]).gone == []


def test_mutants_are_known_by_the_lines_they_change() -> None:
    before = ["def f():", "    a = 1", "    return  a"]
    assert changed_lines(before, ["def f():", "    a = 2", "    return  a"]) == ("a = 1", "a = 2")
    assert changed_lines(before, ["def f():", "    a = 1", "    return -a"]) == ("return a", "return -a")
    assert changed_lines(before, before) == ("", "")


@pytest.mark.parametrize(
    ("original", "changed", "message"),
    [
        ('raise OutOfBlocks("no room")', 'raise OutOfBlocks("XXno roomXX")', True),
        ('raise OutOfBlocks("no room")', "raise OutOfBlocks(None)", True),
        ('raise OutOfBlocks("no room")', 'raise NeverFits("no room")', False),
        ('raise OutOfBlocks("no room")', "raise OutOfBlocks()", False),
        ('error = ForeignStep(f"{a}" "b")', 'error = ForeignStep(f"{a}" "B")', True),
        ('_require(a, "clause", "text")', '_require(a, "clause", "TEXT")', True),
        ('_require(a, "clause", "text")', '_require(a, "CLAUSE", "text")', False),
        ('_require(a == 1, "clause", "text")', '_require(a == 2, "clause", "text")', False),
        ('self.accuse(Kind, f"{a}")', "self.accuse(Kind, None)", True),
        ('self.accuse(Kind, f"{a}")', 'self.accuse(None, f"{a}")', False),
        ('self.events["evicted"] += 1', 'self.events["EVICTED"] += 1', False),
    ],
)
def test_what_changes_only_the_text_of_an_error_is_told_from_the_rest(
    original: str, changed: str, message: bool
) -> None:
    function = "def f(self, a):\n    {}\n"
    assert is_message(function.format(original), function.format(changed)) is message


def test_results_are_read_from_mutmut_s_files(tmp_path: Path) -> None:
    folder = tmp_path / "mutants" / "room"
    folder.mkdir(parents=True)
    (folder / "file.py").write_text(
        "class C:\n"
        "    def xǁCǁf__mutmut_orig(self, a=1):\n        return a + 1\n"
        "    def xǁCǁf__mutmut_1(self, a=2):\n        return a + 1\n"
        "    def xǁCǁf__mutmut_2(self, a=1):\n        return a - 1\n"
    )
    name = "room.file.xǁCǁf__mutmut_"
    codes = {f"{name}1": 0, f"{name}2": 1}
    (folder / "file.py.meta").write_text(
        json.dumps({"exit_code_by_key": codes, "durations_by_key": {f"{name}2": 0.25}})
    )
    spans = {"xǁCǁf__mutmut_orig": [2, 3], "xǁCǁf__mutmut_1": [4, 5], "xǁCǁf__mutmut_2": [6, 7]}
    (folder / "file.py.spans").write_text(json.dumps({"version": 1, "spans": spans}))
    first, second = read_results(Suite("s", "room", ("file.py", "none.py"), (), 95.0), tmp_path)
    assert first.key == ("room/file.py", "C.f", "def f(self, a=1):", "def f(self, a=2):")
    assert (first.status, first.seconds) == ("survived", 0.0)
    assert second.key == ("room/file.py", "C.f", "return a + 1", "return a - 1")
    assert (second.status, second.seconds) == ("killed", 0.25)


def test_what_is_staged_again_is_touched_only_where_it_changed(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "stage"
    for room in mutants.ROOMS:
        (root / room).mkdir(parents=True)
    for name in ("conftest.py", "kvcore/pool.py", "kvcore/prefix.py", "reference/judge.py", "kvcore/tests/test_b.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("a = 1\n")
    suite = Suite("s", "kvcore", ("pool.py", "prefix.py"), ("fuzz/test.py",), 95.0)

    def times() -> dict[str, int]:
        return {
            path.relative_to(folder).as_posix(): path.stat().st_mtime_ns
            for path in folder.rglob("*.py")
            if "mutants" not in path.parts
        }

    mutants.stage(suite, folder, root)
    first = times()
    meta = folder / "mutants" / "kvcore" / "pool.py.meta"
    meta.parent.mkdir(parents=True)
    results = {"exit_code_by_key": {"one": 1, "two": 0, "three": 24}}
    meta.write_text(json.dumps(results))

    (root / "kvcore" / "pool.py").write_text("a = 2\n")
    (root / "kvcore" / "tests" / "test_b.py").write_text("a = 2\n")  # none of this suite
    mutants.stage(suite, folder, root)
    second = times()
    assert {name for name in first if first[name] != second[name]} == {"kvcore/pool.py", "kvcore/tests/test_b.py"}
    assert json.loads(meta.read_text()) == results  # mutmut sees by itself which functions have changed

    (root / "reference" / "judge.py").unlink()
    mutants.stage(suite, folder, root)
    assert "reference/judge.py" not in times()
    assert json.loads(meta.read_text())["exit_code_by_key"] == {"one": 1, "two": None, "three": None}


def test_what_is_wrong_with_the_results_is_told() -> None:
    suite = Suite("s", "kvcore", ("pool.py",), (), 95.0)
    found = [mutant(1, "killed"), mutant(2, "survived"), mutant(4, "left", after="a = 4")]
    result = compare(found, [review(after="a = 3")])
    told = mutants.complaints(suite, result, 15.1)
    assert [line.removeprefix("s: ") for line in told] == [
        "not explained: kvcore.pool.x_f__mutmut_2",
        "no such survivor any more: f: 'a = 3'",
        "1 of 3 mutants are not tried yet",
        "33.3% are killed; 95% are demanded",
        "the suite takes 15.1 s; 15 s are allowed",
    ]
    assert mutants.complaints(suite, compare([mutant(1, "killed")], []), 15.0) == []
    assert mutants.complaints(suite, compare([], []), 0.0) == ["s: 0 of 0 mutants are not tried yet"]


def test_the_table_says_every_count() -> None:
    suite = Suite("s", "kvcore", ("pool.py",), (), 95.0)
    found = [mutant(number, "killed") for number in range(3)] + [mutant(4, "survived")]
    lines = mutants.tabulate(suite, compare(found, [review()]), 7.5, found)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| kvcore")]
    assert cells == [["kvcore/pool.py", "4", "3", "0", "1", "0", "0", "0", "0", "75.0%", "100.0%"]]
    assert any("7.5 s of processor time" in line for line in lines)


def test_an_entry_says_its_class_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    entry = mutants.entry(mutant(1, "survived", before="a = 1\nb = 2", after='c = "x"'))
    path.write_text(entry)
    with pytest.raises(ValueError, match="class must be one of"):
        read_reviews(path)
    path.write_text(entry.replace('class = ""', 'class = "missed"').replace('reason = ""', 'reason = "Why."'))
    assert read_reviews(path) == [Review("kvcore/pool.py", "f", "a = 1\nb = 2", 'c = "x"', "missed", "Why.")]


def test_the_reviewed_file_can_be_read_and_names_what_exists() -> None:
    for one in read_reviews(ROOT / "docs" / "mutants.toml"):
        source = (ROOT / one.file).read_text(encoding="utf-8")
        name = one.function.rpartition(".")[2]
        assert f"def {name}(" in source, one
        squeezed = {" ".join(line.split()) for line in source.splitlines()}
        assert all(line in squeezed for line in one.before.splitlines()), one
