"""What a part is given: the device, the sizes, a stopwatch, its time, and the results to write into."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from rich.markup import escape

from .measure import Stopwatch
from .results import Results
from .sizes import Sizes

__all__ = ["Context"]


@dataclass
class Context:
    """part: the running part's name. until: when its time is up, by `time.monotonic`. say: shows one line."""

    device: torch.device
    sizes: Sizes
    results: Results
    stopwatch: Stopwatch
    say: Callable[[str], None]
    part: str = ""
    until: float = float("inf")
    is_cut: bool = field(default=False, init=False)

    @property
    def left(self) -> float:
        """Seconds that this part may still take."""
        return self.until - time.monotonic()

    def cut(self, text: str) -> None:
        """Note that the part's time was up, and what was not reached."""
        self.is_cut = True
        self.results.note(self.part, text)

    def note(self, text: str) -> None:
        self.results.note(self.part, text)

    def check(self, name: str, holds: bool | None, said: str, **details: object) -> None:
        """Note a check, and show it at once if it failed."""
        self.results.check(self.part, name, holds, said, **details)
        if holds is False:
            self.say(f"[bold red]failed:[/] {escape(name)}: {escape(said)}")

    def release(self) -> None:
        """Return unused memory to the device."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def free(self) -> int:
        """Free bytes of the device's memory; on the CPU more than any test takes."""
        if self.device.type != "cuda":
            return 2**40
        return int(torch.cuda.mem_get_info(self.device)[0])
