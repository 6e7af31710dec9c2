"""EQUIVALENCE and BOUNDS: the kernels alone, and beside the allocator, under the profile chosen.

A failure shows one line of JSON, the case, or the operations, and the command that replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from properties.laws import Law
from properties.machines import run_machine, seed_for, settings_for
from properties.operations import Configuration
from properties.target import TargetFactory

from .test_machine import describe

if TYPE_CHECKING:
    from properties.attention.kernels import Kernels

CASES = {"commit": 100, "nightly": 2000, "soak": 20_000}
"""Generated cases of the kernels alone, by profile."""

EXAMPLES = {"commit": (20, 12), "nightly": (400, 30), "soak": (4000, 60)}
"""(machines, steps of each) with the allocator, by profile."""

BUDGET = {"commit": 20, "nightly": 48, "soak": 96}
"""Tiles of a case's base run: about 7 ms each in the interpreter."""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3"])
def test_poison_is_seen(kernels: Kernels, dtype: str) -> None:
    """The positive control comes first: without it, no NaN proves nothing."""
    from properties.attention.checks import poison_is_seen

    poison_is_seen(kernels, dtype)


def test_paged_attention_is_the_reference_and_keeps_its_bits(kernels: Kernels, profile: str) -> None:
    """Under the profile `commit` the first half of the cases: two tests, so that two processes share them."""
    check_cases(kernels, profile, 0, CASES[profile] // 2 if profile == "commit" else CASES[profile])


def test_the_other_half_of_the_commit_profile(kernels: Kernels, profile: str) -> None:
    if profile != "commit":
        pytest.skip("the longer profiles run all of their cases in one test")
    check_cases(kernels, profile, CASES[profile] // 2, CASES[profile])


def check_cases(kernels: Kernels, profile: str, first: int, end: int) -> None:
    """Cases `first` to `end` of the profile's search."""
    from properties.attention.checks import Checker
    from properties.machines.attention import run_cases

    seed = seed_for(profile)
    print(f"profile {profile}, seed {seed}")
    checker = Checker(kernels)
    chosen = settings(settings_for(profile), max_examples=end)
    report = run_cases(kernels, checker, chosen, seed, BUDGET[profile], first=first)
    counts = checker.counts
    print(
        f"{counts.cases} cases in {report.seconds:.0f} s: {counts.row_heads} row-heads within tolerance (largest part "
        f"of it: {', '.join(f'{name} {part:.2f}' for name, part in sorted(counts.worst.items()))}), "
        f"{sum(counts.compared.values())} compared bit by bit: {counts.compared}; {counts.accesses} accesses sanitized"
    )
    if report.violation is not None:
        assert report.case is not None
        pytest.fail(
            f"{report.violation}\nseed {seed}; replay it by python -m fuzz attention --case:\n{report.case.to_json()}",
            pytrace=False,
        )
    assert counts.cases + sum(counts.skipped.values()) >= end - first


def test_the_allocator_and_the_kernels_together(
    kernels: Kernels, target_factory: TargetFactory, target_name: str, profile: str
) -> None:
    from properties.attention.law import KernelLaw, kernel_laws

    seed = seed_for(profile)
    print(f"profile {profile}, seed {seed}")
    examples, steps = EXAMPLES[profile]
    chosen = settings(settings_for(profile), max_examples=examples, stateful_step_count=steps)
    made: list[KernelLaw] = []

    def laws(configuration: Configuration) -> Sequence[Law]:
        own = kernel_laws(kernels)(configuration)
        made.extend(law for law in own if isinstance(law, KernelLaw))
        return own

    report = run_machine(target_factory, chosen, seed, laws=laws)
    print(
        f"{report.examples} examples, {report.operations} operations, {sum(law.steps for law in made)} steps run, "
        f"{sum(law.compared for law in made)} row-heads compared, {report.seconds:.0f} s"
    )
    if report.violation is not None:
        pytest.fail(describe(report, target_name), pytrace=False)
    assert sum(law.steps for law in made) > examples
