"""What a target is built with, and the plain values that operations carry: tokens and namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["NAMESPACE_KINDS", "REUSES", "UNKNOWN", "Configuration", "Malformed", "Namespace", "Tokens"]

UNKNOWN = -1
"""A placeholder token in `Append`; `Fill` names it."""

Tokens = Sequence[int]
"""Token ids: a tuple, or `array('i')` where they are many (a trace)."""

Namespace = tuple[tuple[str, str], ...]
"""What K/V depend on besides tokens: (kind, value) pairs sorted by kind; () is the default. See `NAMESPACE_KINDS`."""

NAMESPACE_KINDS = ("adapter", "media", "model", "salt", "weights")

REUSES = ("last_block", "last_token")
"""What `Configuration.reuse` can be."""


class Malformed(ValueError):
    """JSON that is not an operation or a configuration. Says what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a target is built with.

    num_blocks, block_size: the pool. hash_bits: 0 (constant) to 128, for targets whose hash can be chosen.
    reuse: "last_block" or "last_token" (see kvcore.ReusePolicy). caching: prefix reuse on or off.
    """

    num_blocks: int = 8
    block_size: int = 4
    hash_bits: int = 128
    reuse: str = "last_block"
    caching: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (("num_blocks", 1, 2**31 - 1), ("block_size", 1, 2**31 - 1), ("hash_bits", 0, 128)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise Malformed(f"configuration: {name} must be an integer from {low} to {high}, got {value!r}")
        if self.reuse not in REUSES:
            raise Malformed(f"configuration: reuse must be 'last_block' or 'last_token', got {self.reuse!r}")
        if type(self.caching) is not bool:
            raise Malformed(f"configuration: caching must be true or false, got {self.caching!r}")

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, data: Any) -> Configuration:
        if not isinstance(data, dict):
            raise Malformed(f"configuration must be an object, got {data!r:.80}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise Malformed(f"configuration has unknown fields {unknown}; known are {sorted(known)}")
        return cls(**data)

    def __str__(self) -> str:
        return (
            f"{self.num_blocks} block{'s' * (self.num_blocks > 1)} of {self.block_size}, {self.reuse}, "
            f"{'caching' if self.caching else 'no caching'}, {self.hash_bits}-bit hash"
        )
