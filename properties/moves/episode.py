"""An episode: how it is shaped, what has happened in it, and the values that its moves are made of.

It reads a session's judge to see what is live, and changes nothing there.
"""

from __future__ import annotations

from typing import NamedTuple

from reference import Sequence as CachedSequence

from ..operations import Allocate, Dispatch, Namespace, Operation, Tokens, Truncate
from ..session import Session
from ..target import Capability

__all__ = ["NAMESPACES", "Episode", "Swarm"]

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

_SEEN = 12
"""Token sequences that are remembered, to share prefixes with."""


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


class Episode:
    """What an episode has seen, and what a move's numbers stand for in it: names, prompts, namespaces, lengths.

    live: the session's live requests. off: kinds of moves that are left out. begun: the request that the last fork or
    truncation left in a state worth going on with. cut: what the last truncation cut off.
    """

    def __init__(self, session: Session, swarm: Swarm, off: set[str]) -> None:
        """O(1)."""
        self.session = session
        self.live = session.judge.sequences
        self.swarm = swarm
        self.off = off
        capabilities = session.capabilities
        self.capabilities = capabilities
        policy = session.judge.policy
        size = self.size = policy.block_size
        lengths = {1}
        for blocks in range(1, swarm.reach + 1):
            lengths |= {blocks * size - 1, blocks * size, blocks * size + 1}
        self.pool = session.judge.max_tokens
        self.lengths = sorted(length for length in lengths if 0 < length <= self.pool)
        self.growths = sorted({1, 2, max(1, size - 1), size, size + 1, 2 * size})
        self.tile = _TILES[swarm.alphabet]
        self.spaces = [NAMESPACES[index] for index in swarm.spaces] if Capability.NAMESPACES in capabilities else [()]
        self.drafts = policy.truncates == "placeholders"  # and nothing else is cut
        self.alone = Capability.OVERLAP not in capabilities  # nothing happens while a step is in flight
        self.depth = swarm.depth if not self.alone else 1
        self.seen: list[tuple[int, ...]] = [()]
        self.seen_at = 0
        self.matches: list[tuple[str, Tokens, Namespace]] = []
        self.next_match = 0
        self.next_step = 1
        self.freed = "nobody"
        self.under = ""  # a request with generated blocks
        self.upon: Allocate | None = None  # the one whose prompt was built on all of them, while it is needed
        self.whole: Allocate | None = None  # the same, to be asked for once more
        self.cut: tuple[int, ...] = ()  # what the last truncation cut off
        self.begun = ""  # the request that the last fork or truncation left in a state worth going on with

    def admission(self, move: tuple[int, int, int, int]) -> Operation:
        """`move` as an Allocate, whatever its kind and however full the pool is: to begin an episode with."""
        _, who, amount, value = move
        return Allocate(self.new_name(), self.prompt(who, amount, value), self.space(who))

    def tokens(self, count: int, value: int) -> tuple[int, ...]:
        tile = self.tile[value & 31]
        return (tile * (count // len(tile) + 1))[:count]

    def prompt(self, who: int, amount: int, value: int) -> tuple[int, ...]:
        """A prompt that shares a prefix with an earlier sequence, often up to a block boundary or one off."""
        seen = self.seen
        length = self.lengths[amount % len(self.lengths)]
        if 60 <= amount < 63:  # the whole pool, or one token more
            length = self.pool + (amount & 1)
        prompt = seen[(who & 15) % len(seen)][:length]
        if who & 15 >= 11 and self.live:  # what a live request has become: its generated blocks can be hit, too
            request = self.request(who)
            sequence = self.live[request]
            if not sequence.num_placeholders or self.drafts:
                prompt = tuple(sequence.tokens[: min(length, sequence.num_named)])
        if value >= 32 and prompt:
            prompt = prompt[: -(1, self.size)[value >> 6]]
        if len(prompt) < length:
            prompt += self.tokens(length - len(prompt), value)
        self.remember(prompt)
        return prompt

    def remember(self, tokens: tuple[int, ...]) -> None:
        if tokens in self.seen:
            return
        if len(self.seen) < _SEEN:
            self.seen.append(tokens)
        else:
            self.seen_at = self.seen_at % (_SEEN - 1) + 1
            self.seen[self.seen_at] = tokens

    def space(self, who: int) -> Namespace:
        return self.spaces[(who >> 4) % len(self.spaces)]

    def space_of(self, sequence: CachedSequence) -> Namespace:
        return next((space for space in self.spaces if space == sequence.namespace), ())

    def request(self, who: int) -> str:
        """A live request; "nobody" if there is none."""
        live = self.live
        return list(live)[who % len(live)] if live else "nobody"

    def new_name(self) -> str:
        """The lowest name that is not live: names come back soon, while steps of their last bearer are in flight."""
        live = self.live
        number = 0
        while (name := f"r{number}") in live:
            number += 1
        return name

    def step(self, work: tuple[tuple[str, int], ...]) -> Operation:
        self.next_step += 1
        return Dispatch(self.next_step - 1, work)

    def cut_to(self, request: str, sequence: CachedSequence, length: int) -> Operation:
        self.cut = tuple(sequence.tokens[length:]) if not sequence.num_placeholders else ()
        return Truncate(request, length)

    def proposed(self, amount: int) -> int:
        """How many drafts: around block boundaries."""
        return self.growths[(amount >> 1) % len(self.growths)]

    @property
    def telling(self) -> bool:
        """Whether a story has begun that the next moves had better go on with."""
        return self.upon is not None or self.whole is not None or self.begun in self.live
