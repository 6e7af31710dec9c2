"""How fast the kernels are, compared with the limits of the device and with torch's own attention on the same data.

Decode is limited by bytes: the bytes of K and V over the time, compared with the bytes that a copy reads and writes in
a second. Prefill is limited by products: 4 D for each visible pair and query head, over the time.

torch's attention gets contiguous copies of the same keys and values. Its outputs must agree with ours, so that both do
the same work.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from kvcore.kernels import AttentionSpec, Tree, store_kv
from kvcore.storage import DTYPES, KVStorage, StorageConfig

from .context import Context
from .data import Pool, Segment, half_ulps
from .launches import Launch, compile_ahead, recorded
from .measure import Call, Timing
from .sizes import Decode, Format, Prefill

__all__ = ["run_decode", "run_moves", "run_prefill", "run_rates", "run_tax"]

_ENOUGH = 512 * 10**6
"""Bytes that the calls of one measurement touch together. No cache holds so many."""

_ONE_LEAF = 2**20
"""Tokens of a leaf that no sequence here fills."""

_APART = {torch.float32: 256.0, torch.float16: 16.0, torch.bfloat16: 16.0}
"""Half ulps that our outputs and SDPA's may be apart: the errors of both, and more, since only ours is judged."""

_MATH = 2**27
"""Scores up to which SDPA's math back end, which keeps them all, is asked."""

_COPIED = 2**28
"""Bytes of K and V up to which it is, since it copies them for each query head."""


# ---- what the device can do ------------------------------------------------------------------------------------------


def run_rates(context: Context) -> None:
    """Copy bandwidth, read bandwidth, bf16 products."""
    device, results = context.device, context.results
    copy, read = _bandwidth(context)
    context.release()

    size = context.sizes.matmul
    a, b = (torch.empty(size, size, dtype=torch.bfloat16, device=device).normal_() for _ in range(2))
    out = torch.empty_like(a)
    timing = context.stopwatch.time([lambda: torch.mm(a, b, out=out)], working_set=6 * size * size)
    flops = 2.0 * size**3
    results.data["measured"]["matmul_flop_per_s"] = flops / timing.seconds
    results.row(
        "rates", f"bf16 {size} cubed", "torch", flop=flops, flop_per_s=flops / timing.seconds, **timing.to_json()
    )
    context.say(
        f"  copy {copy / 1e12:.2f} TB/s (read and write), read {read / 1e12:.2f} TB/s, "
        f"bf16 products {flops / timing.seconds / 1e12:.0f} TFLOP/s"
    )


def _bandwidth(context: Context) -> tuple[float, float]:
    """Bytes/s of a copy (read and written) and of a sum (read)."""
    size, measured = context.sizes.copy_bytes, context.results.data["measured"]
    source = torch.empty(size // 2, dtype=torch.bfloat16, device=context.device).normal_()
    target = torch.empty_like(source)
    wide = source.view(torch.float32)
    for name, who, moved, call in (
        ("copy", "torch copy_", 2 * size, lambda: target.copy_(source)),
        ("read", "torch sum", size, lambda: torch.sum(wide)),
    ):
        timing = context.stopwatch.time([call], working_set=moved)
        rate = moved / timing.seconds
        measured[f"{name}_bytes_per_s"] = rate
        context.results.row("rates", name, who, bytes=moved, bytes_per_s=rate, **timing.to_json())
    return measured["copy_bytes_per_s"], measured["read_bytes_per_s"]


# ---- decode ----------------------------------------------------------------------------------------------------------


def run_decode(context: Context) -> None:
    """Every decode shape that the time allows, beside SDPA where lengths are equal."""
    _ahead(context, context.sizes.decode)
    done: dict[str, float] = {}
    goals: dict[str, list[float]] = {}
    for number, shape in enumerate(context.sizes.decode):
        if context.left < 4:
            context.cut(f"not reached: {', '.join(other.name for other in context.sizes.decode[number:])}")
            break
        bytes_ = sum(shape.lengths) * _token_bytes(shape)
        if context.free < 3 * max(bytes_, _ENOUGH) + 2**30:
            context.note(f"{shape.name}: not enough memory on this device")
            continue
        entry = _guarded(context, shape.name, _decode, shape)
        context.release()
        if entry is None:
            continue
        done[shape.name] = entry["seconds"]
        if shape.goal:
            # In microseconds where the goal is a time, else as a share of the copy bandwidth.
            value = entry["seconds"] * 1e6 if shape.goal == "decode-short" else entry["of_copy"]
            if value is not None:
                goals.setdefault(shape.goal, []).append(value)
    for goal, values in goals.items():
        context.results.goal(goal, max(values) if goal == "decode-short" else min(values))
    pair = context.sizes.fp8_pair
    if all(name in done for name in pair):
        context.results.goal("decode-fp8", done[pair[0]] / done[pair[1]])


def _token_bytes(shape: Decode | Prefill) -> int:
    return 2 * shape.kv_heads * shape.head_dim * DTYPES[shape.fmt.storage].itemsize


def _pool(context: Context, shape: Decode | Prefill, lengths: Sequence[int], layers: int, **options: Any) -> Pool:
    spec = AttentionSpec(shape.kv_heads * shape.group, shape.kv_heads, shape.head_dim)
    sizes = context.sizes
    options.setdefault("cut", (sizes.tree, sizes.tiles))
    pool = Pool(spec, lengths, shape.fmt, context.device, block_size=shape.block_size, layers=layers, **options)
    pool.fill()
    return pool


def _queries(pool: Pool, rows: int) -> torch.Tensor:
    generator = torch.Generator(pool.device).manual_seed(5)
    shape = (rows, pool.spec.num_heads, pool.spec.head_dim)
    return torch.empty(shape, dtype=pool.fmt.compute, device=pool.device).normal_(generator=generator)


def _ahead(context: Context, shapes: Sequence[Decode | Prefill]) -> None:
    """Compile what these shapes need, by way of small ones that differ in nothing that is compiled in."""
    if context.device.type != "cuda":
        return
    calls: list[Call] = []
    for shape in shapes:
        with contextlib.suppress(Exception):  # the shape itself will report it
            pool = _pool(context, shape, (1000, 600), 1)
            segments = _last(pool) if isinstance(shape, Decode) else pool.whole()
            plan = pool.plan(segments, schedule="split")
            queries = _queries(pool, plan.num_tokens)
            calls.append(partial(pool.attend, queries, plan))
    compile_ahead(calls, context.device)


def _last(pool: Pool) -> list[Segment]:
    return [Segment(place, length - 1, length) for place, length in enumerate(pool.lengths)]


def _decode(context: Context, shape: Decode) -> dict[str, Any]:
    bytes_ = sum(shape.lengths) * _token_bytes(shape)
    layers = min(max(-(-_ENOUGH // bytes_), 1), context.sizes.most_layers)
    pool = _pool(context, shape, shape.lengths, layers)
    plan = pool.plan(_last(pool))
    queries = _queries(pool, len(pool.lengths))
    out = torch.empty_like(queries)
    calls: list[Call] = [partial(pool.attend, queries, plan, layer=layer, out=out) for layer in range(layers)]
    entry = _note_bytes(context, "decode", shape, "kvcore", context.stopwatch.time(calls, working_set=bytes_))
    entry["items"] = plan.plan.num_items
    entry["split"] = sum(lane.partials for lane in plan.plan.lanes)
    _say(context, entry)
    if not shape.compared:
        return entry
    pool.attend(queries, plan, layer=0, out=out)
    planes = [pool.contiguous(layer) for layer in range(layers)]
    asked = queries.unsqueeze(2)  # [sequences, heads, 1, D]
    for back_end in _back_ends(pool, 1):
        if context.left < 3:
            context.cut(f"{shape.name}: SDPA's {back_end} not reached")
            break
        _beside(context, shape, back_end, asked, planes, False, out.unsqueeze(2), bytes_, None)
    return entry


def _back_ends(pool: Pool, rows: int) -> list[str]:
    """SDPA's, by torch's names; math, which keeps all scores, for small shapes alone."""
    scores = len(pool.lengths) * pool.spec.num_heads * rows * max(pool.lengths)
    small = scores <= _MATH and pool.total * pool.bytes_per_token <= _COPIED
    return ["FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", *(["MATH"] if small else [])]


def _note_bytes(
    context: Context, part: str, shape: Decode | Prefill, who: str, timing: Timing, note: str = ""
) -> dict[str, Any]:
    lengths = shape.lengths if isinstance(shape, Decode) else (shape.length,) * shape.sequences
    bytes_ = sum(lengths) * _token_bytes(shape)
    rate = bytes_ / timing.seconds
    return context.results.row(
        part,
        shape.name,
        who,
        sequences=len(lengths),
        longest=max(lengths),
        bytes=bytes_,
        bytes_per_s=rate,
        of_copy=_share(context, "copy_bytes_per_s", rate),
        tokens_per_s=len(lengths) / timing.seconds,
        note=note,
        **timing.to_json(),
    )


def _share(context: Context, name: str, rate: float) -> float | None:
    whole = context.results.data["measured"].get(name)
    return rate / whole if whole else None


def _say(context: Context, entry: dict[str, Any]) -> None:
    share = entry.get("of_copy") or entry.get("of_matmul")
    rate = (
        f"{entry['bytes_per_s'] / 1e12:.2f} TB/s"
        if "bytes_per_s" in entry
        else f"{entry['flop_per_s'] / 1e12:.0f} TFLOP/s"
    )
    said = f"  {entry['name']:<34} {entry['who']:<22} {entry['seconds'] * 1e6:>10.1f} us  {rate}"
    context.say(said + (f"  {share:.0%}" if share else ""))


# ---- beside torch ----------------------------------------------------------------------------------------------------


def _beside(
    context: Context,
    shape: Decode | Prefill,
    back_end: str,
    asked: torch.Tensor,
    planes: Sequence[tuple[torch.Tensor, torch.Tensor]],
    causal: bool,
    ours: torch.Tensor,
    working_set: int,
    flops: float | None,
) -> float | None:
    """Time one of SDPA's back ends and compare its output. Returns its seconds, None where it cannot do this.

    asked [sequences, heads, rows, D]; planes: (K, V) [sequences, kv heads, length, D] for each layer.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = getattr(SDPBackend, back_end, None)
    if kind is None:
        return None
    name = f"sdpa {back_end.split('_')[0].lower()}"
    part = "decode" if isinstance(shape, Decode) else "prefill"
    refused = ""
    for repeated in (False, True):
        if repeated and shape.group == 1:
            break
        try:
            # Repeated heads are made once, outside the timing. They are more bytes to read.
            data = (
                [tuple(plane.repeat_interleave(shape.group, 1) for plane in pair) for pair in planes[:1]]
                if repeated
                else planes
            )

            def attend(keys: torch.Tensor, values: torch.Tensor, gqa: bool = not repeated) -> torch.Tensor:
                with sdpa_kernel(kind):
                    return torch.nn.functional.scaled_dot_product_attention(
                        asked, keys, values, is_causal=causal, enable_gqa=gqa and shape.group > 1
                    )

            theirs = attend(data[0][0], data[0][1])
            calls: list[Call] = [partial(attend, pair[0], pair[1]) for pair in data]
            timing = context.stopwatch.time(calls, working_set=working_set * (shape.group if repeated else 1))
        except (RuntimeError, TypeError) as error:
            if context.device.type == "cuda":
                torch.cuda.synchronize(context.device)
            refused = refused or str(error).strip().splitlines()[0][:200]
            continue
        how = "heads repeated" if repeated else "enable_gqa" if shape.group > 1 else ""
        if flops is None:
            entry = _note_bytes(context, part, shape, name, timing, how)
        else:
            entry = _note_flops(context, shape, name, timing, flops, how)
        _say(context, entry)
        apart = half_ulps(
            ours.transpose(1, 2).flatten(0, 1), theirs.transpose(1, 2).flatten(0, 1).double(), asked.dtype
        )
        worst = float(apart.nan_to_num(nan=float("inf")).max())
        limit = _APART[asked.dtype]
        context.check(
            f"{shape.name} beside {name}",
            worst <= limit,
            f"outputs at most {worst:.2f} half ulps apart, limit {limit:g}",
            half_ulps=worst if worst != float("inf") else None,
        )
        return timing.seconds
    context.note(f"{name} cannot do {shape.name}: {refused}")
    return None


# ---- prefill ---------------------------------------------------------------------------------------------------------


def _flops(pool: Pool, segments: Sequence[Segment]) -> float:
    """Of both products, for the pairs that a causal mask shows."""
    pairs = sum((segment.stop * (segment.stop + 1) - segment.start * (segment.start + 1)) // 2 for segment in segments)
    return 4.0 * pool.spec.num_heads * pool.spec.head_dim * pairs


def _note_flops(
    context: Context, shape: Prefill | Decode, who: str, timing: Timing, flops: float, note: str = ""
) -> dict[str, Any]:
    rate = flops / timing.seconds
    return context.results.row(
        "prefill",
        shape.name,
        who,
        length=shape.length if isinstance(shape, Prefill) else max(shape.lengths),
        chunk=shape.chunk if isinstance(shape, Prefill) else 0,
        flop=flops,
        flop_per_s=rate,
        of_matmul=_share(context, "matmul_flop_per_s", rate),
        note=note,
        **timing.to_json(),
    )


def run_prefill(context: Context) -> None:
    """Every prefill shape that the time allows, beside SDPA; then chunks on a prefix."""
    _ahead(context, context.sizes.prefill)
    rates: list[float] = []
    against: dict[str, list[float]] = {"flash": [], "cudnn": []}
    whole: dict[int, float] = {}
    for number, shape in enumerate(context.sizes.prefill):
        if context.left < 4:
            context.cut(f"not reached: {', '.join(other.name for other in context.sizes.prefill[number:])}")
            break
        found = _guarded(context, shape.name, _prefill, shape)
        context.release()
        if found is None:
            continue
        rate, times = found
        if shape.judged:
            rates.append(rate / 1e12)
            whole[shape.length] = rate
            for name, seconds in times.items():
                against.get(name, []).append(seconds)
        if shape.chunk and not shape.every and whole:
            context.results.goal("prefill-chunked", rate / whole[max(whole)])
    if rates:
        context.results.goal("prefill-rate", min(rates))
    for name, values in against.items():
        if values:
            context.results.goal(f"prefill-{name}", min(values))


def _prefill(context: Context, shape: Prefill) -> tuple[float, dict[str, float]]:
    """(FLOP/s, {back end: its seconds over ours})."""
    pool = _pool(context, shape, (shape.length,) * shape.sequences, 1)
    size = shape.chunk or shape.length
    first = 0 if shape.every else shape.length - size
    steps = [
        [Segment(place, start, start + size) for place in range(shape.sequences)]
        for start in range(first, shape.length, size)
    ]
    plans = [pool.plan(segments) for segments in steps]
    queries = _queries(pool, shape.sequences * size)
    out = torch.empty_like(queries)
    flops = sum(_flops(pool, segments) for segments in steps)

    def attend() -> None:
        for plan in plans:
            pool.attend(queries, plan, out=out)

    working_set = pool.total * pool.bytes_per_token + 2 * queries.numel() * queries.element_size()
    timing = context.stopwatch.time([attend], working_set=working_set)
    entry = _note_flops(context, shape, "kvcore", timing, flops)
    _say(context, entry)
    times: dict[str, float] = {}
    if not shape.compared:
        return entry["flop_per_s"], times
    planes = [pool.contiguous()]
    asked = queries.view(shape.sequences, -1, *queries.shape[1:]).transpose(1, 2)
    ours = out.view(asked.transpose(1, 2).shape).transpose(1, 2)
    for back_end in _back_ends(pool, shape.length):
        if context.left < 3:
            context.cut(f"{shape.name}: SDPA's {back_end} not reached")
            break
        seconds = _beside(context, shape, back_end, asked, planes, True, ours, working_set, flops)
        if seconds is not None:
            times[back_end.split("_")[0].lower()] = seconds / timing.seconds
    return entry["flop_per_s"], times


# ---- the price of invariance -----------------------------------------------------------------------------------------


def run_tax(context: Context) -> None:
    """The kernel with leaves of 512 against the same with one leaf, in turns.

    The one-leaf kernel is compiled from the same source, so what carrying a second state costs in registers is in both.
    """
    sizes = context.sizes
    worst: dict[str, float] = {}
    for number, (part, shape, schedule) in enumerate(sizes.tax):
        if context.left < 4:
            context.cut(f"not reached: {', '.join(other.name for _, other, _ in sizes.tax[number:])}")
            break
        price = _guarded(context, f"{shape.name}, tax", _tax, part, shape, schedule)
        context.release()
        if price is not None:
            worst[part] = max(price, worst.get(part, price))
    for part, value in worst.items():
        context.results.goal(f"tax-{part}", value)


def _tax(context: Context, part: str, shape: Decode | Prefill, schedule: str) -> float:
    lengths = shape.lengths if isinstance(shape, Decode) else (shape.length,) * shape.sequences
    bytes_ = sum(lengths) * _token_bytes(shape)
    layers = min(max(-(-_ENOUGH // bytes_), 1), context.sizes.most_layers) if part == "decode" else 1
    pool = _pool(context, shape, lengths, layers)
    segments = _last(pool) if part == "decode" else pool.whole()
    queries = _queries(pool, sum(segment.stop - segment.start for segment in segments))
    out = torch.empty_like(queries)
    tree = pool.attention.tree
    one_leaf = Tree(tree.tile, _ONE_LEAF)
    entrants: dict[str, list[Call]] = {}
    for name, cut, chosen in (("leaves of 512", tree, schedule), ("one leaf", one_leaf, "direct")):
        pool.attention.tree = cut
        plan = pool.plan(segments, schedule=chosen)  # type: ignore[arg-type]
        entrants[name] = [partial(pool.attend, queries, plan, layer=layer, out=out) for layer in range(layers)]
    pool.attention.tree = tree
    times = context.stopwatch.race(entrants, working_set=bytes_)
    price = times["leaves of 512"].seconds / times["one leaf"].seconds - 1
    for name, timing in times.items():
        context.results.row("tax", shape.name, name, kind=part, schedule=schedule, price=price, **timing.to_json())
    context.say(f"  {shape.name:<34} {schedule:<8} {price:+.1%}")
    return price


# ---- store and copy --------------------------------------------------------------------------------------------------


def run_moves(context: Context) -> None:
    """Store and copy, as bytes read and written."""
    sizes, results = context.sizes, context.results
    for tokens, block_size, cached in sizes.stores:
        if context.left < 2:
            context.cut("not all of store and copy reached")
            return
        name = f"store {tokens} tokens, blocks of {block_size}, {cached}"
        entry = _guarded(context, name, _store, name, tokens, block_size, cached)
        if entry is None:
            continue
        if cached == "bfloat16" and block_size == 16 and tokens == sizes.stores[0][0] and entry["of_copy"]:
            results.goal("store", entry["of_copy"])
        if tokens == 128:
            results.goal("store-short", entry["seconds"] * 1e6)
    for layers, pairs in sizes.copies:
        if context.left < 2:
            context.cut("not all of store and copy reached")
            return
        name = f"copy {pairs} blocks of 16 in {layers} layers"
        entry = _guarded(context, name, _copy, name, layers, pairs)
        if entry is not None and entry["of_copy"] and (layers, pairs) == sizes.copies[0]:
            results.goal("copy", entry["of_copy"])


def _store(context: Context, name: str, tokens: int, block_size: int, cached: str) -> dict[str, Any]:
    sizes = context.sizes
    heads, dim = sizes.kv_heads_moved, 128
    fmt = Format("bfloat16", "" if cached == "bfloat16" else cached)
    width = DTYPES[fmt.storage].itemsize
    bytes_ = 2 * tokens * heads * dim * (2 + width) + 8 * tokens  # read, written, slots
    layers = min(max(-(-_ENOUGH // bytes_), 1), sizes.most_layers)
    spec = AttentionSpec(heads, heads, dim)
    pool = Pool(
        spec,
        [tokens],
        fmt,
        context.device,
        block_size=block_size,
        layers=layers,
        spare=tokens // block_size // 8,
        cut=(sizes.tree, sizes.tiles),
    )
    slots = torch.from_numpy(pool.batch(pool.whole(), write=True).slot_mapping).to(context.device)
    # A layer's K and V are new each time, as in a model.
    new = torch.empty(layers, 2, tokens, heads, dim, dtype=torch.bfloat16, device=context.device).normal_()
    storage = pool.storage
    scales = storage.scales
    calls: list[Call] = [
        partial(
            store_kv,
            new[layer, 0],
            new[layer, 1],
            storage.keys(layer),
            storage.values(layer),
            slots,
            scales=None if scales is None else scales[layer],
        )
        for layer in range(layers)
    ]
    return _moved(context, name, bytes_, context.stopwatch.time(calls, working_set=bytes_))


def _copy(context: Context, name: str, layers: int, pairs: int) -> dict[str, Any]:
    sizes = context.sizes
    heads, dim = sizes.kv_heads_moved, 128
    config = StorageConfig(layers, 2 * pairs * 4, 16, heads, dim)
    bytes_ = 2 * pairs * config.bytes_per_block + 16 * pairs
    storage = KVStorage(config, context.device)
    order = np.random.default_rng(2).permutation(config.num_blocks).reshape(4, 2, pairs)
    # The host's part (checks, and an index sent to the device) is not timed.
    launches: list[Launch] = []
    for sources, destinations in order.tolist():
        with recorded() as seen:
            storage.copy(list(zip(sources, destinations, strict=True)))
        launches.extend(seen)
    return _moved(context, name, bytes_, context.stopwatch.time(launches, working_set=bytes_))


def _moved(context: Context, name: str, bytes_: int, timing: Timing) -> dict[str, Any]:
    rate = bytes_ / timing.seconds
    entry = context.results.row(
        "moves",
        name,
        "kvcore",
        bytes=bytes_,
        bytes_per_s=rate,
        of_copy=_share(context, "copy_bytes_per_s", rate),
        **timing.to_json(),
    )
    _say(context, entry)
    context.release()
    return entry


# ---- what they share -------------------------------------------------------------------------------------------------


def _guarded(context: Context, name: str, act: Callable[..., Any], *arguments: Any) -> Any:
    """What `act` returns. None if it failed: that is noted as a failed check, since these shapes are supported."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # from SDPA, for what it cannot do; errors are noted
            return act(context, *arguments)
    except torch.cuda.OutOfMemoryError as error:
        context.release()
        context.note(f"{name}: {str(error).splitlines()[0][:200]}")
    except Exception as error:
        if context.device.type == "cuda":
            torch.cuda.synchronize(context.device)
        context.check(name, False, f"{type(error).__name__}: {str(error)[:300]}")
    return None
