"""pytest in this checkout: the target options, and nothing that a test would have to import."""

from __future__ import annotations

import importlib.util
import os

import pytest
from _pytest.runner import runtestprotocol

from properties.stack import with_room

pytest_plugins = ["properties.plugin"]

# Kernels run in Triton's interpreter; that is decided when Triton is first imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Without torch or Triton the allocator and its properties are tested, and nothing of storage and kernels.
collect_ignore_glob: list[str] = []
if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    collect_ignore_glob = [
        "kvcore/storage.py",
        "kvcore/attention.py",
        "kvcore/kernels/*",
        "properties/attention/*",
        "properties/targets/*_kernels.py",
        "fuzz/gpu/*",
    ]

# Hypothesis loads a profile `ci` by itself where CI is set (derandomized, no database). Ours are chosen explicitly, but
# a test that forgot to would silently run under it.
os.environ.pop("CI", None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest's own, with room on the stack: or a test may take several times as long, by how deep its runner is."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    with_room(runtestprotocol, item, nextitem=nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
