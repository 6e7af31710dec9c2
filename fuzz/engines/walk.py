"""The swarm walk: a seeded random walk over operations, the engine for volume.

Each episode draws a configuration, then a *swarm*: which kinds of operation are likely, rare or off, how long prompts
are, how small the alphabet is, how many steps may be in flight (Groce et al., "Swarm testing", ISSTA 2012). Then it
draws moves, and `properties.moves` says which operation each is in the present state: the same records that the
Hypothesis machine draws from, at many times its rate. Short episodes beat long ones, since every one draws its swarm
anew; a few long ones are kept for what only shows after a while.

Three random streams, for the configuration, the choice of kinds, and their values, so that a new kind of operation does
not reshuffle what old seeds did to the others. Nothing else is random: an episode is a function of its seed.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from properties.moves import MOVES, NAMESPACES, Moves, Swarm
from properties.operations import Configuration, Operation
from properties.session import Session
from properties.target import Capability

__all__ = ["Limits", "Walk", "draw_configuration"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for drawn configurations and episodes; the re-search after shrinking uses tight ones."""

    max_blocks: int = 64
    max_block_size: int = 16
    long_episodes: bool = True


_BLOCKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
_SIZES = (1, 1, 2, 2, 2, 3, 4, 4, 5, 8, 16)
_BITS = (0, 1, 2, 4, 8, 16, 64, 128, 128, 128)
_SCALES = (0.0, 1 / 3, 1.0, 1.0, 3.0)
"""By what an episode multiplies the weight of each kind of move; never by 0 for those that no episode does without."""


def draw_configuration(random: Random, capabilities: frozenset[Capability], limits: Limits) -> Configuration:
    """One configuration within `limits`: small pools and block sizes, weak hashes, both reuse policies."""
    return Configuration(
        num_blocks=random.choice([blocks for blocks in _BLOCKS if blocks <= limits.max_blocks]),
        block_size=random.choice([size for size in _SIZES if size <= limits.max_block_size]),
        hash_bits=random.choice(_BITS) if Capability.HASH in capabilities else 128,
        reuse=random.choice(("last_block", "last_token")),
        caching=random.random() < 0.93,
    )


class Walk:
    """One episode. Build a session with its `configuration`, then iterate over `operations(session)`.

    `length` operations; `kinds` restricts them to these (of `properties.operations`), and to allocate, dispatch and
    complete. moves: what a move means in it.
    """

    def __init__(
        self,
        seed: str,
        capabilities: frozenset[Capability],
        limits: Limits = Limits(),
        kinds: frozenset[str] | None = None,
        moves: type[Moves] = Moves,
    ) -> None:
        self._moves = moves
        self.configuration = draw_configuration(Random(f"{seed}/configuration"), capabilities, limits)
        self._random = Random(f"{seed}/operations")
        self._values = Random(f"{seed}/values")
        random = self._random
        weights = [move.weight * random.choice(_SCALES[1:] if move.required else _SCALES) for move in MOVES.values()]
        roll = random.random()
        self.length = 24 + int(96 * roll) if roll < 0.97 or not limits.long_episodes else 1000
        self._swarm = Swarm(
            alphabet=random.choice((1, 2, 2, 3, 5)),
            reach=random.choice((2, 3, 4, 6, 10)),
            depth=random.choice((1, 1, 2, 3)),
            lines=random.choice((2, 3, 4, 6, 12)),
            reserve=random.choice((0, 0, 1, 2)),
            spaces=(random.randrange(len(NAMESPACES)), random.randrange(len(NAMESPACES)))
            if random.random() < 0.4
            else (0, 0),
        )
        if kinds is not None:
            weights = [
                weight if move.within(kinds) else 0 for move, weight in zip(MOVES.values(), weights, strict=True)
            ]
        self._kinds = list(MOVES)
        self._stories = weights[self._kinds.index("story")] > 0
        self._cumulative = list(accumulate(weights))

    def operations(self, session: Session) -> Iterator[Operation]:
        """The episode's operations, each chosen in the state that the ones before have led to."""
        moves = self._moves(session, self._swarm)
        make = moves.make
        kinds, cumulative, total = self._kinds, self._cumulative, self._cumulative[-1]
        choose, value = self._random.random, self._values.random
        for _ in range(self.length):
            kind = "story" if self._stories and moves.telling and choose() < _GO_ON else ""
            kind = kind or kinds[bisect(cumulative, choose() * total)]
            yield make(kind, int(value() * 100), int(value() * 100), int(value() * 100))


_GO_ON = 0.3
"""How likely the next move goes on with a story that has begun."""
