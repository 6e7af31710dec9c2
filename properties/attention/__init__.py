"""EQUIVALENCE and BOUNDS: what must hold of the kernels that write and read a paged cache.

`cases.py` are data, `world.py` builds their tensors, `checks.py` says what must hold of them for any `Kernels` (see
`kernels.py`); `oracle.py` knows what is right, `sanitizer.py` who may touch what, `law.py` does it all beside the
allocator, as an observer of a session. `repairs.py` mends Triton's interpreter first.

Imports: properties, reference, numpy, torch, triton.
"""
