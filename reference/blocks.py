"""Blocks: who holds each, what it is published with, and in which order blocks are used again. Knows no request.

Three states. A block is active while it has holders (tables and pending copies), cached when it has none and is
published, and free otherwise. Available are the cached and the free ones.

A content may be published in several blocks, its owners. When the last active owner of a content is rolled back, the
first cached duplicate counts as released now, so that it stays younger than what others have built on the content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from . import events
from .histories import Histories
from .policy import Policy
from .predictor import Predictor
from .verdicts import Eviction, Findings, Publish, Rollback, Violation

__all__ = ["Blocks"]


class Blocks:
    """The pool. Every method is O(1), but for those that say otherwise.

    references, published: how many holders each block has, and the number of its history, None where not published.
    owners: by history, the blocks that it is published in, earliest first. withdrawn: why a block that still holds its
    content may not be hit any more. num_blocks, capacity: all blocks, and those that can be handed out. available,
    cached: how many have no holder, and how many of those are published. predictor: the order in which blocks are used
    again; None where it is not predicted. settles: whether it matters what is let go at once. changed: blocks whose
    references or publication have changed, in order; each operation puts a list of its own here."""

    def __init__(
        self,
        policy: Policy,
        usable: Iterable[int],
        histories: Histories,
        counts: defaultdict[str, int],
        findings: Findings,
    ) -> None:
        usable = list(usable)
        self._policy = policy
        self._histories = histories
        self._counts = counts
        self._findings = findings
        self.settles = policy.order == "unpublished_first"
        self._only_last = policy.duplicates == "last"
        # Where content may be dropped early, parents leave the cache before their children.
        self._children_first = policy.complete and not self._only_last and not policy.windowed
        self.num_blocks = policy.num_blocks
        self.references = [0] * policy.num_blocks
        self.published: list[int | None] = [None] * policy.num_blocks
        self.owners: dict[int, list[int]] = {}
        self.withdrawn: dict[int, type[Violation]] = {}
        self._extensions: defaultdict[int, int] = defaultdict(int)  # by history: the published blocks that extend it
        self.capacity = len(usable)
        self.available = len(usable)
        self.cached = 0
        self.predictor = Predictor(usable, policy.order) if policy.exact else None
        self.changed: list[int] = []

    def clone(self, counts: defaultdict[str, int], findings: Findings) -> Blocks:
        """A copy that shares the histories alone. O(pool)."""
        other = Blocks(self._policy, (), self._histories, counts, findings)
        other.references = self.references.copy()
        other.published = self.published.copy()
        other.owners = {history: blocks.copy() for history, blocks in self.owners.items()}
        other.withdrawn = self.withdrawn.copy()
        other._extensions = self._extensions.copy()
        other.capacity = self.capacity
        other.available = self.available
        other.cached = self.cached
        other.predictor = self.predictor.clone() if self.predictor is not None else None
        return other

    # ---- holders -----------------------------------------------------------------------------------------------------

    def hold(self, block: int, hit: bool = False) -> None:
        """One more holder. hit: of what is published in it."""
        if self.references[block] == 0:
            self.available -= 1
            if self.published[block] is not None:
                self.cached -= 1
            if self.predictor is not None:
                self.predictor.taken(block)
            if hit:
                self._counts[events.HIT_ON_A_CACHED_BLOCK] += 1
        elif hit:
            self._counts[events.HIT_ON_AN_ACTIVE_BLOCK] += 1
        self.references[block] += 1
        self.changed.append(block)

    def let_go(self, block: int) -> None:
        """One holder less."""
        self.references[block] -= 1
        self.changed.append(block)
        if self.references[block] == 0:
            published = self.published[block] is not None
            self.available += 1
            self.cached += published
            if self.predictor is not None:
                self.predictor.released(block, published)

    def let_go_alone(self, block: int) -> None:
        """One holder less, which may no longer hold what comes before: that counts as released after it, if it is
        cached. O(blocks before it)."""
        self.let_go(block)
        history = self.published[block]
        if history is None or self.references[block]:
            return
        history = self._histories.parent(history)
        while self._histories.parent(history) >= 0:
            owners = self.owners.get(history, [])
            if any(self.references[other] for other in owners):
                return
            if owners and self.predictor is not None:
                self.predictor.refreshed(owners[0])
            history = self._histories.parent(history)

    def settle(self) -> None:
        """All that one request lets go at once has been let go. Needed only where `settles` says so."""
        if self.predictor is not None:
            self.predictor.settle()

    def take(self, block: int) -> None:
        """A new holder that will write to it: what was published in it is evicted."""
        history = self.published[block]
        if history is not None:
            self._evict(block, history)
        if block in self.withdrawn:
            del self.withdrawn[block]
        self.hold(block)

    # ---- the index ---------------------------------------------------------------------------------------------------

    def publish(self, block: int, history: int, before: int) -> None:
        """`block`, which is not published, can be hit for `history` from now on. before: the history before it."""
        owners = self.owners.setdefault(history, [])
        if owners:
            self._counts[events.PUBLISHED_A_DUPLICATE] += 1
            if self._only_last:
                self.withdraw(owners[0], Publish)
                owners = self.owners.setdefault(history, [])
        owners.append(block)
        self.published[block] = history
        self._extensions[before] += 1
        if block in self.withdrawn:
            del self.withdrawn[block]
        self.changed.append(block)

    def withdraw(self, block: int, reason: type[Violation]) -> None:
        """`block` leaves the index; a hit on what it still holds would break `reason`."""
        history = self.published[block]
        assert history is not None
        self.published[block] = None
        self.changed.append(block)
        self.withdrawn[block] = reason
        owners = self.owners[history]
        owners.remove(block)
        if not owners:
            del self.owners[history]
            if reason is Rollback and self._extensions.get(history):
                self._counts[events.ROLLED_BACK_UNDER_WHAT_EXTENDS_IT] += 1
        elif reason is Rollback and not any(self.references[other] for other in owners):
            self._counts[events.DUPLICATE_REFRESHED_BY_A_ROLLBACK] += 1
            if self.predictor is not None:
                self.predictor.refreshed(owners[0])
        before = self._histories.parent(history)
        self._extensions[before] -= 1
        if not self._extensions[before]:
            del self._extensions[before]
        if self.references[block] == 0:
            self.cached -= 1

    def reset(self) -> None:
        """Nothing is published any more. O(pool)."""
        for block, history in enumerate(self.published):
            if history is not None:
                self.published[block] = None
                self.withdrawn[block] = Publish
                self.changed.append(block)
        self.owners.clear()
        self._extensions.clear()
        self.cached = 0
        if self.predictor is not None:
            self.predictor.reset()

    def _evict(self, block: int, history: int) -> None:
        self.withdraw(block, Publish)
        self._counts[events.EVICTED] += 1
        if self.owners.get(history):
            self._counts[events.EVICTED_ONE_OF_TWO_OWNERS] += 1
        elif self._children_first and self._extensions.get(history):
            self._findings.accuse(
                Eviction, f"block {block} is taken while blocks that extend its content are still cached"
            )
        for other in self.owners.get(self._histories.parent(history), ()):
            if self.references[other] > 1:
                self._counts[events.EVICTED_WHILE_ITS_PREFIX_IS_SHARED] += 1
                break
