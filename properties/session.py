"""The Session: applies operations, one at a time, to the target and to the judge side by side, and checks everything.

    session = Session(make(configuration))
    for operation in operations:
        session.apply(operation)        # raises a Violation
    session.drain()

For each operation: the judge says which refusal is due; the target acts; refusal and error are compared; the judge
follows what the target chose and accuses it where that is unsound; the laws compare the core's bookkeeping. A violation
is charged to the first property in the order of harm. After a refusal, and at intervals, everything is compared, so
that "a refused operation changes nothing" is checked and not believed.

Replay is tolerant: an operation that is invalid in the state it meets is applied all the same, and both sides must
refuse it with the same error. Only operations that the target cannot do, or that name an unknown step, are skipped and
counted. Nothing here depends on the target's policy: the judge knows it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from reference import Admission, Due, Errors, Judge, Release, Step, Violation
from reference.events import ALLOCATED_WITH_AN_EARLIER_MATCH
from reference.refusals import MATCH_MISMATCH, NO_ROOM, OUT_OF_BLOCKS

from . import boundary
from .coverage import require_possible
from .laws import AtSteps, AtWalks, Bookkeeping, Counting, Growing, Internals, Law, Padding
from .operations import (
    OPERATIONS,
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Dispatch,
    Fill,
    Fork,
    Free,
    Lookup,
    Namespace,
    Operation,
    Reset,
    Tokens,
    Truncate,
    for_every_kind,
)
from .target import Capability, Found, Pad, StepArrays, StepView, Target

__all__ = ["Outcome", "Session", "watched"]


class Outcome(NamedTuple):
    """What became of an operation: "done", "refused" (detail: the error's name) or "skipped" (detail: why)."""

    status: str
    detail: str = ""


_watchers: list[Callable[[Session, Session | None], None]] = []


@contextmanager
def watched(begun: Callable[[Session, Session | None], None]) -> Iterator[None]:
    """While this lasts, `begun` is called with each session of this process that begins, and the session that it is a
    clone of, or None. It may put a method of its own before the session's `apply`: for whoever writes down what a
    process does before it dies. Costs nothing an operation elsewhere."""
    _watchers.append(begun)
    try:
        yield
    finally:
        _watchers.remove(begun)


_DONE = Outcome("done")
_INSIDE = frozenset(
    {Capability.INSPECT, Capability.CONTENTS, Capability.CHECK, Capability.COUNTERS, Capability.FOOTPRINT}
)


class Session:
    """One target, one judge, all properties.

    outside: judge from the outside only, as if the core could not be inspected.
    exact: predict every choice of block, where the target's policy allows it; False leaves safety alone.
    walk_every, contents_every, check_every: operations between comparisons of all counts, of all histories in the
    index, and runs of the core's own check. Every refusal also costs a walk. laws: more observers (the kernels').

    applied: operations done or refused. skipped: reasons and how often. refused: error names and how often.
    kinds: operations applied by kind. changed: blocks whose references or publication the last operation changed.
    step: the step that it dispatched, its copies, its arrays and what makes them larger.
    """

    def __init__(
        self,
        target: Target,
        *,
        outside: bool = False,
        exact: bool = True,
        walk_every: int = 32,
        contents_every: int = 128,
        check_every: int = 256,
        laws: Sequence[Law] = (),
    ) -> None:
        self.target = target
        self.judge = Judge(target.policy, exact=exact)
        self.capabilities = target.capabilities.difference(_INSIDE if outside else (), *(law.excludes for law in laws))
        own = (Bookkeeping(contents_every), Internals(check_every), Counting(walk_every), Growing(), Padding())
        every: tuple[Law, ...] = (*own, *laws)
        self.laws = [law for law in every if law.needs <= self.capabilities]
        require_possible(target.name, self.capabilities, target.policy)
        self.changed: Sequence[int] = ()
        self.step: tuple[Step, Sequence[tuple[int, int]], StepArrays, Pad | None] | None = None
        self.walk_every = walk_every
        self._since_walk = 0
        self.applied = 0
        self.skipped: defaultdict[str, int] = defaultdict(int)
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.kinds: defaultdict[str, int] = defaultdict(int)
        self.steps: dict[int, tuple[Step, Any]] = {}
        self._completed: deque[int] = deque()
        self._last: StepView | Found | None = None
        self._matches: dict[str, tuple[Tokens, Namespace, Any]] = {}
        self._refusals = target.refusals
        self._skips: dict[type, str] = {
            kind: f"no capability {kind.needs.name}"
            for kind in OPERATIONS.values()
            if kind.needs is not None and kind.needs not in self.capabilities
        }
        self._spaces = Capability.NAMESPACES in self.capabilities
        self._batches = Capability.BATCH in self.capabilities
        self._overlaps = Capability.OVERLAP in self.capabilities
        self._refuses = Capability.REFUSES in self.capabilities
        self._fills = Capability.FILL in self.capabilities
        self._matching = Capability.MATCH in self.capabilities
        self._bind()
        for begun in _watchers:
            begun(self, None)

    def _bind(self) -> None:
        self._observers = [law.after for law in self.laws if not isinstance(law, (AtSteps, AtWalks))]
        self._at_steps = [law.after for law in self.laws if isinstance(law, AtSteps)]
        self._apply: dict[type, Callable[[Any], Outcome]] = {
            kind: getattr(self, f"_{name}") for name, kind in OPERATIONS.items()
        }

    def apply(self, operation: Operation) -> Outcome:
        """Apply one operation and check every property. Raises Violation. O(what it touches), and walks at
        intervals.
        """
        kind = type(operation)
        if kind in self._skips:
            return self._skip(self._skips[kind])
        judge = self.judge
        if judge.in_flight and not self._overlaps and kind is not Complete:
            return self._skip("no capability OVERLAP")  # nothing happens while a step is in flight
        self.changed = ()
        self.step = None
        try:
            outcome = self._apply[kind](operation)
            if judge.findings:
                self._charge()
            status = outcome.status
            if status == "skipped":
                return outcome
            self.applied += 1
            self.kinds[operation.op] += 1
            if status == "refused":
                self.refused[outcome.detail] += 1
                self.walk()
                return outcome
            for observe in self._observers:
                observe(self)
            if self.step is not None:
                for observe in self._at_steps:
                    observe(self)
            self._since_walk += 1
            if self._since_walk >= self.walk_every:
                self.walk()
        except Violation:
            raise
        except Exception as error:
            self._blame(error, operation.requests())
            raise
        return outcome

    def around(self, wrap: Callable[[Callable[[Any], Outcome]], Callable[[Any], Outcome]] | None) -> None:
        """From the next operation on, what `wrap` makes of it does each operation; with None, nothing but itself."""
        self._bind()
        if wrap is not None:
            self._apply = {kind: wrap(act) for kind, act in self._apply.items()}

    def clone(self) -> Session:
        """A session in the same state that goes on by itself: target and judge are clones, the counts begin anew.

        Needs CLONE. Left behind are matches of earlier lookups, completed steps (so that completing one twice is
        skipped) and all laws but the session's own. O(state)."""
        other = Session.__new__(Session)
        vars(other).update(vars(self))
        other.target = boundary.cloned(self.target, self.see(self.target.clone))
        other.judge, steps = self.judge.clone()
        other.laws = [law.fresh() for law in self.laws if isinstance(law, (Bookkeeping, Internals))]
        other.changed, other.step = (), None
        other._since_walk = 0
        other.applied = 0
        other.skipped, other.refused, other.kinds = (defaultdict(int) for _ in range(3))
        other.steps = {
            number: (steps[id(step)], self.see(other.target.same_step, handle))
            for number, (step, handle) in self.steps.items()
            if not step.done
        }
        other._completed = deque()
        other._matches = {}
        other._bind()
        for begun in _watchers:
            begun(other, self)
        return other

    def walk(self) -> None:
        """Compare everything there is to compare. O(pool + all tables)."""
        operations, self._since_walk = self._since_walk, 0
        self.judge.walk()
        if self.judge.findings:
            self._charge()
        try:
            for law in self.laws:
                law.walk(self, operations)
        except Violation:
            raise
        except Exception as error:
            self._blame(error)
            raise

    def noticed(self) -> dict[str, int]:
        """What the target has noticed. Raises Crash."""
        return boundary.noticed(self.target, self.see(self.target.noticed))

    def drain(self, apply: Callable[[Operation], Any] | None = None) -> None:
        """The second phase: stop adding, finish everything, and demand that every block is back.

        Then a request for the whole pool must be admitted, and its warm repeat must hit. The operations go through
        `apply` (so that a caller can record them). Raises Violation; RELEASE if a block is not back."""
        act: Callable[[Operation], Any] = apply or self.apply
        judge, blocks = self.judge, self.judge.blocks
        if not self._overlaps:
            self._finish(act)
        for request in list(judge.sequences):
            act(Free(request))
        self._finish(act)
        if blocks.available != blocks.capacity:
            raise Release(f"all is freed and completed, and {blocks.capacity - blocks.available} blocks are still held")
        if Capability.INSPECT in self.capabilities:
            free, cached, active = boundary.counts(self.target, self.see(self.target.counts))
            if free + cached != blocks.capacity or active != blocks.num_blocks - blocks.capacity:
                raise Release(
                    f"all is freed and completed; the core counts {free} free, {cached} cached, {active} active"
                )
        self.walk()
        size = judge.max_tokens
        tokens = tuple(range(_DRAIN, _DRAIN + size)) if size <= 4096 else _long(size)
        step = max(self.steps, default=0) + 1
        for name in ("drain-cold", "drain-warm"):
            act(Allocate(name, tokens))
            left = size - judge.sequences[name].scheduled
            while left:
                act(Dispatch(step, ((name, min(left, _DRAIN_STEP)),)))
                act(Complete(step))
                left -= min(left, _DRAIN_STEP)
                step += 1
            act(Free(name))
        self.walk()

    def _finish(self, act: Callable[[Operation], Any]) -> None:
        for number, (step, _) in list(self.steps.items()):
            if not step.done:
                act(Complete(number))

    # ---- one method an operation -------------------------------------------------------------------------------------

    def _lookup(self, operation: Lookup) -> Outcome:
        tokens, namespace = operation.tokens, operation.namespace
        if namespace and not self._spaces:
            return self._skip("no capability NAMESPACES")
        due = self.judge.before_lookup(tokens, namespace)
        found, refusal = self._call(operation, due, self.target.lookup, tokens, namespace)
        if refusal:
            return refusal
        if not isinstance(found, Found):
            raise boundary.wrong(self.target, "lookup", found, boundary.FOUND)
        self._last, hit_tokens = found, found.tokens
        if type(hit_tokens) is not int:
            hit_tokens = boundary.whole(self.target, "lookup", hit_tokens, boundary.FOUND)
        self.judge.after_lookup(due, hit_tokens, found.blocks)
        if operation.match is not None:
            self._matches[operation.match] = (tokens, namespace, found.handle)
        return _DONE

    def _allocate(self, operation: Allocate) -> Outcome:
        request, tokens, namespace = operation.request, operation.tokens, operation.namespace
        if namespace and not self._spaces:
            return self._skip("no capability NAMESPACES")
        judge = self.judge
        due = judge.before_allocate(request, tokens, namespace)
        handle = None
        if operation.match is not None and not self._matching:
            self._skip("a match not passed on: no capability MATCH")  # the operation itself is applied
        elif operation.match is not None and operation.match in self._matches:
            matched, space, handle = self._matches[operation.match]
            if (tuple(matched), space) != (tuple(tokens), namespace):
                if due.refusal in (None, *NO_ROOM):
                    due.refusal = MATCH_MISMATCH
            else:
                judge.events[ALLOCATED_WITH_AN_EARLIER_MATCH] += 1
        hit_tokens, refusal = self._call(operation, due, self.target.allocate, request, tokens, namespace, handle)
        if refusal:
            return refusal
        if type(hit_tokens) is not int:
            hit_tokens = boundary.whole(self.target, "allocate", hit_tokens, boundary.TOKENS)
        judge.after_allocate(due, hit_tokens, self._table(request))
        return _DONE

    def _append(self, operation: Append) -> Outcome:
        request, tokens = operation.request, operation.tokens
        if not self._fills and UNKNOWN in tokens:
            return self._skip("no capability FILL")
        due = self.judge.before_append(request, tokens)
        _, refusal = self._call(operation, due, self.target.append, request, tokens)
        if refusal:
            return refusal
        self.judge.after_append(due, self._table(request))
        return _DONE

    def _fill(self, operation: Fill) -> Outcome:
        request, position, tokens = operation.request, operation.position, operation.tokens
        due = self.judge.before_fill(request, position, tokens)
        _, refusal = self._call(operation, due, self.target.fill, request, position, tokens)
        if refusal:
            return refusal
        self.judge.after_fill(due)
        return _DONE

    def _dispatch(self, operation: Dispatch) -> Outcome:
        work = operation.work
        if operation.step in self.steps:
            return self._skip(f"step {operation.step} exists already")
        due = self.judge.before_dispatch(work)
        if due.skip:
            return self._skip(due.skip)
        view: StepView
        view, refusal = self._call(operation, due, self.target.dispatch, work)
        if refusal:
            if refusal.detail in NO_ROOM:
                self.judge.no_room(due)
            return refusal
        if not isinstance(view, StepView):
            raise boundary.wrong(self.target, "dispatch", view, boundary.VIEW)
        self._last = view
        if view.copies and not boundary.are_pairs(view.copies):
            raise boundary.wrong(self.target, "dispatch", view.copies, boundary.COPIES, "copies")
        tables = self._tables(due.tables[: len(view.starts)]) if due.tables else ()
        arrays = None
        if self._batches:
            arrays = self.see(view.arrays) if callable(view.arrays) else None
            if not isinstance(arrays, StepArrays):
                what = arrays if callable(view.arrays) else view.arrays
                raise boundary.wrong(self.target, "dispatch", what, boundary.ARRAYS, "arrays")
        step = self.judge.after_dispatch(due, view.starts, tables, view.copies, arrays)
        self.steps[operation.step] = (step, view.handle)
        if arrays is not None:
            self.step = (step, view.copies, arrays, view.padded)
        return _DONE

    def _complete(self, operation: Complete) -> Outcome:
        known = self.steps.get(operation.step)
        if known is None:
            return self._skip("there is no such step")
        step, handle = known
        due = self.judge.before_complete(step)
        _, refusal = self._call(operation, due, self.target.complete, handle)
        if refusal:
            return refusal
        self.judge.after_complete(due, self._tables(due.tables) if due.tables else ())
        # A few are kept, so that completing twice can be tried.
        self._completed.append(operation.step)
        if len(self._completed) > 4:
            del self.steps[self._completed.popleft()]
        return _DONE

    def _truncate(self, operation: Truncate) -> Outcome:
        request, length = operation.request, operation.length
        due = self.judge.before_truncate(request, length)
        if due.skip:
            return self._skip(due.skip)
        _, refusal = self._call(operation, due, self.target.truncate, request, length)
        if refusal:
            return refusal
        self.judge.after_truncate(due, self._table(request))
        return _DONE

    def _fork(self, operation: Fork) -> Outcome:
        request, child = operation.request, operation.child
        due = self.judge.before_fork(request, child)
        _, refusal = self._call(operation, due, self.target.fork, request, child)
        if refusal:
            return refusal
        self.judge.after_fork(due, self._table(child))
        return _DONE

    def _free(self, operation: Free) -> Outcome:
        due = self.judge.before_free(operation.request)
        _, refusal = self._call(operation, due, self.target.free, operation.request)
        if refusal:
            return refusal
        self.judge.after_free(due)
        return _DONE

    def _reset(self, operation: Reset) -> Outcome:
        due = self.judge.before_reset()
        _, refusal = self._call(operation, due, self.target.reset)
        if refusal:
            return refusal
        self.judge.after_reset(due)
        return _DONE

    # ---- what they share ---------------------------------------------------------------------------------------------

    def _call(
        self, operation: Operation, due: Due, act: Callable[..., Any], *values: Any
    ) -> tuple[Any, Outcome | None]:
        """(result, None) or (None, the refusal). Raises Crash, Admission, Release or Errors."""
        self.changed = due.changed
        expected = due.refusal
        if expected is not None and expected not in NO_ROOM and not self._refuses:
            return None, self._skip("no capability REFUSES")
        try:
            result = act(*values)
        except self._refusals as error:
            try:
                kind = self.target.kind(error)
            except BaseException as another:  # it is no refusal after all
                if boundary.users_own(another):
                    raise
                raise boundary.ended(operation.op, error) from error
            if kind != expected and not (due.may_refuse and kind in NO_ROOM):
                if type(kind) is not str:
                    raise boundary.wrong(self.target, "kind", kind, boundary.KIND) from error
                self._wrong_refusal(kind, expected, error)
            return None, Outcome("refused", kind)
        except BaseException as error:
            # SystemExit and KeyboardInterrupt, too: in this process only the target raises them.
            if boundary.users_own(error):
                raise
            raise boundary.ended(operation.op, error) from error
        if expected is not None:
            self._accepted(operation, expected)
        return result, None

    def see(self, look: Callable[..., Any], *values: Any) -> Any:
        """What a method of the target that only shows something returns. Raises Crash for whatever it raises."""
        try:
            return look(*values)
        except BaseException as error:
            if boundary.users_own(error):
                raise
            raise boundary.ended(boundary.called(self.target, look), error) from error

    def _tables(self, requests: Sequence[str]) -> Sequence[list[int]]:
        return [self._table(request) for request in requests]

    def _table(self, request: str) -> list[int]:
        """The block table of a live request. Raises Crash if it is none."""
        table: list[int] = self.see(self.target.table, request)
        if type(table) is not list:
            raise boundary.wrong(self.target, f"table({request!r})", table, boundary.BLOCKS)
        known = self.judge.sequences.get(request)
        if known is not None and known.tables[0].blocks is table:
            again = f"{boundary.BLOCKS}: this is the one of before"
            raise boundary.wrong(self.target, f"table({request!r})", table, again)
        return table

    def _blame(self, error: Exception, requests: Collection[str] = ()) -> None:
        """Something has gone wrong in the harness. Raises Crash if what the target has shown is to blame."""
        live, last = self.judge.sequences.keys(), self._last
        for crash in boundary.wrong_answers(self.target, self.see, self.capabilities, live, requests, last):
            raise crash from error

    def _wrong_refusal(self, kind: str, expected: str | None, error: Exception) -> None:
        if kind == OUT_OF_BLOCKS and expected in NO_ROOM and Capability.ERRORS not in self.capabilities:
            return
        if kind in NO_ROOM or expected in NO_ROOM:
            raise Admission(
                f"refused with {kind} ({boundary.told(error)}); {f'{expected} is due' if expected else 'it fits'}"
            )
        if expected is None:
            raise Errors(f"a valid operation is refused with {kind}: {boundary.told(error)}")
        if Capability.ERRORS in self.capabilities:
            raise Errors(f"refused with {kind}: {boundary.told(error)}; {expected} is due")

    def _accepted(self, operation: Operation, expected: str) -> None:
        """The target accepted what it had to refuse. Where there was no room, see first what harm it did."""
        if expected in NO_ROOM:
            self.judge.accuse(Admission, f"{operation.op} was admitted; {expected} is due")
        elif isinstance(operation, Free):
            raise Release(f"freeing {operation.request!r} was accepted; there is no such request (a double free?)")
        else:
            raise Errors(f"{operation.op} was accepted; {expected} is due")

    def _charge(self) -> NoReturn:
        findings: Sequence[Violation] = self.judge.findings
        raise min(findings, key=lambda violation: violation.rank)

    def _skip(self, reason: str) -> Outcome:
        self.skipped[reason] += 1
        return Outcome("skipped", reason)


for_every_kind("Session", {kind: kind for kind in OPERATIONS if hasattr(Session, f"_{kind}")})

_DRAIN_STEP = 1 << 16
"""Most tokens of one step in the drain phase; a large pool takes several."""

_DRAIN = 1 << 30
"""Tokens of the drain phase: values that no run uses."""


def _long(size: int) -> Tokens:
    from array import array

    return array("i", range(_DRAIN, _DRAIN + size))
