"""What a format of traces is: one function from a line of a file to a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from .request import Request

__all__ = ["Format"]


class Format(ABC):
    """One format. There is a new object for each file, which may keep what a heading says. expected: what a line holds,
    as errors say it."""

    expected: ClassVar[str]

    @abstractmethod
    def recognizes(self, line: bytes) -> bool:
        """Is this, the first line of a file that is not blank, of this format? Whether the line is right, `request`
        says."""

    @abstractmethod
    def request(self, line: bytes) -> Request | None:
        """The request in a line; None for a line that holds none, as a heading. Raises BadLine. O(line)."""
