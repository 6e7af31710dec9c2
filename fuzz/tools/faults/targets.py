"""A target ends its process, hangs, is interrupted, leaves threads or prints without end."""

from __future__ import annotations

import json
from textwrap import indent

from .fault import Came, Fault, Place, Said, Wrong, fault

__all__: list[str] = []

_TOY = """\
import ctypes, os, signal, sys, threading, time
from properties.targets.kvcore import KvcoreTarget

class Toy(KvcoreTarget):
    def allocate(self, request, tokens, *rest):
        if len(tokens) > 6:
{fault}
        return super().allocate(request, tokens, *rest)
"""

_QUICK = ("--engine", "walk", "--seed", "1", "--kernels", "none")


def _toy(place: Place, fault: str) -> str:
    place.write("toy.py", _TOY.format(fault=indent(fault, " " * 12)))
    return "toy:Toy"


def _run(place: Place, fault: str, *more: str, budget: str = "4s") -> Said:
    return place.fuzz("run", "--target", _toy(place, fault), *_QUICK, "--budget", budget, *more)


def _crash(place: Place, said: Said, *texts: str) -> Came:
    """A CRASH with its operations, a report, and a summary that agrees."""
    said.must(1, "CRASH", *texts)
    summary = place.summary()
    crashes = [found for found in place.findings() if found["property"] == "CRASH"]
    if summary["status"] != 1 or not crashes:
        raise Wrong(f"lost: the summary has status {summary['status']} and {len(crashes)} crashes")
    if not crashes[0]["operations"]:
        raise Wrong("lost: the finding has no operations")
    if not (place.folder / "fuzz-out" / "report.html").exists():
        raise Wrong("lost: there is no report")
    return said.came(f"{crashes[0]['property']}: {crashes[0]['message']}; {len(crashes[0]['operations'])} operations")


def _ends(name: str, what: str, code: str, *texts: str, quick: bool = False, more: tuple[str, ...] = ()) -> Fault:
    """A run on a target that does `code` in allocate."""
    return fault(name, f"the target {what} in allocate", quick=quick)(
        lambda place: _crash(place, _run(place, code, *more), *texts)
    )


exits = _ends("exit-0", "ends its process with status 0", "os._exit(0)", "ended by itself with status 0", quick=True)
exits_3 = _ends("exit-3", "ends its process with status 3", "os._exit(3)", "ended by itself with status 3")
sys_exits = _ends("sys-exit", "calls sys.exit(0)", "sys.exit(0)")
segv = _ends("segv", "reads a null pointer", "ctypes.string_at(0)", "SIGSEGV")
aborts = _ends("abort", "aborts", "os.abort()", "SIGABRT")
killed = _ends("sigkill", "is killed", "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL")
terminated = _ends("sigterm", "sends SIGTERM to itself", "os.kill(os.getpid(), signal.SIGTERM)", "SIGTERM")
hangs = _ends("hang", "sleeps for ever", "time.sleep(1e6)", "hung", more=("--hang", "2s"))
loops = _ends("loop", "loops for ever", "while True: pass", "hung", more=("--hang", "2s"))
holds = _ends(
    "hang-in-c", "sleeps for ever in C and lets no other thread run", "ctypes.PyDLL(None).sleep(100000)", "hung",
    more=("--hang", "2s"),
)  # fmt: skip
interrupts = _ends("interrupt", "raises KeyboardInterrupt", "raise KeyboardInterrupt")
prints = _ends("prints", "prints without end", "while True: print('x' * 9999)", "hung", more=("--hang", "2s"))
hoards = _ends(
    "memory", "takes memory without end", "self.kept = [bytearray(1 << 24) for _ in iter(int, 1)]",
    more=("--memory", "300MiB"),
)  # fmt: skip
closes = _ends("closes-files", "closes every file of its process", "os.closerange(0, 99)")
trapped = _ends(
    "traps-signals", "ignores every signal that it can, and hangs",
    "for one in (2, 10, 15): signal.signal(one, signal.SIG_IGN)\nwhile True: time.sleep(1)", "hung",
    more=("--hang", "2s"),
)  # fmt: skip


@fault("threads", "each target starts a thread that never ends")
def threads(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        import threading
        from properties.targets.kvcore import KvcoreTarget

        class Toy(KvcoreTarget):
            def __init__(self, configuration):
                super().__init__(configuration)
                threading.Thread(target=threading.Event().wait).start()
        """,
    )
    return _crash(place, place.fuzz("run", "--target", "toy:Toy", *_QUICK, "--budget", "4s"), "threads")


@fault("changes-folder", "the target changes the working folder, and has a bug")
def changes_folder(place: Place) -> Came:
    said = _run(place, "os.chdir('/')\n[][0]", "--out", "night")
    said.must(1, "CRASH", harm="lost")
    if not place.findings("night"):
        raise Wrong("lost: no finding in the folder")
    return said.came("CRASH, in its folder")


def _late(place: Place, fault: str) -> str:
    """A finding of a run on a target that does `fault`."""
    _run(place, fault).must(1)
    return str(next((place.folder / "fuzz-out" / "findings").glob("CRASH-*/counterexample.json")))


@fault("replay-exit-0", "a finding is replayed whose target ends its process with status 0", quick=True)
def replay_exits(place: Place) -> Came:
    place.write("toy.py", _TOY.format(fault=" " * 12 + "os._exit(0)"))
    file = place.write(
        "found.json",
        json.dumps(
            {
                "schema": 1,
                "target": "toy:Toy",
                "property": "CRASH",
                "message": "its process ended by itself with status 0",
                "configuration": {"num_blocks": 8, "block_size": 2},
                "operations": [{"op": "allocate", "request": "a", "tokens": [1] * 9}],
            }
        ),
    )
    place.fuzz("replay", "--target", "toy:Toy", file, "--bisect").must(1, "bad")
    return (
        place.fuzz("replay", "--target", "toy:Toy", file)
        .must(1, "CRASH", "status 0")
        .came("CRASH, and bisect says bad")
    )


@fault("replay-hang", "a finding is replayed whose target hangs; Ctrl-C twice")
def replay_hangs(place: Place) -> Came:
    import signal
    from time import sleep

    file = place.write(
        "found.json",
        '{"schema": 1, "target": "toy:Toy", "property": "CRASH", "configuration": {"num_blocks": 8, "block_size": 2},'
        ' "operations": [{"op": "allocate", "request": "a", "tokens": [1, 1, 1, 1, 1, 1, 1, 1]}]}',
    )
    place.write("toy.py", _TOY.format(fault=" " * 12 + "time.sleep(1e6)"))
    process = place.begin("-m", "fuzz", "replay", "--target", "toy:Toy", file)
    sleep(3)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    return Said("replay", process.returncode, out, err, 0.0).must(130, "interrupted").came("ended at once")


@fault("shrink-exit-0", "a finding that ends the process is shrunk by replay")
def shrinks(place: Place) -> Came:
    place.write("toy.py", _TOY.format(fault=" " * 12 + "os._exit(0)"))
    tokens = "[1, 1, 1, 1, 1, 1, 1, 1]"
    place.write(
        "found.json",
        '{"schema": 1, "target": "toy:Toy", "property": "CRASH", "configuration": {"num_blocks": 8, "block_size": 2},'
        ' "operations": [{"op": "allocate", "request": "b", "tokens": [2]}, {"op": "free", "request": "b"},'
        f' {{"op": "allocate", "request": "a", "tokens": {tokens}}}]}}',
    )
    said = place.fuzz("replay", "--target", "toy:Toy", "found.json", "--shrink", "least.json").must(1, "CRASH")
    least = json.loads((place.folder / "least.json").read_text())
    if len(least["operations"]) != 1:
        raise Wrong(f"lost: {len(least['operations'])} operations are left, not 1")
    return said.came("CRASH, shrunk to 1 operation")


@fault("trace-segv", "the target dies in the middle of a request trace")
def traces(place: Place) -> Came:
    said = place.fuzz("trace", "--target", _toy(place, "ctypes.string_at(0)"), "--limit", "20", timeout=200)
    said.must(1, "CRASH", "SIGSEGV")
    if not place.findings():
        raise Wrong("lost: no finding")
    return said.came("CRASH: killed by SIGSEGV; a finding")


@fault("explore-exit-0", "the target ends its process while its states are explored, on two processes")
def explores(place: Place) -> Came:
    place.write("toy.py", _TOY.format(fault=" " * 12 + "os._exit(0)").replace("> 6", "> 1"))
    said = place.fuzz("explore", "--target", "toy:Toy", "--blocks", "3", "--max-tokens", "3", "--out", "fuzz-out")
    said.must(1, "CRASH", "status 0")
    if not place.findings():
        raise Wrong("lost: no finding")
    return said.came("CRASH; a finding")


@fault("compare-exit-0", "a target that ends its process is compared with kvcore")
def compares(place: Place) -> Came:
    said = place.fuzz("compare", _toy(place, "os._exit(0)"), "kvcore", "--budget", "6s")
    return said.must(1).came("CRASH is violated in its column")


@fault("report-segv", "a page is made anew of findings whose targets die")
def reports(place: Place) -> Came:
    _late(place, "ctypes.string_at(0)")
    return place.fuzz("report", "--out", "fuzz-out").must(0).came("a page, without that picture")


@fault("import-exit-0", "importing the target ends the process with status 0", quick=True)
def imports(place: Place) -> Came:
    place.write("toy.py", "import os; os._exit(0)")
    return place.fuzz("run", "--target", "toy:Toy", "--budget", "3s").must(2, "toy:Toy").came("nothing ran")


@fault("factory-hangs", "making the target never ends, after some were made")
def factory_hangs(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        import time
        from properties.targets.kvcore import KvcoreTarget

        made = 0
        def make(configuration):
            global made
            made += 1
            if made > 20:
                time.sleep(1e6)
            return KvcoreTarget(configuration)
        """,
    )
    said = place.fuzz("run", "--target", "toy:make", *_QUICK, "--budget", "5s", "--hang", "2s")
    return said.must(1, "CRASH", "hung").came("CRASH: its process hung")


@fault("exit-at-end", "the target ends its process with status 0 when it is no longer used")
def exits_at_end(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        import atexit, os
        from properties.targets.kvcore import KvcoreTarget

        class Toy(KvcoreTarget):
            def __init__(self, configuration):
                super().__init__(configuration)
                atexit.register(os._exit, 0)
        """,
    )
    place.write(
        "found.json",
        '{"schema": 1, "target": "fuzz.zoo:NV-1", "property": "OWNERSHIP", "configuration": {"num_blocks": 8,'
        ' "block_size": 2}, "operations": [{"op": "allocate", "request": "a", "tokens": []}]}',
    )
    said = place.fuzz("replay", "--target", "toy:Toy", "found.json")
    if said.status != 0 or "clean" not in said.out:
        raise Wrong(f"false finding: {said.last}")
    return said.came("clean, as the operations are")
