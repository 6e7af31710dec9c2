"""A user's own files, environment or terminal are in the way."""

from __future__ import annotations
