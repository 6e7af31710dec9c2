"""When a campaign begins nothing more, and how long each of its tasks may take.

On workers whatever is settled late shares a few seconds after the budget, and what still runs then is ended. In this
process nothing can be ended from outside: every stream has a first turn, however long the others took, and what is
found is settled for as long as the plan says.
"""

from __future__ import annotations

from typing import Protocol

from .plan import CampaignPlan
from .tasks import Task

__all__ = ["Pace", "pace_of"]

_GRACE = 8.0
"""Seconds after the budget in which workers' tasks may end and hits may still be settled."""

_LAST = 14.0
"""Seconds after the budget when whatever workers still run is ended."""

_INTERPRETING = 60.0
"""Seconds that a replay in the interpreter may take; importing torch is a good part of that."""


class Pace(Protocol):
    """Times are seconds of the clock that `end` was read from: when the budget is over.

    most: hits that a hunt writes down before it ends; 0: it goes on. where: for people.
    """

    end: float
    most: int
    where: str

    def over(self, now: float) -> bool:
        """Is whatever still runs ended now?"""

    def hunting(self, now: float, owed: bool) -> bool:
        """Is there time to hunt? owed: a stream has not had its first turn."""

    def settling(self, now: float) -> bool:
        """Is there time for all else?"""

    def seconds(self, task: Task, now: float) -> float:
        """How long a task that is no hunt may take."""


class _OnWorkers:
    most = 0
    where = "a worker"

    def __init__(self, plan: CampaignPlan, end: float) -> None:
        self.end = end
        self._shrink = plan.shrink

    def over(self, now: float) -> bool:
        return now >= self.end + _LAST

    def hunting(self, now: float, owed: bool) -> bool:
        return now < self.end

    def settling(self, now: float) -> bool:
        return now < self.end + _GRACE

    def seconds(self, task: Task, now: float) -> float:
        if task.kind == "interpret":
            return min(_INTERPRETING, self.end + _LAST - 1.0 - now)
        # At the end what is left is named and replayed, and shrunk as far as that goes in a second or two.
        return min(self._shrink, max(1.5, self.end + 3.0 - now))


class _InProcess:
    most = 1  # what it has found is looked at before anything else is done
    where = "this process"

    def __init__(self, plan: CampaignPlan, end: float) -> None:
        self.end = end
        self._shrink = plan.shrink
        self._some = plan.budget > 0

    def over(self, now: float) -> bool:
        return False

    def hunting(self, now: float, owed: bool) -> bool:
        return now < self.end or (owed and self._some)

    def settling(self, now: float) -> bool:
        return True

    def seconds(self, task: Task, now: float) -> float:
        return _INTERPRETING if task.kind == "interpret" else self._shrink


def pace_of(plan: CampaignPlan, began: float) -> Pace:
    """That of a plan whose campaign has begun at `began`."""
    end = began + plan.budget
    return _InProcess(plan, end) if plan.in_process else _OnWorkers(plan, end)
