"""`check()` passes on what the core does, and fails, clause by clause, on what has been broken by hand.

A check that cannot fail is worth nothing, so every clause that `invariants.py` names has its own corruption here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import get_args

import pytest

from kvcore import UNKNOWN, BlockManager, Corrupted, Namespace, Refusal, ReusePolicy, invariants, weak_hash
from kvcore.pool import BlockPool
from kvcore.state import inside

from .support import admit, cache, dispatch_all, manager_of, run, state


class Walk:
    """Random valid calls on a small pool, with the check after each."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.size = random.choice([1, 2, 3])
        self.manager = manager_of(
            random.randint(6, 12),
            self.size,
            hash_function=weak_hash(random.choice([0, 1, 128])),
            reuse=random.choice(list(ReusePolicy)),
        )
        self.born = 0
        self.done = dict.fromkeys(self.kinds(), 0)

    def kinds(self) -> dict[str, Callable[[], bool]]:
        return {
            "allocate": self.allocate,
            "append": self.append,
            "fill": self.fill,
            "dispatch": self.dispatch,
            "complete": self.complete,
            "truncate": self.truncate,
            "fork": self.fork,
            "free": self.free,
            "reset": self.reset,
        }

    def run(self, steps: int) -> None:
        kinds = self.kinds()
        weights = [8, 8, 4, 10, 9, 3, 3, 5, 0.3]
        for _ in range(steps):
            (kind,) = self.random.choices(list(kinds), weights)
            try:
                self.done[kind] += kinds[kind]()
            except Refusal:
                self.done[kind] += 1
            self.manager.check()

    def tokens(self, most: int) -> list[int]:
        return [self.random.randrange(2) for _ in range(self.random.randint(1, most))]

    def live(self) -> list[str]:
        return list(inside(self.manager).sequences)

    def allocate(self) -> bool:
        self.born += 1
        space = self.random.choice([Namespace(), Namespace(salt="s")])
        self.manager.allocate(f"r{self.born}", self.tokens(4 * self.size), space)
        return True

    def append(self) -> bool:
        if not self.live():
            return False
        tokens = [UNKNOWN] if self.random.random() < 0.3 else self.tokens(2 * self.size)
        self.manager.append(self.random.choice(self.live()), tokens)
        return True

    def fill(self) -> bool:
        for request in self.live():
            sequence = self.manager.sequence(request)
            if sequence.unnamed:
                self.manager.fill(request, sequence.tokens.index(UNKNOWN), [self.random.randrange(2)])
                return True
        return False

    def dispatch(self) -> bool:
        work = []
        for request in self.live():
            sequence = self.manager.sequence(request)
            left = len(sequence) - sequence.scheduled
            if left and self.random.random() < 0.7:
                work.append((request, self.random.randint(1, left)))
        if not work or len(inside(self.manager).in_flight) > 2:
            return False
        self.manager.dispatch(work, batch=False)
        return True

    def complete(self) -> bool:
        if not inside(self.manager).in_flight:
            return False
        self.manager.complete(inside(self.manager).in_flight[0])
        return True

    def truncate(self) -> bool:
        if not self.live():
            return False
        request = self.random.choice(self.live())
        sequence = self.manager.sequence(request)
        self.manager.truncate(request, self.random.randint(sequence.base, len(sequence)))
        return True

    def fork(self) -> bool:
        for request in self.live():
            sequence = self.manager.sequence(request)
            if not sequence.flights and not sequence.unnamed and sequence.computed == len(sequence):
                self.born += 1
                self.manager.fork(request, f"f{self.born}")
                return True
        return False

    def free(self) -> bool:
        if not self.live():
            return False
        self.manager.free(self.random.choice(self.live()))
        return True

    def reset(self) -> bool:
        self.manager.reset()
        return True


@pytest.mark.parametrize("seed", range(12))
def test_the_check_passes_after_every_valid_call(seed: int):
    walk = Walk(seed)
    walk.run(400)
    assert min(walk.done.values()) > 0
    manager = walk.manager
    while inside(manager).in_flight:
        manager.complete(inside(manager).in_flight[0])
    for request in walk.live():
        manager.free(request)
    manager.check()
    assert inside(manager).pool.available == manager.config.num_blocks


def test_the_check_changes_nothing():
    manager = scene()
    before = state(manager)
    manager.check()
    assert state(manager) == before


# ---- one corruption a clause -----------------------------------------------------------------------------------------


def scene() -> BlockManager:
    """Blocks of 2: some free, some cached, a content with two owners, a fork with a copy waiting, two steps in flight.

    one, two: computed, the same 5 tokens in 3 blocks each. fresh: 3 tokens in 2 blocks, not dispatched. named: it has a
    placeholder.
    """
    manager = manager_of(20, 2)
    cache(manager, [50, 51, 52, 53])
    for request in ("one", "two"):
        manager.allocate(request, [1, 2, 3, 4, 5])
    run(manager, "one", "two")
    manager.allocate("fresh", [30, 31, 32])
    admit(manager, "named", [40])
    manager.append("named", [UNKNOWN])
    admit(manager, "parent", [60])
    manager.fork("parent", "child")
    manager.append("child", [61])
    manager.allocate("flying", range(70, 75))
    manager.dispatch([("flying", 2)])
    manager.dispatch([("flying", 2)])
    return manager


def hold_a_block_twice(m: BlockManager) -> None:
    table, pool = m.sequence("fresh").table, inside(m).pool
    pool.references[table[1]] -= 1
    pool.free.append(table[1])
    table[1] = table[0]
    pool.references[table[0]] += 1


def publish_a_free_block(m: BlockManager) -> None:
    pool = inside(m).pool
    pool.index.held[pool.free[0]] = pool.index.held[m.sequence("one").table[0]]


def give_an_owner_its_own_content(m: BlockManager) -> None:
    held, block = inside(m).pool.index.held, m.sequence("two").table[1]
    parent, link = held[block]
    held[block] = (parent, bytes(bytearray(link)))


def rename_a_content(m: BlockManager) -> None:
    held, block = inside(m).pool.index.held, m.sequence("one").table[1]
    held[block] = (held[block][0], b"something else")


def drop_an_entry(m: BlockManager) -> None:
    index = inside(m).pool.index
    link = index.held[next(inside(m).pool.cached())][1]
    del index._first[link]


def break_field(request: str, field: str, change: int) -> Callable[[BlockManager], None]:
    def corrupt(m: BlockManager) -> None:
        sequence = m.sequence(request)
        setattr(sequence, field, getattr(sequence, field) + change)

    return corrupt


def orphan_a_held_content(m: BlockManager) -> None:
    content = inside(m).pool.index.held[m.sequence("one").table[0]]
    inside(m).pool.index._orphans[content[1]] = [content]


def change_token(m: BlockManager) -> None:
    m.sequence("one").tokens[3] += 1


def count_cached(manager: BlockManager, change: int) -> None:
    inside(manager).pool.num_cached += change


def empty_a_cached_block(manager: BlockManager, place: int) -> None:
    pool = inside(manager).pool
    pool.index.remove((list(pool.cached())[place],))


def number_two_steps_alike(manager: BlockManager) -> None:
    first, second = inside(manager).in_flight
    first.number = second.number


CORRUPTIONS: list[tuple[str, str, Callable[[BlockManager], object]]] = [
    (
        "cached-count",
        "one cached block too many",
        lambda m: count_cached(m, +1),
    ),
    ("cached-count", "one too few", lambda m: count_cached(m, -1)),
    ("listed-once", "free twice", lambda m: inside(m).pool.free.append(inside(m).pool.free[0])),
    ("listed-once", "free and cached", lambda m: inside(m).pool.free.append(next(inside(m).pool.cached()))),
    ("conservation", "a free block is lost", lambda m: inside(m).pool.free.pop()),
    ("conservation", "an active block is free", lambda m: inside(m).pool.free.append(m.sequence("fresh").table[0])),
    ("free-is-empty", "a free block is published", publish_a_free_block),
    (
        "cached-is-published",
        "a cached block is not",
        lambda m: empty_a_cached_block(m, 0),
    ),
    ("references", "one reference too many", lambda m: bump(m, m.sequence("fresh").table[0], 1)),
    ("references", "one reference too few", lambda m: bump(m, m.sequence("parent").table[0], -1)),
    ("references", "a lost copy", lambda m: setattr(m.sequence("child"), "pending", None)),
    ("ownership", "a lost entry", drop_an_entry),
    ("ownership", "an entry under another link", rename_a_content),
    ("content-interned", "one history, two contents", give_an_owner_its_own_content),
    (
        "prefix-outlives",
        "an orphan",
        lambda m: empty_a_cached_block(m, -1) or revive(m),
    ),
    ("orphans", "an orphan that a block holds", orphan_a_held_content),
    ("counters", "computed beyond scheduled", break_field("fresh", "computed", 1)),
    ("counters", "scheduled beyond the end", break_field("one", "scheduled", 1)),
    ("counters", "negative", break_field("fresh", "computed", -1)),
    ("table-length", "tokens without a block", lambda m: m.sequence("fresh").tokens.extend([1, 1])),
    ("table-length", "a block without tokens", lambda m: m.sequence("fresh").tokens.pop()),
    ("table-distinct", "a block twice in a table", hold_a_block_twice),
    ("published-computed", "published and not computed", break_field("fresh", "published", 1)),
    ("unnamed", "a placeholder too many", break_field("one", "unnamed", 1)),
    ("unnamed", "a placeholder too few", break_field("named", "unnamed", -1)),
    ("published-history", "another token", change_token),
    ("in-flight", "a completed step", lambda m: setattr(inside(m).in_flight[0], "completed", True)),
    (
        "in-flight-order",
        "the same number twice",
        number_two_steps_alike,
    ),
    ("in-flight-order", "out of order", lambda m: inside(m).in_flight.reverse()),
    ("packed-table", "stale", lambda m: stale(m)),
    ("flights", "forgotten", lambda m: inside(m).in_flight[0].sequences[0].flights.clear()),
]


MESSAGES = {
    "one cached block too many": "cached-count: 2 blocks listed as cached, 3 counted",
    "one too few": "cached-count: 2 blocks listed as cached, 1 counted",
    "free twice": "listed-once: blocks [16] are listed more than once as free or cached",
    "free and cached": "listed-once: blocks [1] are listed more than once as free or cached",
    "a free block is lost": "conservation: 3 free + 2 cached + 14 active is not 20 blocks",
    "an active block is free": "conservation: 5 free + 2 cached + 14 active is not 20 blocks",
    "a free block is published": "free-is-empty: free block 16 is published",
    "a cached block is not": "cached-is-published: cached block 1 has no content",
    "one reference too many": "references: block 8 has 2 references, but 1 tables and copies hold it",
    "one reference too few": "references: block 11 has 1 references, but 2 tables and copies hold it",
    "a lost copy": "references: block 11 has 2 references, but 1 tables and copies hold it",
    "a lost entry": "ownership: the index names blocks [0, 2, 3, 5, 6], content is held by [0, 1, 2, 3, 5, 6]",
    "an entry under another link": "ownership: the index names block 3 under a link that is not its own",
    "one history, two contents": "content-interned: block 6 holds a history that the index has as another content",
    "an orphan": "prefix-outlives: block 1 is indexed, but the content before it is neither held nor kept",
    "an orphan that a block holds": "orphans: a content that a block holds is kept as an orphan",
    "computed beyond scheduled": "counters: request 'fresh': computed 1, scheduled 0, length 3",
    "scheduled beyond the end": "counters: request 'one': computed 5, scheduled 6, length 5",
    "negative": "counters: request 'fresh': computed -1, scheduled 0, length 3",
    "tokens without a block": "table-length: request 'fresh': 5 tokens in 2 blocks of 2",
    "a block without tokens": "table-length: request 'fresh': 2 tokens in 2 blocks of 2",
    "a block twice in a table": "table-distinct: request 'fresh' holds a block twice",
    "published and not computed": "published-computed: request 'fresh': 1 blocks published, 0 tokens computed",
    "a placeholder too many": "unnamed: request 'one' counts 1 placeholders and has 0",
    "a placeholder too few": "unnamed: request 'named' counts 0 placeholders and has 1",
    "another token": "published-history: request 'one': block 3 is not published with the history of logical block 1",
    "a completed step": "in-flight: step 4 is completed and still in flight",
    "the same number twice": "in-flight-order: steps in flight are numbered [5, 5]",
    "out of order": "in-flight-order: steps in flight are numbered [5, 4]",
    "stale": "packed-table: request 'one': the packed table is [3, 3, 4], the table [2, 3, 4]",
    "forgotten": "flights: request 'flying' notes (step, place) []; the steps in flight say [(4, 0), (5, 0)]",
}
"""What is said of each: the numbers that contradict each other."""


def stale(m: BlockManager) -> None:
    """A batch's copy of a table that has changed since."""
    sequence = next(iter(inside(m).sequences.values()))
    sequence.packed_table()[0] ^= 1


def bump(m: BlockManager, block: int, change: int) -> None:
    inside(m).pool.references[block] += change


def revive(m: BlockManager) -> None:
    """The cached block that has just lost its content becomes a free one, so that only the index is wrong."""
    pool = inside(m).pool
    block = list(pool.cached())[-1]
    pool.pin([block])
    pool.release([block])


@pytest.mark.parametrize(
    ("clause", "what", "corrupt"),
    [pytest.param(clause, what, corrupt, id=f"{clause}: {what}") for clause, what, corrupt in CORRUPTIONS],
)
def test_a_broken_clause_is_found(clause: str, what: str, corrupt: Callable[[BlockManager], object]):
    manager = scene()
    manager.check()
    corrupt(manager)
    with pytest.raises(Corrupted) as caught:
        manager.check()
    assert caught.value.clause == clause
    assert str(caught.value) == MESSAGES[what]
    assert MESSAGES[what].startswith(f"{clause}: ")


def test_a_ring_that_runs_in_a_circle_is_walked_no_further_than_there_are_blocks(monkeypatch: pytest.MonkeyPatch):
    manager = scene()

    def circle(pool: BlockPool) -> Iterator[int]:
        yield from [next(iter(pool.free))] * (pool.num_blocks + 1)
        raise RuntimeError("walked on")

    monkeypatch.setattr(BlockPool, "cached", circle)
    with pytest.raises(Corrupted, match=r"^cached-count: 21 blocks listed as cached, 2 counted$"):
        manager.check()


def test_every_clause_has_its_corruption():
    assert set(get_args(invariants.Clause)) == {clause for clause, _, _ in CORRUPTIONS}


def test_a_request_freed_in_flight_still_counts():
    manager = scene()
    manager.free("flying")
    manager.check()
    bump(manager, inside(manager).in_flight[0].sequences[0].table[0], 1)
    with pytest.raises(Corrupted, match="references"):
        manager.check()


def test_blocks_cut_off_in_flight_still_count():
    manager = scene()
    manager.append("flying", range(6))
    dispatch_all(manager, "flying")
    manager.truncate("flying", 5)
    manager.check()
    manager.sequence("flying").deferred.clear()
    with pytest.raises(Corrupted, match="references"):
        manager.check()


def test_the_source_of_a_copy_in_flight_still_counts():
    manager = scene()
    step = dispatch_all(manager, "child")
    assert step.copies
    manager.check()
    step.copies = ()
    with pytest.raises(Corrupted, match="references"):
        manager.check()
