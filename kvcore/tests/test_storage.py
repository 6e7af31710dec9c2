"""The K/V pool: sizes known before anything is allocated, a stated layout, copies without an order, poison that shows.

What moves bytes runs twice, as the kernel (in Triton's interpreter) and as the torch path.
"""

from __future__ import annotations

import itertools
import os
import re
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from kvcore import CacheError, InvalidConfiguration, InvalidCopies, StorageTooLarge
from kvcore.kernels import calls
from kvcore.storage import DTYPES, KVStorage, StorageConfig

CPU = torch.device("cpu")
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1}
SIZES = {"num_layers": 2, "num_blocks": 5, "block_size": 4, "num_kv_heads": 3, "head_dim": 8}

Pairs = list[tuple[int, int]]


def storage_of(dtype: torch.dtype | str = "float32", **options: Any) -> KVStorage:
    flags = {name: options.pop(name) for name in ("poison", "tags") if name in options}
    return KVStorage(StorageConfig(**{**SIZES, **options}, dtype=dtype), "cpu", **flags)


def scramble(storage: KVStorage, seed: int = 0) -> None:
    """Any bytes: NaNs of every kind among them, which a copy must not touch up."""
    random = np.random.default_rng(seed)
    raw = storage.data.view(torch.uint8)
    raw.copy_(torch.from_numpy(random.integers(0, 256, raw.shape, dtype=np.uint8)))
    if storage.tags is not None:
        storage.tags.copy_(torch.arange(1, len(storage.tags) + 1))


def contents(storage: KVStorage) -> tuple[torch.Tensor, torch.Tensor | None]:
    return storage.data.view(torch.uint8).clone(), None if storage.tags is None else storage.tags.clone()


def same(before: tuple[torch.Tensor, torch.Tensor | None], after: tuple[torch.Tensor, torch.Tensor | None]) -> bool:
    tags = before[1] is after[1] is None or torch.equal(before[1], after[1])
    return tags and torch.equal(before[0], after[0])


@pytest.fixture(params=["kernel", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(calls, "_launches", lambda device: False)
    elif not calls._launches(CPU):
        pytest.skip("Triton's interpreter is off")
    return request.param


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_there_are_four_dtypes():
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == WIDTHS


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_may_be_given_by_name_or_as_torch_has_it(dtype: str):
    by_name, by_type = StorageConfig(**SIZES, dtype=dtype), StorageConfig(**SIZES, dtype=DTYPES[dtype])
    assert by_name.torch_dtype is by_type.torch_dtype is DTYPES[dtype]
    assert by_name.num_bytes == by_type.num_bytes


def test_bfloat16_is_the_default():
    assert StorageConfig(**SIZES).torch_dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1), (2, 5, 4, 3, 8), (1, 7, 16, 1, 256), (3, 1, 5, 2, 72), (80, 2**31 - 1, 16, 8, 128)]
)
def test_bytes_are_known_before_anything_is_allocated(dtype: str, sizes: tuple[int, ...]):
    layers, blocks, slots, heads, dim = sizes
    config = StorageConfig(*sizes, dtype=dtype)
    # Per token: keys and values of each layer and head.
    assert config.bytes_per_block == slots * layers * 2 * heads * dim * WIDTHS[dtype]
    assert config.num_bytes == blocks * config.bytes_per_block
    assert config.shape == (layers, 2, blocks, heads, slots, dim)
    if config.num_bytes < 2**20:
        assert KVStorage(config, "cpu").data.nbytes == config.num_bytes


def test_the_usual_example():
    """Llama 3 8B: 128 KiB a token in bfloat16."""
    assert StorageConfig(32, 1, 16, 8, 128).bytes_per_block == 16 * 128 * 1024
    assert StorageConfig(32, 1, 16, 8, 128, "float8_e4m3").bytes_per_block == 16 * 64 * 1024


def test_blocks_in_counts_whole_blocks():
    config = StorageConfig(**SIZES)
    size = config.bytes_per_block
    for given, blocks in ((0, 0), (size - 1, 0), (size, 1), (size + 1, 1), (10 * size - 1, 9), (10 * size, 10)):
        assert config.blocks_in(given) == blocks
    assert config.blocks_in(config.num_bytes) == config.num_blocks


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, 2**31, 1.0, True, "4", None, np.int64(4)])
def test_sizes_are_integers_from_1(name: str, value: Any):
    words = f"{name} must be an integer from 1 to .*got {re.escape(repr(value))}"
    with pytest.raises(InvalidConfiguration, match=words):
        StorageConfig(**{**SIZES, name: value})


def test_a_head_has_at_most_256_dims():
    assert StorageConfig(1, 1, 1, 1, 256).head_dim == 256
    with pytest.raises(InvalidConfiguration, match="head_dim must be at most 256, got 257"):
        StorageConfig(1, 1, 1, 1, 257)


def test_the_elements_of_one_block_have_a_32_bit_index():
    assert StorageConfig(1, 1, 2**23 - 1, 1, 256).shape[4] == 2**23 - 1
    with pytest.raises(InvalidConfiguration, match=r"8388608 slots, 1 heads and 256 dims has 2147483648 elements"):
        StorageConfig(1, 1, 2**23, 1, 256)


@pytest.mark.parametrize("value", ["fp8", "FLOAT32", "", torch.float64, torch.int8, torch.float8_e5m2, None, 16, float])
def test_other_dtypes_are_refused(value: Any):
    words = f"dtype must be one of float32, float16, bfloat16, float8_e4m3, got {re.escape(repr(value))}"
    with pytest.raises(InvalidConfiguration, match=words):
        StorageConfig(**SIZES, dtype=value)


@pytest.mark.parametrize("value", [["float32"], {}])
def test_what_has_no_hash_is_no_dtype_either(value: Any):
    with pytest.raises(InvalidConfiguration):
        StorageConfig(**SIZES, dtype=value)


def test_a_config_can_be_a_key_and_does_not_change():
    config = StorageConfig(**SIZES)
    assert config == StorageConfig(**SIZES) and hash(config) == hash(StorageConfig(**SIZES))
    with pytest.raises(AttributeError):
        config.num_blocks = 9


# ---- too large -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever allocates fails the test."""
    for name in ("empty", "zeros", "ones", "full"):
        monkeypatch.setattr(torch, name, lambda *_, **__: pytest.fail("something was allocated"))


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("dtype", DTYPES)
def test_too_large_says_what_fits_and_allocates_nothing(dtype: str):
    config = StorageConfig(80, 2**31 - 1, 16, 8, 128, dtype=dtype)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with pytest.raises(StorageTooLarge) as caught:
        KVStorage(config, "cpu", poison=True, tags=True)
    for word in (
        "2147483647 blocks",
        f"of {config.bytes_per_block} bytes",
        f"{config.num_bytes / 2**30:.1f} GiB",
        f"cpu has {memory / 2**30:.1f} GiB",
        f"at most {memory // config.bytes_per_block} blocks fit",
    ):
        assert word in str(caught.value)
    assert isinstance(caught.value, CacheError) and isinstance(caught.value, MemoryError)


@pytest.mark.usefixtures("no_memory")
def test_a_gpu_is_asked_for_what_is_free(monkeypatch: pytest.MonkeyPatch):
    config = StorageConfig(**SIZES)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * config.bytes_per_block + 1, 2**60))
    with pytest.raises(StorageTooLarge, match=r"cuda:1 has .* at most 4 blocks fit"):
        KVStorage(config, "cuda:1")


@pytest.mark.parametrize("missing", [0, 1])
def test_what_fits_to_the_byte_fits(monkeypatch: pytest.MonkeyPatch, missing: int):
    config = StorageConfig(**SIZES)
    sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": config.num_bytes - missing}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    if missing:
        with pytest.raises(StorageTooLarge, match=r"5 blocks of .* at most 4 blocks fit"):
            KVStorage(config, "cpu")
    else:
        assert KVStorage(config, "cpu").data.nbytes == config.num_bytes


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("device", ["meta", "mps", "xpu:0", torch.device("meta")])
def test_other_devices_are_refused(device: Any):
    with pytest.raises(InvalidConfiguration, match=f"device must be cuda or cpu, got {device}"):
        KVStorage(StorageConfig(**SIZES), device)


# ---- layout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_layout_is_the_stated_one(dtype: str):
    storage = storage_of(dtype)
    layers, blocks, slots, heads, dim = SIZES.values()
    assert storage.data.dtype is DTYPES[dtype] and storage.device == storage.data.device == CPU
    assert storage.data.shape == (layers, 2, blocks, heads, slots, dim)
    block = heads * slots * dim
    assert storage.data.stride() == (2 * blocks * block, blocks * block, block, slots * dim, dim, 1)
    for layer in range(layers):
        for plane, view in enumerate((storage.keys(layer), storage.values(layer))):
            assert view.shape == (blocks, heads, slots, dim)
            assert view.data_ptr() == storage.data[layer, plane].data_ptr()
            assert view.stride() == storage.data.stride()[2:]


def test_one_block_of_one_layer_and_plane_is_one_stretch():
    storage = storage_of()
    scramble(storage)
    flat, size = storage.data.flatten(), SIZES["num_kv_heads"] * SIZES["block_size"] * SIZES["head_dim"]
    for layer, plane, block in itertools.product(range(2), range(2), range(5)):
        at = ((layer * 2 + plane) * 5 + block) * size
        stretch = flat[at : at + size].view(torch.uint8)
        assert torch.equal(stretch, storage.data[layer, plane, block].flatten().view(torch.uint8))


def test_views_write_through():
    storage = storage_of()
    storage.data.zero_()
    storage.keys(1)[3, 2, 1, 7] = 1.0
    storage.values(0)[0, 0, 0, 0] = 2.0
    assert storage.data.nonzero().tolist() == [[0, 1, 0, 0, 0, 0], [1, 0, 3, 2, 1, 7]]


@pytest.mark.parametrize("layer", [2, 100, -3])
def test_a_layer_that_there_is_not(layer: int):
    for view in (storage_of().keys, storage_of().values):
        with pytest.raises(IndexError):
            view(layer)


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_fp8_has_scales_and_they_begin_as_1(dtype: str):
    scales = storage_of(dtype).scales
    if dtype != "float8_e4m3":
        assert scales is None
        return
    assert scales.shape == (2, 2, 3) and scales.dtype is torch.float32 and bool((scales == 1).all())


def test_tags_are_there_if_asked_for_and_begin_as_never_written():
    assert storage_of().tags is None
    tags = storage_of(tags=True).tags
    assert tags.shape == (20,) and tags.dtype is torch.int64 and not tags.any()


# ---- copies ----------------------------------------------------------------------------------------------------------


def copied(before: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    after = before.clone()
    for source, destination in pairs:
        after[:, :, destination] = before[:, :, source]
    return after


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", [[], [(0, 4)], [(4, 0)], [(0, 1), (0, 3), (2, 4)], [(1, 0), (1, 2), (1, 3), (1, 4)]])
def test_a_copy_moves_all_layers_to_the_bit(path: str, dtype: str, pairs: Pairs):
    storage = storage_of(dtype, tags=True)
    scramble(storage)
    data, tags = contents(storage)
    assert storage.copy(pairs) is None
    rows = tags.view(5, 4).clone()
    for source, destination in pairs:
        rows[destination] = tags.view(5, 4)[source]
    assert same((copied(data, pairs), rows.flatten()), contents(storage))


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("float8_e4m3", (1, 9, 1, 1, 1)),  # words of 1 byte, one to a block
        ("float8_e4m3", (2, 9, 3, 1, 5)),  # 15 bytes
        ("float16", (1, 9, 3, 1, 5)),  # 30: words of 2
        ("float32", (1, 9, 3, 1, 5)),  # 60: words of 4
        ("float32", (1, 9, 1, 2, 17)),  # 136: words of 8, 17 of them
        ("bfloat16", (1, 9, 16, 5, 72)),  # 1440 words: a second chunk, not full
        ("float16", (3, 9, 16, 2, 128)),  # 1024 words: exactly one
    ],
)
def test_a_copy_of_blocks_of_any_size(path: str, dtype: str, sizes: tuple[int, ...]):
    random = Random(0)
    storage = KVStorage(StorageConfig(*sizes, dtype=dtype), "cpu")
    for seed in range(2):
        scramble(storage, seed)
        chosen = random.sample(range(9), random.randint(2, 9))
        cut = random.randint(1, len(chosen) - 1)
        pairs = [(random.choice(chosen[:cut]), destination) for destination in chosen[cut:]]
        data, _ = contents(storage)
        storage.copy(pairs)
        assert same((copied(data, pairs), None), contents(storage))


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8])
def test_planes_may_begin_at_any_byte(path: str, offset: int):
    raw = torch.arange(4 * 3 * 16 + 8, dtype=torch.int64).to(torch.uint8)
    planes = raw[offset : offset + 192].view(4, 3, 16)
    expected = raw.clone()
    expected[offset : offset + 192].view(4, 3, 16)[:, 2] = planes[:, 0]
    calls.copy_planes(planes, torch.tensor([[0, 2]]))
    assert torch.equal(raw, expected)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(5, 0)], ("5 -> 0", "blocks 0 to 4")),
        ([(0, 5)], ("0 -> 5", "blocks 0 to 4")),
        ([(-1, 0)], ("-1 -> 0", "blocks 0 to 4")),
        ([(0, -1)], ("0 -> -1", "blocks 0 to 4")),
        ([(0, 1), (2, 2**40)], (f"2 -> {2**40}", "blocks 0 to 4")),
        ([(0, 3), (1, 3)], ("two copies", "write block 3", "once")),
        ([(0, 3), (0, 3)], ("two copies", "write block 3", "once")),
        ([(0, 1), (1, 2)], ("1 -> 2", "writes block 1", "no order")),
        ([(1, 2), (0, 1)], ("1 -> 2", "writes block 1", "no order")),
        ([(0, 1), (1, 0)], ("0 -> 1", "writes block 0", "no order")),
        ([(3, 4), (2, 2)], ("2 -> 2", "to itself")),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3"])
def test_copies_that_overlap_or_lie_outside_are_refused_whole(
    monkeypatch: pytest.MonkeyPatch, dtype: str, pairs: Pairs, words: tuple[str, ...]
):
    monkeypatch.setattr(calls, "_launches", lambda device: pytest.fail("something was launched"))
    storage = storage_of(dtype, tags=True)
    scramble(storage)
    before = contents(storage)
    with pytest.raises(InvalidCopies) as caught:
        storage.copy(pairs)
    for word in words:
        assert word in str(caught.value)
    assert same(before, contents(storage))


def test_any_pairs_are_copied_or_refused_as_they_should_be(path: str):
    """All sets of two pairs over three blocks."""
    storage = storage_of("float16", num_blocks=3)
    for first, second in itertools.product(itertools.product(range(3), repeat=2), repeat=2):
        scramble(storage)
        before = contents(storage)
        allowed = first[1] != second[1] and {first[0], second[0]}.isdisjoint({first[1], second[1]})
        if allowed:
            storage.copy([first, second])
            assert same((copied(before[0], [first, second]), None), contents(storage))
        else:
            with pytest.raises(InvalidCopies):
                storage.copy([first, second])
            assert same(before, contents(storage))


# ---- poison ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_nan_in_every_dtype(dtype: str):
    storage = storage_of(dtype, poison=True)
    assert bool((storage.data.view(torch.uint8) == 0xFF).all())
    assert bool(storage.data.float().isnan().all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [list, tuple, set, iter])
@pytest.mark.parametrize("blocks", [[], [2], [4, 0], [1, 1, 3], [0, 1, 2, 3, 4]])
def test_poison_fills_the_blocks_given_and_no_others(dtype: str, blocks: list[int], given: Any):
    storage = storage_of(dtype, poison=True, tags=True)
    scramble(storage)
    data, tags = contents(storage)
    storage.poison(given(blocks))
    expected = data.clone()
    expected[:, :, blocks] = 0xFF
    rows = tags.view(5, 4).clone()
    rows[blocks] = 0
    assert same((expected, rows.flatten()), contents(storage))


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_the_mode_poison_does_nothing(dtype: str):
    storage = storage_of(dtype, tags=True)
    scramble(storage)
    before = contents(storage)
    storage.poison([0, 1, 2, 3, 4])
    assert same(before, contents(storage))


def test_poison_without_tags():
    storage = storage_of("float16", poison=True)
    storage.data.zero_()
    storage.poison([3])
    assert storage.data[:, :, 3].isnan().all() and not storage.data[:, :, [0, 1, 2, 4]].any()


@pytest.mark.parametrize("pairs", [[(0.5, 1)], [(0, 1.5)], [(True, 2)]])
def test_blocks_are_whole_numbers(pairs: Any):
    storage = storage_of()
    with pytest.raises((CacheError, TypeError)):
        storage.copy(pairs)


@pytest.mark.parametrize("block", [-1, -5])
def test_poison_of_a_block_outside_is_refused(block: int):
    storage = storage_of("float16", poison=True)
    storage.data.zero_()
    with pytest.raises((CacheError, IndexError)):
        storage.poison([block])
    assert not storage.data.any()
