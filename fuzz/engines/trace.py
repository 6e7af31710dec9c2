"""The engine `trace`: a production's requests through one target, every property on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from properties.boundary import made
from properties.operations import Configuration
from properties.target import TargetFactory

from ..runs.values import Counterexample, Judging
from ..traces.reading import BUILT_IN, read_trace
from ..traces.request import Request
from ..traces.run_trace import Progress, TraceReport, cannot_trace, run_trace
from .engine import Assignment, Engine, with_violation
from .tally import Tally

__all__ = ["TraceEngine", "trace"]


class TraceEngine(Engine):
    """There is one unit: the whole trace."""

    name = "trace"
    about = "a request trace of a production"
    share = 1.0
    total = 1
    sliced = False
    reads_trace = True

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        """The tally's figures of `trace` are those of the run."""
        assignment.begin(assignment.first)
        found, report = trace(
            assignment.factory,
            assignment.target,
            read_trace(assignment.trace or BUILT_IN),
            assignment.judging,
            assignment.tally,
            progress=lambda *_: assignment.progress(),
        )
        if report is not None:
            assignment.tally.figures[self.name] = report.to_json()
        return found, assignment.first + 1


def trace(
    factory: TargetFactory,
    target: str,
    requests: Sequence[Request],
    judging: Judging,
    tally: Tally,
    *,
    configuration: Configuration = Configuration(num_blocks=512, block_size=16),
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Counterexample | None, TraceReport | None]:
    """A request trace through one target. `options` are those of `run_trace`. O(the trace).

    What breaks is run a second time, since the first does not keep its operations. Where the target's policy does not
    go with the trace's scheduler, nothing is run, and the tally says why.
    """
    core = made(factory, configuration)
    if reason := cannot_trace(core.policy):
        tally.skipped[f"of the request trace: {reason}"] = len(requests)
        return None, None
    report = run_trace(requests, core, outside=judging.outside, progress=progress, **options)
    tally.add(TraceEngine.name, report.operations, {}, {}, {}, {})
    if report.violation is None:
        return None, report
    assert report.failed_at is not None
    again = run_trace(
        requests, made(factory, configuration), outside=judging.outside, record_upto=report.failed_at, **options
    )
    where = Counterexample(configuration, (), target, judging=judging, engine=TraceEngine.name, seed=TraceEngine.name)
    return with_violation(where, report.violation, again.recorded, report.failed_at), report
