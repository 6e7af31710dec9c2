"""What a campaign checks: the capabilities and policies of its targets, and which properties nothing of it checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from properties.coverage import unchecked
from properties.target import Capability
from reference import PROPERTIES, Policy

from ..engines.registry import not_hunted, on_kernels
from .plan import CampaignPlan
from .probe import Probed

__all__ = ["Checks", "checks_of"]


@dataclass(frozen=True, slots=True)
class Checks:
    """capabilities: of any of the sessions. unchecked: by property, why none of them checks it. inspected: targets into
    which a session may look."""

    capabilities: frozenset[Capability]
    policies: list[Policy]
    unchecked: dict[str, str]
    inspected: frozenset[str] = frozenset()


def checks_of(plan: CampaignPlan, probed: Mapping[str, Probed]) -> Checks:
    """A property is checked if any of the targets' sessions checks it, under any configuration. probed: by target."""
    capabilities: frozenset[Capability] = frozenset()
    reasons: list[dict[str, str]] = []
    policies: list[Policy] = []
    engines = [name for name, share in plan.engines.items() if share > 0]
    with_kernels = bool(plan.kernels) and on_kernels(engines)
    for target in plan.targets:
        known = probed[target]
        for variant in plan.configurations:
            able = known.outside if variant.outside else known.inside
            capabilities |= able
            if known.policy is not None:
                reasons.append(unchecked(able, known.policy, with_kernels))
            policies += known.policies
    first = reasons[0] if reasons else {}
    nowhere = {name: reason for name, reason in first.items() if all(name in each for each in reasons)}
    nowhere = {**not_hunted(engines), **nowhere}
    inspected = frozenset(target for target in plan.targets if probed[target].inside != probed[target].outside)
    return Checks(capabilities, policies, {name: nowhere[name] for name in PROPERTIES if name in nowhere}, inspected)
