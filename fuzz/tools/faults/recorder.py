"""An engine is killed, or its disk is full, while its operations are recorded."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from .fault import Came, Place, Said, Wrong, fault

__all__: list[str] = []

_ENGINE = """\
import logging, os, sys
from pathlib import Path
from fuzz.record import Recorder
from properties.operations import Configuration
from properties.targets import load

logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")
configuration = Configuration(num_blocks=64, block_size=4)
core = load("kvcore")(configuration)
path, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def serve(engine, number):
    engine.allocate(f"user-{number}", (1, 2, 3, number), (), None)
    engine.complete(engine.dispatch([(f"user-{number}", 4)]).handle)
    engine.free(f"user-{number}")

engine = Recorder(core, configuration, path, name="kvcore")
"""
"""An engine that gives each of its requests four calls, and does not look whether it is recorded."""


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _replayed(place: Place, path: Path, least: int, said: str = "clean") -> Said:
    """Replay it. Raises Wrong if that is not clean, or if there are fewer than `least` operations."""
    done = place.fuzz("replay", path, "--quiet").must(0, said, harm="false finding")
    there = sum(1 for line in _lines(path)[1:] if "op" in json.loads(line))
    if there < least:
        raise Wrong(f"lost: of {least} operations {path.name} has {there}")
    return done


@fault("engine-killed", "kill -9 of a recorded engine, which is started again with the same file")
def killed(place: Place) -> Came:
    place.write("engine.py", _ENGINE + "for number in range(first, last):\n    serve(engine, number)\n")
    path = place.folder / "incident.jsonl"
    process = place.begin("engine.py", path, 0, 10**7)
    until = monotonic() + 60
    while (not path.exists() or path.stat().st_size < 50_000) and monotonic() < until and process.poll() is None:
        sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = path.read_bytes()
    place.python("engine.py", path, 0, 20).must(0)
    if path.read_bytes() != before:
        raise Wrong("lost: the restart has changed the record of what was killed")
    _replayed(place, path, before.count(b"\n") - 1)
    _replayed(place, place.folder / "incident-2.jsonl", 80)
    return Came(0, f"{before.count(bytes([10])) - 1:,} operations are there; the restart writes beside them")


@fault("engine-two-recorders", "two recorders are given one file")
def two(place: Place) -> Came:
    place.write(
        "engine.py",
        _ENGINE
        + """\
other = Recorder(load("kvcore")(configuration), configuration, path, name="kvcore")
for number in range(first, last):
    serve(engine, number)
    serve(other, 1000 + number)
""",
    )
    place.python("engine.py", "incident.jsonl", 0, 20).must(0)
    for name in ("incident.jsonl", "incident-2.jsonl"):
        _replayed(place, place.folder / name, 80)
    return Came(0, "each writes a file of its own")


@fault("engine-disk-full", "the disk fills under a recorded engine, and is freed again")
def full(place: Place) -> Came:
    place.write(
        "engine.py",
        _ENGINE
        + """\
for number in range(first, last):
    serve(engine, number)
    if number == last - 100:
        path.with_name("filler").unlink()
engine.close()
print("dropped", engine.dropped)
""",
    )
    with place.disk(256 << 10) as disk:
        (disk / "filler").write_bytes(bytes(200 << 10))
        said = place.python("engine.py", disk / "incident.jsonl", 0, 2000)
        said.must(0, "nothing more is recorded: No space left on device", "were not recorded", harm="wrong blame")
        dropped = int(said.out.split()[1])
        last = json.loads(_lines(disk / "incident.jsonl")[-1])
        if last.get("dropped") != dropped or dropped < 400:
            raise Wrong(f"lost: {dropped} were dropped, and the last line says {last}")
        _replayed(place, disk / "incident.jsonl", 8000 - dropped, f"{dropped} or more operations")
        return said.came(f"the engine goes on; {8000 - dropped:,} recorded, {dropped:,} dropped, and it says so")


@fault("engine-disk-stays-full", "the disk is full before the engine starts, and stays so", quick=True)
def stays_full(place: Place) -> Came:
    place.write("engine.py", _ENGINE + "serve(engine, 1)\nengine.close()\nprint(engine.dropped, engine.why)\n")
    with place.disk(64 << 10) as disk:
        with suppress(OSError):
            (disk / "filler").write_bytes(bytes(128 << 10))
        said = place.python("engine.py", disk / "incident.jsonl", 0, 0).must(0, "4 No space left on device")
        return said.came("the engine serves; all 4 operations are counted")


@fault("engine-after-close", "a recorder that was closed is used on", quick=True)
def closed(place: Place) -> Came:
    place.write(
        "engine.py",
        _ENGINE + "serve(engine, 1)\nengine.close()\nserve(engine, 2)\nprint(engine.dropped, engine.why)\n",
    )
    said = place.python("engine.py", "incident.jsonl", 0, 0).must(0, "4 the recorder was closed")
    _replayed(place, place.folder / "incident.jsonl", 4)
    return said.came("the engine serves; the record ends where it was closed")


@fault(
    "engine-odd-values", "an operation cannot be encoded: a request that is an object, a namespace of the engine's own"
)
def odd(place: Place) -> Came:
    for number, call in enumerate(
        ("engine.free(object())", 'engine.allocate("a", (1,), (("tenant", "x"),), None)', "engine.free(7)")
    ):
        place.write(
            "engine.py",
            _ENGINE
            + f"""\
serve(engine, 1)
try:
    {call}
except Exception as error:
    print("the core says", type(error).__name__)
serve(engine, 2)
print(engine.dropped)
""",
        )
        said = place.python("engine.py", f"{number}.jsonl", 0, 0).must(0, "the core says", "nothing more is recorded")
        if said.out.split()[-1] != "5":
            raise Wrong(f"lost: it says that {said.out.split()[-1]} were dropped, and not 5")
        _replayed(place, place.folder / f"{number}.jsonl", 4, "1 or more operations after these were not recorded")
    return Came(0, "the record ends there and says so; the core alone refuses")


@fault("trace-record-full", "trace --record on a disk that fills")
def traced(place: Place) -> Came:
    with place.disk(64 << 10) as disk:
        said = place.fuzz("trace", "--no-checks", "--limit", 300, "--record", disk / "incident.jsonl")
        said.must(3, "operations were not recorded", "No space left on device")
        _replayed(place, disk / "incident.jsonl", 50, "or more operations")
        (disk / "filler").write_bytes(b"")
        place.fuzz("trace", "--no-checks", "--limit", 300, "--record", disk / "filler" / "x.jsonl").must(
            2, "cannot be written to"
        )
        return said.came("the trace runs to its end; what was recorded replays")
