"""Takes the screenshots in docs/: `python -m fuzz.tools.screenshots` (needs Chromium, takes about half a minute).

The report is that of a real campaign, on kvcore with a defect that it once had; the picture is that of a fork without
copy-on-write, found by nobody but written for the purpose.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.campaign import in_process as campaign
from fuzz.engines.tally import Tally
from fuzz.show.page import render, render_picture
from fuzz.tools.browser import Browser, chromium
from fuzz.tools.pictures import FORKED
from properties.targets import load

DOCS = Path(__file__).parents[2] / "docs"
TARGET = "fuzz.zoo:KC-1"


class Points:
    """A display that keeps the campaign's curve, for a summary that has none."""

    def __init__(self) -> None:
        self.timeline: list[dict[str, Any]] = []
        self._start = time.monotonic()

    def turn(self, engine: str) -> None: ...

    def progress(self, tally: Tally, elapsed: float, findings: int) -> None:
        point = {"seconds": elapsed, "operations": tally.operations, "findings": findings}
        self.timeline.append({**point, "by_engine": dict(tally.by_engine)})

    def found(self, finding: campaign.Finding) -> None:
        self._again(found=1)

    def shrinking(self, operations: int, replays: int) -> None: ...

    def shrunk(self, finding: campaign.Finding) -> None:
        self._again(found=0)

    def _again(self, found: int) -> None:
        """The last point once more, now: nothing is checked while a finding is shrunk."""
        if self.timeline:
            last = self.timeline[-1]
            now = max(time.monotonic() - self._start, last["seconds"])
            self.timeline.append({**last, "seconds": now, "findings": last["findings"] + found})


def report(folder: Path) -> Path:
    """A campaign of some seconds that finds something, and its page."""
    points = Points()
    plan = campaign.Plan(
        TARGET, "1", 16.0, Path("fuzz-out"), ("walk", "hypothesis"), shrink=6.0, max_findings=10, profile="nightly"
    )
    # What it writes goes to `folder`; what the page says is where a reader's own would be.
    result = campaign.run(replace(plan, out=folder), load(TARGET), time.monotonic, points)
    result.plan = plan
    summary = result.to_json()
    summary.setdefault("timeline", points.timeline)
    for entry in summary["findings"]:
        entry["replay"] = entry["replay"].replace(str(folder), str(plan.out))
    return render(summary, [finding.counterexample for finding in result.findings], folder / "report.html")


def main() -> None:
    if chromium() is None:
        raise SystemExit("no Chromium here; install one, or name it in the environment's CHROMIUM")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = report(folder)
        alone = render_picture(FORKED, folder / "picture.html")
        with Browser(1280, 900, 1.25) as browser:
            browser.open(page)
            browser.shot(DOCS / "report.png", height=1560)
            browser.open(alone)
            browser.shot(DOCS / "picture.png", selector="figure.kvp", margin=12)
    for path in sorted(DOCS.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
