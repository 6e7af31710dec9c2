"""The audit: how good is the harness? Every bug of the zoo is planted in kvcore and hunted.

In: bugs, engines, seeds. Out: what killed each bug, how soon, and how short the counterexample became.

It imports the zoo, engines, findings and runs. Only the command line imports it.
"""
