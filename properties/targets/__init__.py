"""Adapters, one file for each core or set of kernels.

Only kvcore's adapters import kvcore. The adapters of vLLM and SGLang import those packages when they are asked for.

`load` finds a target factory by name: a file in this folder ("kvcore"), what an installed package registers, or
"package.module:factory" anywhere. A package registers its adapter in its own pyproject.toml:

    [project.entry-points."properties.targets"]
    mycore = "mycore.testing:make"

Imports: properties, reference.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..target import TargetFactory

if TYPE_CHECKING:
    from ..attention.kernels import Kernels

__all__ = ["KernelsFactory", "UnknownTarget", "available", "load", "load_kernels"]

KernelsFactory = Callable[[], "Kernels"]


class UnknownTarget(ValueError):
    """No factory under this name. Says what was tried."""


def load(name: str) -> TargetFactory:
    """The factory called `name`: "kvcore", one that is registered, or "package.module:factory". Raises UnknownTarget.

    A factory for a core that is not installed is found, too; it raises ImportError when it is called."""
    factory: TargetFactory = _load(name, _TARGETS, "")
    return factory


def load_kernels(name: str) -> KernelsFactory:
    """The factory of kernels called `name`: "kvcore" (a file name_kernels.py here), one registered in the group
    "properties.kernels", or "package.module:factory".

    Raises UnknownTarget, also where torch or Triton is not installed, or the package whose kernels these are (what to
    install is in the message).
    """
    factory: KernelsFactory = _load(name, _KERNELS, "_kernels")
    absent = getattr(sys.modules.get(getattr(factory, "__module__", "")), "absent", None)
    if callable(absent) and (reason := absent()) is not None:
        raise UnknownTarget(f"no target {name!r}: {reason}")
    return factory


def available(group: str = "properties.targets", suffix: str = "") -> list[str]:
    """The names that need no colon: files of this folder, then what is registered."""
    stems = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    files = [stem.removesuffix("_kernels") for stem in stems if stem.endswith("_kernels") == bool(suffix)]
    return [*files, *sorted(point.name for point in entry_points(group=group))]


_TARGETS, _KERNELS = "properties.targets", "properties.kernels"


def _load(name: str, group: str, suffix: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not attribute:
        for point in entry_points(group=group, name=name):
            module_name, attribute = point.module, point.attr
        if not attribute:
            module_name, attribute = f"{__name__}.{module_name}{suffix}", "make"
    try:
        module = importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:  # the latter two for names that cannot be a module's
        raise UnknownTarget(
            f"no target {name!r}: cannot import {module_name} ({error}); name one of "
            f"{', '.join(available(group, suffix))}, or package.module:factory"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise UnknownTarget(f"no target {name!r}: {module_name} has no callable {attribute!r}")
    return factory
