"""Counterexamples that tests and screenshots draw."""

from __future__ import annotations

import random

from fuzz.runs.values import Counterexample
from properties.operations import (
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fork,
    Free,
    Operation,
)

__all__ = ["EARLY", "FORKED", "large", "long"]

EARLY = Counterexample(
    Configuration(2, 2),
    (Allocate("a", (5, 6)), Dispatch(1, (("a", 2),)), Complete(1)),
    "fuzz.zoo:NV-7",
    property_id="OWNERSHIP",
    message="block 0 is in the index, but its content is not published (any more)",
    at=1,
)
"""Published when dispatched: the shortest there is."""

FORKED = Counterexample(
    Configuration(5, 4),
    (
        Allocate("a", (1, 2, 3, 4, 5, 6)),
        Dispatch(1, (("a", 6),)),
        Complete(1),
        Allocate("b", (1, 2, 3, 4, 9, 9, 9)),
        Dispatch(2, (("b", 3),)),
        Free("b"),
        Complete(2),
        Append("a", (7,)),
        Dispatch(3, (("a", 1),)),
        Complete(3),
        Fork("a", "c"),
        Append("c", (8,)),
    ),
    "fuzz.zoo:KC-30",
    property_id="ALIASING",
    message="append to 'c' keeps its tail block 1, which others hold too; others: 'a'",
    at=11,
)
"""A fork whose tail is written without a copy; before that a shared prefix, and a request that is freed in flight."""


def long(operations: int = 200, num_blocks: int = 64) -> Counterexample:
    """A busy run that breaks nothing: many requests over a large pool, prefixes shared."""
    rng = random.Random(3)
    prefixes = [tuple(range(100 * first, 100 * first + 12)) for first in range(4)]
    made: list[Operation] = []
    live: list[str] = []
    flying: list[int] = []
    names, step = 0, 0
    while len(made) < operations:
        draw = rng.random()
        if not live or (draw < 0.25 and len(live) < 9):
            own = tuple(rng.randrange(1000) for _ in range(rng.randrange(1, 9)))
            made.append(Allocate(f"r{names}", rng.choice(prefixes)[: rng.choice((4, 8, 12))] + own))
            live.append(f"r{names}")
            names += 1
        elif draw < 0.5:
            step += 1
            flying.append(step)
            made.append(Dispatch(step, tuple((name, 4) for name in rng.sample(live, min(len(live), 3)))))
        elif draw < 0.7 and flying:
            made.append(Complete(flying.pop(0)))
        elif draw < 0.85:
            made.append(Append(rng.choice(live), (rng.randrange(1000),)))
        else:
            made.append(Free(live.pop(rng.randrange(len(live)))))
    return Counterexample(Configuration(num_blocks, 4), tuple(made))


def large(operations: int = 300, num_blocks: int = 1_000) -> Counterexample:
    """A finding as a trace leaves it: hundreds of tokens a request, twenty requests alive, then a fork whose tail is
    written without a copy."""
    rng = random.Random(7)
    made: list[Operation] = []
    live: list[str] = []
    step = 0

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(50_000) for _ in range(count))

    def admit(name: str, count: int) -> list[Operation]:
        return [Allocate(name, tokens(count)), Dispatch(step, ((name, count),)), Complete(step)]

    while len(made) < operations - 8:
        step += 1
        if len(live) >= 20:
            made.append(Free(live.pop(rng.randrange(len(live)))))
        made += admit(f"request-{step}", rng.randrange(200, 700))
        made.append(Append(live[-1] if live else f"request-{step}", tokens(1)))
        live.append(f"request-{step}")
    step += 1
    made += [*admit("accused", 301), Fork("accused", "child"), Append("accused", (5,))]
    return Counterexample(
        Configuration(num_blocks, 16), tuple(made), "fuzz.zoo:KC-30", property_id="ALIASING", at=len(made) - 1
    )
