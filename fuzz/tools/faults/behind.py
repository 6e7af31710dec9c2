"""A shallow mistake stands in front of a harmful one: every episode that meets this has met that before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .fault import Came, Fault, Place, Said, Wrong, fault

__all__: list[str] = []

_TWO = """\
from fuzz.zoo import find
from properties.operations import Configuration
from properties.target import Target

deep = find({deep!r}).factory()

def make(configuration: Configuration) -> Target:
    target = deep(configuration)
{shallow}
    return target
"""
"""A bug of the zoo, and a shallow mistake in front of it: every operation that meets the one has met the other."""

_REFERENCES = """\
    states = target.states
    target.states = lambda blocks: [(count + 1, indexed) for count, indexed in states(blocks)]
"""
_CHECK = """\
    def check():
        raise AssertionError("the core's own check is wrong")
    target.check = check
"""
_CRASH = """\
    free, calls = target.free, []
    def raises(*given, **named):
        calls.append(given)
        if len(calls) == 6:
            raise IndexError("list index out of range")
        return free(*given, **named)
    target.free = raises
"""

_QUICK = ("--kernels", "none", "--seed", "1")


def _two(place: Place, shallow: str, deep: str, *flags: str) -> Said:
    place.write("toy.py", _TWO.format(deep=deep, shallow=shallow))
    return place.fuzz("run", "--target", "toy:make", *_QUICK, *flags)


def _harms(place: Place) -> dict[str, dict[str, Any]]:
    """What findings of the campaign lead to, by the property of the finding."""
    return {one["property"]: one["leads_to"] for one in place.summary()["findings"] if one["leads_to"]}


def _named(place: Place, said: Said, *harms: str) -> Came:
    """One of `harms` is a finding, or what a finding leads to, with operations that show it when they are replayed."""
    said.must(1)
    for path in sorted((place.folder / "fuzz-out" / "findings").glob("*/*.json")):
        if path.name not in ("counterexample.json", "harm.json"):
            continue
        data = json.loads(path.read_text(encoding="utf-8"))
        met = data["property"]
        if met in harms:
            place.fuzz("replay", path, "--target", data["target"]).must(1, met, harm="lost")
            first = place.summary()["findings"][0]["property"]
            return said.came(f"{first} first; {_way(path)}{met}")
    found = [one["property"] for one in place.findings()]
    raise Wrong(
        f"lost: {', '.join(found)} found, which lead to {sorted(one['property'] for one in _harms(place).values())}"
    )


def _way(path: Path) -> str:
    return "it leads to " if path.name == "harm.json" else "behind it "


def _behind(name: str, what: str, shallow: str, deep: str, harm: tuple[str, ...], engine: str, budget: str) -> Fault:
    """A run with one engine on a shallow mistake in front of the bug `deep`, which does one of `harm`."""

    def attempt(place: Place) -> Came:
        return _named(place, _two(place, shallow, deep, "--engine", engine, "--budget", budget), *harm)

    attempt.__module__ = __name__
    return fault(name, what)(attempt)


walk_counts = _behind(
    "count-hides-history",
    "every reference count is wrong, in front of a hit with another history; the walk",
    _REFERENCES, "NV-2", ("HISTORY",), "walk", "12s",
)  # fmt: skip
machine_counts = _behind(
    "count-hides-history-from-hypothesis",
    "every reference count is wrong, in front of a hit with another history; Hypothesis",
    _REFERENCES, "NV-2", ("HISTORY",), "hypothesis", "12s",
)  # fmt: skip
walk_check = _behind(
    "check-hides-isolation",
    "the core's own check always fails, in front of a leak across namespaces; the walk",
    _CHECK, "VL-17", ("ISOLATION",), "walk", "12s",
)  # fmt: skip
walk_crash = _behind(
    "crash-hides-history",
    "the sixth free raises, in front of a hit with another history; the walk",
    _CRASH, "NV-2", ("HISTORY",), "walk", "20s",
)  # fmt: skip
machine_crash = _behind(
    "crash-hides-history-from-hypothesis",
    "the sixth free raises, in front of a hit with another history; Hypothesis",
    _CRASH, "NV-2", ("HISTORY",), "hypothesis", "20s",
)  # fmt: skip


def _alone(name: str, what: str, bug: str, harm: tuple[str, ...], budget: str = "12s") -> Fault:
    """A run on one bug of the zoo that is met first in the core's bookkeeping."""

    def attempt(place: Place) -> Came:
        said = place.fuzz("run", "--target", f"fuzz.zoo:{bug}", *_QUICK, "--engine", "walk", "--budget", budget)
        return _named(place, said, *harm)

    attempt.__module__ = __name__
    return fault(name, what)(attempt)


leaks = _alone(
    "leak-across-namespaces", "blocks are restored into any namespace; whatever is met first", "CC-19",
    ("ISOLATION",),
)  # fmt: skip


@fault("properties-behind-others", "--properties names the harm, and a wrong count is met before it every time")
def properties_behind(place: Place) -> Came:
    said = _two(place, _REFERENCES, "NV-2", "--engine", "walk", "--budget", "8s", "--properties", "HISTORY")
    said.must(1, "HISTORY")
    return said.came("HISTORY")
