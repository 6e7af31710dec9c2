"""Laws: observers of the Session that compare a core's own bookkeeping with what the judge derived.

The judge (in `reference`) needs nothing but a core's choices. A law needs to see inside, so each says which
capabilities it needs and is left out, visibly, where they are lacking. A law is asked after every operation, with the
cost of what the operation touched, and at intervals (`walk`) for the whole state. The kernels will enter here too: as a
law that executes each step's batch.

This room may not know: producers of operations, Hypothesis, any core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..target import Capability

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["LAWS", "Law"]


class Law(Protocol):
    """One observer. Raises a `Violation`; changes nothing."""

    needs: frozenset[Capability]

    def after(self, session: Session) -> None:
        """The last operation succeeded and the judge has no objection; `session.judge.touched` lists its blocks."""
        ...

    def walk(self, session: Session) -> None:
        """Compare everything. Asked at intervals, and after every refusal: a refused operation changes nothing."""
        ...


from .bookkeeping import Bookkeeping  # noqa: E402
from .internals import Internals  # noqa: E402

LAWS: tuple[type[Law], ...] = (Bookkeeping, Internals)
"""In the order in which they are asked."""
