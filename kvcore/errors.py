"""Every way in which the core says no.

One class a reason, so that callers (and the properties) can tell them apart without reading messages. Every message
says what was given, what is allowed and what to do. Any call that raises one of these has changed nothing, except
that a `Refusal` is counted in the statistics.

It imports nothing of the project.
"""

from __future__ import annotations

__all__ = [
    "AlreadyCompleted",
    "CacheError",
    "Corrupted",
    "DuplicateRequest",
    "EmptyDispatch",
    "ForeignStep",
    "InvalidAttention",
    "InvalidBatch",
    "InvalidConfiguration",
    "InvalidCopies",
    "InvalidCount",
    "InvalidFill",
    "InvalidLength",
    "InvalidNamespace",
    "InvalidPadding",
    "InvalidTensor",
    "InvalidTokens",
    "MatchMismatch",
    "NeverFits",
    "NotComputed",
    "NotNamed",
    "OutOfBlocks",
    "OutOfOrder",
    "PlanTooLarge",
    "Refusal",
    "RepeatedRequest",
    "StorageTooLarge",
    "UnknownRequest",
]


class CacheError(Exception):
    """Base of all errors of the core. The call that raised it has changed nothing."""


class InvalidConfiguration(CacheError, ValueError):
    """A `CacheConfig` field is out of its range. Correct the field that the message names."""


class InvalidTokens(CacheError, ValueError):
    """Tokens must be a non-empty sequence of integers from 0 to 2**31 - 1 (in `append` also `UNKNOWN`)."""


class InvalidNamespace(CacheError, ValueError):
    """A namespace part is neither None nor a string, or what was passed is not a `Namespace`."""


class UnknownRequest(CacheError, LookupError):
    """No live request has this id: it was never allocated, or it has been freed (a double free ends here)."""


class DuplicateRequest(CacheError, ValueError):
    """A live request already has this id. Free it first, or use another id."""


class Refusal(CacheError):
    """The request is well formed but there is no room. Base of `OutOfBlocks` (wait) and `NeverFits` (reject)."""


class OutOfBlocks(Refusal):
    """Not enough blocks are available now. Wait, or free or preempt something, then try again."""


class NeverFits(Refusal):
    """The whole pool is smaller than what was asked for. Reject the request; waiting cannot help."""


class EmptyDispatch(CacheError, ValueError):
    """A step must schedule at least one token."""


class RepeatedRequest(CacheError, ValueError):
    """A request may appear once in a step. Merge its token counts into one entry."""


class InvalidCount(CacheError, ValueError):
    """The number of tokens to schedule is not between 1 and the number of unscheduled tokens of the request."""


class ForeignStep(CacheError, ValueError):
    """What was passed is not a step of this manager."""


class AlreadyCompleted(CacheError, ValueError):
    """This step has been completed before. Complete each step once."""


class OutOfOrder(CacheError, ValueError):
    """Steps complete in the order of their dispatch, as on one stream. Complete the older step first."""


class InvalidLength(CacheError, ValueError):
    """A truncation must end between the length at allocation (or fork) and the current length."""


class NotComputed(CacheError, ValueError):
    """A fork needs every token of the parent computed and none in flight. Complete its steps first."""


class NotNamed(CacheError, ValueError):
    """A fork needs every token of the parent named. Call `fill` for its placeholders first."""


class InvalidFill(CacheError, ValueError):
    """`fill` may only name placeholders: each position given must exist and still be `UNKNOWN`."""


class InvalidPadding(CacheError, ValueError):
    """A batch can only be padded to whole sizes that are at least its own."""


class InvalidAttention(CacheError, ValueError):
    """An `AttentionSpec`, `Tree` or schedule is out of its range. Correct the field that the message names."""


class InvalidTensor(CacheError, ValueError):
    """A tensor has the wrong dtype, device, shape or stride for the storage or the kernel. Nothing was launched."""


class InvalidBatch(CacheError, ValueError):
    """A batch's arrays contradict each other or the pool: a table too short, a block or slot outside. Nothing was
    launched."""


class InvalidCopies(CacheError, ValueError):
    """The (source, destination) pairs of one copy overlap, or name blocks outside the pool. Nothing was copied."""


class PlanTooLarge(CacheError, ValueError):
    """A plan does not fit into the fixed buffers of a captured graph. Capture again with more room."""


class StorageTooLarge(CacheError, MemoryError):
    """The cache does not fit into the device's memory. Nothing was allocated; the message says what would fit."""


class MatchMismatch(CacheError, ValueError):
    """The match was made by another manager, or for other tokens or another namespace. Look up again."""


class Corrupted(CacheError, AssertionError):
    """`check()` found a broken internal invariant. The core has a defect, or its state was changed from outside.

    `clause` is the short name of the invariant.
    """

    def __init__(self, clause: str, message: str) -> None:
        super().__init__(f"{clause}: {message}")
        self.clause = clause
