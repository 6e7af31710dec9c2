"""Something worse lies behind the first finding, or beside it."""

from __future__ import annotations
