"""EQUIVALENCE and BOUNDS: what must hold of the kernels that write and read a paged cache.

In: kernels behind the protocol of `kernels.py`. Out: a violation, or counts of what was checked.

`cases.py` has cases as data, `world.py` builds their tensors, and `checks.py` says what must hold for them. `oracle.py`
knows the right output, and `sanitizer.py` which program may touch which memory. `law.py` does all of it beside the
allocator, as an observer of a session. `repairs.py` repairs Triton's interpreter first.

Imports: properties, reference, numpy, torch, triton.
"""
