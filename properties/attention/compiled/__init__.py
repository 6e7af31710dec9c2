"""What the compiler makes of kernels, run without a GPU: an emulator of PTX that checks every access.

    text           PTX to plain values
    bits           number formats and roundings
    memory         global and shared memory, and what must not happen there
    flow           where ways meet again
    machine        groups of CTAs in lockstep
    instructions   what each instruction does
    launching      Triton's launches, sent here

Tensor cores sum by the published models that `repairs.fused` has. What is approximate on a GPU (ex2.approx, div.full)
is rounded correctly here. Unknown instructions are refused.

Imports: properties.attention, reference, numpy, torch, triton.
"""

from .launching import Emulation, begin, emulating
from .memory import Fault
from .text import Unsupported

__all__ = ["Emulation", "Fault", "Unsupported", "begin", "emulating"]
