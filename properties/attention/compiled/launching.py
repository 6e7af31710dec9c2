"""Launches of Triton kernels, compiled for a GPU that is not there and run by the emulator on host tensors.

Within `emulating(90)` every launch of every Triton kernel in this process is compiled by Triton's own JIT for sm_90,
and its PTX is run. Whoever calls kernels does so as always, with CPU tensors. Needs a process in which Triton compiles
(TRITON_INTERPRET is not set).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch

from reference import Bounds

from ..host import compiled_for, set_compiled_for
from .bits import Array
from .machine import Machine
from .memory import Fault, Global, Region
from .text import parse

__all__ = ["Emulation", "Target", "begin", "emulating"]

Rewrite = Callable[[str, str], str]


class Target:
    """As much of a Triton driver as its JIT asks for to compile: which GPU."""

    def __init__(self, sm: int) -> None:
        self.sm = sm

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.sm, 32)

    def get_current_device(self) -> int:
        return self.sm  # each has its own in-process cache of kernels

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass
class Emulation:
    """What was run. rewrite: changes a kernel's PTX before it is run, given its name; for planted faults."""

    sm: int
    rewrite: Rewrite | None = None
    launches: int = 0
    steps: int = 0
    accesses: int = 0
    kernels: dict[str, int] = field(default_factory=dict)


@functools.lru_cache(maxsize=256)
def _machine(text: str) -> Machine:
    return Machine(parse(text))


@contextlib.contextmanager
def emulating(sm: int, *, rewrite: Rewrite | None = None) -> Iterator[Emulation]:
    """What compiled code does that it must not is a violation, Bounds, of the call. Raises RuntimeError where Triton
    interprets kernels."""
    from triton import knobs
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    if knobs.runtime.interpret:
        raise RuntimeError("Triton interprets kernels in this process; to compile them, start without TRITON_INTERPRET")
    emulation = Emulation(sm, rewrite)
    compile_for = JITFunction.run

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool = False, **keywords: Any) -> Any:
        kernel = compile_for(self, *arguments, grid=grid, warmup=True, **keywords)
        if not warmup:
            bound = _bound(self, arguments, keywords)
            _run(emulation, kernel, grid(bound) if callable(grid) else grid, bound)
        return kernel

    outer, before = compiled_for(), vars(driver).get("_active")
    driver.set_active(Target(sm))
    set_compiled_for(sm)
    try:
        with mock.patch.object(JITFunction, "run", run):
            yield emulation
    finally:
        set_compiled_for(outer)
        if before is not None:
            driver.set_active(before)  # where none was, asking for one would fail without a GPU


def begin(sm: int) -> Emulation:
    """The same, until this process ends. One thread for torch: the tensors are small, and several processes may run."""
    torch.set_num_threads(1)
    return _for_good.enter_context(emulating(sm))


_for_good = contextlib.ExitStack()


def _bound(function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the kernel's parameters, with defaults."""
    bound = function.signature.bind(
        *arguments, **{name: value for name, value in keywords.items() if name in function.signature.parameters}
    )
    bound.apply_defaults()
    return dict(bound.arguments)


def _run(emulation: Emulation, kernel: Any, grid: Any, bound: dict[str, Any]) -> None:
    text: str = kernel.asm["ptx"]
    if emulation.rewrite is not None:
        text = emulation.rewrite(kernel.name, text)
    machine = _machine(text)
    signature = kernel.src.signature
    given = [(name, bound[name]) for name in bound if signature.get(name) != "constexpr"]
    widths = [_WIDTHS[kind] for _, kind in machine.kernel.parameters]
    values = [_parameter(value, kind) for (_, value), (_, kind) in zip(given, machine.kernel.parameters, strict=False)]
    # What is left is Triton's own scratch memory, of which these kernels have none.
    values += [np.zeros((1, 1), width) for width in widths[len(values) :]]
    regions = [_region(name, value) for name, value in given if isinstance(value, torch.Tensor)]
    whole = tuple(map(int, grid)) + (1,) * (3 - len(grid))
    memory = Global(regions)
    before = machine.steps
    try:
        machine.run((whole[0], whole[1], whole[2]), values, memory, int(kernel.metadata.shared))
    except Fault as fault:
        raise Bounds(f"{kernel.name} on sm_{emulation.sm}: {fault}") from fault
    emulation.launches += 1
    emulation.steps += machine.steps - before
    emulation.accesses += memory.accesses
    emulation.kernels[kernel.name] = emulation.kernels.get(kernel.name, 0) + 1


_WIDTHS = {
    "u64": np.uint64, "s64": np.uint64, "b64": np.uint64, "f64": np.uint64, "u32": np.uint32, "s32": np.uint32,
    "b32": np.uint32, "f32": np.uint32, "u16": np.uint16, "b16": np.uint16, "u8": np.uint8, "b8": np.uint8,
}  # fmt: skip


def _parameter(value: Any, kind: str) -> Array:
    width = _WIDTHS[kind]
    if isinstance(value, torch.Tensor):
        return np.array([[value.data_ptr()]], np.uint64)
    if isinstance(value, float):
        return np.array([[value]], np.float64 if width is np.uint64 else np.float32).view(width)
    bits = 8 * np.dtype(width).itemsize
    return np.array([[int(value) & ((1 << bits) - 1)]], width)


def _region(name: str, tensor: torch.Tensor) -> Region:
    """All the memory that the tensor is a view of."""
    storage = tensor.untyped_storage()
    data = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,)).numpy()
    return Region(name, storage.data_ptr(), data)
