"""The oracle of a kernel's output: attention in float64, fast enough for long contexts, and what its error depends on.

This is the same function as `reference.attention`, which says what is right and is too slow for more than a few tokens.
Tests compare the two. Beside the output there are the three quantities that bound a kernel's error: how large the
scores are, how large the values are, and how far apart the values are.

It sees the keys and values of one sequence from its first token on, and no blocks. The budget for the error is in
`tolerance.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["Exact", "exact"]

_SCORES = 2**20
"""Scores held at a time, for a few float64 buffers of 8 MiB each. More is not faster."""


@dataclass(frozen=True, slots=True)
class Exact:
    """What a sequence's queries read, and how sensitive that is. All float64, on the queries' device.

    output: [q, Hq, D].
    peak: [q, Hq], the largest |score| among the keys that a row sees, times log2(e): in the units of a kernel that
    takes powers of two. The score as it enters the softmax, after scale, softcap and slopes.
    reach: [q, Hq], the largest |element| of the values that a row sees in its kv head. No output is larger.
    mixture: [q, Hq, D], sqrt(sum over keys j of p_j^2 (v_jd - output_d)^2), p the softmax's weights. To first order,
    what independent relative errors of one size in the unnormalized weights do to the output, in quadrature. It is 0
    where one key takes all, and where all values are equal.
    """

    output: torch.Tensor
    peak: torch.Tensor
    reach: torch.Tensor
    mixture: torch.Tensor


def exact(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    slopes: Sequence[float] | torch.Tensor | None = None,
) -> Exact:
    """What each query reads, by the rules of `reference.attention`.

    queries: [q, Hq, D], the last q positions of the context. keys, values: [n, Hkv, D], q <= n, Hq a multiple of Hkv.
    slopes: [Hq]. Floating dtypes of any kind (they become float64, which is exact), all on one device.

    Raises ValueError, saying what was given and what is allowed, for shapes that do not fit, no heads or elements,
    dtypes that are not floating, elements that are not finite, q > n, window < 1, and softcap <= 0.

    O(q n Hq D) time and O((q + n) Hq D) memory, besides at most a few times 8 MiB or one row's n Hq scores.
    """
    bias = None if slopes is None else torch.as_tensor(slopes, dtype=torch.float64, device=queries.device).detach()
    _check(queries, keys, values, scale, window, softcap, bias)
    (q, query_heads, size), (n, kv_heads) = queries.shape, keys.shape[:2]
    group = query_heads // kv_heads
    asked = _by_head(queries.detach().double(), kv_heads)
    # [Hkv, D, n], since everything below runs along the keys.
    stored, held = (tensor.detach().double().permute(1, 2, 0).contiguous() for tensor in (keys, values))
    largest = held.abs().amax(1)
    output, mixture = (torch.empty(queries.shape, dtype=torch.float64, device=queries.device) for _ in range(2))
    peak, reach = output.new_empty((q, query_heads)), output.new_empty((q, query_heads))
    filling = Exact(*(_by_head(tensor, kv_heads) for tensor in (output, peak, reach, mixture)))

    rows = max(1, _SCORES // (query_heads * max(n, 1)))
    for start in range(0, q, rows):
        stop = min(start + rows, q)
        # The keys [first, last) that any of these rows sees, and which of them each row does.
        last = n - q + stop
        first = 0 if window is None else max(0, n - q + start - window + 1)
        at = torch.arange(first, last, device=asked.device)
        distance = at - torch.arange(n - q + start, last, device=asked.device)[:, None]
        hidden = distance > 0
        if window is not None:
            hidden |= distance <= -window

        scores = torch.einsum("hgqd,hdn->hgqn", asked[:, :, start:stop], stored[:, :, first:last]).mul_(scale)
        if softcap is not None:
            scores.div_(softcap).tanh_().mul_(softcap)
        if bias is not None:
            scores += bias.view(kv_heads, group, 1, 1) * distance
        filling.peak[:, :, start:stop] = scores.abs().masked_fill_(hidden, 0).amax(-1) * math.log2(math.e)
        weights = torch.softmax(scores.masked_fill_(hidden, -math.inf), -1)
        read = torch.einsum("hgqn,hdn->hgqd", weights, held[:, :, first:last])
        filling.output[:, :, start:stop] = read
        filling.reach[:, :, start:stop] = largest[:, None, first:last].masked_fill(hidden, 0).amax(-1)[:, None]
        # Multiplied out this would be three products of matrices, and lose half of the digits where values are close.
        off = scores
        for element in range(size):
            torch.sub(held[:, None, None, element, first:last], read[..., element, None], out=off)
            filling.mixture[:, :, start:stop, element] = torch.linalg.vector_norm(off.mul_(weights), dim=-1)

    return Exact(output, peak, reach, mixture)


def _by_head(tensor: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[q, Hq, ...] as [Hkv, query heads that share one, q, ...]. The same memory."""
    return tensor.view(len(tensor), kv_heads, tensor.shape[1] // kv_heads, *tensor.shape[2:]).movedim(0, 2)


def _check(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    bias: torch.Tensor | None,
) -> None:
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if tensor.ndim != 3 or 0 in tensor.shape[1:]:
            raise ValueError(f"{name} are {list(tensor.shape)}; they must be [positions, heads >= 1, elements >= 1]")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} are {tensor.dtype}; they must be floating")
        if not tensor.double().isfinite().all():  # by way of float64, since float8 cannot be asked
            raise ValueError(f"{name} have elements that are not finite; all must be")
    if values.shape != keys.shape:
        raise ValueError(f"keys are {list(keys.shape)}, values {list(values.shape)}; they must agree")
    (q, query_heads, query_size), (n, kv_heads, size) = queries.shape, keys.shape
    if q > n:
        raise ValueError(f"{q} queries for {n} keys; queries are the last positions of the context, so at most {n}")
    if query_heads % kv_heads:
        raise ValueError(f"{query_heads} query heads for {kv_heads} kv heads; the former must be a multiple")
    if query_size != size:
        raise ValueError(f"queries have {query_size} elements a head, keys {size}; they must agree")
    if not math.isfinite(scale):
        raise ValueError(f"scale is {scale}; it must be finite")
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; it must be at least 1 (a query's own position), or None")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ValueError(f"softcap is {softcap}; it must be finite and above 0, or None")
    if bias is not None:
        if bias.shape != (query_heads,):
            raise ValueError(f"slopes are {list(bias.shape)} for {query_heads} query heads; each needs one")
        if not bias.isfinite().all():
            raise ValueError(f"slopes are {bias.tolist()}; each must be finite")
