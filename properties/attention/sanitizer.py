"""The KV sanitizer: which addresses a kernel touches, and whether that program may touch them.

In Triton's interpreter every load and store passes here as an array of addresses. Each address is looked up in the
*regions* of the launch: the tensors that the test made, with a label for each element (which slot, which row), and the
adapter's own tensors. An address outside every region is a wild access. An element of a labelled region must have a
label that is allowed to the program: a program that works for one sequence may read the slots of that sequence, and not
those of another, although both hold valid numbers. The output cannot show such a read when a masked weight makes it
harmless.

An access that is not allowed is noted and masked off, so that a wild store corrupts nothing, and the launch goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from triton.runtime import interpreter

from .kernels import ByPlace

__all__ = ["Region", "Report", "Sanitizer", "labelled"]

Allowed = Mapping[int | None, npt.NDArray[np.bool_]]
"""By sequence, or None for a program that has none: which labels are allowed; its last entry, for label -1, is
False."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The whole memory behind one tensor. labels: of each element of that memory, -1 for nobody's; None: all is
    allowed. reads, writes: see `Allowed`; None: none at all."""

    name: str
    low: int
    high: int
    size: int
    labels: npt.NDArray[np.int32] | None = None
    reads: Allowed | None = None
    writes: Allowed | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One access that was not allowed. kind: "load", "store" or "race" (another program stored there in this watch);
    region None: wild; labels: the first few."""

    kind: str
    region: str | None
    labels: tuple[int, ...]
    program: tuple[int, ...]
    sequence: int | None

    def __str__(self) -> str:
        who = f"program {self.program}" + (
            "" if self.sequence is None else f", which works for sequence {self.sequence}"
        )
        if self.kind == "race":
            return f"{self.region} is written by two programs, the second is {who}: which one is last is chance"
        if self.region is None:
            return f"{self.kind} outside every tensor by {who}"
        return f"{self.kind} of {self.region} {', '.join(map(str, self.labels))} by {who}, to whom it is not allowed"


def labelled(
    name: str,
    tensor: torch.Tensor,
    labels: torch.Tensor,
    *,
    reads: Allowed | None = None,
    writes: Allowed | None = None,
) -> Region:
    """The region of `tensor`, a view of any strides into its storage; labels has its shape (int32). O(storage)."""
    storage = tensor.untyped_storage()
    size = tensor.element_size()
    plain = torch.full((storage.nbytes() // size,), -1, dtype=torch.int32)
    plain.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(labels)
    low = storage.data_ptr()
    return Region(name, low, low + storage.nbytes(), size, plain.numpy(), reads, writes)


def _own(name: str, tensor: torch.Tensor) -> Region:
    """What an adapter made: a contiguous tensor, which may be a piece of a larger buffer."""
    low = tensor.data_ptr()
    return Region(name, low, low + tensor.numel() * tensor.element_size(), tensor.element_size())


@dataclass(slots=True)
class Sanitizer:
    """Watches launches. reports: what was not allowed, at most `LIMIT`. accesses: elements looked at."""

    LIMIT = 16

    reports: list[Report] = field(default_factory=list)
    accesses: int = 0
    _regions: list[Region] = field(default_factory=list)
    _lows: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _choosers: list[tuple[int, int, int, Sequence[int] | None]] = field(default_factory=list)
    """From, to, step; and if it is the place that says which sequence, those by place."""
    _program: tuple[int, ...] = ()
    _sequence: int | None = None
    _writers: dict[int, npt.NDArray[np.int32]] = field(default_factory=dict)
    """By region: who wrote each element, as a place in `_programs`; -1 for nobody."""
    _programs: dict[tuple[int, ...], int] = field(default_factory=dict)

    @contextlib.contextmanager
    def watch(
        self, regions: Sequence[Region], own: Mapping[str, torch.Tensor], choosers: Sequence[torch.Tensor | ByPlace]
    ) -> Iterator[None]:
        """While this lasts, every access of the interpreter is checked. Regions of one storage: the first counts."""
        known = {region.low: region for region in (_own(name, tensor) for name, tensor in own.items())}
        known.update((region.low, region) for region in reversed(regions))
        self._regions = sorted((region for region in known.values() if region.high > region.low), key=lambda r: r.low)
        self._lows = np.array([region.low for region in self._regions], dtype=np.int64)
        self._choosers = []
        for chooser in choosers:
            places = chooser.sequences if isinstance(chooser, ByPlace) else None
            tensor = chooser.tensor if isinstance(chooser, ByPlace) else chooser
            if tensor.numel():
                low, size = tensor.data_ptr(), tensor.element_size()
                self._choosers.append((low, low + tensor.numel() * size, size * tensor.stride(0), places))
        self._program, self._sequence = (), None
        self._writers, self._programs = {}, {}
        builder = interpreter.InterpreterBuilder
        load, store = builder.create_masked_load, builder.create_masked_store

        def masked_load(builder: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
            result = load(builder, pointers, self._look(builder, "load", pointers, mask), *rest)
            if self._choosers and pointers.data.size == 1:
                address = int(pointers.data.flat[0])
                for low, high, step, places in self._choosers:
                    if low <= address < high and (address - low) % step == 0:
                        self._sequence = int(result.data.flat[0]) if places is None else places[(address - low) // step]
            return result

        def masked_store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            return store(builder, pointers, value, self._look(builder, "store", pointers, mask), *rest)

        builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
        try:
            yield
        finally:
            builder.create_masked_load, builder.create_masked_store = load, store

    def _look(self, builder: Any, kind: str, pointers: Any, mask: Any) -> Any:
        if builder.grid_idx != self._program:
            self._program, self._sequence = builder.grid_idx, None
        addresses = np.asarray(pointers.data)
        wanted = np.broadcast_to(np.asarray(mask.data), addresses.shape)
        touched = addresses[wanted].astype(np.int64)
        if not touched.size:
            return mask
        self.accesses += touched.size
        fine = self._allowed(kind, touched)
        if fine.all():
            return mask
        left = wanted.copy()
        left[wanted] = fine
        return type(mask)(left, mask.dtype)

    def _allowed(self, kind: str, addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        place = np.searchsorted(self._lows, addresses, side="right") - 1
        first = int(place[0])
        if (place == first).all():
            fine = self._in_region(kind, first, addresses)
            if kind == "store" and fine.any():
                self._note(first, addresses[fine])
            return fine
        fine = np.zeros(addresses.shape, dtype=np.bool_)
        for number in np.unique(place).tolist():
            these = place == number
            fine[these] = self._in_region(kind, number, addresses[these])
        return fine

    def _in_region(self, kind: str, number: int, addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        region = self._regions[number] if number >= 0 else None
        inside = np.zeros(addresses.shape, np.bool_) if region is None else addresses < region.high
        if region is None or not inside.all():
            self._report(kind, None, ())
            return inside
        if region.labels is None:
            return inside
        allowed = region.reads if kind == "load" else region.writes
        labels = region.labels[(addresses - region.low) // region.size]
        if allowed is None:
            fine = np.zeros(addresses.shape, np.bool_)
        else:
            fine = allowed.get(self._sequence, allowed[None])[labels]
        if not fine.all():
            self._report(kind, region.name, tuple(np.unique(labels[~fine])[:4].tolist()))
        return fine

    def _note(self, number: int, addresses: npt.NDArray[np.int64]) -> None:
        region = self._regions[number]
        writers = self._writers.get(number)
        if writers is None:
            writers = self._writers[number] = np.full((region.high - region.low) // region.size, -1, np.int32)
        program = self._programs.setdefault(tuple(self._program), len(self._programs))
        places = (addresses - region.low) // region.size
        before = writers[places]
        if ((before != -1) & (before != program)).any():
            self._report("race", region.name, ())
        writers[places] = program

    def _report(self, kind: str, region: str | None, labels: tuple[int, ...]) -> None:
        if len(self.reports) < self.LIMIT:
            self.reports.append(Report(kind, region, labels, tuple(self._program), self._sequence))
