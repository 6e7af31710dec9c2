"""Who may be refused, and when blocks are taken: what is asked of a core's way of admission.

A request is refused exactly if its blocks are not there. `ForWholeRequest` takes blocks for all tokens at allocate and
append; a request that is larger than the pool is told apart. `ByStep` takes them for the tokens of each step, when the
step is dispatched; nothing is refused at allocate and append. Another policy is one more class with these methods.
"""

from __future__ import annotations

from collections import abc, defaultdict
from typing import ClassVar, Protocol

from .allocation import Allocation
from .blocks import Blocks
from .by_step import ByStep
from .due import Due
from .histories import Histories
from .hits import Hits
from .policy import Policy
from .release import Release
from .sequence import Span
from .stream import Stream
from .verdicts import Findings
from .whole_request import ForWholeRequest

__all__ = ["AdmissionPolicy", "admission_of"]


class AdmissionPolicy(Protocol):
    """When a core takes blocks. Each `before_` says in `due` which refusal is due; nothing has changed then.

    one_by_one: a step computes each of its requests before it looks up the next one."""

    one_by_one: ClassVar[bool]

    def before_allocate(self, due: Due) -> None: ...

    def after_allocate(self, due: Due, hit_tokens: int, table: list[int]) -> bool:
        """The request was admitted with `hit_tokens` from the cache and this table. False if nothing follows."""
        ...

    def before_append(self, due: Due) -> None: ...

    def after_append(self, due: Due, table: list[int]) -> bool:
        """The sequence has grown by `due.tokens`; this is its table now. False if nothing follows."""
        ...

    def before_dispatch(self, due: Due) -> None: ...

    def no_room(self, due: Due) -> None:
        """The step was refused for want of blocks."""
        ...

    def after_dispatch(self, due: Due, starts: abc.Sequence[int], tables: abc.Sequence[list[int]]) -> list[Span]:
        """What the step computes: of each request from where to where. starts, tables: of `due.tables`, as far as the
        step has them."""
        ...


def admission_of(
    policy: Policy,
    histories: Histories,
    blocks: Blocks,
    hits: Hits,
    allocation: Allocation,
    release: Release,
    stream: Stream,
    counts: defaultdict[str, int],
    findings: Findings,
) -> AdmissionPolicy:
    """The one that the policy states."""
    if policy.admission == "step":
        return ByStep(policy, histories, blocks, hits, allocation, release, stream, counts, findings)
    return ForWholeRequest(policy, blocks, hits, allocation, counts, findings)
