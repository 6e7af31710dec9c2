"""The matrix units: whether 16 rows (mma.sync) and 64 or 128 rows (wgmma, on Hopper) give the same bits.

The attention kernels use few rows for decode and many for prefill, and promise equal bits. So both units must sum in
the same way. No documentation says so; others measured it (MMA-Sim, arXiv 2511.10909). Here the same operands go
through both. The results also note what the sums depend on: the order of keys within sixteen, and the order of
sixteens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .context import Context
from .products import products

__all__ = ["KINDS", "multiply", "operands", "run"]


KINDS = ("normal", "wide exponents", "subnormal", "cancelling", "large accumulator", "row sums", "chained")
"""What the operands are like."""

_DTYPES = {"bfloat16": (torch.bfloat16, 7, 30), "float16": (torch.float16, 10, 7)}
"""dtype, bits of the significand, exponents of `wide exponents`: products and sums stay finite."""


def operands(
    kind: str, dtype: str, rows: int, inner: int, columns: int, device: torch.device, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(a [rows, inner], b [inner, columns], c float32 [rows, columns]) of one of `KINDS`, all finite."""
    kept, digits, spread = _DTYPES[dtype]
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device=device).normal_(generator=generator)

    def scaled(*shape: int) -> torch.Tensor:
        exponent = torch.randint(-spread, spread + 1, shape, device=device, generator=generator)
        return normal(*shape).clamp(-3, 3) * torch.exp2(exponent.float())

    def small(*shape: int) -> torch.Tensor:
        # Patterns with an exponent of 0 or 1: subnormal, or the smallest that are not.
        bits = torch.randint(0, 2 << digits, shape, device=device, generator=generator, dtype=torch.int32)
        sign = torch.randint(0, 2, shape, device=device, generator=generator, dtype=torch.int32)
        return (bits | sign << 15).to(torch.int16).view(kept)

    c = torch.zeros(rows, columns, device=device)
    if kind == "wide exponents":
        return scaled(rows, inner).to(kept), scaled(inner, columns).to(kept), c
    if kind == "subnormal":
        return small(rows, inner), normal(inner, columns).to(kept), c
    a, b = normal(rows, inner).to(kept), normal(inner, columns).to(kept)
    if kind == "cancelling":
        a[:, 1::2] = -a[:, ::2]
        b[1::2] = b[::2]
        noise = torch.rand(rows, inner, device=device, generator=generator) < 0.1
        a = torch.where(noise, a * 1.25, a)
    elif kind == "large accumulator":
        c = normal(rows, columns) * 2.0**20
    elif kind == "row sums":
        a = torch.exp2(-8 * torch.rand(rows, inner, device=device, generator=generator)).to(kept)
        b = torch.ones(inner, columns, dtype=kept, device=device)
    return a, b, c


def multiply(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, tile: int, *, step: int = 0, chained: bool = False
) -> tuple[torch.Tensor, str]:
    """(c + a @ b by programs of `tile` rows, which instruction did it)."""
    (rows, inner), columns = a.shape, b.shape[1]
    out = torch.empty(rows, inner if chained else columns, device=a.device)
    compiled: Any = products[(rows // tile,)](
        a,
        b,
        c,
        out,
        ROWS=tile,
        COLUMNS=columns,
        INNER=inner,
        STEP=step or inner,
        CHAINED=chained,
        num_warps=8 if tile >= 128 else 4,
        num_stages=2,
        enable_fp_fusion=False,
    )
    text = getattr(compiled, "asm", {}).get("ptx", "")
    names = [name for name in ("wgmma.mma_async", "mma.sync", "tcgen05.mma") if name in text]
    return out, "+".join(names) or "interpreted"


def run(context: Context) -> None:
    """All kinds of operands in both dtypes, then the effect of the order of the keys."""
    sizes = context.sizes
    table: list[dict[str, Any]] = []
    used: dict[int, set[str]] = {}
    for number, dtype in enumerate(_DTYPES):
        for kind in KINDS:
            if context.left < 2:
                context.cut(f"{dtype}, {kind} and what follows not reached")
                context.results.data["tables"]["units"] = table
                return
            _one(context, dtype, kind, number, table, used)
    few, many = used.get(16, set()), used.get(64, set()) | used.get(128, set())
    context.note(f"16 rows: {', '.join(sorted(few))}; 64 and 128 rows: {', '.join(sorted(many))}")
    if few == many and context.device.type == "cuda":
        context.note("this device multiplies few and many rows by one instruction: the comparison shows little")
    context.results.data["tables"]["units"] = table
    context.results.data["tables"]["order"] = [
        row for dtype in _DTYPES for row in _order(context, dtype, sizes.unit_rows)
    ]


def _one(
    context: Context, dtype: str, kind: str, number: int, table: list[dict[str, Any]], used: dict[int, set[str]]
) -> None:
    sizes = context.sizes
    compared = wrong = 0
    columns, chained = (16 if kind == "row sums" else 64), kind == "chained"
    for repeat in range(sizes.unit_repeats):
        a, b, c = operands(kind, dtype, sizes.unit_rows, 128, columns, context.device, 10 * repeat + number)
        outputs = []
        for tile in (16, 64, 128):
            out, how = multiply(a, b, c, tile, chained=chained)
            used.setdefault(tile, set()).add(how)
            outputs.append(out)
        if not bool(outputs[0].isfinite().all()):
            context.check(f"units: {dtype}, {kind}", False, "the product of finite operands is not finite")
            return
        for other in outputs[1:]:
            compared += other.numel()
            wrong += int((other.view(torch.int32) != outputs[0].view(torch.int32)).sum())
    table.append({"dtype": dtype, "kind": kind, "compared": compared, "differing": wrong})
    context.check(
        f"units: {dtype}, {kind}",
        not wrong,
        f"{wrong:,} of {compared:,} numbers differ between 16 rows and 64 or 128",
        compared=compared,
        differing=wrong,
    )


def _order(context: Context, dtype: str, rows: int) -> list[dict[str, Any]]:
    """How many numbers change if the keys are ordered or cut differently. Nothing has to hold here."""
    a, b, c = operands("normal", dtype, rows, 128, 64, context.device, 99)
    base, _ = multiply(a, b, c, 16)
    rng = np.random.default_rng(0)
    within = np.concatenate([16 * block + rng.permutation(16) for block in range(8)])
    halves = np.concatenate([8 * block + rng.permutation(8) for block in range(16)])
    across = np.concatenate([16 * block + np.arange(16) for block in rng.permutation(8)])
    found = []
    for what, order in (
        ("permuted within each 8 keys", halves),
        ("permuted within each 16 keys", within),
        ("sixteens permuted", across),
    ):
        index = torch.from_numpy(order).to(context.device)
        found.append((what, multiply(a[:, index].contiguous(), b[index].contiguous(), c, 16)[0]))
    for step in (16, 64):
        found.append((f"in steps of {step} keys, 16 rows", multiply(a, b, c, 16, step=step)[0]))
        found.append((f"in steps of {step} keys, 64 rows", multiply(a, b, c, 64, step=step)[0]))
    table = [
        {
            "dtype": dtype,
            "what": what,
            "compared": base.numel(),
            "differing": int((out.view(torch.int32) != base.view(torch.int32)).sum()),
        }
        for what, out in found
    ]
    predicted = _predicted(a[:64], b, c[:64], dtype)
    if predicted is not None:
        ours = base[:64].cpu().numpy().view(np.int32)
        table.append(
            {
                "dtype": dtype,
                "what": "against the published model of Hopper's units, on the CPU",
                "compared": ours.size,
                "differing": int((ours != predicted.view(np.int32)).sum()),
            }
        )
    return table


def _predicted(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, dtype: str) -> Any:
    """What that model gives, float32 [rows, columns]; None if it is not available."""
    try:
        from properties.attention.repairs import fused
    except Exception:  # it repairs the interpreter of one Triton release, and may not fit another's
        return None
    least = 2.0 ** (-126 if dtype == "bfloat16" else -14)
    wide = [tensor.float().cpu().numpy() for tensor in (a, b, c)]
    return fused(wide[0], wide[1], wide[2], products=16, bits=25, least=least)
