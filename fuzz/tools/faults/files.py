"""A file that somebody else wrote is hostile or damaged."""

from __future__ import annotations
