"""`python -m fuzz`.

A command that would run a target in its own process is run in another one, under guard (see `runs.guard`).

Also imports: fuzz.cli, fuzz.runs.
"""

import os
import sys
import traceback
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

_NAME = "KVCORE_FUZZ_NAME"

_HARNESS = 3
"""As in `runs.status`, which may be what cannot be loaded."""


def main(name: str = "") -> None:
    """The command line. Ends the process with an exit status. name: what was typed, if not `python -m fuzz`."""
    if name:
        os.environ[_NAME] = name  # for a child, too
    try:
        from .runs.guard import child

        if not child() and len(sys.argv) > 1:
            from .guarded import guarded

            guarded(sys.argv[1:])
        from .cli import main as command
    except Exception:
        # `git bisect run` comes through commits in which this does not even load; status 1 would call them bad.
        if "--bisect" in sys.argv:
            sys.exit(125)
        traceback.print_exc()
        _end(_HARNESS)
    command(os.environ.get(_NAME))


def _end(status: int) -> None:
    try:
        from .runs.guard import child, signed_off
    except Exception:
        sys.exit(status)
    if child():
        signed_off(status)
    sys.exit(status)


if __name__ == "__main__":
    main()
