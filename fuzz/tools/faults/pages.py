"""A page of a large or hostile finding."""

from __future__ import annotations

import json
import re

from ...runs.counterexample import write
from ..pictures import large
from .fault import Came, Place, Wrong, fault

_DRAW = """
import sys
from pathlib import Path
from time import process_time

from fuzz.runs.counterexample import read
from fuzz.show.page import render_picture

began = process_time()
page = render_picture(read(Path(sys.argv[1])), Path("page.html"))
print(page.stat().st_size, process_time() - began)
"""

_HOSTILE = "<script>alert(1)</script>" + "\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 5_000


@fault("large-page", "the picture of a finding of 300 operations on 1,000 blocks, hundreds of tokens a request")
def large_page(place: Place) -> Came:
    file = write(large(), place.folder / "large.json")
    said = place.python("-c", _DRAW, file, timeout=60).must(0)
    size, seconds = map(float, said.out.split())
    if size > 1_000_000 or seconds > 10:  # 2 s of a machine that is not busy
        raise Wrong(f"no end: {size / 1e6:.1f} MB, {seconds:.1f} s")
    text = (place.folder / "page.html").read_text(encoding="utf-8")
    first = re.search(r'class="kvp-block([^"]*)"', text)
    if first is None or "kvp-wrong" not in first[1]:
        raise Wrong("lost: the accused block is not the first row")
    return said.came("under 1 MB, the accused block first")


@fault("ticked", "a campaign finds a violation: what its page says of that property")
def ticked(place: Place) -> Came:
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-1", "--engine", "walk", "--seed", "1").must(1, "OWNERSHIP")
    page = (place.folder / "fuzz-out" / "report.html").read_text(encoding="utf-8")
    for name in sorted({found["property"] for found in place.findings()}):
        if not re.search(rf'aria-label="violated">[^<]*</span><code[^>]*>{name}<', page):
            raise Wrong(f"false green: {name} is not marked as violated under what was checked")
        if re.search(rf'aria-label="checked">[^<]*</span><code[^>]*>{name}<', page):
            raise Wrong(f"false green: {name} has a tick")
    return said.came("a cross, and a link to the finding")


@fault("hostile-names", "requests whose names are markup, control signs and 5,000 characters long", quick=True)
def hostile_names(place: Place) -> Came:
    operations = [
        {"op": "allocate", "request": _HOSTILE, "tokens": [5, 6]},
        {"op": "dispatch", "step": 1, "work": [[_HOSTILE, 2]]},
        {"op": "complete", "step": 1},
    ]
    data = {
        "schema": 1,
        "target": "fuzz.zoo:NV-7",
        "property": "OWNERSHIP",
        "message": "",
        "at": 1,
        "configuration": {"num_blocks": 2, "block_size": 2},
        "judging": {"outside": False, "exact": True},
        "operations": operations,
    }
    file = place.write("hostile.json", json.dumps(data))
    said = place.python("-c", _DRAW, file).must(0)
    page = (place.folder / "page.html").read_text(encoding="utf-8")
    if "<script>alert" in page:
        raise Wrong("false finding: markup of a request's name is in the page")
    if len(page) > 400_000:
        raise Wrong(f"no end: {len(page):,} characters of three operations")
    return said.came("a page in which nothing is executed")


@fault("many-findings", "a report of forty large findings")
def many_findings(place: Place) -> Came:
    write(large(100, 1_000), place.folder / "large.json")
    code = """
import json
from pathlib import Path

from fuzz.runs.counterexample import read
from fuzz.show.page import pictured, render

found = read(Path("large.json"))
entry = {"property": "ALIASING", "message": "", "replay": "", "file": ""}
summary = {
    "status": 1, "complaint": "", "target": "t", "seed": "1", "seconds": 1.0, "operations": 1, "episodes": 1,
    "engines": {}, "kinds": {}, "refused": {}, "skipped": {}, "properties": {"ALIASING": "checked"},
    "sometimes": {"fork": 1}, "never_happened": [], "trace": None, "findings": [entry] * 40, "versions": {},
}
drawn = pictured(found)
print(render(summary, [found] * 40, Path("page.html"), [drawn] * 40).stat().st_size)
"""
    said = place.python("-c", code).must(0)
    size = int(said.out)
    text = (place.folder / "page.html").read_text(encoding="utf-8")
    if size > 10_000_000:
        raise Wrong(f"no end: {size / 1e6:.0f} MB")
    if text.count('class="finding') != 40:
        raise Wrong("lost: not every finding is on the page")
    return said.came("all are there, the first pictures open, the page under 10 MB")
