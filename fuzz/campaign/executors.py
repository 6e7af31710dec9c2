"""Which executor a plan runs on, where it is of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

from .executor import Executor, Making
from .in_process import InProcess
from .plans import CampaignPlan
from .supervisor import Workers
from .worker import main

__all__ = ["executor_of"]


def executor_of(plan: CampaignPlan) -> Making:
    """This process, or worker processes."""

    def make(spool: Path, alive: Callable[[int], None]) -> Executor:
        if plan.in_process:
            return InProcess(alive)
        workers = Workers(
            plan.processes, spool, monotonic, main, memory=plan.memory, hang=plan.hang, devices=plan.devices
        )
        return workers.__enter__()

    return make
