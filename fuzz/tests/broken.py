"""Targets that are wrong on purpose, for tests of the command line: `--target fuzz.tests.broken:early`."""

from __future__ import annotations

from fuzz.planting import planted
from properties.operations import Configuration
from properties.target import Target
from properties.targets.kvcore import KvcoreTarget

from .faults import FAULTS


def early(configuration: Configuration) -> Target:
    """kvcore that publishes at dispatch."""
    fault = next(fault for fault in FAULTS if fault.name.startswith("published before"))
    return planted(fault.changes)(configuration)


class _NoTables(KvcoreTarget):
    def table(self, request: str) -> list[int]:
        raise RuntimeError("this adapter is broken")


def adapter(configuration: Configuration) -> Target:
    """An adapter, not a core, that fails: the harness's failure, not a finding."""
    return _NoTables(configuration)
