"""The volume engine for kernels alone: a seeded stream of attention cases, over several processes, and its shrinker.

Case n of a seed is the same on every machine and however many workers there are; only how far a run gets depends on
the clock. A finding is a case, one line of JSON.

torch, Triton and the kernels are imported in the workers' processes (see `bench`), which nothing here depends on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from properties.attention.cases import Case, fit

from ..runs.files import free, put
from .bench import FATAL, HANG, Bench, CaseFinding, Checked, Traits, case_of

if TYPE_CHECKING:
    from properties.attention.checks import Counts

__all__ = [
    "AttentionPlan",
    "AttentionResult",
    "run_attention",
    "shrink",
    "shrink_case",
    "finding_text",
    "write_finding",
]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What to do. cases: how many, or None until the deadline. dot: how the interpreter sums products (see
    `properties.attention.repairs`): sequential, hopper or ampere. budget: tiles of a case's base run. max_findings:
    after which it ends; 0: never. hang: seconds that a case may take."""

    kernels: str = "kvcore"
    seed: str = "0"
    cases: int | None = 200
    workers: int = 1
    dot: str = "sequential"
    budget: int = 48
    max_findings: int = 1
    hang: float = HANG


@dataclass(slots=True)
class AttentionResult:
    """How it went. counts: see `properties.attention.checks.Counts`; following: the number of the next case. failure:
    why not all was judged, and the kernels are not to blame. interrupted: by Ctrl-C."""

    counts: dict[str, Any] = field(default_factory=dict)
    findings: list[CaseFinding] = field(default_factory=list)
    following: int = 0
    failure: str = ""
    interrupted: bool = False

    def to_json(self, plan: AttentionPlan, seconds: float) -> dict[str, Any]:
        compared: dict[str, int] = self.counts.get("compared", {})
        return {
            "schema": 1,
            "plan": asdict(plan),
            "seconds": round(seconds, 3),
            **self.counts,
            "compared_row_heads": sum(compared.values()),
            **({"failure": self.failure} if self.failure else {}),
            **({"interrupted": True} if self.interrupted else {}),
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


def run_attention(
    plan: AttentionPlan, *, late: Callable[[], bool] = lambda: False, progress: Callable[[Counts], None] | None = None
) -> AttentionResult:
    """Check cases 0, 1, 2, ... of `plan.seed` until there are enough, `late()` says so, or enough is found.

    Whatever the kernels do to a worker's process is a finding, and the worker goes on in the next. Raises NoKernels
    before any case. After Ctrl-C, or where the harness fails, what was found until then is returned.
    """
    from properties.attention.checks import Counts

    result, total = AttentionResult(), Counts()
    said: SimpleQueue[Checked | BaseException | None] = SimpleQueue()
    first = Bench(plan.dot, plan.hang)
    try:
        traits = first.describe(plan.kernels)
    except BaseException:
        first.close()
        raise
    stream = _Stream(plan, traits, late)
    benches = [first, *(Bench(plan.dot, plan.hang) for _ in range(plan.workers - 1))]
    for number, bench in enumerate(benches):
        Thread(target=_work, args=(bench, plan.kernels, stream, said, number == 0), daemon=True).start()
    working = len(benches)
    controlled: CaseFinding | None = None
    try:
        while working:
            answer = said.get()
            if answer is None:
                working -= 1
            elif isinstance(answer, Checked):
                total.add(Counts(**answer.counts))
                if answer.found is not None and answer.found.number < 0:
                    controlled = answer.found
                elif answer.found is not None:
                    result.findings.append(answer.found)
                if progress is not None:
                    progress(total)
            else:
                result.failure = result.failure or str(answer)
                stream.stop()
    except KeyboardInterrupt:
        stream.stop()
        result.interrupted = True
    if controlled is not None and not result.findings:
        result.findings.append(controlled)
    result.findings.sort(key=lambda found: found.number)
    result.following = stream.following
    result.counts = asdict(total)
    return result


class _Stream:
    """The cases that are not given out yet. Several threads take them."""

    def __init__(self, plan: AttentionPlan, traits: Traits, late: Callable[[], bool]) -> None:
        self.traits = traits
        self.following = 0
        self._plan = plan
        self._late = late
        self._left = plan.max_findings or -1
        self._lock = Lock()

    def stop(self) -> None:
        self._left = 0

    def found(self) -> None:
        with self._lock:
            self._left -= 1 if self._left else 0

    def take(self) -> tuple[int, Case] | None:
        """The next case and its number, or None: it is enough."""
        with self._lock:
            number, plan = self.following, self._plan
            if not self._left or self._late() or (plan.cases is not None and number >= plan.cases):
                return None
            self.following += 1
        return number, case_of(plan.seed, number, self.traits.axes, plan.budget)


def _work(
    bench: Bench, kernels: str, stream: _Stream, said: SimpleQueue[Checked | BaseException | None], control: bool
) -> None:
    """What a thread does. control: see first whether poison shows."""
    try:
        with bench:
            for dtype in stream.traits.dtypes if control else ():
                if (ended := bench.control(kernels, dtype)) is not None:
                    said.put(Checked(ended))
                    break  # the cases will say so, too, and with more to go by
            while (item := stream.take()) is not None:
                number, case = item
                checked = bench.check(kernels, case, number)
                if checked.found is not None:
                    stream.found()
                said.put(checked)
    except BaseException as error:  # the main thread says it
        said.put(error)
    said.put(None)


def shrink_case(
    kernels: str,
    found: CaseFinding,
    *,
    dot: str = "sequential",
    late: Callable[[], bool] = lambda: False,
    hang: float = HANG,
) -> CaseFinding:
    """A smaller case that breaks the same property: sequences left out, lengths and fields brought to their default,
    one at a time, until nothing helps. In a process of its own; each try costs what the case costs, and three seconds
    more if it ends its process. What hangs is left as it is: nobody waits for that a hundred times."""
    if found.message.startswith(f"{FATAL}hung"):
        return found
    last = found
    with Bench(dot, hang) as bench:
        traits = bench.describe(kernels)

        def fails(case: Case) -> bool:
            nonlocal last
            again = bench.once(kernels, case, found.number).found
            if again is None or again.kind != found.kind:
                return False
            last = again
            return True

        case, tried = shrink(found.case, fails, traits.limits, late)
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
