"""What capabilities and a policy mean for a session: which properties it checks, and why not the others.

Every summary says both. Also: which capabilities a policy rules out.
"""

from __future__ import annotations

from reference import PROPERTIES, Policy

from .target import Capability

__all__ = ["KERNELS", "NEEDS", "require_possible", "unchecked"]

KERNELS = ("BOUNDS", "EQUIVALENCE")
"""Properties of kernels: checked only where some run beside the allocator."""

_COMPLETE = ("COMPLETENESS", "EVICTION")

NEEDS: dict[str, Capability | None] = {
    "FRESHNESS": None,
    "HISTORY": None,
    "ISOLATION": Capability.NAMESPACES,
    "ALIASING": None,
    "LIFETIME": None,
    "EXCLUSIVE": None,
    "PUBLISH": None,
    "ROLLBACK": Capability.TRUNCATE,
    "MAPPING": Capability.BATCH,
    "RECOMPUTE": None,
    "BOUNDS": None,
    "EQUIVALENCE": None,
    "CRASH": None,
    "ERRORS": Capability.REFUSES,
    "ADMISSION": None,
    "COMPLETENESS": None,
    "OWNERSHIP": Capability.INSPECT,
    "RELEASE": None,
    "REFERENCES": Capability.INSPECT,
    "CONSERVATION": Capability.INSPECT,
    "EVICTION": None,
    "EXACT": None,
    "INTERNAL": Capability.CHECK,
    "COUNTERS": Capability.COUNTERS,
    "GROWTH": Capability.FOOTPRINT,
    "KEYS": Capability.KEYS,
}
"""The capability without which a property is not checked; None: it is checked of every target."""

if PROPERTIES.keys() != NEEDS.keys():
    raise TypeError(f"NEEDS and PROPERTIES differ in {', '.join(sorted(PROPERTIES.keys() ^ NEEDS.keys()))}")

_NOT_BY_STEP = frozenset({Capability.FORK, Capability.MATCH, Capability.CLONE})


def unchecked(capabilities: frozenset[Capability], policy: Policy, kernels: bool = False) -> dict[str, str]:
    """Properties that a session does not check, with the reason. In order of harm.

    capabilities, policy: the session's and its judge's. kernels: whether steps run on any. O(properties)."""
    reasons = {}
    for name in PROPERTIES:
        needed = NEEDS[name]
        if needed is not None and needed not in capabilities:
            reasons[name] = f"the target has no capability {needed.name}: {needed.value}"
        elif name in KERNELS and not kernels:
            reasons[name] = "no kernels are run beside the allocator (--kernels)"
        elif name == "EXACT" and not policy.exact:
            reasons[name] = "the order of blocks is not predicted"
        elif name in _COMPLETE and not policy.complete:
            reasons[name] = "the target's policy is to drop content earlier than it must (Policy.complete)"
        elif name == "EVICTION" and policy.duplicates == "last":
            reasons[name] = "the target's policy is to forget all duplicates but the last (Policy.duplicates)"
        elif name == "EVICTION" and policy.windowed:
            reasons[name] = "what lies behind a window is let go before what extends it (Policy.windows)"
    return reasons


def require_possible(name: str, capabilities: frozenset[Capability], policy: Policy) -> None:
    """Raises ValueError if the target called `name` cannot have both these capabilities and this policy."""
    if policy.admission == "step" and (cannot := sorted(kind.name for kind in capabilities & _NOT_BY_STEP)):
        raise ValueError(f"{name}: with Policy.admission 'step' there can be no {', '.join(cannot)}")
    if policy.windowed and policy.truncates == "tokens" and Capability.TRUNCATE in capabilities:
        raise ValueError(
            f"{name}: behind a window nothing is kept that a truncation could go back to; with TRUNCATE "
            "Policy.truncates must be 'placeholders'"
        )
