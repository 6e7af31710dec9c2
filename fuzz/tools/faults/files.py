"""A file that somebody else wrote is hostile or damaged."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from .fault import Came, Fault, Place, Wrong, fault

__all__: list[str] = []

_GOOD: dict[str, Any] = {
    "schema": 1,
    "target": "kvcore",
    "property": "OWNERSHIP",
    "message": "",
    "configuration": {"num_blocks": 8, "block_size": 2},
    "operations": [{"op": "allocate", "request": "a", "tokens": [1, 2, 3]}],
}


def _refused(name: str, what: str, text: str, *texts: str, quick: bool = True) -> Fault:
    """`replay` of a file with this text is refused, at once and in a sentence."""

    def attempt(place: Place) -> Came:
        place.write("found.json", text)
        said = place.fuzz("replay", "found.json", timeout=20).must(2, "found.json", *texts)
        if said.seconds > 10:
            raise Wrong(f"no end: it took {said.seconds:.0f} seconds to refuse it")
        return said.came(said.last[:200])

    return fault(name, what, quick=quick)(attempt)


def _with(**changes: Any) -> str:
    return json.dumps({**_GOOD, **changes})


deep = _refused("nested", "JSON is nested 100,000 deep", '{"a":' * 100_000, "nested too deep")
digits = _refused("digits", "a number has 6,000 digits", '{"schema": ' + "9" * 6000 + "}", "number")
many_blocks = _refused(
    "many-blocks", "a pool has 50 million blocks", _with(configuration={"num_blocks": 50_000_000, "block_size": 2}),
    "50,000,000 blocks", quick=False,
)  # fmt: skip
large_blocks = _refused(
    "large-blocks", "a block has a billion tokens", _with(configuration={"num_blocks": 8, "block_size": 10**9}),
    "tokens", quick=False,
)  # fmt: skip
long_run = _refused(
    "long-run", "a prompt of 10^9 tokens is written as a run",
    _with(operations=[{"op": "allocate", "request": "a", "tokens": [[0, 10**9]]}]), "tokens",
)  # fmt: skip
long_runs = _refused(
    "long-runs", "a thousand prompts of 60,000 tokens, in 30 kB",
    _with(operations=[{"op": "allocate", "request": f"r{n}", "tokens": [[0, 60_000]]} for n in range(1000)]),
    "tokens", quick=False,
)  # fmt: skip
no_property = _refused("no-property", "the property does not exist", _with(property="NOPE"), "NOPE", "OWNERSHIP")
bad_at = _refused("bad-at", "the operation at fault is text", _with(at="two"), "at is")
bad_judging = _refused("bad-judging", "the judging is a list", _with(judging=[1]), "judging is", quick=False)
not_trusted = _refused(
    "target-os-system", "the file names the target os:system", _with(target="os:system"), "os:system", "--target"
)


@fault("too-long", "a file of 96 MB")
def too_long(place: Place) -> Came:
    line = json.dumps({"op": "allocate", "request": "a", "tokens": [1] * 40}) + ",\n"
    with (place.folder / "found.json").open("w") as file:
        file.write(json.dumps({**_GOOD, "operations": []})[:-2])
        for _ in range(96_000_000 // len(line)):
            file.write(line)
    said = place.fuzz("replay", "found.json", timeout=60).must(2, "bytes")
    return said.came(f"refused in {said.seconds:.0f} s")


@fault(
    "not-imported", "the module that a file names writes a file when it is imported: replay, report, bisect, promote"
)
def not_imported(place: Place) -> Came:
    place.write("evil.py", "open('was-here', 'w')\ndef make(configuration): raise SystemExit(0)\n")
    place.write("found.json", _with(target="evil:make"))
    place.fuzz("replay", "found.json").must(2, "--target evil:make")
    place.fuzz("replay", "found.json", "--bisect").must(125, harm="wrong blame")
    folder = place.folder / "night" / "findings" / "OWNERSHIP-1"
    folder.mkdir(parents=True)
    (folder / "counterexample.json").write_text(_with(target="evil:make"))
    place.fuzz("promote", folder, "--to", "kept")
    place.fuzz("run", "--engine", "walk", "--budget", "2s", "--out", "night", "--kernels", "none").must(0)
    if (place.folder / "was-here").exists():
        raise Wrong("false green: the module was imported because a file named it")
    return Came(2, "nothing is imported; it is said how to allow it")


@fault("campaign-names-it", "a campaign's own finding is replayed by the command that is printed")
def printed_command(place: Place) -> Came:
    place.write("mine.py", "from fuzz.zoo import find\nmake = find('NV-1').factory()\n")
    flags = ("--engine", "walk", "--budget", "6s", "--kernels", "none")
    said = place.fuzz("run", "--target", "mine:make", *flags).must(1)
    line = next(line for line in said.out.splitlines() if line.strip().startswith("python -m fuzz replay"))
    words = line.split()[3:]
    return place.fuzz(*words, "--quiet").must(1, "OWNERSHIP", harm="lost").came(line.strip()[-60:])


@fault("escape", "a message, a note and a request's name have ESC in them", quick=True)
def escapes(place: Place) -> Came:
    evil = "\x1b[31mred\x1b]0;title\x07"
    operations = [{"op": "allocate", "request": evil, "tokens": [1, 2, 3]}]
    place.write("found.json", _with(message=evil, note=evil, operations=operations))
    said = place.fuzz("replay", "found.json")
    if "\x1b" in said.all or "\x07" in said.all:
        raise Wrong("wrong blame: control characters reach the terminal")
    return said.must(0).came("spelled out")


@fault("markup", "an exception's text is markup: the pages and the Markdown of a campaign")
def markup(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        from properties.targets.kvcore import KvcoreTarget

        class Toy(KvcoreTarget):
            def allocate(self, request, tokens, *rest):
                if len(tokens) > 6:
                    raise ValueError("<script>alert(1)</script> | ![x](http://evil) `x` \\n# head")
                return super().allocate(request, tokens, *rest)
        """,
    )
    place.fuzz("run", "--target", "toy:Toy", "--engine", "walk", "--budget", "4s", "--kernels", "none").must(1)
    out = place.folder / "fuzz-out"
    for path in [*out.glob("*.md"), *out.rglob("README.md"), out / "report.html"]:
        text = path.read_text()
        page = path.suffix == ".html"
        if "<script>alert" in text or (not page and ("![x](" in text or "\n# head" in text)):
            raise Wrong(f"wrong blame: markup of a message is in {path.name}")
    return Came(1, "escaped in each")


@fault("damaged-history", "history.sqlite is no database")
def history(place: Place) -> Came:
    place.write("fuzz-out/history.sqlite", "this is no database" * 100)
    said = place.fuzz("run", "--engine", "walk", "--budget", "2s", "--kernels", "none").must(
        0, "history.sqlite.damaged"
    )
    return said.came("moved aside; the night goes on")


@fault("damaged-baseline", "the baseline is cut off")
def baseline(place: Place) -> Came:
    place.write("known.json", '{"schema": 1, "findings": [')
    said = place.fuzz("run", "--engine", "walk", "--budget", "2s", "--kernels", "none", "--baseline", "known.json")
    said.must(0, "known.json.damaged", "counts as new")
    return said.came("moved aside; it is said that all is new")


@fault("newer-baseline", "the baseline is of a newer version")
def newer(place: Place) -> Came:
    place.write("known.json", '{"schema": 9, "findings": []}')
    said = place.fuzz("run", "--engine", "walk", "--budget", "2s", "--baseline", "known.json").must(2, "schema is 9")
    if not (place.folder / "known.json").exists():
        raise Wrong("lost: a newer version's file is moved")
    return said.came("refused, and left as it is")


@fault("gzip-bomb", "a request trace of 1 MB unpacks to 1 GB without a line's end")
def bomb(place: Place) -> Came:
    with gzip.open(place.folder / "trace.gz", "wb", compresslevel=9) as file:
        for _ in range(1024):
            file.write(b"0" * (1 << 20))
    said = place.fuzz("trace", "trace.gz", timeout=60).must(2, "trace.gz")
    return said.came("refused at the first 64 MB")


@fault("nested-trace", "a request trace has JSON that is nested too deep", quick=True)
def nested_trace(place: Place) -> Came:
    place.write("trace.jsonl", '{"a":' * 100_000)
    return place.fuzz("trace", "trace.jsonl").must(2, "trace.jsonl").came("refused, with its line")


@fault("symlink", "a link to another folder is among the findings; tidy")
def symlink(place: Place) -> Came:
    kept = place.write("precious/file.txt", "mine")
    place.write("precious/counterexample.json", _with())
    findings = place.folder / "fuzz-out" / "findings"
    findings.mkdir(parents=True)
    os.symlink(kept.parent, findings / "OWNERSHIP-0")
    place.fuzz("tidy", "--keep", "0s", "--disk", "1").must(0)
    if not kept.exists():
        raise Wrong("lost: a folder outside was deleted through a link")
    return Came(0, "left alone")


@fault("damaged-finding", "a finding that was accepted is damaged; tidy")
def damaged_finding(place: Place) -> Came:
    flags = ("--engine", "walk", "--kernels", "none", "--target", "fuzz.zoo:NV-1", "--budget", "5s")
    place.fuzz("run", *flags).must(1)
    place.fuzz("accept").must(0)
    finding = next(Path(place.folder / "fuzz-out" / "findings").glob("OWNERSHIP-*"))
    (finding / "counterexample.json").write_text("{")
    place.fuzz("tidy", "--keep", "0s", "--disk", "1").must(0)
    if not finding.exists():
        raise Wrong("lost: a damaged finding is deleted")
    return Came(0, "left where it is")


@fault("hostile-case", "--case of attention is nested, or no case")
def case(place: Place) -> Came:
    place.write("case.json", "[" * 100_000)
    return place.fuzz("attention", "--case", "case.json", timeout=60).must(2, "case.json").came("refused")


@fault("hostile-plan", "a plan in TOML is nested 100,000 deep")
def plan(place: Place) -> Came:
    place.write("plan.toml", "a = " + "[" * 100_000)
    return place.fuzz("run", "--campaign", "plan.toml").must(2, "plan.toml").came("refused")
