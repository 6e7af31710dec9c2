"""Which device and which software this is, so that a number still means something a year later.

A fact that cannot be found out is left out. Nothing else depends on these facts.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

__all__ = ["clocks", "facts"]

_QUERY = (
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "clocks.max.mem",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "ecc.mode.current",
)


def facts(device: torch.device) -> dict[str, Any]:
    """Name, processors, memory, versions and a digest of the kernels' source. Waits at most 10 s for nvidia-smi."""
    known: dict[str, Any] = {
        "name": platform.processor() or "CPU",
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": _triton(),
        "source": _source(),
    }
    if device.type != "cuda":
        return known
    properties = torch.cuda.get_device_properties(device)
    known |= {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "processors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "free_bytes": torch.cuda.mem_get_info(device)[0],
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call,unused-ignore]
    }
    for name, attribute in (("l2_bytes", "L2_cache_size"), ("clock_khz", "clock_rate")):
        value = getattr(properties, attribute, None)
        if value is not None:
            known[name] = value
    known["clocks"] = clocks(device)
    return known


def clocks(device: torch.device) -> dict[str, str]:
    """What nvidia-smi says of clocks, power and temperature just now, in its own words; {} if it fails."""
    index = torch.cuda.current_device() if device.index is None else device.index
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    for chosen in ([f"GPU-{uuid}"] if uuid else []) + [str(index)]:  # with CUDA_VISIBLE_DEVICES the index may differ
        try:
            said = subprocess.run(
                ["nvidia-smi", "-i", chosen, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        if said.strip():
            return dict(zip(_QUERY, (field.strip() for field in said.splitlines()[0].split(",")), strict=False))
    return {}


def _triton() -> str:
    try:
        import triton  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return "none"
    return str(triton.__version__)


def _source() -> str:
    """SHA-256 of the kernels' source, shortened: which kernels were measured."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[2] / "kvcore" / "kernels"
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
