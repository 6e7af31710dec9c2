"""Engines: each turns a seed and a time budget into checked operations and, with luck, a counterexample.

In: a target factory, a seed, a range of units, a clock. Out: a `Tally` of what was done, and the first counterexample.

Engines know runs and traces. They know no folder of findings, no campaign and no terminal.

Imports: fuzz.runs, fuzz.traces, properties, reference.
"""
