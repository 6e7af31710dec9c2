"""When a campaign begins nothing more, and how long each of its tasks may take.

Whatever is settled late shares a few seconds after the budget, and what still runs then is ended.
"""

from __future__ import annotations

from .plan import CampaignPlan
from .tasks import Task

__all__ = ["Pace"]

_GRACE = 8.0
"""Seconds after the budget in which workers' tasks may end and hits may still be settled."""

_LAST = 14.0
"""Seconds after the budget when whatever workers still run is ended."""

_LEAST = 1.5
"""Seconds that settling has, whenever it begins."""

_INTERPRETING = 60.0
"""Seconds that a replay in the interpreter may take; importing torch is a good part of that."""


class Pace:
    """The pace of a plan whose campaign has begun at `began`. Times are seconds of the clock that was read then.

    end: when the budget is over. most: hits that a hunt writes down before it ends; 0: it goes on. If findings end the
    campaign, what was found is looked at before anything else is done.
    """

    def __init__(self, plan: CampaignPlan, began: float) -> None:
        self.end = self._settled = began + plan.budget
        self.most = int(plan.max_findings > 0)
        self._shrink = plan.shrink
        self._going_on = False

    def ends_within(self, seconds: float, now: float) -> float:
        """Hunting is over in so many seconds, if it is not sooner; returns in how many. Findings end it no more. What
        is met until then may be settled for as long as the whole budget."""
        self.end = min(self.end, now + seconds)
        self.most = 0
        self._going_on = True
        return self.end - now

    def over(self, now: float) -> bool:
        """Is whatever still runs ended now?"""
        return now >= max(self.end, self._settled) + _LAST

    def hunting(self, now: float) -> bool:
        """Is there time to hunt?"""
        return now < self.end

    def settling(self, now: float) -> bool:
        """Is there time for all else?"""
        return now < max(self.end + _GRACE, self._settled)

    def seconds(self, task: Task, now: float) -> float:
        """How long a task that is no hunt may take."""
        if task.kind == "interpret":
            return min(_INTERPRETING, max(self.end, self._settled) + _LAST - 1.0 - now)
        # What goes on for a short while is for hunting, not for one hit of many.
        shrink = min(self._shrink, max(_LEAST, (self.end - now) / 4)) if self._going_on else self._shrink
        # At the end what is left is named and replayed, and shrunk as far as that goes in a second or two.
        return min(shrink, max(_LEAST, self.end + 3.0 - now))
