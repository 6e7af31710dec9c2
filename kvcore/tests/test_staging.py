"""Staging: what is sent arrives as it was, however far the device is behind; the host waits for no more than that."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
import torch

from kvcore.kernels.staging import Layout, Piece, Staging


class Device:
    """Copies only when it is told to, or waited for. waited: for how many copies."""

    def __init__(self) -> None:
        self.behind: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.waited = 0

    def memory(self, size: int) -> torch.Tensor:
        return torch.full((size,), 0xAA, dtype=torch.uint8)

    def copy(self, source: torch.Tensor, to: torch.Tensor) -> Callable[[], object]:
        pair = source, to
        self.behind.append(pair)

        def wait() -> None:
            while any(one is pair for one in self.behind):
                self.waited += 1
                self.go_on()

        return wait

    def go_on(self) -> None:
        source, to = self.behind.pop(0)
        to.copy_(source)


def staging_on(device: Device) -> Staging:
    return Staging(torch.device("cpu"), device)


def sent(staging: Staging, *pieces: Piece, shapes: list[tuple[int, ...]] | None = None) -> list[torch.Tensor]:
    """Views of a buffer of its own that `pieces` were sent to."""
    of = shapes or [piece.array.shape for piece in pieces]
    layout = Layout([(shape, piece.array.dtype) for shape, piece in zip(of, pieces, strict=True)])
    buffer = torch.full((layout.size,), 0xBB, dtype=torch.uint8)
    staging.send(layout, pieces, buffer)
    return layout.tensors(buffer)


def numbers(*values: int) -> Piece:
    return Piece(np.array(values, dtype=np.int32))


def test_the_host_waits_only_where_the_device_is_two_copies_behind() -> None:
    device = Device()
    staging = staging_on(device)
    (first,), (second,) = sent(staging, numbers(1)), sent(staging, numbers(2))
    assert (device.waited, len(device.behind)) == (0, 2)
    (third,) = sent(staging, numbers(3))
    assert (device.waited, len(device.behind)) == (1, 2)
    assert first.tolist() == [1]
    while device.behind:
        device.go_on()
    assert [second.tolist(), third.tolist()] == [[2], [3]]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_sent_arrives_however_far_the_device_is_behind(seed: int) -> None:
    random = Random(seed)
    device = Device()
    staging = staging_on(device)
    expected = []
    for _ in range(40):
        pieces = [
            Piece(np.array([random.randrange(-(2**31), 2**31) for _ in range(random.randrange(40))], dtype=dtype))
            for dtype in random.choices((np.int32, np.int64, np.float64), k=random.randrange(1, 4))
        ]
        expected.append(([piece.array.tolist() for piece in pieces], sent(staging, *pieces)))
        if device.behind and random.random() < 0.4:
            device.go_on()
    while device.behind:
        device.go_on()
    for wanted, tensors in expected:
        assert [tensor.tolist() for tensor in tensors] == wanted


@pytest.mark.parametrize("device", [None, Device()], ids=["the CPU", "a device"])
def test_places_that_are_larger_are_filled_up(device: Device | None) -> None:
    staging = Staging(torch.device("cpu"), device)
    table = Piece(np.arange(6, dtype=np.int32).reshape(2, 3), -1)
    rows, more, none = sent(
        staging, table, numbers(7), Piece(np.zeros((0, 4), dtype=np.int64), -1), shapes=[(3, 4), (3,), (1, 4)]
    )
    if device is not None:
        device.go_on()
    assert rows.tolist() == [[0, 1, 2, -1], [3, 4, 5, -1], [-1] * 4]
    assert (more.tolist(), none.tolist()) == ([7, 0, 0], [[-1] * 4])


def test_arrays_begin_at_multiples_of_64_bytes_and_do_not_overlap() -> None:
    pieces = [numbers(*range(count)) for count in (1, 16, 17, 5)]
    tensors = sent(Staging(torch.device("cpu")), *pieces)
    begins = [tensor.data_ptr() - tensors[0].data_ptr() for tensor in tensors]
    assert begins == [0, 64, 128, 256]


def test_one_array_is_sent_to_a_tensor_of_its_own() -> None:
    staging = Staging(torch.device("cpu"))
    one, other = (staging.sent(np.array([[value, 2]], dtype=np.int64)) for value in (1, 3))
    assert (one.tolist(), other.tolist()) == ([[1, 2]], [[3, 2]])
    assert one.dtype is torch.int64
