"""The command that repeats a campaign, as a person types it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..campaign.plan import CampaignPlan

__all__ = ["again"]

_OPTIONS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "targets": ("--target", ",".join),
    "profile": ("--profile", str),
    "shrink": ("--shrink", lambda seconds: f"{seconds:g}s"),
    "kernels": ("--kernels", lambda name: name or "none"),
    "trace": ("--trace", str),
    "devices": ("--devices", ",".join),
    "hang": ("--hang", lambda seconds: f"{seconds:g}s"),
    "memory": ("--memory", str),
    "properties": ("--properties", ",".join),
    "max_findings": ("--max-findings", str),
    "go_on": ("--go-on", lambda part: f"{part:g}"),
}
"""The flag for each of a plan's names that can be given by one, and its value as it is typed."""


def again(name: str, flags: Mapping[str, Any], plan: CampaignPlan, ray: Sequence[str]) -> str:
    """What to type to repeat a campaign that was given by `name` and `flags`: also its seed, its budget and as many
    workers, which may have been chosen for it. ray: the options that say where on Ray the workers are."""
    words = ["python", "-m", "fuzz", "run", *(["--campaign", name] if name else [])]
    for flag, (option, typed) in _OPTIONS.items():
        if flags.get(flag) is not None:
            words += [option, typed(flags[flag])]
    for engine in flags.get("engines") or ():
        words += ["--engine", engine]
    words += ray
    for variant in flags.get("configurations") or ():
        words += ["--outside"] * variant.outside + ["--safety"] * (not variant.exact)
    if "devices" not in flags:
        words += ["--workers", str(plan.processes)]
    return shlex.join([*words, "--budget", f"{plan.budget:g}s", "--seed", plan.seed])
