"""A target ends its process, hangs, is interrupted, leaves threads or prints without end."""

from __future__ import annotations
