"""A production request trace as operations: real prefix sharing, real lengths, every property on.

`read_trace` reads Mooncake's format (JSON lines, plain or gzip). A trace has no token values, only one id for every 512
tokens of a prompt, so `expand` makes values up: id h stands for the tokens 512 h to 512 h + 511, whatever the block
size of the pool. Generated tokens have values that occur nowhere else. `Schedule` plays the engine: first come first
served, continuous batching, chunked prefill, preemption by recomputation. `run_trace` drives a target with it, beside
the judge or alone.

Timestamps are ignored: every request is waiting from the start, since what is tested is bookkeeping under load and not
latency. There is no randomness: the same trace, parameters and target give the same operations.

This room may not know: Hypothesis, torch, any core. The schedule sees nothing but outcomes, and of an admitted request
how many of its tokens were hit.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from properties.operations import Allocate, Append, Complete, Dispatch, Free, Operation, Tokens
from properties.session import Outcome, Session
from properties.target import Capability, Target
from reference import Policy, Release, Violation

__all__ = [
    "BUILT_IN",
    "MAX_HASH_ID",
    "RECENT",
    "UNIT",
    "Request",
    "Schedule",
    "Stalled",
    "TraceError",
    "TraceReport",
    "cannot_trace",
    "expand",
    "read_trace",
    "run_trace",
]

UNIT = 512
"""Tokens that one hash id stands for: the trace's own unit, fixed by its format."""

LAST_TOKEN = 2**31 - 1
"""The first generated token; the next ones count down from here."""

_GENERATED = 2**27
"""Token values kept for generated tokens."""

MAX_HASH_ID = (2**31 - _GENERATED) // UNIT - 1
"""Larger ids have no 512 values of their own in int32 beside those of the generated tokens (3,932,159)."""

BUILT_IN = str(Path(__file__).with_name("multi_turn.jsonl"))
"""The trace that comes with the package."""

RECENT = 50
"""Operations that a report shows before a violation."""


# ---- reading ---------------------------------------------------------------------------------------------------------


class TraceError(ValueError):
    """A file that is not a trace. `file`, `line` (from 1; 0: the file as a whole), `found`, `expected`."""

    def __init__(self, file: str | Path, line: int, found: str, expected: str) -> None:
        super().__init__(f"{file}{f':{line}' if line else ''}: {found}; expected {expected}")
        self.file = str(file)
        self.line = line
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Request:
    """One request. input_length, output_length: tokens, at least 1. hash_ids: one for each 512 tokens of the prompt.

    Equal ids are equal tokens after an equal prefix. The last id may stand for fewer than 512 tokens.
    """

    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


_FORMAT = 'a JSON object with "input_length", "output_length" and "hash_ids" on each line'


def read_trace(path: str | Path) -> list[Request]:
    """All requests of a trace in Mooncake's format; plain or gzip, told apart by the first two bytes.

    Blank lines and further fields (`timestamp`) are passed over. Raises TraceError: no such file, damaged or cut gzip,
    a line that is no JSON object, a field that is missing, of a wrong type or out of range, another number of ids than
    ceil(input_length / 512), no requests at all. O(file).
    """
    requests: list[Request] = []
    number = 0
    try:
        with open(path, "rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            lines: Iterable[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw
            for line in lines:
                number += 1
                if not line.isspace():
                    requests.append(_request(path, number, line))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(path, number + 1, f"a damaged or cut gzip stream ({error})", "a whole gzip file") from error
    except FileNotFoundError as error:
        raise TraceError(path, 0, "there is no such file", "a request trace in Mooncake's format") from error
    except OSError as error:
        raise TraceError(path, number, f"cannot read it ({error.strerror or error})", "a readable file") from error
    if not requests:
        raise TraceError(path, number, "no requests", _FORMAT)
    return requests


def _request(path: str | Path, number: int, line: bytes) -> Request:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(path, number, f"{_short(line)} is not JSON ({error})", _FORMAT) from None
    if type(data) is not dict:
        raise TraceError(path, number, f"{_short(line)} is not a JSON object", _FORMAT)
    for name in ("input_length", "output_length", "hash_ids"):
        if name not in data:
            raise TraceError(path, number, f"no field {name!r} in {_short(line)}", _FORMAT)
    for name in ("input_length", "output_length"):
        if type(data[name]) is not int or data[name] < 1:
            raise TraceError(path, number, f"{name} is {_short(data[name])}", "an integer, at least 1 (tokens)")
    ids = data["hash_ids"]
    if type(ids) is not list:
        raise TraceError(path, number, f"hash_ids is {_short(ids)}", "a list of integers")
    for value in ids:
        if type(value) is not int:
            raise TraceError(path, number, f"hash_ids contains {_short(value)}", "integers")
        if not 0 <= value <= MAX_HASH_ID:
            raise TraceError(path, number, f"hash_ids contains {value}", _RANGE)
    length = data["input_length"]
    if len(ids) != -(-length // UNIT):
        raise TraceError(
            path,
            number,
            f"{len(ids)} hash_ids for input_length {length}",
            f"{-(-length // UNIT)}: one for each {UNIT} tokens, the last of them for what is left",
        )
    return Request(length, data["output_length"], tuple(ids))


_RANGE = f"ids from 0 to {MAX_HASH_ID}, so that {UNIT} token ids for each fit into int32 beside the generated ones"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_OFFSETS = np.arange(UNIT, dtype=np.int32)


def expand(hash_ids: Sequence[int], length: int) -> array[int]:
    """The first `length` tokens that `hash_ids` stand for: 512 h to 512 h + 511 for each id h. array('i').

    Raises TraceError for an id above MAX_HASH_ID. O(length), in memory moves.
    """
    if hash_ids and not 0 <= min(hash_ids) <= max(hash_ids) <= MAX_HASH_ID:
        raise TraceError("hash_ids", 0, f"ids {min(hash_ids)} to {max(hash_ids)}", _RANGE)
    first = np.array(hash_ids, dtype=np.int32) * UNIT
    tokens = array("i")
    tokens.frombytes((first[:, None] + _OFFSETS).ravel()[:length].tobytes())
    return tokens


def cannot_trace(policy: Policy) -> str:
    """Why a core with this policy cannot run a trace; "" if it can. The schedule admits whole requests, in chunks."""
    if policy.admission == "step":
        return "its scheduler takes blocks at admission, and the target's policy takes them by the step"
    return "" if policy.chunks else "its scheduler prefills in chunks, and the target's policy has none"


# ---- the schedule ----------------------------------------------------------------------------------------------------


class Stalled(RuntimeError):
    """The target refuses what must fit (nothing else is alive) or gives an answer that the schedule cannot act on."""


class _Live:
    """A request that is waiting or admitted. 0 <= scheduled <= length; a freed one may still be in flight."""

    __slots__ = ("admitted", "flights", "generated", "left", "length", "name", "request", "scheduled")

    def __init__(self, number: int, request: Request, max_output: int) -> None:
        self.name = f"r{number}"
        self.request = request
        self.left = min(request.output_length, max_output)
        self.generated: list[int] = []
        self.length = 0
        self.scheduled = 0
        self.flights = 0
        self.admitted = False

    def tokens(self) -> array[int]:
        """What has to be computed: the prompt, and after a preemption what had been generated."""
        tokens = expand(self.request.hash_ids, self.request.input_length)
        tokens.extend(self.generated)
        return tokens


class Schedule:
    """An engine's scheduler, which yields one operation at a time and is told what became of it.

        schedule = Schedule(requests, hit_tokens)
        operation = schedule.next(None)
        while operation is not None:
            operation = schedule.next(session.apply(operation))

    Each round: one token is appended to every request that decodes, oldest first; waiting requests are admitted in
    order while fewer than `concurrency` are alive; the step carries the decode tokens and, with what they leave of
    `chunk` tokens, the prompts in order of admission; when `overlap` steps are in flight, the oldest completes; who has
    all its output is freed. Every output token is appended and computed. A request whose last token is in flight waits
    for it (no placeholders).

    An Allocate that is refused waits at the head of the queue, and is tried again when a request has left. An Append
    that is refused preempts the youngest: it is freed, goes back to the head with its tokens so far, and waits until a
    request has left, so that two do not push each other out in turn. If it was in flight, its blocks come when those
    steps complete, which are then waited for. A request that can never fit, alone or with its output, is dropped.

    hit_tokens(name): how many tokens of a request that was just admitted came from the cache.
    requests, dropped, refusals, preemptions, steps: counts so far; `requests` have finished.
    prompt_tokens, hit_tokens: of requests, at their first admission. output_tokens: appended.

    A step costs O(alive), an admission O(its tokens). Raises Stalled; ValueError for parameters below 1.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        hit_tokens: Callable[[str], int],
        *,
        max_output: int = 64,
        concurrency: int = 32,
        chunk: int = 2048,
        overlap: int = 1,
    ) -> None:
        for name, value in (
            ("max_output", max_output),
            ("concurrency", concurrency),
            ("chunk", chunk),
            ("overlap", overlap),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.concurrency = concurrency
        self.chunk = chunk
        self.overlap = overlap
        self.requests = 0
        self.dropped = 0
        self.refusals = 0
        self.preemptions = 0
        self.steps = 0
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.output_tokens = 0
        self._hits = hit_tokens
        self._token = LAST_TOKEN
        self._waiting = deque(_Live(number, request, max_output) for number, request in enumerate(requests))
        if (generated := sum(live.left for live in self._waiting)) > _GENERATED:
            raise ValueError(f"{generated} output tokens; there are values for {_GENERATED}, lower max_output")
        self._alive: list[_Live] = []  # by admission, oldest first
        self._in_flight: deque[tuple[int, list[_Live]]] = deque()
        self._held = False  # admission waits until a request has left
        self._head: tuple[_Live, Tokens] | None = None  # the tokens of a refused head
        self._run = self._rounds()

    def next(self, outcome: Outcome | None) -> Operation | None:
        """The next operation, given the outcome of the one before (None for the first). None at the end."""
        try:
            return self._run.send(outcome)
        except StopIteration:
            return None

    def _rounds(self) -> Generator[Operation, Outcome | None, None]:
        alive, in_flight = self._alive, self._in_flight
        while self._waiting or alive or in_flight:
            work: list[tuple[str, int]] = []
            riders: list[_Live] = []
            budget = self.chunk
            for live in alive.copy():
                if not budget:
                    break
                if live.scheduled == live.length and not live.flights and live.left and live.admitted:
                    yield from self._decode(live)
                    if live.scheduled < live.length:
                        budget -= 1
                        live.scheduled = live.length
                        work.append((live.name, 1))
                        riders.append(live)
            if not alive and not in_flight:
                self._held = False
            if self._waiting and not self._held and len(alive) < self.concurrency:
                yield from self._admit()
            for live in alive:
                if not budget:
                    break
                count = live.length - live.scheduled
                if count:
                    count = min(count, budget)
                    budget -= count
                    live.scheduled += count
                    work.append((live.name, count))
                    riders.append(live)
            if work:
                self.steps += 1
                for live in riders:
                    live.flights += 1
                self._done((yield Dispatch(self.steps, tuple(work))))
                in_flight.append((self.steps, riders))
            if in_flight and (not work or len(in_flight) >= self.overlap):
                yield from self._complete()

    def _decode(self, live: _Live) -> Generator[Operation, Outcome | None, None]:
        """Append one token, at the cost of others if need be."""
        while True:
            outcome = yield Append(live.name, (self._token,))
            assert outcome is not None
            if outcome.status == "done":
                live.generated.append(self._token)
                live.length += 1
                live.left -= 1
                self._token -= 1
                self.output_tokens += 1
                return
            if self._refused(outcome) == "NeverFits":
                self.dropped += 1
                yield from self._leave(live)
                self._held = False
                return
            victim = self._alive[-1]
            if victim is live and len(self._alive) == 1 and not self._in_flight:
                raise Stalled(f"{live.name} is alone, and an Append of one token is refused with {outcome.detail}")
            self.preemptions += 1
            yield from self._leave(victim)
            self._waiting.appendleft(victim)
            self._held = True
            if victim is live:
                return
            while victim.flights:
                yield from self._complete()

    def _admit(self) -> Generator[Operation, Outcome | None, None]:
        """Admit from the head, as long as there is room."""
        waiting, alive = self._waiting, self._alive
        while waiting and len(alive) < self.concurrency:
            live = waiting[0]
            tokens = self._head[1] if self._head is not None and self._head[0] is live else live.tokens()
            outcome = yield Allocate(live.name, tokens)
            assert outcome is not None
            if outcome.status == "done":
                waiting.popleft()
                self._head = None
                hit = self._hits(live.name)
                if not live.length:
                    self.prompt_tokens += len(tokens)
                    self.hit_tokens += hit
                live.length = len(tokens)
                live.scheduled = hit
                live.admitted = True
                alive.append(live)
            elif self._refused(outcome) == "NeverFits":
                waiting.popleft()
                self._head = None
                self.dropped += 1
            else:
                if not alive and not self._in_flight:
                    raise Stalled(f"nothing is alive, and {live.name} is refused with {outcome.detail}")
                self._head = live, tokens
                self._held = True
                return

    def _complete(self) -> Generator[Operation, Outcome | None, None]:
        """The oldest step completes, and who is finished leaves."""
        step, riders = self._in_flight.popleft()
        self._done((yield Complete(step)))
        for live in riders:
            live.flights -= 1
            if not live.left and live.admitted and not live.flights and live.scheduled == live.length:
                self.requests += 1
                yield from self._leave(live)
                self._held = False

    def _leave(self, live: _Live) -> Generator[Operation, Outcome | None, None]:
        live.admitted = False
        self._alive.remove(live)
        self._done((yield Free(live.name)))

    def _refused(self, outcome: Outcome) -> str:
        if outcome.status != "refused" or outcome.detail not in ("OutOfBlocks", "NeverFits"):
            raise Stalled(f"an operation that can only lack room was {outcome.status}: {outcome.detail}")
        self.refusals += 1
        return outcome.detail

    @staticmethod
    def _done(outcome: Outcome | None) -> None:
        if outcome is None or outcome.status != "done":
            raise Stalled(f"an operation that cannot fail was {outcome and f'{outcome.status}: {outcome.detail}'}")


# ---- driving a target ------------------------------------------------------------------------------------------------


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
    driver = _Checked(target, outside) if checks else _Bare(target)
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
        return self.session.judge.lines[request].computed

    def evictions(self) -> int | None:
        return self.session.judge.events.get("evicted", 0)

    def drain(self, remember: Callable[[Operation], Any]) -> None:
        session = self.session
        judge = session.judge
        if judge.capacity * judge.policy.block_size <= _DRAIN_TOKENS:

            def act(operation: Operation) -> Outcome:
                remember(operation)
                return session.apply(operation)

            session.drain(act)
            return
        session.walk()
        if judge.idle != judge.capacity:
            raise Release(f"all requests have finished, and {judge.capacity - judge.idle} blocks are still held")


class _Bare:
    """The target alone."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._size = target.policy.block_size
        # With blocks of one slot, n - 1 hit tokens may be n hit blocks (see Judge._hit_blocks); then nobody can say.
        self._counted = (
            Capability.INSPECT in target.capabilities
            and target.policy.exact
            and (self._size > 1 or target.policy.reuse == "last_block")
        )
        self._evictions = 0
        self._hits: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._steps: dict[int, Any] = {}

    def hit_tokens(self, request: str) -> int:
        return self._hits.pop(request)

    def evictions(self) -> int | None:
        return self._evictions if self._counted else None

    def drain(self, remember: Callable[[Operation], Any]) -> None:
        pass

    def apply(self, operation: Operation) -> Outcome:
        target = self._target
        try:
            if isinstance(operation, Append):
                request, tokens = operation.request, operation.tokens
                length = self._lengths[request]
                free = self._free() if not length % self._size else 0
                target.append(request, tokens)
                self._lengths[request] = length + 1
                if not length % self._size:
                    self._took(1, free)
            elif isinstance(operation, Dispatch):
                self._steps[operation.step] = target.dispatch(operation.work).handle
            elif isinstance(operation, Complete):
                target.complete(self._steps.pop(operation.step))
            elif isinstance(operation, Allocate):
                request, tokens = operation.request, operation.tokens
                free = self._free()
                hits = target.allocate(request, tokens, (), None)
                self._hits[request] = hits
                self._lengths[request] = len(tokens)
                self._took(-(-len(tokens) // self._size) - -(-hits // self._size), free)
            elif isinstance(operation, Free):
                target.free(operation.request)
                del self._lengths[operation.request]
        except target.refusals as error:
            return Outcome("refused", target.kind(error))
        return _DONE

    def _free(self) -> int:
        return self._target.counts()[0] if self._counted else 0

    def _took(self, blocks: int, free: int) -> None:
        """`blocks` were taken where `free` were free: with the stated order of blocks, the others were evicted."""
        if self._counted and blocks > free:
            self._evictions += blocks - free


_DONE = Outcome("done")
