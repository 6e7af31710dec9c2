"""Engines: each turns a seed and a time budget into checked operations and, with luck, a counterexample.

In: an `Assignment` (a target factory, a seed, a range of units, a clock). Out: a `Tally` of what was done, and the
first counterexample. `engine.py` says what an engine is, `registry.py` which there are.

Engines know runs, traces and exploration. They know no folder of findings, no campaign and no terminal.

Imports: fuzz.explore, fuzz.runs, fuzz.traces, properties, reference.
"""
