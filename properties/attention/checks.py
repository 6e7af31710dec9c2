"""What must hold of attention kernels, for one case: EQUIVALENCE and BOUNDS.

The kernels store the case's K/V into a cache full of NaN, and the cache is compared byte by byte. The base run is
compared with the float64 oracle. Then the case is run along each of its axes, and every output must have exactly the
bits of the base run, in float32. (Rounded to bf16, a reduction in another order is invisible: docs/kernels.md.) In the
interpreter every launch runs under the sanitizer. Inputs and red zones must not change.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from reference import Bounds, Equivalence, Violation

from .cases import Case, control_case, fit
from .kernels import AXES, How, Kernels, Step, Unsupported
from .launch import Launches, called
from .oracle import exact
from .tolerance import tolerance
from .world import NAN, Arena, Placement, World

__all__ = ["Blind", "Checker", "Counts", "Piece", "poison_is_seen"]

FINITE = (0x3C, 0x47)
"""Bytes that fill unused slots with other, finite numbers: a slot that is read and weighs little shows in the bits."""


class Blind(RuntimeError):
    """Poison inside a context does not show in these kernels' output: the checks that rely on it prove nothing."""


class Piece(NamedTuple):
    """Query rows `first` to `end` of one of the case's sequences, as one sequence of a batch."""

    sequence: int
    first: int
    end: int


@dataclass(slots=True)
class Counts:
    """What was checked.

    row_heads: compared with the oracle. compared: with other bits, by axis. worst: the largest error as a part of what
    is allowed, by dtype. skipped: reasons and how often. off: what these kernels lack, and the cases that had it and
    were checked without it. accesses: elements that the sanitizer looked at.
    """

    cases: int = 0
    row_heads: int = 0
    compared: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    off: dict[str, int] = field(default_factory=dict)
    accesses: int = 0

    def add(self, other: Counts) -> None:
        self.cases += other.cases
        self.row_heads += other.row_heads
        self.accesses += other.accesses
        for mine, theirs in (
            (self.compared, other.compared),
            (self.skipped, other.skipped),
            (self.off, other.off),
        ):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        for name, part in other.worst.items():
            self.worst[name] = max(self.worst.get(name, 0.0), part)


@dataclass(frozen=True, slots=True)
class _Base:
    """The run that all others are compared with."""

    world: World
    how: How
    pieces: list[Piece]
    placement: Placement
    arena: Arena
    outputs: list[torch.Tensor]


class Checker:
    """Checks cases against `kernels`; `counts` says what was checked.

    sanitize: watch every access; needs Triton's interpreter.
    """

    def __init__(self, kernels: Kernels, *, sanitize: bool = True, device: torch.device | str = "cpu") -> None:
        self.kernels = kernels
        self.launches = Launches(kernels, sanitize=sanitize)
        self.device = torch.device(device)
        self.counts = Counts()
        self._axes: dict[str, Callable[[_Base], None]] = {
            "schedule": self._schedule,
            "rows": self._rows,
            "order": self._order,
            "placement": self._placement,
            "batch": self._batch,
            "chunks": self._chunks,
            "padding": self._padding,
            "poison": self._poison,
            "copies": self._copies,
            "repeat": self._repeat,
        }
        assert set(self._axes) == set(AXES)

    def check(self, case: Case) -> None:
        """Raises Bounds or Equivalence. A case that the kernels do not support is counted as skipped."""
        try:
            base = self._begin(case)
        except Unsupported as error:
            self._skip(str(error))
            return
        self.right(base.world, base.outputs)
        for axis in base.world.case.axes:
            self._walk(base, axis)
        self.counts.accesses, self.launches.accesses = self.counts.accesses + self.launches.accesses, 0

    def survey(self, case: Case) -> dict[str, Violation | None]:
        """Every verdict on a case, not only the first: by "run" (storing, and the base run under watch), "oracle", and
        each of the case's axes, the violation or None. What the kernels do not support is left out, and what could
        not be judged because the run failed."""
        verdicts: dict[str, Violation | None] = {}

        def judge(what: str, act: Callable[[], None]) -> None:
            before = sum(self.counts.skipped.values())
            try:
                act()
            except Violation as violation:
                verdicts[what] = violation
            else:
                if sum(self.counts.skipped.values()) == before:
                    verdicts[what] = None

        bases: list[_Base] = []
        try:
            judge("run", lambda: bases.append(self._begin(case)))
        except Unsupported as error:
            self._skip(str(error))
        for base in bases:
            judge("oracle", partial(self.right, base.world, base.outputs))
            for axis in base.world.case.axes:
                if axis in self.kernels.axes:
                    judge(axis, partial(self._walk, base, axis))
        self.counts.accesses, self.launches.accesses = self.counts.accesses + self.launches.accesses, 0
        return verdicts

    def _skip(self, reason: str) -> None:
        self.counts.skipped[reason] = self.counts.skipped.get(reason, 0) + 1

    def _walk(self, base: _Base, axis: str) -> None:
        if axis not in self.kernels.axes:
            return
        try:
            self._axes[axis](base)
        except Unsupported as error:
            self._skip(f"{axis}: {error}")

    def _begin(self, case: Case) -> _Base:
        """Store, and run once. Raises Unsupported, Bounds, Equivalence."""
        case, off = fit(case, self.kernels.limits)
        world = World(case, self.device)
        reason = called(partial(self.kernels.supports, world.spec, case.dtype, case.block_size))
        if reason is not None:
            raise Unsupported(reason)
        how = How(schedule="direct", rows=case.rows, tile=case.tile, leaf=case.leaf, native_fp8=case.native_fp8)
        pieces = [Piece(number, 0, rows) for number, (_, rows) in enumerate(case.sequences)]
        placement = world.place(0)
        arena = world.arena(placement.num_blocks)
        self.store(world, arena, placement)
        outputs = self.attend(world, arena, placement, pieces, how)
        self.counts.cases += 1
        self.counts.row_heads += case.row_heads
        for what in off:
            self.counts.off[what] = self.counts.off.get(what, 0) + 1
        return _Base(world, how, pieces, placement, arena, outputs)

    # ---- launches ----------------------------------------------------------------------------------------------------

    def store(
        self, world: World, arena: Arena, placement: Placement, spans: Sequence[tuple[int, int]] | None = None
    ) -> None:
        """Store positions spans[s] of every sequence (all of them by default), shared ones once. Rows with slot -1,
        full of NaN, are mixed in."""
        case = world.case
        slots: list[int] = []
        keys, values = [], []
        written: set[int] = set()
        junk = torch.full((1, case.kv_heads, case.head_dim), float("nan"), dtype=world.compute, device=world.device)
        for sequence, (context, _) in enumerate(case.sequences):
            start, end = (0, context) if spans is None else spans[sequence]
            if start >= end:
                continue
            own = placement.slots(sequence, start, end, case.block_size)
            slots += [-1 if slot in written else slot for slot in own] + [-1]
            written.update(own)
            keys += [world.keys[sequence][start:end], junk]
            values += [world.values[sequence][start:end], junk]
        if slots:
            self.launches.store(world, arena, *world.given(torch.cat(keys), torch.cat(values)), slots)

    def attend(
        self, world: World, arena: Arena, placement: Placement, pieces: Sequence[Piece], how: How
    ) -> list[torch.Tensor]:
        """float32 [rows, Hq, D] for each piece."""
        case = world.case
        lengths = [piece.end - piece.first for piece in pieces]
        contexts = []
        for piece in pieces:
            context, rows = case.sequences[piece.sequence]
            contexts.append(context - rows + piece.end)
        counts = [-(-context // case.block_size) for context in contexts]
        tables = world.table(
            [(placement.tables[piece.sequence], count) for piece, count in zip(pieces, counts, strict=True)],
            max(counts, default=0) + 1,
            placement.num_blocks,
        )
        queries = world.packed([world.queries[piece.sequence][piece.first : piece.end] for piece in pieces])
        step = Step(tables, contexts, lengths, slots=[-1] * sum(lengths))
        return list(self.launches.attend(world, arena, queries, step, how).split(lengths))

    # ---- against the oracle ------------------------------------------------------------------------------------------

    def right(self, world: World, outputs: Sequence[torch.Tensor]) -> None:
        """Every output of the whole case is within its tolerance of the exact one."""
        spec = world.spec
        keys_read, values_read = world.stored_keys, world.stored_values
        if "rounded dequantization" in self.kernels.arithmetic:
            keys_read, values_read = (
                [world.stored(tensor, plane, rounded=True) for tensor in tensors]
                for plane, tensors in enumerate((world.keys, world.values))
            )
        exacts = [
            exact(
                queries,
                keys,
                values,
                scale=spec.scale,
                window=spec.window,
                softcap=spec.softcap,
                slopes=spec.slopes,
            )
            for queries, keys, values in zip(world.queries, keys_read, values_read, strict=True)
        ]
        name = world.case.dtype
        for sequence, (right, allowed, output) in enumerate(
            zip(exacts, tolerance(exacts, world.compute, self.kernels.arithmetic), outputs, strict=True)
        ):
            if not output.numel():
                continue
            part = (output.double() - right.output).abs() / allowed
            worst = float(part.max())
            self.counts.worst[name] = max(self.counts.worst.get(name, 0.0), worst)
            if worst > 1.0:
                row, head, dim = (int(index) for index in (part == part.max()).nonzero()[0])
                raise Equivalence(
                    f"sequence {sequence}, query {row}, head {head}, dim {dim} is {output[row, head, dim]:.9g}; exactly"
                    f" {right.output[row, head, dim]:.9g}, which is {worst:.3g} times the error that {name} allows"
                )

    # ---- the axes ----------------------------------------------------------------------------------------------------

    def _same(
        self, base: _Base, axis: str, what: str, pieces: Sequence[Piece], outputs: Sequence[torch.Tensor]
    ) -> None:
        for piece, output in zip(pieces, outputs, strict=True):
            wanted = base.outputs[piece.sequence][piece.first : piece.end]
            self.counts.compared[axis] = self.counts.compared.get(axis, 0) + output.shape[0] * output.shape[1]
            different = (output.contiguous().view(torch.int32) != wanted.contiguous().view(torch.int32)).any(-1)
            if different.any():
                row, head = (int(index) for index in different.nonzero()[0])
                dim = int((output[row, head] != wanted[row, head]).nonzero()[0])
                kind = Bounds if axis == "poison" else Equivalence
                raise kind(
                    f"{int(different.sum())} of {different.numel()} row-heads of sequence {piece.sequence} have other "
                    f"bits with {what}: query {piece.first + row}, head {head}, dim {dim} is "
                    f"{output[row, head, dim]:.9g}, was {wanted[row, head, dim]:.9g}"
                )

    def _again(self, base: _Base, axis: str, what: str, **changes: object) -> None:
        how = replace(base.how, **changes)  # type: ignore[arg-type]
        outputs = self.attend(base.world, base.arena, base.placement, base.pieces, how)
        self._same(base, axis, what, base.pieces, outputs)

    def _schedule(self, base: _Base) -> None:
        self._again(base, "schedule", "a split schedule", schedule="split")
        if len(base.pieces) > 1:
            self._again(base, "schedule", "a mixed schedule", schedule="mixed")

    def _rows(self, base: _Base) -> None:
        rows = tuple(2 * rows for rows in reversed(base.how.rows))
        self._again(base, "rows", f"programs of {rows} rows", rows=rows, schedule="mixed")

    def _order(self, base: _Base) -> None:
        self._again(base, "order", "the work list shuffled", shuffle=base.world.case.seed, schedule="mixed")

    def _padding(self, base: _Base) -> None:
        self._again(base, "padding", "a padded batch", padded=True, schedule="mixed")

    def _repeat(self, base: _Base) -> None:
        self._again(base, "repeat", "a second run")

    def _placement(self, base: _Base) -> None:
        world = base.world
        placement = world.place(1, spare=world.case.spare + 3)
        arena = world.arena(placement.num_blocks)
        self.store(world, arena, placement)
        outputs = self.attend(world, arena, placement, base.pieces, base.how)
        self._same(base, "placement", "other physical blocks", base.pieces, outputs)

    def _poison(self, base: _Base) -> None:
        world = base.world
        for poison in FINITE:
            arena = world.arena(base.placement.num_blocks, poison)
            self.store(world, arena, base.placement)
            outputs = self.attend(world, arena, base.placement, base.pieces, base.how)
            self._same(base, "poison", f"unused slots full of 0x{poison:02X} bytes", base.pieces, outputs)

    def _copies(self, base: _Base) -> None:
        """Some blocks of each sequence are copied to spare ones, which then stand in its table; the first ones are
        overwritten with poison, so that a table read too late shows. Copies need blocks that are contiguous."""
        world, case = base.world, base.world.case
        if case.layout not in ("heads first", "interleaved"):
            case = replace(case, layout=("heads first", "interleaved")[case.seed % 2])
            world = World(case, self.device)
        rng = np.random.default_rng([case.seed, 4])
        held = sorted({block for table in base.placement.tables for block in table})
        chosen = [block for block in held if rng.random() < 0.5] or held[:1]
        if not chosen:
            return
        count = base.placement.num_blocks
        pairs = [(block, count + number) for number, block in enumerate(chosen)]
        rng.shuffle(pairs)
        arena = world.arena(count + len(chosen))
        self.store(world, arena, base.placement)
        self.launches.copy(arena, pairs)
        for cache in (arena.cache.keys, arena.cache.values):
            cache.view(torch.uint8)[chosen] = NAN
        moved = dict(pairs)
        tables = tuple(tuple(moved.get(block, block) for block in table) for table in base.placement.tables)
        placement = Placement(count + len(chosen), tables)
        outputs = self.attend(world, arena, placement, base.pieces, base.how)
        self._same(base, "copies", "blocks copied", base.pieces, outputs)

    def _batch(self, base: _Base) -> None:
        backwards = base.pieces[::-1]
        outputs = self.attend(base.world, base.arena, base.placement, backwards, base.how)
        self._same(base, "batch", "the batch backwards", backwards, outputs)
        alone = [base.world.case.seed % len(base.pieces)]
        pieces = [base.pieces[number] for number in alone]
        outputs = self.attend(base.world, base.arena, base.placement, pieces, replace(base.how, schedule="split"))
        self._same(base, "batch", "the sequence alone", pieces, outputs)

    def _chunks(self, base: _Base) -> None:
        """Cut at random places: all chunks in one batch, down to single rows; then step by step, where what a later
        chunk writes is still poison."""
        world, case = base.world, base.world.case
        rng = np.random.default_rng([case.seed, 3])
        cuts = []
        for _, rows in case.sequences:
            inner = sorted({int(cut) for cut in rng.integers(1, max(rows, 2), 2)} - {rows}) if rows > 1 else []
            cuts.append([0, *inner, rows])
        pieces = [
            Piece(sequence, first, end) for sequence, own in enumerate(cuts) for first, end in itertools.pairwise(own)
        ]
        if case.query_rows <= 24:
            pieces = [Piece(piece.sequence, row, row + 1) for piece in pieces for row in range(piece.first, piece.end)]
        how = replace(base.how, schedule="mixed")
        outputs = self.attend(world, base.arena, base.placement, pieces, how)
        self._same(base, "chunks", "the queries cut into chunks", pieces, outputs)

        arena = world.arena(base.placement.num_blocks)
        done = [0] * len(case.sequences)
        for number in range(max(map(len, cuts), default=1) - 1):
            pieces, spans = [], []
            for sequence, ((context, rows), own) in enumerate(zip(case.sequences, cuts, strict=True)):
                first, end = own[min(number, len(own) - 1)], own[min(number + 1, len(own) - 1)]
                reached = context - rows + end
                spans.append((done[sequence], reached))
                done[sequence] = reached
                pieces.append(Piece(sequence, first, end))
            self.store(world, arena, base.placement, spans)
            outputs = self.attend(world, arena, base.placement, pieces, base.how)
            self._same(base, "chunks", f"chunk {number} computed before the next is written", pieces, outputs)


def poison_is_seen(kernels: Kernels, dtype: str, device: torch.device | str = "cpu", *, sanitize: bool = False) -> None:
    """The positive control of every check by poison: a slot in the context that was never written must show.

    sanitize: under watch, so that kernels that store wildly do not end this process. Raises Blind; another violation
    if the kernels break more than that. Four tiny launches.
    """
    case, _ = fit(control_case(dtype), kernels.limits)
    if case.dtype != dtype or kernels.supports(World(case, device).spec, dtype, case.block_size) is not None:
        return  # nothing is checked in it
    for native in (True, False):
        for plane in ("keys", "values"):
            world = World(case, device)
            placement = world.place(0)
            arena = world.arena(placement.num_blocks)
            checker = Checker(kernels, sanitize=sanitize, device=device)
            checker.store(world, arena, placement)
            slot = placement.slots(0, 7, 8, case.block_size)[0]
            cache = arena.cache.keys if plane == "keys" else arena.cache.values
            cache.view(torch.uint8)[slot // case.block_size, :, slot % case.block_size] = NAN
            how = How(schedule="direct", rows=case.rows, tile=case.tile, leaf=case.leaf, native_fp8=native)
            try:
                checker.attend(world, arena, placement, [Piece(0, 0, 1)], how)
            except Bounds:
                continue
            except Unsupported:
                return  # and so is every similar case
            raise Blind(f"{kernels.name}, {dtype}: NaN in the {plane} of a position that is read does not show")
