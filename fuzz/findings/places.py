"""Places in the target's code that a counterexample runs through, and how unusual each of them is.

Two counterexamples of one bug may break different properties, at different operations. But both have to run through the
code that is wrong, and that is seldom code that everything runs through. So symptoms carry the places that their
operations reached, weighted by how few short random runs on the same target reach them. What every run reaches counts
nothing.

A place is a line of a Python function, counted from where that begins, so that it stays the same when other functions
are edited. Of a core that is not written in Python there are none. Nothing is traced while hunting: once for what is
settled, and once per process and target for the random runs, half a second of processor time.
"""

from __future__ import annotations

import functools
import gc
import math
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, process_time
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import properties
import reference
from properties.boundary import made
from properties.operations import Configuration
from properties.session import Outcome, Session, watched
from properties.target import TargetFactory
from reference import Crash, Violation

from ..engines.walk import Limits, Walk
from ..runs.perform import perform
from ..runs.values import Counterexample, Judging

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["places_of"]

_RUNS, _LENGTH, _SECONDS, _WAITS = 60, 20, 3.0, 30.0
"""Random runs that say what is usual, operations of each, seconds of processor time for all of them, and seconds of the
clock, which a target may sleep away. By the clock alone a busy machine would make fewer runs, and other names."""

_CRASHES = 4
"""Runs that may end in an exception, which may have cost all memory each time, before no more are made."""

_FEWEST = 10
"""Of fewer runs nobody knows what is usual."""

_LONGEST = 400
"""Operations of a counterexample; a longer one runs through everything."""

_LOOSELY = Judging(outside=True, exact=False)
"""How the random runs are judged, which go on past violations."""

_SMALL = Limits(max_blocks=5, max_block_size=4, long_episodes=False)


def places_of(found: Counterexample, factory: TargetFactory) -> dict[str, int]:
    """The unusual places that `found` runs through up to its violation: how unusual, in tenths of a natural logarithm.

    Empty where nobody can tell: the core is not written in Python, the operations are too many, something else traces
    this process, or kernels are judged. O(lines run through)."""
    if found.judging.kernels or len(found.operations) > _LONGEST or sys.gettrace() is not None:
        return {}
    runs, usual = _usual(factory)
    if runs < _FEWEST:
        return {}
    reached = _Reached()
    with reached.watching():
        perform(factory, found.configuration, found.operations, found.judging, strict=True)
    weights = {place: round(10 * math.log((runs + 1) / (usual[place] + 1))) for place in reached.places()}
    return {place: weight for place, weight in sorted(weights.items()) if weight}


@functools.lru_cache(maxsize=4)
def _usual(factory: TargetFactory) -> tuple[int, Counter[str]]:
    """(how many random runs were made, how many of them reached each place)."""
    usual: Counter[str] = Counter()
    capabilities = made(factory, Configuration()).capabilities
    deadline, late, crashes = process_time() + _SECONDS, monotonic() + _WAITS, 0
    for number in range(_RUNS):
        if process_time() > deadline or monotonic() > late or crashes == _CRASHES:
            return number, usual
        walk = Walk(f"usual/{number}", capabilities, _SMALL)
        walk.length = _LENGTH
        reached = _Reached()
        with reached.watching():
            crashes += _crashes(_LOOSELY.session(factory, walk.configuration), walk)
        usual.update(reached.places())
    return _RUNS, usual


def _crashes(session: Session, walk: Walk) -> bool:
    """Do what the walk says to the end, whatever is violated: a bug that every run meets soon shall not make what lies
    behind it unusual. Only a CRASH ends it: is it one?"""
    with suppress(Exception):  # the model may have lost the core by then
        for operation in walk.operations(session):
            try:
                session.apply(operation)
            except Crash:
                return True
            except Violation:
                session.judge.findings.clear()
    return False


class _Reached:
    """The lines of a target's code that operations run through."""

    def __init__(self) -> None:
        self._lines: set[tuple[CodeType, int]] = set()
        self._follow: dict[CodeType, Any] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this lasts, each operation of each session of this process is traced. Nothing is collected meanwhile:
        what garbage runs as it goes is nobody's operation, and comes at any time."""

        def begun(session: Session, _: Session | None) -> None:
            session.around(self._traced)

        collecting = gc.isenabled()
        gc.disable()
        try:
            with watched(begun):
                yield
        finally:
            if collecting:
                gc.enable()

    def _traced(self, act: Callable[[Any], Outcome]) -> Callable[[Any], Outcome]:
        def traced(operation: Any) -> Outcome:
            sys.settrace(self._called)
            try:
                return act(operation)
            finally:
                sys.settrace(None)

        return traced

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        follow = self._follow.get(code, self)
        if follow is self:
            follow = self._follow[code] = self._line if _of_target(code.co_filename) else None
        return follow

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._lines.add((frame.f_code, frame.f_lineno))
        return self._line

    def places(self) -> set[str]:
        return {
            f"{Path(code.co_filename).name}:{code.co_qualname}+{line - code.co_firstlineno}"
            for code, line in self._lines
        }


_FUZZ = Path(__file__).parents[1]
_OURS = tuple(
    f"{folder}/" for folder in (*properties.__path__, *reference.__path__, _FUZZ, sysconfig.get_path("stdlib"))
)
_THEIRS = (f"{sysconfig.get_path('purelib')}/", f"{_FUZZ}/tests/", f"{_FUZZ}/example/")


def _of_target(file: str) -> bool:
    """Not the harness, and not Python's own library. Within these lie installed packages, and cores for tests."""
    return not file.startswith("<") and (file.startswith(_THEIRS) or not file.startswith(_OURS))
