"""Takes the screenshots in docs/: `python -m fuzz.tools.screenshots` (needs Chromium, takes about half a minute).

The report is that of a real campaign, on kvcore with a defect that it once had; the picture is that of a fork without
copy-on-write, found by nobody but written for the purpose.
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import datetime
from pathlib import Path

from fuzz.campaign.campaign import Campaign
from fuzz.campaign.executor import Hit
from fuzz.campaign.outcome import Figures
from fuzz.campaign.plan import CampaignPlan, Variant
from fuzz.campaign.tasks import Died, Stream
from fuzz.campaign.worker import executor_of
from fuzz.findings.store import Finding
from fuzz.show.page import render, render_picture
from fuzz.tools.browser import Browser, chromium
from fuzz.tools.pictures import FORKED

DOCS = Path(__file__).parents[2] / "docs"
TARGET = "fuzz.zoo:KC-1"


class Silent:
    """A `Show` that shows nothing."""

    def began(self, plan: CampaignPlan, adopted: int) -> None: ...

    def progress(self, figures: Figures) -> None: ...

    def found(self, hit: Hit, stream: Stream | None, after: int) -> None: ...

    def filed(self, finding: Finding, first: bool) -> None: ...

    def died(self, died: Died) -> None: ...

    def said(self, text: str) -> None: ...


def report(folder: Path) -> Path:
    """A campaign of some seconds that finds something, and its page."""
    plan = CampaignPlan(
        "run",
        targets=(TARGET,),
        engines={"walk": 5.0, "hypothesis": 3.0},
        configurations=(Variant(""),),
        seed="1",
        budget=16.0,
        shrink=6.0,
        kernels="",
        workers=1,
    )
    result = Campaign(
        plan, folder, time.monotonic, Silent(), executor_of(plan), now=lambda: datetime.now().astimezone()
    ).run()
    # What it writes goes to `folder`; what the page says is where a reader's own would be.
    summary = json.loads(json.dumps(result.to_json()).replace(str(folder), "fuzz-out"))
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
