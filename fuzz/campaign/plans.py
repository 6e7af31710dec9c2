"""Plans from TOML files, with flags that overrule them.

`commit`, `nightly` and `soak` are ready ones, in `fuzz/campaign/ready`. docs/campaigns.md is the reference of the
file's keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reference import PROPERTIES

from ..engines.registry import ENGINES, UnknownEngine, engine_of, planned
from ..findings.keep import Keep
from ..runs import bounds
from ..runs.quantities import bytes_of, seconds_of
from .plan import CampaignPlan, Variant, without_password
from .streams import streams_of

__all__ = ["READY", "BadPlan", "checked", "known_keys", "overruled", "plan_of", "properties_of", "ready"]

FOLDER = Path(__file__).parent / "ready"

READY = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
"""Names of the ready campaigns."""


_LARGEST = 1 << 20
"""Bytes of a plan."""


class BadPlan(ValueError):
    """A campaign's file or flags are wrong. Says what was given, what is allowed, and where."""


def ready(name: str) -> CampaignPlan:
    """The campaign called `name`: a ready one, or a TOML file. Raises BadPlan. O(file)."""
    path = FOLDER / f"{name}.toml" if name in READY else Path(name)
    if name not in READY and path.suffix != ".toml":
        raise BadPlan(f"no campaign {name!r}; give one of {', '.join(READY)}, or a file ending in .toml")
    try:
        data = tomllib.loads(bounds.text_of(path, bounds.PLAN))
    except bounds.TooMuch as error:
        raise BadPlan(f"{path}: {error}") from None
    except RecursionError:
        raise BadPlan(f"{path}: nested too deep; a plan's tables are {_DEEP} deep") from None
    except OSError as error:
        raise BadPlan(f"{path}: cannot be read ({error.strerror}); give one of {', '.join(READY)}, or a file") from None
    except ValueError as error:  # of Python's, too, for an integer of thousands of digits
        raise BadPlan(f"{path}: not TOML: {error}") from None
    try:
        return _plan(data, CampaignPlan(name=path.stem, engines=planned()))
    except BadPlan as error:
        raise BadPlan(f"{path}: {error}") from None


def plan_of(data: Mapping[str, Any]) -> CampaignPlan:
    """What `CampaignPlan.to_json` gave, perhaps written to a file and read again. Raises BadPlan."""
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}
    return _plan(lists, CampaignPlan(engines={}))


def _plan(data: Mapping[str, Any], plan: CampaignPlan) -> CampaignPlan:
    changes: dict[str, Any] = {}
    for key, value in data.items():
        if key in _GONE:
            continue
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
    if not streams_of(plan):
        raise BadPlan(f"no engine has a part of the time; give one of {', '.join(ENGINES)} a number above 0")
    return plan


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
            raise BadPlan(f"{key} = {without_password(name)!r}; give redis://host:port/0, or a folder")
    return name


def _part(key: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise BadPlan(f"{key} = {value!r} is not a part of the budget, from 0 to 1")
    return float(value)


def _number(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise BadPlan(f"{key} = {value!r:.80} is not a whole number from 0 on, to {_MOST:,}")
    return value


_MOST = 10**9
"""More of anything that a plan counts is a slip of the keyboard."""

_DEEP = 2


def _workers(key: str, value: Any) -> int:
    """Each is a process of some 100 MB."""
    number = _number(key, value)
    if number > bounds.WORKERS:
        raise BadPlan(f"{key} = {number:,}; allowed are {bounds.WORKERS:,}")
    return number


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
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= _MOST:
            raise BadPlan(f"{key}: {name} = {share!r:.80} is not a number from 0 on, to {_MOST:,}")
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
            if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= _MOST:
                raise BadPlan(f"{key}.{name} = {given!r:.80} is not a number from 0 on, to {_MOST:,}")
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
        try:
            bounds.pool_within(variant.max_blocks, variant.max_block_size)
        except bounds.TooMuch as error:
            raise BadPlan(f"{key}: {variant.name}: {error}") from None
    return found


_KEYS: dict[str, Any] = {
    "name": _text,
    "targets": _texts,
    "properties": properties_of,
    "engines": engines_of,
    "configurations": _configurations,
    "budget": _time,
    "seed": _text,
    "workers": _workers,
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
    "go_on": _part,
    "keep": lambda key, value: _table(Keep, key, value),
}


_GONE = ("in_process",)
"""Keys of older files that say nothing any more: targets always run in processes of their own."""


def overruled(plan: CampaignPlan, changes: Mapping[str, Any]) -> CampaignPlan:
    """The plan with `changes` that are not None, checked. Raises BadPlan."""
    changes = {name: value for name, value in changes.items() if value is not None}
    if "database" in changes:
        _database("--database", changes["database"])
    return checked(replace(plan, **changes))


def known_keys() -> Iterable[str]:
    """For the test that the documentation names them all."""
    return _KEYS
