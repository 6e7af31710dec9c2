"""A survey counts each verdict by itself, shrinks the first case that breaks it, and writes its tables into a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("triton")

import typer

from fuzz.engines.bench import check_one
from fuzz.show.markdown_section import marks
from fuzz.tools.survey import main, run_survey, survey_case
from properties.attention.cases import Case
from properties.attention.kernels import AXES

LYING = "fuzz.tests.lying:make"
HONEST = "fuzz.tests.lying:honest"

app = typer.Typer()
app.command()(main)


def test_a_stream_has_every_axis_and_decodes_every_third_time() -> None:
    cases = [survey_case("1", number, tuple(AXES), 12) for number in range(30)]
    assert cases == [survey_case("1", number, tuple(AXES), 12) for number in range(30)]
    assert all(case.axes == tuple(AXES) for case in cases)
    assert all({rows for _, rows in case.sequences} == {1} for case in cases[2::3])
    assert any(rows > 1 for case in cases[::3] for _, rows in case.sequences)
    for case in cases[1::3]:
        assert case.sequences[case.seed % len(case.sequences)][1] == 1
        assert case.sequences[-1] == (9, 3)


def test_what_is_broken_is_counted_where_it_is_and_shrunk() -> None:
    survey = run_survey(LYING, "3", 6, tiles=8, patience=10, watch=False)
    held = {what for what, row in survey.rows.items() if not row.broken}
    assert held == {"run", "oracle", *AXES} - {what for what, row in survey.rows.items() if row.broken}
    assert survey.rows["schedule"].broken
    assert {"run", "oracle", "placement", "poison", "repeat"} <= held
    assert all(row.judged == 6 for row in survey.rows.values())
    row = survey.rows["schedule"]
    case = Case.from_json(row.case)
    assert case.axes == ("schedule",)
    assert len(case.sequences) == 1
    found = check_one(LYING, case)
    assert found is not None
    assert (found.property_id, found.message) == (row.property, row.message)


def test_the_tables_go_between_the_markers_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = marks("survey")
    page.write_text(f"before\n{begin}\nstale\n{end}\nafter\n", encoding="utf-8")
    asked = ["--cases", "4", "--tiles", "8", "--patience", "5", "--no-watch", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["--kernels", LYING, "--kernels", HONEST, *asked, "--write", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    assert text.count("| plain |") == 4  # two tables, two lines each
    assert "of 4 broken**" in text
    assert "--no-watch" in text
    assert json.loads((tmp_path / "out" / "lying-make.json").read_text(encoding="utf-8"))["cases"] == 4


def test_a_page_without_markers_and_an_unknown_target_are_said(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing", encoding="utf-8")
    done = CliRunner().invoke(app, ["--out", str(tmp_path), "--write", str(page)])
    assert done.exit_code == 2
    assert "no markers" in " ".join(done.output.replace("│", " ").split())
    done = CliRunner().invoke(app, ["--kernels", "nobodys", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "no target 'nobodys'" in done.output
