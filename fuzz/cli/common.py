"""What several commands share: the consoles, options and arguments that are read alike, Ctrl-C, lines that are printed
alike."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from properties.attention.interpret import NotInterpreted, prepare
from properties.boundary import ended, no_target
from properties.operations import Configuration
from properties.target import TargetFactory
from properties.targets import UnknownTarget, load

from ..engines.bench import Bench, NoKernels
from ..runs.foreign import printed
from ..runs.guard import hushed, record_to
from ..runs.quantities import bytes_of, seconds_of
from ..runs.recording import recording
from ..runs.status import USAGE
from ..runs.values import Counterexample
from ..show.timeline import describe
from ..traces.reading import BUILT_IN, read_trace
from ..traces.request import Request, TraceError

__all__ = [
    "Interruptible",
    "OutsideOption",
    "Reuse",
    "SafetyOption",
    "TargetOption",
    "complaints",
    "console",
    "duration",
    "factory_of",
    "kernels_of",
    "lost",
    "memory_of",
    "now",
    "requests_of",
    "show_counterexample",
    "show_engines",
    "show_operations",
    "trace_line",
    "usage",
]


class Terminal(Console):
    """A console that writes out control characters of what it is given: its own colours are no part of a text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printed(segment.text), segment.style)


console = Terminal(highlight=False, emoji=False)
complaints = Terminal(stderr=True, highlight=False, emoji=False)


def usage(message: str) -> NoReturn:
    """Say what is wrong with the command line, or with a file that it names, and end with 2."""
    complaints.print(f"[red]error:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(USAGE)


def now() -> datetime:
    """What campaigns and findings are dated with."""
    return datetime.now().astimezone().replace(microsecond=0)


# ---- options and arguments -------------------------------------------------------------------------------------------

TargetOption = Annotated[str, typer.Option(help="A file of properties/targets (kvcore), or package.module:factory.")]
OutsideOption = Annotated[
    bool, typer.Option("--outside", help="Judge from the outside only: do not look into the core.")
]
SafetyOption = Annotated[
    bool, typer.Option("--safety", help="Do not predict which blocks are chosen; judge harm alone.")
]


class Reuse(str, Enum):
    last_block = "last_block"
    last_token = "last_token"


def factory_of(target: str) -> TargetFactory:
    """The factory, tried once, so that a core that is not installed is said before anything begins."""
    if streams := hushed():
        console.file, complaints.file = streams
    try:
        factory = load(target)
        wrong = no_target(factory(Configuration()))
    except (UnknownTarget, ImportError) as error:
        usage(str(error))
    except Exception as error:
        usage(f"target {target}: {ended('its factory', error).message}")
    if wrong:
        usage(f"target {target}: its factory returned {wrong}")
    if (path := record_to()) is not None:  # this process died of it, and does the same again
        factory = _recordings.enter_context(recording(path, factory))
    return factory


_recordings = ExitStack()


def lost(line: str, why: object) -> None:
    """Print what no disk would take, so that whoever reads the log still has it."""
    complaints.print(
        f"[bold red]no disk would take this finding[/] ({escape(str(why))}); put the line in a file and replay that:",
        soft_wrap=True,
    )
    print(line, flush=True, file=console.file)


def duration(text: str) -> float:
    """Seconds: 45, 45s, 10m, 2h or 1d."""
    try:
        return seconds_of(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; give seconds or 45s, 10m, 2h, from 0 on") from None


def kernels_of(name: str, shown: bool = True, *, made: bool = True) -> str:
    """The kernels to run steps on: "" for "none", and for "auto" where torch or Triton is not installed, or where not
    every target shows its steps. made: make them once, in a process of their own, so that what is wrong with them is
    said before anything begins; and from then on Triton interprets, in this process and those it starts."""
    if name == "none" or (name == "auto" and not shown):
        return ""
    missing = [package for package in ("torch", "triton") if find_spec(package) is None]
    if name == "auto":
        return "" if missing else "kvcore"
    if missing:
        usage(f"--kernels {name} needs {' and '.join(missing)}: pip install 'kvcore[cuda]', or give --kernels none")
    if made and name != "kvcore":
        with Bench() as bench:
            try:
                bench.describe(name)
            except NoKernels as error:
                usage(str(error))
    if made:
        try:
            prepare()
        except NotInterpreted as error:
            usage(f"--kernels {name}: {error}")
    return name


def memory_of(text: str) -> int:
    """Bytes: 4GiB, 500MiB, or a number."""
    try:
        return bytes_of(text)
    except (ValueError, OverflowError):
        usage(f"--memory {text!r} is not a size; give 4GiB, 500MiB, or 0 for no bound")


def requests_of(file: Path | None) -> list[Request]:
    """The trace in `file`; the built-in one without."""
    try:
        return read_trace(file if file is not None else BUILT_IN)
    except TraceError as error:
        usage(str(error))


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


class Interruptible:
    """The campaign's clock, and where Ctrl-C is honoured: at the next look at it, many times a second.

    Raised wherever it arrives, a KeyboardInterrupt is lost if that is in a weak reference's callback, whose exceptions
    Python ignores. A second Ctrl-C before the next look is raised at once.
    """

    def __init__(self) -> None:
        self._pressed = False

    def __call__(self) -> float:
        if self._pressed:
            self._pressed = False
            raise KeyboardInterrupt
        return time.monotonic()

    def __enter__(self) -> Interruptible:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _press(self, *_: object) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True


# ---- lines -----------------------------------------------------------------------------------------------------------


def show_counterexample(found: Counterexample, most: int = 0) -> None:
    """The violation, the configuration, and an operation a line; of more than `most` the last ten (0: all)."""
    console.print(f"[bold red]{found.property_id}[/] {escape(found.message)}", soft_wrap=True)
    console.print(f"  {found.configuration}", style="dim")
    before = len(found.operations) - 10 if 0 < most < len(found.operations) else 0
    if before:
        console.print(f"  ... {before} operations before these")
    show_operations(found, before)


def show_operations(found: Counterexample, first: int = 0) -> None:
    """An operation a line, from that at `first` on; the one that breaks a property in red."""
    for number, operation in enumerate(found.operations[first:], first):
        mark = "[bold red]" if number == found.at else ""
        console.print(f"  {mark}{number + 1:>2}  {escape(describe(operation))}", soft_wrap=True)


def show_engines(summary: Mapping[str, Any], seconds: str) -> None:
    """The table of what ran; `seconds` heads their column."""
    table = Table(title="What ran", title_justify="left", box=None, pad_edge=False)
    for name in ("engine", "checked operations", seconds, "a second"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for engine, row in summary["engines"].items():
        table.add_row(
            engine, f"{row['operations']:,}", f"{row['seconds']:.1f}", f"{row['operations_per_second'] or 0:,}"
        )
    console.print(table)


def trace_line(figures: dict[str, Any]) -> str:
    """What came of a trace, in one line."""
    evicted = "unknown" if figures["evictions"] is None else f"{figures['evictions']:,}"
    share = figures["hit_tokens"] / figures["prompt_tokens"] if figures["prompt_tokens"] else 0.0
    return (
        f"{figures['requests']:,} requests ({figures['dropped']} dropped), {figures['prompt_tokens']:,} prompt tokens, "
        f"{figures['hit_tokens']:,} prefix-hit tokens ({share:.1%}), {figures['output_tokens']:,} output tokens, "
        f"{evicted} evictions, {figures['refusals']:,} refusals, {figures['preemptions']:,} preemptions, "
        f"{figures['steps']:,} steps, {figures['operations']:,} operations in {figures['seconds']:.1f} s "
        f"({figures['operations_per_second']:,}/s)"
    )
