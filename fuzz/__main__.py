"""`python -m fuzz`.

Also imports: fuzz.cli.
"""

import sys

try:
    from .cli import main
except Exception:
    # `git bisect run` comes through commits in which this does not even load; status 1 would call them bad.
    if "--bisect" in sys.argv:
        sys.exit(125)
    raise

main()
