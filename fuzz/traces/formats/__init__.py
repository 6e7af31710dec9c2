"""Formats of request traces, one a file. A new one is a file here, and nothing else.

In: a line. Out: a `Request`. A module's name is the format's name, and its `FORMAT` the class, a
`fuzz.traces.format.Format`. `fuzz.traces.reading` finds it.

Imports: fuzz.runs, fuzz.traces.
"""
