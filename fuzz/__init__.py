"""Producers of operations in volume, and what is done with what they find.

From below: `runs` (one run), `traces`, `explore` and `engines` (what draws operations), `show` and `findings` (what is
made of a violation), `campaign` (a night), `zoo` and `audit` (how good the harness is), `gpu`, `cli`. `example` is a
core as a user writes one. `record` stands between an engine and its core. `guarded` says which commands run as the
child of a guard. `tools` and `benchmarks` are for developers.

Imports: properties, reference, fuzz.runs.
"""
