"""One worker: `python -m fuzz.gpu REQUEST`. `python -m fuzz gpu` starts it and tells it in JSON what to do.

Exit statuses: 0 all parts were done or skipped, 4 no device, 70 the device was lost, others as the process died.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from .results import Results
from .supervise import LOST, NO_DEVICE

__all__ = ["main"]


def main(request: str) -> int:
    """Do what the request asks for; returns the exit status."""
    asked = json.loads(request)
    console = Console(highlight=False, stderr=bool(asked["quiet"]))
    until = time.monotonic() + asked["until"] - time.time()
    missing = _missing()
    if missing:
        console.print(f"[yellow]{escape(missing)}[/]", soft_wrap=True)
        return NO_DEVICE

    import torch

    from .session import DeviceLost, run

    path = Path(asked["path"])
    if asked["resume"]:
        results = Results.load(path)
    else:
        results = Results.fresh(path, asked["run"], asked["minutes"], tuple(asked["parts"]))
    try:
        run(
            torch.device("cuda", torch.cuda.current_device()),
            results,
            asked["parts"],
            until=until,
            say=lambda line: console.print(line, soft_wrap=True),
        )
    except DeviceLost as error:
        console.print(f"[bold red]the device was lost:[/] {escape(str(error))}", soft_wrap=True)
        return LOST
    return 0


def _missing() -> str:
    """What this machine lacks, as a sentence; "" if nothing."""
    try:
        import torch
        import triton  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
    except ImportError as error:
        return f"no device: {error}; the kernels need torch and Triton (pip install 'kvcore[cuda]')"
    if not torch.cuda.is_available():
        return "no device: torch finds no CUDA device here; this command needs one"
    major, minor = torch.cuda.get_device_capability()
    if major < 8:
        name = torch.cuda.get_device_name()
        return f"no device: {name} has compute capability {major}.{minor}; the kernels need 8.0 (A100) or later"
    return ""


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:  # the one that watches was interrupted too, and says so
        sys.exit(130)
