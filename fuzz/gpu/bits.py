"""One data set, many schedules. Everything that may not move a bit is varied, and outputs are compared on the device.

Outputs are float32, compared as int32: in 16 bits most differences are rounded away. First the output of the base run
(whole prompts, one batch, no row split) is compared with float64, on a sample: equal bits of wrong numbers would prove
nothing.

A *row-head* is one query row of one head: D numbers that are equal or not. Comparisons are counted by axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from kvcore.kernels import DevicePlan, Plan, Room, Schedule

from .context import Context
from .correctness import LIMITS
from .data import Segment, World, half_ulps
from .launches import compile_ahead
from .sizes import Setting

__all__ = ["AXES", "Tally", "run"]

_ROWS = 2048
"""Rows compared at a time: the base's, gathered, take rows * heads * D * 4 bytes."""

AXES = {
    "schedule": "direct, split, and any mixture of them",
    "tiling": "rows of a program (16 to 128), warps, stages",
    "decode": "each position alone, as one token after its prefix",
    "chunks": "prompts cut at random places",
    "order": "the batch's order and company",
    "neighbour": "an unrelated prompt in the batch, of 1 to 64 tokens (vLLM #51902: 9 to 10)",
    "placement": "where blocks lie in the cache",
    "work order": "the order of the work list",
    "padding": "buffers with room, idle items",
    "graph": "captured, refilled, replayed",
    "conversion": "FP8 widened by the type's instruction or by integer steps",
    "strangers": "what lies in slots that nobody may read",
    "repeat": "the same again",
    "tables": "a table's stride, what lies beyond a context in it",
}
"""What is varied, most important first."""


class Tally:
    """Row-heads compared and differing, by setting and axis."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], list[int]] = {}
        self.first: dict[tuple[str, str], str] = {}

    def add(self, setting: str, axis: str, compared: int, differing: int, what: str) -> None:
        counts = self.counts.setdefault((setting, axis), [0, 0])
        counts[0] += compared
        counts[1] += differing
        if differing:
            self.first.setdefault((setting, axis), what)

    @property
    def compared(self) -> int:
        return sum(compared for compared, _ in self.counts.values())

    @property
    def differing(self) -> int:
        return sum(differing for _, differing in self.counts.values())


def differing(out: torch.Tensor, base: torch.Tensor, rows: torch.Tensor) -> int:
    """Row-heads in which float32 `out` [rows, heads, D] and `base` at `rows` are not the same bits."""
    count = torch.zeros((), dtype=torch.int64, device=out.device)
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        ours, theirs = out[part].view(torch.int32), base[rows[part]].view(torch.int32)
        count += (ours != theirs).any(-1).sum()
    return int(count)


class _Subject:
    """A setting's world, its base output, and one way to compare any batch with it."""

    def __init__(self, context: Context, setting: Setting, tally: Tally, seed: int = 0) -> None:
        self.context = context
        self.setting = setting
        self.tally = tally
        self.rng = np.random.default_rng(seed)
        self.options: dict[str, Any] = {
            "block_size": setting.block_size,
            "poison": True,
            "spare": 2,
            "cut": (context.sizes.tree, context.sizes.tiles),
        }
        self.world = World(setting.spec, setting.lengths, setting.fmt, context.device, seed=seed, **self.options)
        self.base = self.outputs(self.world.total)
        self.attend(self.world, self.world.whole(), self.base, schedule="direct")

    def outputs(self, rows: int) -> torch.Tensor:
        """float32 [rows, query heads, D], filled with NaN, so that an unwritten row shows."""
        spec = self.world.spec
        return torch.full((rows, spec.num_heads, spec.head_dim), torch.nan, device=self.world.device)

    def schedule(self, how: str, segments: Sequence[Segment]) -> Schedule:
        """A schedule by name; mixed draws for each."""
        if how == "mixed":
            return [bool(choice) for choice in self.rng.integers(2, size=len(segments))]
        chosen: Schedule = how  # type: ignore[assignment]
        return chosen

    def attend(
        self,
        world: World,
        segments: Sequence[Segment],
        out: torch.Tensor,
        *,
        schedule: str = "auto",
        plan: DevicePlan | None = None,
        **how: Any,
    ) -> None:
        ready = world.plan(segments, schedule=self.schedule(schedule, segments), **how) if plan is None else plan
        world.attend(world.queries[world.rows(segments)], ready, out=out)

    def compare(
        self, axis: str, what: str, segments: Sequence[Segment], *, world: World | None = None, **how: Any
    ) -> None:
        """Run these segments in that way (see `attend`) and compare every row with the base's."""
        rows = self.world.rows(segments)
        out = self.outputs(len(rows))
        self.attend(self.world if world is None else world, segments, out, **how)
        self.count(axis, what, out, rows)

    def count(self, axis: str, what: str, out: torch.Tensor, rows: torch.Tensor) -> None:
        wrong = differing(out, self.base, rows)
        self.tally.add(self.setting.name, axis, len(rows) * self.world.spec.num_heads, wrong, what)

    # ---- which positions a batch may have of a sequence

    def cut(self, most: int) -> list[Segment]:
        """Every sequence in up to `most` pieces, cut anywhere."""
        pieces = []
        for place, length in enumerate(self.world.lengths):
            count = min(int(self.rng.integers(0, most)), length - 1)
            cuts = sorted(self.rng.choice(np.arange(1, length), count, replace=False).tolist()) if count else []
            pieces += [Segment(place, start, stop) for start, stop in zip([0, *cuts], [*cuts, length], strict=True)]
        return pieces

    def shuffled(self, segments: Sequence[Segment]) -> list[Segment]:
        return [segments[place] for place in self.rng.permutation(len(segments)).tolist()]

    def single_rows(self, count: int) -> list[Segment]:
        """Positions of any sequences, each alone."""
        chosen = self.rng.permutation(self.world.total)[:count]
        owner = np.searchsorted(self.world.first, chosen, side="right") - 1
        at = chosen - self.world.first[owner]
        return [Segment(place, start, start + 1) for place, start in zip(owner.tolist(), at.tolist(), strict=True)]


def _steps(subject: _Subject) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every axis once, as (axis, what to do). The random numbers go on, so that every round is a new one."""
    whole = subject.world.whole()
    same = partial(subject.compare, segments=whole)
    for how in ("split", "auto", "mixed"):
        yield "schedule", partial(same, "schedule", f"whole prompts, {how}", schedule=how)
    for tiling in subject.setting.tilings:
        for how in ("direct", "split"):
            yield "tiling", partial(same, "tiling", f"{tiling}, {how}", tiles=(tiling,), schedule=how)
    for how in ("direct", "split", "mixed"):
        yield "decode", partial(_alone, subject, how)
    for most in (3, 8, 40):
        yield "chunks", partial(_chunks, subject, most)
    yield "order", partial(_order, subject)
    yield "neighbour", partial(_neighbour, subject)
    yield "placement", partial(_placement, subject)
    yield "work order", partial(_work_order, subject)
    yield "padding", partial(_padding, subject)
    yield "graph", partial(_graph, subject)
    if subject.setting.fmt.cached:
        yield "conversion", partial(_conversion, subject)
    yield "strangers", partial(_strangers, subject)
    yield "repeat", partial(same, "repeat", "whole prompts, direct", schedule="direct")
    yield "tables", partial(same, "tables", "odd stride", columns=1)


def _alone(subject: _Subject, how: str) -> None:
    """Single rows of any sequences, in random order, as decode would compute them."""
    rows = subject.single_rows(subject.context.sizes.decode_rows)
    subject.compare("decode", f"{len(rows)} single rows, {how}", rows, schedule=how)


def _chunks(subject: _Subject, most: int) -> None:
    """Every prompt in pieces, all of them in one batch: their keys are in the cache already."""
    subject.compare("chunks", f"up to {most} pieces", subject.cut(most), schedule="mixed")


def _order(subject: _Subject) -> None:
    """Some pieces, in another order and with other neighbours."""
    count = int(subject.rng.integers(1, 4 * len(subject.world.lengths)))
    pieces = subject.shuffled(subject.cut(6))[:count]
    subject.compare("order", f"{len(pieces)} pieces in another order", pieces)


def _neighbour(subject: _Subject) -> None:
    """One row alone, and beside a prompt that grows token by token: vLLM #51902."""
    world = subject.world
    lengths = world.lengths
    longest = int(np.argmax(lengths))
    other = next((place for place in range(len(lengths)) if place != longest), longest)
    row = Segment(longest, lengths[longest] - 1, lengths[longest])
    plans = subject.context.sizes.neighbours
    for rows in range(1, min(plans, lengths[other]) + 1):
        segments = [row, Segment(other, 0, rows)]
        # The default tilings and schedule: what an engine would run.
        subject.compare("neighbour", f"one row beside a prompt of {rows} tokens", segments)


def _placement(subject: _Subject) -> None:
    """The same tokens in other blocks, of a pool of another size."""
    seed = int(subject.rng.integers(1, 2**31))
    options = {**subject.options, "spare": int(subject.rng.integers(0, 50))}
    elsewhere = World(
        subject.setting.spec,
        subject.setting.lengths,
        subject.setting.fmt,
        subject.context.device,
        seed=seed,
        like=subject.world,
        **options,
    )
    whole = elsewhere.whole()
    subject.compare("placement", f"blocks permuted by seed {seed}", whole, world=elsewhere, schedule="mixed")


def _work_order(subject: _Subject) -> None:
    """The work list shuffled: programs run in another order, so that a race between them would show."""
    pieces = subject.cut(4)
    plan: Plan = subject.world.host_plan(pieces, schedule=subject.schedule("mixed", pieces))
    lanes = tuple(
        dataclasses.replace(lane, work=lane.work[subject.rng.permutation(len(lane.work))]) for lane in plan.lanes
    )
    shuffled = subject.world.device_plan(dataclasses.replace(plan, lanes=lanes))
    subject.compare("work order", "shuffled", pieces, plan=shuffled)


def _room(plans: Sequence[Plan], spare: int) -> Room:
    """Buffers for any of these plans, and some more of everything."""
    lanes = tuple(
        (
            max(len(plan.lanes[number].work) for plan in plans) + spare,
            max(len(plan.lanes[number].merges) for plan in plans) + spare,
            max(plan.lanes[number].partials for plan in plans) + spare,
        )
        for number in range(len(plans[0].lanes))
    )
    return Room(
        max(plan.batch.num_sequences for plan in plans) + spare,
        max(plan.batch.block_tables.shape[1] for plan in plans) + 16,
        max(plan.batch.num_tokens for plan in plans) + spare,
        lanes,
    )


def _padded(subject: _Subject, pieces: Sequence[Segment], rows: int) -> torch.Tensor:
    """Queries of these pieces. Rows beyond them are NaN: no program may read them."""
    world = subject.world
    spec = world.spec
    queries = torch.full(
        (rows, spec.num_heads, spec.head_dim), torch.nan, dtype=world.queries.dtype, device=world.device
    )
    own = world.rows(pieces)
    queries[: len(own)] = world.queries[own]
    return queries


def _padding(subject: _Subject) -> None:
    """A plan in buffers with room: idle items, sequences and rows; rows of no sequence become 0."""
    world = subject.world
    pieces = subject.shuffled(subject.cut(3))
    plan = world.host_plan(pieces, schedule=subject.schedule("mixed", pieces))
    room = _room([plan], spare=37)
    device_plan = world.device_plan(plan, room)
    out = subject.outputs(room.tokens)
    world.attend(_padded(subject, pieces, room.tokens), device_plan, out=out)
    rows = world.rows(pieces)
    subject.count("padding", "a plan with room", out[: len(rows)], rows)
    idle = int((out[len(rows) :] != 0).any(-1).sum())
    subject.tally.add(
        subject.setting.name, "padding", out[len(rows) :].shape[0] * out.shape[1], idle, "rows of no sequence are not 0"
    )


def _graph(subject: _Subject) -> None:
    """One CUDA graph for several plans: captured with the first, refilled with each. On the CPU without a graph."""
    world, rng = subject.world, subject.rng
    batches = [
        subject.cut(2),
        subject.shuffled(subject.cut(5))[: 2 * len(world.lengths)],
        subject.single_rows(min(len(world.lengths), 64)),
    ]
    plans = [world.host_plan(pieces, schedule=subject.schedule("mixed", pieces)) for pieces in batches]
    room = _room(plans, spare=int(rng.integers(1, 20)))
    device_plan = world.device_plan(plans[0], room)
    queries = _padded(subject, batches[0], room.tokens)
    out = subject.outputs(room.tokens)

    def call() -> object:
        return world.attend(queries, device_plan, out=out)

    replay: Callable[[], object] = call
    if world.device.type == "cuda":
        call()
        torch.cuda.synchronize(world.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        replay = graph.replay
    for number in (0, 1, 2, 0):
        pieces = batches[number]
        device_plan.load(plans[number])
        queries.copy_(_padded(subject, pieces, room.tokens))
        out.fill_(torch.nan)
        replay()
        rows = world.rows(pieces)
        subject.count("graph", f"plan {number} of 3", out[: len(rows)], rows)


def _conversion(subject: _Subject) -> None:
    """An FP8 cache widened by integer steps, as on a device whose compiler does not have the type."""
    world = subject.world
    out = subject.outputs(world.total)
    plan = world.plan(world.whole(), schedule="direct")
    world.attend(world.queries, plan, out=out, native_fp8=False)
    subject.count("conversion", "by integer steps", out, world.rows(world.whole()))


def _strangers(subject: _Subject) -> None:
    """Finite numbers instead of NaN in every slot that nobody owns. A read with weight 0 shows with neither filling."""
    world = subject.world
    raw = world.storage.data.view(torch.uint8)
    raw.fill_(0x3C)
    world.write()
    try:
        subject.compare("strangers", "finite numbers in idle slots", world.whole(), schedule="mixed")
    finally:
        raw.fill_(0xFF)
        world.write()


def _is_right(subject: _Subject) -> tuple[float, float]:
    """The base against float64 on a sample of rows: (largest error in half ulps, limit)."""
    world, rng = subject.world, subject.rng
    worst = 0.0
    for place in rng.permutation(len(world.lengths))[:6].tolist():
        length = world.lengths[place]
        rows = torch.from_numpy(np.sort(rng.permutation(length)[:40]))
        begin = int(world.first[place])
        right = world.exact(Segment(place, 0, length), rows)
        own = half_ulps(subject.base[begin + rows.to(world.device)], right, subject.setting.fmt.compute)
        worst = max(worst, float(own.nan_to_num(nan=float("inf")).max()))
    return worst, LIMITS[subject.setting.fmt.compute]


def run(context: Context) -> None:
    """Every setting on every axis, then the first setting again and again until there are enough row-heads."""
    tally = Tally()
    sizes = context.sizes
    total = context.left
    reached = 0
    for number, setting in enumerate(sizes.settings):
        # The first gets half of the time, since it has most of the rows; the others share the rest.
        share = 0.5 * total if number == 0 else context.left / (len(sizes.settings) - number)
        if context.left < 3:
            context.cut(f"settings not reached: {', '.join(other.name for other in sizes.settings[number:])}")
            break
        _one_setting(context, setting, tally, share, sizes.row_heads if number == 0 else 0)
        reached += 1
        context.release()
        _publish(context, tally)
    for axis in AXES:
        counts = [counts for (_, other), counts in tally.counts.items() if other == axis]
        compared, wrong = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        if not compared:
            context.check(f"bits: {axis}", None, "not reached")
            continue
        firsts = [f"{setting}, {what}" for (setting, other), what in tally.first.items() if other == axis]
        said = f"{wrong:,} of {compared:,} row-heads differ" + (f"; first: {firsts[0]}" if firsts else "")
        context.check(f"bits: {axis}", not wrong, said, compared=compared, differing=wrong)
    enough = tally.compared >= sizes.row_heads
    context.check(
        "bits: enough",
        True if enough else None,
        f"{tally.compared:,} row-heads compared in {reached} settings, {sizes.row_heads:,} wanted",
        compared=tally.compared,
    )
    context.say(f"  {tally.compared:,} row-heads compared, {tally.differing:,} differ")


def _one_setting(context: Context, setting: Setting, tally: Tally, seconds: float, wanted: int) -> None:
    until = context.left - seconds
    try:
        subject = _Subject(context, setting, tally)
    except Exception as error:
        if context.device.type == "cuda":
            torch.cuda.synchronize(context.device)
        context.check(f"bits: {setting.name}", False, f"{type(error).__name__}: {str(error)[:300]}")
        return
    worst, most = _is_right(subject)
    context.check(
        f"bits: {setting.name}, base run",
        worst <= most,
        f"largest error against float64 {worst:.2f} half ulps, limit {most:g}",
        half_ulps=worst if worst != float("inf") else None,
    )
    if context.device.type == "cuda":
        small = [segment._replace(start=segment.stop - 1) for segment in subject.world.whole()]
        calls = [partial(subject.compare, "", "", both, schedule="split") for both in (small, subject.world.whole())]
        for tiling in setting.tilings:
            calls.append(partial(subject.compare, "", "", small, tiles=(tiling,), schedule="split"))
        scratch, subject.tally = subject.tally, Tally()  # a run that only compiles does not count
        compile_ahead(calls, context.device)
        subject.tally = scratch
    done = 0
    while True:
        for axis, step in _steps(subject):
            if context.left < max(until, 1.5):
                context.note(f"{setting.name}: {done} steps in its time")
                return
            try:
                step()
            except Exception as error:
                if context.device.type == "cuda":
                    torch.cuda.synchronize(context.device)
                context.check(f"bits: {setting.name}, {axis}", False, f"{type(error).__name__}: {str(error)[:300]}")
            done += 1
        _publish(context, tally)
        if tally.compared >= wanted:
            return


def _publish(context: Context, tally: Tally) -> None:
    context.results.data["tables"]["bits"] = [
        {"setting": setting, "axis": axis, "compared": compared, "differing": wrong}
        for (setting, axis), (compared, wrong) in tally.counts.items()
    ]
    context.results.flush()
