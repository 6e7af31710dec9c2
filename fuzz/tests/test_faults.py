"""Each fault on purpose ends as it has to: nothing green that is not, nothing found that is lost, the right one blamed.

The quick ones run every day, the others in the nightly suite; `python -m fuzz.tools.faults` makes a table of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.tools.faults.fault import Came, Cannot, Fault, Place
from fuzz.tools.faults.table import FAULTS, attempt


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.name, marks=() if fault.quick else (pytest.mark.nightly,)) for fault in FAULTS],
)
def test_a_fault_ends_as_it_has_to(fault: Fault, tmp_path: Path) -> None:
    try:
        fault.attempt(Place(tmp_path))
    except Cannot as error:
        pytest.skip(str(error))


def test_every_fault_has_a_name_of_its_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names))


def test_a_fault_that_fails_in_itself_is_a_wrong_one_and_not_the_end(tmp_path: Path) -> None:
    def fail(_: Place) -> Came:
        raise OSError("not a word")

    row = attempt(Fault("fails", "disk", "fails", False, fail), tmp_path)
    assert row.status is None
    assert "not a word" in row.wrong
