"""Which properties a session with given capabilities checks, and why it does not check the others.

Every summary lists both.
"""

from __future__ import annotations

from reference import PROPERTIES, Policy

from .target import Capability

__all__ = ["unchecked"]

_NEEDS: dict[str, Capability] = {
    "ISOLATION": Capability.NAMESPACES,
    "ROLLBACK": Capability.TRUNCATE,
    "MAPPING": Capability.BATCH,
    "ERRORS": Capability.REFUSES,
    "OWNERSHIP": Capability.INSPECT,
    "REFERENCES": Capability.INSPECT,
    "CONSERVATION": Capability.INSPECT,
    "INTERNAL": Capability.CHECK,
}


_KERNELS = ("BOUNDS", "EQUIVALENCE")
_COMPLETE = ("COMPLETENESS", "EVICTION")


def unchecked(capabilities: frozenset[Capability], policy: Policy, kernels: bool = False) -> dict[str, str]:
    """Properties that a session does not check, with the reason. In order of harm.

    capabilities, policy: the session's and its judge's. kernels: whether steps run on any."""
    reasons = {}
    for name in PROPERTIES:
        needed = _NEEDS.get(name)
        if needed is not None and needed not in capabilities:
            reasons[name] = f"the target has no capability {needed.name}: {needed.value}"
        elif name in _KERNELS and not kernels:
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
