"""`kvcore-fuzz`, the console script, and how we start ourselves in another process.

    kvcore-fuzz run --target toy:make                   from any folder, whatever is called fuzz.py there
    python -P .../kvcore_fuzz.py fuzz.gpu REQUEST       one of our modules, as `python -m` would (see
                                                        `fuzz.runs.processes.ourselves`)

`python -m fuzz` runs what Python finds first, and the working folder comes before what is installed: a user's fuzz.py
is run instead of this one. Nothing of ours runs then, so nothing of ours can help. This door puts what has our names
behind us on the import path, and the working folder last, so that `--target toy:make` is found there all the same.
Processes that are spawned get the path with it.

It stands beside the packages, and not in one of them, since it has to be found before they can be.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

__all__ = ["arrange", "main"]

_OURS = ("fuzz", "kvcore", "properties", "reference")

_HERE = Path(__file__).resolve().parent


def arrange() -> None:
    """Put our packages before others of their names, and the working folder on the import path, last. O(entries)."""
    try:
        working = Path.cwd()
    except OSError:  # it was deleted; who needs it will say so
        working = _HERE
    entries = list(dict.fromkeys(Path(working, entry) for entry in sys.path))
    behind = [entry for entry in entries if entry != _HERE and (entry == working or _in_the_way(entry))]
    first = [entry for entry in entries if entry not in behind]
    sys.path[:] = map(str, dict.fromkeys([*first, _HERE, *behind, working]))


def _in_the_way(folder: Path) -> bool:
    """Whether `folder` has a module or package of one of our names, and is not ours."""
    return folder != _HERE and any(
        (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file() for name in _OURS
    )


def main() -> None:
    """The console script."""
    arrange()
    from fuzz.__main__ import main as begin

    begin("kvcore-fuzz")


if __name__ == "__main__":
    module = sys.argv.pop(1)
    arrange()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
