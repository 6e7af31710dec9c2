"""Every internal invariant of the core, checked in full. It ships with the core, as sortedcontainers' `_check` does.

Each clause is one sentence and one name; the first that is broken raises `Corrupted` with that name and the numbers.
It recomputes everything from the tables and never trusts a counter that it can count.

It only reads: it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import islice
from typing import Literal

from .config import CacheConfig
from .errors import Corrupted
from .identity import UNKNOWN
from .pool import BlockPool
from .prefix import Content, Root
from .sequence import Sequence, Step

__all__ = ["Clause", "check"]


Clause = Literal[
    "cached-count",
    "listed-once",
    "conservation",
    "free-is-empty",
    "cached-is-published",
    "references",
    "ownership",
    "content-interned",
    "orphans",
    "prefix-outlives",
    "counters",
    "table-length",
    "table-distinct",
    "published-computed",
    "unnamed",
    "packed-table",
    "published-history",
    "in-flight",
    "in-flight-order",
    "flights",
]
"""The names of all clauses, in the order in which they are checked."""


def check(
    pool: BlockPool, live: Mapping[Hashable, Sequence], in_flight: Iterable[Step], config: CacheConfig, epoch: int
) -> None:
    """Raise Corrupted for the first broken clause; `epoch` is the manager's. O(pool + index + tables)."""
    steps = list(in_flight)
    sequences = {id(sequence): sequence for sequence in live.values()}
    for step in steps:
        for sequence in step.sequences:
            sequences.setdefault(id(sequence), sequence)
    _check_states(pool)
    _check_references(pool, sequences.values(), steps)
    _check_index(pool)
    for sequence in sequences.values():
        _check_sequence(sequence, pool, config, epoch)
    _check_steps(steps, sequences.values())


def _require(holds: bool, clause: Clause, message: str) -> None:
    if not holds:
        raise Corrupted(clause, message)


def _check_states(pool: BlockPool) -> None:
    # One more than there can be, in case the list is a cycle.
    free, cached = list(pool.free), list(islice(pool.cached(), pool.num_blocks + 1))
    _require(
        len(cached) == pool.num_cached,
        "cached-count",
        f"{len(cached)} blocks listed as cached, {pool.num_cached} counted",
    )
    listed = Counter(free + cached)
    twice = [block for block, times in listed.items() if times > 1]
    _require(not twice, "listed-once", f"blocks {twice} are listed more than once as free or cached")
    active = [block for block, count in enumerate(pool.references) if count]
    _require(
        len(free) + len(cached) + len(active) == pool.num_blocks and listed.keys().isdisjoint(active),
        "conservation",
        f"{len(free)} free + {len(cached)} cached + {len(active)} active is not {pool.num_blocks} blocks",
    )
    for block in free:
        _require(pool.index.held[block] is None, "free-is-empty", f"free block {block} is published")
    for block in cached:
        _require(pool.index.held[block] is not None, "cached-is-published", f"cached block {block} has no content")


def _check_references(pool: BlockPool, sequences: Iterable[Sequence], steps: Iterable[Step]) -> None:
    holders: Counter[int] = Counter()
    for sequence in sequences:
        holders.update(sequence.table)
        if sequence.pending is not None:
            holders[sequence.pending.source] += 1
        for _, blocks in sequence.deferred:
            holders.update(blocks)
    for step in steps:
        holders.update(source for source, _ in step.copies)
    for block, count in enumerate(pool.references):
        _require(
            count == holders[block],
            "references",
            f"block {block} has {count} references, but {holders[block]} tables and copies hold it",
        )


def _check_index(pool: BlockPool) -> None:
    held = pool.index.held
    entries = list(pool.index)
    named = Counter(block for _, block in entries)
    _require(
        named == Counter(block for block, record in enumerate(held) if record is not None),
        "ownership",
        f"the index names blocks {sorted(named.elements())}, content is held by "
        f"{[block for block, record in enumerate(held) if record is not None]}",
    )
    owned = set()
    histories: dict[tuple[int, bytes], int] = {}
    for link, block in entries:
        content = held[block]
        assert content is not None
        owned.add(id(content))
        parent, own = content
        _require(own == link, "ownership", f"the index names block {block} under a link that is not its own")
        _require(
            histories.setdefault((id(parent), link), id(content)) == id(content),
            "content-interned",
            f"block {block} holds a history that the index has as another content",
        )
    orphans = {id(content) for content in pool.index.orphans()}
    _require(owned.isdisjoint(orphans), "orphans", "a content that a block holds is kept as an orphan")
    for _, block in entries:
        content = held[block]
        assert content is not None
        _require(
            isinstance(content[0], Root) or id(content[0]) in owned or id(content[0]) in orphans,
            "prefix-outlives",
            f"block {block} is indexed, but the content before it is neither held nor kept",
        )


def _check_sequence(sequence: Sequence, pool: BlockPool, config: CacheConfig, epoch: int) -> None:
    name, length, size = repr(sequence.request), len(sequence.tokens), config.block_size
    _require(
        0 <= sequence.computed <= sequence.scheduled <= length,
        "counters",
        f"request {name}: computed {sequence.computed}, scheduled {sequence.scheduled}, length {length}",
    )
    _require(
        len(sequence.table) == -(-length // size),
        "table-length",
        f"request {name}: {length} tokens in {len(sequence.table)} blocks of {size}",
    )
    _require(len(set(sequence.table)) == len(sequence.table), "table-distinct", f"request {name} holds a block twice")
    _require(
        sequence.published <= sequence.computed // size
        # LAST_TOKEN: a full last block was hit, its last token is computed again.
        or sequence.published * size == sequence.base == sequence.written_from,
        "published-computed",
        f"request {name}: {sequence.published} blocks published, {sequence.computed} tokens computed",
    )
    _require(
        sequence.unnamed == sequence.tokens.count(UNKNOWN),
        "unnamed",
        f"request {name} counts {sequence.unnamed} placeholders and has {sequence.tokens.count(UNKNOWN)}",
    )
    _require(
        sequence.packed is None or list(sequence.packed) == sequence.table,
        "packed-table",
        f"request {name}: the packed table is {list(sequence.packed or ())}, the table {sequence.table}",
    )
    if sequence.epoch != epoch:
        return  # a reset took everything out of the index
    parent: Root | Content = pool.index.root(sequence.namespace.encoding)
    for logical, block in enumerate(sequence.table[: sequence.published]):
        content = pool.index.held[block]
        piece = sequence.tokens[logical * size : (logical + 1) * size].tobytes()
        _require(
            content is not None and content[0] is parent and content[1].endswith(piece),
            "published-history",
            f"request {name}: block {block} is not published with the history of logical block {logical}",
        )
        assert content is not None
        parent = content


def _check_steps(steps: list[Step], sequences: Collection[Sequence]) -> None:
    for step in steps:
        _require(not step.completed, "in-flight", f"step {step.number} is completed and still in flight")
    numbers = [step.number for step in steps]
    _require(numbers == sorted(set(numbers)), "in-flight-order", f"steps in flight are numbered {numbers}")
    for sequence in sequences:
        carried = [(step.number, step.sequences.index(sequence)) for step in steps if sequence in step.sequences]
        noted = [(step.number, place) for step, place in sequence.flights]
        _require(
            noted == carried,
            "flights",
            f"request {sequence.request!r} notes (step, place) {noted}; the steps in flight say {carried}",
        )
