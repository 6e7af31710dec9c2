"""The cache's fixed parameters, validated once."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .errors import InvalidConfiguration
from .identity import HashFunction, default_hash

__all__ = ["CacheConfig", "ReusePolicy"]


class ReusePolicy(enum.Enum):
    """How much of a prompt may be taken from the cache, given that the last token must be computed for its logits."""

    LAST_BLOCK = "last_block"
    """Never reuse the prompt's last block, even a full one: at most ceil(n / B) - 1 blocks (nano-vllm's choice)."""

    LAST_TOKEN = "last_token"
    """Reuse a full last block too: n - 1 hit tokens, the last token is computed again and its slot is -1."""


@dataclass(frozen=True)
class CacheConfig:
    """Parameters of a `BlockManager`.

    num_blocks: physical blocks in the pool, 1 to 2**31 - 1.
    block_size: slots (tokens) per block, from 1; need not be a power of two.
    caching: False switches prefix reuse off; nothing is published and nothing hits.
    reuse: see `ReusePolicy`.
    hash_function: bytes to key bytes; only speed depends on it (see `identity.py`).

    Raises InvalidConfiguration.
    """

    num_blocks: int
    block_size: int = 16
    caching: bool = True
    reuse: ReusePolicy = ReusePolicy.LAST_BLOCK
    hash_function: HashFunction = default_hash

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value < 2**31:
                raise InvalidConfiguration(f"{name} must be an integer from 1 to 2**31 - 1, got {value!r}")
        if self.num_blocks * self.block_size >= 2**62:
            raise InvalidConfiguration(
                f"num_blocks * block_size = {self.num_blocks * self.block_size} slots do not fit into 62 bits"
            )
        if type(self.caching) is not bool:
            raise InvalidConfiguration(f"caching must be True or False, got {self.caching!r}")
        if not isinstance(self.reuse, ReusePolicy):
            raise InvalidConfiguration(f"reuse must be a ReusePolicy, got {self.reuse!r}")
        if not callable(self.hash_function):
            raise InvalidConfiguration(f"hash_function must be callable (bytes to bytes), got {self.hash_function!r}")
        try:
            key = self.hash_function(b"")
        except Exception as error:
            raise InvalidConfiguration(f"hash_function must take any bytes; given none it raised {error!r}") from error
        if not isinstance(key, bytes):
            raise InvalidConfiguration(f"hash_function must return bytes, got {key!r}")
