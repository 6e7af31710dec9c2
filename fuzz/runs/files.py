"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["put"]


def put(path: Path, text: str) -> Path:
    """Write `text` in UTF-8 beside `path`, then move it there. The folder is made if it is missing.

    A reader of `path`, meanwhile or after this process was killed, sees the old text or the new. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    return path
