"""What a core's counters must say, as far as no event says it: tokens of admitted requests, and of their hits."""

from __future__ import annotations

__all__ = ["Counted"]


class Counted:
    """queried: tokens of the requests that were admitted, at their admission. hit: those of them that were hit."""

    __slots__ = ("hit", "queried")

    def __init__(self) -> None:
        self.queried = 0
        self.hit = 0

    def clone(self) -> Counted:
        other = Counted()
        other.queried, other.hit = self.queried, self.hit
        return other
