"""How long the machine runs: three profiles, each chosen by name.

| profile | examples | steps | seed | database | shrinks |
|---|---|---|---|---|---|
| commit | 150 | 40 | fixed, printed | none | yes |
| nightly | 500 | 50 | fresh, printed | a folder, if one is given | no |
| soak | 20,000 | 200 | fresh, printed | none | no |

Every setting is given, so that nothing is inherited from the profile that happens to be loaded. That matters: where CI
is detected, Hypothesis loads its own `ci` profile by itself, which derandomizes, and a nightly run under it would try
the same examples for ever.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.database import DirectoryBasedExampleDatabase

__all__ = ["COMMIT_SEED", "PREFIX", "PROFILES", "UnknownProfile", "load", "seed_for", "settings_for"]

PREFIX = "kv-"
"""What our names in Hypothesis's registry begin with: `ci` and `default` are its own, others may be a user's."""

COMMIT_SEED = 20250701
"""The commit profile is the same run for everybody. Change it to try other examples; nothing depends on its value."""

_SUPPRESSED = (
    HealthCheck.too_slow,  # a machine of 200 steps is meant to take a while; speed is watched by benchmarks
    HealthCheck.data_too_large,  # the longest machines end at Hypothesis's byte budget, and are cut short
    HealthCheck.filter_too_much,  # nothing is filtered; while shrinking, another property's violation is rejected
    HealthCheck.large_base_example,  # the smallest example is one request; no strategy here has a large minimum
)

_COMMON: dict[str, Any] = {
    # Reproducible by the seed, which is always given and printed, not by the digest of the test's source.
    "derandomize": False,
    "database": None,
    "verbosity": Verbosity.quiet,
    # One finding a run: after the first, searching on for other bugs costs up to 1,000 examples. Without more,
    # shrinking could slip from one property to another; `run_machine` holds it to the first one.
    "report_multiple_bugs": False,
    "suppress_health_check": _SUPPRESSED,
    "deadline": None,
    # Blobs are bound to one version of Hypothesis and one wording of the rules; the operation list is not.
    "print_blob": False,
    "backend": "hypothesis",
}

PROFILES: dict[str, dict[str, Any]] = {
    "commit": {"max_examples": 150, "stateful_step_count": 40, "phases": (Phase.generate, Phase.shrink)},
    # Shrinking by Hypothesis took 5 to 35 seconds on planted faults (from 12-90 operations to 5-26, not always the
    # least). That is paid only where something is broken. Elsewhere: found first, shrunk later, on the operation list,
    # which is far quicker.
    "nightly": {"max_examples": 500, "stateful_step_count": 50, "phases": (Phase.reuse, Phase.generate)},
    "soak": {"max_examples": 20_000, "stateful_step_count": 200, "phases": (Phase.generate,)},
}
"""What differs between the profiles, by name."""


class UnknownProfile(ValueError):
    """No profile of this name. Says which there are."""


def settings_for(name: str, database: str | Path | None = None) -> settings:
    """The settings of profile `name`, complete whatever profile is loaded. Raises UnknownProfile. O(1).

    database: a folder in which the nightly profile keeps what it found, and tries it first next time. The others have
    none.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise UnknownProfile(f"no profile {name!r}; give one of {', '.join(PROFILES)}")
    values = {**_COMMON, **profile}
    if database is not None and Phase.reuse in values["phases"]:
        values["database"] = DirectoryBasedExampleDatabase(database)
    return settings(settings.get_profile("default"), **values)


def load(name: str, database: str | Path | None = None) -> settings:
    """Make profile `name` Hypothesis's current one as well, under PREFIX + name. Raises UnknownProfile. O(1)."""
    chosen = settings_for(name, database)
    settings.register_profile(PREFIX + name, chosen)
    settings.load_profile(PREFIX + name)
    return chosen


def seed_for(name: str) -> int:
    """The seed for a run under profile `name`: fixed for commit, fresh for the others. Print it. Raises
    UnknownProfile."""
    if name not in PROFILES:
        raise UnknownProfile(f"no profile {name!r}; give one of {', '.join(PROFILES)}")
    return COMMIT_SEED if name == "commit" else secrets.randbits(32)


for _name in PROFILES:
    settings.register_profile(PREFIX + _name, settings_for(_name))
