"""How alike two weighted sets are: places in the target's code, by how unusual they are."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["likeness"]


def likeness(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """What two have in common, of all that either has, by weight: 0 to 1. O(both).

    >>> likeness({"a": 3, "b": 1}, {"a": 3, "c": 2})
    0.5
    """
    common = sum(weight for place, weight in one.items() if place in other)
    whole = sum(one.values()) + sum(other.values()) - common
    return common / whole if whole else 0.0
