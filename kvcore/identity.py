"""What makes two pieces of K/V interchangeable: tokens, namespace, and everything before them.

The K/V of a block depend on its own tokens, on every token before it, and on whatever else the model saw (weights,
adapter, media) or the operator wants kept apart (salt). This module turns those into bytes and into chained keys.

A key only *finds a candidate*; `prefix.py` verifies the candidate's tokens and its whole prefix. So any hash function
is correct, also one that returns a constant, and a collision (CVE-2025-25183 in vLLM) costs time, not truth. That is
why the default can be a fast non-cryptographic one: xxh3-128, chained as vLLM chains its block hashes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import xxhash

from .errors import InvalidConfiguration, InvalidNamespace, InvalidTokens

__all__ = ["MAX_TOKEN", "UNKNOWN", "HashFunction", "Namespace", "Tokens", "token_array", "weak_hash"]

UNKNOWN = -1
"""Placeholder for a token that is scheduled before it is sampled. `append` accepts it, `fill` names it later."""

MAX_TOKEN = 2**31 - 1

HashFunction = Callable[[bytes], bytes]
"""Bytes to key. It must be deterministic and nothing else: verification makes every function safe."""

Tokens = Sequence[int] | np.ndarray[Any, Any]

default_hash: HashFunction = xxhash.xxh3_128_digest


def weak_hash(bits: int) -> HashFunction:
    """xxh3-128 cut to its lowest `bits` bits (0 gives a constant), to make collisions ordinary in tests.

    Raises InvalidConfiguration unless 0 <= bits <= 128.
    """
    if not isinstance(bits, int) or not 0 <= bits <= 128:
        raise InvalidConfiguration(f"hash bits must be an integer from 0 to 128, got {bits!r}")
    if bits == 128:
        return default_hash
    mask = (1 << bits) - 1

    def hash_function(data: bytes) -> bytes:
        return (xxhash.xxh3_128_intdigest(data) & mask).to_bytes(16, "big")

    return hash_function


@dataclass(frozen=True)
class Namespace:
    """Everything besides the tokens that K/V depend on, or that must keep tenants apart.

    Each part is None (not set) or a string; None and "" are different, and the same string in two parts is two
    different namespaces (vLLM issue 44701: a salt that equals an adapter's name). Make `adapter` and `weights` change
    with every load, not only with the name (vLLM issue 42125); take `salt` from a trusted place, not from the request.
    """

    model: str | None = None
    weights: str | None = None
    adapter: str | None = None
    media: str | None = None
    salt: str | None = None
    encoding: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = []
        for part in fields(self):
            if part.name == "encoding":
                continue
            value = getattr(self, part.name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise InvalidNamespace(
                    f"namespace part {part.name} must be None or a string, got {value!r}; "
                    "encode other values into a string yourself"
                )
            # Kind tag and length before each value: injective, whatever the values contain.
            raw = value.encode("utf-8", "surrogatepass")
            parts.append(b"%s:%d:%s" % (part.name.encode(), len(raw), raw))
        object.__setattr__(self, "encoding", b"".join(parts))


def token_array(tokens: Tokens, *, placeholders: bool = False) -> array[int]:
    """Copy `tokens` into an int32 array, or raise InvalidTokens naming the first bad one. O(tokens).

    Fast for `array('i')` and for numpy integer arrays (a memory copy), linear in Python objects for lists.
    With `placeholders`, `UNKNOWN` is allowed.
    """
    lowest = UNKNOWN if placeholders else 0
    try:
        if isinstance(tokens, np.ndarray):
            result = _from_numpy(tokens, lowest)
        elif isinstance(tokens, array) and tokens.typecode == "i":
            result = tokens[:]
        elif isinstance(tokens, _TEXT) or not isinstance(tokens, Sequence):
            raise TypeError
        else:
            result = array("i", tokens)
    except (TypeError, OverflowError, ValueError):
        raise _explain(tokens, lowest) from None
    if not result:
        raise InvalidTokens("tokens are empty; give at least one token")
    smallest = min(result) if len(result) < 64 else int(np.frombuffer(result, dtype=np.int32).min())
    if smallest < lowest:
        raise _explain(result, lowest)
    return result


_TEXT = (str, bytes, bytearray, memoryview)
"""Iterable types that are never tokens."""


def _from_numpy(tokens: np.ndarray[Any, Any], lowest: int) -> array[int]:
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise TypeError
    if tokens.dtype != np.int32:
        if tokens.size and (int(tokens.max()) > MAX_TOKEN or int(tokens.min()) < lowest):
            raise OverflowError
        tokens = tokens.astype(np.int32)
    result = array("i")
    result.frombytes(tokens.tobytes())
    return result


def _explain(tokens: Any, lowest: int) -> InvalidTokens:
    allowed = f"integers from {lowest} to {MAX_TOKEN}"
    if isinstance(tokens, np.ndarray) and (tokens.ndim != 1 or tokens.dtype.kind not in "iu"):
        return InvalidTokens(
            f"tokens are a numpy array of shape {tokens.shape} and dtype {tokens.dtype}; "
            f"give a one-dimensional array of {allowed}"
        )
    if isinstance(tokens, np.ndarray):
        tokens = tokens.tolist()
    elif isinstance(tokens, _TEXT) or not isinstance(tokens, Sequence):
        return InvalidTokens(f"tokens are a {type(tokens).__name__}; give a sequence of {allowed}")
    for position, token in enumerate(tokens):
        if not hasattr(token, "__index__") or not lowest <= token <= MAX_TOKEN:
            return InvalidTokens(f"token {token!r} at position {position} is not allowed; tokens are {allowed}")
    return InvalidTokens(f"tokens {tokens!r:.80} cannot be read as a sequence of {allowed}")
