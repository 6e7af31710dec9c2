"""What the tests of this room share: a manager to drive, and everything that can be seen of one.

`state` looks inside on purpose: "a call that raises has changed nothing" is about all of it, not about what the public
methods happen to show.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import asdict
from typing import Any

from kvcore import BlockManager, CacheConfig, Namespace, Sequence, Step
from kvcore.state import inside


def manager_of(num_blocks: int = 8, block_size: int = 4, **options: Any) -> BlockManager:
    return BlockManager(CacheConfig(num_blocks=num_blocks, block_size=block_size, **options))


def dispatch_all(manager: BlockManager, *requests: Hashable) -> Step:
    """One step with every unscheduled token of each request."""
    work = []
    for request in requests:
        sequence = manager.sequence(request)
        work.append((request, len(sequence) - sequence.scheduled))
    return manager.dispatch(work)


def run(manager: BlockManager, *requests: Hashable) -> Step:
    """Compute everything that is left of each request, in one step."""
    step = dispatch_all(manager, *requests)
    manager.complete(step)
    return step


def admit(manager: BlockManager, request: Hashable, tokens: Any, namespace: Namespace | None = None) -> Sequence:
    """Allocate and compute."""
    sequence = manager.allocate(request, tokens, namespace or Namespace())
    run(manager, request)
    return sequence


def cache(manager: BlockManager, tokens: Any, namespace: Namespace | None = None) -> list[int]:
    """Compute `tokens` and give the blocks back; what is full stays cached. Returns the blocks it was in."""
    table = list(admit(manager, "passing", tokens, namespace).table)
    manager.free("passing")
    return table


def hits(manager: BlockManager, tokens: Any, namespace: Namespace | None = None) -> int:
    return manager.lookup(tokens, namespace or Namespace()).num_tokens


def references(manager: BlockManager, blocks: Iterable[int]) -> list[int]:
    return [inside(manager).pool.references[block] for block in blocks]


def free_order(manager: BlockManager) -> list[int]:
    return list(inside(manager).pool.free)


def cached_order(manager: BlockManager) -> list[int]:
    return list(inside(manager).pool.cached())


def state(manager: BlockManager) -> dict[str, Any]:
    """Everything observable, copied, but for the count of refusals."""
    pool = inside(manager).pool
    sequences = {id(sequence): sequence for sequence in inside(manager).sequences.values()}
    for step in inside(manager).in_flight:
        sequences |= {id(sequence): sequence for sequence in step.sequences}
    statistics = asdict(manager.statistics())
    del statistics["refusals"]
    return {
        "references": list(pool.references),
        "free": list(pool.free),
        "cached": list(pool.cached()),
        "index": list(pool.index),
        "held": [id(content) for content in pool.index.held],
        "orphans": [id(content) for content in pool.index.orphans()],
        "requests": list(inside(manager).sequences),
        "sequences": {key: _sequence_state(sequence) for key, sequence in sequences.items()},
        "steps": [
            (step.number, step.completed, list(step.starts), list(step.ends), step.copies)
            for step in inside(manager).in_flight
        ],
        "next step": manager._next_step,
        "epoch": manager._epoch,
        "statistics": statistics,
    }


def _sequence_state(sequence: Sequence) -> tuple[Any, ...]:
    pending = sequence.pending
    return (
        sequence.request,
        sequence.namespace,
        sequence.tokens.tobytes(),
        tuple(sequence.table),
        (sequence.base, sequence.scheduled, sequence.computed, sequence.published, sequence.written_from),
        (sequence.num_hit_tokens, sequence.unnamed, sequence.freed, sequence.epoch),
        None if pending is None else (pending.source, pending.destination, pending.length),
        tuple((step.number, place) for step, place in sequence.flights),
        tuple((number, tuple(blocks)) for number, blocks in sequence.deferred),
        tuple(sequence.links),
    )
