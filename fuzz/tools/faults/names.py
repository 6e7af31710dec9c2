"""A user's own files, environment or terminal are in the way."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from .fault import ROOT, Came, Place, Said, Wrong, fault

_THEIRS = "raise SystemExit('THEIRS')\n"

_DOOR = "import sys; sys.path.append({root!r}); from kvcore_fuzz import main; main()"
"""As pip's script does it: the folder that it is in comes first on the path, not the working folder."""


def _script(place: Place, *arguments: object, environment: Mapping[str, str] = {}, timeout: float = 120.0) -> Said:
    """`kvcore-fuzz ...`, as installed: nobody sets PYTHONPATH."""
    code = _DOOR.format(root=str(ROOT))
    return place.python("-P", "-c", code, *arguments, timeout=timeout, environment={"PYTHONPATH": "", **environment})


def _toy(place: Place) -> None:
    shutil.copy(ROOT / "fuzz" / "example" / "toy.py", place.folder / "toy.py")


def _ours(said: Said) -> Said:
    if "THEIRS" in said.all:
        raise Wrong(f"wrong blame: the user's own file was run instead of ours: {said.last}")
    return said


_WALK = ("run", "--target", "toy:make", "--engine", "walk", "--seed", "1", "--shrink", "2s")


@fault("own-fuzz", "a fuzz.py of the user's is in the working folder; `kvcore-fuzz run`, then `replay`")
def own_fuzz(place: Place) -> Came:
    _toy(place)
    place.write("fuzz.py", _THEIRS)
    said = _ours(_script(place, *_WALK, "--budget", "20s")).must(1, "HISTORY")
    (file,) = (place.folder / "fuzz-out" / "findings").glob("*/counterexample.json")
    _ours(_script(place, "replay", file, "--target", "toy:make")).must(1, "HISTORY")
    return said.came("the finding, and its replay")


@fault("own-fuzz-bisect", "the same when it is bisected, which replays in a process of its own")
def own_fuzz_bisect(place: Place) -> Came:
    _toy(place)
    place.write("fuzz.py", _THEIRS)
    _ours(_script(place, *_WALK, "--budget", "20s")).must(1, "HISTORY")
    (file,) = (place.folder / "fuzz-out" / "findings").glob("*/counterexample.json")
    replayed = _ours(_script(place, "replay", "--bisect", file, "--target", "toy:make"))
    return replayed.must(1, "HISTORY fails").came("bad, as it is")


@fault("own-fuzz-workers", "the same, and all four names are taken; two workers")
def own_fuzz_workers(place: Place) -> Came:
    _toy(place)
    for name in ("fuzz", "properties", "reference", "kvcore"):
        place.write(f"{name}.py", _THEIRS)
    return _ours(_script(place, *_WALK, "--workers", 2, "--budget", "20s")).must(1, "HISTORY").came("the finding")


@fault("own-fuzz-compare", "the same; `compare`, which runs each core in a process of its own")
def own_fuzz_compare(place: Place) -> Came:
    _toy(place)
    for name in ("fuzz", "properties", "reference", "kvcore"):
        place.write(f"{name}.py", _THEIRS)
    said = _ours(_script(place, "compare", "kvcore", "toy:make", "--budget", "3s", "--seed", "1"))
    said.must(1, "toy", "checked operations")
    if "not run" in said.all:
        raise Wrong(f"lost: a core was not run: {said.last}")
    return said.came("both columns")


@fault("own-fuzz-path", "a folder with a fuzz.py of the user's is on PYTHONPATH when a finding is bisected", quick=True)
def own_fuzz_on_path(place: Place) -> Came:
    place.write("mine/fuzz.py", _THEIRS)
    place.write("mine/properties/__init__.py", _THEIRS)
    file = ROOT / "docs" / "counterexamples" / "stale-index.json"
    environment = {"PYTHONPATH": str(place.folder / "mine")}
    return (
        _ours(_script(place, "replay", "--bisect", file, environment=environment))
        .must(1, "OWNERSHIP fails")
        .came("bad")
    )


@fault("own-properties", "a properties.py of the user's is in the working folder; `python -m fuzz`", quick=True)
def own_properties(place: Place) -> Came:
    file = place.write("properties.py", "MINE = 1\n")
    said = place.fuzz("run", "--budget", "1s", environment={"PYTHONPATH": str(ROOT)})
    said.must(2, str(file), "kvcore-fuzz")
    if len(said.all.strip().splitlines()) > 2:
        raise Wrong(f"wrong blame: more than two lines: {said.last}")
    return said.came("the file that is in the way, and what to type")


@fault("own-reference-bisect", "a reference/ of the user's is in the way; `git bisect run python -m fuzz`", quick=True)
def own_reference_bisect(place: Place) -> Came:
    place.write("reference/__init__.py", "")
    file = ROOT / "docs" / "counterexamples" / "stale-index.json"
    said = place.fuzz("replay", "--bisect", file, environment={"PYTHONPATH": str(ROOT)})
    return said.must(125, "in the way").came("skipped, and not called bad")


def _finds(place: Place, environment: Mapping[str, str], *options: object) -> Came:
    _toy(place)
    said = place.fuzz(*_WALK, *options, "--budget", "20s", environment=environment)
    said.must(1, "HISTORY")
    if not place.findings():
        raise Wrong("lost: no finding in the folder")
    file = min((place.folder / "fuzz-out" / "findings").glob("HISTORY-*/counterexample.json"))
    place.fuzz("replay", file, "--target", "toy:make", environment=environment).must(1, "HISTORY")
    return said.came("the finding, and its replay with the table of blocks")


@fault("ascii", "PYTHONIOENCODING=ascii; a replay, with its table", quick=True)
def ascii_only(place: Place) -> Came:
    file = ROOT / "docs" / "counterexamples" / "stale-index.json"
    said = place.fuzz("replay", file, environment={"PYTHONIOENCODING": "ascii"})
    return said.must(1, "OWNERSHIP", "allocate b [0]").came("the same, with signs that ASCII lacks spelled out")


@fault("locale-c", "LC_ALL=C, PYTHONUTF8=0, no coercion of the locale; a run, and a replay with its table")
def locale_c(place: Place) -> Came:
    return _finds(place, {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})


@fault("narrow", "a terminal of 10 columns, TERM=dumb; the same")
def narrow(place: Place) -> Came:
    return _finds(place, {"COLUMNS": "10", "TERM": "dumb"})


@fault("no-home", "HOME is not set, and TMPDIR names a folder that does not exist; with two workers")
def no_home(place: Place) -> Came:
    return _finds(place, {"HOME": "", "TMPDIR": str(place.folder / "nowhere")}, "--workers", 2)


@fault("home-a-file", "HOME and XDG_CACHE_HOME are a file, in which nothing can be made")
def home_a_file(place: Place) -> Came:
    home = str(place.write("home", ""))
    return _finds(place, {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home})


@fault("no-folder", "the working folder was deleted while the shell was in it", quick=True)
def no_folder(place: Place) -> Came:
    code = (
        "import os, sys, subprocess; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone');"
        "sys.exit(subprocess.run([sys.executable, '-m', 'fuzz', *sys.argv[1:]]).returncode)"
    )
    said = place.python("-c", code, "run", "--budget", "2s", environment={"PYTHONPATH": str(ROOT)})
    said.must(2, "working folder")
    if "Traceback" in said.all:
        raise Wrong(f"wrong blame: a traceback: {said.last}")
    return said.came("that the folder is gone")


@fault("closed-output", "whoever reads the output goes away after a line: `replay | head -1`", quick=True)
def closed_output(place: Place) -> Came:
    file = ROOT / "fuzz" / "scenarios" / "six_moments.json"
    code = (
        "import subprocess, sys; r = subprocess.Popen([sys.executable, '-m', 'fuzz', *sys.argv[1:]],"
        "stdout=subprocess.PIPE, stderr=subprocess.PIPE); r.stdout.close(); e = r.stderr.read().decode();"
        "print(e); sys.exit(r.wait() % 256)"
    )
    said = place.python("-c", code, "replay", file)
    if "Traceback" in said.all or "the harness itself failed" in said.all:
        raise Wrong(f"wrong blame: a closed pipe is called a defect: {said.last}")
    return said.came("ends without a word")
