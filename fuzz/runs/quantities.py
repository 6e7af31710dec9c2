"""Times and sizes as people write them: "10m", "4GiB"."""

from __future__ import annotations

from typing import Any

__all__ = ["bytes_of", "seconds_of"]


def seconds_of(text: Any) -> float:
    """45, "45s", "10m" or "2h". Raises ValueError."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(str(text)[-1:], 0)
        seconds = float(str(text)[:-1]) * unit if unit else float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def bytes_of(text: Any) -> int:
    """ "4GiB", "500MiB", or bytes. Raises ValueError."""
    number, unit = str(text), 1
    for suffix, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number.endswith(suffix):
            number, unit = number.removesuffix(suffix), size
    value = int(float(number) * unit)
    if value < 0:
        raise ValueError(text)
    return value
