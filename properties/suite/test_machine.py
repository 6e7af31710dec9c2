"""The state machine, under the profile chosen: every property, over drawn configurations and operations.

A failure shows the operations that break the property, as the JSON lines that replay on any target.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import settings

from properties.machines import MachineReport, run_machine, seed_for, settings_for
from properties.operations import Configuration, encode
from properties.target import Capability, TargetFactory


def describe(report: MachineReport, target_name: str) -> str:
    """The counterexample, to be read and to be replayed."""
    assert report.configuration is not None
    lines = [
        f"{report.violation}",
        f"target {target_name}, seed {report.seed}, {report.examples} examples, {report.operations} operations"
        + (", flaky: it did not fail again" if report.flaky else ""),
        f"on {report.configuration}; these operations, then a drain:",
        json.dumps(report.configuration.to_json()),
        *(json.dumps(encode(operation)) for operation in report.counterexample),
    ]
    return "\n".join(lines)


def run(factory: TargetFactory, name: str, profile: str, *, full: bool) -> MachineReport:
    """`full` is everything; otherwise a third as many examples, judged from the outside and without prediction."""
    seed = seed_for(profile)
    chosen = settings_for(profile)
    if not full:
        chosen = settings(chosen, max_examples=chosen.max_examples // 3)
    print(f"profile {profile}, seed {seed}")
    report = run_machine(factory, chosen, seed, outside=not full, exact=full)
    print(f"{report.examples} examples, {report.operations} operations, {report.seconds:.1f} s")
    if report.violation is not None:
        pytest.fail(describe(report, name), pytrace=False)
    return report


def test_every_property_holds(target_factory: TargetFactory, target_name: str, profile: str) -> None:
    report = run(target_factory, target_name, profile, full=True)
    assert report.fewest > 0, "an example executed no operation"


def test_safety_holds_as_seen_from_outside(target_factory: TargetFactory, target_name: str, profile: str) -> None:
    """No inspection and no prediction: what a core that shows nothing but its tables is judged by."""
    target = target_factory(Configuration())
    if Capability.INSPECT not in target.capabilities and not target.policy.exact:
        pytest.skip("the core shows no internals and predicts nothing: the other test is this one")
    run(target_factory, target_name, profile, full=False)
