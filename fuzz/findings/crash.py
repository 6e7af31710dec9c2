"""The finding that a process died: from what its guard knows, as a counterexample and as a directory of findings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from reference import Crash

from ..runs.counterexample import write
from ..runs.guard import Ending
from ..runs.recording import operations_in
from ..runs.replayed import FATAL
from ..runs.values import Counterexample, Judging, versions
from .keep import Keep
from .signature import Symptom, signature_of
from .statuses import NEW
from .store import Findings

__all__ = ["crash_of", "kept"]


def crash_of(ending: Ending) -> Counterexample:
    """What the process was doing when it died, the last operation at fault, if there is one."""
    about, how = ending.about, ending.again or ending.how
    configuration, operations = operations_in(ending.record)
    return Counterexample(
        configuration,
        tuple(operations),
        str(about.get("target", "")),
        property_id=Crash.id,
        message=f"{FATAL}{how}",
        at=max(0, len(operations) - 1),
        judging=Judging(bool(about.get("outside")), bool(about.get("exact", True)), str(about.get("kernels", ""))),
        engine=str(about.get("engine", "")),
        seed=str(about.get("seed", "")),
        versions=versions(),
        note="" if ending.again else "the process died once, and not when the command was run again",
    )


def kept(found: Counterexample, about: Mapping[str, Any]) -> Path | None:
    """Where it was written: `about["out"]` is a folder of findings, `about["least"]` a file; None if there is neither.
    Raises OSError."""
    if about.get("least"):
        return write(found, Path(about["least"]))
    if not about.get("out"):
        return None
    now = datetime.now().astimezone().replace(microsecond=0)
    findings = Findings(Path(about["out"]) / "findings", Keep(), now)
    replays = "1 of 1" if not found.note else "0 of 1"
    return findings.file(Symptom(signature_of(found)), found, found, status=NEW, replays=replays).path
