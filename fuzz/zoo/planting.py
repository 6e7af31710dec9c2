"""A copy of kvcore with a fault planted in its source, so that the code under test needs no switches.

The copy is imported under another name beside the real kvcore (kvcore imports itself relatively), and the kvcore
adapter drives it like any core. It is imported from memory. No file is written, so that a killed process leaves nothing
behind. A change that does not apply exactly once is an error, never a skip: a fault that silently no longer exists
would make the harness look better than it is.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import kvcore
from properties.operations import Configuration
from properties.target import TargetFactory
from properties.targets.kvcore import KvcoreTarget

__all__ = ["Change", "DoesNotApply", "changed", "plant", "planted"]


class DoesNotApply(ValueError):
    """The text to be replaced is not in the file exactly once. Update the fault to the source."""


@dataclass(frozen=True)
class Change:
    """In `file` of kvcore ("pool.py", "kernels/plan.py"), `old`, which occurs exactly once, becomes `new`."""

    file: str
    old: str
    new: str


class _Copies(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Finds and loads modules whose source is in memory. Tracebacks and `inspect.getsource`, by which Triton reads its
    kernels, ask a module's loader where there is no file."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, str]] = {}  # by module: (what its file is called, text)

    def add(self, name: str, texts: dict[str, str]) -> None:
        """A package called `name` from the text of each of its files."""
        for file, text in texts.items():
            module = ".".join([name, *file.removesuffix(".py").split("/")]).removesuffix(".__init__")
            self._sources[module] = f"{name}/{file}", text

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._sources:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname))

    def is_package(self, fullname: str) -> bool:
        return self.get_filename(fullname).endswith("/__init__.py")

    def get_filename(self, fullname: str) -> str:
        return self._sources[fullname][0]

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname][1]


_COPIES = _Copies()


def changed(changes: Sequence[Change]) -> dict[str, tuple[str, str]]:
    """(text before, text after) of each file that `changes` touch. Raises DoesNotApply. O(source)."""
    texts = _texts()
    result: dict[str, tuple[str, str]] = {}
    for change in changes:
        before, after = result.get(change.file, (texts.get(change.file, ""),) * 2)
        count = after.count(change.old)
        if count != 1:
            raise DoesNotApply(
                f"kvcore/{change.file}: the text to replace occurs {count} times, not once:\n{change.old}"
            )
        result[change.file] = before, after.replace(change.old, change.new)
    return result


def _texts() -> dict[str, str]:
    """kvcore's source, by file."""
    source = Path(kvcore.__file__).parent
    return {
        path.relative_to(source).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(source.rglob("*.py"))
        if "tests" not in path.relative_to(source).parts
    }


def plant(changes: Sequence[Change]) -> ModuleType:
    """kvcore with `changes`, as a module of its own. Raises DoesNotApply. O(source)."""
    texts = _texts()
    texts.update({file: after for file, (_, after) in changed(changes).items()})
    digest = hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in texts.items()).encode()).hexdigest()[:12]
    name = f"kvcore_planted_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    if _COPIES not in sys.meta_path:
        sys.meta_path.insert(0, _COPIES)  # before the path finder, which would look for a folder of that name
    _COPIES.add(name, texts)
    return importlib.import_module(name)


def planted(changes: Sequence[Change]) -> TargetFactory:
    """A target factory for the core with `changes`."""
    core = plant(changes)

    def make(configuration: Configuration) -> KvcoreTarget:
        return KvcoreTarget(configuration, core)

    return make
