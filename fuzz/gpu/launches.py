"""Records kvcore's kernel launches, to launch one again by itself or to compile many at once.

A call from the host checks its arguments, sends indices to the device, and launches. Only the launch is timed. Kernels
that are compiled ahead are not launched at all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from kvcore.kernels import attention, cache

__all__ = ["Launch", "compile_ahead", "recorded"]

_KERNELS = ((attention, ("attend", "combine")), (cache, ("store_kv", "copy_blocks", "audit_slots")))


@dataclass(frozen=True)
class Launch:
    """One launch; call it to launch again, with the same tensors."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def __call__(self) -> None:
        self.kernel[self.grid](*self.arguments, **self.options)


class _Recording:
    """Takes the place of a kernel in its module."""

    def __init__(self, kernel: Any, seen: list[Launch], launching: bool) -> None:
        self._kernel = kernel
        self._seen = seen
        self._launching = launching

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def start(*arguments: Any, **options: Any) -> Any:
            self._seen.append(Launch(self._kernel, grid, arguments, options))
            if self._launching:
                return self._kernel[grid](*arguments, **options)
            return self._kernel.warmup(*arguments, grid=grid, **options)

        return start


@contextlib.contextmanager
def recorded(launching: bool = True) -> Iterator[list[Launch]]:
    """The launches of kvcore's kernels in this block, in order. Not launching: they are compiled only."""
    seen: list[Launch] = []
    before = [(module, name, getattr(module, name)) for module, names in _KERNELS for name in names]
    try:
        for module, name, kernel in before:
            setattr(module, name, _Recording(kernel, seen, launching))
        yield seen
    finally:
        for module, name, kernel in before:
            setattr(module, name, kernel)


def compile_ahead(calls: Sequence[Callable[[], object]], device: torch.device) -> int:
    """Compile what these calls would launch, on all cores of the host. Returns how many launches were looked at.

    Nothing is launched, so what the calls return means nothing. A kernel that does not compile is left to the call
    itself. Where Triton cannot compile ahead, nothing happens.
    """
    if device.type != "cuda":
        return 0
    try:
        from triton import AsyncCompileMode  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return 0
    threads = min(os.cpu_count() or 1, 16)
    launches = 0
    with (
        ThreadPoolExecutor(threads) as executor,
        contextlib.suppress(Exception),
        AsyncCompileMode(executor, ignore_errors=True),
        recorded(launching=False) as seen,
    ):
        for call in calls:
            with contextlib.suppress(Exception):
                call()
        launches = len(seen)
    return launches
