"""Targets that are wrong on purpose, for tests of the command line: `--target fuzz.tests.broken:early`."""

from __future__ import annotations

from fuzz.zoo import find
from properties.operations import Configuration
from properties.target import Target


def early(configuration: Configuration) -> Target:
    """kvcore that publishes at dispatch."""
    return find("NV-7").factory()(configuration)


def factory(configuration: Configuration) -> Target:
    """A factory that fails before there is a core to judge."""
    raise RuntimeError("this factory is broken")
