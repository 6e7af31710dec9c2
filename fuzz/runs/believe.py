"""What was asked of a target, and what it has instead.

An adapter may ignore a part of the configuration that it is asked for: its core has one block size, or no reuse policy
to choose. Findings are named by what the target believes, so that one bug is not one finding for each thing asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from properties.boundary import made
from properties.operations import Configuration
from properties.target import TargetFactory
from reference import Policy, believed

from .values import Counterexample

__all__ = ["as_believed", "had", "in_words"]


def had(configuration: Configuration, policy: Policy) -> Configuration:
    """`configuration` with what the target has instead of what was asked, by its policy. O(1)."""
    return replace(configuration, block_size=policy.block_size, reuse=policy.reuse, caching=policy.caching)


def in_words(policy: Mapping[str, Any]) -> str:
    """What `reference.believed` gave, for people."""
    return ", ".join(f"{name} {value}" for name, value in policy.items()) or "the usual policy"


def as_believed(found: Counterexample, factory: TargetFactory) -> Counterexample:
    """`found` with the configuration that the target has, and the policy that it is judged by.

    The configuration stays where the target does not believe the same when it is asked for that. It makes a target or
    two; whatever that ends in leaves `found` as it is."""
    try:
        policy = made(factory, found.configuration).policy
        own = had(found.configuration, policy)
        if own != found.configuration and made(factory, own).policy != policy:
            own = found.configuration
        return replace(found, configuration=own, policy=believed(policy))
    except Exception:  # the harness has to keep what it has found, whatever the target does by now
        return found
