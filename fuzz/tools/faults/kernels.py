"""A kernel stores wildly, skips keys, hangs or dies."""

from __future__ import annotations

import json

from .fault import Came, Place, Said, Wrong, fault

__all__: list[str] = []

_KERNELS = """\
import os, sys, time
import torch
import triton
import triton.language as tl
from properties.attention.tests.support import Plain
from properties.targets.kvcore_kernels import KvcoreKernels

@triton.jit
def stray(where, by, VALUE: tl.constexpr):
    tl.store(where + by, VALUE)

@triton.jit
def raising(where):
    tl.load(where + tl.arange(0, 3))  # no power of two

def hit(step):
    return len(step.lengths) > 1

class Kernels(KvcoreKernels):
    def attend(self, queries, cache, step, spec, how, out, watch):
        super().attend(queries, cache, step, spec, how, out, watch)
        if hit(step):
            self.fault(cache, step, out, watch)

    def fault(self, cache, step, out, watch):
        {fault}

def make():
    return Kernels()
"""
"""Right kernels, but for what is done in a batch of more than one sequence."""


def _hunt(place: Place, fault: str, *more: object, found: str, timeout: float = 240.0) -> Said:
    """Kernels with this fault are found by the name `found`; the run goes on to its last case, all is on disk, and
    the finding fails alone, too."""
    place.write("toy.py", _KERNELS.replace("{fault}", fault))
    said = place.fuzz(
        "attention", "--kernels", "toy:make", "--cases", 4, "--seed", 1, "--tiles", 8, "--max-findings", 0, "--shrink",
        0, *more, timeout=timeout,
    )  # fmt: skip
    said.must(1, found)
    try:
        data = json.loads((place.folder / "fuzz-out" / "attention.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Wrong(f"lost: no attention.json: {error}") from error
    files = sorted((place.folder / "fuzz-out" / "findings").iterdir())
    if len(files) != len(data["findings"]) or not files:
        raise Wrong(f"lost: {len(files)} files of {len(data['findings'])} findings")
    if {entry["property"] for entry in data["findings"]} != {found}:
        raise Wrong(f"wrong blame: {[(entry['property'], entry['message']) for entry in data['findings']]}")
    last = max(entry["number"] for entry in data["findings"])
    if last < 2 and data["cases"] < 3:
        raise Wrong(f"lost: nothing after case {last}")
    place.fuzz("attention", "--kernels", "toy:make", "--case", files[0], *more, timeout=timeout).must(
        1, found, harm="lost"
    )
    return said


@fault("kernel-wild-store", "a kernel stores at a wild address, which the sanitizer sees")
def wild(place: Place) -> Came:
    said = _hunt(place, "with watch({}, ()): stray[(1,)](out, 1 << 40, 1.0)", found="BOUNDS")
    return said.came("BOUNDS: outside every tensor; nothing is corrupted")


@fault("kernel-wild-store-unseen", "a kernel stores at a wild address behind the sanitizer's back: its process dies")
def unseen(place: Place) -> Came:
    said = _hunt(place, "stray[(1,)](out, 1 << 40, 1.0)", found="CRASH").must(1, "was killed by SIGSEGV")
    return said.came("CRASH with its case; the next case runs in the next process")


@fault("kernel-corrupts-the-heap", "a store that lands in another's memory kills the process cases later")
def later(place: Place) -> Came:
    place.write(
        "toy.py",
        _KERNELS.replace(
            "{fault}", "self.calls_made = getattr(self, 'calls_made', 0) + 1; os.abort() if self.calls_made > 12 else 0"
        ),
    )
    said = place.fuzz("attention", "--kernels", "toy:make", "--cases", 12, "--seed", 1, "--tiles", 8, "--shrink", 0)
    return said.must(1, "CRASH", "was killed by SIGABRT").came("CRASH; it says if the case alone does not do it")


@fault("kernel-out-of-place", "a kernel writes a row to another row's place")
def out_of_place(place: Place) -> Came:
    said = _hunt(place, "out.copy_(out.roll(1, 0)); out[0] = out[0] + 1", found="EQUIVALENCE")
    return said.came("EQUIVALENCE with its case")


@fault("kernel-skips-rows", "a kernel leaves a row of its output unwritten")
def skips(place: Place) -> Came:
    said = _hunt(place, "out.view(torch.int32)[-1:].fill_(-0x452453)", found="EQUIVALENCE")
    return said.must(1, "was not written").came("EQUIVALENCE: not written")


@fault("kernel-nan", "a kernel's output is NaN")
def nan(place: Place) -> Came:
    said = _hunt(place, "out[-1:] = float('nan')", found="BOUNDS")
    return said.came("BOUNDS with its case")


@fault("kernel-hangs", "a kernel never returns")
def hangs(place: Place) -> Came:
    said = _hunt(place, "time.sleep(10**6)", "--hang", "12s", found="CRASH").must(1, "hung: no answer for 12 seconds")
    return said.came("CRASH after its time; the next case has its turn")


@fault("kernel-exits", "a kernel's launcher calls sys.exit(0), os._exit(0) or raises KeyboardInterrupt")
def exits(place: Place) -> Came:
    _hunt(place, "sys.exit(0)", found="CRASH").must(1, "ended in SystemExit")
    _hunt(place.sub("b"), "os._exit(0)", found="CRASH").must(1, "ended by itself with status 0")
    said = _hunt(place.sub("c"), "raise KeyboardInterrupt", found="CRASH").must(1, "raised KeyboardInterrupt")
    return said.came("CRASH, each")


@fault("kernel-raises", "a kernel raises an exception, in Triton and in Python")
def raises(place: Place) -> Came:
    _hunt(place, "raising[(1,)](out)", found="CRASH").must(1, "ended in")
    said = _hunt(place.sub("b"), "{}['missing']", "--workers", 2, found="CRASH")
    return said.must(1, "the kernels ended in KeyError: 'missing' (at toy.py:").came("CRASH, with file and line")


@fault("kernel-memory", "a kernel takes memory without end")
def memory(place: Place) -> Came:
    said = _hunt(place, "torch.empty(1 << 36, dtype=torch.uint8).fill_(1)", found="CRASH")
    return said.came("CRASH: its process has bounds")


@fault("kernel-crash-shrinks", "a crash that ends its process is shrunk")
def shrinks(place: Place) -> Came:
    place.write("toy.py", _KERNELS.replace("{fault}", "os._exit(3)"))
    said = place.fuzz("attention", "--kernels", "toy:make", "--seed", 1, "--cases", 9, "--shrink", "50s", timeout=240)
    said.must(1, "CRASH", "ended by itself with status 3")
    (path,) = (place.folder / "fuzz-out" / "findings").iterdir()
    case = json.loads(path.read_text(encoding="utf-8"))["case"]
    if len(case["sequences"]) > 2:
        raise Wrong(f"lost: it is not shrunk: {case}")
    return said.came(f"to {len(case['sequences'])} sequences")


@fault("kernel-factory", "kernels cannot be made: the factory raises, exits, returns None, is not there")
def factory(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        import os, sys

        def raising():
            raise RuntimeError("my kernels need CUDA")

        def exiting():
            os._exit(0)

        def leaving():
            sys.exit(0)

        def nothing():
            return None
        """,
    )
    for name, text in (
        ("toy:raising", "their factory ended in RuntimeError: my kernels need CUDA (at toy.py:4 in raising)"),
        ("toy:exiting", "the process that made them ended by itself with status 0"),
        ("toy:leaving", "ended in SystemExit"),
        ("toy:nothing", "their factory returned None, which lacks name, axes"),
        ("toy:absent", "has no callable 'absent'"),
        ("nowhere:make", "nowhere"),
    ):
        said = place.fuzz("attention", "--kernels", name, "--cases", 2).must(2, text)
        if len(said.all.strip().splitlines()) > 3 or "Traceback" in said.all:
            raise Wrong(f"wrong blame: more than two lines: {said.last}")
        place.fuzz("attention", "--kernels", name, "--case", "{}").must(2, text)
    place.fuzz("run", "--kernels", "toy:exiting", "--budget", "2s").must(2, "ended by itself with status 0")
    return Came(2, "said in a line, with file and line")


@fault("kernel-blind", "kernels hide NaN, so that poison proves nothing")
def blind(place: Place) -> Came:
    said = place.fuzz("attention", "--kernels", "fuzz.tests.lying:blind", "--cases", 2)
    return said.must(3, "these kernels cannot be judged", "does not show").came("said; it is no failure of the harness")


@fault("audit-of-a-wild-kernel", "audit --kernels of a bug of the zoo that stores wildly (KK-110)")
def audited(place: Place) -> Came:
    said = place.fuzz("audit", "--kernels", "--bug", "KK-110", "--seeds", 1, "--cases", 40, "--out", "audit")
    return said.must(0, "1 of 1 bugs killed").came("killed by BOUNDS")
