"""What a core has decided for itself, where a correct core may decide either way.

The judge takes these as given and asks whether the core keeps them. A choice that no field can state yet is added here,
with a default that is kvcore's.

This room may not know: any core.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """One core's rules.

    num_blocks, block_size: the pool. reserved: blocks that are never handed out (a null block).
    caching: whether anything is ever reused.
    reuse: "last_block" (never hit a prompt's last block) or "last_token" (only the last token is computed again).
    exact: the order of blocks is the one in `predictor.py`, so that every choice can be predicted.
    """

    num_blocks: int
    block_size: int
    reserved: frozenset[int] = frozenset()
    caching: bool = True
    reuse: str = "last_block"
    exact: bool = True
