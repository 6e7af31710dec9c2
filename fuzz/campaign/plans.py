"""What a campaign is to do: targets x properties x engines x configurations x a time budget.

From a TOML file (`commit`, `nightly` and `soak` are ready ones, in `fuzz/campaign/ready`), with flags
that overrule it.
docs/campaigns.md is the reference of the file's keys.

A plan says nothing of how it is carried out.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reference import PROPERTIES

from ..engines.registry import ENGINES, UnknownEngine, engine_of, planned
from ..engines.walk import Limits
from ..runs.values import Judging
from .tasks import Stream

__all__ = [
    "READY",
    "BadPlan",
    "CampaignPlan",
    "Keep",
    "Variant",
    "bytes_of",
    "properties_of",
    "ready",
    "seconds_of",
]

_ROUND = 5.0

FOLDER = Path(__file__).parent / "ready"

READY = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
"""Names of the ready campaigns."""


class BadPlan(ValueError):
    """A campaign's file or flags are wrong. Says what was given, what is allowed, and where."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the configurations: how to judge and how large pools are. share: its part of the time, beside the others'.
    name: part of its streams' seed (see `CampaignPlan.streams`); a plan's only configuration may have none.

    The bounds are the walk's; Hypothesis draws its own pools, of up to 64 blocks.
    """

    name: str = "all"
    outside: bool = False
    exact: bool = True
    max_blocks: int = 64
    max_block_size: int = 16
    long_episodes: bool = True
    share: float = 1.0

    def judging(self, kernels: str = "") -> Judging:
        return Judging(outside=self.outside, exact=self.exact, kernels=kernels)

    def limits(self) -> Limits:
        return Limits(self.max_blocks, self.max_block_size, self.long_episodes)


@dataclass(frozen=True, slots=True)
class Keep:
    """Housekeeping. examples: counterexamples of one signature. days: how long a finding that is not seen again is
    kept. disk: bytes that the folder may have."""

    examples: int = 3
    days: float = 30.0
    disk: int = 500 << 20


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """What to do. Times in seconds, memory in bytes.

    engines: by name, the part of the time that each gets. properties: those whose violations count. workers: 0 for one
    a core. devices: a value of CUDA_VISIBLE_DEVICES for each worker; then one worker for each. hang: how long a worker
    may say nothing. database: a folder or a Redis (redis://host:port/0) in which Hypothesis keeps what it finds, for
    all workers; "": none. max_findings: so many new ones end the campaign; 0: its budget alone does. in_process: no
    worker processes; all is done in this one.
    """

    name: str = "custom"
    targets: tuple[str, ...] = ("kvcore",)
    properties: tuple[str, ...] = tuple(PROPERTIES)
    engines: Mapping[str, float] = field(default_factory=planned)
    configurations: tuple[Variant, ...] = (Variant(),)
    budget: float = 600.0
    seed: str = ""
    workers: int = 0
    devices: tuple[str, ...] = ()
    kernels: str = "auto"
    profile: str = "nightly"
    trace: str = ""
    database: str = ""
    shrink: float = 20.0
    hang: float = 120.0
    memory: int = 4 << 30
    max_states: int = 3000
    max_findings: int = 0
    keep: Keep = Keep()
    in_process: bool = False

    @property
    def processes(self) -> int:
        return 1 if self.in_process else len(self.devices) or self.workers or os.cpu_count() or 1

    @property
    def round(self) -> float:
        """Seconds in which each stream has a turn of its part, where this process alone takes turns; 0 where workers
        have turns of a few seconds each."""
        return min(_ROUND, self.budget / 2) if self.in_process else 0.0

    def streams(self) -> list[tuple[Stream, float]]:
        """Each engine on each target under each configuration, and its part of the time. An engine that runs once does
        so under the first configuration; those that run on kernels are left out where there are none.

        A stream's seed is the plan's, target and configuration: "7/kvcore/blind". A configuration without a name adds
        nothing: the seed is the plan's own, and a run on one core does the same operations as on another.
        """
        found = []
        for target in self.targets:
            for variant in self.configurations:
                for engine, share in self.engines.items():
                    first, kind = variant is self.configurations[0], engine_of(engine)
                    if share <= 0 or (kind.kernels and not self.kernels) or (kind.once and not first):
                        continue
                    found.append(
                        (
                            Stream(
                                target,
                                engine,
                                variant.name,
                                f"{self.seed}/{target}/{variant.name}" if variant.name else self.seed,
                                variant.judging(self.kernels if kind.kernels else ""),
                                variant.limits(),
                                self.profile,
                                self.trace,
                                self.max_states,
                                self.database,
                            ),
                            share * variant.share,
                        )
                    )
        return found

    def to_json(self) -> dict[str, Any]:
        """For files, which others may read: without the database's password."""
        return {**asdict(self), "engines": dict(self.engines), "database": _without_password(self.database)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CampaignPlan:
        """What `to_json` gave, perhaps written to a file and read again. Raises BadPlan."""
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}
        return _plan(lists, cls())


def ready(name: str) -> CampaignPlan:
    """The campaign called `name`: a ready one, or a TOML file. Raises BadPlan. O(file)."""
    path = FOLDER / f"{name}.toml" if name in READY else Path(name)
    if name not in READY and path.suffix != ".toml":
        raise BadPlan(f"no campaign {name!r}; give one of {', '.join(READY)}, or a file ending in .toml")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadPlan(f"{path}: cannot be read ({error.strerror}); give one of {', '.join(READY)}, or a file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path}: not TOML: {error}") from None
    try:
        return _plan(data, CampaignPlan(name=path.stem))
    except BadPlan as error:
        raise BadPlan(f"{path}: {error}") from None


def _plan(data: Mapping[str, Any], plan: CampaignPlan) -> CampaignPlan:
    changes: dict[str, Any] = {}
    for key, value in data.items():
        if key not in _KEYS:
            raise BadPlan(f"there is no {key!r}; known are {', '.join(_KEYS)}")
        changes[key] = _KEYS[key](key, value)
    return replace(plan, **changes)


def checked(plan: CampaignPlan) -> CampaignPlan:
    """The plan, if it can be run. Raises BadPlan."""
    if not plan.targets:
        raise BadPlan("targets is empty; name at least one")
    for name, share in plan.engines.items():
        if share > 0 and (missing := engine_of(name).missing()):
            raise BadPlan(f"{missing}, or leave it out of [engines]")
    if "://" in plan.database and find_spec("redis") is None:
        raise BadPlan("a database in a Redis is an extra: pip install 'kvcore[redis]', or give a folder, or none")
    if plan.in_process and (plan.devices or plan.workers > 1):
        raise BadPlan("in_process is without workers: leave out workers and devices, or in_process")
    if not plan.streams():
        raise BadPlan(f"no engine has a part of the time; give one of {', '.join(ENGINES)} a number above 0")
    return plan


def seconds_of(text: Any) -> float:
    """45, "45s", "10m" or "2h". Raises ValueError."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(str(text)[-1:], 0)
        seconds = float(str(text)[:-1]) * unit if unit else float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def bytes_of(text: Any) -> int:
    """ "4GiB", "500MiB", or bytes. Raises ValueError."""
    number, unit = str(text), 1
    for suffix, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number.endswith(suffix):
            number, unit = number.removesuffix(suffix), size
    value = int(float(number) * unit)
    if value < 0:
        raise ValueError(text)
    return value


# ---- the keys of a file ----------------------------------------------------------------------------------------------


def _time(key: str, value: Any) -> float:
    try:
        return seconds_of(value)
    except (TypeError, ValueError):
        raise BadPlan(f"{key} = {value!r} is not a time; give seconds or '45s', '10m', '2h'") from None


def _size(key: str, value: Any) -> int:
    try:
        return bytes_of(value)
    except (TypeError, ValueError, OverflowError):
        raise BadPlan(f"{key} = {value!r} is not a size; give '4GiB', '500MiB', or bytes") from None


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadPlan(f"{key} = {value!r} is not a string")
    return value


def _database(key: str, value: Any) -> str:
    """A folder, or the address of a Redis."""
    name = _text(key, value)
    if "://" in name:
        try:
            parts = urlsplit(name)
            known = parts.scheme in ("redis", "rediss", "unix") and (parts.port is None or parts.port > 0)
        except ValueError:
            known = False
        if not known:
            raise BadPlan(f"{key} = {_without_password(name)!r}; give redis://host:port/0, or a folder")
    return name


def _without_password(url: str) -> str:
    head, at, host = url.rpartition("@")
    return f"{head.rpartition(':')[0]}:***@{host}" if at and "://" in url else url


def _truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadPlan(f"{key} = {value!r} is not true or false")
    return value


def _number(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadPlan(f"{key} = {value!r} is not a whole number from 0 on")
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadPlan(f"{key} = {value!r} is not a list of strings")
    return tuple(value)


def properties_of(key: str, value: Any) -> tuple[str, ...]:
    names = _texts(key, value)
    if unknown := [name for name in names if name not in PROPERTIES]:
        raise BadPlan(f"{key}: there are no {', '.join(unknown)}; known are {', '.join(PROPERTIES)}")
    return names or tuple(PROPERTIES)


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    def check(key: str, value: Any) -> str:
        if value not in allowed:
            raise BadPlan(f"{key} = {value!r}; give one of {', '.join(allowed)}")
        return str(value)

    return check


def engines_of(key: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise BadPlan(f"{key} = {value!r} is not a table of names and parts of the time")
    for name, share in value.items():
        try:
            engine_of(name)
        except UnknownEngine as error:
            raise BadPlan(f"{key}: {error}") from None
        if not isinstance(share, int | float) or isinstance(share, bool) or share < 0:
            raise BadPlan(f"{key}: {name} = {share!r} is not a number from 0 on")
    return {name: float(share) for name, share in value.items()}


def _table(kind: type[Any], key: str, value: Any) -> Any:
    """One of the frozen tables. Each value has the type of its default; days and disk may be written as texts."""
    if not isinstance(value, dict):
        raise BadPlan(f"{key} = {value!r} is not a table")
    known: dict[str, Any] = {entry.name: entry.default for entry in fields(kind)}
    values: dict[str, Any] = {}
    for name, given in value.items():
        if name not in known:
            raise BadPlan(f"{key}: there is no {name!r}; known are {', '.join(known)}")
        default = known[name]
        if name == "disk":
            values[name] = _size(f"{key}.{name}", given)
        elif isinstance(default, bool | str):
            if type(given) is not type(default):
                expected = "true or false" if isinstance(default, bool) else "a string"
                raise BadPlan(f"{key}.{name} = {given!r} is not {expected}")
            values[name] = given
        else:
            if not isinstance(given, int | float) or isinstance(given, bool) or given < 0:
                raise BadPlan(f"{key}.{name} = {given!r} is not a number from 0 on")
            values[name] = int(given) if isinstance(default, int) else float(given)
    return kind(**values)


def _configurations(key: str, value: Any) -> tuple[Variant, ...]:
    if not isinstance(value, list) or not value:
        raise BadPlan(f"{key} is not a list of tables: write [[{key}]] before each")
    found = tuple(_table(Variant, key, item) for item in value)
    names = [variant.name for variant in found]
    if len(set(names)) < len(names):
        raise BadPlan(f"{key}: each needs a name of its own; given are {', '.join(names)}")
    for variant in found:
        if variant.max_blocks < 1 or variant.max_block_size < 1:
            raise BadPlan(f"{key}: {variant.name} needs max_blocks and max_block_size of at least 1")
    return found


_KEYS: dict[str, Any] = {
    "name": _text,
    "targets": _texts,
    "properties": properties_of,
    "engines": engines_of,
    "configurations": _configurations,
    "budget": _time,
    "seed": _text,
    "workers": _number,
    "devices": _texts,
    "kernels": _text,
    "profile": _one_of("nightly", "soak"),
    "trace": _text,
    "database": _database,
    "shrink": _time,
    "hang": _time,
    "memory": _size,
    "max_states": _number,
    "max_findings": _number,
    "in_process": _truth,
    "keep": lambda key, value: _table(Keep, key, value),
}


def overruled(plan: CampaignPlan, changes: Mapping[str, Any]) -> CampaignPlan:
    """The plan with `changes` that are not None, checked. Raises BadPlan."""
    changes = {name: value for name, value in changes.items() if value is not None}
    if "database" in changes:
        _database("--database", changes["database"])
    return checked(replace(plan, **changes))


def known_keys() -> Iterable[str]:
    """For the test that the documentation names them all."""
    return _KEYS
