"""Launches kernels under watch: memory is compared byte by byte, and the sanitizer checks every access.

Shared by the checks of single cases and by the law that runs beside the allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from reference import Bounds, Equivalence, Violation

from ..boundary import ended
from .kernels import How, Kernels, Spec, Step, Unsupported, Watch, unwatched
from .world import GUARD, NAN, Arena, World

__all__ = ["Launches", "called"]

Answer = TypeVar("Answer")

_UNWRITTEN = -0x452453
"""As float32, a NaN that no arithmetic makes. An output holds it until it is written."""


class Launches:
    """One set of kernels. sanitize: watch every access; needs Triton's interpreter. accesses: elements looked at."""

    def __init__(self, kernels: Kernels, *, sanitize: bool = True) -> None:
        self.kernels = kernels
        self.sanitize = sanitize
        self.accesses = 0

    def store(
        self,
        world: World,
        arena: Arena,
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: Sequence[int],
        tags: torch.Tensor | None = None,
        token_tags: Sequence[int] | None = None,
    ) -> None:
        """Write rows [T, kv heads, D] to their slots: exactly those must change. Raises Equivalence or Bounds."""
        expected = arena.clone()
        live = [row for row, slot in enumerate(slots) if slot >= 0]
        size = arena.cache.keys.shape[2]
        where = torch.tensor([slots[row] for row in live], dtype=torch.int64, device=world.device)
        for plane, (new, cache) in enumerate(((keys, expected.cache.keys), (values, expected.cache.values))):
            _bits(cache)[where // size, :, where % size] = _bits(world.encoded(new[live], plane))
        self._launch(
            lambda watch: self.kernels.store(keys, values, arena.cache, slots, watch, tags=tags, token_tags=token_tags),
            lambda: _regions().for_store(arena.cache, slots, keys, values),
        )
        _same_memory("storing", arena, expected, where)

    def copy(self, arena: Arena, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks: exactly the destinations must change, to what the sources are. Raises Equivalence or Bounds."""
        expected = arena.clone()
        sources, destinations = (torch.tensor(side, device=arena.memory.device) for side in zip(*pairs, strict=True))
        for cache in (expected.cache.keys, expected.cache.values):
            _bits(cache)[destinations] = _bits(cache)[sources]
        self._launch(
            lambda watch: self.kernels.copy(arena.cache, pairs, watch), lambda: _regions().for_copy(arena.cache, pairs)
        )
        size = arena.cache.keys.shape[2]
        places = torch.arange(size, device=arena.memory.device)
        _same_memory("copying", arena, expected, (destinations[:, None] * size + places).flatten())

    def attend(
        self, world: World, arena: Arena, queries: torch.Tensor, step: Step, how: How, spec: Spec | None = None
    ) -> torch.Tensor:
        """float32 [rows, Hq, D]. The cache must stay as it is, every row be written, and nothing else.

        Raises Bounds or Equivalence."""
        size = queries.numel() * 4
        memory = torch.full((2 * GUARD + size,), NAN, dtype=torch.uint8, device=world.device)
        memory[GUARD : GUARD + size].view(torch.int32).fill_(_UNWRITTEN)
        out = memory[GUARD : GUARD + size].view(torch.float32).view(queries.shape)
        before = arena.memory.clone()
        self._launch(
            lambda watch: self.kernels.attend(queries, arena.cache, step, spec or world.spec, how, out, watch),
            lambda: _regions().for_attend(arena.cache, step, queries, out),
        )
        if not torch.equal(before, arena.memory):
            raise Bounds("attention changed the cache")
        if not (memory[:GUARD] == NAN).all() or not (memory[GUARD + size :] == NAN).all():
            raise Bounds("attention wrote outside its output")
        if not torch.isfinite(out).all():
            row, head, dim = (int(index) for index in (~torch.isfinite(out)).nonzero()[0])
            if (out[row, head].contiguous().view(torch.int32) == _UNWRITTEN).all():
                raise Equivalence(f"row {row}, head {head} of the output was not written")
            raise Bounds(
                f"row {row}, head {head}, dim {dim} is {out[row, head, dim]}: something that is not in its context was "
                "read (everything else is NaN), or its own sums are not finite"
            )
        return out

    def _launch(self, act: Callable[[Watch], None], regions: Callable[[], list[Any]]) -> None:
        if not self.sanitize:
            called(lambda: act(unwatched))
            return
        from .sanitizer import Sanitizer

        sanitizer = Sanitizer()
        known = regions()
        called(lambda: act(lambda own, choosers: sanitizer.watch(known, own, choosers)))
        self.accesses += sanitizer.accesses
        if sanitizer.reports:
            raise Bounds("; ".join(map(str, sanitizer.reports[:3])))


def called(act: Callable[[], Answer]) -> Answer:
    """What a call of the kernels returns. Whatever it raises is a violation of theirs, the end of the process that
    they ask for included; Unsupported passes through."""
    try:
        return act()
    except (Violation, Unsupported):
        raise
    except (Exception, SystemExit) as error:
        raise ended("the kernels", error) from error


def _regions() -> Any:
    """Imported only where there is a sanitizer: it needs Triton."""
    from . import regions

    return regions


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """As integers, so that NaNs compare and copy."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def _same_memory(what: str, arena: Arena, expected: Arena, slots: torch.Tensor) -> None:
    """Compares all bytes, red zones included. A wrong value that was to be written is EQUIVALENCE, the rest is
    BOUNDS."""
    if torch.equal(arena.memory, expected.memory):
        return
    size = arena.cache.keys.shape[2]
    blocks, places = slots // size, slots % size
    for name, got, wanted in (
        ("keys", arena.cache.keys, expected.cache.keys),
        ("values", arena.cache.values, expected.cache.values),
    ):
        different = (_bits(got)[blocks, :, places] != _bits(wanted)[blocks, :, places]).flatten(1).any(1)
        if different.any():
            raise Equivalence(f"{what}: {name} of slot {int(slots[different][0])} are not what was given")
    place = int((arena.memory != expected.memory).nonzero()[0])
    raise Bounds(f"{what} changed bytes that are not its own, first byte {place} of {arena.memory.numel()}")
