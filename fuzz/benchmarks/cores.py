"""Figure (a) for other people's cores beside kvcore, in turn in one process: ratios, whatever the machine is doing.

    python -m fuzz.benchmarks.cores kvcore nano_vllm vllm sglang

The workload is `workload.requests`: one request at a time, 32 kept alive, its prompt as one step, then 32 decode
tokens. Each core is called as its own scheduler calls it, from plain lists of tokens, with nothing of this project in
between but for SGLang, whose adapter stands in for several of the scheduler's functions. What is timed is everything
that ends in a block table and a published prefix: hashing, lookup, allocation, growth, release.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from properties.operations import Configuration

from . import workload
from .workload import ALIVE, BLOCK_SIZE, BLOCKS, DECODE, LENGTH

__all__ = ["CORES", "compare"]

Run = Callable[[list[list[int]]], tuple[float, int]]
"""Prompts to (seconds, hit tokens)."""


def nano_vllm(prompts: list[list[int]]) -> tuple[float, int]:
    """nano-vllm, either interface. A decode token is `append_token` and `may_append`."""
    from properties.targets.nano_vllm import OlderTarget, make

    target = make(Configuration(BLOCKS, BLOCK_SIZE))
    manager, sequence_of = target.manager, target._sequence
    older = isinstance(target, OlderTarget)
    sequence_of.block_size = BLOCK_SIZE
    alive: list[Any] = []
    hits = 0
    began = perf_counter()
    for prompt in prompts:
        if len(alive) == ALIVE:
            manager.deallocate(alive.pop(0))
        sequence = sequence_of(prompt)
        cached = manager.can_allocate(sequence)
        if older:
            manager.allocate(sequence)
        else:
            manager.allocate(sequence, cached)
            sequence.num_scheduled_tokens = LENGTH - sequence.num_cached_tokens
            manager.hash_blocks(sequence)
        hits += sequence.num_cached_tokens
        for token in range(DECODE):
            sequence.append_token(token)
            manager.can_append(sequence)
            manager.may_append(sequence)
        if not older:
            sequence.num_cached_tokens, sequence.num_scheduled_tokens = LENGTH, DECODE
            manager.hash_blocks(sequence)
        alive.append(sequence)
    return perf_counter() - began, hits


def vllm(prompts: list[list[int]], one_step: bool = False) -> tuple[float, int]:
    """vLLM's KVCacheManager with its default hash (SHA-256). A decode token is `allocate_slots` for one token, as its
    scheduler calls it; with `one_step` there is one call for all 32, as if they had been speculated."""
    from properties.targets.vllm import make

    target = make(Configuration(BLOCKS, BLOCK_SIZE))
    manager, request_of, running = target.manager, target._request, target._core.running
    alive: list[Any] = []
    hits = 0
    began = perf_counter()
    for number, prompt in enumerate(prompts):
        if len(alive) == ALIVE:
            manager.free(alive.pop(0))
        request = request_of(str(number), prompt, ())
        blocks, hit, _ = manager.get_computed_blocks(request)
        manager.allocate_slots(request, LENGTH - hit, hit, blocks)
        request.status = running
        request.num_computed_tokens = LENGTH
        hits += hit
        for token in range(DECODE):
            request.append_output_token_ids(token)
            if not one_step:
                manager.allocate_slots(request, 1)
                request.num_computed_tokens += 1
        if one_step:
            manager.allocate_slots(request, DECODE)
        alive.append(request)
    return perf_counter() - began, hits


def sglang(prompts: list[list[int]]) -> tuple[float, int]:
    """SGLang's radix cache and paged allocator through the adapter: each decode token is a step of its own."""
    from properties.targets.sglang import make

    target = make(Configuration(BLOCKS, BLOCK_SIZE))
    alive: list[str] = []
    hits = 0
    began = perf_counter()
    for number, prompt in enumerate(prompts):
        name = str(number)
        if len(alive) == ALIVE:
            target.free(alive.pop(0))
        target.allocate(name, prompt, (), None)
        view = target.dispatch([(name, LENGTH)])
        hits += view.starts[0]
        target.complete(view.handle)
        for token in range(DECODE):
            target.append(name, (token,))
            target.complete(target.dispatch([(name, 1)]).handle)
        alive.append(name)
    return perf_counter() - began, hits


CORES: dict[str, Run] = {
    "kvcore": workload.one_at_a_time,
    "nano_vllm": nano_vllm,
    "vllm": vllm,
    "vllm, decode tokens in one step": lambda prompts: vllm(prompts, one_step=True),
    "sglang": sglang,
}


def compare(names: Sequence[str], rounds: int, count: int) -> dict[str, dict[str, Any]]:
    """Run each core once to warm up, then `rounds` times in turn, on `count` requests.

    ratio: seconds by the first one's in the same round, the median; ratios: the least and the greatest."""
    prompts = workload.requests(count)
    gc.collect()
    gc.freeze()  # walking all those tokens is no core's cost
    try:
        seconds: dict[str, list[float]] = {name: [] for name in names}
        hits = {}
        for number in range(rounds + 1):
            for name in names:
                took, hits[name] = CORES[name](prompts)
                if number:
                    seconds[name].append(took)
    finally:
        gc.unfreeze()
    first = seconds[names[0]]
    result = {}
    for name, times in seconds.items():
        ratios = sorted(time / base for time, base in zip(times, first, strict=True))
        result[name] = {
            "requests_per_second": round(count / median(times), 1),
            "microseconds_per_request": round(median(times) / count * 1e6, 1),
            "ratio": round(median(ratios), 2),
            "ratios": [round(ratios[0], 2), round(ratios[-1], 2)],
            "hit_tokens": hits[name],
            "rounds": rounds,
            "requests": count,
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.benchmarks.cores", description=__doc__)
    parser.add_argument("cores", nargs="+", choices=list(CORES), help="the first is what the others are compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    result = compare(given.cores, given.rounds, given.requests)
    for name, figures in result.items():
        print(
            f"{name:<32} {figures['microseconds_per_request']:>9,.0f} µs a request  {figures['ratio']:>6.2f} times "
            f"{given.cores[0]} ({figures['ratios'][0]} to {figures['ratios'][1]})  {figures['hit_tokens']:,} hit tokens"
        )
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
