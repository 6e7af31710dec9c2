"""Campaigns: what happens in a night.

In: a plan (targets, engines, configurations, a budget). Out: a folder with findings, a summary for machines and a
history. A plan becomes streams of units; workers hunt in them; hits are settled into findings; the result says with
which status the night ended.

This room knows engines, findings and runs. The terminal is told what happens through a `Show`.

Imports: fuzz.benchmarks, fuzz.engines, fuzz.findings, fuzz.runs, fuzz.show, properties, reference, rich.
"""
