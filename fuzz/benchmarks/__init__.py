"""Benchmarks, with pytest-benchmark: `make bench`. Speed is measured here and asserted nowhere.

Every figure that matters is a ratio of two things timed in turn in one run, since machines are shared and noisy.

This room may know everything that it measures; nothing imports it.
"""
