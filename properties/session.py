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
refuse it with the same error. Skipped, and said, is only what a target has no capability for, and what names a step
that there is not.

This room may not know: where operations come from, and which core it drives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from reference import Admission, Crash, Errors, Judge, Passage, Release, Violation

from .laws import Bookkeeping, Internals, Law
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
from .target import Capability, StepArrays, StepView, Target

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
_NO_ROOM = ("OutOfBlocks", "NeverFits")
_INSIDE = frozenset({Capability.INSPECT, Capability.CONTENTS, Capability.CHECK})
_NOT_BY_STEP = frozenset({Capability.FORK, Capability.MATCH, Capability.CLONE})


class Session:
    """One target, one judge, all properties.

    outside: judge from the outside only, as if the core could not be inspected.
    exact: predict every choice of block, where the target's policy allows it; False leaves safety alone.
    walk_every, contents_every, check_every: operations between comparisons of all counts, of all histories in the
    index, and runs of the core's own check. Every refusal also costs a walk. laws: more observers (the kernels').

    applied: operations done or refused. skipped: reasons and how often. refused: error names and how often.
    kinds: operations applied by kind.
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
        policy = target.policy
        if not exact and policy.exact:
            policy = replace(policy, exact=False)
        self.target = target
        self.judge = Judge(policy)
        self.capabilities = target.capabilities.difference(_INSIDE if outside else (), *(law.excludes for law in laws))
        every: tuple[Law, ...] = (Bookkeeping(contents_every), Internals(check_every), *laws)
        self.laws = [law for law in every if law.needs <= self.capabilities]
        self.step: tuple[Passage, Sequence[tuple[int, int]], StepArrays] | None = None
        self.walk_every = walk_every
        self._since_walk = 0
        self.applied = 0
        self.skipped: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.steps: dict[int, tuple[Passage, Any]] = {}
        self._completed: deque[int] = deque()
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
        self._by_step = policy.admission == "step"
        if self._by_step and (cannot := sorted(kind.name for kind in self.capabilities & _NOT_BY_STEP)):
            raise ValueError(f"{target.name}: with Policy.admission 'step' there can be no {', '.join(cannot)}")
        if policy.windowed and policy.truncates == "tokens" and Capability.TRUNCATE in self.capabilities:
            raise ValueError(
                f"{target.name}: behind a window nothing is kept that a truncation could go back to; with TRUNCATE "
                "Policy.truncates must be 'placeholders'"
            )
        self._bind()
        for begun in _watchers:
            begun(self, None)

    def _bind(self) -> None:
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
        judge.touched.clear()
        judge.may_refuse = False
        self.step = None
        outcome = self._apply[kind](operation)
        if judge.findings:
            self._charge()
        status = outcome.status
        if status == "skipped":
            return outcome
        self.applied += 1
        self.kinds[operation.op] = self.kinds.get(operation.op, 0) + 1
        if status == "refused":
            self.refused[outcome.detail] = self.refused.get(outcome.detail, 0) + 1
            self.walk()
            return outcome
        for law in self.laws:
            law.after(self)
        self._since_walk += 1
        if self._since_walk >= self.walk_every:
            self.walk()
        return outcome

    def clone(self) -> Session:
        """A session in the same state that goes on by itself: target and judge are clones, the counts begin anew.

        Needs CLONE. Left behind are matches of earlier lookups, completed steps (so that completing one twice is
        skipped) and all laws but the session's own. O(state)."""
        other = Session.__new__(Session)
        vars(other).update(vars(self))
        other.target = self.target.clone()
        other.judge, passages = self.judge.clone()
        other.laws = [law.fresh() for law in self.laws if isinstance(law, (Bookkeeping, Internals))]
        other.step = None
        other._since_walk = 0
        other.applied = 0
        other.skipped, other.refused, other.kinds = {}, {}, {}
        other.steps = {
            number: (passages[id(passage)], other.target.same_step(handle))
            for number, (passage, handle) in self.steps.items()
            if not passage.done
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
        for law in self.laws:
            law.walk(self, operations)

    def drain(self, apply: Callable[[Operation], Any] | None = None) -> None:
        """The second phase: stop adding, finish everything, and demand that every block is back.

        Then a request for the whole pool must be admitted, and its warm repeat must hit. The operations go through
        `apply` (so that a caller can record them). Raises Violation; RELEASE if a block is not back."""
        act: Callable[[Operation], Any] = apply or self.apply
        judge, policy = self.judge, self.judge.policy
        if not self._overlaps:
            self._finish(act)
        for request in list(judge.lines):
            act(Free(request))
        self._finish(act)
        if judge.idle != judge.capacity:
            raise Release(f"all is freed and completed, and {judge.capacity - judge.idle} blocks are still held")
        if Capability.INSPECT in self.capabilities:
            free, cached, active = self.see(self.target.counts)
            if free + cached != judge.capacity or active != policy.num_blocks - judge.capacity:
                raise Release(
                    f"all is freed and completed; the core counts {free} free, {cached} cached, {active} active"
                )
        self.walk()
        size = judge.room
        tokens = tuple(range(_DRAIN, _DRAIN + size)) if size <= 4096 else _long(size)
        step = max(self.steps, default=0) + 1
        for name in ("drain-cold", "drain-warm"):
            act(Allocate(name, tokens))
            left = size - judge.lines[name].scheduled
            while left:
                act(Dispatch(step, ((name, min(left, _DRAIN_STEP)),)))
                act(Complete(step))
                left -= min(left, _DRAIN_STEP)
                step += 1
            act(Free(name))
        self.walk()

    def _finish(self, act: Callable[[Operation], Any]) -> None:
        for step, (passage, _) in list(self.steps.items()):
            if not passage.done:
                act(Complete(step))

    # ---- one method an operation -------------------------------------------------------------------------------------

    def _lookup(self, operation: Lookup) -> Outcome:
        tokens, namespace = operation.tokens, operation.namespace
        if namespace and not self._spaces:
            return self._skip("no capability NAMESPACES")
        expected = self.judge.before_lookup(tokens)
        found, refusal = self._call(operation, expected, self.target.lookup, tokens, namespace)
        if refusal:
            return refusal
        self.judge.after_lookup(tokens, namespace, found.tokens, found.blocks)
        if operation.match is not None:
            self._matches[operation.match] = (tokens, namespace, found.handle)
        return _DONE

    def _allocate(self, operation: Allocate) -> Outcome:
        request, tokens, namespace = operation.request, operation.tokens, operation.namespace
        if namespace and not self._spaces:
            return self._skip("no capability NAMESPACES")
        judge = self.judge
        expected = judge.before_allocate(request, tokens, namespace)
        handle = None
        if operation.match is not None and Capability.MATCH not in self.capabilities:
            self._skip("a match not passed on: no capability MATCH")  # the operation itself is applied
        elif operation.match is not None and operation.match in self._matches:
            matched, space, handle = self._matches[operation.match]
            if (tuple(matched), space) != (tuple(tokens), namespace):
                if expected in (None, *_NO_ROOM):
                    expected = "MatchMismatch"
            else:
                judge.events["allocated with an earlier match"] += 1
        hit_tokens, refusal = self._call(operation, expected, self.target.allocate, request, tokens, namespace, handle)
        if refusal:
            return refusal
        judge.after_allocate(request, namespace, hit_tokens, self.see(self.target.table, request))
        return _DONE

    def _append(self, operation: Append) -> Outcome:
        request, tokens = operation.request, operation.tokens
        if Capability.FILL not in self.capabilities and UNKNOWN in tokens:
            return self._skip("no capability FILL")
        expected = self.judge.before_append(request, tokens)
        _, refusal = self._call(operation, expected, self.target.append, request, tokens)
        if refusal:
            return refusal
        self.judge.after_append(request, self.see(self.target.table, request))
        return _DONE

    def _fill(self, operation: Fill) -> Outcome:
        request, position, tokens = operation.request, operation.position, operation.tokens
        expected = self.judge.before_fill(request, position, tokens)
        _, refusal = self._call(operation, expected, self.target.fill, request, position, tokens)
        if refusal:
            return refusal
        self.judge.after_fill(request, position)
        return _DONE

    def _dispatch(self, operation: Dispatch) -> Outcome:
        judge, work = self.judge, operation.work
        if operation.step in self.steps:
            return self._skip(f"step {operation.step} exists already")
        expected = judge.before_dispatch(work)
        if expected is None and not judge.policy.chunks:
            for request, count in work:
                if count < len(judge.lines[request].tokens) - judge.lines[request].scheduled:
                    return self._skip("a part of what a request has left, and Policy.chunks is False")
        view: StepView
        view, refusal = self._call(operation, expected, self.target.dispatch, work)
        if refusal:
            if refusal.status == "refused" and refusal.detail in _NO_ROOM and judge.policy.windowed:
                judge.after_no_room(work)
            return refusal
        if self._by_step:
            tables = [self.see(self.target.table, request) for request, _ in work[: len(view.starts)]]
            work = tuple(judge.take_blocks(work, view.starts, tables))
        passage = judge.after_dispatch(work, view.copies)
        self.steps[operation.step] = (passage, view.handle)
        if self._batches and view.arrays is not None:
            arrays = self.see(view.arrays)
            judge.judge_batch(
                passage,
                arrays.tables,
                arrays.context_lengths,
                arrays.cu_seqlens,
                arrays.packed_rows,
                arrays.row_sequences,
                arrays.positions,
                arrays.slots,
            )
            self.step = (passage, view.copies, arrays)
        return _DONE

    def _complete(self, operation: Complete) -> Outcome:
        known = self.steps.get(operation.step)
        if known is None:
            return self._skip("there is no such step")
        passage, handle = known
        expected = self.judge.before_complete(passage)
        _, refusal = self._call(operation, expected, self.target.complete, handle)
        if refusal:
            return refusal
        self.judge.after_complete(passage)
        if self.judge.policy.merges:
            live = self.judge.lines
            self.judge.after_merge(
                passage,
                [
                    self.see(self.target.table, line.request) if live.get(line.request) is line else None
                    for line, _, _ in passage.spans
                ],
            )
        # A few are kept, so that completing twice can be tried.
        self._completed.append(operation.step)
        if len(self._completed) > 4:
            del self.steps[self._completed.popleft()]
        return _DONE

    def _truncate(self, operation: Truncate) -> Outcome:
        request, length = operation.request, operation.length
        expected = self.judge.before_truncate(request, length)
        if expected is None and length < self.judge.shortest(self.judge.lines[request]):
            return self._skip("cuts more than was rejected, and Policy.truncates is 'placeholders'")
        _, refusal = self._call(operation, expected, self.target.truncate, request, length)
        if refusal:
            return refusal
        self.judge.after_truncate(request, length, self.see(self.target.table, request))
        return _DONE

    def _fork(self, operation: Fork) -> Outcome:
        request, child = operation.request, operation.child
        expected = self.judge.before_fork(request, child)
        _, refusal = self._call(operation, expected, self.target.fork, request, child)
        if refusal:
            return refusal
        self.judge.after_fork(request, child, self.see(self.target.table, child))
        return _DONE

    def _free(self, operation: Free) -> Outcome:
        expected = self.judge.before_free(operation.request)
        _, refusal = self._call(operation, expected, self.target.free, operation.request)
        if refusal:
            return refusal
        self.judge.after_free(operation.request)
        return _DONE

    def _reset(self, operation: Reset) -> Outcome:
        _, refusal = self._call(operation, None, self.target.reset)
        if refusal:
            return refusal
        self.judge.after_reset()
        return _DONE

    # ---- what they share ---------------------------------------------------------------------------------------------

    def _call(
        self, operation: Operation, expected: str | None, act: Callable[..., Any], *values: Any
    ) -> tuple[Any, Outcome | None]:
        """(result, None) or (None, the refusal). Raises Crash, Admission, Release or Errors."""
        if expected is not None and expected not in _NO_ROOM and not self._refuses:
            return None, self._skip("no capability REFUSES")
        try:
            result = act(*values)
        except self._refusals as error:
            try:
                kind = self.target.kind(error)
            except Exception:  # it is no refusal after all
                raise Crash(f"{act.__name__} ended in {type(error).__name__}: {error}") from error
            if kind != expected and not (self.judge.may_refuse and kind in _NO_ROOM):
                self._wrong_refusal(kind, expected, error)
            return None, Outcome("refused", kind)
        except Exception as error:
            raise Crash(f"{act.__name__} ended in {type(error).__name__}: {error}") from error
        if expected is not None:
            self._accepted(operation, expected)
        return result, None

    def see(self, look: Callable[..., Any], *values: Any) -> Any:
        """What a method of the target that only shows something returns. Raises Crash for whatever it raises."""
        try:
            return look(*values)
        except Exception as error:
            raise Crash(f"{look.__name__} ended in {type(error).__name__}: {error}") from error

    def _wrong_refusal(self, kind: str, expected: str | None, error: Exception) -> None:
        if kind == "OutOfBlocks" and expected in _NO_ROOM and Capability.ERRORS not in self.capabilities:
            return
        if kind in _NO_ROOM or expected in _NO_ROOM:
            raise Admission(f"refused with {kind} ({error}); {f'{expected} is due' if expected else 'it fits'}")
        if expected is None:
            raise Errors(f"a valid operation is refused with {kind}: {error}")
        if Capability.ERRORS in self.capabilities:
            raise Errors(f"refused with {kind}: {error}; {expected} is due")

    def _accepted(self, operation: Operation, expected: str) -> None:
        """The target accepted what it had to refuse. Where there was no room, see first what harm it did."""
        if expected in _NO_ROOM:
            self.judge.accuse(Admission, f"{operation.op} was admitted; {expected} is due")
        elif isinstance(operation, Free):
            raise Release(f"freeing {operation.request!r} was accepted; there is no such request (a double free?)")
        else:
            raise Errors(f"{operation.op} was accepted; {expected} is due")

    def _charge(self) -> NoReturn:
        findings: Sequence[Violation] = self.judge.findings
        raise min(findings, key=lambda violation: violation.rank)

    def _skip(self, reason: str) -> Outcome:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        return Outcome("skipped", reason)


for_every_kind("Session", {kind: kind for kind in OPERATIONS if hasattr(Session, f"_{kind}")})

_DRAIN_STEP = 1 << 16
"""Most tokens of one step in the drain phase; a large pool takes several."""

_DRAIN = 1 << 30
"""Tokens of the drain phase: values that no run uses."""


def _long(size: int) -> Tokens:
    from array import array

    return array("i", range(_DRAIN, _DRAIN + size))
