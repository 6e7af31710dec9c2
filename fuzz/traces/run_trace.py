"""Drives a target with a trace's schedule, beside the judge or alone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from properties.operations import Operation
from properties.session import Outcome, Session
from properties.target import Capability, Target
from reference import Policy, Release, Violation

from .bare import Bare
from .request import Request
from .schedule import Schedule

__all__ = ["RECENT", "Progress", "TraceReport", "cannot_trace", "run_trace"]

RECENT = 50
"""Operations that a report shows before a violation."""


def cannot_trace(policy: Policy) -> str:
    """Why a core with this policy cannot run a trace; "" if it can. The schedule admits whole requests, in chunks."""
    if policy.admission == "step":
        return "its scheduler takes blocks at admission, and the target's policy takes them by the step"
    return "" if policy.chunks else "its scheduler prefills in chunks, and the target's policy has none"


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What a run did. Tokens and blocks are counts.

    requests: finished. dropped: can never fit. prompt_tokens, hit_tokens: at first admission (a preempted request that
    comes back is not counted again). output_tokens: generated. evictions: published blocks taken for other content,
    None if the target does not show its counts and nothing checked it. refusals: of Allocate and Append. operations:
    applied, without the drain phase. seconds: of the whole run, drain included.

    violation: what broke, or None; failed_at: the index of that operation, the drain phase counted on; recent: the last
    operations up to it. recorded: with `record_upto`, every operation up to that index.
    """

    requests: int
    dropped: int
    prompt_tokens: int
    hit_tokens: int
    output_tokens: int
    evictions: int | None
    refusals: int
    preemptions: int
    steps: int
    operations: int
    seconds: float
    violation: Violation | None = None
    failed_at: int | None = None
    recent: tuple[Operation, ...] = ()
    recorded: tuple[Operation, ...] = ()

    @property
    def operations_per_second(self) -> float:
        return self.operations / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        names = (
            "requests dropped prompt_tokens hit_tokens output_tokens evictions refusals preemptions steps operations"
        )
        figures: dict[str, Any] = {name: getattr(self, name) for name in names.split()}
        figures["seconds"] = round(self.seconds, 3)
        figures["operations_per_second"] = round(self.operations_per_second)
        figures["violation"] = str(self.violation) if self.violation is not None else None
        return figures


Progress = Callable[[int, int, int], object]
"""(requests done or dropped, requests in all, operations)."""

_PROGRESS_EVERY = 4096
_DRAIN_TOKENS = 1 << 24
"""Slots of the largest pool that is drained by a request for all of it: one step shows them as Python integers."""


def run_trace(
    requests: Sequence[Request],
    target: Target,
    *,
    checks: bool = True,
    outside: bool = False,
    max_output: int = 64,
    concurrency: int = 32,
    chunk: int = 2048,
    overlap: int = 1,
    limit: int | None = None,
    progress: Progress | None = None,
    record_upto: int | None = None,
) -> TraceReport:
    """Run `requests` (the first `limit` of them) through a fresh `target`; ends at the first violation.

    checks: all properties, with a Session; off: the target alone, for its own speed. outside: judge from the outside
    only. max_output, chunk: tokens. concurrency: requests alive at a time. overlap: steps in flight; 1 where the target
    has no OVERLAP. progress: called every 4,096 operations and at the end.

    record_upto: keep every operation up to and including this index in `recorded`, and stop there. Otherwise memory
    does not grow with operations (the judge keeps each distinct block of tokens once), so to write a counterexample,
    run again on a fresh target with record_upto=failed_at: the same operations come again.

    The schedule costs O(what an operation touches), and so do the checks: comparisons of the whole state, O(pool +
    tables), are made once in `num_blocks / 4` operations (at least 32), and at refusals.

    Raises Stalled if the target refuses what must fit and no check noticed; what the target raises, with checks off.
    """
    if limit is not None:
        requests = requests[:limit]
    if Capability.OVERLAP not in target.capabilities:
        overlap = 1
    driver = _Checked(target, outside) if checks else Bare(target)
    schedule = Schedule(
        requests, driver.hit_tokens, max_output=max_output, concurrency=concurrency, chunk=chunk, overlap=overlap
    )
    recent: deque[Operation] = deque(maxlen=RECENT if record_upto is None else None)
    stop = -1 if record_upto is None else record_upto + 1
    total = len(requests)
    count = 0
    drained: list[Operation] = []
    violation: Violation | None = None
    failed_at: int | None = None
    evictions: int | None = None
    apply, following, remember = driver.apply, schedule.next, recent.append
    started = time.perf_counter()
    try:
        operation = following(None)
        while operation is not None and count != stop:
            remember(operation)
            outcome = apply(operation)
            count += 1
            if progress is not None and not count % _PROGRESS_EVERY:
                progress(schedule.requests + schedule.dropped, total, count)
            operation = following(outcome)
        evictions = driver.evictions()
        if operation is None:
            driver.drain(drained.append)
    except Violation as caught:
        violation, failed_at = caught, count + max(0, len(drained) - 1)
        if evictions is None:
            evictions = driver.evictions()
    seconds = time.perf_counter() - started
    recent.extend(drained)
    if progress is not None:
        progress(schedule.requests + schedule.dropped, total, count)
    return TraceReport(
        requests=schedule.requests,
        dropped=schedule.dropped,
        prompt_tokens=schedule.prompt_tokens,
        hit_tokens=schedule.hit_tokens,
        output_tokens=schedule.output_tokens,
        evictions=evictions,
        refusals=schedule.refusals,
        preemptions=schedule.preemptions,
        steps=schedule.steps,
        operations=count,
        seconds=seconds,
        violation=violation,
        failed_at=failed_at,
        recent=tuple(islice(recent, max(0, len(recent) - RECENT), None)) if violation is not None else (),
        recorded=tuple(recent) if record_upto is not None else (),
    )


class _Checked:
    """A Session beside the target."""

    def __init__(self, target: Target, outside: bool) -> None:
        # Whole-state comparisons are O(pool): so rare that they cost O(1) an operation.
        pool = target.policy.num_blocks
        every = max(32, pool // 4)
        self.session = Session(
            target,
            outside=outside,
            walk_every=every,
            contents_every=8 * every,
            check_every=8 * every,
        )
        self.apply: Callable[[Operation], Outcome] = self.session.apply

    def hit_tokens(self, request: str) -> int:
        return self.session.judge.sequences[request].computed

    def evictions(self) -> int | None:
        return self.session.judge.events.get("evicted", 0)

    def drain(self, remember: Callable[[Operation], Any]) -> None:
        session = self.session
        judge = session.judge
        if judge.blocks.capacity * judge.policy.block_size <= _DRAIN_TOKENS:

            def act(operation: Operation) -> Outcome:
                remember(operation)
                return session.apply(operation)

            session.drain(act)
            return
        session.walk()
        held = judge.blocks.capacity - judge.blocks.available
        if held:
            raise Release(f"all requests have finished, and {held} blocks are still held")
