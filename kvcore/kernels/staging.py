"""What goes to the device in a step: packed in one piece of host memory, and copied in one copy that nobody waits for.

Two pieces of host memory take turns. While the device copies from one, the next step is packed into the other. So the
host waits only where the device is two copies behind, and planning step n + 1 overlaps step n. The memory is pinned:
from other memory CUDA copies only while the host waits.

Copies are done in the order of the device's current stream, as the kernels are that read them.

Also imports: numpy, torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Copier", "Layout", "Piece", "Staging"]

_ALIGNMENT = 64
"""Bytes. Every array begins at a multiple: Triton compiles anew for a pointer that is not aligned to 16."""

_DTYPES = {"int32": torch.int32, "int64": torch.int64, "float64": torch.float64}


class Piece(NamedTuple):
    """An array, and what fills its place up where that is larger."""

    array: npt.NDArray[Any]
    filler: float = 0


class Layout:
    """Where each of several arrays lies in one piece of memory. shapes: of each, with its dtype. size: bytes of all."""

    def __init__(self, shapes: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
        self._places: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]] = []
        self.size = 0
        for shape, dtype in shapes:
            end = self.size + math.prod(shape) * dtype.itemsize
            self._places.append((self.size, end, shape, dtype))
            self.size = end + -end % _ALIGNMENT

    def arrays(self, memory: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
        """The arrays as views of host memory [size or more]. O(arrays)."""
        return [memory[begin:end].view(dtype).reshape(shape) for begin, end, shape, dtype in self._places]

    def tensors(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The arrays as views of a buffer uint8 [size]. O(arrays)."""
        return [buffer[begin:end].view(_DTYPES[dtype.name]).view(shape) for begin, end, shape, dtype in self._places]


class Copier(Protocol):
    """What a device is told to do."""

    def memory(self, size: int) -> torch.Tensor:
        """uint8 [size] of host memory that it can copy from by itself."""
        ...

    def copy(self, source: torch.Tensor, to: torch.Tensor) -> Callable[[], object]:
        """Begin to copy. What is returned waits until it is done."""
        ...


class _Cuda:
    def memory(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def copy(self, source: torch.Tensor, to: torch.Tensor) -> Callable[[], object]:
        to.copy_(source, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(to.device))
        return event.synchronize


class _Waiting:
    """Of devices that are neither CUDA nor the CPU."""

    def memory(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def copy(self, source: torch.Tensor, to: torch.Tensor) -> Callable[[], object]:
        to.copy_(source)
        return _done


def _done() -> None:
    """Nothing to wait for."""


class _Half:
    """One of the two pieces of host memory. wait: until the device has copied it."""

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.wait: Callable[[], object] = _done
        self.layout: Layout | None = None
        self.arrays: list[npt.NDArray[Any]] = []

    def laid_out(self, layout: Layout, copier: Copier) -> list[npt.NDArray[Any]]:
        if len(self.memory) < layout.size:
            self.memory = copier.memory(1 << (layout.size - 1).bit_length())
            self.layout = None
        if self.layout is not layout:
            self.layout, self.arrays = layout, layout.arrays(self.memory.numpy())
        return self.arrays


class Staging:
    """Sends arrays to one device. copier: by default CUDA's; none for the CPU, where a buffer is written itself.

    Not for several threads at once.
    """

    def __init__(self, device: torch.device, copier: Copier | None = None) -> None:
        self.device = device
        self._copier = copier or {"cuda": _Cuda(), "cpu": None}.get(device.type, _Waiting())
        self._halves = _Half(), _Half()
        self._turn = 0

    def send(self, layout: Layout, pieces: Sequence[Piece], buffer: torch.Tensor) -> None:
        """Fill `buffer` (uint8 [layout.size], of the device) with `pieces`. O(bytes), and one copy."""
        if self._copier is None:
            _pack(pieces, layout.arrays(buffer.numpy()))
            return
        half = self._halves[self._turn]
        self._turn ^= 1
        half.wait()
        _pack(pieces, half.laid_out(layout, self._copier))
        half.wait = self._copier.copy(half.memory[: layout.size], buffer)

    def sent(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """One array as a tensor of the device. O(bytes), and one copy."""
        layout = Layout([(array.shape, array.dtype)])
        buffer = torch.empty(layout.size, dtype=torch.uint8, device=self.device)
        self.send(layout, [Piece(array)], buffer)
        return layout.tensors(buffer)[0]


def _pack(pieces: Sequence[Piece], places: Sequence[npt.NDArray[Any]]) -> None:
    for (array, filler), place in zip(pieces, places, strict=True):
        if array.shape != place.shape:
            place.fill(filler)
            place = place[tuple(map(slice, array.shape))]
        place[...] = array
