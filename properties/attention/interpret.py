"""Prepares Triton's interpreter, so that kernels can be checked on the CPU.

Triton decides when it is imported whether kernels are compiled or interpreted, so this comes first: before torch,
Triton or an adapter.
"""

from __future__ import annotations

import os
import sys

__all__ = ["NotInterpreted", "hindrance", "prepare"]


class NotInterpreted(RuntimeError):
    """Triton was imported before its interpreter was asked for. Import nothing of it earlier, or set
    TRITON_INTERPRET=1 in the environment."""


_NEEDED = {"torch": "set_num_threads", "triton": "knobs"}
"""Packages, and a name by which each is known from a stand-in."""


def hindrance() -> str:
    """Why kernels cannot be interpreted in this process, as the end of a sentence about what it has imported; "" if
    they can, as far as can be told. Imports nothing."""
    for package, name in _NEEDED.items():
        if package in sys.modules and not hasattr(sys.modules[package], name):
            return f"puts something else in the place of {package}, which kernels need"
    if "triton" in sys.modules and not sys.modules["triton"].knobs.runtime.interpret:
        return "imports Triton to compile kernels; TRITON_INTERPRET=1 in the environment has them interpreted"
    return ""


def prepare(dot: str = "sequential") -> None:
    """Switch the interpreter on and repair it (see `repairs.py`). dot: how products are summed.

    One thread for torch: the tensors are small, and several processes may run. Raises NotInterpreted if it is too late.
    """
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    if why := hindrance():
        raise NotInterpreted(f"something that ran here {why}")
    import torch

    from . import repairs

    torch.set_num_threads(1)
    repairs.install(dot)
