"""What the documentation says is what happens: outputs and lists in it are compared with the real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fuzz import cli
from fuzz.cli import app
from properties.operations import OPERATIONS
from reference import PROPERTIES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_six_moments_in_the_readme_are_the_real_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "console", Console(width=110, highlight=False))
    result = CliRunner().invoke(app, ["replay", "fuzz/scenarios/six_moments.json"])
    shown = README.split("$ python -m fuzz replay fuzz/scenarios/six_moments.json\n")[1].split("```")[0]
    assert _lines(shown) == _lines(result.output)


def test_the_readme_names_every_property_with_its_statement() -> None:
    rows = dict(re.findall(r"^\| ([A-Z]+) \| (.+) \|$", README, re.MULTILINE))
    assert rows == {name: " ".join((kind.__doc__ or "").split()) for name, kind in PROPERTIES.items()}


def test_the_file_format_page_names_every_operation() -> None:
    page = (ROOT / "docs" / "counterexamples.md").read_text(encoding="utf-8")
    assert [name for name in OPERATIONS if f"| `{name}` |" not in page] == []


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"


def test_files_that_the_documentation_replays_exist() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for name in re.findall(r"fuzz replay (fuzz/\S+\.json)", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{page.name}: {name}"
