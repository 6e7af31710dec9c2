"""Calls below `with_room` never cross the end of a chunk of CPython's stack."""

from __future__ import annotations

import resource
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from properties.stack import with_room

CALLS = 100


def leaf() -> None:
    """Its frame is larger than that of `faults_below`, so that at some depth it alone does not fit."""
    (a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u) = (0,) * 20
    del a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u


def most_faults() -> int:
    """Page faults of a hundred calls from one place, at the depth where they are most."""
    return max(faults_below(depth) for depth in range(150))


def faults_below(depth: int) -> int:
    if depth:
        return faults_below(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        leaf()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info >= (3, 13), reason="as seen in CPython 3.11 and 3.12")
def test_without_room_they_do() -> None:
    """Where this fails, CPython keeps an empty chunk, and `with_room` is no longer needed. In a thread, whose stack is
    its own: the tests of this checkout have room."""
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(most_faults).result() >= CALLS


@pytest.mark.skipif(sys.platform != "linux", reason="counts Linux's page faults")
def test_calls_cost_no_page_faults_at_any_depth() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(with_room, most_faults).result() < CALLS / 2


def test_arguments_results_and_exceptions_pass_through() -> None:
    assert with_room(divmod, 7, 2) == (3, 1)
    assert with_room(sorted, [1, 2], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        with_room(divmod, 7, 0)
