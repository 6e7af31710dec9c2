"""For which GPU launches on host tensors are compiled in this process, where an emulator runs them; None where nothing
does. In a module of its own, which imports nothing, so that adapters can ask."""

from __future__ import annotations

__all__ = ["compiled_for", "set_compiled_for"]

_sm: int | None = None


def compiled_for() -> int | None:
    """80, 90, ...; None if launches on host tensors are interpreted, or not made at all."""
    return _sm


def set_compiled_for(sm: int | None) -> None:
    """By the emulator alone."""
    global _sm
    _sm = sm
