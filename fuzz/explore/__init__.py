"""Bounded exhaustive exploration: every sequence of operations over a small configuration, breadth first.

`space.py` says which operations there are in a state, `normal.py` which states are the same up to names, `expand.py`
does all operations of one state, `workers.py` does so in several processes, `search.py` walks level by level, and
`store.py` keeps what is done on disk. docs/explore.md says what is enumerated, what is merged, and why that is sound.

Imports: fuzz.runs, properties, reference.
"""
