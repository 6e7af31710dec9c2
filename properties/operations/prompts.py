"""Lookup and Allocate: the operations that carry a whole prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ..configuration import Namespace, Tokens
from ..target import Capability
from .kind import Names, WithPrompt, changed

__all__ = ["Allocate", "Lookup"]


@dataclass(frozen=True, slots=True)
class Lookup(WithPrompt):
    """Ask what would be hit. With `match`, keep the answer under that name for a later `Allocate`."""

    op: ClassVar[str] = "lookup"
    needs: ClassVar[Capability | None] = Capability.LOOKUP
    reads_tables: ClassVar[bool] = False
    counts_as: ClassVar[str] = "allocate"  # one that hits the same
    tokens: Tokens
    namespace: Namespace = ()
    match: str | None = None

    def describe(self) -> str:
        return f"lookup {self.said()}"

    def short(self) -> str:
        return f"{len(self.tokens)} tokens"

    def requests(self) -> tuple[str, ...]:
        return ()

    def renamed(self, names: Names) -> Self:
        return self

    def without(self, request: str) -> Self | None:
        return self


@dataclass(frozen=True, slots=True)
class Allocate(WithPrompt):
    """Admit a request. With `match`, pass the answer kept under that name (however old)."""

    op: ClassVar[str] = "allocate"
    needs: ClassVar[Capability | None] = None
    reads_tables: ClassVar[bool] = False
    request: str
    tokens: Tokens
    namespace: Namespace = ()
    match: str | None = None

    def describe(self) -> str:
        return f"allocate {self.request} {self.said()}"

    def short(self) -> str:
        return self.request

    def requests(self) -> tuple[str, ...]:
        return (self.request,)

    def renamed(self, names: Names) -> Self:
        return changed(self, request=names.made(self.request))

    def without(self, request: str) -> Self | None:
        return None if self.request == request else self
