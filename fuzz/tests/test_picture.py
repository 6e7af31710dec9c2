"""The picture of a counterexample says what happened, and the page around it works: in a browser, with the keyboard."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fuzz.runs.counterexample import read
from fuzz.runs.values import Counterexample, Judging
from fuzz.show.chart import chart, curves, heat, logarithmic, stacks
from fuzz.show.layout import layout
from fuzz.show.page import pictured, render, render_history, render_picture
from fuzz.show.picture import NotDrawn, named_blocks, picture
from fuzz.tools.browser import NAMES, Browser, chromium
from fuzz.tools.pictures import EARLY, FORKED, large, long
from fuzz.zoo import find
from properties.ledger import EVENTS
from properties.operations import Allocate, Complete, Configuration, Dispatch, Free
from properties.targets import load
from properties.targets.kvcore import KvcoreTarget
from reference import PROPERTIES

ROOT = Path(__file__).parents[2]


def cells(data: dict[str, Any], column: int) -> list[dict[str, Any]]:
    """The blocks after an operation."""
    return [data["cells"][place] for place in data["columns"][column]["blocks"]]


def summary(findings: list[Counterexample], **more: Any) -> dict[str, Any]:
    """A summary as a campaign writes it, with nothing in it that is optional."""
    return {
        "schema": 1,
        "status": 1 if findings else 0,
        "complaint": "",
        "target": "kvcore",
        "seed": "1",
        "seconds": 2.5,
        "operations": 1234,
        "episodes": 5,
        "engines": {"walk": {"operations": 1234, "seconds": 2.0, "operations_per_second": 617}},
        "kinds": {"allocate": 1000, "free": 234},
        "refused": {},
        "skipped": {},
        "properties": dict.fromkeys(PROPERTIES, "checked"),
        "sometimes": dict.fromkeys(EVENTS, 3),
        "never_happened": [],
        "trace": None,
        "findings": [
            {"file": "x.json", "property": found.property_id, "message": found.message, "replay": "python -m fuzz"}
            for found in findings
        ],
        "versions": {"python": "3.11"},
        **more,
    }


# ---- data ------------------------------------------------------------------------------------------------------------


def test_the_blocks_of_a_planted_bug_are_told_operation_by_operation() -> None:
    data = picture(EARLY, find("NV-7").factory())
    assert (data["property"], data["at"], data["left"], data["drain_from"]) == ("OWNERSHIP", 1, 1, None)
    assert [column["operation"] for column in data["columns"]] == ["allocate a [5 6]", "dispatch step 1: a 2"]
    assert [column["outcome"] for column in data["columns"]] == ["done", "violated"]
    first, second = cells(data, 0)
    assert (first["state"], first["references"], first["published"], first["holders"]) == ("active", 1, False, ["a"])
    assert first["tokens"] == [] and second["state"] == "free"
    assert data["columns"][0]["changed"] == [0] and data["columns"][0]["violating"] == {}
    broken = data["columns"][1]
    assert cells(data, 1)[0]["tokens"] == [5, 6]
    assert cells(data, 1)[0]["core"] == {"references": 1, "published": True}
    assert list(broken["violating"]) == ["0"]
    assert broken["violating"]["0"] == [
        "the message is about it",
        "the core says 1 reference, published, the model 1 reference, not published",
    ]
    assert broken["flights"] == ["step 1: a 0–1"]
    (line,) = (data["lines"][number] for number in broken["requests"])
    assert (line["request"], line["tokens"], line["table"]) == ("a", [5, 6], [0])
    assert (line["scheduled"], line["computed"]) == (2, 0)
    json.dumps(data)


def test_a_longer_run_shows_sharing_flight_and_the_tail_that_is_written_by_two() -> None:
    data = picture(FORKED, load(FORKED.target))
    assert (data["property"], data["at"]) == ("ALIASING", 11)
    assert data["message"] == FORKED.message
    assert cells(data, 3)[0]["holders"] == ["a", "b"] and cells(data, 3)[0]["references"] == 2
    freed = cells(data, 5)
    assert freed[0]["others"] == ["b, freed in flight"] and freed[2]["state"] == "active" and not freed[2]["holders"]
    assert cells(data, 6)[2]["state"] == "free" and cells(data, 6)[2]["tokens"] == [9, 9, 9]
    assert cells(data, 9)[1]["prefix"] == [1, 2, 3, 4]
    assert list(data["columns"][11]["violating"]) == ["1"]
    drawn = layout(data)
    assert drawn["selected"] == 1
    assert [row["block"] for row in drawn["rows"]] == [0, 1, 2] and drawn["untouched"] == "3–4"
    for row in drawn["rows"]:
        assert sum(bar["span"] for bar in row["bars"]) == 12, "bars cover every column once"


def test_what_only_the_drain_phase_shows_has_columns_of_it() -> None:
    class Hoarder(KvcoreTarget):
        def free(self, request: str) -> None:
            if request == "drain-cold":
                raise RuntimeError("boom")
            super().free(request)

    stored = Counterexample(Configuration(2, 2), (Allocate("a", (1,)), Free("a")))
    data = picture(stored, Hoarder)
    assert data["property"] == "CRASH" and data["drain_from"] == 2
    assert [column["drain"] for column in data["columns"]][:3] == [False, False, True]
    assert data["columns"][-1]["operation"] == "free drain-cold" and data["at"] == len(data["columns"]) - 1
    assert data["glyphs"] is not None, "the drain phase's tokens are long"


def test_a_run_that_breaks_nothing_has_no_drain_phase_and_no_violation() -> None:
    data = picture(read(ROOT / "fuzz" / "scenarios" / "six_moments.json"), load("kvcore"))
    assert (data["property"], data["at"], data["drain_from"], len(data["columns"])) == (None, None, None, 10)
    assert data["glyphs"] is None
    assert [cell["state"] for cell in cells(data, 5)] == ["cached", "free", "free"]


def test_refused_and_skipped_operations_say_why() -> None:
    stored = Counterexample(
        Configuration(1, 1), (Allocate("a", (1,)), Allocate("a", (1,)), Dispatch(1, (("a", 1),)), Dispatch(1, ()))
    )
    columns = picture(stored, load("kvcore"))["columns"]
    assert [(column["outcome"], column["reason"]) for column in columns] == [
        ("done", ""),
        ("refused", "DuplicateRequest"),
        ("done", ""),
        ("skipped", "step 1 exists already"),
    ]


def test_a_violation_about_no_block_accuses_the_request() -> None:
    class Forgetful(KvcoreTarget):
        def free(self, request: str) -> None:
            raise RuntimeError(f"no {request!r}")

    stored = Counterexample(
        Configuration(4, 2), (Allocate("a", (1,)), Allocate("b", (2, 3, 4)), Free("b")), judging=Judging(outside=True)
    )
    data = picture(stored, Forgetful)
    column = data["columns"][2]
    assert (column["violating"], column["accused"]) == ({}, ["b"])
    assert layout(data)["selected"] == 2, "the tail of the accused one's table"


def test_blocks_in_the_wrong_queue_are_marked_though_the_message_only_counts() -> None:
    found = find("CC-11").factory()
    stored = Counterexample(
        Configuration(2, 1),
        (Allocate("a", (1, 2)), Dispatch(1, (("a", 2),)), Complete(1), Free("a")),
    )
    data = picture(stored, found)
    assert data["property"] == "CONSERVATION" and "the core counts" in data["message"]
    reasons = [reason for told in data["columns"][data["at"]]["violating"].values() for reason in told]
    assert "the core lists it as free, in the model it is cached" in reasons


def test_a_core_that_cannot_show_itself_any_more_is_still_drawn() -> None:
    class Broken(KvcoreTarget):
        def dispatch(self, work: Any) -> Any:
            self.states = self.table = self.inspect = None  # type: ignore[assignment, method-assign]
            raise RuntimeError("boom")

    data = picture(EARLY, Broken)
    assert data["property"] == "CRASH" and data["at"] == 1
    assert cells(data, 1) == cells(data, 0)


def test_the_same_counterexample_gives_the_same_picture_and_the_same_page(tmp_path: Path) -> None:
    one, two = (picture(FORKED, load(FORKED.target)) for _ in range(2))
    assert json.dumps(one) == json.dumps(two)
    pages = [render(summary([FORKED]), [FORKED], tmp_path / name).read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_what_is_too_large_or_nothing_at_all_is_not_drawn() -> None:
    with pytest.raises(NotDrawn, match="too many to draw"):
        picture(replace(EARLY, configuration=Configuration(1 << 20, 16)), load("kvcore"))
    with pytest.raises(NotDrawn, match="no operations"):
        picture(replace(EARLY, operations=()), load("kvcore"))


@pytest.mark.parametrize(
    ("message", "blocks"),
    [
        ("block 2 has 1 references; 2 tables hold it", [2]),
        ("append to 'a' keeps its tail block 1, which others hold too", [1]),
        ("'a' takes new blocks [3, 1]; by the order of release they are [1, 3]", [1, 3]),
        ("'c' hits 1 blocks of [0, 0]; 2 are resident (the next one in block 1)", [1]),
        ("'a': logical block 0 is in block 3, which is none", [3]),
        ("'block 1' hits block 2 (logical 0)", [2]),
        ("block 77 is in the index, but its content is not published (any more)", []),
        ("all is freed and completed, and 2 blocks are still held", []),
        ("the step's block table of 'a' is [0, 1, 2], its table [0, 1]", [2]),
        ("'a' cut to 1 tokens has table [3]; it should be [2]", [2, 3]),
        ("slots of 'b' for positions 2 to 3 are [6, 7], not [6, 5]", [2, 3]),
        ("slots of 'b' for positions 0 to 0 are [-1], not [1]", [0]),
        ("free [], cached [2, 1, 3]; by the order of release free [], cached [2, 3, 1]", [1, 3]),
        ("the step carries copies [(2, 3)]; due are []", [2, 3]),
        ("cu_seqlens has 'a' at 0 to 2, not 0 to 1", []),
    ],
)
def test_a_message_names_physical_blocks(message: str, blocks: list[int]) -> None:
    assert named_blocks(message, 4, 2) == blocks


# ---- pages -----------------------------------------------------------------------------------------------------------

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def nasty() -> Counterexample:
    """Whatever a person can write into a counterexample, written by somebody who means harm."""
    space = (("salt", NASTY),)
    return Counterexample(
        Configuration(2, 2),
        (Allocate(NASTY, (5, 6), space), Dispatch(1, ((NASTY, 2),))),
        EARLY.target,
        property_id="OWNERSHIP",
        message=NASTY,
        note=NASTY,
        at=1,
    )


class Tags(HTMLParser):
    """The names of a page's tags, and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


@pytest.mark.parametrize("alone", [False, True])
def test_pages_ask_for_nothing_outside_and_escape_everything(tmp_path: Path, alone: bool) -> None:
    found = nasty()
    path = tmp_path / "page.html"
    if alone:
        render_picture(found, path)
    else:
        entry = summary([found], target=NASTY, seed=NASTY, complaint=NASTY, versions={NASTY: NASTY})
        entry["findings"][0] |= {"signature": NASTY, "replays": NASTY, "replay": NASTY}
        render(entry, [found], path)
    page = path.read_text()
    assert "http" not in page and "@import" not in page and "url(" not in page
    tags = Tags(page)
    assert not tags.names & {"img", "link", "iframe", "object", "embed", "base", "form"}
    assert {value for name, value in tags.attributes if name in ("src", "href")} <= {"#finding-1"}
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    scripts = re.findall(r'<script type="application/json" class="kvp-data">(.*?)</script>', page, re.DOTALL)
    assert len(scripts) == 1
    assert json.loads(scripts[0])["owners"] == [NASTY]
    assert page.count("</script>") == 2, "the data's and the code's"


def test_a_page_without_a_picture_says_why(tmp_path: Path) -> None:
    gone = replace(EARLY, target="nowhere.at.all:make")
    fixed = replace(EARLY, target="kvcore")
    failing = replace(EARLY, target="fuzz.tests.broken:factory")
    large = replace(EARLY, configuration=Configuration(1 << 20, 16))
    findings = [gone, fixed, failing, large]
    said = [pictured(found) for found in findings]
    assert [data for data, _ in said] == [None] * 4
    assert "no target 'nowhere.at.all:make'" in said[0][1]
    assert "OWNERSHIP no longer fails on kvcore" in said[1][1]
    assert "this factory is broken" in said[2][1]
    assert "too many to draw" in said[3][1]
    page = render(summary(findings), findings, tmp_path / "page.html").read_text()
    assert page.count("No picture: ") == 4
    assert page.count("dispatch step 1: a 2") == 4, "the operations are there as text"
    other = pictured(replace(EARLY, property_id="EXACT"))
    assert other[0] is not None and "breaks OWNERSHIP first; it was found as EXACT" in other[1]


def test_what_a_summary_may_have_is_shown(tmp_path: Path) -> None:
    more = summary(
        [EARLY],
        timeline=[
            {"seconds": 0.0, "operations": 0, "by_engine": {"walk": 0}, "findings": 0},
            {"seconds": 4.0, "operations": 900, "by_engine": {"walk": 700, "trace": 200}, "findings": 1},
        ],
        coverage={"allocate": {"free": 50, "cached": 0, "active": 7}},
        never_happened=["fork"],
    )
    more["sometimes"] |= {"fork": 0, "copy-on-write": 0}
    more["findings"][0] |= {"signature": "OWNERSHIP/dispatch", "status": "regressed", "hits": 7, "replays": "3 of 3"}
    page = render(more, [EARLY], tmp_path / "page.html").read_text()
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page)))
    for expected in ("OWNERSHIP/dispatch", "regressed", "hit 7 times", "fails in 3 of 3 replays", "✖ 1"):
        assert expected in text
    assert re.search(r'<li class="never"><span>fork<', page)
    assert re.search(r'<li class="soft"><span>copy-on-write<', page), "0 and not missed: not possible on this target"
    assert '<td class="n zero" style="--share:0.0">never</td>' in page
    plain = render(summary([]), [], tmp_path / "plain.html").read_text()
    assert "<svg" not in plain and 'class="heat"' not in plain and "kvp" not in plain


def test_places_on_a_chart() -> None:
    assert chart([]) is None and heat({}) is None
    assert logarithmic(0, 10) == 0 and logarithmic(10, 10) == 1 and 0 < logarithmic(1, 10**6) < 0.1
    drawn = chart(
        [
            {"seconds": 0, "by_engine": {"a": 0}, "findings": 0},
            {"seconds": 10, "by_engine": {"a": 500, "b": 500}, "findings": 2},
        ]
    )
    assert drawn is not None
    assert [area["engine"] for area in drawn["areas"]] == ["a", "b"]
    assert drawn["areas"][0]["line"] == "0.0,180.0 0.0,180.0 600.0,90.0"
    assert drawn["areas"][1]["line"].endswith("600.0,0.0"), "on top of the other's"
    assert drawn["findings"] == [{"x": 600.0, "count": 2}]


def test_places_of_curves_and_stacks() -> None:
    assert curves({"walk": [None, 0.0]}, ["a", "b"]) is None and stacks([{"new": 0}], ["a"]) is None
    drawn = curves({"walk": [100.0, None, 50.0, 100.0], "trace": [1.0, 1.0, 1.0, 98.0]}, ["1", "2", "3", "4"])
    assert drawn is not None
    walk, trace = drawn["lines"]
    assert walk["parts"] == ["375.0,90.0 525.0,0.0"], "a campaign without this engine is a gap, and one point no line"
    assert [(point["x"], point["y"]) for point in walk["points"]] == [(75.0, 0.0), (375.0, 90.0), (525.0, 0.0)]
    assert abs(walk["label"] - trace["label"]) >= 14, "no label lies on another"
    boxes = stacks([{"new": 2, "known": 0}, {"new": 1, "known": 3}], ["a", "b"])
    assert boxes is not None
    assert [(box["name"], box["y"], box["height"]) for box in boxes["boxes"]] == [
        ("new", 90.0, 90.0),
        ("new", 135.0, 45.0),
        ("known", 0.0, 135.0),
    ]
    assert [tick["label"] for tick in (curves({"a": [1.0] * 30}, [*map(str, range(30))]) or {})["across"]][-1] == "29"


NIGHTS: list[dict[str, Any]] = [
    {
        "began": f"2026-11-{day}T03:00:00",
        "name": "nightly",
        "seed": str(day),
        "status": status,
        "complaint": "",
        "targets": "kvcore",
        "workers": 2,
        "seconds": 3600.0,
        "operations": 1000 * day,
        "busy": 0.97,
        "command": f"python -m fuzz run --campaign nightly --seed {day}",
        "operations_per_second": day,
        "engines": {"walk": {"operations": 900 * day, "seconds": 3000.0}, **more},
        "findings": [
            {"signature": "1a2b3c4d", "property": "OWNERSHIP", "message": "block 0", "status": kind, "hits": 3}
            for kind in kinds
        ],
    }
    for day, status, kinds, more in (
        (27, 0, (), {}),
        (28, 1, ("new",), {"trace": {"operations": 5, "seconds": 0.0}}),
        (29, 5, ("known",), {"trace": {"operations": 5000, "seconds": 2.0}}),
        (30, 0, ("fixed",), {}),
    )
]


def test_a_history_is_a_page_that_asks_for_nothing_outside(tmp_path: Path) -> None:
    page = render_history(NIGHTS, tmp_path / "history.html").read_text()
    assert "http" not in page and "@import" not in page and "url(" not in page
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))
    assert "The last campaign was clean" in text
    assert "python -m fuzz run --campaign nightly --seed 28" in text
    assert text.index("--seed 30") < text.index("--seed 27"), "the latest first"
    assert re.findall(r'<rect class="(\w+)"', page) == ["new", "known", "fixed"]
    (finding,) = re.findall(r"<tr><td><span class=\"tag ok\">fixed</span>.*?</tr>", page)
    assert "OWNERSHIP-1a2b3c4d" in finding and ">9</td>" in finding and finding.count("<i") == 4
    bad = [{**night, "name": NASTY, "seed": NASTY, "complaint": NASTY, "command": NASTY} for night in NIGHTS]
    bad[-1]["findings"] = [{**NIGHTS[1]["findings"][0], "message": NASTY, "signature": NASTY}]
    page = render_history(bad, tmp_path / "bad.html").read_text()
    assert not Tags(page).names & {"img", "script", "iframe"}
    assert "1 new or regressed finding in the last campaign" in page
    nothing = render_history([], tmp_path / "none.html").read_text()
    assert "No campaign yet" in nothing and "<svg" not in nothing


@pytest.fixture(scope="module")
def a_large_one() -> tuple[Counterexample, dict[str, Any]]:
    found = large()
    data, said = pictured(found)
    assert data is not None and said == ""
    return found, data


def test_a_large_finding_is_drawn_by_what_matters(a_large_one: tuple[Counterexample, dict[str, Any]]) -> None:
    _, data = a_large_one
    at = data["columns"][data["at"]]
    (wrong,) = map(int, at["violating"])
    drawn = layout(data)
    rows = [row["block"] for row in drawn["rows"]]
    assert len(rows) <= 64 and rows[0] == wrong == drawn["selected"], "the accused block comes first"
    tables = [data["lines"][number]["table"] for number in at["requests"]]
    assert data["lines"][at["requests"][0]]["request"] == "accused", "so does the accused request"
    assert set(tables[0]) <= set(rows), "all of its blocks are drawn"
    assert drawn["folded_count"] + drawn["untouched_count"] + len(rows) == data["num_blocks"], "the others are counted"
    for row in drawn["rows"]:
        assert sum(bar["span"] for bar in row["bars"]) == len(data["columns"])
    (now,) = (data["cells"][at["blocks"][place]] for place, one in enumerate(data["blocks"]) if one == wrong)
    assert now["holders"] == ["accused", "child"]


def test_a_page_is_small_however_large_what_it_shows(
    a_large_one: tuple[Counterexample, dict[str, Any]], tmp_path: Path
) -> None:
    found, data = a_large_one
    one = render(summary([found]), [found], tmp_path / "one.html", [(data, "")])
    assert one.stat().st_size < 1_000_000
    many = render(summary([found] * 12), [found] * 12, tmp_path / "many.html", [(data, "")] * 12)
    assert many.stat().st_size < 6_000_000
    page = many.read_text()
    drawn = page.count('<figure class="kvp" id=')
    assert 3 <= drawn < 12 and page.count("the page is large already") == 12 - drawn, "those without one say why"
    assert page.count('<details class="drawn">') == drawn - 3, "those beyond the first are folded"


def test_a_violated_property_has_no_tick(tmp_path: Path) -> None:
    page = render(summary([FORKED]), [FORKED], tmp_path / "page.html").read_text()
    listed = re.findall(r'<li><span class="\w+" aria-label="([\w ]+)">.</span><code[^>]*>(\w+)</code>', page)
    assert {name for said, name in listed if said == "violated"} == {"ALIASING"}
    assert {name for said, name in listed if said == "checked"} == set(PROPERTIES) - {"ALIASING"}
    fixed = summary([FORKED])
    fixed["findings"][0]["status"] = "fixed"
    assert 'aria-label="violated"' not in render(fixed, [FORKED], tmp_path / "fixed.html").read_text()


# ---- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip(f"no Chromium here: none of {', '.join(NAMES)} on the path, and CHROMIUM is not set")
    with Browser() as opened:
        yield opened


def place(browser: Browser, at: int = 0) -> tuple[int, int]:
    """(column, block) of the cursor of a page's picture."""
    found = browser.run(f"Object.values({{...document.querySelectorAll('figure.kvp')[{at}].dataset}}).map(Number)")
    return found[0], found[1]


def panel(browser: Browser, at: int = 0) -> str:
    return str(browser.run(f"document.querySelectorAll('.kvp-panel')[{at}].innerText"))


def test_keys_step_through_a_picture_and_leave_the_others_alone(browser: Browser, tmp_path: Path) -> None:
    findings = [FORKED, EARLY]
    browser.open(render(summary(findings), findings, tmp_path / "page.html"))
    assert (place(browser), place(browser, 1)) == ((11, 1), (1, 0)), "both begin where it breaks"
    assert "ALIASING" in panel(browser) and "keeps its tail block 1" in panel(browser)
    browser.run("document.querySelectorAll('figure.kvp')[0].focus()")
    browser.press("ArrowLeft")
    assert place(browser) == (10, 1) and "fork a as c" in panel(browser)
    browser.press("Home")
    assert place(browser) == (0, 1) and "allocate a [1 2 3 4 5 6]" in panel(browser)
    browser.press("ArrowLeft", "j", "ArrowDown", "j")
    assert place(browser) == (0, 2), "ends are ends"
    browser.press("k", "ArrowRight", "ArrowRight")
    assert place(browser) == (2, 1)
    browser.press("ArrowUp", "End")
    assert place(browser) == (11, 0)
    browser.press("ArrowLeft", "v")
    assert place(browser) == (11, 1), "back to where it breaks"
    assert place(browser, 1) == (1, 0), "the other one has not moved"
    browser.run("document.querySelectorAll('figure.kvp')[1].querySelector('[data-go=first]').click()")
    assert (place(browser), place(browser, 1)) == ((11, 1), (0, 0))
    # A click on a long bar goes to the column under the pointer.
    box = browser.run(
        "(() => { document.querySelector('figure.kvp').scrollIntoView(); const bar = "
        'document.querySelector(\'.kvp-bar-of[data-block="0"][data-at="6"]\');'
        "const box = bar.getBoundingClientRect(); return [box.x, box.y, box.width, box.height, bar.dataset.span] })()"
    )
    span = int(box[4])
    browser.click(box[0] + box[2] * 2.5 / span, box[1] + box[3] / 2)
    assert place(browser) == (8, 0)
    marked = browser.run("[...document.querySelectorAll('.kvp-bar-of.kvp-wrong')].map((one) => one.dataset.block)")
    assert marked == ["1", "0"]
    assert browser.problems == []


def test_a_large_picture_stays_within_its_box_and_follows_the_cursor(browser: Browser, tmp_path: Path) -> None:
    browser.open(render_picture(long(120, 64), tmp_path / "page.html"))
    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "only the picture scrolls"
    assert browser.run("document.querySelectorAll('.kvp-bar-of').length") < 64 * 120 / 4, "quiet stretches are one bar"
    browser.press("ArrowRight")
    assert place(browser) == (1, 0), "with nothing focused, the only picture listens"
    browser.run("document.querySelector('figure.kvp').focus()")
    browser.press("End", *["j"] * 25)
    assert place(browser)[0] == 119
    seen = browser.run(
        "(() => { const box = document.querySelector('.kvp-scroll').getBoundingClientRect();"
        "const spot = document.querySelector('.kvp-spot').getBoundingClientRect();"
        "return spot.left >= box.left && spot.right <= box.right + 1 && spot.top >= box.top && "
        "spot.bottom <= box.bottom })()"
    )
    assert seen
    assert browser.problems == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_large_finding_opens_at_the_accused_block(
    a_large_one: tuple[Counterexample, dict[str, Any]], tmp_path: Path, width: int
) -> None:
    if chromium() is None:
        pytest.skip("no Chromium here")
    found, data = a_large_one
    with Browser(width) as browser:
        browser.open(render(summary([found] * 4), [found] * 4, tmp_path / "page.html", [(data, "")] * 4))
        (wrong,) = map(int, data["columns"][data["at"]]["violating"])
        assert place(browser) == (data["at"], wrong)
        browser.run("document.querySelector('details.drawn').open = true")
        browser.run("new Promise((done) => setTimeout(done, 100))")
        for figure in (0, 3):
            seen = browser.run(
                f"(() => {{ const figure = document.querySelectorAll('figure.kvp')[{figure}];"
                "const box = figure.querySelector('.kvp-scroll').getBoundingClientRect();"
                "const spot = figure.querySelector('.kvp-spot').getBoundingClientRect();"
                "return spot.width > 0 && spot.left >= box.left && spot.right <= box.right + 1 && "
                "spot.top >= box.top && spot.bottom <= box.bottom })()"
            )
            assert seen, "the place where it breaks is in sight, also in a picture that was folded"
        first = browser.run("document.querySelector('.kvp-request').classList.contains('kvp-wrong')")
        assert first, "the accused request is the first"
        over = (
            "[...document.querySelectorAll('.kvp-lane, .kvp-panel > section')]"
            ".filter((one) => one.scrollWidth > one.clientWidth)"
        )
        browser.run("document.querySelector('figure.kvp').focus()")
        browser.press(*["ArrowLeft"] * 4)
        assert browser.run(over + ".length") == 0, "no lane runs over the edge"
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_and_nothing_spills_in_either_mode(browser: Browser, tmp_path: Path, dark: bool) -> None:
    browser.open(render_picture(FORKED, tmp_path / "page.html"), dark)
    # Contrast of text with the card that it stands on, by the usual formula.
    ratio = browser.run(
        """(() => {
          const figure = getComputedStyle(document.querySelector('figure.kvp'));
          const light = (name) => { const probe = document.createElement('i'); probe.style.color = `var(${name})`;
            document.querySelector('figure.kvp').append(probe);
            const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
              .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            probe.remove(); return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]; };
          const contrast = (one, two) => { const pair = [light(one), light(two)].sort((a, b) => b - a);
            return (pair[0] + 0.05) / (pair[1] + 0.05); };
          return Math.min(contrast('--text', '--ground'), contrast('--text', '--card'), contrast('--dim', '--card'),
            contrast('--dim', '--ground'), contrast('--alarm', '--ground'));
        })()"""
    )
    assert ratio >= 4.5
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(15, 20, 27)" if dark else "rgb(255, 255, 255)"
    )
    assert browser.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_history_fits_its_window_in_either_mode(browser: Browser, tmp_path: Path, dark: bool) -> None:
    many = [{**NIGHTS[day % 4], "began": f"2026-{1 + day // 28:02}-{1 + day % 28:02}T03:00:00"} for day in range(60)]
    browser.open(render_history(many, tmp_path / "history.html"), dark)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "only tables scroll"
    assert browser.run("document.querySelectorAll('svg.counts rect').length") == 45
    # Curves and columns stand under each other: a campaign is at the same place in both.
    places = browser.run(
        "['svg.rates circle', 'svg.counts rect'].map((one) => { const box = [...document.querySelectorAll(one)]"
        ".filter((mark) => mark.textContent.includes('2026-01-02')).map((mark) => mark.getBoundingClientRect())[0];"
        "return Math.round(box.x + box.width / 2) })"
    )
    assert abs(places[0] - places[1]) <= 1
    overlapping = browser.run(
        "(() => { const boxes = [...document.querySelectorAll('svg.rates text')].map((one) => "
        "one.getBoundingClientRect()); return boxes.filter((one, at) => boxes.slice(at + 1).some((two) => "
        "one.left < two.right && two.left < one.right && one.top + 2 < two.bottom && two.top + 2 < one.bottom)).length"
        " })()"
    )
    assert overlapping == 0
    colours = "['new', 'known', 'fixed'].map((name) => getComputedStyle(document.querySelector(`rect.${name}`)).fill)"
    assert len(set(browser.run(colours))) == 3
    assert browser.problems == []


def test_nasty_names_do_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    found = nasty()
    browser.open(render(summary([found], target=NASTY), [found], tmp_path / "page.html"))
    browser.run("document.querySelector('figure.kvp').focus()")
    browser.press("ArrowLeft", "ArrowRight")
    assert NASTY in panel(browser)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.problems == []


def test_a_printed_page_shows_every_column(browser: Browser, tmp_path: Path) -> None:
    browser.open(render_picture(long(60, 16), tmp_path / "page.html"))
    browser.call("Emulation.setEmulatedMedia", media="print")
    fits = browser.run(
        "document.querySelector('.kvp-grid').getBoundingClientRect().right <= "
        "document.querySelector('figure.kvp').getBoundingClientRect().right + 1"
    )
    browser.call("Emulation.setEmulatedMedia", media="")
    assert fits and browser.problems == []
