"""Producers of operations in volume, and what is done with what they find.

Imports: properties, reference, fuzz.runs.
"""
