"""How far a kernel's float32 output may be from the exact one.

Two bounds, both in force:

- *of a case*: the largest error is at most 1.5 times the unavoidable one, half a unit in the last place (ulp) of the
  queries' dtype at the case's largest output, plus one float32 ulp of the largest value read. A maximum needs a sample:
  asked of cases with at least `SAMPLE` outputs. (FlashAttention's tests compare with a baseline of the same precision
  in this spirit, at 2 times.)
- *of each output*: kernels round the softmax's weights to the queries' dtype for the matrix unit. Rounding errors of at
  most `u`, independent, move the output by `u * mixture` in quadrature (see `oracle.Exact`); four times that, and 64
  float32 ulp of the largest value read for the sums. float32 queries have no such rounding: 1.5 times half an ulp of
  the row's largest output, and one ulp of the largest value.

Where kernels keep scores in float32, the scores' own last place counts too: one ulp of the largest |score| moves
weights by that part, and the output by at most that times twice the largest value. It matters for scores beyond a
hundred or so.

Both are for kernels as exact as ours. Other kernels state how their arithmetic differs (`kernels.ARITHMETIC`). With an
unrounded denominator the weights' rounding errors move the output by `u * sqrt(sum p^2 v^2)`, at most `u` times
`mixture` and |output| together; float32 queries whose sums are float32 get the bound of each output, with `u` that of
float32, and eight ulp of a score, which is a sum of head_dim products.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch

from .oracle import Exact

__all__ = ["SAMPLE", "tolerance", "ulp"]

SAMPLE = 256

_SIGNIFICAND = {torch.float32: (24, -126), torch.float16: (11, -14), torch.bfloat16: (8, -126)}
"""Bits of the significand, and the exponent of the smallest normal number."""


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbours of `dtype` at |values|, float64. O(values)."""
    bits, least = _SIGNIFICAND[dtype]
    exponent = torch.floor(torch.log2(values.abs().double().clamp_min(2.0**least)))
    return torch.exp2(exponent - bits + 1)


def tolerance(exacts: Sequence[Exact], dtype: torch.dtype, arithmetic: Collection[str] = ()) -> list[torch.Tensor]:
    """The error allowed to each output, float64 [q, Hq, D] for each sequence of a case. dtype: of the queries;
    arithmetic: what the kernels do otherwise than ours, of `kernels.ARITHMETIC`.

    O(outputs)."""
    largest = max((float(right.output.abs().max()) for right in exacts if right.output.numel()), default=0.0)
    outputs = sum(right.output.numel() for right in exacts)
    result = []
    for right in exacts:
        reach = ulp(right.reach, torch.float32)[..., None]
        if dtype is torch.float32 and "float32 sums" not in arithmetic:
            own = right.output.abs().amax(-1, keepdim=True) if right.output.numel() else right.output
            result.append(0.75 * ulp(own, dtype) + reach.expand(right.output.shape))
            continue
        scores = ulp(right.peak.clamp_min(1.0), torch.float32) * (2 * math.log(2)) * right.reach
        unit = 2.0 ** -_SIGNIFICAND[dtype][0]
        spread = right.mixture
        if "unrounded denominator" in arithmetic:
            spread = spread + right.output.abs()
        if dtype is torch.float32:
            scores = 8 * scores
        each = 4 * unit * spread + 64 * reach + scores[..., None]
        if outputs >= SAMPLE and dtype is not torch.float32:
            half = 0.5 * ulp(torch.tensor(largest, device=each.device), dtype)
            each = torch.minimum(each, 1.5 * half + reach + scores[..., None])
        result.append(each)
    return result
