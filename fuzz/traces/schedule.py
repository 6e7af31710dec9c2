"""The scheduler of a trace: first come first served, continuous batching, chunked prefill, preemption by recomputation.

Timestamps are ignored: every request is there from the start, since what is tested is bookkeeping under load and not
latency. There is no randomness: the same trace, parameters and target give the same operations. The schedule sees
nothing but outcomes, and of an admitted request how many of its tokens were hit.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable

from properties.operations import Allocate, Append, Complete, Dispatch, Free, Tokens
from properties.session import Outcome

from .expand import expand
from .request import GENERATED, LAST_TOKEN, Request

__all__ = ["Schedule", "Scheduled", "Stalled"]

Scheduled = Allocate | Append | Dispatch | Complete | Free
"""What a schedule does."""


class Stalled(RuntimeError):
    """The target refuses what must fit (nothing else is alive) or gives an answer that the schedule cannot act on."""


class _Live:
    """A request that is waiting or admitted. 0 <= scheduled <= length; a freed one may still be in flight."""

    __slots__ = ("admitted", "generated", "in_flight", "left", "length", "name", "request", "scheduled")

    def __init__(self, number: int, request: Request, max_output: int) -> None:
        self.name = f"r{number}"
        self.request = request
        self.left = min(request.output_length, max_output)
        self.generated: list[int] = []
        self.length = 0
        self.scheduled = 0
        self.in_flight = 0
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
        if (generated := sum(live.left for live in self._waiting)) > GENERATED:
            raise ValueError(f"{generated} output tokens; there are values for {GENERATED}, lower max_output")
        self._alive: list[_Live] = []  # by admission, oldest first
        self._in_flight: deque[tuple[int, list[_Live]]] = deque()
        self._held = False  # admission waits until a request has left
        self._head: tuple[_Live, Tokens] | None = None  # the tokens of a refused head
        self._run = self._rounds()

    def next(self, outcome: Outcome | None) -> Scheduled | None:
        """The next operation, given the outcome of the one before (None for the first). None at the end."""
        try:
            return self._run.send(outcome)
        except StopIteration:
            return None

    def _rounds(self) -> Generator[Scheduled, Outcome | None, None]:
        alive, in_flight = self._alive, self._in_flight
        while self._waiting or alive or in_flight:
            work: list[tuple[str, int]] = []
            riders: list[_Live] = []
            budget = self.chunk
            for live in alive.copy():
                if not budget:
                    break
                if live.scheduled == live.length and not live.in_flight and live.left and live.admitted:
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
                    live.in_flight += 1
                self._done((yield Dispatch(self.steps, tuple(work))))
                in_flight.append((self.steps, riders))
            if in_flight and (not work or len(in_flight) >= self.overlap):
                yield from self._complete()

    def _decode(self, live: _Live) -> Generator[Scheduled, Outcome | None, None]:
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
            while victim.in_flight:
                yield from self._complete()

    def _admit(self) -> Generator[Scheduled, Outcome | None, None]:
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

    def _complete(self) -> Generator[Scheduled, Outcome | None, None]:
        """The oldest step completes, and who is finished leaves."""
        step, riders = self._in_flight.popleft()
        self._done((yield Complete(step)))
        for live in riders:
            live.in_flight -= 1
            if not live.left and live.admitted and not live.in_flight and live.scheduled == live.length:
                self.requests += 1
                yield from self._leave(live)
                self._held = False

    def _leave(self, live: _Live) -> Generator[Scheduled, Outcome | None, None]:
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
