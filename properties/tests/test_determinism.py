"""Determinism is law: the same operations give the same run, in this process and in any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import properties

from .support import TOUR, digest, record, stumbling

ROOT = str(Path(str(properties.__file__)).parents[1])

OPTIONS: list[dict[str, Any]] = [
    {"num_blocks": 5, "block_size": 2, "hash_bits": 0, "reuse": "last_token"},
    {"num_blocks": 12, "block_size": 1, "hash_bits": 1},
    {"num_blocks": 6, "block_size": 3},
    {"num_blocks": 6, "block_size": 3, "caching": False},
]


def test_a_tour_through_every_operation_is_the_same_twice() -> None:
    assert record(TOUR) == record(TOUR)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_outcomes_tables_canonical_states_and_events_are_the_same_twice(options: dict[str, Any]) -> None:
    for seed in range(4):
        operations = stumbling(seed, 80)
        assert record(operations, **options) == record(operations, **options)


def test_a_record_tells_runs_apart() -> None:
    assert record(TOUR) != record(TOUR[:-1])
    assert record(TOUR) != record(TOUR, num_blocks=9)


@pytest.mark.parametrize("seed", ["1", "4321"])
def test_another_process_with_other_hashes_gives_the_same_runs(seed: str) -> None:
    code = "import properties.tests.support as support; print(hash('a')); print(support.digest())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    hashed, result = done.stdout.split()
    assert int(hashed) != hash("a"), "the other process should hash strings in another way"
    assert result == digest()
