"""Findings: what a hit becomes.

In: a counterexample as it was found. Out: a shrunk one, its signature (what makes two findings one), its place in a
folder of findings, and its status against the baseline of what is known.

This room knows runs, and the walk, which shrinking asks for shorter ways to the same fault. It knows no campaign.

Imports: fuzz.engines, fuzz.runs, fuzz.show, properties, reference.
"""
