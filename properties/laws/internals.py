"""INTERNAL: the core's own check passes. It is expensive, so it is asked at intervals only."""

from __future__ import annotations

from reference import Internal

from ..boundary import told, users_own
from ..target import Capability
from .law import AtWalks, Seen

__all__ = ["Internals"]


class Internals(AtWalks):
    """every: operations between two runs of the core's check, at least."""

    needs = frozenset({Capability.CHECK})
    excludes: frozenset[Capability] = frozenset()

    def __init__(self, every: int) -> None:
        self._every = every
        self._since = 0

    def fresh(self) -> Internals:
        """The same for another session."""
        return Internals(self._every)

    def walk(self, seen: Seen, operations: int) -> None:
        self._since += operations
        if self._since < self._every:
            return
        self._since = 0
        try:
            seen.target.check()
        except BaseException as error:
            if users_own(error):
                raise
            raise Internal(f"the core's own check says {type(error).__name__}: {told(error)}") from error
