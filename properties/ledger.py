"""The ledger of sometimes-events: hard states that a campaign must have met at least once.

A cache that never evicts never evicts wrongly. So each campaign counts events, and one that the target can produce and
that never happened in 100,000 operations is a failure of the campaign (a warning below that), after Antithesis's
"sometimes". The judge and the target's `noticed` do the counting; this room knows what each event means and when it is
possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reference import Policy

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
    "hit on an active block": _event("costs nothing; the reference count must rise"),
    "hit on a cached block": _event("takes a block off the eviction order"),
    "whole prompt hit": _event("only the last token is computed again, into no slot", reuse=("last_token",)),
    "allocated with an earlier match": _event("the index may have changed since the lookup", _C.LOOKUP, _C.MATCH),
    "published a duplicate": _event("one content in two blocks"),
    "evicted": _event("the mapping must go, this block's only"),
    "evicted one of two owners": _event("the other owner must still be found", duplicates=("active", "first")),
    "rolled back under what extends it": _event(
        "the same content when computed again", _C.TRUNCATE, truncates=("tokens",)
    ),
    "duplicate refreshed by a rollback": _event(
        "the last active owner goes, a cached one stays", _C.TRUNCATE, truncates=("tokens",)
    ),
    "evicted while its prefix is shared": _event("a child goes while its parent is in use"),
    "hash collision": _event("equal keys, other content: must be told apart", _C.HASH),
    "refused for one block": _event("the admission boundary"),
    "refused for several blocks": _event("a refusal must change nothing"),
    "append refused": _event("growth meets a full pool", admission=("request",)),
    "never fits": _event("rejected, not left to wait", admission=("request",)),
    "freed while in flight": _event("blocks wait for the last step", _C.OVERLAP),
    "published after free": _event("what the step computed is kept", _C.OVERLAP, lifetime=("steps",)),
    "completed with another step in flight": _event("steps overlap", _C.OVERLAP),
    "several steps of one request in flight": _event("a step reads what an earlier one writes", _C.OVERLAP),
    "hit only in the window": _event("what lies before it may be gone", windowed=(True,)),
    "let go behind the window": _event(
        "a live request's blocks come back, also if it is then refused", windowed=(True,)
    ),
    "fork": _event("tables share blocks", _C.FORK),
    "fork with a shared tail": _event("the next append must copy", _C.FORK),
    "copy-on-write": _event("the table is switched, the copy pends", _C.FORK),
    "copy-on-write at the last slot": _event("copied and full at once", _C.FORK),
    "pending copy cancelled by free": _event("the source comes back", _C.FORK),
    "copy undone by truncation": _event("the table gets the source back", _C.FORK, _C.TRUNCATE),
    "computed tokens rolled back": _event("counters go back", _C.TRUNCATE),
    "published block rolled back": _event("a block leaves the index while active", _C.TRUNCATE, truncates=("tokens",)),
    "truncated while in flight": _event("the step's positions no longer count", _C.TRUNCATE),
    "kept block used again": _event(
        "it was taken for what was rejected, and is written anew", _C.TRUNCATE, leftover=("kept",)
    ),
    "truncated into a shared block": _event("the index keeps it for the others", _C.TRUNCATE, _C.FORK),
    "published tail withdrawn at append": _event("cut into shared, alone now", _C.TRUNCATE, _C.FORK),
    "placeholder appended": _event("scheduled before sampled", _C.FILL),
    "placeholder dispatched": _event("computed before named", _C.FILL),
    "published when named": _event("the name comes after the computation", _C.FILL),
    "named behind the window": _event(
        "let go before it could be published", _C.FILL, windowed=(True,), publish=("dispatch",)
    ),
    "reset with live requests": _event("they run on and publish nothing", _C.RESET),
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
