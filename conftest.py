"""pytest in this checkout: the target options, and nothing that a test would have to import."""

from __future__ import annotations

import os

pytest_plugins = ["properties.plugin"]

# Hypothesis loads a profile `ci` by itself where CI is set (derandomized, no database). Ours are chosen explicitly, but
# a test that forgot to would silently run under it.
os.environ.pop("CI", None)
