"""The names of refusals: what a core says when it will not do an operation. Nothing changes where one is due.

A target translates its own errors into these names; the judge says which one is due.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ALREADY_COMPLETED",
    "DUPLICATE_REQUEST",
    "EMPTY_DISPATCH",
    "INVALID_COUNT",
    "INVALID_FILL",
    "INVALID_LENGTH",
    "INVALID_TOKENS",
    "MATCH_MISMATCH",
    "NEVER_FITS",
    "NOT_COMPUTED",
    "NOT_NAMED",
    "NO_ROOM",
    "OUT_OF_BLOCKS",
    "OUT_OF_ORDER",
    "REPEATED_REQUEST",
    "UNKNOWN_REQUEST",
]

ALREADY_COMPLETED: Final = "AlreadyCompleted"
DUPLICATE_REQUEST: Final = "DuplicateRequest"
EMPTY_DISPATCH: Final = "EmptyDispatch"
INVALID_COUNT: Final = "InvalidCount"
INVALID_FILL: Final = "InvalidFill"
INVALID_LENGTH: Final = "InvalidLength"
INVALID_TOKENS: Final = "InvalidTokens"
MATCH_MISMATCH: Final = "MatchMismatch"
NEVER_FITS: Final = "NeverFits"
NOT_COMPUTED: Final = "NotComputed"
NOT_NAMED: Final = "NotNamed"
OUT_OF_BLOCKS: Final = "OutOfBlocks"
OUT_OF_ORDER: Final = "OutOfOrder"
REPEATED_REQUEST: Final = "RepeatedRequest"
UNKNOWN_REQUEST: Final = "UnknownRequest"

NO_ROOM: Final = (OUT_OF_BLOCKS, NEVER_FITS)
"""The two that say that blocks are lacking: now, or in any state of this pool."""
