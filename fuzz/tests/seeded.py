"""A target whose keys are those of one process: kvcore with Python's own `hash`, which every process seeds anew."""

from __future__ import annotations

from fuzz.zoo.planting import Change, planted

make = planted(
    [
        Change(
            "identity.py",
            "default_hash: HashFunction = xxhash.xxh3_128_digest\n",
            "def default_hash(data: bytes) -> bytes:\n    return hash(data).to_bytes(16, 'big', signed=True)\n",
        )
    ]
)
