"""Steps: the calls and lines of Python that an operation takes a core, this harness's own left out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Steps"]


class Steps:
    """Counts the steps of each operation; none where somebody else traces. last: of the last
    operation. most: of one operation."""

    def __init__(self) -> None:
        self.operations = 0
        self.most = 0
        self.last = 0

    def around(self, act: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(operation: Any) -> Any:
            self.operations += 1
            if sys.gettrace() is not None:
                return act(operation)
            self.last = 0
            sys.settrace(self._called)
            try:
                return act(operation)
            finally:
                sys.settrace(None)
                self.most = max(self.most, self.last)

        return counted

    def _called(self, frame: FrameType, event: str, value: Any) -> Any:
        home = frame.f_globals.get("__name__", "").partition(".")[0]
        if home in _HARNESS:
            return None
        self.last += 1  # a generator that goes on has no new line
        return self._line

    def _line(self, frame: FrameType, event: str, value: Any) -> Any:
        self.last += event == "line"
        return self._line


_HARNESS = frozenset({"properties", "reference", "fuzz"})
