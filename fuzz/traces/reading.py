"""Reads a trace in any format of `fuzz.traces.formats`, which is told by the file's first line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import IO

from ..runs import bounds
from .format import Format
from .request import BadLine, Request, TraceError

__all__ = ["BUILT_IN", "FALLBACK", "formats", "read_trace"]

BUILT_IN = str(Path(__file__).with_name("multi_turn.jsonl"))
"""The trace that comes with the package."""

FALLBACK = "mooncake"
"""What a file is read as that no format recognizes: its errors are the ones to show."""

_FOLDER = "fuzz.traces.formats"


def formats() -> dict[str, type[Format]]:
    """All formats by name, as the folder has them."""
    found: dict[str, type[Format]] = {}
    for module in iter_modules(import_module(_FOLDER).__path__):
        format = import_module(f"{_FOLDER}.{module.name}").FORMAT
        assert issubclass(format, Format)
        found[module.name] = format
    return found


def _detected(line: bytes) -> Format:
    known = formats()
    for kind in known.values():
        format = kind()
        if format.recognizes(line):
            return format
    return known[FALLBACK]()


def _lines(file: gzip.GzipFile | IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of each, however much a packed file unpacks to. Raises TooMuch."""
    number = total = blanks = 0
    while line := file.readline(bounds.LINE + 1):
        number += 1
        total += len(line)
        if len(line) > bounds.LINE:
            raise bounds.TooMuch(f"a line of more than {bounds.LINE:,} bytes", f"{bounds.LINE:,} bytes", number)
        if total > bounds.TRACE:
            raise bounds.TooMuch(f"more than {bounds.TRACE:,} bytes up to here", f"{bounds.TRACE:,} bytes", number)
        blanks += line.isspace()
        if blanks > bounds.BLANKS:
            raise bounds.TooMuch(f"more than {bounds.BLANKS:,} blank lines", f"{bounds.BLANKS:,} blank lines", number)
        yield number, line


def read_trace(path: str | Path) -> list[Request]:
    """All requests of a trace; plain or gzip, told apart by the first two bytes. Blank lines are passed over.

    Raises TraceError: no such file, damaged or cut gzip, a line that is not a request of the file's format, more than
    `bounds` allows, no requests at all. O(file).
    """
    requests: list[Request] = []
    format: Format | None = None
    number = 0
    try:
        with open(path, "rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            for at, line in _lines(gzip.GzipFile(fileobj=raw) if packed else raw):
                number = at
                if line.isspace():
                    continue
                format = format or _detected(line)
                request = format.request(line)
                if request is not None:
                    requests.append(request)
                    if len(requests) > bounds.REQUESTS:
                        raise BadLine(f"more than {bounds.REQUESTS:,} requests", f"{bounds.REQUESTS:,} at most")
    except BadLine as error:
        raise TraceError(path, number, error.found, error.expected) from None
    except bounds.TooMuch as error:
        raise TraceError(path, error.line, error.found, f"{error.allowed} (allowed at most)") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(path, number + 1, f"a damaged or cut gzip stream ({error})", "a whole gzip file") from error
    except FileNotFoundError as error:
        raise TraceError(path, 0, "there is no such file", "a request trace in Mooncake's format") from error
    except OSError as error:
        raise TraceError(path, number, f"cannot read it ({error.strerror or error})", "a readable file") from error
    if not requests:
        raise TraceError(path, number, "no requests", (format or formats()[FALLBACK]).expected)
    return requests
