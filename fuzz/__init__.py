"""Producers of operations in volume, and what is done with what they find.

Imports `properties` and `reference`; reaches a core only through its target. `walk`, `run` and `shrink` import neither
Hypothesis nor torch.
"""
