"""The same calls in plain torch, for CPU tensors without Triton, so that kvcore works on a laptop.

This path is held to the tolerance, not to the bits: sums are torch's, in float32.

Its arguments have been checked by `calls.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .calls import DevicePlan

__all__ = ["audit", "paged_attention", "store_kv"]

_CHUNK = 1 << 22
"""Most scores of one piece, so that a long prompt takes megabytes."""


def store_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    scales: torch.Tensor | None,
    tags: torch.Tensor | None,
    token_tags: torch.Tensor | None,
) -> None:
    rows = (slots >= 0).nonzero().flatten()
    slots = slots[rows]
    block_size = key_cache.shape[2]
    blocks, places = slots // block_size, slots % block_size
    for plane, (new, cache) in enumerate(((keys, key_cache), (values, value_cache))):
        data = new[rows]
        if scales is not None:
            data = (data.float() / scales[plane, :, None]).clamp(-448.0, 448.0)
        cache[blocks, :, places] = data.to(cache.dtype)
    if tags is not None and token_tags is not None:
        tags[slots] = token_tags[rows]


def paged_attention(
    queries: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    plan: DevicePlan,
    scales: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    host = plan.plan
    spec, batch, block_size = host.spec, host.batch, host.block_size
    slopes = None if spec.slopes is None else torch.tensor(spec.slopes)
    for sequence in range(batch.num_sequences):
        begin, end = map(int, batch.cu_seqlens[sequence : sequence + 2])
        context = int(batch.context_lengths[sequence])
        if begin == end:
            continue
        table = torch.from_numpy(batch.block_tables[sequence, : -(-context // block_size)]).long()
        keys, values = (
            # [blocks, heads, slots, dim] -> [heads, context, dim]
            cache[table].float().transpose(0, 1).flatten(1, 2)[:, :context].repeat_interleave(spec.group, 0)
            for cache in (key_cache, value_cache)
        )
        scale: float | torch.Tensor = spec.softmax_scale
        if scales is not None:
            scale = (scale * scales[0]).repeat_interleave(spec.group)[:, None, None]
        place = torch.arange(context)
        step = max(1, _CHUNK // (context * spec.num_heads))
        for first in range(begin, end, step):
            rows = slice(first, min(first + step, end))
            position = torch.arange(context - end + rows.start, context - end + rows.stop)[:, None]
            score = queries[rows].float().transpose(0, 1) @ keys.transpose(1, 2) * scale
            if spec.softcap is not None:
                score = spec.softcap * torch.tanh(score / spec.softcap)
            if slopes is not None:
                score = score + slopes[:, None, None] * (place - position)
            hidden = place > position
            if spec.window is not None:
                hidden = hidden | (position - place >= spec.window)
            result = torch.softmax(score.masked_fill(hidden, float("-inf")), -1) @ values
            if scales is not None:
                result = result * scales[1].repeat_interleave(spec.group)[:, None, None]
            out[rows] = result.transpose(0, 1).to(out.dtype)


def audit(
    tags: torch.Tensor,
    tables: torch.Tensor,
    expected: torch.Tensor,
    cu_expected: torch.Tensor,
    wrong: torch.Tensor,
    block_size: int,
) -> None:
    for sequence, (begin, end) in enumerate(zip(cu_expected[:-1].tolist(), cu_expected[1:].tolist(), strict=True)):
        position = torch.arange(end - begin)
        slot = tables[sequence].long()[position // block_size] * block_size + position % block_size
        inside = (slot >= 0) & (slot < tags.shape[0])
        found = torch.where(inside, tags[slot.clamp(0, tags.shape[0] - 1)], -2)
        wrong[begin:end] = torch.where(found == expected[begin:end], -1, found)
