"""EQUIVALENCE and BOUNDS under Hypothesis: cases of the kernels alone; the allocator's machine does the rest.

A case is drawn by `properties.attention.cases.draw`, as the seeded stream draws it, with Hypothesis choosing; so it
shrinks towards the first of each choice, and a finding is a case, one line of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from hypothesis import Phase, given, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.strategies import DrawFn, SearchStrategy

from reference import Violation

from ..attention.cases import Case, draw
from ..attention.checks import Checker
from ..attention.kernels import AXES, Kernels
from .allocator import SHARD

__all__ = ["CaseReport", "cases", "run_cases"]


def cases(axes: tuple[str, ...], budget: int = 48) -> SearchStrategy[Case]:
    """Attention cases along these axes. budget: see `draw`."""

    @st.composite
    def strategy(choose: DrawFn) -> Case:
        return draw(lambda count: choose(st.integers(0, count - 1)), axes, budget)

    return strategy()


@dataclass(slots=True)
class CaseReport:
    """What a run did; `case` and `violation` are the smallest finding, or None."""

    seed: int
    seconds: float = 0.0
    violation: Violation | None = None
    case: Case | None = None


def run_cases(
    kernels: Kernels, checker: Checker, chosen: settings, seed_number: int, budget: int = 48, *, first: int = 0
) -> CaseReport:
    """Check generated cases under these settings and this seed; a violation is reported, not raised.

    In shards, each with a seed of its own, as the allocator's machine (see `SHARD`). Only violations of the first one's
    property count from then on, so that shrinking keeps it. first: how many cases, a multiple of `SHARD`, are left out.
    """
    report = CaseReport(seed_number)

    def check(case: Case) -> None:
        try:
            checker.check(case)
        except Violation as violation:
            if report.violation is not None and type(violation) is not type(report.violation):
                reject()
            report.violation, report.case = violation, case
            raise

    strategy = cases(tuple(axis for axis in AXES if axis in kernels.axes), budget)
    generated = [phase for phase in chosen.phases if phase is not Phase.reuse]
    begun = perf_counter()
    for begin in range(first, chosen.max_examples, SHARD):
        size = min(SHARD, chosen.max_examples - begin)
        test = given(strategy)(check)
        test = settings(chosen, max_examples=size, phases=generated)(test)
        try:
            seed(seed_number << 16 | begin // SHARD)(test)()
        except (Violation, Flaky):
            if report.violation is None:
                raise
        if report.violation is not None:
            break
    report.seconds = perf_counter() - begun
    return report
