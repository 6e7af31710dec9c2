"""What there is to explore: a configuration, bounds, and the operations of a state within them.

Every choice that a caller has is enumerated, but for names, which carry no meaning: a new request takes the first free
name, and of the tokens that occur nowhere in a state only the first is tried. Lengths are bounded by `max_tokens`,
since a pool bounds blocks and not how often a caller tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import permutations, product
from typing import Any, NamedTuple

from properties.moves import NAMESPACES
from properties.operations import (
    OPERATIONS,
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
    Operation,
    Reset,
    Truncate,
    for_every_kind,
)
from properties.session import Session
from properties.target import Capability
from reference import Sequence as CachedSequence

__all__ = ["KINDS", "NAMES", "BadSpace", "Space"]

NAMES = "abcdefghijklmnopqrstuvwxyz"


class BadSpace(ValueError):
    """Bounds that make no sense. Says what was given and what is allowed."""


@dataclass(frozen=True)
class Space:
    """A configuration and bounds.

    alphabet: different tokens. requests: live at a time. steps: in flight at a time. max_tokens: longest sequence; 0
    stands for the whole pool. namespaces: how many of `properties.moves.NAMESPACES`. drafts: most tokens of one append.
    placeholders: unnamed tokens, too. whole_steps: a step carries one request, with any count, or all that is
    unscheduled of all; else any requests in any order, with any counts. without: kinds left out.
    """

    configuration: Configuration = field(default_factory=lambda: Configuration(num_blocks=3, block_size=2))
    alphabet: int = 2
    requests: int = 2
    steps: int = 1
    max_tokens: int = 0
    namespaces: int = 1
    drafts: int = 1
    placeholders: bool = False
    whole_steps: bool = False
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.configuration.hash_bits not in (0, 128):
            raise BadSpace(
                f"hash bits are {self.configuration.hash_bits}; give 128 or 0: with others it depends on the tokens' "
                "values which of them collide, so states that differ in names of tokens only are not the same"
            )
        for name, low, high in (
            ("alphabet", 1, 16),
            ("requests", 1, len(NAMES)),
            ("steps", 1, 16),
            ("max_tokens", 0, 64),
            ("namespaces", 1, len(NAMESPACES)),
            ("drafts", 1, 16),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise BadSpace(f"{name} is {value}; give {low} to {high}")
        if unknown := sorted(set(self.without) - set(KINDS)):
            raise BadSpace(f"cannot leave out {', '.join(unknown)}; can be left out: {', '.join(KINDS)}")

    @property
    def longest(self) -> int:
        """The longest sequence."""
        return self.max_tokens or self.configuration.num_blocks * self.configuration.block_size

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "without": sorted(self.without)}

    def within(self, capabilities: frozenset[Capability]) -> Space:
        """As much of it as a target with `capabilities` can do."""
        needs = {kind: OPERATIONS[kind].needs for kind in KINDS}
        lacking = {kind for kind, needed in needs.items() if needed is not None and needed not in capabilities}
        return Space(
            self.configuration,
            self.alphabet,
            self.requests,
            self.steps if Capability.OVERLAP in capabilities else 1,
            self.max_tokens,
            self.namespaces if Capability.NAMESPACES in capabilities else 1,
            self.drafts,
            self.placeholders and Capability.FILL in capabilities,
            self.whole_steps,
            tuple(sorted({*self.without, *lacking})),
        )

    def operations(self, session: Session, known: Iterable[int]) -> Iterator[Operation]:
        """Every operation in this state, in a fixed order. `known`: tokens that occur in it."""
        state = self._state(session, known)
        for kind, makes in _FIRST.items():
            if kind not in self.without:
                yield from makes(self, state)
        each = [makes for kind, makes in _EACH.items() if kind not in self.without]
        for request, sequence in session.judge.sequences.items():
            for of_one in each:
                yield from of_one(self, state, request, sequence)
        for kind, makes in _LAST.items():
            if kind not in self.without:
                yield from makes(self, state)

    def lookups(self, session: Session, known: Iterable[int]) -> Iterator[Operation]:
        """Everything that can be asked in this state: also what could not be allocated."""
        state = self._state(session, known)
        for kind, makes in _ASKING.items():
            if kind not in self.without:
                yield from makes(self, state)

    def _state(self, session: Session, known: Iterable[int]) -> _State:
        live = session.judge.sequences
        name = next((name for name in NAMES if name not in live), "") if len(live) < self.requests else ""
        return _State(session, tuple(token for token in range(self.alphabet) if token in known), name)


class _State(NamedTuple):
    """tokens: those that occur, in order. name: what a new request is called; "" if there may be none."""

    session: Session
    tokens: tuple[int, ...]
    name: str


# ---- one function a kind: every operation of it in a state -----------------------------------------------------------


def _allocate(space: Space, state: _State) -> Iterator[Operation]:
    if state.name:
        for prompt in _prompts(state.tokens, space.alphabet, space.longest):
            for namespace in NAMESPACES[: space.namespaces]:
                yield Allocate(state.name, prompt, namespace)


def _append(space: Space, state: _State, request: str, sequence: CachedSequence) -> Iterator[Operation]:
    most = min(space.drafts, space.longest - len(sequence.tokens))
    if most > 0:
        for new in _prompts(state.tokens, space.alphabet, most):
            yield Append(request, new)
        if space.placeholders:
            yield Append(request, (UNKNOWN,))


def _fill(space: Space, state: _State, request: str, sequence: CachedSequence) -> Iterator[Operation]:
    if sequence.num_placeholders:
        at = sequence.tokens.index(UNKNOWN)
        for new in _prompts(state.tokens, space.alphabet, 1):
            yield Fill(request, at, new)


def _truncate(space: Space, state: _State, request: str, sequence: CachedSequence) -> Iterator[Operation]:
    for shorter in range(len(sequence.tokens) - 1, sequence.base - 1, -1):
        yield Truncate(request, shorter)


def _fork(space: Space, state: _State, request: str, sequence: CachedSequence) -> Iterator[Operation]:
    if state.name:
        yield Fork(request, state.name)


def _free(space: Space, state: _State, request: str, sequence: CachedSequence) -> Iterator[Operation]:
    yield Free(request)


def _dispatch(space: Space, state: _State) -> Iterator[Operation]:
    judge = state.session.judge
    if len(judge.in_flight) < space.steps:
        unscheduled = [
            (request, len(sequence.tokens) - sequence.scheduled)
            for request, sequence in judge.sequences.items()
            if len(sequence.tokens) > sequence.scheduled
        ]
        for work in _works(unscheduled, space.whole_steps):
            yield Dispatch(judge.dispatched + 1, work)


def _complete(space: Space, state: _State) -> Iterator[Operation]:
    in_flight = state.session.judge.in_flight
    if in_flight:
        steps = state.session.steps
        yield Complete(next(number for number, (step, _) in steps.items() if step is in_flight[0]))


def _reset(space: Space, state: _State) -> Iterator[Operation]:
    yield Reset()


def _lookup(space: Space, state: _State) -> Iterator[Operation]:
    for prompt in _prompts(state.tokens, space.alphabet, space.longest):
        for namespace in NAMESPACES[: space.namespaces]:
            yield Lookup(prompt, namespace)


def _works(unscheduled: Sequence[tuple[str, int]], whole: bool) -> Iterator[tuple[tuple[str, int], ...]]:
    """What one step may schedule."""
    for size in range(1, len(unscheduled) + 1):
        if whole and 1 < size < len(unscheduled):
            continue
        if whole and size > 1:
            yield tuple(unscheduled)
            continue
        for chosen in permutations(unscheduled, size):
            for counts in product(*(range(1, most + 1) for _, most in chosen)):
                yield tuple((request, count) for (request, _), count in zip(chosen, counts, strict=True))


_Makes = Callable[[Space, _State], Iterator[Operation]]
_FIRST: dict[str, _Makes] = {"allocate": _allocate}
_EACH: dict[str, Callable[[Space, _State, str, CachedSequence], Iterator[Operation]]] = {
    "append": _append,
    "fill": _fill,
    "truncate": _truncate,
    "fork": _fork,
    "free": _free,
}
"""Tried for each live request."""
_LAST: dict[str, _Makes] = {"dispatch": _dispatch, "complete": _complete, "reset": _reset}
_ASKING: dict[str, _Makes] = {"lookup": _lookup}
"""What changes nothing: see `Space.lookups`."""

_ENUMERATED = for_every_kind("fuzz.explore.space", {**_FIRST, **_EACH, **_LAST, **_ASKING})

KINDS = tuple(kind for kind in _ENUMERATED if kind not in ("allocate", "dispatch", "complete", "fill"))
"""What `without` may leave out."""


@cache
def _prompts(known: tuple[int, ...], alphabet: int, longest: int) -> tuple[tuple[int, ...], ...]:
    """All sequences of 1 to `longest` tokens up to the names of those that are not `known`; shortest first."""
    unknown = [token for token in range(alphabet) if token not in known]
    shorter: list[tuple[tuple[int, ...], int]] = [((), 0)]  # and how many unknown tokens it has introduced
    found: list[tuple[int, ...]] = []
    for _ in range(longest):
        longer = []
        for prompt, new in shorter:
            for token in sorted((*known, *unknown[:new])):
                longer.append(((*prompt, token), new))
            if new < len(unknown):
                longer.append(((*prompt, unknown[new]), new + 1))
        found += [prompt for prompt, _ in longer]
        shorter = longer
    return tuple(found)
