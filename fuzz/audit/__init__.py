"""The audit: how good is the harness? Every bug of the zoo is planted in kvcore and hunted.

In: bugs, engines, seeds. Out: what killed each bug, how soon, and how short the counterexample became.

This room knows the zoo, engines, findings and runs. Nothing but the command line knows it.

Imports: fuzz.engines, fuzz.findings, fuzz.runs, fuzz.show, fuzz.zoo, properties, reference, rich.
"""
