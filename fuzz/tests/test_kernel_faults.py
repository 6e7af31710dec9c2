"""The kernels' tester, tested: every planted fault is killed by the search of the commit profile, and by its name.

By day one fault of each kind and each set of properties is planted, by night all of them.

The search's cases are a fixed list. Each fault begins with the case that docs/generated/kernel-faults.md says kills it.
Then come the others, cheapest first: if the page is out of date, the tests only become slow. The changes that cannot
move a result must survive.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from fuzz.tools import kernel_layers as layers
from fuzz.zoo import Bug, kernel_bugs
from properties.attention.cases import Case
from properties.attention.checks import Blind, Checker, poison_is_seen
from properties.attention.tests import test_vllm_51902 as pair
from properties.machines import seed_for
from properties.machines.attention import run_cases
from properties.suite.test_attention import BUDGET, CASES
from properties.targets.kvcore_kernels import KvcoreKernels
from reference import Equivalence, Freshness

ROOT = Path(__file__).parents[2]
RECORDED = layers.recorded()


def faults(by: str, *, all_by_day: bool = False) -> list[object]:
    """Faults as parameters. The first of each kind and set of properties is planted by day, the others by night."""
    parameters = []
    seen: set[object] = set()
    for fault in kernel_bugs():
        if fault.by == by:
            what = fault.kind, fault.properties
            marks = [] if all_by_day or what not in seen else [pytest.mark.nightly]
            parameters.append(pytest.param(fault, id=f"{fault.kind}: {fault.title}", marks=marks))
            seen.add(what)
    return parameters


def named(part: str) -> Bug:
    (fault,) = (fault for fault in kernel_bugs() if fault.title.startswith(part))
    return fault


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return layers.commit_cases()


@pytest.fixture(scope="module")
def cheap_first(cases: list[Case]) -> list[int]:
    return layers.cheap_first(cases)


@pytest.mark.parametrize("fault", faults("cases"))
def test_the_commit_profile_kills_it(fault: Bug, cases: list[Case], cheap_first: list[int]) -> None:
    kernels = layers.kernels_with(fault)
    first = [place for place in (RECORDED.get(fault.title),) if place is not None and place < len(cases)]
    for place in first + cheap_first:
        violation = layers.violation(kernels, cases[place])
        if violation is not None:
            assert violation.id in fault.properties, violation
            return
    pytest.fail(f"{len(cases)} cases and no violation")


@pytest.mark.parametrize("fault", faults("nothing"))
def test_what_cannot_change_a_result_survives(fault: Bug, cases: list[Case], cheap_first: list[int]) -> None:
    """With a few cases that together walk every axis; the page was made with all of them."""
    kernels = layers.kernels_with(fault)
    for place in covering(cases, cheap_first):
        assert layers.violation(kernels, cases[place]) is None


def covering(cases: list[Case], order: list[int]) -> list[int]:
    """Of the cheaper half, whatever adds most axes, until all are walked."""
    left = [
        place
        for place in order[: len(order) // 2]
        if any(context > cases[place].leaf and rows for context, rows in cases[place].sequences)
    ]
    seen: set[str] = set()
    chosen = []
    while left:
        best = max(left, key=lambda place: len({*cases[place].axes} - seen))
        if seen.issuperset(cases[best].axes):
            break
        seen.update(cases[best].axes)
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("fault", faults("machine"))
def test_the_machine_kills_it(fault: Bug) -> None:
    violation = layers.machine(layers.kernels_with(fault))
    assert violation is not None and violation.id in fault.properties


# ---- what needs an occasion of its own -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def beyond() -> dict[str, list[str]]:
    """For each fault of addresses what became of its scenario; "" is for the kernels as they are, in all scenarios."""
    command = [sys.executable, "-m", "fuzz.tools.kernel_layers", "--large"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {name: found for name, *found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("fault", faults("large", all_by_day=True))
def test_a_large_cache_kills_it(fault: Bug, beyond: dict[str, list[str]]) -> None:
    property_id, message = beyond[fault.title]
    assert property_id in fault.properties, message


def test_kernels_as_they_are_reach_all_of_a_large_cache(beyond: dict[str, list[str]]) -> None:
    assert beyond[""] == ["", ""]


@pytest.mark.parametrize("fault", faults("control", all_by_day=True))
def test_the_audits_control_kills_it(fault: Bug) -> None:
    with pytest.raises(Freshness):
        layers.alarms(layers.kernels_with(fault))


def test_the_audit_is_right_as_it_is() -> None:
    layers.alarms(KvcoreKernels())


def test_the_pair_of_vllm_51902_kills_its_fault() -> None:
    kernels = layers.kernels_with(named("tile width by the longest chunk"))
    with pytest.raises(Equivalence, match="decode row has other bits where the prefill has 10 tokens"):
        pair.compare(kernels, "bfloat16", pair.CONTEXTS["several leaves"])


def test_kernels_that_hide_poison_are_called_blind() -> None:
    with pytest.raises(Blind):
        poison_is_seen(layers.kernels_with(named("bytes: NaN read as 480")), "float8_e4m3")


# ---- the list of cases is the search ---------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["a row does not see its own key", "combine: leaves merged backwards"])
def test_the_search_finds_the_same(part: str, cases: list[Case]) -> None:
    fault = named(part)
    kernels = layers.kernels_with(fault)
    found = run_cases(kernels, Checker(kernels), layers.commit_settings(), seed_for("commit"), BUDGET["commit"])
    number = next(place for place, case in enumerate(cases) if layers.violation(kernels, case) is not None)
    assert found.case == cases[number]
    assert found.violation is not None and found.violation.id in fault.properties
    assert len(cases) == CASES["commit"]


def test_what_is_found_shrinks() -> None:
    fault = named("one key too few is known")
    kernels = layers.kernels_with(fault)
    chosen = layers.commit_settings(shrink=True)
    found = run_cases(kernels, Checker(kernels), chosen, seed_for("commit"), BUDGET["commit"])
    assert found.case is not None and found.case.sequences == ((1, 1),)
    assert found.violation is not None and found.violation.id in fault.properties


def test_the_page_has_every_fault() -> None:
    text = layers.PAGE.read_text(encoding="utf-8")
    assert [fault.title for fault in kernel_bugs() if fault.title not in text] == []
    assert {fault.title for fault in kernel_bugs() if fault.by == "cases"} == RECORDED.keys()
