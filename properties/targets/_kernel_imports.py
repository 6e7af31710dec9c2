"""Imports another project's kernels without the engine around them.

An engine's package runs a lot of code when it is imported (configuration, CUDA, a hundred dependencies). Its Triton
kernels need only a few names of it. So while one module is imported, the package is replaced by empty packages on its
own folders and by the stand-ins that an adapter gives. Nothing is written, and afterwards `sys.modules` is as before:
the same process may also drive that engine's allocator, with the whole package.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["absent", "import_kernels", "version"]


def absent(package: str, distribution: str) -> str | None:
    """What to install, or None where `package` can be found. It is not imported. O(1)."""
    if importlib.util.find_spec(package) is not None:
        return None
    return f"{package} is not installed: pip install --no-deps {distribution}"


def version(distributions: Iterable[str]) -> str:
    """Name and version of the first of these distributions that is installed, else "unknown version"."""
    for name in distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown version"


def import_kernels(
    modules: Iterable[str], hollow: Iterable[str], stand_ins: Mapping[str, Mapping[str, Any]]
) -> list[Any]:
    """The modules, imported afresh, as a list.

    modules: dotted names in one package. hollow: its (sub)packages whose __init__ is not to run. stand_ins: modules
    that are not to be imported at all, and the names that kernels take from them.

    Raises ImportError, for one of `modules` and for what else of the package they turn out to need.
    """
    modules = list(modules)
    package = modules[0].partition(".")[0]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"there is no package {package}")
    root = Path(next(iter(spec.submodule_search_locations)))
    mine = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    for name in mine:
        del sys.modules[name]
    try:
        for name in (package, *hollow):
            folder = ModuleType(name)
            folder.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = folder
        for name, names in stand_ins.items():
            module = ModuleType(name)
            vars(module).update(names)
            sys.modules[name] = module
        return [importlib.import_module(name) for name in modules]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
        sys.modules.update(mine)
