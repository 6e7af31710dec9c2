"""The comparison: what a cell says, and that nothing that was not executed passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.campaign.compare import Comparison, compare, keep, markdown, render
from fuzz.runs.counterexample import read
from fuzz.show.markdown_section import marks, replace_section
from fuzz.show.page import environment
from reference import PROPERTIES


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path, list[str]]:
    out = tmp_path_factory.mktemp("compare")
    said: list[str] = []
    targets = ["kvcore", "fuzz.tests.test_record:stale", "no_such_package.adapter:make"]
    return compare(targets, out, budget="2s", seed="compare", speed=False, say=said.append), out, said


def test_each_core_has_a_verdict_for_every_property(compared: tuple[Comparison, Path, list[str]]) -> None:
    result, out, _ = compared
    kvcore, stale, missing = result.columns
    assert list(kvcore.cells) == list(stale.cells) == list(PROPERTIES)
    assert {cell.verdict for cell in kvcore.cells.values()} == {"pass", "not checked"}
    others = {"BOUNDS", "EQUIVALENCE", "GROWTH", "KEYS"}  # engines that a comparison does not run
    assert {name for name, cell in kvcore.cells.items() if cell.verdict == "not checked"} == others
    assert {"violated", "not supported", "not checked"} <= {cell.verdict for cell in stale.cells.values()}
    assert stale.cells["ISOLATION"].verdict == "not supported"
    for name, cell in stale.cells.items():
        if cell.verdict == "violated":
            assert read(out / cell.file).property_id == name
    assert not missing.cells
    assert "no_such_package" in missing.missing


def test_the_table_and_the_page_say_the_same(compared: tuple[Comparison, Path, list[str]]) -> None:
    result, out, said = compared
    kept = keep(result, out, out / "kept")
    text = markdown(result, lambda file: kept[file].name)
    assert "**violated**" in markdown(result) and "](" not in markdown(result)
    for file, copy in kept.items():
        assert copy.read_bytes() == (out / file).read_bytes()
        assert f"[**violated**]({copy.name})" in text
    assert text.count("| not run |") == len(PROPERTIES)
    page = render(result, out).read_text()
    for cell in result.columns[1].cells.values():
        assert not cell.file or f'href="{cell.file}"' in page
    assert page.count('class="ok">pass') == sum(
        cell.verdict == "pass" for column in result.columns for cell in column.cells.values()
    )
    stored = json.loads((out / "compare.json").read_text())
    assert [core["target"] for core in stored["cores"]] == [column.target for column in result.columns]
    assert any("not run (exit status 2)" in line for line in said)


def test_the_section_between_the_marks_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    begin, end = marks("compare")
    path = tmp_path / "page.md"
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    replace_section(path, "compare", "new")
    assert path.read_text() == f"before\n{begin}\nnew\n{end}\nafter\n"
    path.write_text("no marks\n")
    with pytest.raises(ValueError, match="expected the lines"):
        replace_section(path, "compare", "new")
    assert path.read_text() == "no marks\n"


def test_an_empty_comparison_is_not_a_pass() -> None:
    empty = Comparison("1s", "x")
    assert not empty.executed
    assert not empty.violated
    assert environment().get_template("compare.html").render(result=empty, properties=[])
