"""A page of a large or hostile finding."""

from __future__ import annotations
