"""A kernel stores wildly, skips keys, hangs or dies."""

from __future__ import annotations
