"""The finding that a process died: from what its guard knows."""

from __future__ import annotations

from reference import Crash

from ..runs.guard import Ending
from ..runs.recording import operations_in
from ..runs.replayed import FATAL
from ..runs.values import Counterexample, Judging, versions

__all__ = ["crash_of"]


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
