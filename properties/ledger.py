"""The ledger of sometimes-events: hard states that a campaign must have met at least once.

A cache that never evicts never evicts wrongly. So each campaign counts events. If an event that the target can produce
never happened in 100,000 operations, the campaign fails (below that it warns), after Antithesis's "sometimes". The
judge and the target's `noticed` do the counting. Here is what each event means and when it is possible;
`reference.events` has their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reference import Policy, events

from .target import Capability

__all__ = ["EVENTS", "THRESHOLD", "Event", "Ledger"]

THRESHOLD = 100_000
"""From this many operations on, an event that never happened fails the campaign."""


@dataclass(frozen=True, slots=True)
class Event:
    """Why a state matters, and without which capabilities, and under which policies, it cannot happen.

    under: (field of `Policy`, the values with which it can happen), each."""

    why: str
    needs: frozenset[Capability] = frozenset()
    under: tuple[tuple[str, tuple[object, ...]], ...] = ()

    def possible(self, policy: Policy) -> bool:
        return all(getattr(policy, name) in allowed for name, allowed in self.under)


def _event(why: str, *needs: Capability, **under: tuple[object, ...]) -> Event:
    return Event(why, frozenset(needs), tuple(under.items()))


_C = Capability

EVENTS: dict[str, Event] = {
    events.HIT_ON_AN_ACTIVE_BLOCK: _event("costs nothing; the reference count must rise"),
    events.HIT_ON_A_CACHED_BLOCK: _event("takes a block off the eviction order"),
    events.WHOLE_PROMPT_HIT: _event("only the last token is computed again, into no slot", reuse=("last_token",)),
    events.ALLOCATED_WITH_AN_EARLIER_MATCH: _event("the index may have changed since the lookup", _C.LOOKUP, _C.MATCH),
    events.PUBLISHED_A_DUPLICATE: _event("one content in two blocks"),
    events.EVICTED: _event("the mapping must go, this block's only"),
    events.EVICTED_ONE_OF_TWO_OWNERS: _event("the other owner must still be found", duplicates=("active", "first")),
    events.ROLLED_BACK_UNDER_WHAT_EXTENDS_IT: _event(
        "the same content when computed again", _C.TRUNCATE, truncates=("tokens",)
    ),
    events.DUPLICATE_REFRESHED_BY_A_ROLLBACK: _event(
        "the last active owner goes, a cached one stays", _C.TRUNCATE, truncates=("tokens",)
    ),
    events.EVICTED_WHILE_ITS_PREFIX_IS_SHARED: _event("a child goes while its parent is in use"),
    events.HASH_COLLISION: _event("equal keys, other content: must be told apart", _C.HASH),
    events.REFUSED_FOR_ONE_BLOCK: _event("the admission boundary"),
    events.REFUSED_FOR_SEVERAL_BLOCKS: _event("a refusal must change nothing"),
    events.APPEND_REFUSED: _event("growth meets a full pool", admission=("request",)),
    events.NEVER_FITS: _event("rejected, not left to wait", admission=("request",)),
    events.FREED_WHILE_IN_FLIGHT: _event("blocks wait for the last step", _C.OVERLAP),
    events.PUBLISHED_AFTER_FREE: _event("what the step computed is kept", _C.OVERLAP, lifetime=("steps",)),
    events.COMPLETED_WITH_ANOTHER_STEP_IN_FLIGHT: _event("steps overlap", _C.OVERLAP),
    events.SEVERAL_STEPS_OF_ONE_REQUEST_IN_FLIGHT: _event("a step reads what an earlier one writes", _C.OVERLAP),
    events.HIT_ONLY_IN_THE_WINDOW: _event("what lies before it may be gone", windowed=(True,)),
    events.LET_GO_BEHIND_THE_WINDOW: _event(
        "a live request's blocks come back, also if it is then refused", windowed=(True,)
    ),
    events.FORK: _event("tables share blocks", _C.FORK),
    events.FORK_WITH_A_SHARED_TAIL: _event("the next append must copy", _C.FORK),
    events.COPY_ON_WRITE: _event("the table is switched, the copy pends", _C.FORK),
    events.COPY_ON_WRITE_AT_THE_LAST_SLOT: _event("copied and full at once", _C.FORK),
    events.PENDING_COPY_CANCELLED_BY_FREE: _event("the source comes back", _C.FORK),
    events.COPY_UNDONE_BY_TRUNCATION: _event("the table gets the source back", _C.FORK, _C.TRUNCATE),
    events.COMPUTED_TOKENS_ROLLED_BACK: _event("counters go back", _C.TRUNCATE),
    events.PUBLISHED_BLOCK_ROLLED_BACK: _event(
        "a block leaves the index while active", _C.TRUNCATE, truncates=("tokens",)
    ),
    events.TRUNCATED_WHILE_IN_FLIGHT: _event("the step's positions no longer count", _C.TRUNCATE),
    events.KEPT_BLOCK_USED_AGAIN: _event(
        "it was taken for what was rejected, and is written anew", _C.TRUNCATE, leftover=("kept",)
    ),
    events.TRUNCATED_INTO_A_SHARED_BLOCK: _event("the index keeps it for the others", _C.TRUNCATE, _C.FORK),
    events.PUBLISHED_TAIL_WITHDRAWN_AT_APPEND: _event("cut into shared, alone now", _C.TRUNCATE, _C.FORK),
    events.PLACEHOLDER_APPENDED: _event("scheduled before sampled", _C.FILL),
    events.PLACEHOLDER_DISPATCHED: _event("computed before named", _C.FILL),
    events.PUBLISHED_WHEN_NAMED: _event("the name comes after the computation", _C.FILL),
    events.NAMED_BEHIND_THE_WINDOW: _event(
        "let go before it could be published", _C.FILL, windowed=(True,), publish=("dispatch",)
    ),
    events.RESET_WITH_LIVE_REQUESTS: _event("they run on and publish nothing", _C.RESET),
}
"""By the name under which they are counted."""


@dataclass
class Ledger:
    """Counts of events over a campaign."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))

    def add(self, events: Mapping[str, int]) -> None:
        """Add one run's counts. O(events)."""
        for name, count in events.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def missing(self, capabilities: frozenset[Capability], policies: Iterable[Policy] | None = None) -> list[str]:
        """Events that are possible with `capabilities`, under one of `policies` (None: any), and have not happened.
        In the order of the table."""
        among = None if policies is None else list(policies)
        return [
            name
            for name, event in EVENTS.items()
            if event.needs <= capabilities
            and (among is None or any(event.possible(policy) for policy in among))
            and not self.counts.get(name)
        ]
