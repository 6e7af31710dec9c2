"""Room on Python's own stack, for loops that call much.

CPython keeps the frames of a thread in chunks of 16 KiB. A chunk is returned to the system as soon as it is empty, so a
loop whose calls just cross the end of one pays for a new chunk, two system calls and a page fault, at every call. A
kernel in Triton's interpreter then took three times as long, by nothing but how deep the caller's stack was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["with_room"]

P = ParamSpec("P")
T = TypeVar("T")


def with_room(call: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs) -> T:
    """call(*arguments, **keywords), with half a megabyte in one chunk for the frames below. About 10 us."""
    return call(*arguments, **keywords)


# A frame is never split, so one that asks for more than half a megabyte is given a chunk of one. It uses nothing of
# what it asks for, and the other half is for the calls below.
with_room.__code__ = with_room.__code__.replace(co_stacksize=(1 << 19) // 8)
