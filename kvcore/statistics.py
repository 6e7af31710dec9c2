"""Counters that the cache keeps, and a snapshot of them for users."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters", "Statistics"]


class Counters:
    """Counts that only the manager can keep. Plain integers, changed in place."""

    __slots__ = ("copied_blocks", "hit_tokens", "queried_tokens", "refusals")

    def __init__(self) -> None:
        self.queried_tokens = 0
        self.hit_tokens = 0
        self.refusals = 0
        self.copied_blocks = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot. Blocks by state, then load, then counters since construction.

    empty_tail_slots: allocated slots without a token, over live requests; at most block_size - 1 each.
    queried_tokens, hit_tokens: over admitted requests only.
    evicted_tokens: tokens in cached blocks that were taken for other content.
    refusals: `OutOfBlocks` and `NeverFits` raised.
    copied_blocks: copy-on-writes begun.
    """

    free_blocks: int
    cached_blocks: int
    active_blocks: int
    requests: int
    steps_in_flight: int
    empty_tail_slots: int
    queried_tokens: int
    hit_tokens: int
    evicted_tokens: int
    refusals: int
    copied_blocks: int
