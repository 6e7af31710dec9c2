"""`python -m fuzz`.

A command that would run a target in its own process is run in another one, under guard (see `runs.guard`).

Also imports: fuzz.cli, fuzz.runs.
"""

import sys


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
        raise
    command()


if __name__ == "__main__":
    main()
