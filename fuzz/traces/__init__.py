"""Request traces: what a production recorded, as operations.

In: a file of requests (token blocks, lengths). Out: operations that a small scheduler makes of them, and what came of
them on a target.

A file is read in any of `formats`; `expand` gives its ids token values; `schedule` plays the engine; `run_trace` drives
a target, beside the judge or (`bare`) alone. The engine `trace` uses this room.

Imports: properties, reference, numpy.
"""
