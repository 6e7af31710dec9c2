"""What the documentation says is what happens: outputs and lists in it are compared with the real ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fuzz.cli import app, replay
from properties.operations import OPERATIONS
from reference import PROPERTIES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_six_moments_in_the_readme_are_the_real_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "console", Console(width=110, highlight=False))
    result = CliRunner().invoke(app, ["replay", "fuzz/scenarios/six_moments.json"])
    shown = README.split("$ python -m fuzz replay fuzz/scenarios/six_moments.json\n")[1].split("```")[0]
    assert _lines(shown) == _lines(result.output)


def test_the_readme_names_every_property_with_its_statement() -> None:
    rows = dict(re.findall(r"^\| ([A-Z]+) \| ([^|]+) \|$", README, re.MULTILINE))
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


def _commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `python -m fuzz ...`, up to the shell's next word of its own."""
    text = re.sub(r"\$\{[^}]*\}", "", text.replace("\\\n", " "))
    for line in re.findall(r"python -m fuzz (.*)", text):
        words = shlex.shlex(re.split(r"`|\s#|\s*[|;]|\s\d?[<>]", line)[0], posix=True)
        words.whitespace_split = True
        yield list(words)


def _understood(arguments: list[str]) -> None:
    """Raises if the command line has no such command, option or value. Nothing is run."""
    command: Any = typer.main.get_command(app)
    name, *rest = arguments
    command.commands[name].make_context(name, rest)


EXAMPLES = [ROOT / "README.md", ROOT / "docs" / "campaigns.md", *sorted((ROOT / "docs" / "examples").iterdir())]


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.name)
def test_commands_in_the_examples_are_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        text = "".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    commands = list(_commands(text))
    assert commands
    for arguments in commands:
        _understood(arguments)


def test_a_wrong_command_would_be_seen() -> None:
    (arguments,) = _commands("python -m fuzz run --campain nightly \\\n  --out night || exit 1\n")
    assert arguments == ["run", "--campain", "nightly", "--out", "night"]
    with pytest.raises(Exception, match="campain"):
        _understood(arguments)


def test_the_scheduled_jobs_are_what_their_readers_take() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with Ray: pip install 'kvcore[ray]'")
    examples = ROOT / "docs" / "examples"
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
