"""What bookkeeping does not show: counters, memory, namespaces that collide, padding, keys."""

from __future__ import annotations
