"""What a campaign is to do: targets x properties x engines x configurations x a time budget.

`plans` reads one from a file. A plan says nothing of how it is carried out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from reference import PROPERTIES

from ..engines.walk import Limits
from ..findings.keep import Keep
from ..runs.values import Judging

__all__ = ["CampaignPlan", "Variant", "without_password"]

_ROUND = 5.0
"""Seconds in which each stream has a turn, where one worker takes turns."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the configurations: how to judge and how large pools are. share: its part of the time, beside the others'.
    name: part of its streams' seed (see `streams.streams_of`); a plan's only configuration may have none.

    The bounds are the walk's; Hypothesis draws its own pools, of up to 64 blocks.
    """

    name: str = "all"
    outside: bool = False
    exact: bool = True
    max_blocks: int = 64
    max_block_size: int = 16
    long_episodes: bool = True
    share: float = 1.0

    def judging(self, kernels: str = "") -> Judging:
        return Judging(outside=self.outside, exact=self.exact, kernels=kernels)

    def limits(self) -> Limits:
        return Limits(self.max_blocks, self.max_block_size, self.long_episodes)


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """What to do. Times in seconds, memory in bytes.

    engines: by name, the part of the time that each gets. properties: those whose violations count. workers: 0 for one
    a core. devices: a value of CUDA_VISIBLE_DEVICES for each worker; then one worker for each. hang: how long a worker
    may say nothing. database: a folder or a Redis (redis://host:port/0) in which Hypothesis keeps what it finds, for
    all workers; "": none. max_findings: so many new ones end the campaign; 0: its budget alone does. go_on: the part of
    the budget for which it goes on all the same, since worse may lie behind what was found first.
    """

    name: str = "custom"
    targets: tuple[str, ...] = ("kvcore",)
    properties: tuple[str, ...] = tuple(PROPERTIES)
    engines: Mapping[str, float] = field(kw_only=True)
    configurations: tuple[Variant, ...] = (Variant(),)
    budget: float = 600.0
    seed: str = ""
    workers: int = 0
    devices: tuple[str, ...] = ()
    kernels: str = "auto"
    profile: str = "nightly"
    trace: str = ""
    database: str = ""
    shrink: float = 20.0
    hang: float = 120.0
    memory: int = 4 << 30
    max_states: int = 3000
    max_findings: int = 0
    go_on: float = 0.0
    keep: Keep = Keep()

    @property
    def processes(self) -> int:
        return len(self.devices) or self.workers or os.cpu_count() or 1

    @property
    def round(self) -> float:
        """Seconds in which each stream has a turn of its part, where one worker takes turns; 0 where several have turns
        of a few seconds each."""
        return min(_ROUND, self.budget / 2) if self.processes == 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """For files, which others may read: without the database's password."""
        return {**asdict(self), "engines": dict(self.engines), "database": without_password(self.database)}


def without_password(url: str) -> str:
    """The address as files may show it."""
    head, at, host = url.rpartition("@")
    return f"{head.rpartition(':')[0]}:***@{host}" if at and "://" in url else url
