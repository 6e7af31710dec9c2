"""A counterexample as a pytest test, to be pasted anywhere that can import this package."""

from __future__ import annotations

import re
import textwrap

from reference import PROPERTIES

from ..runs.foreign import visible
from ..runs.values import Counterexample

__all__ = ["pytest_text", "slug"]


def slug(name: str) -> str:
    """`name` as part of a Python name."""
    return re.sub(r"\W", "_", name.lower())


def _within_quotes(text: str) -> str:
    """`text` for a raw string in three quotes, which it must not end: somebody else may have written it."""
    return visible(text).replace('"""', "'''")


def pytest_text(found: Counterexample, name: str) -> str:
    """A test that fails while the bug is there. name: of the finding. O(operations)."""
    kinds = sorted({type(operation).__name__ for operation in found.operations} | {"Configuration"})
    lines = "".join(f"    {operation!r},\n" for operation in found.operations)
    arrays = "from array import array\n\n" if "array(" in lines else ""
    statement = " ".join((PROPERTIES[found.property_id].__doc__ or "").split()) if found.property_id else ""
    judging = found.judging
    head = _within_quotes(textwrap.fill(f"{found.property_id}: {found.message}. {statement}", 110))
    origin = _within_quotes(f"Found by {found.engine or 'hand'}, seed {found.seed or 'none'}.")
    return (
        f'r"""{head}\n\n{origin}\n"""\n\n'
        f"{arrays}"
        "from fuzz.runs.perform import Judging, perform\n"
        f"from properties.operations import {', '.join(kinds)}\n"
        "from properties.targets import load\n\n"
        f"CONFIGURATION = {found.configuration!r}\n"
        f"JUDGING = Judging(outside={judging.outside}, exact={judging.exact}, kernels={judging.kernels!r})\n"
        f"OPERATIONS = [\n{lines}]\n\n\n"
        f"def test_{slug(name)}() -> None:\n"
        f"    run = perform(load({found.target!r}), CONFIGURATION, OPERATIONS, JUDGING, strict=True)\n"
        "    assert run.violation is None, run.violation\n"
    )
