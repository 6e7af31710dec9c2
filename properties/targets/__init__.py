"""Adapters, one file a core. kvcore's is the only module of this room that imports kvcore.

`load` finds a target factory by name: a file in this folder ("kvcore"), or "package.module:factory" anywhere.
"""

from __future__ import annotations

import importlib

from ..target import TargetFactory

__all__ = ["UnknownTarget", "load"]


class UnknownTarget(ValueError):
    """No factory under this name. Says what was tried."""


def load(name: str) -> TargetFactory:
    """The factory called `name`: "kvcore", or "package.module:factory". Raises UnknownTarget."""
    module_name, _, attribute = name.partition(":")
    if not attribute:
        module_name, attribute = f"{__name__}.{module_name}", "make"
    try:
        module = importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:  # the latter two for names that cannot be a module's
        raise UnknownTarget(
            f"no target {name!r}: cannot import {module_name} ({error}); name a file in properties/targets, "
            "or package.module:factory"
        ) from error
    factory: TargetFactory | None = getattr(module, attribute, None)
    if not callable(factory):
        raise UnknownTarget(f"no target {name!r}: {module_name} has no callable {attribute!r}")
    return factory
