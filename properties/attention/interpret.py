"""Prepares Triton's interpreter, so that kernels can be checked on the CPU.

Triton decides when it is imported whether kernels are compiled or interpreted, so this comes first: before torch,
Triton or an adapter.
"""

from __future__ import annotations

import os
import sys

__all__ = ["NotInterpreted", "prepare"]


class NotInterpreted(RuntimeError):
    """Triton was imported before its interpreter was asked for. Import nothing of it earlier, or set
    TRITON_INTERPRET=1 in the environment."""


def prepare(dot: str = "sequential") -> None:
    """Switch the interpreter on and repair it (see `repairs.py`). dot: how products are summed.

    One thread for torch: the tensors are small, and several processes may run. Raises NotInterpreted if it is too late.
    """
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    import torch
    from triton import knobs

    if not knobs.runtime.interpret:
        raise NotInterpreted(
            "Triton has been imported to compile kernels; set TRITON_INTERPRET=1 in the environment to interpret them"
        )
    from . import repairs

    torch.set_num_threads(1)
    repairs.install(dot)
