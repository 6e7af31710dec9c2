"""The allocator's workload, the floor under it, and the two ways of driving a manager through it.

2,000 requests of 2,048 tokens, every second one with the same 1,024-token prefix; block size 16, 8,192 blocks, at most
32 alive, 32 decode tokens each.

The floor is what no prefix-caching allocator can do without: for each request, one int32 array of its tokens and one
chained xxh3-128 digest for each 64-byte slice of a block. It allocates nothing and finds nothing."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from time import perf_counter

import xxhash

from kvcore import BlockManager, CacheConfig

__all__ = ["BLOCKS", "BLOCK_SIZE", "Parts", "engine", "floor", "one_at_a_time", "requests"]

BLOCK_SIZE = 16
BLOCKS = 8_192
ALIVE = 32
DECODE = 32
LENGTH = 2_048
SHARED = 1_024


def requests(count: int = 2_000, seed: int = 1) -> list[list[int]]:
    """Prompts as lists of Python integers, as a tokenizer returns them."""
    random = Random(seed)
    shared = [random.randrange(32_000) for _ in range(SHARED)]
    prompts = []
    for number in range(count):
        head = shared if number % 2 else []
        prompts.append(head + [random.randrange(32_000) for _ in range(LENGTH - len(head))])
    return prompts


def floor(prompts: list[list[int]]) -> float:
    """Seconds for the unavoidable part."""
    digest = xxhash.xxh3_128_digest
    size = 4 * BLOCK_SIZE
    began = perf_counter()
    for prompt in prompts:
        data = array("i", prompt).tobytes()
        key = b""
        for at in range(0, len(data), size):
            key = digest(key + data[at : at + size])
    return perf_counter() - began


def one_at_a_time(prompts: list[list[int]]) -> tuple[float, int]:
    """(seconds, hit tokens) for block tables only: no step metadata, one request after the other, 32 kept alive.

    Each decode token is appended by a call of its own, which is what builds the block table; the request's decode
    tokens are then dispatched and completed as one step, which publishes what they filled."""
    manager = BlockManager(CacheConfig(BLOCKS, BLOCK_SIZE))
    alive: list[int] = []
    began = perf_counter()
    for number, prompt in enumerate(prompts):
        if len(alive) == ALIVE:
            manager.free(alive.pop(0))
        sequence = manager.allocate(number, prompt)
        manager.complete(manager.dispatch([(number, LENGTH - sequence.computed)], batch=False))
        for token in range(DECODE):
            manager.append(number, [token])
        manager.complete(manager.dispatch([(number, DECODE)], batch=False))
        alive.append(number)
    return perf_counter() - began, manager.statistics().hit_tokens


@dataclass
class Parts:
    """Seconds by operation."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, began: float) -> float:
        now = perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - began
        return now


def engine(prompts: list[list[int]], parts: Parts | None = None) -> float:
    """Seconds for a run like an engine's: every step decodes all alive requests and prefills the ones just admitted.

    Block tables, slot mappings and the rest are built for every step. With `parts`, the time of each operation is taken
    apart, which itself costs a little; the total is to be measured without."""
    manager = BlockManager(CacheConfig(BLOCKS, BLOCK_SIZE))
    waiting = deque(enumerate(prompts))
    alive: deque[int] = deque()  # oldest first
    ends: deque[int] = deque()  # the round after the last decode token of each
    start = now = perf_counter()
    turn = 0
    while waiting or alive:
        while ends and ends[0] == turn:
            ends.popleft()
            manager.free(alive.popleft())
        if parts is not None:
            now = parts.time("free", now)
        append = manager.append
        for number in alive:
            append(number, [7])
        if parts is not None:
            now = parts.time("append", now)
        work = [(number, 1) for number in alive]
        while waiting and len(alive) < ALIVE:
            number, prompt = waiting.popleft()
            if parts is not None:
                now = perf_counter()
            tokens = array("i", prompt)
            if parts is not None:
                now = parts.time("array", now)
            match = manager.lookup(tokens)
            if parts is not None:
                now = parts.time("lookup", now)
            sequence = manager.allocate(number, tokens, match=match)
            if parts is not None:
                now = parts.time("allocate", now)
            work.append((number, LENGTH - sequence.computed))
            alive.append(number)
            ends.append(turn + DECODE + 1)
        turn += 1
        if not work:
            continue
        if parts is not None:
            now = perf_counter()
        step = manager.dispatch(work)
        if parts is not None:
            now = parts.time("dispatch", now)
        manager.complete(step)
        if parts is not None:
            now = parts.time("complete", now)
    return perf_counter() - start


def pools(sizes: tuple[int, ...] = (1_000, 1_000_000)) -> Iterator[tuple[int, BlockManager]]:
    """Managers of these sizes, filled with cached content so that every new block evicts."""
    for blocks in sizes:
        manager = BlockManager(CacheConfig(blocks, BLOCK_SIZE))
        step = 0
        while manager.statistics().free_blocks:
            size = min(250, manager.statistics().free_blocks) * BLOCK_SIZE
            manager.allocate("fill", array("i", range(step, step + size)))
            manager.complete(manager.dispatch([("fill", size)], batch=False))
            manager.free("fill")
            step += size
        yield blocks, manager
