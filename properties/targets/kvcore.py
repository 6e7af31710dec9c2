"""kvcore as a target: the whole protocol, nothing left out.

The adapter is given the core as a module, so that the same file also drives a copy of kvcore with a planted fault.

Also imports: kvcore.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from types import ModuleType
from typing import Any, cast

import kvcore
from reference import Policy

from ..operations import Configuration, Namespace, Tokens
from ..target import Capability, Claim, Found, Inspection, Numbers, Renaming, StepArrays, StepView, Target

__all__ = ["KvcoreTarget", "make"]


class KvcoreTarget:
    """One `kvcore.BlockManager`, driven through the target protocol."""

    capabilities = frozenset(
        {
            Capability.LOOKUP,
            Capability.MATCH,
            Capability.FILL,
            Capability.OVERLAP,
            Capability.TRUNCATE,
            Capability.FORK,
            Capability.RESET,
            Capability.NAMESPACES,
            Capability.HASH,
            Capability.BATCH,
            Capability.REFUSES,
            Capability.ERRORS,
            Capability.INSPECT,
            Capability.CONTENTS,
            Capability.CHECK,
            Capability.CLONE,
        }
    )

    def __init__(self, configuration: Configuration, core: ModuleType = kvcore) -> None:
        self.name = core.__name__
        self.policy = Policy(
            num_blocks=configuration.num_blocks,
            block_size=configuration.block_size,
            caching=configuration.caching,
            reuse=configuration.reuse,
        )
        self.refusals: tuple[type[Exception], ...] = (core.CacheError,)
        self._corrupted = core.Corrupted
        self._namespace = core.Namespace
        self._namespaces: dict[Namespace, Any] = {}
        self._hashed: dict[bytes, bytes] = {}
        self._collisions = 0
        self._hash = core.weak_hash(configuration.hash_bits)
        self.manager = core.BlockManager(
            core.CacheConfig(
                num_blocks=configuration.num_blocks,
                block_size=configuration.block_size,
                caching=configuration.caching,
                reuse=core.ReusePolicy(configuration.reuse),
                hash_function=self._hash if configuration.hash_bits > 16 else self._colliding,
            )
        )

    def _colliding(self, data: bytes) -> bytes:
        key: bytes = self._hash(data)
        if self._hashed.setdefault(key, data) != data:
            self._collisions += 1
        return key

    def kind(self, error: Exception) -> str:
        if isinstance(error, self._corrupted):
            raise error
        return type(error).__name__

    def _space(self, namespace: Namespace) -> Any:
        space = self._namespaces.get(namespace)
        if space is None:
            space = self._namespaces[namespace] = self._namespace(**dict(namespace))
        return space

    def lookup(self, tokens: Tokens, namespace: Namespace) -> Found:
        match = self.manager.lookup(tokens, self._space(namespace))
        return Found(match.num_tokens, match.blocks, match)

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        sequence = self.manager.allocate(request, tokens, self._space(namespace), handle)
        return int(sequence.num_hit_tokens)

    def append(self, request: str, tokens: Tokens) -> None:
        # A list, as an engine passes it.
        self.manager.append(request, list(tokens))

    def fill(self, request: str, position: int, tokens: Tokens) -> None:
        self.manager.fill(request, position, tokens)

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        step = self.manager.dispatch(work)
        batch = step.batch
        assert batch is not None
        return StepView(
            step,
            step.copies,
            lambda: StepArrays(
                tables=batch.block_tables.tolist(),
                context_lengths=batch.context_lengths.tolist(),
                cu_seqlens=batch.cu_seqlens.tolist(),
                packed_rows=batch.packed_rows.tolist(),
                row_sequences=batch.row_sequences.tolist(),
                positions=batch.positions.tolist(),
                slots=batch.slot_mapping.tolist(),
            ),
        )

    def complete(self, handle: Any) -> None:
        self.manager.complete(handle)

    def truncate(self, request: str, length: int) -> None:
        self.manager.truncate(request, length)

    def fork(self, request: str, child: str) -> None:
        self.manager.fork(request, child)

    def free(self, request: str) -> None:
        self.manager.free(request)

    def reset(self) -> None:
        self.manager.reset()

    def table(self, request: str) -> list[int]:
        return list(self.manager._sequences[request].table)

    def counts(self) -> tuple[int, int, int]:
        pool = self.manager._pool
        free, cached = len(pool.free), pool.num_cached
        return free, cached, pool.num_blocks - free - cached

    def states(self, blocks: Sequence[int]) -> list[tuple[int, bool]]:
        pool = self.manager._pool
        references, held = pool.references, pool.index.held
        return [(references[block], held[block] is not None) for block in blocks]

    def inspect(self) -> Inspection:
        pool = self.manager._pool
        sequences = self.manager._sequences
        return Inspection(
            references=pool.references.copy(),
            published=[content is not None for content in pool.index.held],
            tables={request: list(sequence.table) for request, sequence in sequences.items()},
            lengths={
                request: (len(sequence.tokens), sequence.scheduled, sequence.computed)
                for request, sequence in sequences.items()
            },
            free=list(pool.free),
            cached=list(pool.cached()),
        )

    def contents(self) -> dict[int, Claim]:
        known: dict[int, Claim] = {}
        index = self.manager._pool.index
        return {block: self._claim(index.held[block], known) for _, block in index}

    def _claim(self, content: Any, known: dict[int, Claim] | None = None) -> Claim:
        """What the index says that `content` is. `known` holds claims by the id of their content, to share them."""
        known = {} if known is None else known
        size = 4 * self.policy.block_size
        path = []
        while isinstance(content, tuple) and id(content) not in known:
            path.append(content)
            content = content[0]
        before: Claim | Namespace
        if isinstance(content, tuple):
            before = known[id(content)]
        else:
            encoding = getattr(content, "encoding", content)  # None where a broken index names a block without content
            spaces = (name for name, space in self._namespaces.items() if space.encoding == encoding)
            before = next(spaces, (("no namespace's root", repr(encoding)),))
        for content in reversed(path):
            before = known[id(content)] = Claim(before, content[1][-size:])
        return before if isinstance(before, Claim) else Claim(before, b"")

    def check(self) -> None:
        self.manager.check()

    def clone(self) -> Target:
        """By hand, since exploration clones before every operation and `deepcopy` is forty times as slow.

        Contents are shared with the original: they never change and are compared by identity, so a clone must have
        the same ones or all its own. Classes are those of the objects at hand, which may be a planted copy's."""
        other: KvcoreTarget = object.__new__(type(self))
        vars(other).update(vars(self))
        other._namespaces = self._namespaces.copy()
        manager = other.manager = _shallow(self.manager)
        if self.manager.config.hash_function == self._colliding:
            other._hashed = self._hashed.copy()
            manager.config = _shallow(self.manager.config)
            object.__setattr__(manager.config, "hash_function", other._colliding)  # it counts for one target
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
                sequences.get(id(sequence)) or _sequence(sequence, sequences, steps, lists)
                for sequence in step.sequences
            ]
        manager._in_flight = deque(steps.values())
        return other

    def same_step(self, handle: Any) -> Any:
        return next(step for step in self.manager._in_flight if step.number == handle.number)

    def canonical(self, renaming: Renaming | None = None) -> Any:
        """Everything that what happens next can depend on. Freed requests in flight by their place.

        Left out, since nothing depends on them: counters that only grow; the prompt's links, there exactly while blocks
        of the prompt are unpublished, and then a function of its tokens; packed tables, equal to the tables; orphans
        that no published content extends, and when they are swept, since only what extends an orphan tells it from a
        new content. Contents are named by their place in the index, not only by what they say: two that say the same
        and are not the same are a fault that shows later."""
        manager = self.manager
        pool = manager._pool
        index = pool.index
        renaming = renaming or _names(pool.num_blocks, manager._sequences)
        blocks, tokens, requests = renaming.blocks, renaming.tokens, renaming.requests
        # A core that has gone wrong may know requests that are not live.
        lines = sorted(manager._sequences.values(), key=lambda line: requests.get(line.request, len(requests)))
        live = {id(line) for line in lines}
        place = {id(line): number for number, line in enumerate(lines)}
        for step in manager._in_flight:
            for line in step.sequences:
                if place.setdefault(id(line), len(lines)) == len(lines):
                    lines.append(line)
        first_step = manager._in_flight[0].number if manager._in_flight else 0
        shown_lines = tuple(
            [
                (
                    requests.get(line.request, -1) if id(line) in live else -1,
                    line.freed,
                    line.namespace.encoding,
                    tuple([tokens[token] for token in line.tokens]),
                    tuple([blocks[block] for block in line.table]),
                    (line.base, line.scheduled, line.computed, line.published, line.written_from),
                    line.epoch == manager._epoch,
                    line.pending
                    and (blocks[line.pending.source], blocks[line.pending.destination], line.pending.length),
                    tuple(
                        [(step - first_step, tuple([blocks[block] for block in cut])) for step, cut in line.deferred]
                    ),
                )
                for line in lines
            ]
        )
        # Two sequences with one list between them, which a right core never has: by the place of the first.
        lists = [id(line.table) for line in lines] + [id(line.tokens) for line in lines]
        shared = tuple([lists.index(one) for one in lists]) if len(set(lists)) < len(lists) else ()
        held, first, more = index.held, index._first, index._more
        size = 4 * self.policy.block_size
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
                    stale.append(
                        (blocks[block], tuple([tokens[token] for token in memoryview(link[-size:]).cast("i")]))
                    )
            stale.sort()
        return (
            tuple([pool.references[block] for block in renaming.order]),
            tuple([blocks[block] for block in pool.free]),
            tuple([blocks[block] for block in pool.cached()]),
            shown_lines,
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

    def noticed(self) -> dict[str, int]:
        return {"hash collision": self._collisions} if self._collisions else {}


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


def _names(num_blocks: int, requests: Iterable[Any]) -> Any:
    """The renaming that changes nothing; requests stand for themselves."""
    same = range(num_blocks)
    return Renaming(same, same, cast(Numbers, _Same()), {request: request for request in requests})


def make(configuration: Configuration) -> KvcoreTarget:
    """The factory that `--target kvcore` names."""
    return KvcoreTarget(configuration)
