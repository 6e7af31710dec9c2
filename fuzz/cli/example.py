"""`example`: prints the toy core of docs/your-core.md with its adapter, to begin one's own with."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EXAMPLE", "example"]

EXAMPLE = Path(__file__).parents[1] / "example" / "toy.py"


def example() -> None:
    """Print a toy core with a bug, and its adapter, to begin your own with: docs/your-core.md.

    Examples:

      python -m fuzz example > toy.py

      python -m fuzz run --target toy:make --engine walk --seed 1
    """
    print(EXAMPLE.read_text(encoding="utf-8"), end="")
