"""Copies of a manager's whole state, and its canonical form: what a search over states needs of the core.

`clone` is a second manager that goes on by itself. `canonical` is a value that two managers share exactly if the same
calls have the same effects on both, as far as names of blocks, tokens and requests allow. Both know every field, as
`check` does (`invariants.py`): who adds a field to the manager, the pool, the index, a sequence or a step adds it here.

Classes are those of the objects at hand, so that a changed copy of the package can be cloned, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from collections.abc import Sequence as Ordered
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from .manager import BlockManager
from .pool import BlockPool
from .sequence import Sequence, Step

__all__ = ["Inside", "Renaming", "canonical", "clone", "inside", "same_step"]


class Inside(NamedTuple):
    """What a manager is made of: its pool, its live sequences by request, and its steps in flight, oldest first."""

    pool: BlockPool
    sequences: dict[Hashable, Sequence]
    in_flight: deque[Step]


def inside(manager: BlockManager) -> Inside:
    """The objects themselves, to look at, or to break on purpose. O(1)."""
    return Inside(manager._pool, manager._sequences, manager._in_flight)


class Renaming(Protocol):
    """New names, a one-to-one map for each: `blocks` [N] by block, `tokens` by token, `requests` by live request.

    order: the blocks in the order of their new names."""

    @property
    def blocks(self) -> Ordered[int]: ...

    @property
    def order(self) -> Ordered[int]: ...

    @property
    def tokens(self) -> Mapping[int, int]: ...

    @property
    def requests(self) -> Mapping[Any, Any]: ...


def clone(original: Any, hash_function: Callable[[bytes], bytes] | None = None) -> Any:
    """A second `BlockManager` in the same state. hash_function: in place of the original's. O(pool + index + tables).

    By hand, since exploration clones before every operation and `deepcopy` is forty times as slow. Contents are shared
    with the original: they never change and are compared by identity, so a clone must have the same ones or all its
    own."""
    manager = _shallow(original)
    if hash_function is not None:
        manager.config = _shallow(original.config)
        object.__setattr__(manager.config, "hash_function", hash_function)
    manager._counters = _shallow_slots(manager._counters)
    pool = manager._pool = _shallow_slots(manager._pool)
    pool.references = pool.references.copy()
    pool.free = pool.free.copy()
    pool._next = pool._next.copy()
    pool._previous = pool._previous.copy()
    index = pool.index = _shallow_slots(pool.index)
    index.held = index.held.copy()
    index._first = index._first.copy()
    index._more = {link: blocks.copy() for link, blocks in index._more.items()}
    index._orphans = {link: contents.copy() for link, contents in index._orphans.items()}
    steps: dict[int, Any] = {}
    for step in manager._in_flight:
        twin = steps[id(step)] = _shallow_slots(step)
        twin.starts, twin.ends = step.starts.copy(), step.ends.copy()
    sequences: dict[int, Any] = {}
    lists: dict[int, Any] = {}
    manager._sequences = {
        request: _sequence(sequence, sequences, steps, lists) for request, sequence in manager._sequences.items()
    }
    for step in manager._in_flight:
        steps[id(step)].sequences = [
            sequences.get(id(sequence)) or _sequence(sequence, sequences, steps, lists) for sequence in step.sequences
        ]
    manager._in_flight = deque(steps.values())
    return manager


def same_step(manager: Any, step: Any) -> Any:
    """The step of a clone that corresponds to a step of its original. O(steps in flight)."""
    return next(own for own in manager._in_flight if own.number == step.number)


def canonical(manager: Any, renaming: Renaming | None = None) -> Any:
    """Everything that what happens next can depend on, a value that can be compared and hashed. Freed requests in
    flight are named by their place. renaming: the names to use, or those that things have. O(pool + index + tables).

    Left out, since nothing depends on them: counters that only grow; the prompt's links, there exactly while blocks of
    the prompt are unpublished, and then a function of its tokens; packed tables, equal to the tables; orphans that no
    published content extends, and when they are swept, since only what extends an orphan tells it from a new content.
    Contents are named by their place in the index, not only by what they say: two that say the same and are not the
    same are a fault that shows later."""
    pool = manager._pool
    index = pool.index
    renaming = renaming or Unrenamed(pool.num_blocks, manager._sequences)
    blocks, tokens, requests = renaming.blocks, renaming.tokens, renaming.requests
    # A core that has gone wrong may know requests that are not live.
    sequences = sorted(manager._sequences.values(), key=lambda sequence: requests.get(sequence.request, len(requests)))
    live = {id(sequence) for sequence in sequences}
    place = {id(sequence): number for number, sequence in enumerate(sequences)}
    for step in manager._in_flight:
        for sequence in step.sequences:
            if place.setdefault(id(sequence), len(sequences)) == len(sequences):
                sequences.append(sequence)
    first_step = manager._in_flight[0].number if manager._in_flight else 0
    shown_sequences = tuple(
        [
            (
                requests.get(sequence.request, -1) if id(sequence) in live else -1,
                sequence.freed,
                sequence.namespace.encoding,
                tuple([tokens[token] for token in sequence.tokens]),
                tuple([blocks[block] for block in sequence.table]),
                (sequence.base, sequence.scheduled, sequence.computed, sequence.published, sequence.written_from),
                sequence.epoch == manager._epoch,
                sequence.pending
                and (blocks[sequence.pending.source], blocks[sequence.pending.destination], sequence.pending.length),
                tuple(
                    [(step - first_step, tuple([blocks[block] for block in cut])) for step, cut in sequence.deferred]
                ),
            )
            for sequence in sequences
        ]
    )
    # Two sequences with one list between them, which a right core never has: by the place of the first.
    lists = [id(sequence.table) for sequence in sequences] + [id(sequence.tokens) for sequence in sequences]
    shared = tuple([lists.index(one) for one in lists]) if len(set(lists)) < len(lists) else ()
    held, first, more = index.held, index._first, index._more
    size = 4 * manager.config.block_size
    orphans = {id(content) for content in index.orphans()} if index._orphans else ()
    numbers: dict[int, int] = {}
    contents: list[Any] = []
    published: list[Any] = []
    for block in renaming.order:
        content = held[block]
        if content is None:
            continue
        path = []
        while isinstance(content, tuple) and id(content) not in numbers:
            path.append(content)
            content = content[0]
        before: Any = numbers[id(content)] if isinstance(content, tuple) else content.encoding
        for content in reversed(path):
            numbers[id(content)] = len(contents)
            part = tuple([tokens[token] for token in memoryview(content[1][-size:]).cast("i")])
            contents.append((before, part, id(content) in orphans))
            before = numbers[id(content)]
        published.append((blocks[block], numbers[id(held[block])]))
    entries = [(blocks[block], *[blocks[other] for other in more.get(link, ())]) for link, block in first.items()]
    entries.sort()
    # An entry whose block holds something else is a fault; what it would find is told, too.
    stale: list[Any] = []
    if len(published) != len(first) or more:
        for link, block in index:
            content = held[block]
            if content is None or content[1] != link:
                stale.append((blocks[block], tuple([tokens[token] for token in memoryview(link[-size:]).cast("i")])))
        stale.sort()
    return (
        tuple([pool.references[block] for block in renaming.order]),
        tuple([blocks[block] for block in pool.free]),
        tuple([blocks[block] for block in pool.cached()]),
        shown_sequences,
        shared,
        tuple(contents),
        tuple(published),
        tuple(entries),
        tuple(stale),
        tuple(
            [
                (
                    tuple([place[id(sequence)] for sequence in step.sequences]),
                    tuple(step.starts),
                    tuple(step.ends),
                    tuple([(blocks[source], blocks[destination]) for source, destination in step.copies]),
                )
                for step in manager._in_flight
            ]
        ),
    )


def _shallow(original: Any) -> Any:
    """A second object with the same attributes."""
    other = object.__new__(type(original))
    vars(other).update(vars(original))
    return other


def _shallow_slots(original: Any) -> Any:
    """The same for a class with slots."""
    kind = type(original)
    other = object.__new__(kind)
    get = _SLOTS.get(kind)
    if get is None:
        get = _SLOTS[kind] = attrgetter(*kind.__slots__)
    for name, value in zip(kind.__slots__, get(original), strict=True):
        setattr(other, name, value)
    return other


_SLOTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
"""By class: all slots at once, which is three times as quick as one by one."""


def _sequence(original: Any, sequences: dict[int, Any], steps: dict[int, Any], lists: dict[int, Any]) -> Any:
    """A copy of a sequence in the copied `steps`; enters itself in `sequences` by the original's id.

    lists: copies of tables and tokens by the original's id. Where two sequences share one list by mistake, their copies
    must share one, too, or exploration would repair the fault that it is there to find."""
    other = sequences[id(original)] = _shallow_slots(original)
    tokens, table = original.tokens, original.table
    other.tokens = lists[id(tokens)] = lists[id(tokens)] if id(tokens) in lists else tokens[:]
    other.table = lists[id(table)] = lists[id(table)] if id(table) in lists else table.copy()
    if original.packed is not None:
        other.packed = original.packed[:]
    other.flights = [(steps[id(step)], place) for step, place in original.flights]
    other.deferred = original.deferred.copy()  # of tuples whose blocks never change
    return other


class _Same(dict[int, int]):
    """Tokens that keep their names."""

    def __missing__(self, name: int) -> int:
        return name


class Unrenamed:
    """The renaming that changes nothing; requests stand for themselves."""

    def __init__(self, num_blocks: int, requests: Iterable[Any]) -> None:
        self.blocks: Ordered[int] = range(num_blocks)
        self.order: Ordered[int] = range(num_blocks)
        self.tokens: Mapping[int, int] = _Same()
        self.requests: Mapping[Any, Any] = {request: request for request in requests}
