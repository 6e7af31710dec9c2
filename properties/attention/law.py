"""Allocator and kernels together: a law that runs every dispatched step on real tensors.

Keys, values and queries of a token are a function of its whole history and namespace, and of nothing else. So a block
that holds another history gives other numbers, whatever the bookkeeping says, and one token has one right output,
however it was scheduled. For each step, in the order of a stream: its copies, its K/V by slot mapping, attention over
the block tables. Then:

- EQUIVALENCE: each row is within tolerance of attention over the history itself, computed from scratch; and its
  float32 bits are those of every earlier row with the same history: cold or warm, in any chunk, batch and place.
- BOUNDS: free blocks, and blocks taken for other content, are full of NaN; the sanitizer sees every access.
- FRESHNESS: the tag of every slot in a context, noted by the store kernel, is that of the token that belongs there.

A step's rows beyond `ROWS` a sequence are stored but not attended: the interpreter takes milliseconds a tile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

import reference
from reference import Equivalence, Freshness

from ..laws import Law, Seen
from ..operations import Configuration
from ..target import Capability, StepArrays
from .cases import Case
from .kernels import AXES, How, Kernels, Step, unwatched
from .launch import Launches
from .oracle import exact
from .tolerance import tolerance
from .world import NAN, World

__all__ = ["KernelLaw", "kernel_laws", "shape_for"]

ROWS = 8
"""At most so many query rows of one sequence are attended in one step: its last ones."""


def shape_for(configuration: Configuration) -> Case:
    """The kernels' side of a configuration: dtype, heads, tree and features, by simple rules from its numbers.

    A function of the configuration, so that a counterexample needs to hold nothing else. O(1).
    """
    number = configuration.num_blocks * 7 + configuration.block_size * 3 + configuration.hash_bits
    small = configuration.num_blocks * configuration.block_size <= 128
    return Case(
        sequences=(),
        dtype=("bfloat16", "float16", "float8_e4m3", "float32")[number % 4],
        kv_heads=1 + number % 2,
        group=(1, 2, 3, 5)[number // 4 % 4],
        head_dim=(16, 24)[number // 3 % 2],
        block_size=configuration.block_size,
        window=(None, None, 5, 20)[number // 5 % 4],
        softcap=(None, 30.0)[number // 7 % 2],
        alibi=number % 5 == 0,
        filler="stale",
        tile=16 if small else 64,
        leaf=32 if small else 128,
        rows=(16, 32),
        seed=number,
    )


@dataclass(frozen=True, slots=True)
class _Token:
    """What a history's last token is, as tensors [heads, D]."""

    key: torch.Tensor
    value: torch.Tensor
    query: torch.Tensor


class KernelLaw:
    """Runs and checks every step of one session on `kernels`."""

    needs = frozenset({Capability.BATCH})
    # A placeholder's K/V are computed before the host knows its token; here they are a function of the token.
    excludes = frozenset({Capability.FILL})

    def __init__(self, kernels: Kernels, configuration: Configuration, *, sanitize: bool = True) -> None:
        if missing := sorted(set(AXES) - kernels.axes):
            raise ValueError(
                f"{kernels.name} cannot run beside an allocator: steps vary {', '.join(missing)}, which it does not "
                "offer; check it alone, with `python -m fuzz attention --kernels`"
            )
        self.case = shape_for(configuration)
        self.world = World(self.case)
        self.kernels = kernels
        self.launches = Launches(kernels, sanitize=sanitize)
        self.num_blocks = configuration.num_blocks
        self.arena = self.world.arena(self.num_blocks)
        self.tags = torch.zeros(self.num_blocks * self.case.block_size, dtype=torch.int64)
        self.compared = 0
        self._poisoned = [True] * self.num_blocks
        self._cached = [False] * self.num_blocks
        self._tokens: dict[bytes, _Token] = {}
        self._outputs: dict[bytes, torch.Tensor] = {}
        self.steps = 0
        reason = kernels.supports(self.world.spec, self.case.dtype, self.case.block_size)
        self.skipped = reason

    # ---- the law -----------------------------------------------------------------------------------------------------

    def after(self, seen: Seen) -> None:
        """O(pool) for the poison, and the step's own work."""
        self._poison(seen)
        if seen.step is not None and self.skipped is None:
            self._run(*seen.step[:3])

    def walk(self, seen: Seen, operations: int) -> None:
        """Nothing to compare at intervals: each step was compared when it ran."""

    def _poison(self, seen: Seen) -> None:
        """Fill what became free, and what was evicted for other content, with NaN."""
        references, published = seen.judge.blocks.references, seen.judge.blocks.published
        fresh = []
        for block in range(self.num_blocks):
            free = not references[block] and published[block] is None
            evicted = self._cached[block] and published[block] is None
            if (free or evicted) and not self._poisoned[block]:
                fresh.append(block)
                self._poisoned[block] = True
            self._cached[block] = not references[block] and published[block] is not None
        if fresh:
            for cache in (self.arena.cache.keys, self.arena.cache.values):
                cache.view(torch.uint8)[fresh] = NAN
            self.tags.view(self.num_blocks, -1)[fresh] = 0

    def _run(self, passage: reference.Step, copies: Sequence[tuple[int, int]], arrays: StepArrays) -> None:
        case, world, launches = self.case, self.world, self.launches
        if copies:
            launches.copy(self.arena, copies)
            tags = self.tags.view(self.num_blocks, -1)
            for source, destination in copies:
                tags[destination] = tags[source]
                self._poisoned[destination] = self._poisoned[source]
        histories = [self._histories(line, end) for line, _, end in passage.spans]
        rows = [
            history for own, (_, start, end) in zip(histories, passage.spans, strict=True) for history in own[start:end]
        ]
        tokens = [self._token(history) for history in rows]
        launches.store(
            world,
            self.arena,
            torch.stack([token.key for token in tokens]),
            torch.stack([token.value for token in tokens]),
            arrays.slots,
            self.tags,
            [_tag(history) for history in rows],
        )
        for slot in arrays.slots:
            if slot >= 0:
                self._poisoned[slot // case.block_size] = False

        lengths = [min(end - start, ROWS) for _, start, end in passage.spans]
        contexts = list(arrays.context_lengths)
        width = max(map(len, arrays.tables))
        step = Step(
            tables=np.array([[*table, *[-1] * (width - len(table))] for table in arrays.tables], dtype=np.int32),
            contexts=contexts,
            lengths=lengths,
            slots=[-1] * sum(lengths),
        )
        self._audit(passage, step, histories)
        self.steps += 1
        how = How(
            schedule=("direct", "split", "mixed")[self.steps % 3],
            rows=case.rows,
            shuffle=self.steps,
            padded=self.steps % 4 == 0,
            tile=case.tile,
            leaf=case.leaf,
            native_fp8=self.steps % 2 == 0,
        )
        last = [own[-length:] for own, length in zip(histories, lengths, strict=True)]
        queries = world.packed([torch.stack([self._token(history).query for history in own]) for own in last])
        outputs = launches.attend(world, self.arena, queries, step, how).split(lengths)
        self._right(passage, histories, outputs)
        for (line, _, end), own, output in zip(passage.spans, last, outputs, strict=True):
            for row, history in enumerate(own):
                before = self._outputs.setdefault(history, output[row])
                self.compared += len(before)
                if not torch.equal(before.view(torch.int32), output[row].view(torch.int32)):
                    position = end - len(own) + row
                    raise Equivalence(
                        f"{line.request!r}, position {position}: other bits than when the same history was computed "
                        f"before, by up to {float((before - output[row]).abs().max()):.3g}"
                    )

    def _audit(self, passage: reference.Step, step: Step, histories: Sequence[Sequence[bytes]]) -> None:
        expected = [[_tag(history) for history in own] for own in histories]
        wrong = self.kernels.audit(self.tags, step.tables, self.case.block_size, expected, unwatched)
        for place, tag in enumerate(wrong):
            if tag != -1:
                for (line, _, _), own in zip(passage.spans, expected, strict=True):
                    if place < len(own):
                        raise Freshness(
                            f"{line.request!r}, position {place}: the tag of its slot is {tag:#x}, written for another "
                            f"token; {own[place]:#x} is due"
                        )
                    place -= len(own)

    def _right(
        self, passage: reference.Step, histories: Sequence[Sequence[bytes]], outputs: Sequence[torch.Tensor]
    ) -> None:
        """Against attention over the histories themselves."""
        world, spec = self.world, self.world.spec
        for (line, _, end), own, output in zip(passage.spans, histories, outputs, strict=True):
            tokens = [self._token(history) for history in own]
            keys = torch.stack([token.key for token in tokens])
            values = torch.stack([token.value for token in tokens])
            right = exact(
                torch.stack([token.query for token in tokens[-len(output) :]]),
                world.stored(keys, 0),
                world.stored(values, 1),
                scale=spec.scale,
                window=spec.window,
                softcap=spec.softcap,
                slopes=spec.slopes,
            )
            (allowed,) = tolerance([right], world.compute)
            part = (output.double() - right.output).abs() / allowed
            if part.max() > 1.0:
                row, head, dim = (int(index) for index in (part == part.max()).nonzero()[0])
                raise Equivalence(
                    f"{line.request!r}, position {end - len(output) + row}, head {head}, dim {dim} is "
                    f"{output[row, head, dim]:.9g}; over its own history it is {right.output[row, head, dim]:.9g}, "
                    f"{float(part.max()):.3g} times the error that {self.case.dtype} allows"
                )

    # ---- histories and their values ----------------------------------------------------------------------------------

    def _histories(self, line: reference.Sequence, end: int) -> list[bytes]:
        """The digest of the history up to each of the first `end` tokens, that token included. O(end)."""
        digest = hashlib.blake2b(repr(line.namespace).encode(), digest_size=16).digest()
        result = []
        for token in line.tokens[:end]:
            digest = hashlib.blake2b(digest + token.to_bytes(4, "little", signed=True), digest_size=16).digest()
            result.append(digest)
        return result

    def _token(self, history: bytes) -> _Token:
        known = self._tokens.get(history)
        if known is None:
            case = self.case
            size = case.kv_heads * case.head_dim
            rng = np.random.default_rng(list(history))
            drawn = torch.from_numpy(rng.standard_normal((2 + case.group) * size)).to(torch.float32)
            drawn = drawn.to(self.world.compute)
            key, value, query = drawn.split([size, size, case.group * size])
            shape = (case.kv_heads, case.head_dim)
            known = _Token(key.view(shape), value.view(shape), query.view(-1, case.head_dim))
            self._tokens[history] = known
        return known


def _tag(history: bytes) -> int:
    """From 1 to 2**62: 0 is "never written", negative numbers are the audit's own."""
    return (int.from_bytes(history[:8], "little") >> 2) + 1


def kernel_laws(kernels: Kernels) -> Callable[[Configuration], tuple[Law, ...]]:
    """For sessions and machines that are to run the kernels beside the allocator."""
    return lambda configuration: (KernelLaw(kernels, configuration),)
