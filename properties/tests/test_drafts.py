"""Drafts and placeholders on a core that takes blocks by the step: a small right one, judged from outside and clean,
and the same with one fault each, which the property that it breaks must find."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from properties.moves import Moves, Swarm
from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Lookup,
    Tokens,
    Truncate,
)
from properties.session import Session
from properties.target import Adapter, Capability, Found, Refused, StepView
from reference import Policy, Violation

from .support import charged, done, drive


@dataclass
class Row:
    """A request. reached: the most that was ever scheduled."""

    tokens: list[int]
    table: list[int] = field(default_factory=list)
    scheduled: int = 0
    reached: int = 0
    published: int = 0

    @property
    def named(self) -> int:
        return self.tokens.index(UNKNOWN) if UNKNOWN in self.tokens else len(self.tokens)


class Drafting(Adapter):
    """Full blocks can be hit from their dispatch on; the blocks of rejected drafts stay."""

    capabilities = frozenset({Capability.LOOKUP, Capability.FILL, Capability.TRUNCATE, Capability.OVERLAP})
    policy_of: dict[str, Any] = {}  # noqa: RUF012 -- what a subclass decides otherwise

    def __init__(self, configuration: Configuration) -> None:
        self.size = configuration.block_size
        choices = {
            "publish": "dispatch",
            "admission": "step",
            "truncates": "placeholders",
            "leftover": "kept",
            "lifetime": "stream",
            "order": "released",
            "duplicates": "first",
        }
        self.policy = Policy(configuration.num_blocks, self.size, **choices | self.policy_of)
        self.idle = deque(range(configuration.num_blocks))
        self.holders = [0] * configuration.num_blocks
        self.owners: dict[tuple[int, ...], list[int]] = {}
        self.contents: dict[int, tuple[int, ...]] = {}
        self.rows: dict[str, Row] = {}

    # ---- blocks

    def take(self) -> int:
        block = self.idle.popleft()
        if block in self.contents:
            self.owners[self.contents.pop(block)].remove(block)
        self.holders[block] += 1
        return block

    def hold(self, block: int) -> None:
        if not self.holders[block]:
            self.idle.remove(block)
        self.holders[block] += 1

    def let_go(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.idle.append(block)

    # ---- content

    def known(self, row: Row) -> int:
        """How many tokens can be published."""
        return row.named

    def computed(self, row: Row) -> int:
        """How many are in their slots, or will be."""
        return row.scheduled

    def key(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(tokens)

    def hits(self, tokens: Sequence[int]) -> list[int]:
        found: list[int] = []
        for end in range(self.size, len(tokens), self.size):
            owners = self.owners.get(self.key(tokens[:end]))
            if not owners:
                break
            found.append(owners[0])
        return found

    def publish(self, row: Row) -> None:
        while (end := (row.published + 1) * self.size) <= min(self.computed(row), self.known(row)):
            block, key = row.table[row.published], self.key(row.tokens[:end])
            row.published += 1
            if block not in self.contents:
                self.contents[block] = key
                self.owners.setdefault(key, []).append(block)

    # ---- what the harness calls

    def lookup(self, tokens: Tokens, namespace: Any) -> Found:
        found = self.hits(tokens)
        return Found(len(found) * self.size, found)

    def allocate(self, request: str, tokens: Tokens, namespace: Any, handle: Any) -> int:
        self.rows[request] = Row(list(tokens))
        return 0

    def append(self, request: str, tokens: Tokens) -> None:
        self.rows[request].tokens += tokens

    def fill(self, request: str, position: int, tokens: Tokens) -> None:
        self.rows[request].tokens[position : position + len(tokens)] = tokens

    def truncate(self, request: str, length: int) -> None:
        row = self.rows[request]
        del row.tokens[length:]
        row.scheduled = min(row.scheduled, length)

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        starts = []
        for request, count in work:
            row = self.rows[request]
            hits = [] if row.reached else self.hits(row.tokens[: row.named])
            start = row.scheduled or len(hits) * self.size
            end = max(row.scheduled + count, start + 1)
            new = max(0, -(-end // self.size) - len(row.table) - len(hits))
            if new > len(self.idle) - sum(not self.holders[block] for block in hits):
                break
            for block in hits:
                self.hold(block)
            row.table += hits + [self.take() for _ in range(new)]
            row.published = max(row.published, len(hits))
            row.scheduled, row.reached = end, max(row.reached, end)
            self.publish(row)
            starts.append(start)
        if not starts:
            raise Refused("OutOfBlocks")
        return StepView(None, starts=starts)

    def complete(self, handle: Any) -> None:
        pass

    def free(self, request: str) -> None:
        self.let_go(self.rows.pop(request).table)

    def table(self, request: str) -> list[int]:
        return list(self.rows[request].table)


class Releasing(Drafting):
    """No fault: the blocks of rejected drafts are given back, as its policy says."""

    policy_of = {"leftover": "released"}  # noqa: RUF012

    def truncate(self, request: str, length: int) -> None:
        super().truncate(request, length)
        row, kept = self.rows[request], -(-length // self.size)
        self.let_go(row.table[kept:])
        del row.table[kept:]


class PublishesPlaceholders(Drafting):
    """A draft counts as known, under the token that the draft model guesses: 0."""

    def known(self, row: Row) -> int:
        return len(row.tokens)

    def key(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(max(token, 0) for token in tokens)


class PublishesRejected(Drafting):
    """After a rejection the block still counts as computed, whatever is to be written where the draft was."""

    def computed(self, row: Row) -> int:
        return row.reached


class PublishesEarly(Drafting):
    """What is named is published at once, and not when its policy says."""

    def fill(self, request: str, position: int, tokens: Tokens) -> None:
        super().fill(request, position, tokens)
        self.publish(self.rows[request])


class FreesTwice(Drafting):
    """Blocks of rejected drafts are given back, and kept in the table: they come back again when the request ends."""

    def truncate(self, request: str, length: int) -> None:
        super().truncate(request, length)
        self.let_go(self.rows[request].table[-(-length // self.size) :])

    def let_go(self, blocks: Sequence[int]) -> None:
        super().let_go([block for block in blocks if self.holders[block]])


class Loses(Drafting):
    """Blocks of rejected drafts are forgotten, and belong to nobody."""

    def truncate(self, request: str, length: int) -> None:
        super().truncate(request, length)
        del self.rows[request].table[-(-length // self.size) :]


class TakesAgain(Drafting):
    """New blocks for what is computed after a rejection, although there are some."""

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        for request, _ in work[:1]:
            row = self.rows[request]
            used = -(-row.scheduled // self.size)
            if row.table[used:]:
                self.let_go(row.table[used:])
                row.table[used:] = [self.take() for _ in row.table[used:]]
        return super().dispatch(work)


class NeverRollsBack(Drafting):
    """Rejected drafts still count as scheduled."""

    def truncate(self, request: str, length: int) -> None:
        del self.rows[request].tokens[length:]


def hunted(factory: Callable[[Configuration], Drafting], episodes: int = 400, exact: bool = False) -> Violation | None:
    """The first violation of so many short episodes; None if there is none."""
    events: set[str] = set()
    for number in range(episodes):
        random = Random(f"drafts/{number}")
        sizes = Configuration(num_blocks=random.choice((3, 5, 8)), block_size=random.choice((1, 2, 4)))
        session = Session(factory(sizes), walk_every=1, exact=exact)
        moves = Moves(session, Swarm(lines=random.choice((2, 4)), depth=random.choice((1, 2, 3))))
        try:
            for _ in range(60):
                kind = moves.telling and random.random() < 0.3
                values = [random.randrange(100) for _ in range(4)]
                session.apply(moves.make("story", *values[1:]) if kind else moves.operation(tuple(values)))
            session.drain()
        except Violation as violation:
            return violation
        assert not session.skipped  # nothing is drawn that the policy rules out
        events |= {name for name, count in session.judge.events.items() if count}
    assert {"placeholder dispatched", "published when named", "truncated while in flight"} <= events
    assert ("kept block used again" in events) == (session.judge.policy.leftover == "kept")
    return None


@pytest.mark.parametrize("factory", [Drafting, Releasing])
def test_a_right_core_is_clean(factory: type[Drafting]) -> None:
    assert hunted(factory, 200, exact=True) is None


@pytest.mark.parametrize(
    ("factory", "properties"),
    [
        (PublishesPlaceholders, {"HISTORY", "PUBLISH", "COMPLETENESS"}),
        (PublishesRejected, {"HISTORY", "FRESHNESS", "PUBLISH"}),
        (PublishesEarly, {"PUBLISH"}),
        (FreesTwice, {"ALIASING", "EXCLUSIVE"}),
        (Loses, {"ROLLBACK"}),
        (TakesAgain, {"MAPPING"}),
        (NeverRollsBack, {"MAPPING"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found_and_charged_to_what_it_breaks(factory: type[Drafting], properties: set[str]) -> None:
    violation = hunted(factory)
    assert violation is not None
    assert violation.id in properties


# ---- each as a story -------------------------------------------------------------------------------------------------


def drafted(factory: type[Drafting]) -> Session:
    """One token, and behind it five drafts, all computed: 0 - - - - - in three blocks of 2."""
    session = Session(factory(Configuration(num_blocks=6, block_size=2)), walk_every=1)
    done(session, Allocate("a", (0,)), Append("a", (UNKNOWN,) * 5), Dispatch(1, (("a", 6),)), Complete(1))
    assert session.target.table("a") == [0, 1, 2]
    return session


def test_a_block_of_placeholders_that_is_published_is_somebody_elses_content() -> None:
    violation = charged(drafted(PublishesPlaceholders), Lookup((0, 0, 0)))
    assert str(violation) == "HISTORY: 'lookup' hits block 0 (logical 0) for tokens [0, 0]; it holds [0, -1]"


def test_a_block_that_holds_a_rejected_draft_and_is_published_is_somebody_elses_content() -> None:
    session = drafted(PublishesRejected)
    done(session, Truncate("a", 1), Append("a", (7, 8, 9)), Dispatch(2, (("a", 1),)), Complete(2))
    assert str(charged(session, Lookup((0, 7, 8, 9, 5)))) == (
        "HISTORY: 'lookup' hits block 1 (logical 1) for tokens [0, 7, 8, 9]; it holds [0, -1, -1, -1]"
    )


def test_a_kept_block_that_is_freed_twice_goes_to_two_requests() -> None:
    session = drafted(FreesTwice)
    done(session, Truncate("a", 2), Allocate("b", tuple(range(20, 28))))
    assert charged(session, Dispatch(2, (("b", 8),))).id in {"ALIASING", "EXCLUSIVE"}


def test_a_block_that_is_lost_is_found_by_the_table() -> None:
    assert str(charged(drafted(Loses), Truncate("a", 3))) == (
        "ROLLBACK: 'a' cut to 3 tokens has table [0, 1]; it should be [0, 1, 2]"
    )


# ---- the session -----------------------------------------------------------------------------------------------------


class Windowed(Drafting):
    policy_of = {"truncates": "tokens", "leftover": "released", "windows": (2,), "reserved": frozenset({0})}  # noqa: RUF012


def test_with_a_window_only_placeholders_can_be_cut() -> None:
    with pytest.raises(ValueError, match=r"^Drafting: behind a window .* Policy\.truncates must be 'placeholders'$"):
        Session(Windowed(Configuration()))


def test_a_cut_into_what_is_named_is_skipped_and_said() -> None:
    session = drafted(Drafting)
    done(session, Fill("a", 1, (1, 2)))
    assert drive(session, Truncate("a", 2))[0].status == "skipped"
    assert session.skipped == {"cuts more than was rejected, and Policy.truncates is 'placeholders'": 1}
    done(session, Truncate("a", 6), Truncate("a", 3))
