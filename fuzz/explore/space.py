"""What there is to explore: a configuration, bounds, and the operations of a state within them.

Every choice that a caller has is enumerated, but for names, which carry no meaning: a new request takes the first free
name, and of the tokens that occur nowhere in a state only the first is tried. Lengths are bounded by `max_tokens`,
since a pool bounds blocks and not how often a caller tries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import permutations, product
from typing import Any

from properties.moves import NAMESPACES
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
    Operation,
    Reset,
    Truncate,
)
from properties.session import Session
from properties.target import Capability

__all__ = ["KINDS", "NAMES", "BadSpace", "Space"]

NAMES = "abcdefghijklmnopqrstuvwxyz"
KINDS = ("append", "truncate", "fork", "free", "reset", "lookup")
"""What `without` may leave out."""


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
        needs = {
            "truncate": Capability.TRUNCATE,
            "fork": Capability.FORK,
            "reset": Capability.RESET,
            "lookup": Capability.LOOKUP,
        }
        lacking = {kind for kind, capability in needs.items() if capability not in capabilities}
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
        judge, without = session.judge, self.without
        lines = judge.lines
        tokens = tuple(token for token in range(self.alphabet) if token in known)
        name = next((name for name in NAMES if name not in lines), "")
        room = len(lines) < self.requests
        if room:
            for prompt in _prompts(tokens, self.alphabet, self.longest):
                for namespace in NAMESPACES[: self.namespaces]:
                    yield Allocate(name, prompt, namespace)
        for request, line in lines.items():
            length = len(line.tokens)
            if "append" not in without:
                most = min(self.drafts, self.longest - length)
                for new in _prompts(tokens, self.alphabet, most) if most > 0 else ():
                    yield Append(request, new)
                if self.placeholders and most > 0:
                    yield Append(request, (UNKNOWN,))
            if line.unnamed:
                at = line.tokens.index(UNKNOWN)
                for new in _prompts(tokens, self.alphabet, 1):
                    yield Fill(request, at, new)
            if "truncate" not in without:
                for shorter in range(length - 1, line.base - 1, -1):
                    yield Truncate(request, shorter)
            if room and "fork" not in without:
                yield Fork(request, name)
            if "free" not in without:
                yield Free(request)
        if len(judge.in_flight) < self.steps:
            step = judge.dispatched + 1
            waiting = [
                (request, len(line.tokens) - line.scheduled)
                for request, line in lines.items()
                if len(line.tokens) > line.scheduled
            ]
            for work in self._works(waiting):
                yield Dispatch(step, work)
        if judge.in_flight:
            oldest = judge.in_flight[0]
            yield Complete(next(number for number, (passage, _) in session.steps.items() if passage is oldest))
        if "reset" not in without:
            yield Reset()

    def lookups(self, known: Iterable[int]) -> Iterator[Operation]:
        """Everything that can be asked in this state: also what could not be allocated."""
        if "lookup" in self.without:
            return
        tokens = tuple(token for token in range(self.alphabet) if token in known)
        for prompt in _prompts(tokens, self.alphabet, self.longest):
            for namespace in NAMESPACES[: self.namespaces]:
                yield Lookup(prompt, namespace)

    def _works(self, waiting: Sequence[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], ...]]:
        for size in range(1, len(waiting) + 1):
            if self.whole_steps and 1 < size < len(waiting):
                continue
            if self.whole_steps and size > 1:
                yield tuple(waiting)
                continue
            for chosen in permutations(waiting, size):
                for counts in product(*(range(1, most + 1) for _, most in chosen)):
                    yield tuple((request, count) for (request, _), count in zip(chosen, counts, strict=True))


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
