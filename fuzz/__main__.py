"""`python -m fuzz`.

Also imports: fuzz.cli.
"""

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path


def _in_the_way() -> str:
    """A file of somebody else that Python finds where our packages are meant, or ""."""
    here = Path(__file__).parents[1]
    for name in ("properties", "reference", "kvcore"):
        spec = find_spec(name)
        if not (here / name).is_dir():
            continue  # ours are not beside this one: it is as somebody has put it together
        if spec is not None and spec.origin is not None and here not in Path(spec.origin).parents:
            return spec.origin
    return ""


if theirs := _in_the_way():
    print(
        f"error: {theirs} is in the way: Python finds it instead of a package of this harness with the same name\n"
        "  type `kvcore-fuzz` instead of `python -m fuzz`, or `python -P -m fuzz`, or rename the file",
        file=sys.stderr,
    )
    sys.exit(125 if "--bisect" in sys.argv else 2)

if sys.flags.safe_path:  # asked not to put the working folder first; targets are found in it all the same
    with suppress(OSError):  # it was deleted; the command says so
        sys.path.append(os.getcwd())

try:
    from .cli import main
except Exception:
    # `git bisect run` comes through commits in which this does not even load; status 1 would call them bad.
    if "--bisect" in sys.argv:
        sys.exit(125)
    raise

main()
