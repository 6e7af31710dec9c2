"""Request traces: what a production recorded, as operations.

In: a file of requests (token blocks, lengths). Out: operations that a small scheduler makes of them, and what came of
them on a target.

`reading` finds a file's format among `formats` (`format` says what each must be) and gives values of `request`.
`expand` gives their ids token values, `schedule` plays the engine, `run_trace` drives a target, beside the judge or
(`bare`) alone.

The engine `trace` and the command line use this room.

Imports: fuzz.runs, properties, reference, numpy.
"""
