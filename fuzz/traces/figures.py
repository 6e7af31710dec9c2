"""The figures of a request trace that was run, as plain data: for summaries and for `python -m fuzz trace --json`."""

from __future__ import annotations

from typing import Any

from .trace import TraceReport

__all__ = ["trace_figures"]


def trace_figures(report: TraceReport) -> dict[str, Any]:
    """The figures of a trace run, as JSON-ready data."""
    names = "requests dropped prompt_tokens hit_tokens output_tokens evictions refusals preemptions steps operations"
    figures: dict[str, Any] = {name: getattr(report, name) for name in names.split()}
    figures["seconds"] = round(report.seconds, 3)
    figures["operations_per_second"] = round(report.operations_per_second)
    figures["violation"] = str(report.violation) if report.violation is not None else None
    return figures
