"""`python -m fuzz`.

A command that would run a target in its own process is run in another one, under guard (see `runs.guard`).

Also imports: fuzz.cli, fuzz.runs.
"""

import sys
import traceback

_HARNESS = 3
"""As in `runs.status`, which may be what cannot be loaded."""


def main() -> None:
    """The command line. Ends the process with an exit status."""
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
    command()


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
