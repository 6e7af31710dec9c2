"""What a target says of itself, asked in a process of its own.

To import it and to make one is the first that may go wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from properties.attention.interpret import hindrance
from properties.boundary import ended, no_target
from properties.operations import REUSES, Configuration
from properties.target import Capability
from properties.targets import UnknownTarget, load
from reference import Policy

from ..runs.child import Ended, each
from ..runs.values import Judging

__all__ = ["Probed", "probe"]

_SECONDS = 120.0
"""That importing and making a target may take; some import torch."""


@dataclass(frozen=True, slots=True)
class Probed:
    """inside, outside: what a session can do that looks into the core, or does not. policy: with the usual
    configuration. policies: with each kind of reuse. hindrance: why kernels cannot be interpreted beside it (see
    `properties.attention.interpret`); "" if they can. error: why there is none of this; then the rest is empty.
    unknown: there is no such target at all."""

    inside: frozenset[Capability] = frozenset()
    outside: frozenset[Capability] = frozenset()
    policy: Policy | None = None
    policies: tuple[Policy, ...] = ()
    hindrance: str = ""
    error: str = ""
    unknown: bool = False


def probe(targets: Iterable[str]) -> dict[str, Probed]:
    """By target. About a second, and what importing them takes."""
    names = tuple(dict.fromkeys(targets))
    answers = each(_probe, names, seconds=_SECONDS)
    return {
        name: Probed(error=f"target {name}: the process that made it {answer}") if isinstance(answer, Ended) else answer
        for name, answer in zip(names, answers, strict=True)
    }


def _probe(name: str) -> Probed:
    try:
        factory = load(name)
        wrong = no_target(factory(Configuration()))
    except (UnknownTarget, ImportError) as error:
        return Probed(error=str(error), unknown=isinstance(error, UnknownTarget))
    except BaseException as error:  # whatever it raises: this process is for that
        return Probed(error=f"target {name}: {ended('its factory', error).message}")
    if wrong:
        return Probed(error=f"target {name}: its factory returned {wrong}")
    inside = Judging().session(factory, Configuration())
    return Probed(
        inside.capabilities,
        Judging(outside=True).session(factory, Configuration()).capabilities,
        inside.judge.policy,
        tuple(Judging().session(factory, Configuration(reuse=reuse)).judge.policy for reuse in REUSES),
        hindrance(),
    )
