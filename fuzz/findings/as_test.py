"""A counterexample as a pytest test, to be pasted anywhere that can import this package."""

from __future__ import annotations

import re
import textwrap

from reference import PROPERTIES

from ..runs.values import Counterexample

__all__ = ["pytest_text", "slug"]


def slug(name: str) -> str:
    """`name` as part of a Python name."""
    return re.sub(r"\W", "_", name.lower())


def pytest_text(found: Counterexample, name: str) -> str:
    """A test that fails while the bug is there. name: of the finding. O(operations)."""
    kinds = sorted({type(operation).__name__ for operation in found.operations} | {"Configuration"})
    lines = "".join(f"    {operation!r},\n" for operation in found.operations)
    arrays = "from array import array\n\n" if "array(" in lines else ""
    statement = " ".join((PROPERTIES[found.property_id].__doc__ or "").split()) if found.property_id else ""
    judging = found.judging
    head = textwrap.fill(f"{found.property_id}: {found.message}. {statement}", 110)
    # A message may come from anybody: in it is nothing that ends a docstring.
    told = f"{head}\n\nFound by {found.engine or 'hand'}, seed {found.seed or 'none'}.".replace('"""', "'''")
    return (
        f'r"""{told}\n"""\n\n'
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
