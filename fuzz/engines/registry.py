"""Which engines there are. A new one is a file beside this one and a line here.

Engines are named by where they are, and imported when they are asked for: who only wants their names pays nothing, and
nothing that an engine is made of is below what asks for engines.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from importlib import import_module

from .engine import Engine

__all__ = [
    "ENGINES",
    "UnknownEngine",
    "audited",
    "described",
    "engine_of",
    "engines",
    "not_hunted",
    "on_kernels",
    "planned",
    "shares",
    "thorough",
]

ENGINES = {
    "trace": "fuzz.engines.trace:TraceEngine",
    "walk": "fuzz.engines.swarm:WalkEngine",
    "hypothesis": "fuzz.engines.hypothesis:HypothesisEngine",
    "explore": "fuzz.engines.explore:ExploreEngine",
    "namespaces": "fuzz.engines.namespaces:NamespacesEngine",
    "keys": "fuzz.engines.keys:KeysEngine",
    "endurance": "fuzz.engines.endurance:EnduranceEngine",
    "kernels": "fuzz.engines.kernels:KernelsEngine",
    "atheris": "fuzz.engines.atheris:AtherisEngine",
}
"""By name, module:class. Where engines take turns, in this order."""


class UnknownEngine(ValueError):
    """There is no engine of this name. Says which there are."""


def engine_of(name: str) -> Engine:
    """The engine called `name`. Raises UnknownEngine."""
    if name not in ENGINES:
        raise UnknownEngine(f"there is no {name!r}; known are {', '.join(ENGINES)}")
    return _loaded(ENGINES[name])


@functools.cache
def _loaded(place: str) -> Engine:
    module, _, name = place.partition(":")
    engine = getattr(import_module(module), name)()
    assert isinstance(engine, Engine)
    return engine


def engines() -> list[Engine]:
    """All of them, in their order."""
    return [engine_of(name) for name in ENGINES]


def shares() -> dict[str, float]:
    """Parts of the time in a run that names no engine."""
    return {engine.name: engine.share for engine in engines() if engine.share}


def planned() -> dict[str, float]:
    """Parts of the time in a plan that names no engine."""
    return {engine.name: engine.planned for engine in engines() if engine.planned}


def on_kernels(names: Iterable[str]) -> bool:
    """Is there one among these engines that runs steps on kernels? Raises UnknownEngine."""
    return any(engine_of(name).kernels for name in names)


def thorough(operations: Mapping[str, int]) -> int:
    """How many of these operations, by engine, were of engines that draw every kind. Raises UnknownEngine."""
    return sum(count for name, count in operations.items() if engine_of(name).thorough)


def audited() -> tuple[str, ...]:
    """Engines that hunt for the bugs of the zoo in an audit."""
    return tuple(engine.name for engine in engines() if engine.audited)


def not_hunted(names: Iterable[str]) -> dict[str, str]:
    """Properties that none of these engines checks, since only others do; with the reason. Raises UnknownEngine."""
    checked = {name for engine in map(engine_of, names) for name in engine.checks}
    alone = {name: engine.name for engine in engines() for name in engine.checks}
    return {
        name: f"no turn of the engine {engine}, which alone checks it (--engine {engine})"
        for name, engine in alone.items()
        if name not in checked
    }


def described() -> str:
    """Each engine's name and its line of help, for an option's help."""
    return "; ".join(f"{engine.name}: {engine.about}" for engine in engines())
