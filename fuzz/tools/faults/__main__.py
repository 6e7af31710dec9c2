"""`python -m fuzz.tools.faults`."""

from .table import main

main()
