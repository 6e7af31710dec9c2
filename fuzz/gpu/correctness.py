"""Every kernel against float64, on data that makes a wrong bound visible.

Each case is one step over sequences of unlike lengths: single rows, chunks in the middle of a tile, whole prompts.
Blocks are in random order, and every slot that belongs to no token is filled with 0xFF bytes, a NaN in every dtype.
Cases cover all pairs of dtypes, head dims, groups, block sizes, masks and schedules, in no particular order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kvcore.kernels import AttentionSpec, Schedule, audit, default_tree
from kvcore.storage import KVStorage, StorageConfig

from .context import Context
from .data import Segment, World, half_ulps, unused_are_poisoned
from .launches import compile_ahead
from .sizes import Format, slopes

__all__ = ["LIMITS", "Case", "run", "run_large"]

LIMITS = {torch.float32: 2.0, torch.float16: 4.0, torch.bfloat16: 4.0}
"""Half ulps of the queries' dtype, at a row's largest output, that it may be off by, in that dtype or in float32.
16 bits: one for rounding the output, and what rounding the weights to the same dtype adds; 2.1 is the largest seen in
20,000 rows. float32 is computed in float64 and rounded once."""

_TOGETHER = 12
"""Cases whose kernels are compiled at once."""


@dataclass(frozen=True)
class Case:
    """One step's shape. mask: none, window, softcap, alibi or all. schedule: auto, direct, split or mixed. strided: the
    queries are a slice of a wider tensor, and the output too, in float32."""

    fmt: Format
    head_dim: int
    group: int
    block_size: int
    mask: str
    schedule: str
    strided: bool

    def __str__(self) -> str:
        return (
            f"{self.fmt}, D {self.head_dim}, group {self.group}, blocks of {self.block_size}, mask {self.mask}, "
            f"{self.schedule}{', strided' if self.strided else ''}"
        )

    def spec(self, tile: int, kv_heads: int) -> AttentionSpec:
        heads = kv_heads * self.group
        both = self.mask == "all"
        return AttentionSpec(
            heads,
            kv_heads,
            self.head_dim,
            window=2 * tile + 5 if self.mask == "window" or both else None,
            softcap=7.0 if self.mask == "softcap" or both else None,
            slopes=slopes(heads) if self.mask == "alibi" or both else None,
        )


def cases(axes: dict[str, Sequence[Any]], seed: int = 0) -> list[Case]:
    """Cases in which every pair of values of two axes occurs, greedily few of them, the same for the same axes."""
    rng = np.random.default_rng(seed)
    names = list(axes)
    open_pairs = {
        (left, a, right, b)
        for left, right in itertools.combinations(range(len(names)), 2)
        for a in range(len(axes[names[left]]))
        for b in range(len(axes[names[right]]))
    }
    chosen: list[Case] = []
    while open_pairs:
        best: tuple[int, ...] = ()
        most: set[tuple[int, int, int, int]] = set()
        # One open pair, and the best of some random fillings around it.
        left, a, right, b = min(open_pairs)
        for _ in range(60):
            pick = [int(rng.integers(len(axes[name]))) for name in names]
            pick[left], pick[right] = a, b
            covered = {(i, pick[i], j, pick[j]) for i, j in itertools.combinations(range(len(names)), 2)} & open_pairs
            if len(covered) > len(most):
                best, most = tuple(pick), covered
        open_pairs -= most
        chosen.append(Case(**{name: axes[name][place] for name, place in zip(names, best, strict=True)}))
    return chosen


def _segments(tile: int, leaf: int, seed: int) -> list[tuple[int, int]]:
    """(context, rows) of a step: edges of tiles and leaves, single rows, chunks, whole prompts, and no row at all."""
    rng = np.random.default_rng(seed)
    longest = 2 * leaf + tile + 3
    fixed = [
        (1, 1),
        (tile, tile),
        (tile + 1, 1),
        (leaf - 1, 1),
        (leaf, 2),
        (leaf + 1, 1),
        (longest, 1),
        (longest, tile + 7),
        (leaf + tile // 2, leaf // 2),
        (2 * leaf, 0),
        (tile + 5, tile + 5),
    ]
    drawn = [int(rng.integers(1, longest)) for _ in range(3)]
    return fixed + [(context, int(rng.integers(1, min(context, 2 * tile) + 1))) for context in drawn]


class _Prepared:
    """A case's data; `attend` runs it."""

    def __init__(self, context: Context, case: Case, seed: int) -> None:
        sizes = context.sizes
        self.case = case
        tree = sizes.tree or default_tree(case.head_dim, case.fmt.compute.itemsize)
        pairs = _segments(tree.tile, tree.leaf, seed)[: sizes.most_sequences]
        self.world = World(
            case.spec(tree.tile, sizes.kv_heads),
            [context for context, _ in pairs],
            case.fmt,
            context.device,
            block_size=case.block_size,
            seed=seed,
            spare=3,
            poison=True,
            written=False,
            cut=(sizes.tree, sizes.tiles),
        )
        self.segments = [Segment(place, stop - rows, stop) for place, (stop, rows) in enumerate(pairs)]
        rng = np.random.default_rng(seed)
        schedule: Schedule = (
            [bool(choice) for choice in rng.integers(2, size=len(pairs))] if case.schedule == "mixed" else case.schedule  # type: ignore[assignment]
        )
        self.plan = self.world.plan(self.segments, schedule=schedule, columns=1 if case.strided else 16)
        self.queries = self.world.queries[self.world.rows(self.segments)]
        self.out: torch.Tensor | None = None
        if case.strided:
            rows, heads, dim = self.queries.shape
            wide = torch.full((rows, heads + 2, dim), torch.nan, dtype=self.queries.dtype, device=context.device)
            wide[:, 1:-1] = self.queries
            self.queries = wide[:, 1:-1]
            self.out = torch.empty((rows, heads + 1, dim), device=context.device)[:, :heads]

    def attend(self) -> torch.Tensor:
        return self.world.attend(self.queries, self.plan, out=self.out)


def run(context: Context) -> None:
    """All cases that the time allows, then tags and copies."""
    _tags_and_copies(context)
    wanted = cases(context.sizes.axes)[: context.sizes.most_cases]
    worst: dict[str, tuple[float, str]] = {}
    held = 0
    for start in range(0, len(wanted), _TOGETHER):
        if context.left < 5:
            context.cut(f"{len(wanted) - start} of {len(wanted)} cases not reached")
            break
        prepared: list[tuple[Case, _Prepared | Exception]] = []
        for place, case in enumerate(wanted[start : start + _TOGETHER], start):
            try:
                prepared.append((case, _Prepared(context, case, seed=place)))
            except Exception as error:
                _reraise_if_broken(context)
                prepared.append((case, error))
        ahead = [ready for _, ready in prepared if isinstance(ready, _Prepared)]
        compile_ahead([act for ready in ahead for act in (ready.world.write, ready.attend)], context.device)
        for case, ready in prepared:
            held += _judge(context, case, ready, worst)
    table = [
        {
            "dtype": name,
            "half_ulps": value if math.isfinite(value) else None,
            "limit": LIMITS[_compute(name)],
            "case": case,
        }
        for name, (value, case) in sorted(worst.items())
    ]
    context.results.data["tables"]["errors"] = table
    said = "; ".join(f"{name} {value:.2f}" for name, (value, _) in sorted(worst.items()))
    context.say(f"  {held} cases right; worst error in half ulps: {said}")


def _compute(name: str) -> torch.dtype:
    return Format(name.split(" ")[0]).compute


def _judge(context: Context, case: Case, ready: _Prepared | Exception, worst: dict[str, tuple[float, str]]) -> int:
    """Run one case and note what it showed. Returns 1 if all of it holds."""
    name = str(case)
    try:
        if isinstance(ready, Exception):
            raise ready
        world = ready.world
        world.write()
        spoiled = unused_are_poisoned(world)
        wrong = sum(
            int((_bytes(cache, world) != expected.view(torch.uint8)).sum())
            for cache, expected in zip((world.storage.keys(0), world.storage.values(0)), world.stored(), strict=True)
        )
        out = ready.attend()
        ratio, row = 0.0, 0
        for segment in ready.segments:
            rows = segment.stop - segment.start
            if rows:
                own = half_ulps(out[row : row + rows], world.exact(segment), case.fmt.compute)
                ratio = max(ratio, float(own.nan_to_num(nan=float("inf")).max()))
            row += rows
    except Exception as error:
        _reraise_if_broken(context)
        context.check(name, False, f"{type(error).__name__}: {str(error)[:300]}")
        return 0
    limit = LIMITS[case.fmt.compute]
    key = str(case.fmt)
    if ratio >= worst.get(key, (-1.0, ""))[0]:
        worst[key] = (ratio, name)
    holds = ratio <= limit and not spoiled and not wrong
    said = f"largest error {ratio:.2f} half ulps, limit {limit:g}"
    if wrong:
        said += f"; {wrong} bytes stored are not torch's"
    if spoiled:
        said += f"; store wrote {spoiled} slots that are nobody's"
    context.check(name, holds, said, half_ulps=ratio if ratio != float("inf") else None)
    return int(holds)


def _bytes(cache: torch.Tensor, world: World) -> torch.Tensor:
    """The written slots of a cache [blocks, kv heads, block size, D] as bytes [tokens, kv heads, D * itemsize]."""
    size = world.block_size
    return cache.view(torch.uint8)[world.slots // size, :, world.slots % size]


def _reraise_if_broken(context: Context) -> None:
    """After some errors a CUDA device does nothing any more. Then there is no next case."""
    if context.device.type == "cuda":
        torch.cuda.synchronize(context.device)


def _tags_and_copies(context: Context) -> None:
    """`audit` finds a wrong block and nothing else. `copy` copies these blocks and no others."""
    sizes = context.sizes
    spec = AttentionSpec(2, 2, 64)
    world = World(
        spec,
        [37, 5, 64],
        Format("float16"),
        context.device,
        block_size=16,
        spare=2,
        tags=True,
        cut=(sizes.tree, sizes.tiles),
    )
    tags = world.storage.tags
    assert tags is not None
    batch = world.batch(world.whole())
    tables = torch.tensor(batch.block_tables, device=context.device)
    expected = world.slots + 1
    begins = torch.tensor(world.first, device=context.device)
    right = audit(tags, tables, expected, begins, block_size=16)
    tables[0, 1] = int(tables[2, 1])
    found = audit(tags, tables, expected, begins, block_size=16)
    places = (found != -1).nonzero().flatten().tolist()
    context.check(
        "audit",
        bool((right == -1).all()) and places == list(range(16, 32)),
        f"right tables: {int((right != -1).sum())} complaints; one wrong block: at {places[:1]} to {places[-1:]}",
    )

    for dtype, size in (("bfloat16", 16), ("float8_e4m3", 5), ("float32", 1)):
        storage = KVStorage(StorageConfig(3, 40, size, 3, 80, dtype), context.device)
        generator = torch.Generator(context.device).manual_seed(1)
        raw = storage.data.view(torch.uint8)
        raw.random_(generator=generator)
        order = np.random.default_rng(1).permutation(40).tolist()
        pairs = list(zip(order[:15], order[15:30], strict=True))
        after = raw.clone()
        sources, destinations = (torch.tensor(side, device=context.device) for side in zip(*pairs, strict=True))
        after[:, :, destinations] = after[:, :, sources]
        storage.copy(pairs)
        differing = int((raw != after).sum())
        context.check(f"copy, {dtype}, blocks of {size}", not differing, f"{differing} bytes are not as torch copies")


# ---- a large cache ---------------------------------------------------------------------------------------------------


def run_large(context: Context) -> None:
    """Offsets beyond 2**31 elements: in the cache, in the copies, and in the queries."""
    sizes = context.sizes
    wanted: list[tuple[str, Format, int, int]] = [
        ("bf16 cache", Format("bfloat16"), sizes.large_elements, 16),
        ("FP8 cache, blocks of 1", Format("bfloat16", "float8_e4m3"), sizes.large_elements, 1),
    ]
    for name, fmt, elements, block_size in wanted:
        need = 2 * elements * (1 if fmt.cached else 2) + 2**31
        if context.left < 4 or context.free < need:
            context.cut(f"{name} not reached: {context.left:.0f} s and {context.free / 2**30:.0f} GiB left")
            continue
        _large_cache(context, name, fmt, elements, block_size)
        context.release()
    need = 8 * sizes.large_elements + 2**31
    if context.left < 4 or context.free < need:
        context.cut(f"queries not reached: {context.left:.0f} s and {context.free / 2**30:.0f} GiB left")
    else:
        _many_rows(context)
        context.release()


def _large_cache(context: Context, name: str, fmt: Format, elements: int, block_size: int) -> None:
    """Sequences at the end of a pool whose one plane has more than 2**31 elements."""
    sizes = context.sizes
    spec = AttentionSpec(4 * sizes.kv_heads, sizes.kv_heads, sizes.large_dim)
    per_block = spec.num_kv_heads * block_size * spec.head_dim
    lengths = [sizes.large_length, sizes.large_length // 2 + 1, 3]
    spare = elements // per_block + 1
    world = World(
        spec,
        lengths,
        fmt,
        context.device,
        block_size=block_size,
        spare=spare,
        poison=True,
        high=True,
        cut=(sizes.tree, sizes.tiles),
    )
    plane = world.storage.keys(0).numel()
    segments = [*world.whole(), *(Segment(place, length - 1, length) for place, length in enumerate(lengths))]
    worst, first = 0.0, int(min(min(table) for table in world.tables))
    for schedule in ("direct", "split"):
        out = world.attend(world.queries[world.rows(segments)], world.plan(segments, schedule=schedule))
        row = 0
        for segment in segments:
            rows = segment.stop - segment.start
            own = half_ulps(out[row : row + rows], world.exact(segment), fmt.compute)
            worst = max(worst, float(own.nan_to_num(nan=float("inf")).max()))
            row += rows
    spoiled = unused_are_poisoned(world)
    context.check(
        f"large: {name}",
        worst <= LIMITS[fmt.compute] and not spoiled,
        f"{plane:,} elements a plane, blocks from {first:,}: largest error {worst:.2f} half ulps, limit "
        f"{LIMITS[fmt.compute]:g}; {spoiled} slots of nobody written",
        elements=plane,
        half_ulps=worst if worst != float("inf") else None,
    )
    # From one end of the cache to the other, and back into a block that nobody owns.
    blocks = world.storage.config.num_blocks
    source = int(world.tables[0][0])
    world.storage.copy([(source, 0), (blocks - 1 if source != blocks - 1 else blocks - 2, 1)])
    same = bool(
        (world.storage.data[:, :, 0].view(torch.uint8) == world.storage.data[:, :, source].view(torch.uint8)).all()
    )
    context.check(f"large: copy, {name}", same, f"block {source:,} to block 0")


def _many_rows(context: Context) -> None:
    """Queries and outputs of more than 2**31 elements, in many short sequences."""
    sizes = context.sizes
    spec = AttentionSpec(16 * sizes.kv_heads, sizes.kv_heads, sizes.large_dim)
    length = sizes.large_rows_length
    per_row = spec.num_heads * spec.head_dim
    count = sizes.large_elements // per_row // length + 2
    fmt = Format("bfloat16")
    world = World(spec, [length] * count, fmt, context.device, block_size=16, cut=(sizes.tree, sizes.tiles))
    out = world.attend(world.queries, world.plan(world.whole(), schedule="direct"))
    worst = 0.0
    for place in (0, count // 2, count - 2, count - 1):
        begin = int(world.first[place])
        own = half_ulps(out[begin : begin + length], world.exact(Segment(place, 0, length)), fmt.compute)
        worst = max(worst, float(own.nan_to_num(nan=float("inf")).max()))
    context.check(
        "large: queries",
        worst <= LIMITS[fmt.compute],
        f"{out.numel():,} elements of queries: largest error {worst:.2f} half ulps, limit {LIMITS[fmt.compute]:g}",
        elements=out.numel(),
    )
