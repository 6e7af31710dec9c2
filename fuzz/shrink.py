"""The shrinker: a short counterexample for the same property.

Four passes, repeated until none helps or the deadline is reached:

1. delta debugging over operations, and over whole requests (Zeller and Hildebrandt, "Simplifying and isolating
   failure-inducing input", 2002): replay is tolerant, so any subset of a list is a list;
2. values: fewer tokens, plainer tokens, fewer entries in a step, no match; one namespace or token for another in all
   operations at once, since equality is what matters in them; two operations made into one;
3. the configuration: fewer blocks, smaller blocks (with all lengths scaled down alike), the full hash, the defaults;
4. a re-search: short random episodes on pools of at most 5 blocks for the same property. Delta debugging alone is stuck
   in
   the story that it was given; a fresh short story is often shorter still.

"Same" means the same property, charged by the same rules. Every candidate is a strict run: everything is compared after
every operation, so that the last operation is the one at fault. What the drain phase did to show a fault is part of the
list by then; it is drained again only where blocks that never come back are the fault itself.

To ask whether two counterexamples are of one bug, `slipped` does the first three with any property accepted.

This room may not know: any core, Hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from properties.operations import (
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Fork,
    Free,
    Lookup,
    Operation,
    Truncate,
)
from properties.session import Session
from properties.target import TargetFactory
from reference import Release, Violation

from .counterexample import Counterexample, names
from .run import Run, perform
from .walk import Limits, Walk

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

    `progress` is called with (operations left, replays). `perform` runs a candidate, like `fuzz.run.perform`. If the
    counterexample does not fail when judged strictly, it comes back unchanged; if it fails sooner, with another
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
            configuration, self.perform(configuration, lambda session: _filled(operations, session))
        )

    def take(self, configuration: Configuration, run: Run) -> bool:
        violation = run.violation
        if violation is None or (violation.id != self.original.property_id and not self.any_property):
            return False
        if run.session is not None:  # there is none of a run that took its process along
            policy = run.session.judge.policy  # where the core cannot have what was asked for, it says what it has
            configuration = replace(
                configuration, block_size=policy.block_size, reuse=policy.reuse, caching=policy.caching
            )
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
            self.try_(self.configuration, _with_own_names(self.operations))
            self.without_requests()
            self.without_forks()
            self.fewer_operations()
            self.merge()
            self.plainer_everywhere()
            self.plainer_values()
            self.plainer_configuration()
            if self.size() == before:
                break
        self.rename()

    def size(self) -> tuple[int, ...]:
        return _size(self.configuration, self.operations)

    def without_requests(self) -> None:
        for request in names(self.operations):
            candidate = list(_without(self.operations, request))
            if len(candidate) < len(self.operations):
                self.try_filled(self.configuration, candidate)

    def without_forks(self) -> None:
        """A fork's child and its parent made one."""
        for fork in [operation for operation in self.operations if isinstance(operation, Fork)]:
            self.try_filled(self.configuration, list(_as_one(self.operations, fork)))

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
            for plainer in _plainer(self.operations[at]):
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
            changed = any(self.try_(self.configuration, candidate) for candidate in _merged(self.operations))

    def plainer_everywhere(self) -> None:
        """One namespace for another, one token for another, a shorter common beginning, in all operations at once."""
        spaces = {space: None for operation in self.operations if (space := getattr(operation, "namespace", ()))}
        for space in spaces:
            self.try_(
                self.configuration,
                [
                    replace(operation, namespace=())
                    if isinstance(operation, (Lookup, Allocate)) and operation.namespace == space
                    else operation
                    for operation in self.operations
                ],
            )
        for count in sorted({self.configuration.block_size, 1}, reverse=True):
            size = None
            while size != self.size():  # a list without prompts stays the same
                size = self.size()
                shorter = [_without_beginning(operation, count) for operation in self.operations]
                for fewer in range(4):  # blocks that the shorter prompts do not need may be what made the pool full
                    blocks = self.configuration.num_blocks - fewer
                    if blocks > 0 and self.try_filled(replace(self.configuration, num_blocks=blocks), shorter):
                        break
        for token in sorted(_tokens(self.operations), reverse=True):
            for plainer in range(min(token, 3)):
                if self.try_(
                    self.configuration, [_with_token(operation, token, plainer) for operation in self.operations]
                ):
                    break

    def plainer_configuration(self) -> None:
        changed = True
        while changed:
            changed = False
            for configuration in _plainer_configurations(self.configuration):
                old = self.configuration
                changed = self.try_(configuration, self.operations.copy())
                if configuration.block_size * configuration.num_blocks < old.block_size * old.num_blocks:
                    for up in (False, True):
                        changed = changed or self.try_filled(
                            configuration, _scaled(self.operations, old, configuration, up)
                        )
                changed = changed and self.configuration != old  # a core may not take what it is offered
                if changed:
                    break

    def rename(self) -> None:
        """Requests a, b, c and steps 1, 2, 3 in the order of their appearance."""
        requests = {old: chr(ord("a") + index) for index, old in enumerate(names(self.operations)) if index < 26}
        steps: dict[int, int] = {}
        for operation in self.operations:
            if isinstance(operation, (Dispatch, Complete)):
                steps.setdefault(operation.step, len(steps) + 1)
        self.try_(self.configuration, [_renamed(operation, requests, steps) for operation in self.operations])

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


def _size(configuration: Configuration, operations: Sequence[Operation]) -> tuple[int, ...]:
    """What "shorter" means: operations, then tokens and entries, then the pool."""
    tokens = sum(
        len(getattr(operation, "tokens", ())) + len(getattr(operation, "work", ())) for operation in operations
    )
    values = sum(
        sum(token for token in getattr(operation, "tokens", ()) if type(token) is int and token > 0)
        + len(getattr(operation, "namespace", ()))
        + (getattr(operation, "match", None) is not None)
        for operation in operations
    )
    return (
        len(operations),
        tokens,
        configuration.num_blocks + configuration.block_size,
        values,
        128 - configuration.hash_bits,
        configuration.reuse != "last_block",
    )


def _without(operations: Sequence[Operation], request: str) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, Dispatch):
            work = tuple(entry for entry in operation.work if entry[0] != request)
            if work or not operation.work:
                yield replace(operation, work=work)
        elif getattr(operation, "request", None) != request and getattr(operation, "child", None) != request:
            yield operation


def _filled(operations: Sequence[Operation], session: Session) -> Iterator[Operation]:
    lines = session.judge.sequences
    for operation in operations:
        if isinstance(operation, Dispatch):
            work = [
                (name, len(lines[name].tokens) - lines[name].scheduled) if name in lines else (name, count)
                for name, count in operation.work
            ]
            operation = replace(operation, work=tuple((name, count) for name, count in work if count))
        yield operation


def _plainer(operation: Operation) -> Iterator[Operation]:
    """Simpler operations of the same kind, simplest first."""
    if isinstance(operation, Dispatch):
        for index in range(len(operation.work)):
            if len(operation.work) > 1:
                yield replace(operation, work=operation.work[:index] + operation.work[index + 1 :])
            request, count = operation.work[index]
            for fewer in sorted({1, count // 2, count - 1}):
                if 0 < fewer < count:
                    changed = (request, fewer)
                    yield replace(operation, work=(*operation.work[:index], changed, *operation.work[index + 1 :]))
    if isinstance(operation, (Lookup, Allocate)) and operation.namespace:
        yield replace(operation, namespace=())
    if isinstance(operation, (Lookup, Allocate)) and operation.match is not None:
        yield replace(operation, match=None)
    if isinstance(operation, (Lookup, Allocate, Append)):
        tokens = tuple(operation.tokens)
        for shorter in sorted({1, len(tokens) // 2, len(tokens) - 1}):
            if 0 < shorter < len(tokens):
                yield replace(operation, tokens=tokens[:shorter])
        if any(type(token) is int and token > 0 for token in tokens):
            yield replace(operation, tokens=tuple(0 if type(token) is int and token > 0 else token for token in tokens))
            for index, token in enumerate(tokens):
                if type(token) is int and token > 0:
                    yield replace(operation, tokens=(*tokens[:index], 0, *tokens[index + 1 :]))
                    if token > 1:
                        yield replace(operation, tokens=(*tokens[:index], 1, *tokens[index + 1 :]))
    if isinstance(operation, Truncate) and operation.length > 0:
        yield replace(operation, length=operation.length - 1)


def _plainer_configurations(configuration: Configuration) -> Iterator[Configuration]:
    simpler: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("hash_bits", (128, 0)),
        ("reuse", ("last_block",)),
        ("caching", (True,)),
        ("num_blocks", (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)),
        ("block_size", (1, 2, 3, 4)),
    )
    for name, values in simpler:
        present = getattr(configuration, name)
        for value in values:
            if value == present:
                break
            if type(value) is int and name != "hash_bits" and value > present:
                break
            yield replace(configuration, **{name: value})


def _merged(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Lists with one operation less (or two), in which another does both their work."""
    for later, second in enumerate(operations):
        if isinstance(second, Append):
            for earlier in range(later - 1, -1, -1):
                first = operations[earlier]
                if isinstance(first, (Allocate, Append)) and first.request == second.request:
                    longer = replace(first, tokens=(*first.tokens, *second.tokens))
                    yield [*operations[:earlier], longer, *operations[earlier + 1 : later], *operations[later + 1 :]]
                    break
        elif isinstance(second, Dispatch) and len(second.work) == 1:
            request, count = second.work[0]
            for earlier in range(later - 1, -1, -1):
                first = operations[earlier]
                if isinstance(first, Dispatch) and request in dict(first.work):
                    work = tuple((name, own + count if name == request else own) for name, own in first.work)
                    rest = [
                        operation
                        for operation in operations[earlier + 1 :]
                        if operation is not second
                        and not (isinstance(operation, Complete) and operation.step == second.step)
                    ]
                    yield [*operations[:earlier], Dispatch(first.step, work), *rest]
                    break


def _as_one(operations: Sequence[Operation], fork: Fork) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, Dispatch):
            work = {fork.request if name == fork.child else name: count for name, count in operation.work}
            yield replace(operation, work=tuple(work.items()))
        elif isinstance(operation, Fork):
            names = [fork.request if name == fork.child else name for name in (operation.request, operation.child)]
            if names[0] != names[1]:
                yield Fork(*names)
        elif isinstance(operation, (Allocate, Append, Fill, Truncate, Free)) and operation.request == fork.child:
            yield replace(operation, request=fork.request)
        else:
            yield operation


def _with_own_names(operations: Sequence[Operation]) -> list[Operation]:
    """No name twice: where one was used again, the operations that freed it were needed only for that."""
    current: dict[str, str] = {}

    def new(name: str) -> str:
        current[name] = f"{name}/{len(current)}" if name not in current else f"{current[name]}'"
        return current[name]

    renamed: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Allocate):
            operation = replace(operation, request=new(operation.request))
        elif isinstance(operation, Fork):
            operation = Fork(current.get(operation.request, operation.request), new(operation.child))
        elif isinstance(operation, Dispatch):
            operation = replace(operation, work=tuple((current.get(name, name), n) for name, n in operation.work))
        elif isinstance(operation, (Append, Fill, Truncate, Free)):
            operation = replace(operation, request=current.get(operation.request, operation.request))
        renamed.append(operation)
    return renamed


def _without_beginning(operation: Operation, count: int) -> Operation:
    if isinstance(operation, (Lookup, Allocate)):
        return replace(operation, tokens=tuple(operation.tokens)[count:] or tuple(operation.tokens)[-1:])
    return replace(operation, length=operation.length - count) if isinstance(operation, Truncate) else operation


def _tokens(operations: Sequence[Operation]) -> set[int]:
    return {
        token
        for operation in operations
        if len(tokens := getattr(operation, "tokens", ())) <= 256
        for token in tokens
        if type(token) is int and token > 0
    }


def _with_token(operation: Operation, token: int, plainer: int) -> Operation:
    if not isinstance(operation, (Lookup, Allocate, Append, Fill)) or len(operation.tokens) > 256:
        return operation
    return replace(operation, tokens=tuple(plainer if own == token else own for own in operation.tokens))


def _scaled(operations: Sequence[Operation], old: Configuration, new: Configuration, up: bool) -> list[Operation]:
    """All lengths scaled from the old block size to the new, rounded up or down, and cut to what the new pool can
    hold.
    """

    def scale(count: int) -> int:
        scaled = -(-count * new.block_size // old.block_size) if up else count * new.block_size // old.block_size
        return max(scaled, min(count, 1))

    room = new.num_blocks * new.block_size
    scaled: list[Operation] = []
    for operation in operations:
        if isinstance(operation, (Lookup, Allocate, Append)):
            operation = replace(operation, tokens=tuple(operation.tokens)[: min(scale(len(operation.tokens)), room)])
        elif isinstance(operation, Dispatch):
            operation = Dispatch(operation.step, tuple((name, min(scale(n), room)) for name, n in operation.work))
        elif isinstance(operation, Truncate):
            operation = Truncate(operation.request, scale(operation.length))
        scaled.append(operation)
    return scaled


def _renamed(operation: Operation, requests: dict[str, str], steps: dict[int, int]) -> Operation:
    if isinstance(operation, Dispatch):
        work = tuple((requests.get(request, request), count) for request, count in operation.work)
        return Dispatch(steps[operation.step], work)
    if isinstance(operation, Complete):
        return Complete(steps[operation.step])
    changes = {
        name: requests.get(value, value)
        for name in ("request", "child")
        if (value := getattr(operation, name, None)) is not None
    }
    if isinstance(operation, Fork):
        return Fork(changes["request"], changes["child"])
    return replace(operation, **changes) if changes else operation
