"""A copy of kvcore with a fault planted in its source, so that the code under test needs no switches.

The copy is imported under a name of its own beside the real one (kvcore imports itself relatively), and the kvcore
adapter drives it like any core. A change that does not apply exactly once is an error, never a skip: a fault that
silently no longer exists would make the harness look better than it is.

This room may not know: which faults there are.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tempfile
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


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""Kept until the process ends: parts of a copy are imported late, and Triton reads its kernels' source again."""


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
        if "tests" not in path.parts
    }


def plant(changes: Sequence[Change]) -> ModuleType:
    """kvcore with `changes`, as a module of its own. Raises DoesNotApply. O(source)."""
    texts = _texts()
    texts.update({file: after for file, (_, after) in changed(changes).items()})
    digest = hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in texts.items()).encode()).hexdigest()[:12]
    name = f"kvcore_planted_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="planted-"))
    folder = Path(_FOLDERS[-1].name)
    for file, text in texts.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def planted(changes: Sequence[Change]) -> TargetFactory:
    """A target factory for the core with `changes`."""
    core = plant(changes)

    def make(configuration: Configuration) -> KvcoreTarget:
        return KvcoreTarget(configuration, core)

    return make
