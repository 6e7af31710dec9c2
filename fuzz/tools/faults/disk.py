"""A disk is full or read-only, a folder is in use, a name is taken."""

from __future__ import annotations
