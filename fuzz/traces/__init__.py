"""Request traces: what a production recorded, as operations.

In: a file of requests (token blocks, lengths, arrival times). Out: operations that a small scheduler makes of them.

This room knows runs. It knows no engine: the engine `trace` knows it.

Imports: properties, reference, numpy.
"""
