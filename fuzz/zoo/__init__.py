"""The zoo: defects that real block managers and kernels have had, as small changes of kvcore's source.

Each bug is one TOML file: what it is, where it was reported, what it breaks, which property should kill it, and the
change itself, as text that occurs exactly once in a file of kvcore. Production code has no switches:
`fuzz.zoo.planting` makes a changed copy. A change that no longer applies is an error wherever the zoo is read, never
a skip.

Every bug is a target, too: `--target fuzz.zoo:NV-1` drives kvcore with that bug planted, and `fuzz.zoo:NV-1+KC-30`
with two, where they do not change the same text.

A bug's fields:

- id: that of the catalogue it was taken from (NV nano-vllm, MS mini-sglang, VL vLLM, SG SGLang, TR TensorRT-LLM, ...);
  KC-n for what was found in kvcore or thought up here.
- properties: the one that should kill it, then others that may notice it first. Bookkeeping is compared after every
  operation, and the harm itself shows only later: which comes first depends on the run.
- blind: those that may kill it where the core cannot be inspected and nothing is predicted; none if not tried.
- minimum: operations of the shortest counterexample known, judged in full; blind_minimum: the same from outside.
- by: what must find it. "walk", the default, is any engine of operations. "regression" is for a bug that takes them
  hours: an audit only replays the file of `fuzz/regressions` that `where` names. For kernels: "cases", the stream of
  attention cases; "machine", the allocator's machine with the kernels beside it; "large", addresses beyond 2**31
  elements (where: the scenario); "control", a check that must raise an alarm when something is wrong; "nothing", a
  change that cannot change a result (why: the reason) and so must survive. It is a promise of the design, no bug.

Imports: properties, reference, kvcore.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from properties.target import TargetFactory
from reference import PROPERTIES

from .planting import Change, changed, plant, planted

__all__ = ["BY", "Bug", "InvalidBug", "allocator_bugs", "canary", "diff", "find", "kernel_bugs"]

FOLDER = Path(__file__).parent

BY = ("walk", "regression", "cases", "machine", "large", "control", "nothing")


class InvalidBug(ValueError):
    """A file of the zoo is not what it should be, or there is no bug of this id. Says which and why."""


@dataclass(frozen=True)
class Bug:
    """One defect. See the head of this module for the fields."""

    id: str
    title: str
    reference: str
    kind: str
    breaks: str
    properties: tuple[str, ...]
    changes: tuple[Change, ...]
    blind: tuple[str, ...] = ()
    minimum: int = 0
    blind_minimum: int = 0
    by: str = "walk"
    where: str = ""
    why: str = ""

    @property
    def expected(self) -> str:
        """The property that ought to kill it; "" for what must survive."""
        return self.properties[0] if self.properties else ""

    def factory(self) -> TargetFactory:
        """kvcore with this bug. Raises DoesNotApply. O(kvcore's source) the first time."""
        return planted(self.changes)


_REQUIRED = {"id": str, "title": str, "reference": str, "class": str, "breaks": str, "properties": list, "change": list}
_OPTIONAL = {"blind": list, "minimum": int, "blind_minimum": int, "by": str, "where": str, "why": str}


def read(path: Path) -> Bug:
    """The bug in one file. Raises InvalidBug. O(file)."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidBug(f"{path.name}: not TOML: {error}") from error
    known = {**_REQUIRED, **_OPTIONAL}
    for name, value in data.items():
        if name not in known or not isinstance(value, known[name]):
            raise InvalidBug(f"{path.name}: {name} = {value!r:.60} is not one of {', '.join(known)}, of its type")
    if missing := [name for name in _REQUIRED if name not in data]:
        raise InvalidBug(f"{path.name}: no {', '.join(missing)}")
    if unknown := [name for name in (*data["properties"], *data.get("blind", ())) if name not in PROPERTIES]:
        raise InvalidBug(f"{path.name}: no properties {unknown}; there are {', '.join(PROPERTIES)}")
    by = data.get("by", BY[0])
    if by not in BY or not data["change"] or bool(data["properties"]) == (by == "nothing"):
        raise InvalidBug(
            f"{path.name}: name at least one change, and at least one property unless it is by nothing; "
            f"by = {by!r} is one of {', '.join(BY)}"
        )
    try:
        changes = tuple(Change(**change) for change in data["change"])
    except TypeError as error:
        raise InvalidBug(f"{path.name}: a change has file, old and new: {error}") from error
    return Bug(
        id=data["id"],
        title=data["title"],
        reference=data["reference"],
        kind=data["class"],
        breaks=data["breaks"],
        properties=tuple(data["properties"]),
        changes=changes,
        blind=tuple(data.get("blind", ())),
        minimum=data.get("minimum", 0),
        blind_minimum=data.get("blind_minimum", 0),
        by=by,
        where=data.get("where", ""),
        why=data.get("why", ""),
    )


@functools.cache
def allocator_bugs() -> tuple[Bug, ...]:
    """Every bug of the allocator, by class and id. Raises InvalidBug. O(zoo)."""
    return _folder("allocator")


@functools.cache
def kernel_bugs() -> tuple[Bug, ...]:
    """Every bug of the kernels, and what must survive there, by class and id. Raises InvalidBug. O(zoo)."""
    return _folder("kernels")


@functools.cache
def canary() -> Bug:
    """A leak so rare that about one seed in a hundred meets it: what an audit must report to be believed."""
    return read(FOLDER / "canary.toml")


def _folder(name: str) -> tuple[Bug, ...]:
    bugs: dict[str, Bug] = {}
    for path in sorted((FOLDER / name).glob("*.toml")):
        bug = read(path)
        if bug.id in bugs or not path.name.startswith(f"{bug.id.lower()}-"):
            raise InvalidBug(f"{path.name}: {bug.id} is used twice, or is not what the file's name begins with")
        bugs[bug.id] = bug
    return tuple(sorted(bugs.values(), key=lambda bug: (bug.kind, _order(bug.id))))


def _order(id: str) -> tuple[str, int, str]:
    letters, _, number = id.partition("-")
    digits = number.rstrip("abcdefgh")
    return letters, int(digits or 0), number[len(digits) :]


def find(id: str) -> Bug:
    """The bug with this id, in upper or lower case. Raises InvalidBug. O(zoo)."""
    for bug in (*allocator_bugs(), *kernel_bugs(), canary()):
        if bug.id.lower() == id.lower():
            return bug
    raise InvalidBug(f"no bug {id!r} in the zoo; `python -m fuzz audit --list` shows all")


def diff(bug: Bug) -> str:
    """The bug's changes as a unified diff of kvcore's source. Raises DoesNotApply. O(source)."""
    lines: list[str] = []
    for file, (before, after) in changed(bug.changes).items():
        lines += difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"kvcore/{file}", f"kvcore/{file}", n=2, lineterm=""
        )
    return "\n".join(lines)


def kernels_factory(bug: Bug) -> Callable[[], Any]:
    """What `load_kernels` is to give for `bug`: kvcore's kernels with it. torch is imported when it is called."""

    def make() -> Any:
        from properties.targets.kvcore_kernels import KvcoreKernels

        return KvcoreKernels(plant(bug.changes))

    return make


def __getattr__(name: str) -> Any:
    if "-" not in name:  # what a module may be asked for in passing
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if "+" in name:
            return planted([change for one in name.split("+") for change in find(one).changes])
        bug = find(name)
        return kernels_factory(bug) if bug in kernel_bugs() else bug.factory()
    except InvalidBug as error:
        raise AttributeError(str(error)) from error
