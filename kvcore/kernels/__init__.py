"""The kernels that write, read and copy the paged cache. Needs torch; Triton for CUDA devices (the extra `cuda`).

`kvcore.attention.PagedAttention` is the call for engines; these are its parts.

Imports: kvcore, numpy, torch, triton.
"""

from .calls import DevicePlan, Room, audit, paged_attention, store_kv
from .plan import Lane, Plan, Schedule, make_plan
from .spec import AttentionSpec, Tiling, Tree, default_tree, tilings

__all__ = [
    "AttentionSpec",
    "DevicePlan",
    "Lane",
    "Plan",
    "Room",
    "Schedule",
    "Tiling",
    "Tree",
    "audit",
    "default_tree",
    "make_plan",
    "paged_attention",
    "store_kv",
    "tilings",
]
