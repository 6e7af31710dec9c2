"""Moves: from four small integers to one operation in the present state.

A move is (kind, who, amount, value), each 0 to 99. Whatever draws the integers (the Hypothesis machine, which also
shrinks them, and the swarm walk in `fuzz`), what they mean is plain Python, here: `who` is an index into what is live,
`amount` a length among those around block boundaries, `value` picks tokens. Zero is the simplest meaning everywhere. A
kind that is impossible in the present state stands for one that
brings it nearer, so that hardly any move is wasted: a fork of nothing computed completes a step, a truncation of
nothing appended appends.

A `Swarm` says which kinds an episode leaves out and how it is shaped (Groce et al., "Swarm testing", ISSTA 2012). It
never leaves out allocate, dispatch and complete.

This room may not know: Hypothesis, any core. It reads the judge to see what is live, and changes nothing there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from reference import Sequence

from .operations import (
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
)
from .session import Session
from .target import Capability

__all__ = ["KINDS", "NAMESPACES", "OPTIONAL", "Moves", "Swarm"]

KINDS: dict[str, int] = {
    "allocate": 13,
    "dispatch": 19,
    "append": 14,
    "story": 3,
    "free": 8,
    "truncate": 6,
    "fork": 5,
    "lookup": 3,
    "matched": 2,
    "placeholder": 2,
    "fill": 2,
    "invalid": 4,
    "reset": 1,
    "complete": 18,
}
"""In percent of the moves. The simplest first: that is where shrinking goes. A frequent
one last: Hypothesis draws both ends of a range several times as often as what is between."""

OPTIONAL: tuple[str, ...] = (
    "append",
    "story",
    "free",
    "truncate",
    "fork",
    "lookup",
    "matched",
    "placeholder",
    "invalid",
    "reset",
)
"""Kinds that a swarm may leave out: bit i of `Swarm.off`."""

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

_NEEDS: dict[str, Capability] = {
    "truncate": Capability.TRUNCATE,
    "fork": Capability.FORK,
    "lookup": Capability.LOOKUP,
    "matched": Capability.MATCH,
    "placeholder": Capability.FILL,
    "fill": Capability.FILL,
    "reset": Capability.RESET,
    "invalid": Capability.REFUSES,
}
_INSTEAD = {
    "append": "dispatch",
    "story": "append",
    "free": "complete",
    "truncate": "append",
    "fork": "append",
    "matched": "lookup",
}
"""What a kind stands for where it is left out; "allocate" if nothing is said. Followed until something is left in."""

_BAD_TOKENS: tuple[tuple[Any, ...], ...] = ((), (-5,), (1 << 31,), (0, -2), (3, 1 << 40), ("x",))
_COUNTS = (1, 1, 1, 2)
_SEEN = 12


class Swarm(NamedTuple):
    """How one episode is shaped. The defaults leave everything in.

    off: kinds left out, bit i for OPTIONAL[i]. alphabet: how many tokens there are. reach: blocks of a long prompt.
    depth: steps in flight. lines: live requests. reserve: idle blocks below which new requests mostly wait.
    spaces: the two namespaces of the episode, as indices into NAMESPACES.
    """

    off: int = 0
    alphabet: int = 2
    reach: int = 4
    depth: int = 2
    lines: int = 4
    reserve: int = 0
    spaces: tuple[int, int] = (0, 0)


def _tiles(alphabet: int) -> tuple[tuple[int, ...], ...]:
    """32 short token patterns over an alphabet; the first is all zeros."""
    period = {1: 1, 2: 5, 3: 4, 5: 3}[alphabet]
    return tuple(tuple(seed // alphabet**place % alphabet for place in range(period)) for seed in range(32))


_TILES = {alphabet: _tiles(alphabet) for alphabet in (1, 2, 3, 5)}


class Moves:
    """What an episode has seen, and the meaning of moves in it. Reads `session`, never changes it."""

    def __init__(self, session: Session, swarm: Swarm) -> None:
        """O(1)."""
        self._session = session
        self._lines = session.judge.sequences
        self._swarm = swarm
        capabilities = session.capabilities
        self._has = capabilities
        policy = session.judge.policy
        size = self._size = policy.block_size
        lengths = {1}
        for blocks in range(1, swarm.reach + 1):
            lengths |= {blocks * size - 1, blocks * size, blocks * size + 1}
        self._pool = session.judge.max_tokens
        self._lengths = sorted(length for length in lengths if 0 < length <= self._pool)
        self._grow = sorted({1, 2, max(1, size - 1), size, size + 1, 2 * size})
        self._tile = _TILES[swarm.alphabet]
        self._spaces = [NAMESPACES[index] for index in swarm.spaces] if Capability.NAMESPACES in capabilities else [()]
        self._drafts = policy.truncates == "placeholders"  # and nothing else is cut
        self._alone = Capability.OVERLAP not in capabilities  # nothing happens while a step is in flight
        self._depth = swarm.depth if not self._alone else 1
        self._seen: list[tuple[int, ...]] = [()]
        self._seen_at = 0
        self._matches: list[tuple[str, Tokens, Namespace]] = []
        self._next_match = 0
        self._next_step = 1
        self._freed = "nobody"
        self._under = ""  # a request with generated blocks
        self._upon: Allocate | None = None  # the one whose prompt was built on all of them, while it is needed
        self._whole: Allocate | None = None  # the same, to be asked for once more
        self._cut: tuple[int, ...] = ()  # what the last truncation cut off
        self._begun = ""  # the request that the last fork or truncation left in a state worth going on with
        off = {kind for bit, kind in enumerate(OPTIONAL) if swarm.off >> bit & 1}
        off |= {kind for kind, needed in _NEEDS.items() if needed not in capabilities}
        self._off = off
        self._by_kind: dict[str, Callable[[int, int, int], Operation]] = {
            kind: getattr(self, f"_{_stand_in(kind, off)}") for kind in KINDS
        }

    def operation(self, move: tuple[int, int, int, int]) -> Operation:
        """What `move` means now. O(live requests + tokens of the operation)."""
        number, who, amount, value = move
        return self.make(_HUNDRED[number], who, amount, value)

    def make(self, kind: str, who: int, amount: int, value: int) -> Operation:
        """The same, for a kind that was chosen by name."""
        if self._alone and self._session.judge.in_flight:
            return self._complete(who, amount, value)
        return self._by_kind[kind](who, amount, value)

    def admission(self, move: tuple[int, int, int, int]) -> Operation:
        """`move` as an Allocate, whatever its kind and however full the pool is: to begin an episode with."""
        _, who, amount, value = move
        return Allocate(self._new_name(), self._prompt(who, amount, value), self._space(who))

    # ---- values ------------------------------------------------------------------------------------------------------

    def _tokens(self, count: int, value: int) -> tuple[int, ...]:
        tile = self._tile[value & 31]
        return (tile * (count // len(tile) + 1))[:count]

    def _prompt(self, who: int, amount: int, value: int) -> tuple[int, ...]:
        """A prompt that shares a prefix with an earlier sequence, often up to a block boundary or one off."""
        seen = self._seen
        length = self._lengths[amount % len(self._lengths)]
        if 60 <= amount < 63:  # the whole pool, or one token more
            length = self._pool + (amount & 1)
        prompt = seen[(who & 15) % len(seen)][:length]
        if who & 15 >= 11 and self._lines:  # what a live request has become: its generated blocks can be hit, too
            request = self._line(who)
            line = self._lines[request]
            if not line.num_placeholders or self._drafts:
                prompt = tuple(line.tokens[: min(length, line.num_named)])
        if value >= 32 and prompt:
            prompt = prompt[: -(1, self._size)[value >> 6]]
        if len(prompt) < length:
            prompt += self._tokens(length - len(prompt), value)
        self._remember(prompt)
        return prompt

    def _remember(self, tokens: tuple[int, ...]) -> None:
        if tokens in self._seen:
            return
        if len(self._seen) < _SEEN:
            self._seen.append(tokens)
        else:
            self._seen_at = self._seen_at % (_SEEN - 1) + 1
            self._seen[self._seen_at] = tokens

    def _space(self, who: int) -> Namespace:
        return self._spaces[(who >> 4) % len(self._spaces)]

    def _space_of(self, line: Sequence) -> Namespace:
        return next((space for space in self._spaces if space == line.namespace), ())

    def _line(self, who: int) -> str:
        """A live request; "nobody" if there is none."""
        lines = self._lines
        return list(lines)[who % len(lines)] if lines else "nobody"

    def _new_name(self) -> str:
        """The lowest name that is not live: names come back soon, while steps of their last bearer are in flight."""
        lines = self._lines
        number = 0
        while (name := f"r{number}") in lines:
            number += 1
        return name

    def _step(self, work: tuple[tuple[str, int], ...]) -> Operation:
        self._next_step += 1
        return Dispatch(self._next_step - 1, work)

    # ---- one method a kind -------------------------------------------------------------------------------------------

    def _allocate(self, who: int, amount: int, value: int) -> Operation:
        lines = self._lines
        if lines and (
            len(lines) >= self._swarm.lines
            or (self._session.judge.blocks.available <= self._swarm.reserve and value & 7 < 7)
        ):  # a full pool refuses everything; let something else happen first
            return self._dispatch(who, amount, value)
        return Allocate(self._new_name(), self._prompt(who, amount, value), self._space(who))

    def _tower(self, amount: int, value: int) -> Operation | None:
        """A step of this story: build a request on all blocks of another, see it through and free it; roll back what it
        was built on; compute that again, and ask for the whole."""
        if self._upon is not None:
            under, upon = self._lines.get(self._under), self._lines.get(self._upon.request)
            if under is None or (upon is None and len(under.tokens) == under.base):
                self._upon = None
            elif upon is None:
                return self._cut_to(self._under, under, under.base)
            elif upon.in_flight or upon.scheduled < len(upon.tokens):
                return self._dispatch(0, 0, 0)
            else:
                return Free(self._upon.request)
        line = self._lines.get(self._under)
        if line is not None and self._whole is not None:
            if len(line.tokens) == line.base and self._cut:
                return Append(self._under, self._cut)
            if line.in_flight or line.scheduled < len(line.tokens):
                return self._dispatch(0, 0, 0)
            whole, self._whole = self._whole, None
            return Allocate(self._new_name(), whole.tokens, whole.namespace)
        return self._begin_tower(amount, value)

    def _begin_tower(self, amount: int, value: int) -> Operation | None:
        """The next story's first step, if a live request has full generated blocks."""
        size = self._size
        for request, line in self._lines.items():
            whole = line.tables[0].published * size
            if whole > line.base and not line.num_placeholders and whole + size < self._pool:
                tokens = (*line.tokens[:whole], *self._tokens(size + (amount & 1), value))
                self._under = request
                self._upon = self._whole = Allocate(self._new_name(), tokens, self._space_of(line))
                self._remember(tokens)
                return self._upon
        return None

    @property
    def telling(self) -> bool:
        """Whether a story has begun that the next moves had better go on with."""
        return self._upon is not None or self._whole is not None or self._begun in self._lines

    def _dispatch(self, who: int, amount: int, value: int) -> Operation:
        """Everything unscheduled (value 0), or what `value` leaves in, in chunks if `amount` says so."""
        judge = self._session.judge
        if len(judge.in_flight) >= self._depth:
            return self._complete(who, amount, value)
        chunk = amount >> 2 if amount & 3 == 3 and judge.policy.chunks else 0
        value = value & 31 if value >= 64 else 0
        work = []
        for request, line in judge.sequences.items():
            left = len(line.tokens) - line.scheduled
            if left:
                if not value & 1:
                    work.append((request, left if not chunk or left == 1 else min(left, 1 + chunk % left)))
                value >>= 1
        if not work:
            if judge.in_flight:
                return self._complete(who, amount, value)
            return self._append(who, amount, value) if judge.sequences else self.admission((0, who, amount, value))
        return self._step(tuple(work))

    def _complete(self, who: int, amount: int, value: int) -> Operation:
        for step, (passage, _) in self._session.steps.items():
            if not passage.done:
                return Complete(step)
        return self._dispatch(who, amount, value)

    def _append(self, who: int, amount: int, value: int) -> Operation:
        if not self._lines:
            return self.admission((0, who, amount, value))
        count = self._grow[(amount >> 1) % len(self._grow)] if amount & 1 else _COUNTS[amount >> 1 & 3]
        request = self._line(who)
        if not self._session.judge.blocks.available and value & 7 < 7:
            line = self._lines[request]
            if len(line.tokens) + count > len(line.tables[0].blocks) * self._size:
                return self._free(who, amount, value)  # a full pool again
        return Append(request, self._tokens(count, value))

    def _free(self, who: int, amount: int, value: int) -> Operation:
        lines = self._lines
        if not lines:
            return self.admission((0, who, amount, value))
        request = self._freed = self._line(who)
        line = lines[request]
        if not line.num_placeholders:
            self._remember(tuple(line.tokens))
        return Free(request)

    def _truncate(self, who: int, amount: int, value: int) -> Operation:
        lines, shortest = self._lines, self._session.judge.shortest
        grown = [(request, line) for request, line in lines.items() if len(line.tokens) > shortest(line)]
        if not grown:
            if not self._drafts or "placeholder" in self._off:
                return self._append(who, amount, value)
            proposed = any(line.num_placeholders for line in lines.values())  # and in flight
            return self._complete(who, amount, value) if proposed else self._placeholder(who, amount, value)
        request, line = grown[who % len(grown)]
        self._begun = request
        return self._cut_to(request, line, len(line.tokens) - 1 - amount % (len(line.tokens) - shortest(line)))

    def _cut_to(self, request: str, line: Sequence, length: int) -> Operation:
        self._cut = tuple(line.tokens[length:]) if not line.num_placeholders else ()
        return Truncate(request, length)

    def _fork(self, who: int, amount: int, value: int) -> Operation:
        ready = [
            request
            for request, line in self._lines.items()
            if line.computed == len(line.tokens) and not line.in_flight and not line.num_placeholders
        ]
        if not ready or len(self._lines) >= self._swarm.lines + 2:
            return self._complete(who, amount, value)
        request, child = ready[who % len(ready)], self._new_name()
        self._begun = child if value & 1 else request
        return Fork(request, child)

    def _story(self, who: int, amount: int, value: int) -> Operation:
        """Go on with what the last fork or truncation began: shared tails, copies that pend, and what undoes them."""
        if (
            who >= 50
            and "truncate" not in self._off
            and not self._drafts
            and (step := self._tower(amount, value)) is not None
        ):
            return step
        request = self._begun
        line = self._lines.get(request)
        if line is None:
            return self._fork(who, amount, value) if "fork" not in self._off else self._append(who, amount, value)
        if self._drafts:
            return self._verify(request, line, amount, value)
        if line.pending is None:
            tail = line.tables[0].blocks[-1:]
            if value < 30 and tail and self._session.judge.blocks.references[tail[0]] > 1:
                for other, sharing in self._lines.items():
                    if sharing is not line and tail[0] in sharing.tables[0].blocks:
                        return Free(other)
            # Often what was cut off once more, as a draft model proposes it again.
            again = self._cut if amount & 1 else ()
            return Append(request, again or self._tokens(1 + (amount >> 1 & 1), value))
        if value < 40 and len(line.tokens) > line.base and "truncate" not in self._off:
            return self._cut_to(request, line, len(line.tokens) - 1 - amount % (len(line.tokens) - line.base))
        return Free(request) if value < 60 else self._dispatch(who, amount, 0)

    def _verify(self, request: str, line: Sequence, amount: int, value: int) -> Operation:
        """The next thing that happens to a request with drafts: they are proposed, computed, and some of the first are
        accepted and the rest rejected, or all of them at once."""
        judge, named = self._session.judge, line.num_named
        if value >= 80 and "lookup" not in self._off:  # what does the index have of it by now?
            return Lookup((*line.tokens[:named], *self._tokens(1, value)), self._space_of(line))
        if line.computed > named:  # a verdict is due
            shortest = judge.shortest(line)
            if (value & 1 or "fill" in self._off) and shortest < len(line.tokens):
                return Truncate(request, shortest)
            if "fill" not in self._off:
                due = line.tokens[named : line.computed]
                run = next((at for at, token in enumerate(due) if token != UNKNOWN), len(due))
                return Fill(request, named, self._tokens(1 + amount % run, value))
        if line.scheduled < len(line.tokens):
            if not judge.blocks.available and len(line.tokens) > len(line.tables[0].blocks) * self._size:
                return Free(request)  # it can only be refused
            return self._dispatch(0, amount | 3 if value & 2 else 0, 0)  # a part of it, half the time
        if line.in_flight and (value < 20 or len(judge.in_flight) >= self._depth):
            return self._complete(0, amount, value)
        count = self._proposed(amount)
        if line.num_placeholders:
            return Append(request, (UNKNOWN,) * count)
        if value & 1:
            return Append(request, self._tokens(count, value))
        return Append(request, (*self._tokens(amount & 1, value), *(UNKNOWN,) * count))

    def _proposed(self, amount: int) -> int:
        """How many drafts: around block boundaries."""
        return self._grow[(amount >> 1) % len(self._grow)]

    def _lookup(self, who: int, amount: int, value: int) -> Operation:
        tokens, space = self._prompt(who, amount, value), self._space(who)
        if Capability.MATCH not in self._has:
            return Lookup(tokens, space)
        name = f"m{self._next_match % 3}"
        self._next_match += 1
        self._matches = [match for match in self._matches if match[0] != name]
        self._matches.append((name, tokens, space))
        return Lookup(tokens, space, name)

    def _matched(self, who: int, amount: int, value: int) -> Operation:
        if not self._matches:
            return self._lookup(who, amount, value)
        name, tokens, space = self._matches[who % len(self._matches)]
        return Allocate(self._new_name(), tokens, space, name)

    def _placeholder(self, who: int, amount: int, value: int) -> Operation:
        if not self._lines:
            return self.admission((0, who, amount, value))
        request = self._line(who)
        if not self._drafts:
            return Append(request, (UNKNOWN,) * (1 + (amount & 1)))
        self._begun = request
        return Append(request, (UNKNOWN,) * self._proposed(amount))

    def _fill(self, who: int, amount: int, value: int) -> Operation:
        unnamed = [(request, line) for request, line in self._lines.items() if line.num_placeholders]
        if not unnamed:
            return self._dispatch(who, amount, value)
        request, line = unnamed[who % len(unnamed)]
        places = [at for at, token in enumerate(line.tokens) if token == UNKNOWN]
        position = places[(amount >> 1) % len(places)]
        both = amount & 1 and line.tokens[position + 1 : position + 2].tolist() == [UNKNOWN]
        return Fill(request, position, self._tokens(2 if both else 1, value))

    def _reset(self, who: int, amount: int, value: int) -> Operation:
        return Reset()

    # ---- what must be refused ----------------------------------------------------------------------------------------

    def _invalid(self, who: int, amount: int, value: int) -> Operation:
        """An operation that must be refused: every kind of bad input there is. Where nothing else is, a double free."""
        maker = _INVALID[amount % len(_INVALID)]
        return maker(self, who, value) or Free(self._freed if self._freed not in self._lines else "nobody")

    def _bad_request(self, who: int, value: int) -> Operation | None:
        return Allocate(self._line(who), self._prompt(who, 0, value)) if self._lines else None

    def _bad_prompt(self, who: int, value: int) -> Operation | None:
        return Allocate(self._new_name(), _BAD_TOKENS[value % len(_BAD_TOKENS)])

    def _bad_lookup(self, who: int, value: int) -> Operation | None:
        bad = _BAD_TOKENS[value % len(_BAD_TOKENS)]
        return Lookup(bad) if Capability.LOOKUP in self._has else None

    def _bad_append(self, who: int, value: int) -> Operation | None:
        return Append(self._line(who), _BAD_TOKENS[value % len(_BAD_TOKENS)])

    def _unknown_append(self, who: int, value: int) -> Operation | None:
        return Append("nobody", (0,))

    def _over_dispatch(self, who: int, value: int) -> Operation | None:
        line = self._lines.get(request := self._line(who))
        left = len(line.tokens) - line.scheduled if line else 0
        return self._step(((request, (left + 1, 0, -1, 1 << 20)[value & 3]),))

    def _half_bad_dispatch(self, who: int, value: int) -> Operation | None:
        """Something valid first: none of it may have happened."""
        work = [(request, 1) for request, line in self._lines.items() if len(line.tokens) > line.scheduled]
        return self._step((*work, ("nobody", 1)))

    def _empty_dispatch(self, who: int, value: int) -> Operation | None:
        return self._step(())

    def _repeated_dispatch(self, who: int, value: int) -> Operation | None:
        for request, line in self._lines.items():
            if len(line.tokens) > line.scheduled:
                return self._step(((request, 1), (request, 1)))
        return None

    def _complete_twice(self, who: int, value: int) -> Operation | None:
        if value & 1 and len(self._session.judge.in_flight) > 1:
            return self._complete_early(who, value)
        done = [step for step, (passage, _) in self._session.steps.items() if passage.done]
        return Complete(done[-1 - who % len(done)]) if done else None

    def _complete_early(self, who: int, value: int) -> Operation | None:
        waiting = [step for step, (passage, _) in self._session.steps.items() if not passage.done]
        return Complete(waiting[-1]) if len(waiting) > 1 else self._complete_twice(who, value)

    def _bad_truncate(self, who: int, value: int) -> Operation | None:
        if Capability.TRUNCATE not in self._has:
            return None
        line = self._lines.get(request := self._line(who))
        return Truncate(request, (line.base - 1, len(line.tokens) + 1, -1)[value % 3] if line else 0)

    def _bad_fork(self, who: int, value: int) -> Operation | None:
        """A name that is taken, or a parent that is not computed."""
        if Capability.FORK not in self._has:
            return None
        if value & 1:
            return Fork(self._line(who), self._line(who + 1))
        for request, line in self._lines.items():
            if line.in_flight or line.num_placeholders or line.computed < len(line.tokens):
                return Fork(request, self._new_name())
        return Fork("nobody", self._new_name())

    def _bad_fill(self, who: int, value: int) -> Operation | None:
        """A position that is named, negative or beyond the end, or a name that is none."""
        if Capability.FILL not in self._has:
            return None
        line = self._lines.get(request := self._line(who))
        length = len(line.tokens) if line else 1
        if value & 4:
            return Fill(request, max(0, length - 1), _BAD_TOKENS[value % len(_BAD_TOKENS)])
        return Fill(request, (0, length, -1, length - 1)[value & 3], (0, 0) if value & 8 else (0,))

    def _other_match(self, who: int, value: int) -> Operation | None:
        """A match that was made for other tokens, or for another namespace."""
        if not self._matches:
            return None
        name, tokens, space = self._matches[who % len(self._matches)]
        if value & 1 and Capability.NAMESPACES in self._has:
            return Allocate(self._new_name(), tokens, NAMESPACES[1] if space != NAMESPACES[1] else (), name)
        return Allocate(self._new_name(), (*tokens[:-1], tokens[-1] + 1), space, name)


_HUNDRED = tuple(kind for kind, weight in KINDS.items() for _ in range(weight))
"""The kind of each number from 0 to 99."""


def _stand_in(kind: str, off: set[str]) -> str:
    while kind in off:
        kind = _INSTEAD.get(kind, "allocate")
    return kind


_INVALID: tuple[Callable[[Moves, int, int], Operation | None], ...] = (
    Moves._bad_request,
    Moves._bad_prompt,
    Moves._bad_lookup,
    Moves._bad_append,
    Moves._unknown_append,
    Moves._over_dispatch,
    Moves._half_bad_dispatch,
    Moves._empty_dispatch,
    Moves._repeated_dispatch,
    Moves._complete_twice,
    Moves._complete_early,
    Moves._bad_truncate,
    Moves._bad_fork,
    Moves._bad_fill,
    Moves._other_match,
    lambda moves, who, value: None,  # a double free
)
