"""The swarm walk: a seeded random walk over operations, the engine for volume.

Each episode draws a configuration, then a *swarm*: which kinds of operation are likely, rare or off, how long prompts
are, how small the alphabet is, how many steps may be in flight (Groce et al., "Swarm testing", ISSTA 2012). Then it
walks, choosing operations that are mostly valid in the present state, and some that are not. Short episodes beat long
ones, since every one draws its swarm anew; a few long ones are kept for what only shows after a while.

Three random streams, for the configuration, the choice of operations, and their values, so that a new kind of operation
does not reshuffle what old seeds did to the others. Nothing else is random: an episode is a function of its seed.

This room may not know: Hypothesis, torch, any core. It reads the judge to see what is live, and changes nothing there.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Fork,
    Free,
    Lookup,
    Namespace,
    Operation,
    Reset,
    Truncate,
)
from properties.session import Session
from properties.target import Capability

__all__ = ["MIX", "Limits", "Walk", "draw_configuration"]

MIX: dict[str, float] = {
    "allocate": 16,
    "append": 20,
    "dispatch": 22,
    "complete": 18,
    "free": 9,
    "lookup": 4,
    "truncate": 4,
    "fork": 3,
    "fill": 2,
    "reset": 0.4,
    "invalid": 1.6,
}
"""The mean operation mix, in percent of what is tried. Each episode scales every entry by 0, 1/3, 1 or 3."""

NAMESPACES: tuple[Namespace, ...] = (
    (),
    (("salt", "s"),),
    (("adapter", "s"),),
    (("salt", ""),),
    (("model", "s"), ("salt", "s")),
    (("media", "s"),),
    (("weights", "1"),),
    (("weights", "2"),),
)
"""None is not empty, and one string in two parts is two namespaces."""

NAMES = tuple(f"r{number}" for number in range(16))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for drawn configurations and episodes; the re-search after shrinking uses tight ones."""

    max_blocks: int = 64
    max_block_size: int = 16
    long_episodes: bool = True


_BLOCKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
_SIZES = (1, 1, 2, 2, 2, 3, 4, 4, 5, 8, 16)
_BITS = (0, 1, 2, 4, 8, 16, 64, 128, 128, 128)


def draw_configuration(random: Random, capabilities: frozenset[Capability], limits: Limits) -> Configuration:
    """One configuration within `limits`: small pools and block sizes, weak hashes, both reuse policies."""
    return Configuration(
        num_blocks=random.choice([blocks for blocks in _BLOCKS if blocks <= limits.max_blocks]),
        block_size=random.choice([size for size in _SIZES if size <= limits.max_block_size]),
        hash_bits=random.choice(_BITS) if Capability.HASH in capabilities else 128,
        reuse=random.choice(("last_block", "last_token")),
        caching=random.random() < 0.93,
    )


class Walk:
    """One episode. Draw `configuration`, build a session with it, then iterate over `operations(session)`."""

    def __init__(
        self,
        seed: str,
        capabilities: frozenset[Capability],
        limits: Limits = Limits(),
        configuration: Configuration | None = None,
        kinds: frozenset[str] | None = None,
    ) -> None:
        """`kinds` restricts the walk to these kinds of operation, and to allocate, dispatch, complete and free."""
        self._random = Random(f"{seed}/operations")
        self._values = Random(f"{seed}/values")
        drawn = draw_configuration(Random(f"{seed}/configuration"), capabilities, limits)
        self.configuration = configuration or drawn
        self._capabilities = capabilities
        self._uniform = self._random.random
        self._value = self._values.random
        random = self._random
        self._kinds = frozenset(
            kind
            for kind in MIX
            if (kind not in _NEEDS or _NEEDS[kind] in capabilities)
            and (kinds is None or kind in kinds or kind in _ALWAYS)
        )
        possible = [kind for kind in MIX if kind in self._kinds]
        weights = [
            MIX[kind] * random.choice(_SCALES if kind not in ("allocate", "dispatch", "complete") else _SCALES[1:])
            for kind in possible
        ]
        self._choices: list[Callable[[Session], Operation | None]] = [getattr(self, f"_{kind}") for kind in possible]
        self._cumulative = list(accumulate(weights))
        self._total = self._cumulative[-1]
        roll = random.random()
        self.length = 24 + int(96 * roll) if roll < 0.97 or not limits.long_episodes else 1000
        self._alphabet = random.choice((1, 2, 2, 3, 5))
        pool = self.configuration.num_blocks * self.configuration.block_size
        self._longest = max(1, min(pool, self.configuration.block_size * random.choice((2, 3, 4, 6, 10))))
        self._depth = random.choice((1, 1, 2, 3)) if Capability.OVERLAP in capabilities else 1
        self._lines = random.choice((2, 3, 4, 6, 12))
        self._reserve = random.choice((0, 0, 1, 2))
        self._placeholders = Capability.FILL in capabilities and random.random() < 0.3
        self._spaces: tuple[Namespace, ...] = ((),)
        if Capability.NAMESPACES in capabilities and random.random() < 0.4:
            self._spaces = tuple(self._values.sample(NAMESPACES, 2))
        self._seen: list[tuple[int, ...]] = []
        self._next_step = 1
        self._next_match = 0
        self._story = ""  # a request that a fork or truncation left in a state worth going on with

    def operations(self, session: Session) -> Iterator[Operation]:
        """The episode's operations, each chosen in the state that the ones before have led to."""
        for _ in range(self.length):
            yield self.next(session)

    def next(self, session: Session) -> Operation:
        """One more operation. Falls back to what is possible where the chosen kind is not."""
        if self._story and self._uniform() < 0.4:
            operation = self._continue(session)
            if operation is not None:
                return operation
        for _ in range(8):
            choice = self._choices[bisect(self._cumulative, self._uniform() * self._total)]
            operation = choice(session)
            if operation is not None:
                return operation
        return self._complete(session) or self._free(session) or Allocate(NAMES[0], self._prompt(session))

    def _continue(self, session: Session) -> Operation | None:
        """Go on with what the last fork or truncation began: shared tails, copies that pend, and what undoes them."""
        request, self._story = self._story, ""
        line = session.judge.lines.get(request)
        if line is None or "append" not in self._kinds:
            return None
        if line.pending is None:
            tail = line.table[-1]
            if session.judge.references[tail] > 1 and self._value() < 0.3:
                for other, sharing in session.judge.lines.items():
                    if sharing is not line and tail in sharing.table:
                        self._story = request
                        return Free(other)
            self._story = request if self._value() < 0.6 else ""
            return Append(request, self._tokens(1 + self._below(2)))
        roll = self._value()
        if roll < 0.4 and len(line.tokens) > line.base and "truncate" in self._kinds:
            self._story = request
            return Truncate(request, line.base + self._below(len(line.tokens) - line.base))
        return Free(request) if roll < 0.6 else None

    # ---- values ------------------------------------------------------------------------------------------------------

    def _below(self, count: int) -> int:
        return int(self._value() * count)

    def _tokens(self, count: int) -> tuple[int, ...]:
        value, alphabet = self._value, self._alphabet
        return tuple([int(value() * alphabet) for _ in range(count)])

    def _prompt(self, session: Session) -> tuple[int, ...]:
        """A prompt that often shares a prefix with an earlier one, often up to a block boundary or one off."""
        length = 1 + self._below(self._longest)
        roll = self._value()
        if roll < 0.02:
            length += session.judge.policy.num_blocks * session.judge.policy.block_size
        elif roll < 0.35:
            size = session.judge.policy.block_size
            length = max(1, length // size * size + (0 if roll < 0.25 else 1))
        prompt: tuple[int, ...] = ()
        if self._seen and self._value() < 0.75:
            prompt = self._seen[self._below(len(self._seen))][:length]
        if len(prompt) < length:
            prompt += self._tokens(length - len(prompt))
        if len(self._seen) < 8:
            self._seen.append(prompt)
        elif self._value() < 0.3:
            self._seen[self._below(8)] = prompt
        return prompt

    def _line(self, session: Session) -> str | None:
        """A live request."""
        lines = session.judge.lines
        if not lines:
            return None
        at = int(self._value() * len(lines))
        for request in lines:
            if not at:
                return request
            at -= 1
        return None

    def _new_name(self, session: Session) -> str | None:
        lines = session.judge.lines
        if len(lines) >= self._lines:
            return None
        at = self._below(len(NAMES))
        for offset in range(len(NAMES)):
            name = NAMES[(at + offset) % len(NAMES)]
            if name not in lines:
                return name
        return None

    # ---- one method a kind -------------------------------------------------------------------------------------------

    def _lookup(self, session: Session) -> Operation | None:
        match = None
        if Capability.MATCH in self._capabilities and self._value() < 0.5:
            match = f"m{self._next_match % 3}"
            self._next_match += 1
        return Lookup(self._prompt(session), self._spaces[self._below(len(self._spaces))], match)

    def _allocate(self, session: Session) -> Operation | None:
        judge = session.judge
        request = self._new_name(session)
        if request is None or (len(judge.lines) and judge.idle <= self._reserve and self._value() < 0.9):
            return None  # a full pool refuses everything; let something else happen first
        space = self._spaces[0] if len(self._spaces) == 1 else self._spaces[self._below(len(self._spaces))]
        if self._next_match and self._value() < 0.3:
            match = f"m{self._below(min(3, self._next_match))}"
            known = session._matches.get(match)
            if known is not None:
                return Allocate(request, known[0], known[1], match)
        return Allocate(request, self._prompt(session), space)

    def _append(self, session: Session) -> Operation | None:
        request = self._line(session)
        if request is None:
            return None
        roll = self._value()
        if self._placeholders and roll < 0.3:
            return Append(request, (UNKNOWN,) * (1 + self._below(2)))
        count = 1 if roll < 0.7 else 1 + self._below(2 * session.judge.policy.block_size)
        return Append(request, self._tokens(count))

    def _fill(self, session: Session) -> Operation | None:
        for request, line in session.judge.lines.items():
            if line.unnamed and self._value() < 0.7:
                position = line.tokens.index(UNKNOWN)
                return Fill(request, position, self._tokens(1))
        return None

    def _dispatch(self, session: Session) -> Operation | None:
        judge = session.judge
        if len(judge.in_flight) >= self._depth:
            return None
        value = self._value
        work = []
        for request, line in judge.lines.items():
            left = len(line.tokens) - line.scheduled
            if left and value() < 0.8:
                work.append((request, left if left == 1 or value() < 0.7 else 1 + int(value() * left)))
        if not work:
            return None
        step = self._next_step
        self._next_step += 1
        return Dispatch(step, tuple(work))

    def _complete(self, session: Session) -> Operation | None:
        for step, (passage, _) in session.steps.items():
            if not passage.done:
                return Complete(step)
        return None

    def _truncate(self, session: Session) -> Operation | None:
        request = self._line(session)
        if request is None:
            return None
        line = session.judge.lines[request]
        room = len(line.tokens) - line.base
        if not room:
            return None
        self._story = request
        return Truncate(request, line.base + self._below(room))

    def _fork(self, session: Session) -> Operation | None:
        request, child = self._line(session), self._new_name(session)
        if request is None or child is None:
            return None
        line = session.judge.lines[request]
        if line.flights or line.computed < len(line.tokens) or (line.unnamed and self._value() < 0.7):
            return None
        self._story = request if self._value() < 0.5 else child
        return Fork(request, child)

    def _free(self, session: Session) -> Operation | None:
        request = self._line(session)
        return None if request is None else Free(request)

    def _reset(self, session: Session) -> Operation | None:
        return Reset()

    def _invalid(self, session: Session) -> Operation | None:
        """An operation that must be refused (or nearly so): every kind of bad input there is."""
        judge = session.judge
        request = self._line(session) or "nobody"
        roll = self._below(14)
        if roll == 0:
            return Allocate(request, self._prompt(session))
        if roll == 1:
            return Allocate("bad", _BAD_TOKENS[self._below(len(_BAD_TOKENS))])
        if roll == 2:
            return Append(request, _BAD_TOKENS[self._below(len(_BAD_TOKENS))])
        if roll == 3:
            return Free("nobody")
        if roll == 4:
            return Append("nobody", (0,))
        if roll in (5, 6, 7) and judge.in_flight and Capability.OVERLAP not in self._capabilities:
            return None
        if roll == 5:
            return self._named(Dispatch(self._next_step, ((request, 1 << 20),)))
        if roll == 6:
            return self._named(Dispatch(self._next_step, ()))
        if roll == 7:
            line = judge.lines.get(request)
            count = max(1, len(line.tokens) - line.scheduled) if line else 1
            return self._named(Dispatch(self._next_step, ((request, count), (request, count))))
        if roll == 8:
            done = [step for step, (passage, _) in session.steps.items() if passage.done]
            return Complete(done[-1]) if done else None
        if roll == 9:
            waiting = [step for step, (passage, _) in session.steps.items() if not passage.done]
            return Complete(waiting[-1]) if len(waiting) > 1 else None
        if roll == 10 and Capability.TRUNCATE in self._capabilities:
            line = judge.lines.get(request)
            return Truncate(request, (line.base - 1 if self._value() < 0.5 else len(line.tokens) + 1) if line else 0)
        if roll == 11 and Capability.FORK in self._capabilities:
            return Fork(request, request if self._value() < 0.5 else "child")
        if roll == 12 and Capability.FILL in self._capabilities:
            return Fill(request, self._below(4) - 1, (0,))
        if roll == 13 and Capability.MATCH in self._capabilities and self._next_match:
            name = self._new_name(session)
            return Allocate(name, self._prompt(session), self._spaces[0], "m0") if name else None
        return None

    def _named(self, dispatch: Dispatch) -> Dispatch:
        self._next_step += 1
        return dispatch


_SCALES = (0.0, 1 / 3, 1.0, 1.0, 3.0)
_ALWAYS = ("allocate", "dispatch", "complete", "free")
_NEEDS = {
    "lookup": Capability.LOOKUP,
    "truncate": Capability.TRUNCATE,
    "fork": Capability.FORK,
    "fill": Capability.FILL,
    "reset": Capability.RESET,
}
_BAD_TOKENS: tuple[tuple[Any, ...], ...] = ((), (-5,), (1 << 31,), (0, -2), (3, 1 << 40), ("x",), (0.5,))
