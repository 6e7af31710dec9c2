"""What is compiled: the ways to use kvcore that are shipped, and which launches of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["ARCHITECTURES", "CONFIGURATIONS", "Configuration"]

ARCHITECTURES = (80, 90, 100)


@dataclass(frozen=True)
class Configuration:
    """One way to use kvcore, and which of its launches are compiled for it.

    dtype: of queries. cached: of the cache, if not the same. kernels: of store, attend, combine, copy, audit.
    features: of window, softcap, alibi. hot: compiled by `make test`, and held to every gate.
    """

    dtype: str = "bfloat16"
    cached: str | None = None
    head_dim: int = 128
    group: int = 4
    block_size: int = 16
    features: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ("attend",)
    hot: bool = False

    @property
    def name(self) -> str:
        cache = "+fp8" if self.cached else ""
        parts = (f"{_SHORT[self.dtype]}{cache}", f"D{self.head_dim}", f"G{self.group}", f"B{self.block_size}")
        return " ".join((*parts, *self.features))


_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_FP8 = "float8_e4m3"


def _cover() -> Iterator[Configuration]:
    """Not the full product: each dtype with the head dims that it is used with, and the other axes around them."""
    everything = ("store", "attend", "combine", "copy", "audit")
    yield Configuration(kernels=everything, hot=True)
    yield Configuration(cached=_FP8, kernels=("store", "attend", "combine", "copy"), hot=True)
    for dim in (16, 64, 72, 80, 96, 192, 256):
        yield Configuration(head_dim=dim, kernels=("store", "attend", "combine"))
        yield Configuration(cached=_FP8, head_dim=dim, kernels=("store", "attend"))
    for dim in (32, 64, 72, 80, 96, 128, 256):
        yield Configuration("float32", head_dim=dim, kernels=("store", "attend", "combine"))
    for dim in (64, 128, 256):
        yield Configuration("float16", head_dim=dim, kernels=("store", "attend"))
    for dtype in ("float16", "float32"):
        yield Configuration(dtype, _FP8, kernels=("store", "attend"))
    for group in (1, 5, 8, 16, 32, 128):
        yield Configuration(group=group, kernels=("attend", "combine"))
    for group in (1, 8):
        yield Configuration(cached=_FP8, group=group)
    yield Configuration(head_dim=64, group=1)
    yield Configuration("float32", group=1)
    for cached in (None, _FP8):
        yield Configuration(cached=cached, block_size=1, kernels=("store", "attend", "copy", "audit"))
    yield Configuration("float32", block_size=1, kernels=("store", "attend", "copy"))
    yield Configuration(block_size=256, kernels=("store", "attend", "copy"))
    for features in (("window",), ("softcap",), ("alibi",), ("window", "softcap", "alibi")):
        yield Configuration(features=features)
    yield Configuration(head_dim=256, group=2, features=("window", "softcap"))  # Gemma 2
    yield Configuration("float16", head_dim=64, group=1, features=("alibi",))  # BLOOM, MPT
    yield Configuration(cached=_FP8, group=8, features=("window",))
    yield Configuration("float32", head_dim=64, features=("window", "softcap", "alibi"))


CONFIGURATIONS = tuple(_cover())
