"""The volume engine for kernels alone: a seeded stream of attention cases, over several processes, and its shrinker.

Case n of a seed is the same on every machine and however many workers there are; only how far a run gets depends on
the clock. A finding is a case, one line of JSON.

torch and Triton are imported in the workers.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from properties.attention.cases import Case, draw, fit
from properties.targets import load_kernels

from ..runs.files import free, put
from ..runs.processes import follow_parent

if TYPE_CHECKING:
    from properties.attention.checks import Checker, Counts

__all__ = [
    "AttentionPlan",
    "AttentionResult",
    "CaseFinding",
    "check_one",
    "first_failure",
    "run_attention",
    "shrink",
    "shrink_case",
    "finding_text",
    "write_finding",
]

_CHUNK = 4
"""Cases of one task: a few seconds, so that progress moves and a deadline is kept."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What to do. cases: how many, or None until the deadline. dot: how the interpreter sums products (see
    `properties.attention.repairs`): sequential, hopper or ampere. budget: tiles of a case's base run."""

    kernels: str = "kvcore"
    seed: str = "0"
    cases: int | None = 200
    workers: int = 1
    dot: str = "sequential"
    budget: int = 48
    max_findings: int = 1


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """A case that breaks a property, and the number it had in the stream."""

    property_id: str
    message: str
    case: Case
    number: int = -1
    tried: int = 0


@dataclass(slots=True)
class AttentionResult:
    """How it went. counts: see `properties.attention.checks.Counts`; following: the number of the next case."""

    counts: dict[str, Any] = field(default_factory=dict)
    findings: list[CaseFinding] = field(default_factory=list)
    following: int = 0

    def to_json(self, plan: AttentionPlan, seconds: float) -> dict[str, Any]:
        compared: dict[str, int] = self.counts.get("compared", {})
        return {
            "schema": 1,
            "plan": asdict(plan),
            "seconds": round(seconds, 3),
            **self.counts,
            "compared_row_heads": sum(compared.values()),
            "findings": [
                {
                    "property": found.property_id,
                    "message": found.message,
                    "case": json.loads(found.case.to_json()),
                    "number": found.number,
                }
                for found in self.findings
            ],
        }


def case_of(seed: str, number: int, axes: tuple[str, ...], budget: int) -> Case:
    """Case `number` of a seed's stream."""
    return draw(Random(f"{seed}/{number}").randrange, axes, budget)


# ---- in a worker -----------------------------------------------------------------------------------------------------

_checker: Checker | None = None


def _begin(kernels: str, dot: str) -> None:
    follow_parent()
    _prepare(kernels, dot)


def _prepare(kernels: str, dot: str) -> None:
    global _checker
    from properties.attention.interpret import prepare

    prepare(dot)
    from properties.attention.checks import Checker, poison_is_seen
    from properties.attention.kernels import DTYPES
    from reference import Violation

    _checker = Checker(load_kernels(kernels)())
    for dtype in DTYPES:
        with suppress(Violation):  # wrong in what this needs: the first cases will say so, with a case
            poison_is_seen(_checker.kernels, dtype)


def _check(case: Case, number: int = -1) -> CaseFinding | None:
    from reference import Violation

    assert _checker is not None
    try:
        _checker.check(case)
    except Violation as violation:
        return CaseFinding(violation.id, violation.message, case, number)
    return None


def _chunk(seed: str, numbers: range, budget: int) -> tuple[dict[str, Any], list[CaseFinding]]:
    from properties.attention.checks import Counts
    from properties.attention.kernels import AXES

    assert _checker is not None
    _checker.counts = Counts()
    axes = tuple(axis for axis in AXES if axis in _checker.kernels.axes)
    found = [_check(case_of(seed, number, axes, budget), number) for number in numbers]
    return asdict(_checker.counts), [finding for finding in found if finding is not None]


# ---- in the supervisor -----------------------------------------------------------------------------------------------


def run_attention(
    plan: AttentionPlan, *, late: Callable[[], bool] = lambda: False, progress: Callable[[Counts], None] | None = None
) -> AttentionResult:
    """Check cases 0, 1, 2, ... of `plan.seed` until there are enough, `late()` says so, or enough is found.

    A worker that dies (BrokenProcessPool) or an error that is no violation passes through.
    """
    from properties.attention.checks import Counts

    result = AttentionResult()
    total = Counts()
    last = plan.cases

    def chunks() -> Iterator[range]:
        first = 0
        while (last is None or first < last) and not late() and len(result.findings) < plan.max_findings:
            yield range(first, first + _CHUNK if last is None else min(first + _CHUNK, last))
            first += _CHUNK

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(plan.workers, context, _begin, (plan.kernels, plan.dot)) as pool:
        waiting: set[Future[tuple[dict[str, Any], list[CaseFinding]]]] = set()
        try:
            for numbers in chunks():
                waiting.add(pool.submit(_chunk, plan.seed, numbers, plan.budget))
                result.following = numbers.stop
                if len(waiting) > plan.workers:
                    waiting = _collect(waiting, result, total, progress)
            while waiting:
                waiting = _collect(waiting, result, total, progress)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    result.findings.sort(key=lambda found: found.number)
    result.counts = asdict(total)
    return result


def _collect(
    waiting: set[Future[Any]], result: AttentionResult, total: Counts, progress: Callable[[Counts], None] | None
) -> set[Future[Any]]:
    from properties.attention.checks import Counts

    done, left = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        counts, found = future.result()
        total.add(Counts(**counts))
        result.findings += found
    if progress is not None:
        progress(total)
    return left


def check_one(kernels: str, case: Case, dot: str = "sequential") -> CaseFinding | None:
    """Check one case in this process."""
    _prepare(kernels, dot)
    return _check(case)


def first_failure(kernels: str, seed: str, cases: int, budget: int = 24) -> tuple[CaseFinding | None, int]:
    """The first of `cases` small cases of `seed` that breaks a property, and how many were tried. In this process."""
    _prepare(kernels, "sequential")
    from properties.attention.kernels import AXES

    assert _checker is not None
    axes = tuple(axis for axis in AXES if axis in _checker.kernels.axes)
    for number in range(cases):
        found = _check(case_of(seed, number, axes, budget), number)
        if found is not None:
            return found, number + 1
    return None, cases


def shrink_case(
    kernels: str, found: CaseFinding, *, dot: str = "sequential", late: Callable[[], bool] = lambda: False
) -> CaseFinding:
    """A smaller case that breaks the same property: sequences left out, lengths and fields brought to their default,
    one at a time, until nothing helps. In this process; each try costs what the case costs."""
    _prepare(kernels, dot)
    assert _checker is not None
    last = found

    def fails(case: Case) -> bool:
        nonlocal last
        again = _check(case, found.number)
        if again is None or again.property_id != found.property_id:
            return False
        last = again
        return True

    case, tried = shrink(found.case, fails, _checker.kernels.limits, late)
    return replace(last, case=case, tried=tried)


def shrink(
    case: Case, fails: Callable[[Case], bool], limits: Mapping[str, tuple[Any, ...]], late: Callable[[], bool]
) -> tuple[Case, int]:
    """The smallest case of those tried that still fails, and how many were tried. limits: of the kernels; every case
    is brought within them first, so that what is written down is what was run. Each try costs what `fails` costs."""
    best, tried = fit(case, limits)[0], 0
    improved = True
    while improved and not late():
        improved = False
        for smaller in _smaller(best):
            if late():
                break
            smaller, _ = fit(smaller, limits)
            if smaller == best:
                continue
            tried += 1
            if fails(smaller):
                best, improved = smaller, True
                break
    return best, tried


def _smaller(case: Case) -> Iterator[Case]:
    """Simpler neighbours, the boldest first."""
    sequences = case.sequences
    for number in range(len(sequences)):
        if len(sequences) > 1:
            yield replace(case, sequences=(*sequences[:number], *sequences[number + 1 :]))
    for axes in ((), *((axis,) for axis in case.axes)):
        if len(axes) < len(case.axes):
            yield replace(case, axes=axes)
    plain = Case()
    for name in (entry.name for entry in fields(Case)):
        if name not in ("sequences", "axes", "rows", "seed") and getattr(case, name) != getattr(plain, name):
            changed = replace(case, **{name: getattr(plain, name)})
            yield replace(changed, rows=_rows(changed))
    for number, (context, rows) in enumerate(sequences):
        half = context // 2
        for smaller in (
            (half, min(rows, half)),
            (context, rows // 2),
            (context - 1, min(rows, context - 1)),
            (context, rows - 1),
        ):
            if 0 <= smaller[1] <= smaller[0] and smaller != (context, rows):
                yield replace(case, sequences=(*sequences[:number], smaller, *sequences[number + 1 :]))
    if case.seed:
        yield replace(case, seed=0)


def _rows(case: Case) -> tuple[int, ...]:
    """Programs must hold the heads of a group."""
    least = max(16, 1 << (case.group - 1).bit_length())
    return tuple(max(rows, least) for rows in case.rows)


def write_finding(found: CaseFinding, folder: Path) -> Path:
    """Write it as JSON, under a name that nothing has; returns the path. Raises OSError."""
    path = free(folder / f"{found.property_id}-attention-{found.number}.json")
    return put(path, finding_text(found) + "\n")


def finding_text(found: CaseFinding) -> str:
    """The text of its file."""
    data = {"property": found.property_id, "message": found.message, "case": json.loads(found.case.to_json())}
    return json.dumps(data, indent=2)
