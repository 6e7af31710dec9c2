"""The names of events: hard states that are counted, so that a campaign can tell which of them it never met.

The judge counts them, but for two: the session counts matches, and a target the collisions of its hashes. What each is
good for, and when it is possible, stands in `properties.ledger`.
"""

from __future__ import annotations

from typing import Final

HIT_ON_AN_ACTIVE_BLOCK: Final = "hit on an active block"
HIT_ON_A_CACHED_BLOCK: Final = "hit on a cached block"
WHOLE_PROMPT_HIT: Final = "whole prompt hit"
ALLOCATED_WITH_AN_EARLIER_MATCH: Final = "allocated with an earlier match"
HIT_ONLY_IN_THE_WINDOW: Final = "hit only in the window"
PUBLISHED_A_DUPLICATE: Final = "published a duplicate"
PUBLISHED_WHEN_NAMED: Final = "published when named"
PUBLISHED_AFTER_FREE: Final = "published after free"
NAMED_BEHIND_THE_WINDOW: Final = "named behind the window"
EVICTED: Final = "evicted"
EVICTED_ONE_OF_TWO_OWNERS: Final = "evicted one of two owners"
EVICTED_WHILE_ITS_PREFIX_IS_SHARED: Final = "evicted while its prefix is shared"
HASH_COLLISION: Final = "hash collision"
REFUSED_FOR_ONE_BLOCK: Final = "refused for one block"
REFUSED_FOR_SEVERAL_BLOCKS: Final = "refused for several blocks"
APPEND_REFUSED: Final = "append refused"
NEVER_FITS: Final = "never fits"
LET_GO_BEHIND_THE_WINDOW: Final = "let go behind the window"
COMPLETED_WITH_ANOTHER_STEP_IN_FLIGHT: Final = "completed with another step in flight"
SEVERAL_STEPS_OF_ONE_REQUEST_IN_FLIGHT: Final = "several steps of one request in flight"
FREED_WHILE_IN_FLIGHT: Final = "freed while in flight"
TRUNCATED_WHILE_IN_FLIGHT: Final = "truncated while in flight"
COMPUTED_TOKENS_ROLLED_BACK: Final = "computed tokens rolled back"
PUBLISHED_BLOCK_ROLLED_BACK: Final = "published block rolled back"
ROLLED_BACK_UNDER_WHAT_EXTENDS_IT: Final = "rolled back under what extends it"
DUPLICATE_REFRESHED_BY_A_ROLLBACK: Final = "duplicate refreshed by a rollback"
TRUNCATED_INTO_A_SHARED_BLOCK: Final = "truncated into a shared block"
PUBLISHED_TAIL_WITHDRAWN_AT_APPEND: Final = "published tail withdrawn at append"
KEPT_BLOCK_USED_AGAIN: Final = "kept block used again"
FORK: Final = "fork"
FORK_WITH_A_SHARED_TAIL: Final = "fork with a shared tail"
COPY_ON_WRITE: Final = "copy-on-write"
COPY_ON_WRITE_AT_THE_LAST_SLOT: Final = "copy-on-write at the last slot"
PENDING_COPY_CANCELLED_BY_FREE: Final = "pending copy cancelled by free"
COPY_UNDONE_BY_TRUNCATION: Final = "copy undone by truncation"
PLACEHOLDER_APPENDED: Final = "placeholder appended"
PLACEHOLDER_DISPATCHED: Final = "placeholder dispatched"
RESET_WITH_LIVE_REQUESTS: Final = "reset with live requests"


def refused_for(missing: int) -> str:
    """The event of a refusal for so many blocks."""
    return REFUSED_FOR_ONE_BLOCK if missing == 1 else REFUSED_FOR_SEVERAL_BLOCKS
