"""A paged KV-cache core: which physical block holds which token, decided exactly, and fast.

    >>> from kvcore import BlockManager, CacheConfig
    >>> manager = BlockManager(CacheConfig(num_blocks=8, block_size=4))
    >>> sequence = manager.allocate("a", [1, 2, 3, 4, 5])
    >>> step = manager.dispatch([("a", 5)])
    >>> step.batch.slot_mapping.tolist()
    [0, 1, 2, 3, 4]
    >>> manager.complete(step)
    >>> manager.lookup([1, 2, 3, 4, 9]).num_tokens
    4

Imports: kvcore.kernels, numpy, xxhash.
"""

from .batch import Batch
from .config import CacheConfig, ReusePolicy
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .identity import UNKNOWN, Namespace, weak_hash
from .manager import BlockManager, PrefixMatch
from .sequence import Sequence, Step
from .statistics import Statistics

__version__ = "0.1.0"

__all__ = [
    "UNKNOWN",
    "Batch",
    "BlockManager",
    "CacheConfig",
    "Namespace",
    "PrefixMatch",
    "ReusePolicy",
    "Sequence",
    "Statistics",
    "Step",
    "weak_hash",
    *_errors,
]
