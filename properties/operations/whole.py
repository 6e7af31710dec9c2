"""Fork, Free and Reset: what is done to a whole request, or to all that is cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ..target import Capability
from .kind import Names, OfRequest, WithoutValues, changed

__all__ = ["Fork", "Free", "Reset"]


@dataclass(frozen=True, slots=True)
class Fork(WithoutValues, OfRequest):
    """A second sequence with the same tokens in the same blocks."""

    op: ClassVar[str] = "fork"
    needs: ClassVar[Capability | None] = Capability.FORK
    reads_tables: ClassVar[bool] = False
    child: str

    def describe(self) -> str:
        return f"fork {self.request} as {self.child}"

    def short(self) -> str:
        return f"{self.request} → {self.child}"

    def requests(self) -> tuple[str, ...]:
        return (self.request, self.child)

    def renamed(self, names: Names) -> Self:
        return changed(self, request=names.used(self.request), child=names.made(self.child))

    def without(self, request: str) -> Self | None:
        return None if request in (self.request, self.child) else self


@dataclass(frozen=True, slots=True)
class Free(WithoutValues, OfRequest):
    """Finish, abort or preempt a request."""

    op: ClassVar[str] = "free"
    needs: ClassVar[Capability | None] = None
    reads_tables: ClassVar[bool] = False

    def describe(self) -> str:
        return f"free {self.request}"

    def short(self) -> str:
        return self.request


@dataclass(frozen=True, slots=True)
class Reset(WithoutValues):
    """Forget all cached content."""

    op: ClassVar[str] = "reset"
    needs: ClassVar[Capability | None] = Capability.RESET
    reads_tables: ClassVar[bool] = False

    def describe(self) -> str:
        return "reset"

    def short(self) -> str:
        return ""

    def requests(self) -> tuple[str, ...]:
        return ()

    def renamed(self, names: Names) -> Self:
        return self

    def without(self, request: str) -> Self | None:
        return self
