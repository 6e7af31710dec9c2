"""What Hypothesis draws: configurations, swarms and moves. All are static, so that drawing them costs little.

Small pools and block sizes, weak hashes and tiny alphabets, or nothing ever hits, collides or is evicted. The first
entry of each choice is where shrinking ends.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..moves import OPTIONAL, Swarm
from ..operations import Configuration
from ..target import Capability

__all__ = ["BURSTS", "CONFIGURATIONS", "MOVES", "OPENINGS", "SWARMS", "configurations", "restrict"]


def _join(low: int, high: int) -> int:
    return high << 5 | low


BLOCKS = (4, 1, 2, 3, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
SIZES = (2, 1, 3, 4, 2, 4, 5, 1, 8, 16)
BITS = (128, 128, 128, 64, 16, 8, 4, 2, 1, 0)

CONFIGURATIONS: SearchStrategy[Configuration] = st.builds(
    Configuration,
    num_blocks=st.sampled_from(BLOCKS),
    block_size=st.sampled_from(SIZES),
    hash_bits=st.sampled_from(BITS),
    reuse=st.sampled_from(("last_block", "last_token")),
    caching=st.sampled_from((True,) * 15 + (False,)),
)
"""What a target with every capability can be built with."""

_NUMBER = st.integers(0, 99)
# Never 100 or more: above that Hypothesis favours constants that it finds in the sources of whatever local modules have
# been imported, so that one seed would mean different runs in different processes.

SWARMS: SearchStrategy[Swarm] = st.builds(
    Swarm,
    off=st.just(0) | st.builds(_join, st.integers(0, 31), st.integers(0, 2 ** (len(OPTIONAL) - 5) - 1)),
    alphabet=st.sampled_from((2, 1, 2, 3, 5)),
    reach=st.sampled_from((2, 3, 4, 6, 10)),
    depth=st.sampled_from((1, 2, 3)),
    lines=st.sampled_from((2, 3, 4, 6, 12)),
    reserve=st.sampled_from((0, 0, 1, 2)),
    spaces=st.just((0, 0)) | st.tuples(st.integers(0, 7), st.integers(0, 7)),
)

MOVES: SearchStrategy[tuple[int, int, int, int]] = st.tuples(_NUMBER, _NUMBER, _NUMBER, _NUMBER)
"""(kind, who, amount, value): see `properties.moves`."""

OPENINGS: SearchStrategy[list[tuple[int, int, int, int]]] = st.lists(MOVES, min_size=1, max_size=3)
"""The requests that an episode begins with."""

BURSTS: SearchStrategy[list[tuple[int, int, int, int]]] = st.lists(MOVES, min_size=1, max_size=4)
"""The moves of one step: several, because choosing a rule costs as much as applying an operation."""


def restrict(configuration: Configuration, capabilities: AbstractSet[Capability]) -> Configuration:
    """`configuration` as a target with these capabilities can have it: without HASH, the core's own hash."""
    if Capability.HASH not in capabilities and configuration.hash_bits != 128:
        return replace(configuration, hash_bits=128)
    return configuration


def configurations(capabilities: AbstractSet[Capability]) -> SearchStrategy[Configuration]:
    """Configurations for a target with these capabilities."""
    return CONFIGURATIONS.map(lambda configuration: restrict(configuration, capabilities))
