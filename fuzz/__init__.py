"""Producers of operations in volume, and what is done with what they find: campaigns, replay, shrinking, traces, reports.

Imports `properties` and `reference`; reaches a core only through its target. `walk`, `run` and `shrink` import neither
Hypothesis nor torch.
"""
