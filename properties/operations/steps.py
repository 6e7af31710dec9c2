"""Dispatch and Complete: a step is scheduled, and its K/V are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from ..configuration import Tokens
from ..target import Capability
from .kind import Kind, Names, WithoutValues, changed

__all__ = ["Complete", "Dispatch"]


@dataclass(frozen=True, slots=True)
class Dispatch(Kind):
    """Schedule the next n unscheduled tokens of each (request, n). `step` is this run's own name for the step."""

    op: ClassVar[str] = "dispatch"
    needs: ClassVar[Capability | None] = None
    reads_tables: ClassVar[bool] = True
    step: int
    work: tuple[tuple[str, int], ...]

    def describe(self) -> str:
        return f"dispatch step {self.step}: " + ", ".join(f"{name} {count}" for name, count in self.work)

    def short(self) -> str:
        return f"{self.step}: " + " ".join(name for name, _ in self.work)

    def requests(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.work)

    def renamed(self, names: Names) -> Self:
        used = names.used
        return changed(self, step=names.step(self.step), work=tuple((used(name), count) for name, count in self.work))

    def without(self, request: str) -> Self | None:
        work = tuple(entry for entry in self.work if entry[0] != request)
        return changed(self, work=work) if work or not self.work else None

    def size(self) -> tuple[int, int]:
        return len(self.work), 0

    def plainer(self) -> Iterator[Self]:
        for index in range(len(self.work)):
            if len(self.work) > 1:
                yield changed(self, work=self.work[:index] + self.work[index + 1 :])
            request, count = self.work[index]
            for fewer in sorted({1, count // 2, count - 1}):
                if 0 < fewer < count:
                    entry = (request, fewer)
                    yield changed(self, work=(*self.work[:index], entry, *self.work[index + 1 :]))

    def scaled(self, scale: Callable[[int], int], longest: int) -> Self:
        return changed(self, work=tuple((name, min(scale(count), longest)) for name, count in self.work))

    def without_beginning(self, count: int) -> Self:
        return self

    def tokens_named(self) -> Tokens:
        return ()

    def with_token(self, token: int, plainer: int) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class Complete(WithoutValues):
    """The step's K/V are written."""

    op: ClassVar[str] = "complete"
    needs: ClassVar[Capability | None] = None
    reads_tables: ClassVar[bool] = False
    step: int

    def describe(self) -> str:
        return f"complete step {self.step}"

    def short(self) -> str:
        return str(self.step)

    def requests(self) -> tuple[str, ...]:
        return ()

    def renamed(self, names: Names) -> Self:
        return changed(self, step=names.step(self.step))

    def without(self, request: str) -> Self | None:
        return self
