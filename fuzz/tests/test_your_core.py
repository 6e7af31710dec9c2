"""docs/your-core.md keeps its word: the adapter there is the example, and finds what the page shows, from anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "fuzz" / "example" / "toy.py"
PAGE = ROOT / "docs" / "your-core.md"

FIXED = """
from toy import Toy, ToyTarget

class Right(Toy):
    def take(self):
        block = super().take()
        self.index = {tokens: named for tokens, named in self.index.items() if named != block}
        return block

class RightTarget(ToyTarget):
    def __init__(self, configuration):
        super().__init__(configuration)
        self.core = Right(configuration.num_blocks, configuration.block_size)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m ARGUMENTS` in an empty folder, as in another project's repository that has the adapter."""
    path = os.pathsep.join([str(ROOT), str(EXAMPLE.parent), str(folder / "mine")])
    # Not what a CI that runs this suite has set for it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI"))}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_page_shows_the_example() -> None:
    shown = re.search(r"```python\n(class ToyTarget.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    assert shown.group(1).strip() in EXAMPLE.read_text()
    assert 40 <= len(shown.group(1).splitlines()) <= 60


def test_the_page_shows_what_the_example_gives(tmp_path: Path) -> None:
    shown = re.search(r"\$ (python -m fuzz run .*?)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    done = run(tmp_path, *shown.group(1).split()[2:])
    assert done.returncode == 1, done.stderr
    assert shown.group(2).strip() in done.stdout


@pytest.mark.parametrize(("target", "status"), [("toy:make", 1), ("fixed:RightTarget", 0)])
def test_the_suite_runs_from_an_empty_folder(tmp_path: Path, target: str, status: int) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "fixed.py").write_text(FIXED)
    done = run(
        tmp_path,
        *(
            "pytest",
            "-p",
            "properties.plugin",
            "--pyargs",
            "properties.suite.test_contract",
            "--target",
            target,
            "-q",
            "-rs",
        ),
        *("-p", "no:cacheprovider", "-k", "not same_operations"),
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "the core has no capability FORK: fork" in done.stdout
    assert ("PUBLISH" in done.stdout or "HISTORY" in done.stdout) == bool(status)
