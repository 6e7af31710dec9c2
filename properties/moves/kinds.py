"""The kinds of moves: a record for each, and what the rarer ones mean.

`MOVES` says of each kind how often it is drawn, what it needs, and what stands for it where it is left out; `INVALID`
lists the calls that must be refused. Every kind of operation must be drawn by some move and, unless it cannot be wrong,
be called wrongly by another; the weights are percent. Where one of these does not hold, the import fails and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Dispatch,
    Fill,
    Fork,
    Free,
    Lookup,
    Operation,
    Reset,
    Truncate,
    for_every_kind,
)
from ..session import Session
from ..target import Capability
from . import invalid as wrong
from .episode import Episode, Swarm
from .life import allocate, append, complete, dispatch, fork, free
from .stories import story

__all__ = ["KINDS", "MOVES", "OPTIONAL", "Move", "Moves"]

# ---- what the rarer kinds mean ---------------------------------------------------------------------------------------


def truncate(episode: Episode, who: int, amount: int, value: int) -> Operation:
    live, shortest = episode.live, episode.session.judge.shortest
    grown = [(request, sequence) for request, sequence in live.items() if len(sequence.tokens) > shortest(sequence)]
    if not grown:
        if not episode.drafts or "placeholder" in episode.off:
            return append(episode, who, amount, value)
        proposed = any(sequence.num_placeholders for sequence in live.values())  # and in flight
        return complete(episode, who, amount, value) if proposed else placeholder(episode, who, amount, value)
    request, sequence = grown[who % len(grown)]
    episode.begun = request
    return episode.cut_to(
        request, sequence, len(sequence.tokens) - 1 - amount % (len(sequence.tokens) - shortest(sequence))
    )


def lookup(episode: Episode, who: int, amount: int, value: int) -> Operation:
    tokens, space = episode.prompt(who, amount, value), episode.space(who)
    if Capability.MATCH not in episode.capabilities:
        return Lookup(tokens, space)
    name = f"m{episode.next_match % 3}"
    episode.next_match += 1
    episode.matches = [match for match in episode.matches if match[0] != name]
    episode.matches.append((name, tokens, space))
    return Lookup(tokens, space, name)


def matched(episode: Episode, who: int, amount: int, value: int) -> Operation:
    if not episode.matches:
        return lookup(episode, who, amount, value)
    name, tokens, space = episode.matches[who % len(episode.matches)]
    return Allocate(episode.new_name(), tokens, space, name)


def placeholder(episode: Episode, who: int, amount: int, value: int) -> Operation:
    if not episode.live:
        return episode.admission((0, who, amount, value))
    request = episode.request(who)
    if not episode.drafts:
        return Append(request, (UNKNOWN,) * (1 + (amount & 1)))
    episode.begun = request
    return Append(request, (UNKNOWN,) * episode.proposed(amount))


def fill(episode: Episode, who: int, amount: int, value: int) -> Operation:
    unnamed = [(request, sequence) for request, sequence in episode.live.items() if sequence.num_placeholders]
    if not unnamed:
        return dispatch(episode, who, amount, value)
    request, sequence = unnamed[who % len(unnamed)]
    places = [at for at, token in enumerate(sequence.tokens) if token == UNKNOWN]
    position = places[(amount >> 1) % len(places)]
    both = amount & 1 and sequence.tokens[position + 1 : position + 2].tolist() == [UNKNOWN]
    return Fill(request, position, episode.tokens(2 if both else 1, value))


def reset(episode: Episode, who: int, amount: int, value: int) -> Operation:
    return Reset()


def invalid(episode: Episode, who: int, amount: int, value: int) -> Operation:
    """An operation that must be refused. Where nothing else is, a double free."""
    _, call = INVALID[amount % len(INVALID)]
    return call(episode, who, value) or wrong.double_free(episode, who, value)


# ---- the tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """One kind of move.

    weight: in percent of all moves. draw: the operation that it is, from (episode, who, amount, value). operations:
    the kinds of operation that it is of use with: a walk that is held to some kinds has it if all are among them;
    None: of any kind, so never there. needs: the capability without which it is left out. instead: what stands for it
    then, followed until something is left in. required: no episode does without. switch: `Swarm.off` has a bit for it.
    """

    name: str
    weight: int
    draw: Callable[[Episode, int, int, int], Operation]
    operations: tuple[type[Operation], ...] | None
    needs: Capability | None = None
    instead: str = "allocate"
    required: bool = False
    switch: bool = True

    def within(self, kinds: frozenset[str]) -> bool:
        """Whether a walk has it that is held to `kinds` of operations (and to what no episode does without)."""
        return self.operations is not None and all(kind.op in kinds | _REQUIRED for kind in self.operations)


MOVES: dict[str, Move] = {
    move.name: move
    for move in (
        Move("allocate", 13, allocate, (Allocate,), required=True),
        Move("dispatch", 19, dispatch, (Dispatch,), required=True),
        Move("append", 14, append, (Append,), instead="dispatch"),
        Move("story", 3, story, (Append, Truncate, Free), instead="append"),
        Move("free", 8, free, (Free,), instead="complete"),
        Move("truncate", 6, truncate, (Truncate,), Truncate.needs, instead="append"),
        Move("fork", 5, fork, (Fork,), Fork.needs, instead="append"),
        Move("lookup", 3, lookup, (Lookup,), Lookup.needs),
        Move("matched", 2, matched, (Lookup, Allocate), Capability.MATCH, instead="lookup"),
        Move("placeholder", 2, placeholder, (Append, Fill), Fill.needs),
        Move("fill", 2, fill, (Fill,), Fill.needs, switch=False),  # goes with the placeholders
        Move("invalid", 4, invalid, None, Capability.REFUSES),
        Move("reset", 1, reset, (Reset,), Reset.needs),
        Move("complete", 18, complete, (Complete,), required=True),
    )
}
"""By name. The simplest first: that is where shrinking goes. A frequent one last: Hypothesis draws both ends of a range
several times as often as what is between."""

KINDS: dict[str, int] = {move.name: move.weight for move in MOVES.values()}

OPTIONAL: tuple[str, ...] = tuple(move.name for move in MOVES.values() if move.switch and not move.required)
"""Kinds that a swarm may leave out: bit i of `Swarm.off`."""

_REQUIRED = frozenset(kind.op for move in MOVES.values() if move.required for kind in move.operations or ())

INVALID: tuple[tuple[type[Operation], Callable[[Episode, int, int], Operation | None]], ...] = (
    (Allocate, wrong.bad_request),
    (Allocate, wrong.bad_prompt),
    (Lookup, wrong.bad_lookup),
    (Append, wrong.bad_append),
    (Append, wrong.unknown_append),
    (Dispatch, wrong.over_dispatch),
    (Dispatch, wrong.half_bad_dispatch),
    (Dispatch, wrong.empty_dispatch),
    (Dispatch, wrong.repeated_dispatch),
    (Complete, wrong.complete_twice),
    (Complete, wrong.complete_early),
    (Truncate, wrong.bad_truncate),
    (Fork, wrong.bad_fork),
    (Fill, wrong.bad_fill),
    (Allocate, wrong.other_match),
    (Free, wrong.double_free),
)
"""Calls that must be refused, with the kind of operation that each is."""

_HUNDRED = tuple(move.name for move in MOVES.values() for _ in range(move.weight))
"""The kind of each number from 0 to 99."""

if len(_HUNDRED) != 100:
    raise TypeError(f"the weights of moves are in percent, and add up to {len(_HUNDRED)}")
for_every_kind("properties.moves.MOVES", {kind.op: move for move in MOVES.values() for kind in move.operations or ()})
for_every_kind("properties.moves.INVALID", {kind.op: call for kind, call in INVALID}, but=(Reset.op,))


class Moves(Episode):
    """The meaning of moves in one episode."""

    def __init__(self, session: Session, swarm: Swarm) -> None:
        """O(kinds)."""
        off = {kind for bit, kind in enumerate(OPTIONAL) if swarm.off >> bit & 1}
        off |= {
            move.name for move in MOVES.values() if move.needs is not None and move.needs not in session.capabilities
        }
        super().__init__(session, swarm, off)
        self.draws = {kind: MOVES[_stand_in(kind, off)].draw for kind in MOVES}

    def operation(self, move: tuple[int, int, int, int]) -> Operation:
        """What `move` means now. O(live requests + tokens of the operation)."""
        number, who, amount, value = move
        return self.make(_HUNDRED[number], who, amount, value)

    def make(self, kind: str, who: int, amount: int, value: int) -> Operation:
        """The same, for a kind that was chosen by name."""
        if self.alone and self.session.judge.in_flight:
            return complete(self, who, amount, value)
        return self.draws[kind](self, who, amount, value)


def _stand_in(kind: str, off: set[str]) -> str:
    while kind in off:
        kind = MOVES[kind].instead
    return kind
