"""A bench: kernels and the cases that they are tried on, in a process of its own, which is replaced where it ends.

    with Bench(dot="sequential") as bench:
        kernels = bench.describe("kvcore")
        checked = bench.check("kvcore", case)

Kernels that store at wild addresses, end their process or never return are a finding (CRASH) with its case. The caller
goes on. torch, Triton and the kernels are imported in that process alone. `case_of` is the stream of cases that
everybody shares; `check_one` and `first_failure` are what can be done with a bench alone.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Self

from properties.attention.cases import Case, control_case, draw
from properties.boundary import ended, shown
from properties.targets import UnknownTarget, load_kernels

from ..runs.child import Ended, each

if TYPE_CHECKING:
    from properties.attention.checks import Checker

__all__ = [
    "COMPILED",
    "FATAL",
    "HANG",
    "Bench",
    "CaseFinding",
    "Checked",
    "Failed",
    "NoKernels",
    "Traits",
    "case_of",
    "check_one",
    "first_failure",
]

HANG = 120.0
"""Seconds that a case may take. Half of them is what importing torch and Triton takes where a machine is busy."""

COMPILED = "sm_"
"""Begins a `dot` by which kernels are not interpreted, but compiled for that GPU and run by the emulator."""

FATAL = "the process that ran the kernels "
"""Begins the message of a finding that has ended its process."""

_MEMORY = 8 << 30
_FOR_EVER = 1e6


class NoKernels(ValueError):
    """There are no kernels of that name, or they cannot be made. Says why, in a line."""


class Failed(RuntimeError):
    """A case was not judged, and the kernels are not to blame, or cannot be judged at all. Says why."""


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """A case that breaks a property, and the number it had in the stream; -1 for the control (see `Bench.control`) or a
    case of somebody's own."""

    property_id: str
    message: str
    case: Case
    number: int = -1
    tried: int = 0

    @property
    def kind(self) -> tuple[str, str]:
        """What it must still be when it is smaller: the property, and how the process ended if it did."""
        return self.property_id, self.message if self.message.startswith(FATAL) else ""


@dataclass(frozen=True, slots=True)
class Traits:
    """What kernels say of themselves (see `properties.attention.kernels.Kernels`), and all dtypes that there are."""

    axes: tuple[str, ...]
    limits: Mapping[str, tuple[Any, ...]]
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """counts: fields of `properties.attention.checks.Counts`, empty if the process ended."""

    found: CaseFinding | None = None
    counts: dict[str, Any] = field(default_factory=dict)


class Bench:
    """One process. dot: how the interpreter sums products, or "sm_90" for what is compiled. seconds: that a case may
    take; 0 for no bound.

    To start it takes as long as to import torch and Triton: three seconds. It starts when it is first asked."""

    def __init__(self, dot: str = "sequential", seconds: float = HANG) -> None:
        self._dot = dot
        self._job: _Job | None = None
        self._answers = each(_answer, self._jobs(), seconds=seconds or _FOR_EVER, memory=_MEMORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._answers.close()  # type: ignore[attr-defined]

    def describe(self, kernels: str) -> Traits:
        """Make them, and ask. Raises NoKernels."""
        answer = self._ask(_Job(kernels, self._dot))
        if isinstance(answer, Ended):
            raise NoKernels(f"kernels {kernels}: the process that made them {answer}")
        if isinstance(answer, str):
            raise NoKernels(answer)
        assert isinstance(answer, Traits)
        return answer

    def control(self, kernels: str, dtype: str) -> CaseFinding | None:
        """Does poison show (`properties.attention.checks.poison_is_seen`)? Raises Failed if not. What is wrong in
        another way the first cases will say, but a process that ends may be the only one that does: that is given."""
        answer = self._ask(_Job(kernels, self._dot, dtype=dtype))
        if isinstance(answer, Ended):
            return CaseFinding("CRASH", f"{FATAL}{answer}, in the control", control_case(dtype))
        if answer is not None:
            raise Failed(answer)
        return None

    def check(self, kernels: str, case: Case, number: int = -1) -> Checked:
        """Raises Failed. If the process ends, the case is tried once more, in the next: what an earlier case has
        written into the process may have ended it."""
        checked = self.once(kernels, case, number)
        first = checked.found
        if first is None or not first.message.startswith(FATAL) or first.message.startswith(f"{FATAL}hung"):
            return checked
        again = self.once(kernels, case, number)
        if again.found is not None:
            return again
        said = f"{first.message}; not again in a new process, so an earlier case may have done it"
        return Checked(CaseFinding("CRASH", said, case, number), again.counts)

    def once(self, kernels: str, case: Case, number: int = -1) -> Checked:
        """The same, tried once."""
        answer = self._ask(_Job(kernels, self._dot, case, number))
        if isinstance(answer, Ended):
            return Checked(CaseFinding("CRASH", f"{FATAL}{answer}", case, number))
        assert isinstance(answer, Checked)
        return answer

    def _ask(self, job: _Job) -> Any:
        self._job = job
        answer = next(self._answers)
        if isinstance(answer, _Raised):
            raise Failed(f"while {job.kernels} were checked:\n{answer.text}")
        return answer

    def _jobs(self) -> Iterator[_Job]:
        while True:
            assert self._job is not None
            yield self._job


@dataclass(frozen=True, slots=True)
class _Job:
    """A case to check, a dtype to control, or neither: kernels to describe."""

    kernels: str
    dot: str
    case: Case | None = None
    number: int = -1
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class _Raised:
    text: str


def case_of(seed: str, number: int, axes: tuple[str, ...], budget: int) -> Case:
    """Case `number` of a seed's stream."""
    return draw(Random(f"{seed}/{number}").randrange, axes, budget)


def check_one(kernels: str, case: Case, dot: str = "sequential", hang: float = HANG) -> CaseFinding | None:
    """Check one case, in a process of its own. Raises NoKernels or Failed. Three seconds, and what the case takes."""
    with Bench(dot, hang) as bench:
        traits = bench.describe(kernels)
        ended = _uncontrolled(bench, kernels, traits)
        return bench.check(kernels, case).found or ended


def first_failure(
    bench: Bench, kernels: str, seed: str, cases: int, budget: int = 24
) -> tuple[CaseFinding | None, int]:
    """The first of `cases` small cases of `seed` that breaks a property, and how many were tried. Raises NoKernels or
    Failed."""
    traits = bench.describe(kernels)
    ended = _uncontrolled(bench, kernels, traits)
    for number in range(cases):
        found = bench.check(kernels, case_of(seed, number, traits.axes, budget), number).found
        if found is not None:
            return found, number + 1
    return ended, cases


def _uncontrolled(bench: Bench, kernels: str, traits: Traits) -> CaseFinding | None:
    """The first dtype's control that ends its process."""
    controls = (bench.control(kernels, dtype) for dtype in traits.dtypes)
    return next((ended for ended in controls if ended is not None), None)


# ---- in the process --------------------------------------------------------------------------------------------------

_made: dict[str, Checker] = {}
"""The last kernels, by name. A process has one `dot`."""


def _answer(job: _Job) -> Traits | Checked | str | _Raised | None:
    try:
        if job.case is None and not job.dtype:
            return _described(job)
        checker = _checker(job)
        return _controlled(checker, job.dtype) if job.case is None else _checked(checker, job.case, job.number)
    except Exception:  # of ours: the kernels' own have become violations
        return _Raised(traceback.format_exc())


def _checker(job: _Job) -> Checker:
    if job.kernels not in _made:
        sanitize = _prepared(job.dot)
        from properties.attention.checks import Checker

        made = load_kernels(job.kernels)()
        if lacking := [name for name in _PROTOCOL if not hasattr(made, name)]:
            raise UnknownTarget(
                f"kernels {job.kernels}: their factory returned {shown(made)}, which lacks {', '.join(lacking)}; "
                "expected what properties.attention.kernels.Kernels describes"
            )
        _made.clear()
        _made[job.kernels] = Checker(made, sanitize=sanitize)
    return _made[job.kernels]


def _prepared(dot: str) -> bool:
    """Kernels run in this process as `dot` says; whether accesses can be sanitized."""
    if dot.startswith(COMPILED):
        from properties.attention.compiled import begin

        begin(int(dot.removeprefix(COMPILED)))
        return False  # the emulator looks at every access itself
    from properties.attention.interpret import prepare

    prepare(dot)
    return True


_PROTOCOL = ("name", "axes", "limits", "arithmetic", "supports", "store", "attend", "copy")


def _described(job: _Job) -> Traits | str:
    """The traits, or why there are none."""
    try:
        kernels = _checker(job).kernels
        from properties.attention.kernels import AXES, DTYPES

        return Traits(tuple(axis for axis in AXES if axis in kernels.axes), dict(kernels.limits), tuple(DTYPES))
    except (UnknownTarget, ImportError) as error:
        return str(error)
    except BaseException as error:  # this process is for that
        return f"kernels {job.kernels}: {ended('their factory', error).message}"


def _controlled(checker: Checker, dtype: str) -> str | None:
    from properties.attention.checks import Blind, poison_is_seen
    from reference import Violation

    try:
        with suppress(Violation):  # wrong in what this needs: the first cases will say so, with a case
            poison_is_seen(checker.kernels, dtype, sanitize=checker.launches.sanitize)
    except Blind as error:
        return f"these kernels cannot be judged: {error}"
    return None


def _checked(checker: Checker, case: Case, number: int) -> Checked:
    from properties.attention.checks import Counts
    from reference import Violation

    checker.counts = Counts()
    found = None
    try:
        checker.check(case)
    except Violation as violation:
        found = CaseFinding(violation.id, violation.message, case, number)
    return Checked(found, asdict(checker.counts))
