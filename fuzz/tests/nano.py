"""Stand-ins for nano-vllm, written anew, small: the current interface right, and with the old defects that users met.

They have what the adapter uses of nano-vllm's `BlockManager` and `Sequence`, so that the adapter and its policies are
tested where the package is not installed. NV-1, NV-2, NV-7 are numbers in the project's catalogue; the issues in
nano-vllm's tracker are 163, 218 and 208.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

__all__ = ["FIXED", "IN_FLIGHT", "OLDER", "RESTARTED_CHAIN", "STALE_MAPPING"]


class Sequence:
    block_size = 256

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids
        self.block_table: list[int] = []
        self.num_cached_tokens = 0
        self.num_scheduled_tokens = 0

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_blocks(self) -> int:
        return -(-len(self) // self.block_size)

    def block(self, at: int) -> list[int]:
        return self.token_ids[at * self.block_size : (at + 1) * self.block_size]

    def append_token(self, token: int) -> None:
        self.token_ids.append(token)


class Block:
    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.hash = -1
        self.token_ids: list[int] = []


class BlockManager:
    """The current interface, right."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = [Block(number) for number in range(num_blocks)]
        self.hash_to_block_id: dict[int, int] = {}
        self.free_block_ids = deque(range(num_blocks))
        self.used_block_ids: set[int] = set()

    def key(self, tokens: list[int], before: int) -> int:
        return hash((before, *tokens)) & (1 << 62) - 1

    def find(self, key: int, tokens: list[int]) -> Block | None:
        block_id = self.hash_to_block_id.get(key)
        block = None if block_id is None else self.blocks[block_id]
        return block if block is not None and block.token_ids == tokens else None

    def hits(self, sequence: Sequence) -> list[Block]:
        key, hits = -1, []
        for at in range(sequence.num_blocks - 1):
            tokens = sequence.block(at)
            key = self.key(tokens, key)
            block = self.find(key, tokens)
            if block is None:
                break
            hits.append(block)
        return hits

    def can_allocate(self, sequence: Sequence) -> int:
        hits = self.hits(sequence)
        active = sum(block.ref_count > 0 for block in hits)
        return len(hits) if sequence.num_blocks - active <= len(self.free_block_ids) else -1

    def allocate(self, sequence: Sequence, cached: int) -> None:
        for block in self.hits(sequence)[:cached]:
            if block.ref_count == 0:
                self.revive(block)
            block.ref_count += 1
            sequence.block_table.append(block.block_id)
        while len(sequence.block_table) < sequence.num_blocks:
            sequence.block_table.append(self.take())
        sequence.num_cached_tokens = cached * self.block_size

    def revive(self, block: Block) -> None:
        self.free_block_ids.remove(block.block_id)
        self.used_block_ids.add(block.block_id)

    def take(self) -> int:
        block = self.blocks[self.free_block_ids.popleft()]
        self.forget(block)
        block.ref_count, block.hash, block.token_ids = 1, -1, []
        self.used_block_ids.add(block.block_id)
        return block.block_id

    def forget(self, block: Block) -> None:
        if self.hash_to_block_id.get(block.hash) == block.block_id:
            del self.hash_to_block_id[block.hash]

    def may_append(self, sequence: Sequence) -> None:
        if len(sequence) % self.block_size == 1:
            sequence.block_table.append(self.take())

    def hash_blocks(self, sequence: Sequence) -> None:
        first = sequence.num_cached_tokens // self.block_size
        self.publish(sequence, first, (sequence.num_cached_tokens + sequence.num_scheduled_tokens) // self.block_size)

    def publish(self, sequence: Sequence, first: int, last: int) -> None:
        key = self.blocks[sequence.block_table[first - 1]].hash if first else -1
        for at in range(first, last):
            block = self.blocks[sequence.block_table[at]]
            block.token_ids = sequence.block(at)
            block.hash = key = self.key(block.token_ids, key)
            self.hash_to_block_id[key] = block.block_id

    def deallocate(self, sequence: Sequence) -> None:
        for block_id in reversed(sequence.block_table):
            block = self.blocks[block_id]
            block.ref_count -= 1
            if block.ref_count == 0:
                self.used_block_ids.remove(block_id)
                self.free_block_ids.append(block_id)
        sequence.block_table.clear()
        sequence.num_cached_tokens = 0


class StaleMapping(BlockManager):
    """NV-1: a block that is taken for something else stays in the index under its old hash."""

    def forget(self, block: Block) -> None:
        pass


class RestartedChain(BlockManager):
    """NV-2: a block that is hit while nobody holds it loses its hash; what follows is hashed as a prompt's start."""

    def revive(self, block: Block) -> None:
        super().revive(block)
        block.hash = -1


class InFlight(BlockManager):
    """NV-7: blocks are published when they are allocated, before a step has computed them."""

    def allocate(self, sequence: Sequence, cached: int) -> None:
        super().allocate(sequence, cached)
        self.publish(sequence, cached, len(sequence) // self.block_size)

    def hash_blocks(self, sequence: Sequence) -> None:
        pass


class Older(BlockManager):
    """The older interface, right: it allocates when a request is first scheduled, and publishes then."""

    hash_blocks = None  # type: ignore[assignment]  # which tells the interfaces apart

    def allocate(self, sequence: Sequence) -> None:  # type: ignore[override]
        cached = len(self.hits(sequence))
        super().allocate(sequence, cached)
        self.publish(sequence, cached, len(sequence) // self.block_size)

    def can_allocate(self, sequence: Sequence) -> bool:
        return super().can_allocate(sequence) >= 0

    def may_append(self, sequence: Sequence) -> None:
        super().may_append(sequence)
        if len(sequence) % self.block_size == 0:
            self.publish(sequence, sequence.num_blocks - 1, sequence.num_blocks)


FIXED, STALE_MAPPING, RESTARTED_CHAIN, IN_FLIGHT, OLDER = (
    SimpleNamespace(BlockManager=manager, Sequence=Sequence)
    for manager in (BlockManager, StaleMapping, RestartedChain, InFlight, Older)
)
