"""Addresses beyond 2**31 elements, slots and rows beyond 2**31, positions beyond 2**24: the bits of a small cache.

Memory is mapped and hardly touched. Before each tensor lies as much again, so that an offset that wrapped in 32 bits
finds zeros there and shows as another result; but a wrong offset may lead anywhere, so all of this runs in a process of
its own, one fork for each scenario:

    python -m properties.attention.tests.test_large kvcore [scenario ...]
"""

from __future__ import annotations

import json
import math
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from properties.attention.kernels import Cache, How, Kernels, Spec, Step, unwatched
from reference import Bounds, Equivalence, Violation

ROOT = Path(__file__).parents[3]
BEYOND = 2**31
TOKENS, ROWS = 40, 5
TILE, LEAF = 16, 32
DTYPES = {torch.bfloat16: 2, torch.float32: 4, torch.int32: 4, torch.int64: 8}


# ---- memory that is not there ----------------------------------------------------------------------------------------


def unbacked(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Zeros, and before them 2**31 more; a page becomes memory when it is written."""
    size = DTYPES[dtype]
    reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, (BEYOND + elements) * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserve)
    return torch.frombuffer(memory, dtype=dtype)[BEYOND:]


def scattered(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Zeros of this shape, so many elements apart."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return unbacked(reach, dtype).as_strided(tuple(shape), tuple(strides))


def spread(data: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The same numbers, so many elements apart."""
    result = scattered(data.shape, strides, data.dtype)
    result.copy_(data)
    return result


# ---- what is computed ------------------------------------------------------------------------------------------------


class Setting:
    """A sequence of TOKENS, its last ROWS asked for. far, near: its blocks in the large cache and in the small one."""

    def __init__(self, heads: int, group: int, dim: int, block_size: int, blocks: int) -> None:
        count = -(-TOKENS // block_size)
        self.block_size = block_size
        # Both ends of the pool, in no order: the first blocks are where a wrapped id might lead.
        ends = [blocks - 1 - number if number % 3 else number for number in range(count)]
        self.far = ends[1::2] + ends[::2]
        self.near = [(7 * number + 3) % (count + 8) for number in range(count)] if count > 1 else [1]
        assert len(set(self.near)) == count
        self.spec = Spec(heads * group, heads, dim, 1 / math.sqrt(dim))
        generator = torch.Generator().manual_seed(heads * 1000 + dim)
        self.keys, self.values, self.queries = (
            torch.randn(rows, count, dim, generator=generator).to(torch.bfloat16)
            for rows, count in ((TOKENS, heads), (TOKENS, heads), (ROWS, heads * group))
        )

    def slots(self, blocks: Sequence[int]) -> list[int]:
        size = self.block_size
        return [blocks[place // size] * size + place % size for place in range(TOKENS)]

    def small(self) -> Cache:
        shape = (len(self.near) + 8, self.spec.num_kv_heads, self.block_size, self.spec.head_dim)
        return Cache(*torch.zeros((2, *shape), dtype=torch.bfloat16))

    def attend(
        self,
        kernels: Kernels,
        cache: Cache,
        blocks: Sequence[int],
        schedule: str,
        queries: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        queries = self.queries if queries is None else queries
        out = torch.empty(queries.shape) if out is None else out
        step = Step(np.array([[*blocks, -1]], dtype=np.int32), [TOKENS], [ROWS], [-1] * ROWS)
        how = How(schedule, (16, 16), tile=TILE, leaf=LEAF)
        kernels.attend(queries, cache, step, self.spec, how, out, unwatched)
        return out

    def right(self, kernels: Kernels, schedule: str) -> torch.Tensor:
        cache = self.small()
        kernels.store(self.keys, self.values, cache, self.slots(self.near), unwatched)
        return self.attend(kernels, cache, self.near, schedule)


def same(what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    if not torch.equal(found.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)):
        raise Equivalence(f"{what}: other bits than in a small cache, by up to {(found - wanted).abs().max():.3g}")


def stored(what: str, setting: Setting, cache: Cache, blocks: Sequence[int]) -> None:
    """What the slots hold is what was given."""
    slots = torch.tensor(setting.slots(blocks))
    size = setting.block_size
    for name, tensor, given in (("keys", cache.keys, setting.keys), ("values", cache.values, setting.values)):
        same(f"{what} of {name}", tensor[slots // size, :, slots % size], given)


def attended(setting: Setting, kernels: Kernels, cache: Cache, blocks: Sequence[int]) -> None:
    for schedule in ("direct", "split"):
        out = setting.attend(kernels, cache, blocks, schedule)
        same(f"{schedule} attention", out, setting.right(kernels, schedule))


# ---- scenarios -------------------------------------------------------------------------------------------------------


def blocks(kernels: Kernels) -> None:
    """A bf16 cache of over 2**31 elements, K and V interleaved: blocks at both ends stored, attended to and copied.

    A block has an odd number of elements, so that it cannot be copied in words wider than one.
    """
    setting = Setting(heads=1, group=2, dim=11, block_size=3, blocks=BEYOND // 66 + 5)
    count = BEYOND // 66 + 5
    data = scattered((count, 2, 1, 3, 11), (66, 33, 33, 11, 1), torch.bfloat16)
    assert data.numel() > BEYOND
    cache = Cache(data[:, 0], data[:, 1])
    kernels.store(setting.keys, setting.values, cache, setting.slots(setting.far), unwatched)
    stored("storing", setting, cache, setting.far)
    attended(setting, kernels, cache, setting.far)
    # Copied from either end to either end; then the copies are what is read.
    moved = [count - 100 - number if number % 2 else 100 + number for number in range(len(setting.far))]
    kernels.copy(cache, list(zip(setting.far, moved, strict=True)), unwatched)
    stored("copying", setting, cache, moved)
    attended(setting, kernels, cache, moved)


def heads(kernels: Kernels) -> None:
    """The heads are the outermost dimension, 2**30 elements apart."""
    count, dim, apart = 64, 16, 2**30 + 64
    setting = Setting(heads=3, group=1, dim=dim, block_size=4, blocks=count)
    both = scattered((2, count, 3, 4, dim), (count * 4 * dim, 4 * dim, apart, dim, 1), torch.bfloat16)
    cache = Cache(both[0], both[1])
    kernels.store(setting.keys, setting.values, cache, setting.slots(setting.far), unwatched)
    stored("storing", setting, cache, setting.far)
    attended(setting, kernels, cache, setting.far)


def rows(kernels: Kernels) -> None:
    """Rows of keys, values, queries and output 2**29 elements apart, then the heads of queries and output 2**30."""
    setting = Setting(heads=1, group=3, dim=16, block_size=4, blocks=32)
    apart = 2**26 + 64
    cache = setting.small()
    keys, values = (spread(data, (apart, 16, 1)) for data in (setting.keys, setting.values))
    kernels.store(keys, values, cache, setting.slots(setting.near), unwatched)
    stored("storing", setting, cache, setting.near)
    for strides in ((2**29 + 64, 16, 1), (16, 2**30 + 64, 1)):
        queries = spread(setting.queries, strides)
        for schedule in ("direct", "split"):
            out = scattered(queries.shape, strides, torch.float32)
            setting.attend(kernels, cache, setting.near, schedule, queries, out)
            same(f"{schedule} attention", out, setting.right(kernels, schedule))


def slots(kernels: Kernels) -> None:
    """Over 2**31 slots of one element, and a tag for each."""
    size = 64
    count = BEYOND // size + 5
    setting = Setting(heads=1, group=1, dim=1, block_size=size, blocks=count)
    data = scattered((count, 2, 1, size, 1), (2 * size, size, size, 1, 1), torch.bfloat16)
    cache = Cache(data[:, 0], data[:, 1])
    tags = unbacked(count * size, torch.int64)
    assert tags.numel() > BEYOND
    last = [count - 1]
    given = list(range(1, TOKENS + 1))
    kernels.store(setting.keys, setting.values, cache, setting.slots(last), unwatched, tags=tags, token_tags=given)
    stored("storing", setting, cache, last)
    tables = np.array([last], dtype=np.int32)
    if any(tag != -1 for tag in kernels.audit(tags, tables, size, [given], unwatched)):
        raise Equivalence("the audit does not find the tags that were stored")
    attended(setting, kernels, cache, last)


def positions(kernels: Kernels) -> None:
    """ALiBi and a window, at positions where float32 cannot tell neighbours apart."""
    heads, dim, size, shift = 2, 16, 2**16, 2**24 + 2**16
    generator = torch.Generator().manual_seed(7)
    keys, values = (torch.randn(3, heads, size, dim, generator=generator).to(torch.bfloat16) for _ in range(2))
    cache = Cache(keys, values)
    queries = torch.randn(ROWS, heads, dim, generator=generator).to(torch.bfloat16)
    spec = Spec(heads, heads, dim, 1 / math.sqrt(dim), window=3 * LEAF, slopes=(0.25, 0.0625))
    context = 5 * LEAF + 7  # of the last block
    for schedule in ("direct", "split"):
        outs = []
        for before in (0, shift):
            # What lies before the window is not read: one block stands for all of it.
            table = [*[0] * (before // size), 2]
            step = Step(np.array([table], dtype=np.int32), [before + context], [ROWS], [-1] * ROWS)
            out = torch.empty(queries.shape)
            how = How(schedule, (16, 16), tile=TILE, leaf=LEAF)
            kernels.attend(queries, cache, step, spec, how, out, unwatched)
            outs.append(out)
        same(f"{schedule} attention {shift} positions later", outs[1], outs[0])


SCENARIOS: dict[str, Callable[[Kernels], None]] = {
    scenario.__name__: scenario for scenario in (blocks, heads, rows, slots, positions)
}


# ---- in a process of its own -----------------------------------------------------------------------------------------


def outcome(act: Callable[[], None]) -> tuple[str, str]:
    """("", "") if `act` does what it should in a fork of this process, else the property and what happened."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                act()
                found = ("", "")
            except Violation as violation:
                found = (violation.id, str(violation)[:1000])
            except BaseException as error:
                found = ("CRASH", f"{type(error).__name__}: {error}"[:1000])
            os.write(writing, json.dumps(found).encode())
        finally:
            os._exit(0)  # whatever the memory is like: never back into what the parent was doing
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if said:
        property_id, message = json.loads(said)
        return property_id, message
    return Bounds.__name__.upper(), f"the process was killed by signal {os.WTERMSIG(status)}"


def main(name: str, chosen: Sequence[str]) -> None:
    from properties.attention.interpret import prepare
    from properties.targets import load_kernels

    prepare()
    kernels = load_kernels(name)()
    for scenario in chosen or SCENARIOS:
        property_id, message = outcome(partial(SCENARIOS[scenario], kernels))
        print(json.dumps([scenario, property_id, message]), flush=True)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, kernels: Kernels) -> dict[str, tuple[str, str]]:
    name = request.config.getoption("--kernels") or "kvcore"
    command = [sys.executable, "-m", __name__ if "." in __name__ else "properties.attention.tests.test_large", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {scenario: (found, message) for scenario, found, message in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_offsets_do_not_wrap(outcomes: dict[str, tuple[str, str]], scenario: str) -> None:
    assert outcomes[scenario] == ("", "")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
