"""INTERNAL: the core's own check passes. It is expensive, so it is asked at intervals only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import Internal

from ..target import Capability

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Internals"]


class Internals:
    needs = frozenset({Capability.CHECK})

    def after(self, session: Session) -> None:
        pass

    def walk(self, session: Session) -> None:
        if session.steps_since_check < session.check_every:
            return
        session.steps_since_check = 0
        try:
            session.target.check()
        except Exception as error:
            raise Internal(f"the core's own check says {type(error).__name__}: {error}") from error
