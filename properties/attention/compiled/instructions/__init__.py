"""What each instruction does, by family, as functions that make an `Act` of an instruction and what it stands at.

    registry       name -> function
    integers       arithmetic, logic, shifts, comparisons of integers, and of predicates
    floats         arithmetic and comparisons of float32 and float64
    conversions    cvt
    moves          mov, selp, prmt, ld, st
    copies         cp.async
    exchanges      shfl, ldmatrix, stmatrix, barriers
    products       mma.sync
    warpgroups     wgmma

What is in no file here, and every modifier that a file does not name, is refused.

Imports: properties.attention, numpy.
"""

from . import conversions, copies, exchanges, floats, integers, moves, products, warpgroups
from .registry import build

__all__ = ["build", "conversions", "copies", "exchanges", "floats", "integers", "moves", "products", "warpgroups"]
