"""The audit: how good is the harness? Every bug of the zoo is planted in kvcore and hunted.

In: bugs, engines, seeds. Out: what killed each bug, how soon, and how short the counterexample became.

Only the command line imports it.

`audit` does it, `show` makes its tables and its page.

Imports: fuzz.engines, fuzz.findings, fuzz.runs, fuzz.show, fuzz.zoo, properties, reference, rich.
"""
