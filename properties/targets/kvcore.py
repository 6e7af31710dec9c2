"""kvcore as a target: the whole protocol, nothing left out.

The adapter is given the core as a module, so that the same file also drives a copy of kvcore with a planted fault.

Also imports: kvcore.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import kvcore
from kvcore.state import canonical, clone, same_step
from reference import Policy

from ..footprint import entries
from ..operations import Configuration, Namespace, Tokens
from ..target import Capability, Claim, Counts, Found, Inspection, Renaming, StepArrays, StepView, Target

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
            Capability.PADDING,
            Capability.REFUSES,
            Capability.ERRORS,
            Capability.INSPECT,
            Capability.CONTENTS,
            Capability.CHECK,
            Capability.CLONE,
            Capability.COUNTERS,
            Capability.FOOTPRINT,
            Capability.KEYS,
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
            lambda: _shown(batch),
            padded=lambda tokens, sequences: _shown(batch.padded(tokens=tokens, sequences=sequences)),
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
        spaces: dict[Any, Namespace] = {}
        for name, space in self._namespaces.items():
            spaces.setdefault(space.encoding, name)
        return {block: self._claim(index.held[block], known, spaces) for _, block in index}

    def _claim(self, content: Any, known: dict[int, Claim], spaces: dict[Any, Namespace]) -> Claim:
        """What the index says that `content` is. `known` holds claims by the id of their content, to share them, and
        `spaces` namespaces by their encoding."""
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
            before = spaces.get(encoding, (("no namespace's root", repr(encoding)),))
        for content in reversed(path):
            before = known[id(content)] = Claim(before, content[1][-size:])
        return before if isinstance(before, Claim) else Claim(before, b"")

    def counters(self) -> Counts:
        shown = self.manager.statistics()
        return Counts(
            shown.queried_tokens,
            shown.hit_tokens,
            shown.evicted_tokens // self.policy.block_size,
            shown.refusals,
            shown.copied_blocks,
        )

    def footprint(self) -> int:
        return entries(self.manager)

    def keys(self) -> dict[int, bytes]:
        index = self.manager._pool.index
        return {block: index.held[block][1] for _, block in index}

    def check(self) -> None:
        self.manager.check()

    def clone(self) -> Target:
        other: KvcoreTarget = object.__new__(type(self))
        vars(other).update(vars(self))
        other._namespaces = self._namespaces.copy()
        if self.manager.config.hash_function == self._colliding:
            other._hashed = self._hashed.copy()
            other.manager = clone(self.manager, other._colliding)  # it counts for one target
        else:
            other.manager = clone(self.manager)
        return other

    def same_step(self, handle: Any) -> Any:
        return same_step(self.manager, handle)

    def canonical(self, renaming: Renaming | None = None) -> Any:
        return canonical(self.manager, renaming)

    def noticed(self) -> dict[str, int]:
        return {"hash collision": self._collisions} if self._collisions else {}


def _shown(batch: Any) -> StepArrays:
    return StepArrays(
        tables=batch.block_tables.tolist(),
        context_lengths=batch.context_lengths.tolist(),
        cu_seqlens=batch.cu_seqlens.tolist(),
        packed_rows=batch.packed_rows.tolist(),
        row_sequences=batch.row_sequences.tolist(),
        positions=batch.positions.tolist(),
        slots=batch.slot_mapping.tolist(),
    )


def make(configuration: Configuration) -> KvcoreTarget:
    """The factory that `--target kvcore` names."""
    return KvcoreTarget(configuration)
