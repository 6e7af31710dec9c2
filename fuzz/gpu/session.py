"""One worker's run: its parts in order, each with its share of the time, and the file flushed after every one.

A part that fails does not affect the others, unless the device no longer answers. Then the worker ends, and the
supervisor starts another one for the rest.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence

import torch
from rich.markup import escape

from . import benchmarks, bits, correctness, units
from .context import Context
from .facts import clocks, facts
from .measure import Stopwatch
from .parts import PARTS, limit
from .results import Results
from .sizes import FULL, Sizes

__all__ = ["DeviceLost", "run"]

_RUN: dict[str, Callable[[Context], None]] = {
    "rates": benchmarks.run_rates,
    "correctness": correctness.run,
    "bits": bits.run,
    "units": units.run,
    "decode": benchmarks.run_decode,
    "prefill": benchmarks.run_prefill,
    "tax": benchmarks.run_tax,
    "moves": benchmarks.run_moves,
    "large": correctness.run_large,
}

_LEAST = 3.0
"""Seconds that a part must have left to be begun."""


class DeviceLost(RuntimeError):
    """After an error of a kernel the device no longer answers. The remaining parts need a new process."""


def run(
    device: torch.device,
    results: Results,
    parts: Sequence[str],
    *,
    until: float,
    sizes: Sizes = FULL,
    say: Callable[[str], None] = print,
    seconds: float = 0.4,
) -> None:
    """Run `parts` on `device`, until the time `until` (of `time.monotonic`), and keep their findings in `results`.

    seconds: about how long one measurement takes. say: shows a line. Raises DeviceLost.
    """
    torch.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    results.data["device"] = facts(device)
    results.flush()
    ordered = [part for part in PARTS if part.name in parts]
    for number, part in enumerate(ordered):
        entry = results.part(part.name)
        left = until - time.monotonic()
        later = tuple(other.name for other in ordered[number + 1 :])
        share = limit(part.name, left, later)
        if share < _LEAST:
            entry["status"] = "skipped"
            entry["notes"].append(f"{max(left, 0):.0f} s were left for it and the parts after it")
            say(f"[yellow]skipped:[/] {part.name}, no time left")
            results.flush()
            continue
        start = time.monotonic()
        context = Context(device, sizes, results, Stopwatch(device, seconds), say, part=part.name, until=start + share)
        say(f"[bold]{part.name}[/]: {part.title} ({share:.0f} s)")
        entry |= {"status": "running", "limit": share}
        results.flush()
        try:
            _RUN[part.name](context)
            entry["status"] = "cut" if context.is_cut else "done"
        except Exception as error:
            entry["status"] = "failed"
            entry["notes"].append("".join(traceback.format_exception(error))[-2000:])
            say(f"[bold red]failed:[/] {part.name}: {type(error).__name__}: {escape(str(error)[:300])}")
        entry["seconds"] = time.monotonic() - start
        for complaint in dict.fromkeys(context.stopwatch.complaints):
            context.note(complaint)
        _end(device, results, entry)


def _end(device: torch.device, results: Results, entry: dict[str, object]) -> None:
    """Flush; raise DeviceLost if the device is gone."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
            entry["clocks"] = clocks(device)
    except RuntimeError as error:
        entry["status"] = "failed"
        results.flush()
        raise DeviceLost(str(error).splitlines()[0]) from error
    results.flush()
