"""What users call: bad tensors are named before anything moves, and the numbers are those of a small float64 softmax.

Numbers are checked twice. As the kernels, in Triton's interpreter: there float32 and float16 alone, and FP8 caches by
the integer steps, since the interpreter computes wrongly with bfloat16 and with its own FP8. And as the torch path, in
all dtypes.
"""

from __future__ import annotations

import copy as copying
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from kvcore import BlockManager, CacheConfig, CacheError, InvalidAttention, InvalidTensor, ReusePolicy, Step
from kvcore.attention import PagedAttention
from kvcore.kernels import (
    AttentionSpec,
    DevicePlan,
    Plan,
    Room,
    Tiling,
    Tree,
    audit,
    calls,
    make_plan,
    paged_attention,
    store_kv,
)
from kvcore.state import inside
from kvcore.storage import DTYPES, KVStorage, StorageConfig

from .test_plan import batch_of

try:
    import triton
    import triton.language as tl

    from kvcore.kernels import attention as attention_kernels
    from kvcore.kernels import cache as cache_kernels
except ImportError:  # a laptop: the torch path is all there is
    triton = None

CPU = torch.device("cpu")
FP8 = torch.float8_e4m3fn
TREE = Tree(tile=16, leaf=32)
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

needs_interpreter = pytest.mark.skipif(not calls._launches(CPU), reason="Triton's interpreter is off")


@pytest.fixture(params=["kernel", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(calls, "_launches", lambda device: False)
    elif not calls._launches(CPU):
        pytest.skip("Triton's interpreter is off")
    monkeypatch.setattr(calls, "capability_of", lambda device: 80)  # without FP8: the interpreter's is wrong
    return request.param


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """These tensors are tiny: handing them to more threads takes longer than computing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets as far as to ask where to run fails the test."""
    monkeypatch.setattr(calls, "_launches", lambda device: pytest.fail("something was launched"))


# ---- the reference ---------------------------------------------------------------------------------------------------


def exact(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec
) -> tuple[torch.Tensor, torch.Tensor]:
    """(result, mean distance of the values from it), float64 [rows, heads, dim], of contiguous K/V [context, kv heads,
    dim]; the queries are the last positions. The distance is what rounded weights are multiplied with."""
    context, rows = len(keys), len(queries)
    position = torch.arange(context - rows, context)[:, None]
    place = torch.arange(context)
    hidden = place > position
    if spec.window is not None:
        hidden = hidden | (place <= position - spec.window)
    results, spreads = [], []
    for head in range(spec.num_heads):
        k, v = (tensor[:, head // spec.group].double() for tensor in (keys, values))
        score = queries[:, head].double() @ k.T * (spec.scale or 1 / math.sqrt(spec.head_dim))
        if spec.softcap is not None:
            score = spec.softcap * torch.tanh(score / spec.softcap)
        if spec.slopes is not None:
            score = score + spec.slopes[head] * (place - position).double()
        weight = torch.softmax(score.masked_fill(hidden, float("-inf")), 1)
        results.append(weight @ v)
        spreads.append((weight[:, :, None] * (v[None] - results[-1][:, None]).abs()).sum(1))
    return torch.stack(results, 1), torch.stack(spreads, 1)


def stored(data: torch.Tensor, dtype: torch.dtype, scale: torch.Tensor | None) -> torch.Tensor:
    """[tokens, kv heads, dim] as the cache gives it back, float64. scale [kv heads], for FP8."""
    if scale is None:
        return data.to(dtype).double()
    return (data.float() / scale[:, None]).clamp(-448, 448).to(FP8).double() * scale[:, None].double()


class World:
    """Sequences of (context, scheduled) in a poisoned cache of shuffled blocks, and their K/V once more, contiguous.

    What is not scheduled has been stored; the step's own K/V are in `keys` and `values`, its queries in `queries`.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        lengths: Sequence[tuple[int, int]],
        *,
        dtype: torch.dtype = torch.float32,
        cached: torch.dtype | None = None,
        block_size: int = 4,
        schedule: Any = "auto",
        seed: int = 0,
        rows: int = 0,
    ) -> None:
        self.spec, self.lengths, self.dtype = spec, lengths, dtype
        cached = cached or dtype
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        needed = [-(-context // block_size) for context, _ in lengths]
        self.num_blocks = sum(needed) + 2  # two remain unused, often block 0
        free = torch.randperm(self.num_blocks, generator=generator).tolist()
        tables = [[free.pop() for _ in range(blocks)] for blocks in needed]
        config = StorageConfig(1, self.num_blocks, block_size, spec.num_kv_heads, spec.head_dim, cached)
        self.storage = KVStorage(config, "cpu", poison=True, tags=True)
        self.scales = None
        if self.storage.scales is not None:
            self.storage.scales.copy_(torch.rand(self.storage.scales.shape, generator=generator) / 64 + 1 / 256)
            self.scales = self.storage.scales[0]
        self.cache = (self.storage.keys(0), self.storage.values(0))
        self.whole = [
            tuple(normal(context, spec.num_kv_heads, spec.head_dim) for _ in range(2)) for context, _ in lengths
        ]
        self.batch = batch_of(
            [(table, context, scheduled) for table, (context, scheduled) in zip(tables, lengths, strict=True)],
            block_size,
            rows=rows,
        )
        self.queries = normal(self.batch.num_tokens, spec.num_heads, spec.head_dim)
        more = normal(rows, spec.num_kv_heads, spec.head_dim)
        self.keys, self.values = (
            torch.cat([*(pair[plane][c - s :] for pair, (c, s) in zip(self.whole, lengths, strict=True)), more])
            for plane in range(2)
        )
        self.schedule = schedule
        self.plan = self.device_plan()
        history = batch_of([(table, c - s, c - s) for table, (c, s) in zip(tables, lengths, strict=True)], block_size)
        if lengths:
            old = [
                torch.cat([pair[plane][: c - s] for pair, (c, s) in zip(self.whole, lengths, strict=True)])
                for plane in range(2)
            ]
            store_kv(*old, *self.cache, torch.from_numpy(history.slot_mapping), scales=self.scales)

    def host_plan(self, **changes: Any) -> Plan:
        options = {
            "block_size": self.storage.config.block_size,
            "num_blocks": self.num_blocks,
            "tree": TREE,
            "tilings": (Tiling(16), Tiling(32)) if self.spec.group <= 16 else (Tiling(32), Tiling(64)),
            "schedule": self.schedule,
        }
        batch = changes.pop("batch", self.batch)
        return make_plan(batch, changes.pop("spec", self.spec), **{**options, **changes})

    def device_plan(self, **changes: Any) -> DevicePlan:
        return DevicePlan(self.host_plan(**changes), "cpu", self.dtype)

    def store(self) -> None:
        store_kv(self.keys, self.values, *self.cache, self.plan.slots, scales=self.scales)

    def attend(self, **options: Any) -> torch.Tensor:
        plan = options.pop("plan", self.plan)
        queries = options.pop("queries", self.queries)
        return paged_attention(queries, *self.cache, plan, scales=self.scales, **options)

    def verify(self, out: torch.Tensor, path: str) -> None:
        """Every row within what rounding allows, and 0 for rows that belong to nobody."""
        begin = 0
        for (_, scheduled), pair in zip(self.lengths, self.whole, strict=True):
            end = begin + scheduled
            data = [
                stored(one, self.storage.config.torch_dtype, None if self.scales is None else self.scales[plane])
                for plane, one in enumerate(pair)
            ]
            result, spread = exact(self.queries[begin:end], *data, self.spec)
            bound = ROUNDING[out.dtype] * result.abs()
            if path == "torch":
                bound = bound + 1e-5 * (1 + spread)  # float32 sums
            elif self.dtype is torch.float16:
                bound = bound + ROUNDING[self.dtype] * spread + 1e-5  # rounded weights
            else:
                bound = bound + 1e-12
            worst = ((out[begin:end].double() - result).abs() / bound).amax().item() if end > begin else 0
            assert worst <= 1.01, f"rows {begin} to {end}: {worst:.3g} times what is allowed"
            begin = end
        assert bool((out[begin:] == 0).all())


def by_formula(new: torch.Tensor, cache: torch.Tensor, slots: list[int], scale: torch.Tensor | None) -> torch.Tensor:
    """What the cache holds after a store, token by token, as bytes."""
    block_size = cache.shape[2]
    after = cache.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            data = new[token]
            if scale is not None:
                data = (data.float() / scale[:, None]).clamp(-448, 448)
            after[slot // block_size, :, slot % block_size] = data.to(cache.dtype)
    return raw(after)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, as bytes."""
    return tensor.clone(memory_format=torch.contiguous_format).view(torch.uint8)


# ---- attention -------------------------------------------------------------------------------------------------------

LENGTHS = [(66, 3), (1, 1), (0, 0), (33, 1), (17, 17), (5, 0)]
"""Contexts below, at and above the edges of tiles (16), leaves (32) and blocks; sequences without rows among them."""

FEATURES: dict[str, tuple[AttentionSpec, int]] = {  # and a block size
    "plain": (AttentionSpec(2, 2, 16), 4),
    "three heads to a kv head": (AttentionSpec(6, 2, 16), 1),
    "five heads to one": (AttentionSpec(5, 1, 20), 7),
    "seventeen heads": (AttentionSpec(17, 1, 16), 16),
    "one dim": (AttentionSpec(1, 1, 1), 3),
    "scale": (AttentionSpec(2, 1, 16, scale=0.9), 5),
    "window of itself": (AttentionSpec(2, 1, 16, window=1), 4),
    "window": (AttentionSpec(2, 1, 16, window=15), 4),
    "window of a leaf and one": (AttentionSpec(2, 1, 16, window=33), 16),
    "window beyond everything": (AttentionSpec(2, 1, 16, window=2**40), 4),
    "softcap": (AttentionSpec(2, 1, 16, scale=1.0, softcap=2.0), 4),
    "alibi": (AttentionSpec(4, 2, 16, slopes=(0.5, 0.0, 0.01, -0.1)), 4),
    "everything": (AttentionSpec(6, 2, 24, 0.5, window=21, softcap=3.0, slopes=(0.5, 0.25, 0.1, 0, 0.02, 1)), 3),
}


SCHEDULE = [True, False, True, True, False, True]


@pytest.mark.parametrize("feature", FEATURES)
def test_float32_is_exact(path: str, feature: str):
    """The kernels compute it in float64 and round once."""
    spec, block_size = FEATURES[feature]
    world = World(spec, LENGTHS, block_size=block_size, schedule=SCHEDULE)
    world.store()
    world.verify(world.attend(), path)


@needs_interpreter
@pytest.mark.parametrize("feature", ["five heads to one", "everything"])
@pytest.mark.parametrize("wide", [False, True])
def test_float16_rounds_weights_and_results(feature: str, wide: bool):
    spec, block_size = FEATURES[feature]
    world = World(spec, LENGTHS, dtype=torch.float16, block_size=block_size, schedule=SCHEDULE)
    world.store()
    out = torch.empty(world.queries.shape) if wide else None
    world.verify(world.attend(out=out), "kernel")


@needs_interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("feature", ["five heads to one", "everything"])
def test_fp8_by_integer_steps(dtype: torch.dtype, feature: str):
    spec, block_size = FEATURES[feature]
    world = World(spec, LENGTHS, dtype=dtype, cached=FP8, block_size=block_size, schedule=SCHEDULE)
    world.store()
    world.verify(world.attend(native_fp8=False), "kernel")


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("cached", [None, FP8])
def test_the_torch_path_in_every_dtype(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, cached: torch.dtype | None, feature: str
):
    monkeypatch.setattr(calls, "_launches", lambda device: False)
    spec, block_size = FEATURES[feature]
    world = World(spec, LENGTHS, dtype=dtype, cached=cached, block_size=block_size)
    world.store()
    out = world.attend()
    assert out.dtype is dtype
    world.verify(out, "torch")
    world.verify(world.attend(out=torch.empty(world.queries.shape)), "torch")


def test_the_torch_path_takes_long_prompts_in_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calls, "_launches", lambda device: False)
    monkeypatch.setattr(calls.cpu, "_CHUNK", 100)
    spec, block_size = FEATURES["everything"]
    world = World(spec, LENGTHS, block_size=block_size)
    world.store()
    world.verify(world.attend(), "torch")


@needs_interpreter
def test_the_schedule_is_free():
    """To the bit on a GPU; here to the rounding, since the interpreter's matrix product depends on the shape."""
    world = World(FEATURES["everything"][0], [(66, 3), (40, 1)])
    world.store()
    for schedule, rows in (("direct", 16), ("split", 64), ("auto", 32)):
        plan = world.device_plan(schedule=schedule, tilings=(Tiling(rows),), programs=8)
        world.verify(world.attend(plan=plan), "kernel")


def test_a_prompt_in_chunks(path: str):
    spec = AttentionSpec(4, 2, 16, window=20)
    whole = World(spec, [(35, 35)], seed=3)
    keys, values = whole.whole[0]
    for cuts in ([1, 34], [16, 16, 3], [7, 20, 8]):
        whole.storage.poison(range(whole.num_blocks))
        end = 0
        for size in cuts:
            begin, end = end, end + size
            batch = batch_of([(whole.batch.block_tables[0].tolist(), end, size)], 4)
            plan = whole.device_plan(batch=batch, schedule="auto")
            store_kv(keys[begin:end], values[begin:end], *whole.cache, plan.slots)
            queries = whole.queries[begin:end]
            out = whole.attend(plan=plan, queries=queries)
            part = copying.copy(whole)
            part.lengths, part.whole, part.queries = [(end, size)], [(keys[:end], values[:end])], queries
            part.verify(out, path)


# ---- neutral results -------------------------------------------------------------------------------------------------


def test_an_empty_batch_gives_an_empty_result(path: str):
    world = World(AttentionSpec(4, 2, 16), [])
    before = raw(world.storage.data)
    world.store()
    out = world.attend()
    assert out.shape == (0, 4, 16) and out.dtype is torch.float32
    given = torch.empty(0, 4, 16)
    assert world.attend(out=given) is given
    assert torch.equal(raw(world.storage.data), before)


@pytest.mark.parametrize("lengths", [[(9, 0)], [(0, 0)], [(0, 0), (9, 0), (0, 0)]])
def test_sequences_without_rows_give_an_empty_result(path: str, lengths: list[tuple[int, int]]):
    world = World(AttentionSpec(4, 2, 16), lengths)
    assert world.attend().shape == (0, 4, 16)


@pytest.mark.parametrize("lengths", [[], [(9, 2), (0, 0), (5, 1)]])
def test_rows_of_nobody_become_0(path: str, lengths: list[tuple[int, int]]):
    world = World(AttentionSpec(4, 2, 16), lengths, rows=3)
    before = raw(world.storage.data)
    world.store()
    world.verify(world.attend(), path)
    out = torch.full((world.batch.num_tokens, 4, 16), float("nan"))
    world.verify(world.attend(out=out), path)
    assert lengths or torch.equal(raw(world.storage.data), before)


def test_a_padded_batch_is_the_batch_and_zeros(path: str):
    world = World(AttentionSpec(4, 2, 16), [(33, 5), (9, 1)])
    world.store()
    out = world.attend()
    padded = world.batch.padded(tokens=9, sequences=4, blocks=12)
    queries = torch.cat([world.queries, torch.full((3, 4, 16), float("nan"))])
    assert torch.equal(world.attend(plan=world.device_plan(batch=padded), queries=queries)[:6], out)
    room = Room(4, 12, 9, ((20, 20, 20), (20, 20, 20)))
    for schedule in ("direct", "split"):
        plan = DevicePlan(world.host_plan(batch=padded, schedule=schedule), "cpu", torch.float32, room)
        both = world.attend(plan=plan, queries=queries)
        world.verify(both, path)
        plan.load(world.host_plan(batch=batch_of([], 4)))
        assert not world.attend(plan=plan, queries=queries).any()
        plan.load(world.host_plan(schedule=schedule))
        assert torch.equal(world.attend(plan=plan, queries=queries), both)


# ---- strides ---------------------------------------------------------------------------------------------------------


def test_queries_keys_and_values_may_be_slices_of_one_projection(path: str):
    world = World(AttentionSpec(4, 2, 20), [(33, 5), (9, 1)])
    fused = torch.cat([world.queries, world.keys, world.values], 1)
    before = fused.clone()
    queries, keys, values = fused.split([4, 2, 2], 1)
    assert not queries.is_contiguous()
    store_kv(keys, values, *world.cache, world.plan.slots)
    out = world.attend(queries=queries)
    world.verify(out, path)
    by_head = world.queries.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(world.attend(queries=by_head), out)
    assert torch.equal(fused, before)


def test_the_result_may_be_a_slice(path: str):
    world = World(AttentionSpec(4, 2, 20), [(33, 5), (9, 1)])
    world.store()
    expected = world.attend()
    for whole, cut in (
        (torch.full((8, 6, 24), 7.0), (slice(1, 7), slice(2, 6), slice(3, 23))),
        (torch.full((6, 4, 20), 7.0), (slice(None),)),
    ):
        out = whole[cut]
        assert world.attend(out=out) is out
        assert torch.equal(out, expected)
        out.fill_(7.0)
        assert bool((whole == 7).all())


LAYOUTS: dict[str, Callable[[int, int, int, int, torch.dtype], tuple[torch.Tensor, torch.Tensor]]] = {
    "slot before head": lambda b, h, s, d, t: tuple(torch.zeros(2, b, s, h, d, dtype=t).transpose(2, 3)),
    "keys beside values": lambda b, h, s, d, t: tuple(torch.zeros(b, h, s, 2, d, dtype=t).unbind(3)),
    "keys and values of a block": lambda b, h, s, d, t: tuple(torch.zeros(b, 2, h, s, d, dtype=t).unbind(1)),
    "dims cut off": lambda b, h, s, d, t: tuple(torch.zeros(2, b, h, s, d + 5, dtype=t)[..., 3 : 3 + d]),
    "different": lambda b, h, s, d, t: (
        torch.zeros(b, h, s, d, dtype=t),
        torch.zeros(s, h, b, d, dtype=t).permute(2, 1, 0, 3),
    ),
}


@pytest.mark.parametrize(
    ("layout", "cached"),
    [*((layout, torch.float32) for layout in LAYOUTS), ("slot before head", FP8), ("different", FP8)],
)
def test_caches_may_have_any_strides_but_the_last(path: str, layout: str, cached: torch.dtype):
    world = World(AttentionSpec(2, 2, 20), [(17, 2), (3, 3)], cached=cached)
    config = world.storage.config
    other = LAYOUTS[layout](world.num_blocks, 2, config.block_size, 20, cached)
    for own, twin in zip(world.cache, other, strict=True):
        twin.copy_(own)
    world.store()
    expected = world.attend()
    first, world.cache = world.cache, other
    world.store()
    assert torch.equal(world.attend(), expected)
    assert all(torch.equal(raw(one), raw(two)) for one, two in zip(first, other, strict=True))


# ---- storing ---------------------------------------------------------------------------------------------------------

CACHED = [
    *((dtype, dtype) for dtype in ROUNDING),
    (FP8, torch.float32),
    (FP8, torch.float16),
    (FP8, torch.bfloat16),
]


@pytest.mark.parametrize(("cached", "dtype"), CACHED)
@pytest.mark.parametrize("tokens", [1, 16, 37])
def test_a_store_writes_its_slots_and_nothing_else(path: str, cached: torch.dtype, dtype: torch.dtype, tokens: int):
    generator = torch.Generator().manual_seed(tokens)
    storage = KVStorage(StorageConfig(2, 11, 5, 3, 20, cached), "cpu", poison=True, tags=True)
    keys, values = torch.randn(2, tokens, 3, 20, generator=generator).to(dtype).unbind()
    slots = torch.randperm(55, generator=generator)[:tokens]
    slots[torch.rand(tokens, generator=generator) < 0.3] = -1
    scales = None
    if storage.scales is not None:
        storage.scales.copy_(torch.rand(2, 2, 3, generator=generator) / 100)  # some saturate
        scales = storage.scales[1]
    expected = [
        by_formula(new, cache, slots.tolist(), None if scales is None else scales[plane])
        for plane, (new, cache) in enumerate(((keys, storage.keys(1)), (values, storage.values(1))))
    ]
    other = raw(storage.data[0])
    tags = torch.arange(100, 100 + tokens)
    store_kv(keys, values, storage.keys(1), storage.values(1), slots, scales=scales, tags=storage.tags, token_tags=tags)
    assert torch.equal(raw(storage.keys(1)), expected[0])
    assert torch.equal(raw(storage.values(1)), expected[1])
    assert torch.equal(raw(storage.data[0]), other)
    known = dict(zip(slots.tolist(), tags.tolist(), strict=True))
    assert storage.tags.tolist() == [known.get(slot, 0) for slot in range(55)]


def test_a_store_does_not_touch_up_what_it_is_given(path: str):
    """NaNs keep their payloads, zeros their signs, and subnormals are not flushed."""
    for dtype in (torch.float16, torch.bfloat16):
        bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(128, 2, 256)
        data = bits.view(dtype)
        caches = [torch.zeros(8, 2, 16, 256, dtype=dtype) for _ in range(2)]
        store_kv(data, data.flip(0), *caches, torch.arange(128))
        for cache, given in zip(caches, (bits, bits.flip(0)), strict=True):
            assert torch.equal(cache.view(torch.int16).transpose(1, 2).reshape(128, 2, 256), given)


def test_fp8_saturates(path: str):
    caches = torch.zeros(2, 1, 1, 8, 4, dtype=FP8)
    keys = torch.tensor([448, 449, 1e30, float("inf"), -448, -1e9, float("-inf"), float("nan")])
    data = keys[:, None, None].expand(8, 1, 4).contiguous()
    store_kv(data, data * 2, caches[0], caches[1], torch.arange(8), scales=torch.tensor([[1.0], [2.0]]))
    for cache in caches:
        assert cache[0, 0, :7, 0].float().tolist() == [448] * 4 + [-448] * 3
        assert cache[0, 0, 7].float().isnan().all()


def test_offsets_beyond_32_bits(path: str):
    """Such a cache is only an address range here: what nobody touches takes no memory."""
    blocks = 2**31 // (16 * 256) + 2
    cache = torch.empty(blocks, 1, 16, 256, dtype=FP8)
    scales = torch.full((2, 1), 0.5)
    spec = AttentionSpec(1, 1, 256)
    keys, values = torch.randn(2, 5, 1, 256, generator=torch.Generator().manual_seed(0)).unbind()
    batch = batch_of([([blocks - 1], 5, 5)], 16)
    host = make_plan(batch, spec, block_size=16, num_blocks=blocks, tree=TREE, tilings=(Tiling(16),))
    plan = DevicePlan(host, "cpu", torch.float32)
    assert int(plan.slots[0]) * 256 >= 2**31
    store_kv(values, values, cache, cache, plan.slots, scales=scales)  # keys are values, to need one cache alone
    data = stored(values, FP8, scales[0])
    out = paged_attention(keys, cache, cache, plan, scales=scales, native_fp8=False)
    assert (out.double() - exact(keys, data, data, spec)[0]).abs().max() < 1e-5


# ---- FP8 in integer steps --------------------------------------------------------------------------------------------

if triton is not None:

    @triton.jit
    def _encode(x_ptr, out_ptr, count):
        at = tl.program_id(0) * 65536 + tl.arange(0, 65536)
        x = tl.load(x_ptr + at, mask=at < count, other=0.0)
        tl.store(out_ptr + at, cache_kernels._encode_e4m3(x), mask=at < count)

    @triton.jit
    def _decode(x_ptr, out_ptr):
        at = tl.arange(0, 256)
        tl.store(out_ptr + at, attention_kernels._decode_e4m3(tl.load(x_ptr + at)))


def encoded(values: torch.Tensor) -> torch.Tensor:
    out = torch.empty(values.shape, dtype=torch.uint8)
    _encode[(-(-len(values) // 65536),)](values, out, len(values))
    return out


def verify_encoding(values: torch.Tensor) -> None:
    """To the bit as torch rounds; but a NaN is the one with all bits set, with its sign."""
    expected = values.clamp(-448, 448).to(FP8).view(torch.uint8)
    negative = values.view(torch.int32) < 0
    expected = torch.where(values.isnan(), torch.where(negative, 0xFF, 0x7F).to(torch.uint8), expected)
    assert torch.equal(encoded(values), expected)


@needs_interpreter
def test_every_fp8_byte_is_decoded():
    codes = torch.arange(256, dtype=torch.uint8)
    out = torch.empty(256)
    _decode[(1,)](codes, out)
    expected = codes.view(FP8).float()
    assert torch.equal(out.isnan(), expected.isnan()) and out.isnan().sum() == 2
    known = ~out.isnan()
    assert torch.equal(out[known].view(torch.int32), expected[known].view(torch.int32))  # the signs of zeros too


@needs_interpreter
def test_every_fp8_value_is_encoded_as_itself():
    codes = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(encoded(codes.view(FP8).float())[:127], codes[:127])
    verify_encoding(codes.view(FP8).float())


@needs_interpreter
@pytest.mark.filterwarnings("ignore:invalid value encountered")  # numpy, of signalling NaNs
def test_every_16_bit_value_is_encoded():
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    verify_encoding(bits.view(torch.float16).float())
    verify_encoding(bits.view(torch.bfloat16).float())


@needs_interpreter
def test_ties_are_encoded_to_even_and_their_neighbours_to_the_nearest():
    values = torch.arange(127, dtype=torch.uint8).view(FP8).double()
    ties = ((values[1:] + values[:-1]) / 2).float()
    assert torch.equal(ties.double(), (values[1:] + values[:-1]) / 2)
    evens = torch.arange(1, 127, dtype=torch.uint8) // 2 * 2
    assert torch.equal(encoded(ties), evens)
    below, above = (torch.nextafter(ties, torch.full_like(ties, end)) for end in (0.0, 1e9))
    assert encoded(below).tolist() == list(range(126)) and encoded(above).tolist() == list(range(1, 127))
    for some in (ties, below, above):
        verify_encoding(some)
        verify_encoding(-some)


@needs_interpreter
@pytest.mark.filterwarnings("ignore:invalid value encountered")  # numpy, of signalling NaNs
def test_any_float32_is_encoded():
    """Each sign, exponent and first bits, with the ends of what is rounded away; then bits at random."""
    upper = np.arange(2**14, dtype=np.uint32)[:, None] << 18
    lower = np.array([0, 1, 2**17 - 1, 2**17, 2**17 + 1, 2**18 - 1], dtype=np.uint32)
    chance = np.random.default_rng(0).integers(0, 2**32, 2**17, dtype=np.uint32)
    special = np.array([0, 2**31, 1, 0x7FFFFF, 0x800000, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000], np.uint32)
    for bits in ((upper | lower).ravel(), chance, special):
        verify_encoding(torch.from_numpy(bits.view(np.float32)))


# ---- tags ------------------------------------------------------------------------------------------------------------


class Tagged:
    """Three sequences of blocks of 4 whose slots say (sequence, position), as 100 * sequence + position + 1."""

    def __init__(self) -> None:
        self.tables = torch.tensor([[6, 1, 3, 9], [4, 2, 9, 9], [9, 9, 9, 9]], dtype=torch.int32)  # 9 is outside
        self.lengths = [11, 5, 0]
        self.storage = KVStorage(StorageConfig(1, 8, 4, 1, 16, "float32"), "cpu", tags=True)
        self.expected = torch.tensor([100 * s + p + 1 for s, n in enumerate(self.lengths) for p in range(n)])
        self.cu = torch.tensor([0, 11, 16, 16])
        slots = [int(self.tables[s, p // 4]) * 4 + p % 4 for s, n in enumerate(self.lengths) for p in range(n)]
        data = torch.zeros(16, 1, 16)
        cache = self.storage.keys(0), self.storage.values(0)
        store_kv(data, data, *cache, torch.tensor(slots), tags=self.storage.tags, token_tags=self.expected)

    def audit(self, **changes: Any) -> list[int]:
        given = {"tables": self.tables, "expected": self.expected, "cu_expected": self.cu, "block_size": 4}
        return audit(self.storage.tags, **{**given, **changes}).tolist()


def test_the_right_tags_are_right(path: str):
    world = Tagged()
    before = world.storage.tags.clone()
    assert world.audit() == [-1] * 16
    wide = torch.full((3, 9), 99, dtype=torch.int32)
    wide[:, 2:6] = world.tables
    assert world.audit(tables=wide[:, 2:6]) == [-1] * 16
    assert torch.equal(world.storage.tags, before)


def test_fewer_positions_may_be_expected_than_a_table_has(path: str):
    world = Tagged()
    expected = torch.tensor([1, 2, 101, 102, 103])
    assert world.audit(expected=expected, cu_expected=torch.tensor([0, 2, 5, 5])) == [-1] * 5
    assert world.audit(expected=expected[:0], cu_expected=torch.tensor([0, 0, 0, 0])) == []


def test_a_block_of_another_sequence_is_found(path: str):
    world = Tagged()
    world.tables[0, 1] = 4
    assert world.audit() == [-1] * 4 + [101, 102, 103, 104] + [-1] * 8


def test_a_stale_slot_and_one_never_written_are_found(path: str):
    world = Tagged()
    world.storage.tags[4 * 4 + 3] = 77
    world.storage.tags[2 * 4] = 0
    assert world.audit() == [-1] * 14 + [77, 0]
    world.tables[1, 1] = 7
    assert world.audit() == [-1] * 14 + [77, 0]


@pytest.mark.parametrize("block", [8, -1, 2**31 - 1, -(2**31)])
def test_a_block_outside_the_pool_is_found(path: str, block: int):
    world = Tagged()
    world.tables[0, 2] = block
    assert world.audit() == [-1] * 8 + [-2] * 3 + [-1] * 5


def test_long_contexts_are_audited_to_the_end(path: str):
    tags = torch.arange(1, 601)
    tables = torch.arange(200, dtype=torch.int32).view(2, 100)
    expected = tags.clone()
    expected[[0, 127, 128, 299, 300, 599]] = 9999
    found = audit(tags, tables, expected, torch.tensor([0, 300, 600]), block_size=3)
    assert found.nonzero().numel() == 600 and (found != -1).nonzero().flatten().tolist() == [0, 127, 128, 299, 300, 599]
    assert found[[0, 599]].tolist() == [1, 600]


# ---- bad tensors -----------------------------------------------------------------------------------------------------

Arguments = dict[str, Any]
Bad = dict[str, tuple[Callable[[Arguments], Arguments], tuple[str, ...]]]


def other_stride(tensor: torch.Tensor) -> torch.Tensor:
    """The same, but its last dimension is strided."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


def store_arguments(fp8: bool = False) -> Arguments:
    cache = torch.full((2, 8, 2, 4, 16), 7.0).to(FP8 if fp8 else torch.float32)
    return {
        "keys": torch.ones(5, 2, 16),
        "values": torch.ones(5, 2, 16),
        "key_cache": cache[0],
        "value_cache": cache[1],
        "slots": torch.tensor([3, 0, -1, 31, 8]),
        "scales": torch.ones(2, 2) if fp8 else None,
        "tags": torch.zeros(32, dtype=torch.int64),
        "token_tags": torch.ones(5, dtype=torch.int64),
    }


def both(change: Callable[[torch.Tensor], Any], *names: str) -> Callable[[Arguments], Arguments]:
    return lambda given: {name: change(given[name]) for name in names}


BAD_STORES: Bad = {}
for _name, _shape in (("keys", (5, 2, 16)), ("values", (5, 2, 16))):
    BAD_STORES |= {
        f"{_name} float16": (both(torch.Tensor.half, _name), (_name, "torch.float32, got torch.float16")),
        f"{_name} int": (both(torch.Tensor.int, _name), (_name, "got torch.int32")),
        f"{_name} fp8": (both(lambda one: one.to(FP8), _name), (_name, "got torch.float8_e4m3fn")),
        f"{_name} on another device": (both(meta, _name), (_name, "on meta, the cache on cpu")),
        f"{_name} flat": (both(lambda one: one.flatten(1), _name), (_name, "got 2" if _name == "keys" else "(5, 32)")),
        f"{_name} with a head more": (both(lambda one: one.new_ones(5, 3, 16), _name), (_name, "(5, 3, 16)")),
        f"{_name} with a dim less": (both(lambda one: one[..., :15], _name), (_name, "(5, 2, 15)")),
        f"{_name} with a token less": (both(lambda one: one[:4], _name), ("must have the shape", "4")),
        f"{_name} strided": (both(other_stride, _name), (_name, "last dimension must have stride 1, got 2")),
    }
for _name in ("key_cache", "value_cache"):
    BAD_STORES |= {
        f"{_name} none": (both(lambda one: None, _name), (_name, "None")),
        f"{_name} list": (both(lambda one: [1.0], _name), (_name, "[1.0]")),
        f"{_name} array": (both(torch.Tensor.numpy, _name), (_name, "must be a tensor")),
        f"{_name} of rank 3": (both(lambda one: one[0], _name), (_name, "[blocks, kv heads, block size, head dim]")),
        f"{_name} of rank 5": (both(lambda one: one[None], _name), (_name, "[blocks, kv heads, block size, head dim]")),
        f"{_name} strided": (both(other_stride, _name), (_name, "last dimension must have stride 1, got 2")),
        f"{_name} shorter": (both(lambda one: one[:7], _name), ("value_cache must be like key_cache", "(7, 2, 4, 16)")),
        f"{_name} float16": (both(torch.Tensor.half, _name), ("value_cache must be like key_cache", "torch.float16")),
        f"{_name} on another device": (both(meta, _name), ("value_cache must be like key_cache", "on meta")),
    }
BAD_STORES |= {
    "caches float64": (both(torch.Tensor.double, "key_cache", "value_cache"), ("key_cache", "got torch.float64")),
    "caches int8": (both(lambda one: one.to(torch.int8), "key_cache", "value_cache"), ("key_cache", "torch.int8")),
    "caches on another device": (both(meta, "key_cache", "value_cache"), ("keys is on cpu, the cache on meta",)),
    "slots int32": (both(torch.Tensor.int, "slots"), ("slots must be torch.int64, got torch.int32",)),
    "slots float": (both(torch.Tensor.float, "slots"), ("slots must be torch.int64, got torch.float32",)),
    "slots on another device": (both(meta, "slots"), ("slots is on meta",)),
    "slots too few": (both(lambda one: one[:4], "slots"), ("slots must have the shape (5,), got (4,)",)),
    "slots in a column": (both(lambda one: one[:, None], "slots"), ("slots", "got (5, 1)")),
    "slots strided": (both(other_stride, "slots"), ("slots: the last dimension must have stride 1, got 2",)),
    "slots list": (both(torch.Tensor.tolist, "slots"), ("slots must be a torch tensor, got list",)),
    "slots array": (both(torch.Tensor.numpy, "slots"), ("slots must be a torch tensor, got ndarray",)),
    "scales without fp8": (lambda given: {"scales": torch.ones(2, 2)}, ("torch.float32 cache takes no scales",)),
    "tags alone": (lambda given: {"token_tags": None}, ("tags and token_tags go together",)),
    "token_tags alone": (lambda given: {"tags": None}, ("tags and token_tags go together",)),
    "tags too few": (both(lambda one: one[:31], "tags"), ("tags must have the shape (32,), got (31,)",)),
    "tags int32": (both(torch.Tensor.int, "tags"), ("tags must be torch.int64",)),
    "tags on another device": (both(meta, "tags"), ("tags is on meta",)),
    "tags strided": (both(other_stride, "tags"), ("tags: the last dimension",)),
    "token_tags too many": (both(lambda one: one.repeat(2), "token_tags"), ("token_tags", "(5,), got (10,)")),
    "token_tags float": (both(torch.Tensor.float, "token_tags"), ("token_tags must be torch.int64",)),
    "token_tags on another device": (both(meta, "token_tags"), ("token_tags is on meta",)),
}
BAD_FP8_STORES: Bad = {
    "no scales": (lambda given: {"scales": None}, ("torch.float8_e4m3fn cache takes scales [2, 2]",)),
    "scales of one plane": (both(lambda one: one[0], "scales"), ("scales must have the shape (2, 2), got (2,)",)),
    "scales of one head": (both(lambda one: one[:, :1], "scales"), ("scales", "got (2, 1)")),
    "scales float64": (both(torch.Tensor.double, "scales"), ("scales must be torch.float32",)),
    "scales on another device": (both(meta, "scales"), ("scales is on meta",)),
    "scales strided": (both(lambda one: other_stride(one), "scales"), ("scales: the last dimension",)),
    "scales list": (both(torch.Tensor.tolist, "scales"), ("scales must be a torch tensor",)),
    "keys fp8": (both(lambda one: one.to(FP8), "keys"), ("keys must be torch.float32 or torch.float16 or",)),
    "values int": (both(torch.Tensor.int, "values"), ("values must be torch.float32 or torch.float16 or",)),
    "keys and values of two dtypes": (
        both(torch.Tensor.half, "keys"),
        ("keys are torch.float16, values torch.float32",),
    ),
}
BAD_SLOTS: Bad = {
    "beyond": (lambda given: {"slots": torch.tensor([3, 0, -1, 32, 8])}, ("slot 32", "0 to 31", "-1 writes nothing")),
    "far beyond": (lambda given: {"slots": torch.tensor([2**40, 0, -1, 31, 8])}, (f"slot {2**40}", "0 to 31")),
    "below": (lambda given: {"slots": torch.tensor([3, 0, -2, 31, 8])}, ("slot -2", "0 to 31")),
    "twice": (lambda given: {"slots": torch.tensor([3, 8, -1, 31, 8])}, ("slot 8 is given twice",)),
    "0 twice": (lambda given: {"slots": torch.tensor([0, 8, -1, 31, 0])}, ("slot 0 is given twice",)),
}


def refused(
    call: Callable[..., Any], given: Arguments, words: Sequence[str], error: type[CacheError] = InvalidTensor
) -> None:
    """Exactly this error, with these words, and no tensor that was given is changed."""
    here = {name: one for name, one in given.items() if isinstance(one, torch.Tensor) and one.device == CPU}
    before = {name: one.clone() for name, one in here.items()}
    with pytest.raises(CacheError) as caught:
        call(**given)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value)
    assert all(torch.equal(raw(one), raw(before[name])) for name, one in here.items())


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("name", BAD_STORES)
def test_a_bad_store_says_why_and_writes_nothing(name: str):
    change, words = BAD_STORES[name]
    given = store_arguments()
    refused(store_kv, given | change(given), words)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("name", BAD_FP8_STORES)
def test_a_bad_store_into_fp8_says_why_and_writes_nothing(name: str):
    change, words = BAD_FP8_STORES[name]
    given = store_arguments(fp8=True)
    refused(store_kv, given | change(given), words)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("name", BAD_SLOTS)
@pytest.mark.parametrize("fp8", [False, True])
def test_debug_looks_at_the_slots_themselves(name: str, fp8: bool):
    change, words = BAD_SLOTS[name]
    given = store_arguments(fp8)
    refused(store_kv, given | change(given) | {"debug": True}, words)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("debug", [False, True])
def test_the_good_store_is_good(path: str, fp8: bool, debug: bool):
    given = store_arguments(fp8)
    given["slots"] = torch.tensor([3, 0, -1, 31, -1])  # -1 may be given often
    store_kv(**given, debug=debug)
    assert given["tags"].nonzero().flatten().tolist() == [0, 3, 31]


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("debug", [False, True])
def test_no_tokens_are_checked_too_and_store_nothing(debug: bool):
    given = store_arguments()
    none = {name: given[name][:0] for name in ("keys", "values", "slots", "token_tags")}
    store_kv(**(given | none), debug=debug)
    assert bool((given["key_cache"] == 7).all())
    with pytest.raises(InvalidTensor, match="values"):
        store_kv(**(given | none | {"values": given["values"]}))


SPEC = AttentionSpec(4, 2, 16)
BATCH = batch_of([([3, 0], 5, 2), ([1], 3, 1)], 4)


def plan_of(dtype: torch.dtype = torch.float32, device: str = "cpu", **changes: Any) -> DevicePlan:
    options = {"batch": BATCH, "spec": SPEC, "block_size": 4, "num_blocks": 8, "tree": TREE, "tilings": (Tiling(16),)}
    return DevicePlan(make_plan(**{**options, **changes}), device, dtype)


def attention_arguments(fp8: bool = False) -> Arguments:
    cache = torch.full((2, 8, 2, 4, 16), 0.5).to(FP8 if fp8 else torch.float32)
    return {
        "queries": torch.ones(3, 4, 16),
        "key_cache": cache[0],
        "value_cache": cache[1],
        "plan": plan_of(),
        "scales": torch.ones(2, 2) if fp8 else None,
        "out": torch.full((3, 4, 16), 9.0),
    }


BAD_ATTENTION: Bad = {
    "queries float16": (both(torch.Tensor.half, "queries"), ("queries must be torch.float32, got torch.float16",)),
    "queries float64": (both(torch.Tensor.double, "queries"), ("queries must be torch.float32, got torch.float64",)),
    "queries on another device": (both(meta, "queries"), ("queries is on meta, the cache on cpu",)),
    "queries flat": (both(lambda one: one.flatten(1), "queries"), ("queries", "(3, 4, 16), got (3, 64)")),
    "queries of kv heads": (both(lambda one: one[:, :2], "queries"), ("queries", "(3, 4, 16), got (3, 2, 16)")),
    "queries a row more": (both(lambda one: one.new_ones(4, 4, 16), "queries"), ("queries", "got (4, 4, 16)")),
    "queries a row less": (both(lambda one: one[:2], "queries"), ("queries", "(3, 4, 16), got (2, 4, 16)")),
    "queries of other dims": (both(lambda one: one.new_ones(3, 4, 17), "queries"), ("queries", "got (3, 4, 17)")),
    "queries strided": (both(other_stride, "queries"), ("queries: the last dimension must have stride 1, got 2",)),
    "queries list": (both(torch.Tensor.tolist, "queries"), ("queries must be a torch tensor, got list",)),
    "queries none": (both(lambda one: None, "queries"), ("queries must be a torch tensor, got NoneType",)),
    "key_cache of rank 3": (both(lambda one: one[0], "key_cache"), ("key_cache must be a tensor [blocks",)),
    "value_cache shorter": (both(lambda one: one[:7], "value_cache"), ("value_cache must be like key_cache",)),
    "value_cache strided": (both(other_stride, "value_cache"), ("value_cache: the last dimension",)),
    "caches float16": (both(torch.Tensor.half, "key_cache", "value_cache"), ("queries must be torch.float16",)),
    "caches of another device": (both(meta, "key_cache", "value_cache"), ("plan is on cpu, the cache on meta",)),
    "caches of fewer blocks": (
        both(lambda one: one[:7], "key_cache", "value_cache"),
        ("cache has 7 blocks of 4", "plan was made for 8 of 4"),
    ),
    "caches of other blocks": (
        both(lambda one: one.view(16, 2, 2, 16), "key_cache", "value_cache"),
        ("cache has 16 blocks of 2", "plan was made for 8 of 4"),
    ),
    "caches of one head": (
        both(lambda one: one[:, :1], "key_cache", "value_cache"),
        ("cache has 1 kv heads of 16 dims", "spec 2 of 16"),
    ),
    "caches of other dims": (
        both(lambda one: one[..., :8], "key_cache", "value_cache"),
        ("cache has 2 kv heads of 8 dims", "spec 2 of 16"),
    ),
    "scales without fp8": (lambda given: {"scales": torch.ones(2, 2)}, ("torch.float32 cache takes no scales",)),
    "plan on another device": (lambda given: {"plan": plan_of(device="meta")}, ("plan is on meta, the cache on cpu",)),
    "plan for another dtype": (
        lambda given: {"plan": plan_of(torch.bfloat16)},
        ("queries are torch.float32, the plan was made for torch.bfloat16",),
    ),
    "plan for another pool": (lambda given: {"plan": plan_of(num_blocks=9)}, ("8 blocks of 4", "made for 9 of 4")),
    "plan for another block size": (
        lambda given: {"plan": plan_of(batch=batch_of([([3], 5, 2), ([1], 3, 1)], 5), block_size=5)},
        ("8 blocks of 4", "made for 8 of 5"),
    ),
    "plan for other heads": (
        lambda given: {"plan": plan_of(spec=AttentionSpec(4, 1, 16))},
        ("2 kv heads of 16", "spec 1 of 16"),
    ),
    "plan for more query heads": (
        lambda given: {"plan": plan_of(spec=AttentionSpec(8, 2, 16))},
        ("queries must have the shape (3, 8, 16)",),
    ),
    "plan for other rows": (
        lambda given: {"plan": plan_of(batch=batch_of([([3, 0], 5, 2)], 4))},
        ("queries must have the shape (2, 4, 16)",),
    ),
    "out float16": (both(torch.Tensor.half, "out"), ("out must be torch.float32", "got torch.float16")),
    "out a row less": (both(lambda one: one[:2], "out"), ("out must have the shape (3, 4, 16), got (2, 4, 16)",)),
    "out flat": (both(lambda one: one.flatten(1), "out"), ("out", "got (3, 64)")),
    "out on another device": (both(meta, "out"), ("out is on meta",)),
    "out strided": (both(other_stride, "out"), ("out: the last dimension must have stride 1, got 2",)),
    "out list": (both(torch.Tensor.tolist, "out"), ("out must be a torch tensor, got list",)),
}
BAD_FP8_ATTENTION: Bad = {
    "no scales": (lambda given: {"scales": None}, ("torch.float8_e4m3fn cache takes scales [2, 2]",)),
    "scales of three heads": (lambda given: {"scales": torch.ones(2, 3)}, ("scales must have the shape (2, 2)",)),
    "scales float16": (both(torch.Tensor.half, "scales"), ("scales must be torch.float32",)),
    "scales on another device": (both(meta, "scales"), ("scales is on meta",)),
    "queries fp8": (both(lambda one: one.to(FP8), "queries"), ("queries must be torch.float32 or torch.float16",)),
    "queries of another dtype than the plan": (
        both(torch.Tensor.half, "queries"),
        ("queries are torch.float16, the plan was made for torch.float32",),
    ),
    "out of a third dtype": (both(torch.Tensor.half, "out"), ("out must be torch.float32",)),
}


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("name", BAD_ATTENTION)
def test_bad_attention_says_why_and_writes_nothing(name: str):
    change, words = BAD_ATTENTION[name]
    given = attention_arguments()
    refused(paged_attention, given | change(given), words)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("name", BAD_FP8_ATTENTION)
def test_bad_attention_over_fp8_says_why_and_writes_nothing(name: str):
    change, words = BAD_FP8_ATTENTION[name]
    given = attention_arguments(fp8=True)
    refused(paged_attention, given | change(given), words)


@pytest.mark.parametrize("fp8", [False, True])
def test_the_good_attention_is_good(path: str, fp8: bool):
    given = attention_arguments(fp8)
    assert paged_attention(**given) is given["out"]
    assert bool((given["out"] == 0.5).all())


def audit_arguments() -> Arguments:
    return {
        "tags": torch.arange(32),
        "tables": torch.tensor([[3, 0], [1, -1]], dtype=torch.int32),
        "expected": torch.tensor([12, 13, 14, 15, 0, 4]),
        "cu_expected": torch.tensor([0, 5, 6]),
        "block_size": 4,
    }


BAD_AUDITS: Bad = {
    "tags int32": (both(torch.Tensor.int, "tags"), ("tags must be torch.int64",)),
    "tags in blocks": (both(lambda one: one.view(8, 4), "tags"), ("tags must be a torch tensor of rank 1",)),
    "tags strided": (both(other_stride, "tags"), ("tags: the last dimension",)),
    "tables int64": (both(torch.Tensor.long, "tables"), ("tables must be torch.int32, got torch.int64",)),
    "tables on another device": (both(meta, "tables"), ("tables is on meta",)),
    "tables strided": (both(other_stride, "tables"), ("tables: the last dimension",)),
    "a table more": (both(lambda one: one.repeat(2, 1), "tables"), ("cu_expected must have the shape (5,), got (3,)",)),
    "expected int32": (both(torch.Tensor.int, "expected"), ("expected must be torch.int64",)),
    "expected by sequence": (
        both(lambda one: one.view(2, 3), "expected"),
        ("expected must be a torch tensor of rank 1",),
    ),
    "expected on another device": (both(meta, "expected"), ("expected is on meta",)),
    "cu_expected int32": (both(torch.Tensor.int, "cu_expected"), ("cu_expected must be torch.int64",)),
    "cu_expected too short": (both(lambda one: one[:2], "cu_expected"), ("cu_expected", "(3,), got (2,)")),
    "cu_expected on another device": (both(meta, "cu_expected"), ("cu_expected is on meta",)),
}


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("name", BAD_AUDITS)
def test_a_bad_audit_says_why(name: str):
    change, words = BAD_AUDITS[name]
    given = audit_arguments()
    refused(audit, given | change(given), words)


def test_the_good_audit_is_good(path: str):
    assert audit(**audit_arguments()).tolist() == [-1] * 6


UNCLEAR: dict[str, tuple[Callable[..., Any], Callable[[], Arguments], Arguments]] = {
    "keys list": (store_kv, store_arguments, {"keys": [1.0]}),
    "keys none": (store_kv, store_arguments, {"keys": None}),
    "tags none": (audit, audit_arguments, {"tags": None}),
    "tags of rank 0": (audit, audit_arguments, {"tags": torch.tensor(1)}),
    "tables flat": (audit, audit_arguments, {"tables": torch.zeros(4, dtype=torch.int32)}),
    "tables list": (audit, audit_arguments, {"tables": [[3, 0], [1, -1]]}),
    "expected of rank 0": (audit, audit_arguments, {"expected": torch.tensor(1)}),
    "block size 0": (audit, audit_arguments, {"block_size": 0}),  # all tags are right, it says
    "block size below 0": (audit, audit_arguments, {"block_size": -4}),
}


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_no_tensor_and_no_size_is_refused_clearly(name: str):
    call, arguments, changes = UNCLEAR[name]
    with pytest.raises(InvalidTensor):
        call(**(arguments() | changes))


# ---- one call for engines --------------------------------------------------------------------------------------------


def storage_of(dtype: torch.dtype | str = "float32", **options: Any) -> KVStorage:
    return KVStorage(StorageConfig(2, 8, 4, 2, 16, dtype), "cpu", **options)


@pytest.mark.parametrize("spec", [AttentionSpec(4, 1, 16), AttentionSpec(4, 4, 16), AttentionSpec(4, 2, 17)])
def test_a_spec_must_fit_its_storage(spec: AttentionSpec):
    words = f"the spec has {spec.num_kv_heads} kv heads of {spec.head_dim} dims, the storage 2 of 16"
    with pytest.raises(InvalidAttention, match=words):
        PagedAttention(spec, storage_of())


@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_have_the_dtype_of_the_cache_or_bfloat16(dtype: str):
    attention = PagedAttention(SPEC, storage_of(dtype))
    assert attention.dtype is (torch.bfloat16 if dtype == "float8_e4m3" else DTYPES[dtype])
    assert attention.plan(BATCH).dtype is attention.dtype
    if dtype == "float8_e4m3":
        for other in ROUNDING:
            assert PagedAttention(SPEC, storage_of(dtype), dtype=other).plan(BATCH).dtype is other


@pytest.mark.parametrize(
    ("cached", "dtype"),
    [("float32", torch.float16), ("float16", torch.float32), ("float8_e4m3", torch.float64), ("float8_e4m3", FP8)],
)
def test_queries_that_no_call_takes_are_refused_at_once(cached: str, dtype: torch.dtype):
    with pytest.raises((InvalidAttention, InvalidTensor)):
        PagedAttention(SPEC, storage_of(cached), dtype=dtype)


def test_trees_and_tilings_may_be_chosen():
    attention = PagedAttention(SPEC, storage_of(), tree=TREE, tiles=(Tiling(32),))
    plan = attention.plan(BATCH, schedule="split").plan
    assert plan.tree == TREE and [lane.tiling for lane in plan.lanes] == [Tiling(32)]
    assert (plan.block_size, plan.num_blocks, plan.spec) == (4, 8, SPEC)
    with pytest.raises(InvalidAttention, match="16 rows do not hold the 32 heads of a group"):
        PagedAttention(AttentionSpec(64, 2, 16), storage_of(), tiles=(Tiling(16),)).plan(BATCH)


class Call:
    """A call of `PagedAttention` that could be made, over a storage full of sevens."""

    def __init__(self, dtype: str = "float32", *, tags: bool = False) -> None:
        self.storage = storage_of(dtype, tags=tags)
        self.storage.data.copy_(torch.full(self.storage.data.shape, 7.0))
        self.attention = PagedAttention(SPEC, self.storage, dtype=torch.float32, tree=TREE)
        self.given: Arguments = {
            "layer": 1,
            "queries": torch.ones(3, 4, 16),
            "keys": torch.ones(3, 2, 16),
            "values": torch.ones(3, 2, 16),
            "plan": self.attention.plan(BATCH),
        }

    def refused(self, error: type[Exception], words: str, **changes: Any) -> None:
        before = raw(self.storage.data)
        with pytest.raises(error, match=words):
            self.attention(**(self.given | changes))
        assert torch.equal(raw(self.storage.data), before), "the cache was written to"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keys": torch.ones(3, 2, 16).half()}, "keys must be torch.float32"),
        ({"keys": torch.ones(2, 2, 16)}, "must have the shape"),
        ({"values": torch.ones(3, 2, 15)}, "values must have the shape"),
        ({"values": torch.ones(3, 2, 16, device="meta")}, "values is on meta"),
        ({"token_tags": torch.ones(3, dtype=torch.int64)}, "tags and token_tags go together"),
    ],
)
@pytest.mark.parametrize("before", [False, True], ids=["at first", "after a good layer"])
def test_bad_keys_and_values_write_nothing(
    changes: Arguments, words: str, before: bool, request: pytest.FixtureRequest
):
    call = Call()
    if before:
        call.attention(**call.given)
    request.getfixturevalue("no_launch")
    call.refused(InvalidTensor, words, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queries": torch.ones(3, 4, 16).half()}, "queries must be torch.float32"),
        ({"queries": torch.ones(3, 2, 16)}, "queries must have the shape"),
        ({"queries": torch.ones(3, 4, 16, device="meta")}, "queries is on meta"),
        ({"out": torch.ones(3, 4, 15)}, "out must have the shape"),
        ({"out": torch.ones(3, 4, 16).half()}, "out must be torch.float32"),
        ({"plan": plan_of(torch.float16)}, "the plan was made for torch.float16"),
        ({"plan": plan_of(num_blocks=9)}, "8 blocks of 4, the plan was made for 9 of 4"),
        ({"plan": plan_of(spec=AttentionSpec(8, 2, 16))}, "queries must have the shape"),
    ],
)
@pytest.mark.parametrize("before", [False, True], ids=["at first", "after a good layer"])
def test_bad_queries_results_and_plans_write_nothing(changes: Arguments, words: str, before: bool):
    call = Call()
    if before:
        call.attention(**call.given)
    call.refused(InvalidTensor, words, **changes)


def test_another_storage_is_no_excuse_for_what_this_one_lacks():
    """A plan remembers what was right, and may be used with two storages."""
    one, other = Call(tags=True), Call()
    given = {"plan": one.given["plan"], "token_tags": torch.ones(3, dtype=torch.int64)}
    one.attention(**(one.given | given))
    other.refused(InvalidTensor, "tags and token_tags go together", **given)


def test_layers_after_the_first_are_not_checked_again(monkeypatch: pytest.MonkeyPatch):
    call = Call()
    call.attention(**call.given)
    checked: list[str] = []
    monkeypatch.setattr(calls, "_check", lambda name, *_: checked.append(name))
    call.attention(**(call.given | {"layer": 0}))
    assert not checked
    call.attention(**(call.given | {"plan": call.attention.plan(BATCH)}))
    assert "queries" in checked
    assert "keys" in checked


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("layer", [2, 99, -1, -3])
def test_a_layer_that_there_is_not(layer: int):
    Call().refused(IndexError, "layers 0 to 1", layer=layer)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_call_writes_its_layer_and_attends(path: str, layer: int):
    call = Call(tags=True)
    other = raw(call.storage.data[1 - layer])
    out = torch.empty(3, 4, 16)
    tags = torch.tensor([11, 12, 13])
    assert call.attention(**(call.given | {"layer": layer, "out": out, "token_tags": tags})) is out
    assert torch.equal(raw(call.storage.data[1 - layer]), other)
    slots = BATCH.slot_mapping.tolist()
    for plane in (call.storage.keys(layer), call.storage.values(layer)):
        flat = plane.transpose(1, 2).flatten(0, 1)
        assert bool((flat[slots] == 1).all()) and (flat == 1).all((1, 2)).sum() == 3
    assert {slot: int(call.storage.tags[slot]) for slot in slots} == dict(zip(slots, [11, 12, 13], strict=True))
    # Three sevens and the ones: of two, and of one, positions.
    weight = math.exp(16 / 4 * (1 - 7))
    for row, (old, new) in enumerate(((3, 1), (3, 2), (2, 1))):
        expected = (7 * old + new * weight) / (old + new * weight)
        assert torch.allclose(out[row], torch.tensor(expected), rtol=1e-6)


# ---- with the allocator ----------------------------------------------------------------------------------------------


class Engine:
    """A model of two layers whose K/V depend on token and position, over one cache, each row checked.

    After each step every slot of every live request must hold what its own history put there, by tag.
    """

    LAYERS = 2

    def __init__(self, path: str, dtype: torch.dtype, cached: torch.dtype, spec: AttentionSpec) -> None:
        self.path, self.dtype, self.spec = path, dtype, spec
        config = StorageConfig(self.LAYERS, 12, 4, spec.num_kv_heads, spec.head_dim, cached)
        self.storage = KVStorage(config, "cpu", poison=True, tags=True)
        self.attention = PagedAttention(spec, self.storage, dtype=dtype, tree=TREE)
        self.manager = BlockManager(CacheConfig(12, 4, reuse=ReusePolicy.LAST_TOKEN), on_discard=self.storage.poison)
        generator = torch.Generator().manual_seed(0)

        def table(heads: int) -> torch.Tensor:
            """[layers, tokens or positions, heads, dim]"""
            return torch.randn(self.LAYERS, 64, heads, spec.head_dim, generator=generator)

        heads = spec.num_heads, spec.num_kv_heads, spec.num_kv_heads
        self.of_token, self.of_position = [table(n) for n in heads], [table(n) for n in heads]
        if self.storage.scales is not None:
            self.storage.scales.fill_(0.01)
        self.ids: dict[tuple[int, ...], int] = {}

    def projected(self, layer: int, tokens: list[int], positions: list[int]) -> list[torch.Tensor]:
        """[queries, keys, values]"""
        return [
            (by_token[layer, tokens] + by_position[layer, positions]).to(self.dtype)
            for by_token, by_position in zip(self.of_token, self.of_position, strict=True)
        ]

    def tag(self, tokens: Sequence[int]) -> int:
        return self.ids.setdefault(tuple(tokens), len(self.ids) + 1)

    def step(self, *work: tuple[str, int], copy: bool = True) -> Step:
        step = self.manager.dispatch(work)
        if copy:
            self.storage.copy(step.copies)
        plan = self.attention.plan(step.batch, schedule=[len(work) % 2 == 0] * len(work))
        rows = list(zip(step.sequences, step.starts, step.ends, strict=True))
        tokens = [token for sequence, start, end in rows for token in sequence.tokens[start:end]]
        tags = [self.tag(sequence.tokens[: at + 1]) for sequence, start, end in rows for at in range(start, end)]
        for layer in range(self.LAYERS):
            given = self.projected(layer, tokens, step.batch.positions.tolist())
            noted = torch.tensor(tags) if layer == 0 else None
            self.verify(layer, self.attention(layer, *given, plan, token_tags=noted), rows)
        self.manager.complete(step)
        self.audit()
        return step

    def verify(self, layer: int, out: torch.Tensor, rows: list[tuple[Any, int, int]]) -> None:
        begin = 0
        cached = self.storage.config.torch_dtype
        scale = None if self.storage.scales is None else torch.full((self.spec.num_kv_heads,), 0.01)
        for sequence, start, end in rows:
            queries, *data = self.projected(layer, list(sequence.tokens[:end]), list(range(end)))
            keys, values = (stored(one, cached, scale) for one in data)
            result, spread = exact(queries[start:], keys, values, self.spec)
            bound = ROUNDING[self.dtype] * (result.abs() + spread) + 1e-5 * (1 + spread)
            own = out[begin : begin + end - start].double()
            assert bool(((own - result).abs() <= bound).all()), f"{sequence.request} from {start} in layer {layer}"
            begin += end - start
        assert begin == len(out)

    def audit(self) -> None:
        live = [sequence for sequence in inside(self.manager).sequences.values() if sequence.computed]
        width = max(len(sequence.table) for sequence in live)
        tables = [sequence.table + [-1] * (width - len(sequence.table)) for sequence in live]
        expected = [self.tag(sequence.tokens[: at + 1]) for sequence in live for at in range(sequence.computed)]
        ends = np.cumsum([0, *(sequence.computed for sequence in live)])
        found = audit(
            self.storage.tags,
            torch.tensor(tables, dtype=torch.int32),
            torch.tensor(expected),
            torch.from_numpy(ends),
            block_size=4,
        )
        assert bool((found == -1).all())


ENGINES = [
    ("kernel", torch.float32, torch.float32),
    ("kernel", torch.float16, FP8),
    ("torch", torch.float32, torch.float32),
    ("torch", torch.bfloat16, torch.bfloat16),
    ("torch", torch.float16, torch.float16),
    ("torch", torch.bfloat16, FP8),
]


@pytest.fixture(params=ENGINES, ids=lambda one: f"{one[0]}-{one[1]}-{one[2]}".replace("torch.", ""))
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    path, dtype, cached = request.param
    if path == "torch":
        monkeypatch.setattr(calls, "_launches", lambda device: False)
    elif not calls._launches(CPU):
        pytest.skip("Triton's interpreter is off")
    monkeypatch.setattr(calls, "capability_of", lambda device: 80)
    return Engine(path, dtype, cached, AttentionSpec(4, 2, 16, window=9))


def test_an_engine_s_day(engine: Engine):
    manager, storage = engine.manager, engine.storage
    manager.allocate("a", range(10))
    engine.step(("a", 6))
    engine.step(("a", 4))

    # A fork shares the last block until one of both writes into it.
    child = manager.fork("a", "b")
    manager.append("a", [20])
    manager.append("b", [21])
    step = engine.step(("a", 1), ("b", 1))
    parent = manager.sequence("a").table
    assert step.copies and child.table[:2] == parent[:2] and child.table[2] != parent[2]

    # A prompt of whole cached blocks: its last token is computed again, and written nowhere.
    hit = manager.allocate("c", range(8))
    assert hit.num_hit_tokens == 7
    before = raw(storage.data)
    step = engine.step(("c", 1))
    assert step.batch.slot_mapping.tolist() == [-1]
    assert torch.equal(raw(storage.data), before)

    # Freed blocks are poisoned, and taken again.
    manager.free("b")
    manager.allocate("d", range(30, 43))
    for request in ("a", "c"):
        manager.append(request, [25, 26])
    engine.step(("d", 13), ("a", 1), ("c", 2))
    manager.append("d", [1])
    engine.step(("a", 1), ("d", 1))
    manager.check()


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")  # numpy, of the poison that is read
def test_a_missed_copy_is_seen(engine: Engine):
    """That the day above would notice."""
    manager = engine.manager
    manager.allocate("a", range(10))
    engine.step(("a", 10))
    manager.fork("a", "b")
    manager.append("b", [21])
    with pytest.raises(AssertionError):
        engine.step(("b", 1), copy=False)


@pytest.mark.parametrize("tokens", [1, 3])
def test_a_plan_with_room_serves_step_after_step(path: str, tokens: int):
    storage = storage_of()
    attention = PagedAttention(SPEC, storage, tree=TREE)
    manager = BlockManager(CacheConfig(8, 4))
    for request in ("a", "b"):
        manager.allocate(request, range(4))
    room = Room(4, 8, 12, ((8, 8, 8), (8, 8, 8)))
    plan = None
    generator = torch.Generator().manual_seed(0)
    for turn in range(3):
        batch = manager.dispatch([("a", tokens if turn == 0 else 1), *([("b", 2)] if turn == 0 else [])]).batch
        q, k, v = (torch.randn(12, heads, 16, generator=generator) for heads in (4, 2, 2))
        if plan is None:
            plan = attention.plan(batch, room=room)
        else:
            plan.load(attention.prepare(batch))
        used = batch.num_tokens
        own = attention(1, q[:used], k[:used], v[:used], attention.plan(batch))
        out = attention(1, q, k, v, plan)
        assert torch.equal(out[:used], own) and not out[used:].any()
        manager.append("a", [9])
