"""The parts of a run, most important first, and the share of the time that each may take."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

__all__ = ["GOALS", "PARTS", "Goal", "Name", "Part", "chosen", "limit"]


class Name(str, Enum):
    """The parts, by the name that `--only` takes."""

    rates = "rates"
    correctness = "correctness"
    bits = "bits"
    units = "units"
    decode = "decode"
    prefill = "prefill"
    tax = "tax"
    moves = "moves"
    large = "large"


class Part(NamedTuple):
    """share: seconds in a run of eight minutes. Unused time goes to the parts after it."""

    name: str
    share: float
    title: str


PARTS = (
    Part("rates", 15, "what the device can do, copy bandwidth and bf16 products"),
    Part("correctness", 100, "against float64, every unused slot poisoned"),
    Part("bits", 95, "one data set, many schedules, bit by bit"),
    Part("units", 25, "mma.sync against wgmma, bit by bit"),
    Part("decode", 75, "one token a sequence, beside SDPA"),
    Part("prefill", 60, "whole prompts and chunks, beside SDPA"),
    Part("tax", 25, "the price of invariance, leaves of 512 against one leaf"),
    Part("moves", 20, "store and copy"),
    Part("large", 25, "a cache of more than 2**31 elements"),
)
"""In order of importance."""


class Goal(NamedTuple):
    """A target figure. unit: its unit; at_least: whether more is better.

    device: what the device's name must contain for the number to mean anything, or "" for all.
    """

    name: str
    what: str
    target: float
    unit: str
    at_least: bool = True
    device: str = ""


GOALS = (
    Goal(
        "decode-uniform",
        "decode, equal lengths, groups of 4 and 8, KV of 512 MB and more, blocks of 16: worst",
        0.90,
        "of copy",
    ),
    Goal("decode-zipf", "decode, Zipf lengths", 0.85, "of copy"),
    Goal("decode-block-1", "decode, blocks of 1 token", 0.80, "of copy"),
    Goal("decode-long", "decode, one sequence of 128k", 0.80, "of copy"),
    Goal("decode-short", "decode, one sequence of 8k, with combine", 16, "us", at_least=False, device="H200"),
    Goal("decode-fp8", "decode, tokens/s of an FP8 cache against bf16", 1.6, "times"),
    Goal("prefill-rate", "prefill, 8k to 16k, causal, D = 128: worst", 450, "TFLOP/s", device="H200"),
    Goal("prefill-flash", "prefill, 8k to 16k, against SDPA's flash back end: worst", 1.0, "times"),
    Goal("prefill-cudnn", "prefill, 8k to 16k, against SDPA's cuDNN back end: worst", 0.70, "times"),
    Goal("prefill-chunked", "a chunk of 2k on a prefix of 16k, against 16k at once", 0.90, "of its TFLOP/s"),
    Goal("tax-decode", "price of invariance, decode: worst", 0.03, "more time", at_least=False),
    Goal("tax-prefill", "price of invariance, prefill: worst", 0.03, "more time", at_least=False),
    Goal("store", "store 64 MB", 0.85, "of copy"),
    Goal("copy", "copy 64 MB of blocks", 0.90, "of copy"),
    Goal("store-short", "store 128 tokens", 5, "us", at_least=False, device="H200"),
)
"""What the kernels were designed for. A goal that is missed is no failed check; the report says so."""


_RELATIVE = {"decode", "prefill", "tax", "moves"}
"""Parts whose numbers mean little without the device's own rates."""


def chosen(only: Iterable[Name]) -> tuple[str, ...]:
    """The parts to run, in order: all, or `only` these and what they need."""
    wanted = {name.value for name in only} or {part.name for part in PARTS}
    if wanted & _RELATIVE:
        wanted.add("rates")
    return tuple(part.name for part in PARTS if part.name in wanted)


def limit(name: str, remaining: float, later: tuple[str, ...]) -> float:
    """Seconds that a part may take, if `remaining` are left for it and the `later` parts: in proportion to shares."""
    shares = {part.name: part.share for part in PARTS}
    return remaining * shares[name] / (shares[name] + sum(shares[other] for other in later))
