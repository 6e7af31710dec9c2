"""Findings: what a hit becomes.

In: a counterexample as it was found. Out: a shrunk one, its signature (what makes two findings one), its place in a
folder of findings, and its status against the baseline of what is known.

`shrink` (with `candidates`) makes it short, and asks the walk for shorter ways to the same fault. `harm` says what
worse comes of it. `signature` says what makes two findings one, also by the code that they run through (`places`, and
how alike these are: `likeness`). `store` keeps them in a folder (`keep`: for how long), `baseline` knows what was
accepted, with the `statuses` of that. `as_test` writes a finding as a pytest test. `crash` makes a finding of a
process's death; `filed` keeps what is found without a campaign.

Campaigns, the audit and the command line use this room.

Imports: fuzz.engines, fuzz.runs, fuzz.show, properties, reference.
"""
