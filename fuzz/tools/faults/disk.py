"""A disk is full or read-only, a folder is in use, a name is taken."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from .fault import Came, Place, Said, Wrong, fault

__all__: list[str] = []

_BUG = "fuzz.zoo:NV-1"
_WALK = ("--engine", "walk", "--kernels", "none")


def _fill(disk: Path, leave: int = 0) -> Path:
    """Leave so many bytes free; returns the file that takes the others."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("ab") as file:
        while True:
            file.write(b"\0" * (1 << 14))
            file.flush()
    if leave:
        with filler.open("ab") as file:
            file.truncate(max(0, filler.stat().st_size - leave))
    return filler


def _replays(place: Place, said: Said) -> None:
    """What was printed for want of a disk is put in a file, and fails when it is replayed."""
    lines = [line for line in said.out.splitlines() if line.startswith('{"schema"')]
    if not lines:
        raise Wrong(f"lost: no counterexample is printed: {said.last}")
    file = place.write("printed.json", lines[0])
    place.fuzz("replay", file, "--quiet").must(1, harm="lost")


def _night(place: Place, out: Path, seconds: float = 60.0, *more: object) -> subprocess.Popen[str]:
    """A campaign on two workers that has begun."""
    process = place.begin(
        "-m", "fuzz", "run", "--target", _BUG, *_WALK, "--workers", 2, "--max-findings", 0,
        "--budget", f"{seconds}s", "--out", out, *more,
    )  # fmt: skip
    until = monotonic() + 30
    while not (out / "campaign.json").exists() and monotonic() < until and process.poll() is None:
        sleep(0.05)
    return process


def _said(process: subprocess.Popen[str], timeout: float = 60.0) -> Said:
    out, err = process.communicate(timeout=timeout)
    return Said("run", process.returncode, out, err, 0.0)


@fault("out-is-a-file", "--out is a file, for each command that writes there", quick=True)
def is_a_file(place: Place) -> Came:
    place.write("out", "")
    for command in (("run", "--budget", "1s"), ("trace",), ("explore",), ("compare", "kvcore")):
        place.fuzz(*command, "--out", "out").must(2, "--out out cannot be written to")
    return Came(2, "said before anything runs")


@fault("out-is-read-only", "--out is on a read-only disk")
def is_read_only(place: Place) -> Came:
    with place.disk(8 << 20) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for command in (("run", "--budget", "1s"), ("trace",), ("explore",)):
            place.fuzz(*command, "--out", disk / "out").must(2, "cannot be written to")
        return Came(2, "said before anything runs")


@fault("no-room", "a disk of 3 MB is too small to begin with")
def no_room(place: Place) -> Came:
    with place.disk(3 << 20) as disk:
        said = place.fuzz("run", *_WALK, "--budget", "2s", "--out", disk / "out").must(3, "bytes are free")
        if "report.html" in said.all or "findings/" in said.all:
            raise Wrong(f"wrong blame: files are announced that do not exist: {said.last}")
        return said.came("said; no file is announced")


@fault("fills-while-hunting", "the disk fills while two workers find a bug; then there is room, and it is resumed")
def fills(place: Place) -> Came:
    with place.disk(24 << 20) as disk:
        out = disk / "night"
        process = _night(place, out, 25.0)
        filler = _fill(disk)
        said = _said(process)
        if said.status not in (1, 3):
            raise Wrong(f"false green: status {said.status}: {said.last}")
        if list(out.rglob("*.partial")):
            raise Wrong("lost: partial files are left")
        kept = [path for path in out.rglob("*.json") if path.stat().st_size and "OWNERSHIP" in str(path)]
        if not kept:
            _replays(place, said)
        filler.unlink()
        again = place.fuzz("run", "--resume", "--budget", "20s", "--out", out, timeout=90).must(1, harm="lost")
        if [found["property"] for found in place.findings(str(out))] != ["OWNERSHIP"]:
            raise Wrong(f"lost: after --resume the findings are {place.findings(str(out))}")
        return again.came(f"first {said.status}, with what was found; resumed, the finding is there")


@fault("read-only-while-hunting", "the disk becomes read-only while two workers find a bug")
def turns_read_only(place: Place) -> Came:
    with place.disk(24 << 20) as disk:
        process = _night(place, disk / "night", 25.0)
        tried = subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True, check=False)
        if tried.returncode:  # while files are open for writing, the kernel may refuse
            subprocess.run(["mount", "-o", "remount,ro", "-f", str(disk)], capture_output=True, check=False)
            _fill(disk)
        said = _said(process)
        if said.status not in (1, 3):
            raise Wrong(f"false green: status {said.status}: {said.last}")
        return said.came("it ends, and says why")


@fault("full-at-a-workers-start", "the disk is full when workers begin, on a core without a bug")
def at_start(place: Place) -> Came:
    with place.disk(24 << 20) as disk:
        out = disk / "night"
        process = place.begin(
            "-m", "fuzz", "run", *_WALK, "--workers", 2, "--max-findings", 0, "--budget", "15s", "--out", out
        )
        while not (out / "reserve").exists() and process.poll() is None:
            sleep(0.005)
        _fill(disk)
        said = _said(process)
        if said.status == 1 or "CRASH" in said.out.replace("RECOMPUTE, CRASH", ""):
            raise Wrong(f"false finding: status {said.status}: {said.last}")
        return said.must(3).came("the harness has no disk; no finding")


@fault("trace-full", "the disk is full when a request trace has found a bug")
def trace_full(place: Place) -> Came:
    with place.disk(8 << 20) as disk:
        _fill(disk, 1 << 18)
        place.write(
            "toy.py",
            f"""\
            import os
            from fuzz.zoo import find

            def make(configuration):
                os.system("head -c 9000000 /dev/zero > {disk}/more 2>/dev/null")
                return find("NV-1").factory()(configuration)
            """,
        )
        said = place.fuzz("trace", "--target", "toy:make", "--limit", 60, "--num-blocks", 64, "--out", disk / "out")
        said.must(1, harm="lost")
        lines = [line for line in said.out.splitlines() if line.startswith('{"schema"')]
        if not lines:
            raise Wrong(f"lost: no counterexample is printed: {said.last}")
        return said.came("printed as a line that replays")


@fault("explore-full", "the disk fills while states are explored of a core with a bug")
def explore_full(place: Place) -> Came:
    with place.disk(8 << 20) as disk:
        _fill(disk, 80_000)
        said = place.fuzz("explore", "--target", _BUG, "--out", disk / "out", "--blocks", 2)
        if said.status == 2:
            return said.came("refused: there is no room")
        said.must(1, harm="lost")
        return said.came("found, and said")


@fault("same-folder-again", "two seeds find two bugs, one after the other in one folder; then traces and explorations")
def again(place: Place) -> Came:
    names: list[str] = []
    for seed, target in (("1", _BUG), ("2", "fuzz.zoo:KC-30"), ("3", _BUG)):
        place.fuzz("run", "--target", target, *_WALK, "--budget", "5s", "--seed", seed).must(1)
    for blocks in (64, 80):
        place.fuzz("trace", "--target", _BUG, "--limit", 60, "--num-blocks", blocks).must(1)
    place.fuzz("explore", "--target", "fuzz.zoo:NV-7", "--blocks", 2, "--out", "fuzz-out").must(1)
    names = sorted(path.name for path in (place.folder / "fuzz-out" / "findings").iterdir())
    targets = {found["target"] for found in place.findings()}
    if targets != {_BUG, "fuzz.zoo:KC-30", "fuzz.zoo:NV-7"}:
        raise Wrong(f"lost: of three bugs there are {sorted(targets)} in {names}")
    return Came(1, f"{len(names)} findings: {', '.join(names)}")


@fault("folder-in-use", "a campaign writes to the folder: each other command that writes there")
def in_use(place: Place) -> Came:
    out = place.folder / "night"
    process = _night(place, out)
    try:
        (out / "summary.json").write_text('{"schema": 2, "findings": [], "fixed": []}')
        for command in (
            ("run", "--budget", "1s", "--out"), ("trace", "--out"), ("explore", "--out"), ("accept", "--out"),
            ("tidy", "--out"), ("compare", "kvcore", "--budget", "1s", "--out"),
        ):  # fmt: skip
            place.fuzz(*command, out).must(2, "writes to")
    finally:
        process.kill()
        process.communicate()
    return Came(2, "refused, with the process that writes there")


@fault("killed-lock", "the process that had the folder was killed")
def stale(place: Place) -> Came:
    process = _night(place, place.folder / "night")
    process.kill()
    process.communicate()
    said = place.fuzz("run", "--resume", "--budget", "5s", "--out", "night").must(1, harm="lost")
    return said.came("the lock is no obstacle, and it is resumed")


@fault("hangup", "the terminal is closed (SIGHUP)")
def hangup(place: Place) -> Came:
    out = place.folder / "night"
    process = _night(place, out)
    sleep(3)
    process.send_signal(signal.SIGHUP)
    said = _said(process, 30)
    if said.status != 130 or place.summary("night")["status"] != 130:
        raise Wrong(f"lost: status {said.status}: {said.last}")
    return said.came("a summary is written")


@fault("surrogate", "an exception of the target has a text that cannot be encoded")
def surrogate(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        from properties.targets.kvcore import KvcoreTarget

        class Toy(KvcoreTarget):
            def allocate(self, request, tokens, *rest):
                if len(tokens) > 6:
                    raise ValueError("bad \\udc80\\x1b[31m name")
                return super().allocate(request, tokens, *rest)
        """,
    )
    place.fuzz("run", "--target", "toy:Toy", *_WALK, "--budget", "4s").must(1, "CRASH", harm="lost")
    return place.fuzz("run", "--target", "toy:Toy", *_WALK, "--budget", "4s").must(1, "CRASH").came("CRASH, twice")


@fault("own-os-error", "the target itself says that a disk is full")
def own(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        from properties.targets.kvcore import KvcoreTarget

        class Toy(KvcoreTarget):
            def allocate(self, request, tokens, *rest):
                if len(tokens) > 6:
                    raise OSError(28, "No space left on device")
                return super().allocate(request, tokens, *rest)
        """,
    )
    said = place.fuzz("run", "--target", "toy:Toy", *_WALK, "--budget", "4s").must(1, "CRASH", "No space left")
    return said.came("CRASH: it is the target's")


@fault("compare-unknown", "a target that does not exist is compared with kvcore", quick=True)
def compare_unknown(place: Place) -> Came:
    return place.fuzz("compare", "nosuch", "kvcore", "--budget", "1s").must(2, "nosuch").came("nothing ran")


@fault("resumes-what-was-stopped", "a campaign is interrupted twice and resumed each time")
def resumed(place: Place) -> Came:
    out = place.folder / "night"
    process = _night(place, out, 14.0, "--seed", "5")
    for _ in range(2):
        sleep(2)
        process.send_signal(signal.SIGINT)
        _said(process, 30)
        process = place.begin("-m", "fuzz", "run", "--resume", "--out", out)
        sleep(1.5)
    said = _said(process, 60).must(1, harm="lost")
    journal = json.loads((out / "campaign.json").read_text())
    if journal["seed"] != "5" or not journal["ended"]:
        raise Wrong(f"lost: the journal says {journal['seed']}, ended {journal['ended']}")
    return said.came("it goes on with its seed, to its end")
