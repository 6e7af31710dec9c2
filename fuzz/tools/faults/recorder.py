"""An engine is killed, or its disk is full, while its operations are recorded."""

from __future__ import annotations
