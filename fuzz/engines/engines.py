"""Engines: what turns a seed and a time budget into checked operations and, with luck, a counterexample.

Each engine adds to a `Tally` as it goes and returns at the first violation or at its deadline; the campaign decides
what to do next. An engine's work is a function of its seed; the clock only says when to stop.

This room may not know: files, terminals, any core. Hypothesis is imported only when its engine is asked for.

Also imports: hypothesis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from properties.ledger import Ledger
from properties.operations import Configuration, Operation
from properties.target import TargetFactory
from reference import Violation

from ..runs.counterexample import Counterexample, versions
from ..runs.perform import Judging, perform
from ..runs.state_coverage import SAMPLED, Coverage
from ..traces.trace import Progress, Request, TraceReport, cannot_trace, run_trace
from .walk import Limits, Walk

__all__ = ["Clock", "Tally", "hypothesis", "kernels", "stored", "swarm", "trace"]

Clock = Callable[[], float]


@dataclass
class Tally:
    """What has been done so far, over all engines of a campaign. Plain counts.

    coverage: which blocks each kind of operation met, of one episode in `SAMPLED`.
    """

    operations: int = 0
    episodes: int = 0
    by_engine: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    coverage: Coverage = field(default_factory=Coverage)

    def to_json(self) -> dict[str, Any]:
        """What was done, as a summary says it: how much, by which engine at what rate, and operations by kind."""
        return {
            "operations": self.operations,
            "episodes": self.episodes,
            "engines": {
                engine: {
                    "operations": count,
                    "seconds": round(self.seconds.get(engine, 0.0), 3),
                    "operations_per_second": round(count / self.seconds[engine]) if self.seconds.get(engine) else None,
                }
                for engine, count in self.by_engine.items()
            },
            "kinds": dict(sorted(self.kinds.items())),
            "refused": dict(sorted(self.refused.items())),
            "skipped": dict(sorted(self.skipped.items())),
        }

    def add(
        self,
        engine: str,
        operations: int,
        kinds: Mapping[str, int],
        refused: Mapping[str, int],
        skipped: Mapping[str, int],
        events: Mapping[str, int],
        episodes: int = 1,
    ) -> None:
        self.operations += operations
        self.episodes += episodes
        self.by_engine[engine] = self.by_engine.get(engine, 0) + operations
        for own, new in ((self.kinds, kinds), (self.refused, refused), (self.skipped, skipped)):
            for name, count in new.items():
                own[name] = own.get(name, 0) + count
        self.ledger.add(events)

    def merge(self, other: Tally) -> None:
        """Add what another process has counted. O(counts)."""
        self.operations += other.operations
        self.episodes += other.episodes
        for own, new in (
            (self.by_engine, other.by_engine),
            (self.kinds, other.kinds),
            (self.refused, other.refused),
            (self.skipped, other.skipped),
        ):
            for name, count in new.items():
                own[name] = own.get(name, 0) + count
        for engine, seconds in other.seconds.items():
            self.seconds[engine] = self.seconds.get(engine, 0.0) + seconds
        self.ledger.add(other.ledger.counts)
        self.coverage.merge(other.coverage)


def swarm(
    factory: TargetFactory,
    target: str,
    seed: str,
    judging: Judging,
    tally: Tally,
    *,
    clock: Clock,
    deadline: float,
    first: int = 0,
    episodes: int | None = None,
    progress: Callable[[], None] | None = None,
    limits: Limits = Limits(),
    engine: str = "walk",
    begin: Callable[[int], None] | None = None,
) -> tuple[Counterexample | None, int]:
    """Episodes `first`, `first` + 1, ... of `seed` until `deadline` (or so many `episodes`).

    `begin` is called with the number of each before it is run. Returns (the counterexample or None, the number of the
    next episode).
    """
    capabilities = factory(Configuration()).capabilities
    if judging.kernels:
        capabilities = judging.session(factory, Configuration()).capabilities
    number = first
    last = None if episodes is None else first + episodes
    while clock() < deadline and (last is None or number < last):
        if begin is not None:
            begin(number)
        walk = Walk(f"{seed}/{number}", capabilities, limits)
        watch = tally.coverage.watch() if number % SAMPLED == 0 else None
        run = perform(factory, walk.configuration, walk.operations, judging, watch=watch)
        session = run.session
        tally.add(engine, session.applied, session.kinds, session.refused, session.skipped, run.events)
        number += 1
        if run.violation is not None:
            where = Counterexample(
                walk.configuration, (), target, judging=judging, engine=engine, seed=f"{seed}/{number - 1}"
            )
            return _found(where, run.violation, run.operations, run.at), number
        if progress is not None and number % 16 == 0:
            progress()
    return None, number


def kernels(
    factory: TargetFactory,
    target: str,
    seed: str,
    judging: Judging,
    tally: Tally,
    *,
    clock: Clock,
    deadline: float,
    first: int = 0,
    episodes: int | None = None,
    progress: Callable[[], None] | None = None,
    begin: Callable[[int], None] | None = None,
) -> tuple[Counterexample | None, int]:
    """The walk over small pools, with every step run on kernels (`judging.kernels`). Returns what `swarm` does."""
    limits = Limits(max_blocks=24, max_block_size=8, long_episodes=False)
    return swarm(
        factory,
        target,
        f"{seed}/kernels",
        judging,
        tally,
        clock=clock,
        deadline=deadline,
        first=first,
        episodes=episodes,
        progress=progress,
        limits=limits,
        engine="kernels",
        begin=begin,
    )


_CHUNK = 40
"""Examples of one Hypothesis run: about a second, so that a turn ends on time."""


def hypothesis(
    factory: TargetFactory,
    target: str,
    seed: str,
    judging: Judging,
    tally: Tally,
    *,
    clock: Clock,
    deadline: float,
    first: int = 0,
    episodes: int | None = None,
    progress: Callable[[], None] | None = None,
    profile: str = "nightly",
    begin: Callable[[int], None] | None = None,
    database: Any = None,
) -> tuple[Counterexample | None, int]:
    """Chunks of Hypothesis examples, each seeded by `seed` and its number, until `deadline` (or so many `episodes`, as
    chunks are counted here); at least one. `begin` is called with the number of each before it is run.

    Hypothesis's lengths are mixed as long episodes are: 50 steps mostly, 200 now and then; always 200 under the soak
    profile. It only generates; what it finds is shrunk as a list of operations, and kept in `database`, one of
    Hypothesis's, for `stored`. Returns (the counterexample or None, the number of the next chunk)."""
    from hypothesis import Phase, settings

    from properties.machines.profiles import settings_for

    number = first
    last = None if episodes is None else first + episodes
    # The import alone may have used the turn up.
    while number == first or (clock() < deadline and (last is None or number < last)):
        if begin is not None:
            begin(number)
        steps = settings_for("soak" if number % 8 == 7 else profile).stateful_step_count
        chosen = settings(
            settings_for("nightly"),
            max_examples=_CHUNK * 50 // steps,
            stateful_step_count=steps,
            phases=(Phase.generate,),
            database=database,
        )
        chunk = int.from_bytes(hashlib.sha256(f"{seed}/hypothesis/{number}".encode()).digest()[:4], "big")
        found = _chunk(factory, target, f"{seed}/hypothesis/{number}", judging, tally, chosen, chunk)
        number += 1
        if progress is not None:
            progress()
        if found is not None:
            return found, number
    return None, number


def stored(factory: TargetFactory, target: str, judging: Judging, tally: Tally, database: Any) -> Counterexample | None:
    """Examples that are in Hypothesis's `database`, whoever put them there: ten, or up to the first that fails. Nothing
    is generated. What does not fail any more, Hypothesis deletes."""
    from unittest import SkipTest

    from hypothesis import Phase, settings

    from properties.machines.allocator import SHARD
    from properties.machines.profiles import settings_for

    chosen = settings(settings_for("nightly"), max_examples=SHARD, phases=(Phase.reuse,), database=database)
    try:
        return _chunk(factory, target, "database", judging, tally, chosen, 0)
    except SkipTest:  # how Hypothesis says that there was none
        return None


def _chunk(
    factory: TargetFactory, target: str, seed: str, judging: Judging, tally: Tally, chosen: Any, number: int
) -> Counterexample | None:
    """One run of Hypothesis under the settings `chosen`. seed: what a counterexample says of where it is from."""
    from properties.machines.allocator import run_machine

    report = run_machine(factory, chosen, number, outside=judging.outside, exact=judging.exact)
    tally.add(
        "hypothesis",
        report.operations,
        report.kinds,
        report.refused,
        report.skipped,
        report.events,
        report.examples,
    )
    if report.violation is None:
        return None
    assert report.configuration is not None
    # Once more, for what the drain phase did if it was that which showed the fault.
    run = perform(factory, report.configuration, report.counterexample, judging)
    where = Counterexample(report.configuration, (), target, judging=judging, engine="hypothesis", seed=seed)
    at = run.at if run.violation is not None else None
    return _found(where, run.violation or report.violation, run.operations, at)


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
    """A request trace through one target, every property on. `options` are those of `run_trace`. O(the trace).

    What breaks is run a second time, since the first does not keep its operations. Where the target's policy does not
    go with the trace's scheduler, nothing is run, and the tally says why.
    """
    core = factory(configuration)
    if reason := cannot_trace(core.policy):
        tally.skipped[f"of the request trace: {reason}"] = len(requests)
        return None, None
    report = run_trace(requests, core, outside=judging.outside, progress=progress, **options)
    tally.add("trace", report.operations, {}, {}, {}, {})
    if report.violation is None:
        return None, report
    assert report.failed_at is not None
    again = run_trace(
        requests, factory(configuration), outside=judging.outside, record_upto=report.failed_at, **options
    )
    where = Counterexample(configuration, (), target, judging=judging, engine="trace", seed="trace")
    return _found(where, report.violation, again.recorded, report.failed_at), report


def _found(
    where: Counterexample, violation: Violation, operations: Sequence[Operation], at: int | None
) -> Counterexample:
    """`where` it was found, with what."""
    return replace(
        where,
        operations=tuple(operations),
        property_id=violation.id,
        message=violation.message,
        at=at,
        versions=versions(),
    )
