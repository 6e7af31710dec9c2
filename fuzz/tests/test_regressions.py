"""Every counterexample that was once real stays fixed, every scenario stays clean. To add one, put a file there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.runs.counterexample import read
from fuzz.runs.perform import perform
from properties.targets import load

FOLDERS = [Path(__file__).parents[1] / name for name in ("regressions", "scenarios")]
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.json"))


def test_there_are_some() -> None:
    assert len(FILES) >= 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stored_run_is_clean(path: Path) -> None:
    stored = read(path)
    run = perform(load(stored.target), stored.configuration, stored.operations, stored.judging, strict=True)
    assert run.violation is None, run.violation
    assert not any(outcome.status == "skipped" for outcome in run.outcomes)
