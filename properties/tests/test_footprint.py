"""What a footprint counts: everything that a core holds, and nothing of what it stands on."""

from __future__ import annotations

import sys
from array import array
from types import ModuleType
from typing import Any, ClassVar

from properties.footprint import entries
from properties.target import Adapter


class Thing:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


Thing.__module__ = "some_core"


def test_entries_of_containers_count_wherever_they_are() -> None:
    small, large = Thing(inner=Thing(items={})), Thing(inner=Thing(items=dict.fromkeys(range(500))))
    assert entries(large) - entries(small) == 500
    assert entries(Thing(a=[1] * 70)) - entries(Thing(a=[])) == 70
    assert entries(Thing(a=[[1] * 9] * 5)) == entries(Thing(a=[[1] * 9])) + 4  # one list, five times


def test_buffers_count_by_their_length() -> None:
    for make in (bytes, bytearray, lambda length: array("b", bytes(length)), lambda length: "x" * length):
        assert entries(Thing(a=make(6400))) - entries(Thing(a=make(0))) == 100


def test_the_standard_library_numpy_and_the_harness_do_not_count() -> None:
    import json

    import numpy as np

    assert entries(Thing(a=json, b=np, c=json.loads, d=sys.modules[__name__])) < 40


def test_a_cache_in_the_core_s_module_counts() -> None:
    core = ModuleType("some_core")
    sys.modules["some_core"] = core
    try:
        exec(
            "from functools import cache\n"
            "@cache\n"
            "def key(x): return (x,)\n"
            "class Core:\n"
            "    seen = {}\n"
            "    def see(self, x): return key(x)\n",
            vars(core),
        )
        one = core.Core()
        before = entries(one)
        for number in range(300):
            one.see(number)
        assert entries(one) - before >= 300
        core.Core.seen.update(dict.fromkeys(range(50)))
        assert entries(one) - before >= 350
    finally:
        del sys.modules["some_core"]


def test_whoever_imported_the_core_does_not_count() -> None:
    """As pytest does, whose loader knows all tests, their reports and what they are just doing."""

    class Loader:
        known: ClassVar[list[Any]] = []

        def exec_module(self, module: ModuleType) -> None: ...

    Loader.__module__ = "some_runner"
    core = ModuleType("some_core")
    sys.modules["some_core"] = core
    try:
        exec("class Core:\n    def see(self): ...\n", vars(core))
        vars(core)["__loader__"] = loader = Loader()
        one = core.Core()
        before = entries(one)
        loader.known = list(range(10_000))
        Loader.known = list(range(10_000))
        assert entries(one) == before
    finally:
        del sys.modules["some_core"]


def test_it_ends_at_its_bound() -> None:
    assert entries(Thing(a=[[] for _ in range(10_000)]), most=100) < 10_300


def test_an_adapter_counts_what_its_attributes_reach() -> None:
    class Mine(Adapter):
        def __init__(self) -> None:
            self.kept: list[int] = []

    adapter = Mine()
    before = adapter.footprint()
    adapter.kept += range(40)
    assert adapter.footprint() == before + 40
