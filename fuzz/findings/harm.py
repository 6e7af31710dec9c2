"""What harm lies behind a finding: it is gone on with, and judged from outside, where nobody looks into the core.

A wrong count or a wrong index is often the first that is seen of a bug, and ends every episode that meets it. What
comes of it, a reader learns here: "leads to HISTORY", with operations of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from properties.operations import Operation
from properties.session import Session
from properties.target import TargetFactory
from reference import PROPERTIES, Crash

from ..engines.engine import Clock, with_violation
from ..engines.walk import Limits, Walk
from ..runs.perform import LONG, Run, perform
from ..runs.values import Counterexample, Judging

__all__ = ["harm_of", "rank_of"]

_CONTINUATIONS = 3000
"""Ways in which the operations are gone on with, at most."""

_LENGTH = 60
"""Operations of each."""


def harm_of(
    best: Counterexample,
    found: Counterexample,
    factory: TargetFactory,
    *,
    clock: Clock,
    seconds: float,
    beat: Callable[[], None] = lambda: None,
) -> Counterexample | None:
    """A more harmful violation than that of `best`, or None if none is met within `seconds`.

    best: a finding, shrunk. found: the same as it was found, whose property may be worse than what it was shrunk to.
    Both are judged from outside, alone and gone on with by the walk."""
    deadline = clock() + seconds
    search = _Search(best, factory)
    for one in (best, found):
        search.run(one, one.operations, strict=len(one.operations) <= LONG)
    # Only now: what is judged from outside can be shrunk, and as it was found it may be hidden by what is less harmful.
    if rank_of(found) < search.rank:
        search.keep(found)
    capabilities = factory(best.configuration).capabilities
    # A shrunk one has the plainest pool, on which there may be no room for more: so as it was found, too, unless that
    # is long, and from the start.
    begun = [one for one in (best, found) if len(one.operations) <= LONG] or [best]
    sources = [*begun, replace(found, operations=())]
    for number in range(_CONTINUATIONS):
        if clock() > deadline or not search.rank:
            break
        beat()
        source = sources[number % len(sources)]
        search.run(source, _gone_on_with(source, Walk(f"{best.seed}/harm/{number}", capabilities, _LIMITS)))
    return search.worst


_LIMITS = Limits(long_episodes=False)


def _gone_on_with(found: Counterexample, walk: Walk) -> Callable[[Session], Iterator[Operation]]:
    walk.length = _LENGTH
    # Not with the drain phase, which has reset the cache.
    begun = found.operations if found.at is None else found.operations[: found.at + 1]
    return lambda session: chain(begun, walk.operations(session))


def rank_of(found: Counterexample) -> int:
    """The lower, the more harmful."""
    kind = PROPERTIES.get(found.property_id or "")
    return len(PROPERTIES) if kind is None else kind.rank


class _Search:
    """The worst so far. rank: of that, or of the finding itself."""

    def __init__(self, best: Counterexample, factory: TargetFactory) -> None:
        self.worst: Counterexample | None = None
        self.rank = rank_of(best)
        self._factory = factory

    def keep(self, found: Counterexample) -> None:
        self.worst, self.rank = found, rank_of(found)

    def run(self, source: Counterexample, operations: object, strict: bool = False) -> None:
        judging = Judging(outside=True, exact=False, kernels=source.judging.kernels)
        run: Run = perform(self._factory, source.configuration, operations, judging, strict=strict)  # type: ignore[arg-type]
        violation = run.violation
        # What ends in an exception is no harm to an answer.
        if violation is not None and violation.rank < self.rank and not isinstance(violation, Crash):
            self.keep(with_violation(replace(source, judging=judging), violation, run.operations, run.at))
