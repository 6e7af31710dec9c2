"""What a campaign checks: the capabilities and policies of its targets, and which properties nothing of it checks."""

from __future__ import annotations

from dataclasses import dataclass

from properties.coverage import unchecked
from properties.operations import REUSES, Configuration
from properties.target import Capability
from properties.targets import load
from reference import PROPERTIES, Policy

from ..engines.registry import not_hunted, on_kernels
from .plan import CampaignPlan

__all__ = ["Checks", "checks_of"]


@dataclass(frozen=True, slots=True)
class Checks:
    """capabilities: of any of the sessions. unchecked: by property, why none of them checks it."""

    capabilities: frozenset[Capability]
    policies: list[Policy]
    unchecked: dict[str, str]


def checks_of(plan: CampaignPlan) -> Checks:
    """Makes each target under each configuration. A property is checked if any of these sessions checks it."""
    capabilities: frozenset[Capability] = frozenset()
    reasons: list[dict[str, str]] = []
    policies: list[Policy] = []
    engines = [name for name, share in plan.engines.items() if share > 0]
    with_kernels = bool(plan.kernels) and on_kernels(engines)
    for target in plan.targets:
        factory = load(target)
        for variant in plan.configurations:
            judging = variant.judging()
            session = judging.session(factory, Configuration())
            capabilities |= session.capabilities
            reasons.append(unchecked(session.capabilities, session.judge.policy, with_kernels))
            policies += [judging.session(factory, Configuration(reuse=reuse)).judge.policy for reuse in REUSES]
    nowhere = {name: reason for name, reason in reasons[0].items() if all(name in each for each in reasons)}
    nowhere = {**not_hunted(engines), **nowhere}
    return Checks(capabilities, policies, {name: nowhere[name] for name in PROPERTIES if name in nowhere})
