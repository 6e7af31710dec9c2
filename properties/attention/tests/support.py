"""Kernels in plain torch, right until told to lie: what the checks are tried with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from properties.attention.kernels import AXES, Cache, How, Spec, Step, Watch
from properties.attention.oracle import exact


class Plain:
    """Float64 attention over the paged cache. `lie` may change an output, given (out, step, how, cache)."""

    name = "plain"
    axes = frozenset(AXES)
    limits: Mapping[str, tuple[Any, ...]] = {}
    arithmetic: frozenset[str] = frozenset()

    def __init__(self, lie: Callable[..., None] | None = None, refuses: str | None = None) -> None:
        self.lie = lie
        self.refuses = refuses

    def supports(self, spec: Spec, dtype: str, block_size: int) -> str | None:
        return self.refuses

    def store(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        cache: Cache,
        slots: Sequence[int],
        watch: Watch,
        *,
        tags: torch.Tensor | None = None,
        token_tags: Sequence[int] | None = None,
    ) -> None:
        size = cache.keys.shape[2]
        for row, slot in enumerate(slots):
            if slot < 0:
                continue
            for plane, (new, into) in enumerate(((keys, cache.keys), (values, cache.values))):
                data = new[row]
                if cache.scales is not None:
                    data = (data.float() / cache.scales[plane, :, None]).clamp(-448.0, 448.0).to(into.dtype)
                bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[into.element_size()]
                into.view(bits)[slot // size, :, slot % size] = data.contiguous().view(bits)
            if tags is not None and token_tags is not None:
                tags[slot] = token_tags[row]

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, spec: Spec, how: How, out: torch.Tensor, watch: Watch
    ) -> None:
        size = cache.keys.shape[2]
        begin = 0
        for table, context, length in zip(step.tables.tolist(), step.contexts, step.lengths, strict=True):
            place = torch.arange(context)
            blocks = torch.tensor(table)[place // size] if context else place
            planes = []
            for plane, tensor in enumerate((cache.keys, cache.values)):
                data = tensor[blocks, :, place % size].double()
                planes.append(data if cache.scales is None else data * cache.scales[plane, :, None].double())
            # Row by row, over its own history alone: so the bits depend on nothing else.
            for row in range(length):
                seen = context - length + row + 1
                own = [data[:seen] for data in planes]
                if not all(bool(torch.isfinite(data).all()) for data in own):
                    out[begin + row] = float("nan")
                    continue
                right = exact(
                    queries[begin + row : begin + row + 1],
                    own[0],
                    own[1],
                    scale=spec.scale,
                    window=spec.window,
                    softcap=spec.softcap,
                    slopes=spec.slopes,
                )
                out[begin + row] = right.output[0].to(out.dtype)
            begin += length
        if self.lie is not None:
            self.lie(out, step, how, cache)

    def copy(self, cache: Cache, pairs: Sequence[tuple[int, int]], watch: Watch) -> None:
        for source, destination in pairs:
            for tensor in (cache.keys, cache.values):
                tensor.view(torch.uint8)[destination] = tensor.view(torch.uint8)[source]

    def audit(
        self,
        tags: torch.Tensor,
        tables: npt.NDArray[np.int32],
        block_size: int,
        expected: Sequence[Sequence[int]],
        watch: Watch,
    ) -> list[int]:
        found = []
        for table, own in zip(tables.tolist(), expected, strict=True):
            for place, tag in enumerate(own):
                there = int(tags[table[place // block_size] * block_size + place % block_size])
                found.append(-1 if there == tag else there)
        return found
