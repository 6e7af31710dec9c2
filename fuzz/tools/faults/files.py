"""A file that somebody else wrote is hostile or damaged."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

from .fault import Came, Place, Said, Wrong, fault

__all__: list[str] = []

_ALLOCATE = {"op": "allocate", "request": "r0", "tokens": [1, 2, 3]}
_WALK = ("--engine", "walk", "--kernels", "none", "--seed", "1")


def _file(place: Place, name: str = "bad.json", **changes: Any) -> Path:
    """A counterexample that somebody has changed."""
    data: dict[str, Any] = {"schema": 1, "target": "kvcore", "property": None, "at": None}
    data["configuration"] = {"num_blocks": 4, "block_size": 2}
    data["operations"] = [_ALLOCATE]
    return place.write(name, json.dumps({**data, **changes}, indent=1))


def _refused(place: Place, file: Path, *texts: str) -> Said:
    """`replay` does not do it: 2, and says why, in a moment and in little memory."""
    said = place.fuzz("replay", file, timeout=20).must(2, "error:", *texts, harm="false green")
    if "Traceback" in said.all:
        raise Wrong(f"wrong blame: a traceback: {said.last}")
    return said


def _no_control(text: str) -> None:
    wrong = sorted({sign for sign in text if sign < " " and sign not in "\n\t"})
    if wrong:
        raise Wrong(f"false green: control characters reach the terminal: {wrong}")


# ---- too much --------------------------------------------------------------------------------------------------------


@fault("file-deep", "a counterexample, a recording, a baseline and a plan nest 100,000 brackets", quick=True)
def deep(place: Place) -> Came:
    nested = "[" * 100_000 + "]" * 100_000
    _refused(place, place.write("a.json", f'{{"schema": 1,\n "operations": {nested}}}'), "a.json:2:", "allowed are 32")
    _refused(place, place.write("a.jsonl", f'{{"schema": 1}}\n{nested}\n'), "a.jsonl:2:", "nested")
    place.write("plan.toml", f"targets = {nested}\n")
    place.fuzz("run", "--campaign", "plan.toml", "--budget", "1s").must(2, "plan.toml")
    return Came(2, "refused, with the line")


@fault("file-integers", "an integer of 6,000 digits, as a token, in a plan, and in a trace")
def integers(place: Place) -> Came:
    digits = "9" * 6000
    text = _file(place).read_text().replace('"num_blocks": 4', f'"num_blocks": {digits}')
    _refused(place, place.write("a.json", text), "a.json:7:", "6,000 digits")
    place.write("plan.toml", f"workers = {digits}\n")
    place.fuzz("run", "--campaign", "plan.toml", "--budget", "1s").must(2, "plan.toml")
    place.write("trace.jsonl", f'{{"input_length": {digits}, "output_length": 1, "hash_ids": [1]}}\n')
    place.fuzz("trace", "trace.jsonl").must(2, "trace.jsonl:1")
    return Came(2, "refused, with the line")


@fault("file-pools", "pools of 50 million blocks, blocks of a billion slots", quick=True)
def pools(place: Place) -> Came:
    for size in ((50_000_000, 1), (1, 10**9), (1 << 20, 1 << 10)):
        configuration = {"num_blocks": size[0], "block_size": size[1]}
        _refused(place, _file(place, configuration=configuration), "bad.json:6:", "allowed are")
    return Came(2, "refused, with what is allowed")


@fault("file-runs", "runs of a billion tokens, in one operation and in many", quick=True)
def runs(place: Place) -> Came:
    one = {**_ALLOCATE, "tokens": [[1, 10**9]]}
    _refused(place, _file(place, operations=[_ALLOCATE, one]), "1,000,000,000 tokens", "allowed are")
    many = [{**_ALLOCATE, "request": f"r{number}", "tokens": [[1, 10**7]]} for number in range(100)]
    _refused(place, _file(place, operations=many), "tokens up to here")
    return Came(2, "refused before they are built")


@fault("file-of-96-mb", "a counterexample of 96 MB, and a recording of 60 MB that is an honest one")
def large(place: Place) -> Came:
    bad = place.folder / "a.json"
    bad.write_text('{"schema": 1, "note": "' + "x" * (96 << 20) + '"}')
    _refused(place, bad, "more than", "bytes")
    head = json.dumps({"schema": 1, "target": "kvcore", "configuration": {"num_blocks": 4, "block_size": 2}})
    line = json.dumps({**_ALLOCATE, "tokens": [7] * 1000}) + "\n"
    (place.folder / "b.jsonl").write_text(head + "\n" + line * 19_000)
    place.fuzz("replay", "b.jsonl", "--quiet", timeout=100).must(0, harm="lost")
    return Came(2, "refused; the honest one is read")


@fault("trace-bomb", "a trace of 1.4 GB that is packed into 1 MB: one line, blank lines, and nothing but blanks")
def bomb(place: Place) -> Came:
    for name, piece in (("line", b"x" * (1 << 20)), ("blank", b"\n" * (1 << 20)), ("spaces", b" " * (1 << 20))):
        with gzip.open(place.folder / f"{name}.gz", "wb", compresslevel=6) as file:
            for _ in range(1400):
                file.write(piece)
        code = (
            "import resource, sys; from fuzz.traces.reading import read_trace\n"
            "resource.setrlimit(resource.RLIMIT_AS, (900 << 20,) * 2)\n"
            "try: read_trace(sys.argv[1])\n"
            "except ValueError as error: print(str(error)[:300]); sys.exit(2)"
        )
        place.python("-c", code, f"{name}.gz", timeout=30).must(2, f"{name}.gz:", "allowed", harm="lost")
    return Came(2, "refused while it is unpacked, with the line")


@fault("case-of-attention", "a case of attention that is no case, is too large, or is a file that is neither")
def case(place: Place) -> Came:
    cases: tuple[object, ...] = (
        {"head_dim": 10**9}, {"sequences": [[10**9, 1]]}, {"dtype": "nope"}, {"block_size": "x"}, {"alibi": 3},
        {"values": []}, {"rows": [1]}, {"seed": 10**30}, {"axes": ["nope"]},
    )  # fmt: skip
    for one in cases:
        place.fuzz("attention", "--case", json.dumps(one)).must(2, "error:")
    place.write("deep.json", "[" * 100_000)
    place.fuzz("attention", "--case", "deep.json").must(2, "deep.json")
    return Came(2, "refused, with what is allowed")


# ---- wrong values ----------------------------------------------------------------------------------------------------


@fault("file-no-property", "a counterexample of a property that there is not", quick=True)
def no_property(place: Place) -> Came:
    return _refused(place, _file(place, property="NOPE"), "bad.json:4:", "'NOPE'", "OWNERSHIP").came("refused")


@fault("file-types", "values of another type in a counterexample", quick=True)
def types(place: Place) -> Came:
    for name, value in (("judging", {"outside": "yes"}), ("at", "soon"), ("versions", [1])):
        changes: dict[str, Any] = {name: value}
        _refused(place, _file(place, **changes), name)
    return Came(2, "refused")


# ---- what a file names is imported and called ------------------------------------------------------------------------

_TRAP = """\
    import pathlib
    pathlib.Path("sprung").touch()

    def make(configuration):
        raise SystemExit(0)
"""


def _trapped(place: Place, said: Said, name: str) -> None:
    """It was refused, and the module was not even imported."""
    said.must(2, name, harm="false green")
    if (place.folder / "sprung").exists():
        raise Wrong(f"false green: {said.command} has imported what the file names")


@fault("target-of-a-file", "a counterexample names os:system, or a module of its author's, as target", quick=True)
def names_a_target(place: Place) -> Came:
    place.write("trap.py", _TRAP)
    _trapped(place, place.fuzz("replay", _file(place, target="os:system")), "--target os:system")
    file = _file(place, target="trap:make")
    for command in (("replay", file), ("replay", "--quiet", "--json", file), ("promote", file)):
        _trapped(place, place.fuzz(*command), "--target trap:make")
    return Came(2, "not imported; the message says how to allow it")


@fault("target-of-a-file-bisected", "the same when it is bisected, and as kernels and as keys of another process")
def names_kernels(place: Place) -> Came:
    place.write("trap.py", _TRAP)
    said = place.fuzz("replay", "--bisect", _file(place, target="trap:make"))
    if said.status != 125 or "--target trap:make" not in said.all or (place.folder / "sprung").exists():
        raise Wrong(f"false green: status {said.status}: {said.last}")
    _trapped(place, place.fuzz("replay", _file(place, judging={"kernels": "trap:make"})), "--kernels trap:make")
    _trapped(place, place.fuzz("replay", _file(place, judging={"keys": "trap:make"})), "trap:make")
    return said.came("skipped, and not imported")


@fault("target-of-a-folder", "a folder of findings, its baseline, its hits and what is to be resumed name a module")
def folder(place: Place) -> Came:
    place.write("trap.py", _TRAP)
    place.fuzz("run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "4s").must(1)
    place.fuzz("accept").must(0)
    out = place.folder / "fuzz-out"
    (finding,) = out.glob("findings/*/counterexample.json")
    for file in (finding, out / "baseline.json"):
        file.write_text(file.read_text().replace("fuzz.zoo:NV-1", "trap:make"))
    hit = out / "spool" / "hits" / "9" / "1.json"
    hit.parent.mkdir(parents=True, exist_ok=True)
    hit.write_text(finding.read_text())
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "4s")
    if (place.folder / "sprung").exists() or said.status != 1 or "trap:make" not in said.all:
        raise Wrong(f"false green: status {said.status}: {said.last}")
    journal = out / "campaign.json"
    text = journal.read_text().replace("fuzz.zoo:NV-1", "trap:make").replace('"ended": true', '"ended": false')
    journal.write_text(text)
    _trapped(place, place.fuzz("run", "--resume"), "--target trap:make")
    return said.came("not imported; the campaign says what it passes over")


@fault("target-of-ones-own", "a campaign on a core of one's own; each command that it prints is typed")
def own(place: Place) -> Came:
    place.write(
        "toy.py",
        """\
        from fuzz.zoo import find

        def make(configuration):
            return find("NV-1").factory()(configuration)
        """,
    )
    said = place.fuzz("run", "--target", "toy:make", *_WALK, "--budget", "5s").must(1)
    said = Said(said.command, said.status, said.out + place.fuzz("trace", "--target", "toy:make").err, "", 0.0)
    (finding,) = (place.folder / "fuzz-out" / "findings").glob("OWNERSHIP-*/README.md")
    lines = [line.strip() for text in (said.all, finding.read_text()) for line in text.splitlines()]
    typed = dict.fromkeys(line for line in lines if line.startswith("python -m fuzz replay "))
    bisect = [line for line in lines if line.startswith("git bisect run ")]
    if len(typed) < 2 or len(bisect) != 1:
        raise Wrong(f"lost: commands are {list(typed)}, {bisect}")
    for line in (*typed, bisect[0].removeprefix("git bisect run ")):
        place.fuzz(*shlex.split(line)[3:]).must(1, harm="lost")
    place.fuzz("promote", finding.parent, "--target", "toy:make", "--to", "kept").must(0)
    place.fuzz("run", "--target", "toy:make", *_WALK, "--budget", "3s").must(1, "OWNERSHIP")
    return Came(1, f"{len(typed) + 1} commands do what they say")


# ---- damaged ---------------------------------------------------------------------------------------------------------


@fault("damaged-history-and-baseline", "history.sqlite and baseline.json of a folder are overwritten with nonsense")
def damaged(place: Place) -> Came:
    out = place.folder / "fuzz-out"
    for name in ("history.sqlite", "baseline.json"):
        place.write(f"fuzz-out/{name}", "nonsense " * 1000)
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "3s")
    said.must(1, "history.sqlite.damaged-1", "baseline.json.damaged-1", "as new", harm="lost")
    if not (out / "history.sqlite").exists() or not (out / "baseline.json.damaged-1").exists():
        raise Wrong(f"lost: the folder has {sorted(path.name for path in out.iterdir())}")
    (out / "baseline.json").write_text('{"schema": 2, "findings": []}')
    place.fuzz("run", *_WALK, "--budget", "1s").must(2, "schema is 2", harm="lost")
    return said.came("moved aside, said, and the night goes on; that of a newer version is not moved")


@fault("tidy-links", "findings/ has a link to another folder, an accepted finding that is damaged, and a broken one")
def links(place: Place) -> Came:
    findings = place.folder / "fuzz-out" / "findings"
    other = _file(place, "other/counterexample.json", property="OWNERSHIP").parent
    _file(place, "fuzz-out/findings/a/counterexample.json", property="OWNERSHIP")
    signature = {"id": "1", "property": "OWNERSHIP", "divergence": "", "operation": "", "target": "kvcore"}
    for folder in (other, findings / "a"):
        known = {"signature": signature, "status": "known", "hits_in_all": 1}
        (folder / "finding.json").write_text(json.dumps(known))
    place.write("fuzz-out/findings/b/counterexample.json", "{")
    (findings / "c").symlink_to(other)
    said = place.fuzz("tidy", "--keep", "1d").must(0, "a/finding.json", "b cannot be read", "c is a link", harm="lost")
    if not all((folder / "counterexample.json").exists() for folder in (other, findings / "a", findings / "b")):
        raise Wrong(f"lost: {said.last}")
    return said.came("all are kept, and said")


@fault("versions-of-a-finding", "which version of this tool has found it")
def version(place: Place) -> Came:
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "3s").must(1)
    if "kvcore" not in place.findings()[0]["versions"]:
        raise Wrong(f"lost: versions are {place.findings()[0]['versions']}")
    return said.came("it is in the file")


# ---- what is shown ---------------------------------------------------------------------------------------------------

_NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e<script>alert(1)</script>|**x**\r\n::error::[a](http://b)`"


@fault("escape-in-a-file", "escape sequences in a request id, a note, a message and a file's name", quick=True)
def escapes(place: Place) -> Came:
    operations = [{**_ALLOCATE, "request": _NASTY}]
    bug = {"target": "fuzz.tests.deadly:killed", "property": "CRASH", "message": _NASTY}
    for name, more in (("\x1b[2Ja.json", {}), ("b.json", bug)):
        file = _file(place, name, note=_NASTY, operations=operations, **more)
        for option in ((), ("--quiet",), ("--json",), ("--shrink", "least.json", "--budget", "1s")):
            _no_control(place.fuzz("replay", file, *option).all)
    _no_control(place.fuzz("replay", _file(place, "\x1b[2Jc.json", property=_NASTY)).all)
    return Came(0, "written out, as Python writes them")


@fault(
    "markup-in-a-message", "a target raises a text with tags, line ends, escape sequences and commands of GitHub's log"
)
def markup(place: Place) -> Came:
    place.write(
        "toy.py",
        f"""\
        from properties.targets.kvcore import KvcoreTarget

        class Toy(KvcoreTarget):
            def allocate(self, request, tokens, *rest):
                if len(tokens) > 6:
                    raise ValueError({_NASTY!r})
                return super().allocate(request, tokens, *rest)
        """,
    )
    said = place.fuzz("run", "--target", "toy:Toy", *_WALK, "--budget", "4s", environment={"GITHUB_ACTIONS": "true"})
    said.must(1, "CRASH")
    _no_control(said.all)
    if "\n::error::[a]" in said.all:
        raise Wrong("false finding: a target writes annotations of its own")
    pages = [place.folder / "fuzz-out" / "summary.md", *(place.folder / "fuzz-out" / "findings").glob("*/README.md")]
    texts = {path.name: path.read_text() for path in pages}
    texts["report"] = place.fuzz("report").must(0).out
    for name, text in texts.items():
        _no_control(text)
        outside = "".join(text.split("```")[::2])
        if "<script>" in outside or "**x**" in outside or "\n::error::" in text:
            raise Wrong(f"false finding: markup of a target's is in {name}")
    return said.came("escaped, in the terminal, summary.md, README.md and annotations")


@fault("code-in-a-message", "a counterexample's message and seed end the text of the pytest file that promote makes")
def promoted(place: Place) -> Came:
    trap = '"""\nopen("sprung", "w")\n"""'
    file = _file(place, property="OWNERSHIP", message=trap, seed=trap, engine=trap, note=trap)
    place.fuzz("promote", file, "--to", "kept", "--name", "one").must(0)
    place.python("-m", "pytest", "-q", "kept").must(0, harm="lost")
    if (place.folder / "sprung").exists():
        raise Wrong("false green: a message was run as Python")
    return Came(0, "a text stays a text")
