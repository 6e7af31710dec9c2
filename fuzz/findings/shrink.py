"""The shrinker: a short counterexample for the same property.

Four passes, repeated until none helps or the deadline is reached:

1. delta debugging over operations, and over whole requests (Zeller and Hildebrandt, "Simplifying and isolating
   failure-inducing input", 2002): replay is tolerant, so any subset of a list is a list;
2. values: fewer tokens, plainer tokens, fewer entries in a step, no match; one namespace or token for another in all
   operations at once, since equality is what matters in them; two operations made into one;
3. the configuration: fewer blocks, smaller blocks (with all lengths scaled down alike), the full hash, the defaults;
4. a re-search: short random episodes on pools of at most 5 blocks for the same property. Delta debugging alone is stuck
   in the story that it was given; a fresh short story is often shorter still.

Here is the driver: which passes there are, in which order, and what is kept. What a pass tries is in `candidates`; how
an operation becomes simpler is in its record (`properties.operations`).

"Same" means the same property, charged by the same rules. Every candidate is a strict run: everything is compared after
every operation, so that the last operation is the one at fault. What the drain phase did to show a fault is part of the
list by then; it is drained again only where blocks that never come back are the fault itself.

To ask whether two counterexamples are of one bug, `slipped` does the first three with any property accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from properties.operations import Configuration, Operation
from properties.session import Session
from properties.target import TargetFactory
from reference import Release, Violation

from ..engines.walk import Limits, Walk
from ..runs.believe import had
from ..runs.perform import Run, perform
from ..runs.values import Counterexample, names
from . import candidates

__all__ = ["Shrunk", "shrink", "slipped"]

Clock = Callable[[], float]


@dataclass(frozen=True)
class Shrunk:
    """The result. `replays` counts candidate runs; `finished` is False if the deadline came first."""

    counterexample: Counterexample
    replays: int
    finished: bool


class _OutOfTime(Exception):
    pass


def shrink(
    counterexample: Counterexample,
    factory: TargetFactory,
    *,
    clock: Clock,
    seconds: float = 10.0,
    episodes: int = 1500,
    progress: Callable[[int, int], None] | None = None,
    perform: Callable[..., Run] = perform,
) -> Shrunk:
    """Shrink until nothing helps or `seconds` of `clock` have passed. At most `episodes` fruitless episodes are
    searched.

    `progress` is called with (operations left, replays). `perform` runs a candidate, like `fuzz.runs.perform`'s.
    If the counterexample does not fail when judged strictly, it comes back unchanged; if it fails sooner, with another
    property, that is the one that is kept."""
    strict = perform(
        factory, counterexample.configuration, counterexample.operations, counterexample.judging, strict=True
    )
    if strict.violation is not None:
        counterexample = replace(
            counterexample,
            operations=tuple(strict.operations),
            property_id=strict.violation.id,
            message=strict.violation.message,
            traceback=strict.violation.traceback,
            at=strict.at,
        )
    shrinker = _Shrinker(counterexample, factory, clock, clock() + seconds, progress, run=perform)
    finished = True
    try:
        if shrinker.try_(counterexample.configuration, list(counterexample.operations)):
            if len(shrinker.operations) > _LONG:
                shrinker.search(min(episodes, _GLANCE))
            shrinker.reduce()
            shrinker.search(episodes)
    except _OutOfTime:
        finished = False
    return Shrunk(shrinker.result(), shrinker.replays, finished)


def slipped(
    counterexample: Counterexample, factory: TargetFactory, *, clock: Clock, seconds: float = 2.0
) -> Counterexample:
    """Where a counterexample leads when any violation will do: reduced further, within `seconds` of `clock`, with
    whatever property that ends at. The same one if nothing shorter fails, or it does not fail when judged strictly.

    One fault shows in several properties, and most of its counterexamples lead to the same end."""
    shrinker = _Shrinker(counterexample, factory, clock, clock() + seconds, None, any_property=True)
    try:
        if shrinker.try_(counterexample.configuration, list(counterexample.operations)):
            shrinker.reduce()
    except _OutOfTime:
        pass
    return shrinker.result()


class _Shrinker:
    def __init__(
        self,
        original: Counterexample,
        factory: TargetFactory,
        clock: Clock,
        deadline: float,
        progress: Callable[[int, int], None] | None,
        any_property: bool = False,
        run: Callable[..., Run] = perform,
    ) -> None:
        self.run = run
        self.any_property = any_property
        self.original = original
        self.factory = factory
        self.clock = clock
        self.deadline = deadline
        self.progress = progress
        self.configuration = original.configuration
        self.operations = list(original.operations)
        self.violation: Violation | None = None
        self.at = original.at
        self.replays = 0

    def result(self) -> Counterexample:
        if self.violation is None:
            return self.original
        return replace(
            self.original,
            configuration=self.configuration,
            operations=tuple(self.operations),
            property_id=self.violation.id,
            message=self.violation.message,
            traceback=self.violation.traceback,
            at=self.at,
        )

    # ---- one candidate -----------------------------------------------------------------------------------------------

    def try_(self, configuration: Configuration, operations: list[Operation]) -> bool:
        """Whether this candidate breaks the property; if so, it is the new best."""
        if self.clock() > self.deadline and self.violation is not None:
            raise _OutOfTime
        self.replays += 1
        return self.take(configuration, self.perform(configuration, operations))

    def perform(
        self, configuration: Configuration, operations: list[Operation] | Callable[[Session], Iterator[Operation]]
    ) -> Run:
        drain = self.original.property_id == Release.id
        return self.run(self.factory, configuration, operations, self.original.judging, strict=True, drain=drain)

    def try_filled(self, configuration: Configuration, operations: list[Operation]) -> bool:
        """The same with every step scheduling all that its requests have: what a removed operation had computed for
        others, they compute themselves."""
        return self.try_(configuration, operations) or self.take(
            configuration, self.perform(configuration, lambda session: candidates.filled(operations, session))
        )

    def take(self, configuration: Configuration, run: Run) -> bool:
        violation = run.violation
        if violation is None or (violation.id != self.original.property_id and not self.any_property):
            return False
        if run.session is not None:  # there is none of a run that took its process along
            configuration = had(configuration, run.session.judge.policy)
        self.configuration = configuration
        self.violation, self.at = violation, run.at
        # What was skipped, and what comes after the violation, did nothing.
        self.operations = [
            operation
            for operation, outcome in zip(run.operations, run.outcomes, strict=False)
            if outcome.status != "skipped"
        ] + run.operations[len(run.outcomes) :]
        self.at = len(self.operations) - 1 if run.at < len(run.operations) else len(self.operations)
        if self.progress is not None:
            self.progress(len(self.operations), self.replays)
        return True

    # ---- passes ------------------------------------------------------------------------------------------------------

    def reduce(self) -> None:
        """All deterministic passes, until none helps."""
        while True:
            before = self.size()
            self.try_(self.configuration, candidates.with_own_names(self.operations))
            self.without_requests()
            self.without_forks()
            self.fewer_operations()
            self.merge()
            self.plainer_everywhere()
            self.plainer_values()
            self.plainer_configuration()
            if self.size() == before:
                break
        self.try_(self.configuration, candidates.with_plain_names(self.operations))

    def size(self) -> tuple[int, ...]:
        return candidates.size(self.configuration, self.operations)

    def without_requests(self) -> None:
        for request in names(self.operations):
            candidate = candidates.without_request(self.operations, request)
            if len(candidate) < len(self.operations):
                self.try_filled(self.configuration, candidate)

    def without_forks(self) -> None:
        """A fork's child and its parent made one."""
        for fork in candidates.forks(self.operations):
            self.try_filled(self.configuration, candidates.as_one(self.operations, fork))

    def fewer_operations(self) -> None:
        chunk = max(1, len(self.operations) // 2)
        while True:
            start, removed = 0, False
            while start < len(self.operations):
                candidate = self.operations[:start] + self.operations[start + chunk :]
                attempt = self.try_filled if chunk == 1 else self.try_
                if candidate and attempt(self.configuration, candidate):
                    removed = True
                else:
                    start += chunk
            if chunk > 1:
                chunk //= 2
            elif not removed:
                return

    def plainer_values(self) -> None:
        at = 0
        while at < len(self.operations):
            for plainer in self.operations[at].plainer():
                candidate = self.operations.copy()
                candidate[at] = plainer
                if self.try_(self.configuration, candidate):
                    break
            else:
                at += 1
            at = min(at, len(self.operations))

    def merge(self) -> None:
        """Two steps of a request made into one, an append into the prompt or another append."""
        changed = True
        while changed:
            changed = any(self.try_(self.configuration, candidate) for candidate in candidates.merged(self.operations))

    def plainer_everywhere(self) -> None:
        """One namespace for another, one token for another, a shorter common beginning, in all operations at once."""
        for space in candidates.namespaces(self.operations):
            self.try_(self.configuration, candidates.without_namespace(self.operations, space))
        for count in sorted({self.configuration.block_size, 1}, reverse=True):
            size = None
            while size != self.size():  # a list without prompts stays the same
                size = self.size()
                shorter = [operation.without_beginning(count) for operation in self.operations]
                for fewer in range(4):  # blocks that the shorter prompts do not need may be what made the pool full
                    blocks = self.configuration.num_blocks - fewer
                    if blocks > 0 and self.try_filled(replace(self.configuration, num_blocks=blocks), shorter):
                        break
        for token in sorted(candidates.tokens(self.operations), reverse=True):
            for plainer in range(min(token, 3)):
                candidate = [operation.with_token(token, plainer) for operation in self.operations]
                if self.try_(self.configuration, candidate):
                    break

    def plainer_configuration(self) -> None:
        changed = True
        while changed:
            changed = False
            for configuration in candidates.plainer_configurations(self.configuration):
                old = self.configuration
                changed = self.try_(configuration, self.operations.copy())
                if configuration.block_size * configuration.num_blocks < old.block_size * old.num_blocks:
                    for up in (False, True):
                        changed = changed or self.try_filled(
                            configuration, candidates.scaled(self.operations, old, configuration, up)
                        )
                changed = changed and self.configuration != old  # a core may not take what it is offered
                if changed:
                    break

    def search(self, episodes: int) -> None:
        """Short episodes on small pools, seeded by the counterexample's own seed.

        Ends when `episodes` in a row did not help, or when so many in a row failed and were reduced to nothing shorter
        that another is not likely to be.
        """
        if not episodes:
            return  # not even a target is made: it may be what makes one that takes its process along
        capabilities = self.factory(self.configuration).capabilities
        fruitless = reduced = 0
        number = 0
        while fruitless < episodes and reduced < _ENOUGH and len(self.operations) > 2:
            number += 1
            fruitless += 1
            if self.clock() > self.deadline:
                raise _OutOfTime
            # Mostly of the kinds that the story needs; now and then of any, for a story that does without one of them.
            kinds = frozenset(operation.op for operation in self.operations) if number % 8 else None
            walk = Walk(f"{self.original.seed}/shrink/{number}", capabilities, _SMALL, kinds=kinds)
            if number % 2:
                small = walk.configuration
                walk.configuration = replace(
                    self.configuration,
                    num_blocks=min(small.num_blocks, self.configuration.num_blocks),
                    block_size=min(small.block_size, self.configuration.block_size),
                )
            walk.length = min(walk.length, (2 if number % 4 < 2 else 4) * len(self.operations), 60)
            run = self.perform(walk.configuration, walk.operations)
            self.replays += 1
            if run.violation is None or run.violation.id != self.original.property_id:
                continue
            best = self.configuration, self.operations, self.violation, self.at
            before = self.size()
            self.take(walk.configuration, run)
            try:
                self.reduce()
            except _OutOfTime:
                if self.size() >= before:
                    self.configuration, self.operations, self.violation, self.at = best
                raise
            if self.size() < before:
                fruitless = reduced = 0
            else:
                reduced += 1
                self.configuration, self.operations, self.violation, self.at = best


_LONG, _GLANCE = 80, 200
"""Of a longer counterexample (a request trace's, say) even one pass takes long; so many short episodes are tried first
for a small one of the same property."""

_ENOUGH = 20
"""Failing episodes in a row that reduced to nothing shorter."""

_SMALL = Limits(max_blocks=5, max_block_size=4, long_episodes=False)
