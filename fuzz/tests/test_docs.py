"""What the documentation says is what happens: outputs and lists in it are compared with the real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fuzz.cli import app, replay
from fuzz.engines.registry import ENGINES
from fuzz.traces.reading import formats
from properties.operations import OPERATIONS
from reference import PROPERTIES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PRINTED = 110
"""Columns of the terminal in the pages."""


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").stat().st_size <= 9_000


def test_the_counterexample_in_the_readme_is_a_real_one() -> None:
    file = DOCS / "counterexamples" / "stale-index.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    result = CliRunner().invoke(app, ["replay", str(file), "--json"])
    run = json.loads(result.output)
    shown = _read("README.md").split(f"$ python -m fuzz run --target {stored['target']}\n")[1].split("```")[0]
    headline, _, *operations = _lines(shown)
    assert result.exit_code == 1
    assert headline.startswith(f"new {run['property']}-")
    assert headline.endswith(f": {run['message']}")
    assert [line.split(maxsplit=1)[1] for line in operations] == [step["operation"] for step in run["steps"]]


def test_the_life_of_a_block_is_the_real_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "console", Console(width=PRINTED, highlight=False))
    result = CliRunner().invoke(app, ["replay", "fuzz/scenarios/six_moments.json"])
    page = _read("docs/counterexamples.md")
    shown = page.split("$ python -m fuzz replay fuzz/scenarios/six_moments.json\n")[1].split("```")[0]
    assert _lines(shown) == _lines(result.output)


def test_every_property_is_described_by_its_statement() -> None:
    rows = dict(re.findall(r"^\| ([A-Z]+) \| ([^|]+) \|$", _read("docs/properties.md"), re.MULTILINE))
    assert rows == {name: " ".join((kind.__doc__ or "").split()) for name, kind in PROPERTIES.items()}


def test_every_command_is_described() -> None:
    page = _read("docs/commands.md")
    command: Any = typer.main.get_command(app)
    assert [name for name in command.commands if f"`{name}`" not in page] == []


def test_every_engine_make_target_and_trace_format_is_described() -> None:
    page = _read("docs/commands.md")
    assert [name for name in ENGINES if f"| `{name}` |" not in page] == []
    assert [name for name in formats() if name not in page.lower()] == []
    targets = set(re.search(r"^\.PHONY: (.*)$", _read("Makefile"), re.MULTILINE)[1].split()) - {"help", "lint", "unit"}  # type: ignore[index]
    assert sorted(name for name in targets if f"`{name}`" not in page) == []


def test_the_file_format_page_names_every_operation() -> None:
    page = _read("docs/counterexamples.md")
    assert [name for name in OPERATIONS if f"| `{name}` |" not in page] == []


def test_the_index_has_every_page() -> None:
    index = _read("docs/README.md")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page.name != "README.md"]
    assert [page for page in pages if f"]({page})" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_to_a_heading_find_it(page: Path) -> None:
    for file, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        target = (page.parent / file) if file else page
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert heading in {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}, heading


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_files_of_this_repository_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(
        r"(?<![\w/.-])(?:kvcore|reference|properties|fuzz|docs)/[\w./-]+\w(?![\w*-])", page.read_text("utf-8")
    )
    theirs = {"fuzz/baseline.json", *(name for name in named if "NAME" in name)}  # what a reader makes
    assert sorted(name for name in set(named) - theirs if not (ROOT / name).exists()) == []


def test_the_scheduled_jobs_are_what_their_readers_take() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with Ray: pip install 'kvcore[ray]'")
    examples = DOCS / "examples"
    for path in examples.glob("nightly-*.yml"):
        assert yaml.safe_load(path.read_text())["jobs"]["fuzz"]["steps"]
    parts = {part["kind"]: part for part in yaml.safe_load_all((examples / "kuberay-cronjob.yaml").read_text())}
    files = parts["ConfigMap"]["data"]
    job = yaml.safe_load(files["rayjob.yaml"])
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    pod = parts["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    for one in (pod, head):
        mounted = {mount["name"] for mount in one["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in one["volumes"]}
    assert pod["containers"][0]["command"][-1].removeprefix("/fuzz/") in files
    assert job["spec"]["entrypoint"].removeprefix("bash /fuzz/") in files
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert f"--workers {workers['replicas']} " in files["night.sh"]
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None and job["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]
    assert parts["Role"]["rules"][0]["resources"] == ["rayjobs"]
