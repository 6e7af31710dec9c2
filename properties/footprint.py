"""How much an object holds: the entries of all containers that it reaches, and pieces of its buffers.

For cores in Python. The modules and classes of the roots' packages are looked into, too, since a cache may hang there
(`functools.cache`, a dictionary of a class). This harness is not, nor numpy and torch; of the standard library only
what holds things for others is. Who imported a module is nobody's state: pytest's loader knows the whole run.
"""

from __future__ import annotations

import builtins
import gc
import sys
from collections import deque
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

__all__ = ["entries"]

_HARNESS = frozenset({"properties", "reference", "fuzz"})
_OTHERS = frozenset({*sys.stdlib_module_names, *_HARNESS, "numpy", "torch"})
_HOLDERS = frozenset(
    {"builtins", "collections", "functools", "weakref", "_weakref", "types", "array", "queue", "_queue", "_thread"}
)
"""Modules of the standard library whose objects hold what others put there."""

_NOBODYS = (FrameType, TracebackType)
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_PIECE = 64
"""Bytes of a buffer that count as one entry."""


def entries(*roots: Any, most: int = 4_000_000) -> int:
    """Entries of containers and pieces of buffers that `roots` reach, each object once. Stops at `most` objects.

    The same for equal states of one process. O(objects reached)."""
    homes = {_home(type(root)) for root in roots} - _OTHERS
    seen = {id(root) for root in roots}
    waiting, total = list(roots), 0
    while waiting and len(seen) < most:
        one = waiting.pop()
        if isinstance(one, _CONTAINERS):
            total += 1 + len(one)
        elif (size := _bytes(one)) >= 0:
            total += 1 + size // _PIECE
            continue
        else:
            total += 1
        for other in gc.get_referents(one):
            if id(other) not in seen and _counts(other, homes):
                seen.add(id(other))
                waiting.append(other)
    return total


def _home(kind: Any) -> str:
    return str(getattr(kind, "__module__", None) or "").partition(".")[0]


def _bytes(one: Any) -> int:
    """How long a buffer is; -1 for anything else."""
    if isinstance(one, str | bytes | bytearray):
        return len(one)
    size = getattr(type(one), "itemsize", None)
    if size is None:
        return -1
    return int(getattr(one, "nbytes", 0) or len(one) * one.itemsize)


def _counts(one: Any, homes: set[str]) -> bool:
    kind = type(one)
    if kind in (int, float, bool, type(None)) or one is builtins.__dict__:
        return False
    if isinstance(one, ModuleType):
        return one.__name__.partition(".")[0] in homes
    if isinstance(one, type | FunctionType):
        return _home(one) in homes
    home = _home(kind)
    if home in homes:
        return True
    # An adapter's own method may be the core's callback; what the adapter holds is not the core's.
    if home in _HARNESS or isinstance(one, _NOBODYS) or hasattr(kind, "exec_module"):
        return False
    return home in _HOLDERS or home not in sys.stdlib_module_names
