"""Global and shared memory, every access checked.

Global memory is what the launch was given: the tensors' own bytes, at their own addresses. Shared memory follows, for
each piece of it, who wrote it and who read it since the last barrier. Warps of a CTA run in lockstep here, so a race
never shows in the numbers; it shows in that ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .bits import Array

__all__ = ["Fault", "Global", "Region", "Shared"]

Places = npt.NDArray[np.int64]


class Fault(Exception):
    """The compiled code does what no schedule may: says what, without the line, which the machine adds."""


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes that a launch may touch. begin: address. data: uint8, of the host, which stores change."""

    name: str
    begin: int
    data: npt.NDArray[np.uint8]


class Global:
    """All regions of a launch. Regions may overlap: the first that holds an access serves it."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = regions
        self.accesses = 0

    def load(self, addresses: Places, size: int) -> Array:
        """uint8 [n, size] at n addresses. Raises Fault."""
        result = np.empty((len(addresses), size), dtype=np.uint8)
        for region, which, offsets in self._found(addresses, size, "reads"):
            result[which] = region.data[offsets]
        return result

    def store(self, addresses: Places, data: Array) -> None:
        """data uint8 [n, size]. Raises Fault."""
        for region, which, offsets in self._found(addresses, data.shape[1], "writes"):
            region.data[offsets] = data[which]

    def _found(self, addresses: Places, size: int, what: str) -> list[tuple[Region, Array, Places]]:
        self.accesses += len(addresses)
        if (addresses % size).any():
            place = int(addresses[addresses % size != 0][0])
            raise Fault(f"{what} {size} bytes at {place:#x}, which is no multiple of {size}")
        found = []
        left = np.ones(len(addresses), dtype=np.bool_)
        span = np.arange(size)
        for region in self._regions:
            offsets = addresses - region.begin
            inside = left & (offsets >= 0) & (offsets + size <= len(region.data))
            if inside.any():
                found.append((region, inside, offsets[inside][:, None] + span))
                left &= ~inside
                if not left.any():
                    break
        if left.any():
            raise Fault(f"{what} {size} bytes at {self._describe(int(addresses[left][0]))}")
        return found

    def _describe(self, address: int) -> str:
        lower = [region for region in self._regions if region.begin <= address]
        if not lower:
            return f"{address:#x}, before every tensor"
        before = max(lower, key=lambda region: region.begin)
        return f"byte {address - before.begin} of {before.name}, which has {len(before.data)}"


_SEVERAL, _TOGETHER = 63, 62
"""In place of a warp: several; and all four of a warpgroup at once, which no single warp may have written for."""

_NEVER = -1


class Shared:
    """Shared memory of several CTAs in lockstep. size: bytes of each. granule: bytes of the finest access.

    A place is (CTA, granule) in one number. Ledgers hold epoch * 64 + warp, `epoch` counting barriers.
    """

    def __init__(self, ctas: int, size: int, granule: int) -> None:
        self.granule = granule
        size += -size % 16
        self.data = np.full((ctas, size), 0xFF, dtype=np.uint8)
        shape = ctas, size // granule
        self.epoch = 0
        self._writer = np.full(shape, _NEVER, dtype=np.int64)
        self._reader = np.full(shape, _NEVER, dtype=np.int64)
        self._flying = np.zeros(shape, dtype=np.int16)  # cp.async that nobody has waited for
        self._busy = np.zeros(shape, dtype=np.int16)  # wgmma that reads it
        self._unfenced = np.zeros(shape, dtype=np.bool_)  # what the tensor core may not see yet

    def select(self, chosen: Array) -> Shared:
        """Those CTAs, with memory of their own."""
        other = Shared.__new__(Shared)
        other.granule, other.epoch = self.granule, self.epoch
        for name in ("data", "_writer", "_reader", "_flying", "_busy", "_unfenced"):
            setattr(other, name, getattr(self, name)[chosen])
        return other

    def barrier(self) -> None:
        self.epoch += 1

    def fence(self) -> None:
        """What threads have written is seen by the tensor core."""
        self._unfenced[:] = False

    def read(self, ctas: Array, offsets: Array, size: int, warps: Array | None) -> Array:
        """uint8 [n, size] at n (CTA, offset), by `warps`; None: by a tensor core, for a warpgroup. Raises Fault."""
        rows, places = self._places(ctas, offsets, size)
        tensor_core = warps is None
        warps = np.full((1, 1), _TOGETHER) if warps is None else warps[:, None]
        if tensor_core and self._unfenced[rows, places].any():
            raise Fault("a tensor core reads shared memory that threads wrote, with no fence.proxy.async between")
        if self._flying[rows, places].any():
            wrong = self._flying[rows, places] > 0
            raise Fault(f"reads what cp.async is still copying, {self._at(offsets, places, wrong)}")
        writer = self._writer[rows, places]
        if (writer == _NEVER).any():
            raise Fault(f"reads shared memory that nothing has written, {self._at(offsets, places, writer == _NEVER)}")
        self._conflict(writer, warps, "reads what another warp wrote", offsets, places)
        code = self.epoch * 64 + warps
        before = self._reader[rows, places]
        other = (before >> 6 == self.epoch) & (before != code)
        self._note(self._reader, rows, places, np.where(other, self.epoch * 64 + _SEVERAL, code))
        return self.data[ctas[:, None], offsets[:, None] + np.arange(size)]

    def write(self, ctas: Array, offsets: Array, data: Array, warps: Array) -> None:
        """data uint8 [n, size]. Raises Fault."""
        self.claim(ctas, offsets, data.shape[1], warps)
        self._put(ctas, offsets, data, warps)

    def claim(self, ctas: Array, offsets: Array, size: int, warps: Array) -> None:
        """May it be written now? Raises Fault."""
        rows, places = self._places(ctas, offsets, size)
        warps = warps[:, None]
        if (self._flying[rows, places] > 0).any():
            wrong = self._flying[rows, places] > 0
            raise Fault(f"writes where cp.async is still copying to, {self._at(offsets, places, wrong)}")
        if (self._busy[rows, places] > 0).any():
            wrong = self._busy[rows, places] > 0
            raise Fault(f"writes what a tensor core is still reading, {self._at(offsets, places, wrong)}")
        self._conflict(self._writer[rows, places], warps, "writes what another warp wrote", offsets, places)
        self._conflict(self._reader[rows, places], warps, "writes what another warp read", offsets, places)

    def fly(self, ctas: Array, offsets: Array, size: int, warps: Array) -> None:
        """cp.async begins to copy there."""
        self.claim(ctas, offsets, size, warps)
        self._flying[self._places(ctas, offsets, size)] += 1

    def land(self, ctas: Array, offsets: Array, data: Array, warps: Array) -> None:
        """What cp.async copied is there, for the threads that waited; for others, behind a barrier."""
        self._flying[self._places(ctas, offsets, data.shape[1])] -= 1
        self._put(ctas, offsets, data, warps)

    def busy(self, ctas: Array, offsets: Array, size: int, by: int) -> None:
        """A tensor core begins (1) or ends (-1) to read there."""
        rows, places = self._places(ctas, offsets, size)
        np.add.at(self._busy, (rows, places), np.int16(by))

    def _put(self, ctas: Array, offsets: Array, data: Array, warps: Array) -> None:
        rows, places = self._places(ctas, offsets, data.shape[1])
        self._note(self._writer, rows, places, np.broadcast_to(self.epoch * 64 + warps[:, None], rows.shape))
        self._unfenced[rows, places] = True
        span = offsets[:, None] + np.arange(data.shape[1])
        self.data[ctas[:, None], span] = data
        # Warps that compute the same write the same to one place, which is as good as one of them.
        wrong = self.data[ctas[:, None], span] != data
        if wrong.any():
            raise Fault(f"threads write different values to one place at once, at byte {int(span[wrong][0])}")

    def _note(self, ledger: Array, rows: Array, places: Array, codes: Array) -> None:
        ledger[rows, places] = codes
        lost = ledger[rows, places] != codes  # warps that read one place in one instruction
        if lost.any():
            ledger[rows[lost], places[lost]] = self.epoch * 64 + _SEVERAL

    def _conflict(self, ledger: Array, warps: Array, what: str, offsets: Array, places: Array) -> None:
        wrong = (ledger >> 6 == self.epoch) & (ledger & 63 != warps) & (ledger >= 0)
        if wrong.any():
            raise Fault(f"{what} since the last barrier, {self._at(offsets, places, wrong)}")

    def _places(self, ctas: Array, offsets: Array, size: int) -> tuple[Array, Array]:
        if (offsets % size).any():
            raise Fault(f"an access of {size} bytes to shared memory at {int(offsets[offsets % size != 0][0])}")
        if (offsets < 0).any() or (offsets + size > self.data.shape[1]).any():
            wrong = (offsets < 0) | (offsets + size > self.data.shape[1])
            raise Fault(f"byte {int(offsets[wrong][0])} of shared memory, which has {self.data.shape[1]}")
        places = offsets[:, None] // self.granule + np.arange(max(1, size // self.granule))
        return np.broadcast_to(ctas[:, None], places.shape), places

    def _at(self, offsets: Array, places: Array, wrong: Array) -> str:
        return f"at byte {int(np.broadcast_to(places, wrong.shape)[wrong][0]) * self.granule}"
