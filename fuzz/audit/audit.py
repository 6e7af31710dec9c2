"""The audit: plants every bug of the zoo in kvcore, lets each engine hunt for it, and says what killed it and how well.

A *trial* is one bug, one engine and one seed, in a worker process. It gives the operations until the first violation,
the property that it breaks, and the length of the counterexample after shrinking. A trial is a function of bug, engine,
seed and limit. The limit counts operations, not seconds, so that two audits give the same table, except for times. Each
trial is appended to a file as it ends, and an interrupted audit goes on from there.

The canary is a fault so rare that about one short run in a hundred meets it. An audit that does not report it has lost
findings somewhere between engine and table. It then says that the harness failed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from properties.target import TargetFactory

from ..engines.bench import Bench, first_failure
from ..engines.engine import Assignment
from ..engines.registry import audited, engine_of
from ..engines.swarm import WalkEngine
from ..engines.tally import Tally
from ..findings.shrink import shrink
from ..runs.counterexample import read, write
from ..runs.perform import perform
from ..runs.processes import follow_parent
from ..runs.values import Counterexample, Judging, versions
from ..zoo import Bug, canary, find

__all__ = ["CANARY_SEEDS", "Audit", "Plan", "Row", "Trial", "audit"]

REGRESSIONS = Path(__file__).parents[1] / "regressions"

CANARY_SEEDS = 400
"""Short runs of the canary, one episode each; about one in a hundred must meet it."""

_EPISODES = 300
"""The shrinker's search ends after so many episodes without success."""


@dataclass(frozen=True)
class Plan:
    """What to do. limit, cases: operations, or attention cases, after which a hunt gives up. engines: of operations;
    kernel bugs are hunted by attention cases, and what takes hours to find is only replayed."""

    bugs: tuple[str, ...]
    out: Path
    engines: tuple[str, ...] = field(default_factory=audited)
    seeds: tuple[str, ...] = ("1", "2", "3")
    limit: int = 200_000
    cases: int = 200
    workers: int = 1
    outside: bool = False
    canary: bool = True


@dataclass(frozen=True)
class Trial:
    """How one hunt went. operations: until the first violation, or all that were done. met: the property when found;
    property_id, length: after shrinking. length_found: operations of the unshrunk counterexample. file: the shrunk
    one, in the audit's folder; "" if not found. seconds, shrink_seconds: of one core."""

    bug: str
    engine: str
    seed: str
    key: str
    operations: int
    seconds: float
    met: str = ""
    property_id: str = ""
    length_found: int = 0
    length: int = 0
    shrink_seconds: float = 0.0
    file: str = ""

    @property
    def found(self) -> bool:
        return bool(self.met)


def trial_key(bug: Bug, engine: str, seed: str, plan: Plan) -> str:
    """Digest of everything that a trial's outcome depends on besides the harness itself. O(change)."""
    text = json.dumps(
        [
            bug.id,
            [asdict(change) for change in bug.changes],
            engine,
            seed,
            plan.cases if engine == "cases" else plan.limit,
            plan.outside,
            versions(),
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- in a worker -----------------------------------------------------------------------------------------------------


def hunt(bug_id: str, engine: str, seed: str, plan: Plan) -> Trial:
    """One trial. Raises DoesNotApply or InvalidBug if the zoo is at fault. O(plan.limit operations)."""
    bug = find(bug_id)
    key = trial_key(bug, engine, seed, plan)
    if engine == "cases":
        return _hunt_cases(bug, seed, key, plan)
    if engine == "regression":
        return _replay(bug, seed, key, plan)
    factory = bug.factory()
    tally = Tally()
    judging = Judging(outside=plan.outside, exact=not plan.outside)
    began = perf_counter()
    found = _search(factory, bug, engine, seed, judging, plan.limit, tally)
    seconds = perf_counter() - began
    trial = Trial(bug_id, engine, seed, key, tally.operations, seconds)
    if found is None:
        return trial
    began = perf_counter()
    small = shrink(found, factory, clock=lambda: 0.0, seconds=1.0, episodes=_EPISODES).counterexample
    file = f"{bug_id}-{engine}-{seed}.json"
    write(small, plan.out / "counterexamples" / file)
    return replace(
        trial,
        met=found.property_id or "",
        property_id=small.property_id or "",
        length_found=len(found.operations),
        length=len(small.operations),
        shrink_seconds=perf_counter() - began,
        file=file,
    )


def _search(
    factory: TargetFactory, bug: Bug, engine: str, seed: str, judging: Judging, limit: int, tally: Tally
) -> Counterexample | None:
    """Hunts until the first violation or `limit` operations. Time does not count: the clock stands still."""
    hunter, number = engine_of(engine), 0
    assignment = Assignment(
        factory,
        f"fuzz.zoo:{bug.id}",
        seed,
        judging,
        tally,
        clock=lambda: 0.0,
        deadline=1.0,
        count=hunter.audited or hunter.units,
    )
    while tally.operations < limit:
        found, number = hunter.hunt(replace(assignment, first=number))
        if found is not None:
            return found
    return None


_bench = functools.cache(Bench)
"""One for all trials of this process: to import torch takes longer than most of them."""


def _hunt_cases(bug: Bug, seed: str, key: str, plan: Plan) -> Trial:
    began = perf_counter()
    found, tried = first_failure(_bench(), f"fuzz.zoo:{bug.id}", seed, plan.cases)
    trial = Trial(bug.id, "cases", seed, key, tried, perf_counter() - began)
    if found is None:
        return trial
    file = f"{bug.id}-cases-{seed}.json"
    (plan.out / "counterexamples").mkdir(parents=True, exist_ok=True)
    data = {"property": found.property_id, "message": found.message, "case": json.loads(found.case.to_json())}
    (plan.out / "counterexamples" / file).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return replace(trial, met=found.property_id, property_id=found.property_id, file=file)


def _replay(bug: Bug, seed: str, key: str, plan: Plan) -> Trial:
    began = perf_counter()
    path = REGRESSIONS / bug.where
    stored = replace(read(path), target=f"fuzz.zoo:{bug.id}")
    run = perform(bug.factory(), stored.configuration, stored.operations, stored.judging, strict=True)
    trial = Trial(bug.id, "regression", seed, key, len(run.operations), perf_counter() - began)
    if run.violation is None:
        return trial
    write(stored, plan.out / "counterexamples" / path.name)
    length = len(stored.operations)
    return replace(
        trial, met=run.violation.id, property_id=run.violation.id, length_found=length, length=length, file=path.name
    )


def _hunt_canary(numbers: range) -> list[tuple[int, str]]:
    """(seed, property) of the short runs that met the canary."""
    factory = canary().factory()
    met = []
    for number in numbers:
        short = Assignment(
            factory, "canary", f"canary/{number}", Judging(), Tally(), clock=lambda: 0.0, deadline=1.0, count=1
        )
        found, _ = WalkEngine().hunt(short)
        if found is not None:
            met.append((number, found.property_id or ""))
    return met


# ---- in the supervisor -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One bug, over all its trials. Medians are over the trials that found it.

    as_expected: how many trials ended with the property that ought to kill it. length: of the shortest shrunk
    counterexample; lengths: of all. by: the property that most trials ended with.
    """

    bug: Bug
    trials: tuple[Trial, ...]
    outside: bool = False

    @property
    def killed(self) -> bool:
        """By every seed of at least one engine?"""
        engines = {trial.engine for trial in self.trials}
        return any(all(trial.found for trial in self.trials if trial.engine == engine) for engine in engines)

    @property
    def found(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.found)

    @property
    def by(self) -> str:
        named = [trial.property_id for trial in self.found]
        return max(sorted(set(named)), key=named.count) if named else ""

    @property
    def as_expected(self) -> int:
        return sum(trial.property_id == self.bug.expected for trial in self.found)

    @property
    def operations(self) -> float:
        return statistics.median(trial.operations for trial in self.found) if self.found else 0.0

    @property
    def seconds(self) -> float:
        return statistics.median(trial.seconds for trial in self.found) if self.found else 0.0

    @property
    def quickest(self) -> float:
        """Median seconds of the engine that is quicker for this bug."""
        by_engine: dict[str, list[float]] = {}
        for trial in self.found:
            by_engine.setdefault(trial.engine, []).append(trial.seconds)
        return min(map(statistics.median, by_engine.values()), default=0.0)

    @property
    def lengths(self) -> list[int]:
        return sorted(trial.length for trial in self.found if trial.length)

    @property
    def minimum(self) -> int:
        """Operations of the shortest counterexample known, judged like this; 0 if none is."""
        return self.bug.blind_minimum if self.outside else self.bug.minimum

    @property
    def best(self) -> Trial | None:
        """The trial with the shortest counterexample."""
        return min(self.found, key=lambda trial: (trial.length, trial.engine, trial.seed), default=None)

    def to_json(self) -> dict[str, Any]:
        bug = self.bug
        return {
            "id": bug.id,
            "title": bug.title,
            "reference": bug.reference,
            "class": bug.kind,
            "breaks": bug.breaks,
            "expected": bug.expected,
            "minimum": self.minimum or None,
            "killed": self.killed,
            "by": self.by,
            "as_expected": self.as_expected,
            "operations_median": self.operations,
            "seconds_median": round(self.seconds, 3),
            "seconds_quicker_engine": round(self.quickest, 3),
            "seconds_longest": round(max((trial.seconds for trial in self.trials), default=0.0), 3),
            "lengths": self.lengths,
            "trials": [
                {name: value for name, value in asdict(trial).items() if name not in ("bug", "key")}
                for trial in self.trials
            ],
        }


@dataclass
class Audit:
    """All trials of a plan, and what became of the canary."""

    plan: Plan
    rows: list[Row] = field(default_factory=list)
    canary: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def survivors(self) -> list[Row]:
        return [row for row in self.rows if not row.killed]

    @property
    def canary_reported(self) -> bool:
        return not self.plan.canary or any(found in canary().properties for _, found in self.canary)

    def figures(self) -> dict[str, Any]:
        """The totals that an audit is judged by; every trial counts once."""
        trials = [trial for row in self.rows for trial in row.trials]
        found = [trial for trial in trials if trial.found]
        seconds = [trial.seconds for trial in found]
        quickest = [row.quickest for row in self.rows if row.found]
        expected = sum(row.as_expected for row in self.rows)
        measured = [(trial.length, row.minimum) for row in self.rows if row.minimum for trial in row.found]
        near = sum(length <= minimum + 1 for length, minimum in measured)
        return {
            "bugs": len(self.rows),
            "bugs_killed": sum(row.killed for row in self.rows),
            "bugs_only_replayed": sum(row.bug.by == "regression" for row in self.rows),
            "trials": len(trials),
            "trials_found": len(found),
            "expected_property": expected,
            "expected_property_share": round(expected / len(found), 4) if found else None,
            "shrunk_to_minimum_plus_one": near,
            "shrunk_measured": len(measured),
            "shrunk_share": round(near / len(measured), 4) if measured else None,
            "operations_median": statistics.median(trial.operations for trial in found) if found else None,
            "seconds_median": round(statistics.median(seconds), 3) if found else None,
            "seconds_longest": round(max(seconds), 3) if found else None,
            "seconds_quicker_engine_median": round(statistics.median(quickest), 3) if found else None,
            "seconds_quicker_engine_longest": round(max(quickest), 3) if found else None,
            "canary_seeds": CANARY_SEEDS if self.plan.canary else 0,
            "canary_reported": len(self.canary),
        }

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "schema": 1,
            "engines": list(plan.engines),
            "seeds": list(plan.seeds),
            "limit": plan.limit,
            "outside": plan.outside,
            "seconds": round(self.seconds, 1),
            "figures": self.figures(),
            "canary": [{"seed": f"canary/{number}", "property": found} for number, found in self.canary],
            "bugs": [row.to_json() for row in self.rows],
            "versions": versions(),
        }


def audit(
    plan: Plan,
    *,
    resume: bool = False,
    clock: Callable[[], float] = perf_counter,
    progress: Callable[[int, int, Trial], None] | None = None,
) -> Audit:
    """Run every trial of `plan`; with `resume`, those that are not in its folder yet.

    Raises DoesNotApply or InvalidBug before anything runs. A worker that dies (BrokenProcessPool) passes through; what
    was done is kept. `progress` is called with (trials done, trials in all, the last one).
    """
    began = clock()
    bugs = [find(bug_id) for bug_id in plan.bugs]
    for bug in bugs:
        bug.factory()  # a change that does not apply is found now, not after an hour
    wanted = [
        (bug, engine, seed)
        for bug in bugs
        for engine in (plan.engines if bug.by == "walk" else (bug.by,))
        for seed in plan.seeds
    ]
    kept = plan.out / "trials.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not resume:
        kept.unlink(missing_ok=True)
    keys = {trial_key(bug, engine, seed, plan): (bug.id, engine, seed) for bug, engine, seed in wanted}
    done = {trial.key: trial for trial in _stored(kept) if trial.key in keys}
    result = Audit(plan)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(plan.workers, context, follow_parent) as pool, kept.open("a", encoding="utf-8") as file:
        step = -(-CANARY_SEEDS // (2 * plan.workers))
        birds = [
            pool.submit(_hunt_canary, range(first, min(first + step, CANARY_SEEDS)))
            for first in (range(0, CANARY_SEEDS, step) if plan.canary else ())
        ]
        left = [names for key, names in keys.items() if key not in done]
        waiting: set[Future[Trial]] = set()
        try:
            for names in left:
                waiting.add(pool.submit(hunt, *names, plan))
                if len(waiting) > 2 * plan.workers:
                    waiting = _collect(waiting, done, file, len(keys), progress)
            while waiting:
                waiting = _collect(waiting, done, file, len(keys), progress)
            result.canary = sorted(met for bird in birds for met in bird.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    by_bug: dict[str, list[Trial]] = {bug.id: [] for bug in bugs}
    for key in keys:
        by_bug[done[key].bug].append(done[key])
    result.rows = [Row(bug, tuple(by_bug[bug.id]), plan.outside) for bug in bugs]
    result.seconds = clock() - began
    return result


def _stored(path: Path) -> Iterator[Trial]:
    """Trials on disk. A last line that was cut off is skipped."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                yield Trial(**json.loads(line))
            except (ValueError, TypeError):
                continue


def _collect(
    waiting: set[Future[Trial]],
    done: dict[str, Trial],
    file: Any,
    total: int,
    progress: Callable[[int, int, Trial], None] | None,
) -> set[Future[Trial]]:
    finished, left = wait(waiting, return_when=FIRST_COMPLETED)
    for future in finished:
        trial = future.result()
        done[trial.key] = trial
        file.write(json.dumps(asdict(trial)) + "\n")
        file.flush()
        if progress is not None:
            progress(len(done), total, trial)
    return left
