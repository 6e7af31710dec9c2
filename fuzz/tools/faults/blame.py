"""A target answers wrongly or cannot be made: toy adapters with one mistake each."""

from __future__ import annotations
