"""Append, Fill and Truncate: what changes the tokens of a live request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from ..configuration import Tokens
from ..target import Capability
from .kind import OfRequest, WithTokens, changed, plainer_tokens, shown

__all__ = ["Append", "Fill", "Truncate"]


@dataclass(frozen=True, slots=True)
class Append(WithTokens, OfRequest):
    """Add decode or draft tokens, or placeholders (`UNKNOWN`)."""

    op: ClassVar[str] = "append"
    needs: ClassVar[Capability | None] = None
    reads_tables: ClassVar[bool] = False
    tokens: Tokens

    def describe(self) -> str:
        return f"append {self.request} {shown(self.tokens)}"

    def short(self) -> str:
        return f"{self.request} +{len(self.tokens)}"

    def plainer(self) -> Iterator[Self]:
        for tokens in plainer_tokens(self.tokens):
            yield changed(self, tokens=tokens)

    def scaled(self, scale: Callable[[int], int], longest: int) -> Self:
        return changed(self, tokens=tuple(self.tokens)[: min(scale(len(self.tokens)), longest)])

    def without_beginning(self, count: int) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class Fill(WithTokens, OfRequest):
    """Name placeholders from `position` on."""

    op: ClassVar[str] = "fill"
    needs: ClassVar[Capability | None] = Capability.FILL
    reads_tables: ClassVar[bool] = False
    position: int
    tokens: Tokens

    def describe(self) -> str:
        return f"fill {self.request} from {self.position} {shown(self.tokens)}"

    def short(self) -> str:
        return f"{self.request} @{self.position}"

    # It fits the placeholders of an append, so it is not made shorter by itself.

    def plainer(self) -> Iterator[Self]:
        return iter(())

    def scaled(self, scale: Callable[[int], int], longest: int) -> Self:
        return self

    def without_beginning(self, count: int) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class Truncate(OfRequest):
    """Cut a sequence to `length` tokens."""

    op: ClassVar[str] = "truncate"
    needs: ClassVar[Capability | None] = Capability.TRUNCATE
    reads_tables: ClassVar[bool] = False
    length: int

    def describe(self) -> str:
        return f"truncate {self.request} to {self.length}"

    def short(self) -> str:
        return f"{self.request} → {self.length}"

    def size(self) -> tuple[int, int]:
        return 0, 0  # a shorter length takes more away, and is not simpler

    def plainer(self) -> Iterator[Self]:
        if self.length > 0:
            yield changed(self, length=self.length - 1)

    def scaled(self, scale: Callable[[int], int], longest: int) -> Self:
        return changed(self, length=scale(self.length))

    def without_beginning(self, count: int) -> Self:
        return changed(self, length=self.length - count)

    def tokens_named(self) -> Tokens:
        return ()

    def with_token(self, token: int, plainer: int) -> Self:
        return self
