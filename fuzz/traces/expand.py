"""Token values for a trace, which has none: only one id for every 512 tokens of a prompt.

Id h stands for the tokens 512 h to 512 h + 511, whatever the block size of the pool. Generated tokens have values that
occur nowhere else."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from .request import ID_RANGE, MAX_HASH_ID, UNIT, TraceError

__all__ = ["expand"]

_OFFSETS = np.arange(UNIT, dtype=np.int32)


def expand(hash_ids: Sequence[int], length: int) -> array[int]:
    """The first `length` tokens that `hash_ids` stand for: 512 h to 512 h + 511 for each id h. array('i').

    Raises TraceError for an id above MAX_HASH_ID. O(length), in memory moves.
    """
    if hash_ids and not 0 <= min(hash_ids) <= max(hash_ids) <= MAX_HASH_ID:
        raise TraceError("hash_ids", 0, f"ids {min(hash_ids)} to {max(hash_ids)}", ID_RANGE)
    first = np.array(hash_ids, dtype=np.int32) * UNIT
    tokens = array("i")
    tokens.frombytes((first[:, None] + _OFFSETS).ravel()[:length].tobytes())
    return tokens
