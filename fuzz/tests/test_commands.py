"""Every command of every document does what it says: understood every day, and run from the wheel every night."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from shlex import split
from typing import Any

import pytest
import typer

from fuzz.cli import app
from fuzz.tools.documented import JOBS, Command, Trial, commands, commands_in, trial_of

from .installed import ROOT, Installed, install

COMMANDS = commands()
IDS = [f"{command.page}: {command}" for command in COMMANDS]


# ---- every day -------------------------------------------------------------------------------------------------------


def understood(command: Command) -> None:
    """Raises if there is no such command, option, value, target or module. Nothing is run."""
    trial = trial_of(command)
    words = command.words
    arguments = command.fuzz
    if arguments:
        group: Any = typer.main.get_command(app)
        context = group.make_context("fuzz", list(arguments[:1])) if arguments[0].startswith("-") else None
        if context is None:
            group.commands[arguments[0]].make_context(arguments[0], list(arguments[1:]))
    elif trial.kind == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{re.escape(words[1])}:", makefile, re.MULTILINE), f"no target {words[1]}"
    elif trial.kind in ("help", "module"):
        assert find_spec(words[2]) is not None, f"no module {words[2]}"
    elif trial.kind == "extras":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        named = re.findall(r"\[([\w,]+)\]", " ".join(words))
        assert {name for names in named for name in names.split(",")} <= set(extras)
    elif words[0] == "pytest":
        assert {word for word in words if word.startswith("--")} <= {"--pyargs", "--target", "--profile", "--kernels"}


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_command_is_understood(command: Command) -> None:
    try:
        understood(command)
    except typer.Exit:  # --version, which has said it
        assert "--version" in command.words


def test_what_is_not_run_has_a_reason_and_is_not_ours() -> None:
    trials = {command: trial_of(command) for command in COMMANDS}
    assert all(trial.instead for trial in trials.values() if trial.kind != "installed")
    assert all(trial.kind == "installed" for command, trial in trials.items() if command.fuzz is not None)
    assert len([trial for trial in trials.values() if trial.kind == "installed"]) >= 60


def test_the_first_pages_and_the_scheduled_jobs_have_commands() -> None:
    docs = ("campaigns.md", "commands.md", "your-core.md", *(f"examples/{path.name}" for path in JOBS))
    found = {command.page for command in COMMANDS if command.fuzz is not None}
    assert {"README.md", *(f"docs/{name}" for name in docs)} <= found


def test_a_wrong_command_would_be_seen() -> None:
    for text in (
        "python -m fuzz run --campain x",
        "python -m fuzz replay --keep-going x.json",
        "make tests",
        "pytest -x --taget a",
        "replay --keep-going",
    ):
        (command,) = commands_in(f"{text}  # a remark\n", "page")
        with pytest.raises(Exception, match=r".+"):
            understood(command)
    with pytest.raises(ValueError, match="nobody has said"):
        trial_of(Command("page", ("python", "-m", "properties.nosuch")))


# ---- every night, from the wheel -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("wheel"))


CORRECT = """
from toy import Toy, ToyTarget

class Index(dict):
    def __init__(self):
        super().__init__()
        self.by_block = {}

    def __setitem__(self, tokens, block):
        super().__setitem__(tokens, block)
        self.by_block.setdefault(block, []).append(tokens)

class Right(Toy):
    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.index = Index()

    def take(self):
        block = super().take()
        for tokens in self.index.by_block.pop(block, ()):
            if self.index.get(tokens) == block:
                del self.index[tokens]
        return block

class RightTarget(ToyTarget):
    def __init__(self, configuration):
        super().__init__(configuration)
        self.core = Right(configuration.num_blocks, configuration.block_size)

make = RightTarget
"""


@pytest.fixture(scope="session")
def nights(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages assume: findings of earlier commands, an exploration, an interrupted night."""
    folder = tmp_path_factory.mktemp("nights")
    for name in ("ALIASING-d3493685", "HISTORY-ad5d3e42"):
        _stored(folder / "fuzz-out" / "findings" / name)
    done = installed.run(
        folder, *split("kvcore-fuzz run --target fuzz.zoo:NV-1 --engine walk --seed 1 --out night --budget 20s")
    )
    assert done.returncode == 1, done.stderr
    _stored(folder / "night" / "findings" / "OWNERSHIP-5988faad")
    shutil.copytree(folder / "night", folder / "fuzz-out", dirs_exist_ok=True)
    journal = folder / "night" / "campaign.json"
    journal.write_text(
        re.sub(r'"seconds": [\d.]+', '"seconds": 0.0', journal.read_text().replace('"ended": true', '"ended": false'))
    )
    explored = "kvcore-fuzz explore --blocks 2 --block-size 2 --max-tokens 3 --out fuzz-out/pairs --max-states 100"
    assert installed.run(folder, *split(explored)).returncode == 0
    return folder


def _stored(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "docs" / "counterexamples" / "stale-index.json", folder / "counterexample.json")


def prepare(folder: Path, nights: Path) -> None:
    """The files that a page assumes: a package with an adapter, counterexamples, recordings, a campaign's file."""
    shutil.copytree(nights, folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in ("scenarios", "regressions"):
        shutil.copytree(ROOT / "fuzz" / name, folder / "fuzz" / name)
    shutil.copy(ROOT / "fuzz" / "example" / "toy.py", folder / "toy.py")
    for package, module in (("my_package", "adapter"), ("mycore", "testing")):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        (folder / package / f"{module}.py").write_text(CORRECT)
    (folder / "my_package" / "kernels.py").write_text("from properties.targets.kvcore_kernels import make\n")
    stale = ROOT / "docs" / "counterexamples" / "stale-index.json"
    for name in ("finding.json", "FILE", "incident.jsonl", "nano.jsonl"):
        shutil.copy(stale, folder / name)
    trace = (ROOT / "fuzz" / "traces" / "multi_turn.jsonl").read_bytes()
    (folder / "conversation_trace.jsonl.gz").write_bytes(gzip.compress(trace))
    (folder / "night.toml").write_text('targets = ["kvcore"]\nbudget = "2s"\nworkers = 2\n')
    (folder / "README.md").write_text("<!-- compare: begin -->\n<!-- compare: end -->\n")
    (folder / "regressions").mkdir()
    (folder / "regressions" / "test_kept.py").write_text("def test_kept() -> None: ...\n")


def tried(trial: Trial, command: Command, folder: Path, installed: Installed) -> None:
    if trial.kind == "make":
        done = subprocess.run(["make", "-n", *trial.words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    elif trial.kind == "help":
        options = [word for word in trial.words[3:] if word.startswith("--")]
        subcommand = [word for word in trial.words[3:4] if not word.startswith("-")]
        run = [sys.executable, "-m", trial.words[2], *subcommand, "--help"]
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert [option for option in options if option not in done.stdout] == []
    elif trial.kind == "installed":
        done = installed.run(folder, *trial.words)
        said = f"{trial.words}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert done.returncode in trial.statuses, said
        assert "Traceback" not in done.stderr and "the harness itself failed" not in done.stderr, said
    else:
        understood(command)


@pytest.mark.nightly
@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_command_does_what_its_page_says(
    command: Command, nights: Path, installed: Installed, tmp_path: Path
) -> None:
    prepare(tmp_path, nights)
    if "explore" in command.words and "--resume" not in command.words:
        shutil.rmtree(tmp_path / "fuzz-out" / "pairs")  # what it makes itself
    tried(trial_of(command), command, tmp_path, installed)


@pytest.mark.nightly
def test_the_first_steps_of_a_user(installed: Installed, tmp_path: Path) -> None:
    """The example, a finding, its replay, a regression test and the suite: from an empty folder, installed."""
    printed = installed.run(tmp_path, "kvcore-fuzz", "example")
    (tmp_path / "toy.py").write_text(printed.stdout)
    found = installed.run(tmp_path, *split("kvcore-fuzz run --target toy:make --engine walk --seed 1"))
    assert found.returncode == 1, found.stderr
    (finding,) = (tmp_path / "fuzz-out" / "findings").iterdir()
    named = ("--target", "toy:make")
    assert (
        installed.run(tmp_path, "kvcore-fuzz", "replay", str(finding / "counterexample.json"), *named).returncode == 1
    )
    assert installed.run(tmp_path, "kvcore-fuzz", "promote", str(finding), *named).returncode == 0
    assert installed.run(tmp_path, "pytest", "-q", "regressions").returncode == 1, "red until the bug is fixed"
    suite = installed.run(tmp_path, *split("pytest -q --pyargs properties.suite.test_contract --target toy:make"))
    assert suite.returncode == 1 and "cannot import" not in suite.stdout + suite.stderr, suite.stdout + suite.stderr
    said = installed.run(tmp_path, "kvcore-fuzz", "--version")
    assert said.returncode == 0 and "kvcore-fuzz 0" in said.stdout


@pytest.mark.nightly
def test_completion_answers_a_shell(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_KVCORE_FUZZ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "kvcore-fuzz re")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert set(installed.run(tmp_path, "kvcore-fuzz").stdout.split()) == {"replay", "report"}
