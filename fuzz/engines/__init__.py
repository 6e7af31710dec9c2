"""Engines: each turns a seed and a time budget into checked operations and, with luck, a counterexample.

In: an `Assignment` (a target factory, a seed, a range of units, a clock). Out: a `Tally` of what was done, and the
first counterexample. `engine.py` says what an engine is, `registry.py` which there are.

`walk` draws operations and `swarm` runs episodes of it; `hypothesis` (with `hypothesis_database`), `kernels`,
`explore`, `trace` and `atheris` are the others, and for what these never meet `namespaces`, `keys` and `endurance`.
`attention` hunts in kernels alone, in processes that `bench` replaces where they end. `tally` counts what was done.

Campaigns and the audit use this room.

Imports: fuzz.explore, fuzz.runs, fuzz.traces, properties, reference.
"""
