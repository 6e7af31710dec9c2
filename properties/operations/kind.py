"""The record of a kind of operation: what every kind must say about itself, beside its fields.

    op, needs          its name in files, and the capability without which a target cannot do it
    describe, short    how a person reads it: in a line, and above a narrow column
    requests, renamed, without      which requests it names
    size, plainer, scaled, ...      how it is made simpler when a counterexample is shrunk

A kind is a frozen dataclass that derives from `Kind`. One whose record is not complete cannot be defined: that is a
TypeError when its module is imported. The shapes that several kinds share are here, too. How a kind is drawn, and how
often, is a record of its own (`properties.moves`), since there are more moves than operations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

from ..configuration import UNKNOWN, Namespace, Tokens
from ..target import Capability

__all__ = ["Kind", "Names", "OfRequest", "WithPrompt", "WithoutValues", "changed", "plainer_tokens", "shown"]

_K = TypeVar("_K", bound="Kind")

MOST_TOKENS = 256
"""Longer sequences keep their tokens' values when one token is put for another: no person reads them."""


class Names(NamedTuple):
    """New names: `used` for a request that is there already, `made` for one that the operation brings, `step`."""

    used: Callable[[str], str]
    made: Callable[[str], str]
    step: Callable[[int], int] = lambda step: step


class Kind:
    """One kind of operation. `op`: its name in files. `needs`: the capability that a target must have; None: each has.

    reads_tables: it reads or writes blocks of its requests without taking any or giving any back, so that nothing else
    shows which it touched. counts_as: the kind for which it is taken when symptoms are compared; "" stands for itself.
    """

    __slots__ = ()

    op: ClassVar[str]
    needs: ClassVar[Capability | None]
    reads_tables: ClassVar[bool]
    counts_as: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "op" not in vars(cls):
            return  # a shape that several kinds share
        lacking = [name for name in ("needs", "reads_tables") if not hasattr(cls, name)]
        lacking += [name for name in dir(cls) if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if lacking:
            raise TypeError(f"the record of operation {cls.op!r} is not complete: it lacks {', '.join(lacking)}")

    # ---- for people --------------------------------------------------------------------------------------------------

    @abstractmethod
    def describe(self) -> str:
        """One line, as a person would write it down."""

    @abstractmethod
    def short(self) -> str:
        """What it is about, without the kind: as much as fits above a narrow column."""

    # ---- names -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def requests(self) -> tuple[str, ...]:
        """The requests that it names, in order."""

    @abstractmethod
    def renamed(self, names: Names) -> Self:
        """The same with other names."""

    @abstractmethod
    def without(self, request: str) -> Self | None:
        """What is left of it where there is no such request; None if nothing is."""

    # ---- shrinking ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """(tokens and entries, how far its values are from the plainest). O(tokens)."""

    @abstractmethod
    def plainer(self) -> Iterator[Self]:
        """Simpler operations of the same kind, simplest first."""

    @abstractmethod
    def scaled(self, scale: Callable[[int], int], longest: int) -> Self:
        """With all counts of tokens put through `scale`, none above `longest`."""

    @abstractmethod
    def without_beginning(self, count: int) -> Self:
        """For requests whose first `count` tokens are gone."""

    @abstractmethod
    def tokens_named(self) -> Tokens:
        """Tokens whose values may be changed in all operations at once; () if it has none, or too many to read."""

    @abstractmethod
    def with_token(self, token: int, plainer: int) -> Self:
        """With `plainer` wherever `token` is named."""


def changed(operation: _K, **values: Any) -> _K:
    """A copy with other values of some fields. O(1)."""
    return cast(_K, replace(cast(Any, operation), **values))


def shown(tokens: Tokens) -> str:
    """Tokens in a line; of many the first 12 and how many there are."""
    few = [("?" if token == UNKNOWN else str(token)) for token in tokens[:12]]
    return "[" + " ".join(few) + (f" … {len(tokens)} tokens" if len(tokens) > 12 else "") + "]"


def plainer_tokens(tokens: Tokens) -> Iterator[tuple[int, ...]]:
    """Fewer tokens; then all 0, and one after the other 0 or 1. O(tokens) each."""
    tokens = tuple(tokens)
    for shorter in sorted({1, len(tokens) // 2, len(tokens) - 1}):
        if 0 < shorter < len(tokens):
            yield tokens[:shorter]
    if any(type(token) is int and token > 0 for token in tokens):
        yield tuple(0 if type(token) is int and token > 0 else token for token in tokens)
        for index, token in enumerate(tokens):
            if type(token) is int and token > 0:
                yield (*tokens[:index], 0, *tokens[index + 1 :])
                if token > 1:
                    yield (*tokens[:index], 1, *tokens[index + 1 :])


# ---- shapes that several kinds share ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OfRequest(Kind):
    """About one live request, and no other."""

    request: str

    def requests(self) -> tuple[str, ...]:
        return (self.request,)

    def renamed(self, names: Names) -> Self:
        return changed(self, request=names.used(self.request))

    def without(self, request: str) -> Self | None:
        return None if self.request == request else self


class WithoutValues(Kind):
    """Nothing but names: no tokens, counts or lengths that could be plainer."""

    __slots__ = ()

    def size(self) -> tuple[int, int]:
        return 0, 0

    def plainer(self) -> Iterator[Self]:
        return iter(())

    def scaled(self, scale: Callable[[int], int], longest: int) -> Self:
        return self

    def without_beginning(self, count: int) -> Self:
        return self

    def tokens_named(self) -> Tokens:
        return ()

    def with_token(self, token: int, plainer: int) -> Self:
        return self


class WithTokens(Kind):
    """Has `tokens`."""

    __slots__ = ()

    tokens: Tokens

    def size(self) -> tuple[int, int]:
        return len(self.tokens), sum(token for token in self.tokens if type(token) is int and token > 0)

    def tokens_named(self) -> Tokens:
        return self.tokens if len(self.tokens) <= MOST_TOKENS else ()

    def with_token(self, token: int, plainer: int) -> Self:
        if len(self.tokens) > MOST_TOKENS:
            return self
        return changed(self, tokens=tuple(plainer if own == token else own for own in self.tokens))


class WithPrompt(WithTokens):
    """Has a whole prompt: its tokens, their namespace, and perhaps the name of a lookup's answer."""

    __slots__ = ()

    namespace: Namespace
    match: str | None

    def said(self) -> str:
        """The end of its description."""
        space = " in " + ", ".join(f"{kind}={value!r}" for kind, value in self.namespace) if self.namespace else ""
        return f"{shown(self.tokens)}{space}{f' match {self.match}' if self.match else ''}"

    def size(self) -> tuple[int, int]:
        tokens, values = WithTokens.size(self)
        return tokens, values + len(self.namespace) + (self.match is not None)

    def plainer(self) -> Iterator[Self]:
        if self.namespace:
            yield changed(self, namespace=())
        if self.match is not None:
            yield changed(self, match=None)
        for tokens in plainer_tokens(self.tokens):
            yield changed(self, tokens=tokens)

    def scaled(self, scale: Callable[[int], int], longest: int) -> Self:
        return changed(self, tokens=tuple(self.tokens)[: min(scale(len(self.tokens)), longest)])

    def without_beginning(self, count: int) -> Self:
        return changed(self, tokens=tuple(self.tokens)[count:] or tuple(self.tokens)[-1:])
