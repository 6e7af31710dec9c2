"""The tool that reads mutation tests: what it counts, whom it forgives, and that it fails where it has to."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fuzz.tools import mutants
from fuzz.tools.changes import before, change, functions, loosely, parts
from fuzz.tools.mutants import SUITES, Mutant, Suite, compare, is_message, read_results
from fuzz.tools.reviews import Review, entry, place, read_reviews, tidied, write_reviews

ROOT = Path(__file__).parents[2]


def mutant(
    number: int, status: str, change: str = "1 => 2", message: bool = False, function: str = "f", room: str = "pool"
) -> Mutant:
    name = f"kvcore.{room}.x_{function}__mutmut_{number}"
    return Mutant(name, f"kvcore/{room}.py", function, status, 0.5, change, message)


def review(kind: str = "equivalent", *changes: str) -> Review:
    return Review("kvcore.pool", "f", changes or ("1 => 2",), kind, "It is not read.")


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
    found = [mutant(1, "killed"), mutant(2, "survived"), mutant(3, "survived", "1 => 3")]
    result = compare(found, [review(), review("missed", "1 => 3")])
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
    twice = review("equivalent", "1 => 2", "1 => 2")
    assert compare(found, [twice]).unreviewed == []
    assert compare(found[:1], [twice]).gone == [("kvcore.pool", "f", "1 => 2")]


def test_an_explanation_of_what_is_killed_now_is_told() -> None:
    assert compare([mutant(1, "killed")], [review()]).gone == review().keys
    assert compare([mutant(1, "left")], [review()]).gone == []  # nobody knows yet
    assert compare([], [review()]).gone == []


def test_a_function_that_has_moved_is_still_explained_and_it_is_said() -> None:
    found = [mutant(1, "survived", room="blocks"), mutant(2, "killed", function="g")]
    result = compare(found, [review()])
    assert (result.unreviewed, result.gone) == ([], [])
    assert result.moved == [(("kvcore.pool", "f", "1 => 2"), found[0])]
    twice = compare([*found, mutant(3, "survived", room="prefix")], [review()])
    assert len(twice.unreviewed) == 2, "of two functions of one name nobody knows which it is"


def test_a_method_is_found_by_its_own_name_in_another_class() -> None:
    known = [("kvcore.pool", "Pool.take"), ("kvcore.blocks", "Blocks.give"), ("kvcore.blocks", "Blocks.__init__")]
    assert place(known, "kvcore.pool", "Pool.give") == ("kvcore.blocks", "Blocks.give")
    assert place(known, "kvcore.pool", "Pool.__init__") is None, "every class has one"
    assert place(known, "reference.pool", "Pool.take") is None, "another package"


def test_a_renamed_variable_is_still_explained_and_it_is_said() -> None:
    found = [mutant(1, "survived", "self.size + lines :: + => -")]
    result = compare(found, [review("equivalent", "self.size + sequences :: + => -")])
    assert (result.unreviewed, result.gone, len(result.moved)) == ([], [], 1)
    other = compare(found, [review("equivalent", "self.size + sequences :: + => *")])
    assert (len(other.unreviewed), len(other.gone)) == (1, 1)


def test_what_reads_the_same_is_explained_before_what_only_looks_like_it() -> None:
    found = [mutant(1, "survived", "a + 1 :: 1 => 2"), mutant(2, "survived", "b + 1 :: 1 => 2")]
    result = compare(found, [review("missed", "c + 1 :: 1 => 2"), review("equivalent", "a + 1 :: 1 => 2")])
    assert [one.name for _, one in result.moved] == [found[1].name]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("a = b * c", "a = b / c", "b * c :: * => /"),
        ("return  (b *\n        c)", "return b / c", "b * c :: * => /"),
        ("return x[-1]", "return x[+1]", "x[-1] :: - => +"),
        ("return x[-1]", "return x[-2]", "x[-1] :: 1 => 2"),
        ("return 2**62 < a", "return 2**63 < a", "2 ** 62 :: 62 => 63"),
        ("return a < b <= c", "return a <= b <= c", "a < b <= c :: < => <="),
        ("return zip(a, b, strict=True)", "return zip(a, b)", "zip(a, b, strict=True) :: strict=True => nothing"),
        ("return range(a, b)", "return range(b)", "range(a, b) :: a => nothing"),
        ("return zip(a, strict=True)", "return zip(a, strict=None)", "zip(a, strict=True) :: True => None"),
        ("a = b", "a = None", "a = b :: b => None"),
        ("while a: continue", "while a: break", "continue => break"),
        ("return not a", "return a", "return not a :: not a => a"),
        ("a += 1", "a -= 1", "a += 1 :: + => -"),
        ("return a", "return a", ""),
    ],
)
def test_a_change_is_told_by_its_smallest_part(old: str, new: str, told: str) -> None:
    original, mutated = f"def f(a, b, c, x):\n    {old}\n", f"def f(a, b, c, x):\n    {new}\n"
    assert change(original, mutated) == told
    # As mutmut shows a method, and after an edit elsewhere in it.
    edited = [text.replace("    ", "        ").replace("def", "    def", 1) for text in (original, mutated)]
    assert change(*(text + "        return 5\n" for text in edited)) == told
    if told:
        assert before(told) in {*parts(original)}


def test_a_default_is_told_apart() -> None:
    assert change("def f(self, a=1):\n    pass\n", "def f(self, a=2):\n    pass\n") == "1 => 2"


def test_names_of_variables_alone_are_loose() -> None:
    assert loosely("len(lines) - self.size :: - => +") == loosely("len(sequences) - self.size :: - => +")
    assert loosely("len(lines) - self.size") != loosely("len(lines) - self.count")
    assert loosely("len(lines)") != loosely("sum(lines)")
    assert loosely("f(a) if a else None") != loosely("f(a) if a else b")


def test_entries_are_held_against_the_code() -> None:
    sources = {("kvcore.blocks", "Pool.take"): "def take(self, wanted):\n    return wanted + 1\n"}
    old = Review("kvcore.pool", "Pool.take", ("count + 1 :: 1 => 2", "count - 1 :: 1 => 2"), "missed", "Why.")
    lost = Review("kvcore.pool", "Pool.give", ("count + 1 :: 1 => 2",), "missed", "Why.")
    moved = Review("kvcore.blocks", "Pool.take", ("count + 1 :: 1 => 2",), "missed", "Why.")
    gone = Review("kvcore.blocks", "Pool.take", ("count - 1 :: 1 => 2",), "missed", "Why.", gone=True)
    now = tidied([old, lost], sources)
    assert now == [moved, gone, replace(lost, gone=True)]
    assert tidied(now, sources) == now


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
    assert first.key == ("room.file", "C.f", "1 => 2")
    assert (first.status, first.seconds) == ("survived", 0.0)
    assert second.key == ("room.file", "C.f", "a + 1 :: + => -")
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
    found = [mutant(1, "killed"), mutant(2, "survived"), mutant(4, "left", "1 => 4")]
    result = compare(found, [review("missed", "1 => 3")])
    told = mutants.complaints(suite, result, 15.1)
    assert [line.removeprefix("s: ") for line in told] == [
        "not explained: kvcore.pool.x_f__mutmut_2",
        "no such survivor any more: kvcore.pool.f: '1 => 3'",
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
    text = entry(mutants.unexplained(mutant(1, "survived", """a == 'x' :: 'x' => "y'" """)))
    path.write_text(text)
    with pytest.raises(ValueError, match="class must be one of"):
        read_reviews(path)
    path.write_text(text.replace('class = ""', 'class = "missed"').replace('reason = ""', 'reason = "Why."'))
    assert read_reviews(path) == [Review("kvcore.pool", "f", ("""a == 'x' :: 'x' => "y'" """,), "missed", "Why.")]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    reviews = [
        review("missed", 'x["a\\n"] :: 1 => 2', "1 => 2"),
        Review("a.b", "C.f", ("a",), "missed", "Why.", gone=True),
    ]
    write_reviews(tmp_path / "mutants.toml", reviews)
    assert read_reviews(tmp_path / "mutants.toml") == reviews


def test_the_reviewed_file_is_true_of_the_code_as_it_is() -> None:
    """Where this fails after a refactoring: python -m fuzz.tools.mutants tidy --write."""
    reviews = read_reviews(ROOT / "docs" / "mutants.toml")
    sources = {key: text for suite in SUITES.values() for key, text in mutants.sources_of(suite).items()}
    assert tidied(reviews, sources) == reviews
    assert any(not one.gone for one in reviews)


def test_functions_are_known_by_their_classes(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f():\n    return 1\nclass C:\n    def f(self):\n        return 2\n")
    found = functions(tmp_path / "m.py")
    assert found.keys() == {"f", "C.f"}
    assert "return 2" in found["C.f"]
