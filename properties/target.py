"""What a core must offer to be tested: the target protocol.

A target is an adapter around one core. The Session drives it with plain values and reads back what it chose. What a
core cannot do, it leaves out of its `capabilities`; operations and properties that need it are then skipped, and the
summary says so. "How to test your own core" in docs/ walks through a complete adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from reference import Policy

from .configuration import UNKNOWN, Configuration, Namespace, Tokens
from .footprint import entries

__all__ = [
    "Adapter",
    "Capability",
    "Claim",
    "Counts",
    "Found",
    "Inspection",
    "Numbers",
    "Refused",
    "Renaming",
    "Pad",
    "StepArrays",
    "StepView",
    "Target",
    "TargetFactory",
]


class Capability(Enum):
    """What a target can do beyond allocate, append, dispatch, complete and free of known requests."""

    LOOKUP = "lookup without allocating"
    MATCH = "a lookup's answer can be passed to allocate"
    FILL = "placeholders in append, named later"
    OVERLAP = "several steps in flight"
    TRUNCATE = "truncate"
    FORK = "fork"
    RESET = "reset"
    NAMESPACES = "namespaces"
    HASH = "the hash's width can be chosen"
    BATCH = "a step shows tables, slots, positions and packed rows"
    PADDING = "a step's arrays can be filled up to fixed sizes, for CUDA graphs"
    REFUSES = "invalid operations are refused"
    ERRORS = "each kind of invalid operation has its own error"
    INSPECT = "reference counts and published blocks can be read"
    CONTENTS = "what the index claims for each published block can be read"
    CHECK = "the core can check itself"
    CLONE = "state can be cloned and has a canonical form"
    COUNTERS = "counters of what has happened can be read"
    FOOTPRINT = "how much the core holds can be counted"
    KEYS = "its keys leave the process, and can be read"


class Refused(Exception):
    """The target refused an operation. `kind` names the reason (see `reference.Judge`): "OutOfBlocks", ..."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message or kind)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup says: hit tokens, the blocks that hold them, and the core's own answer for a later allocate."""

    tokens: int
    blocks: Sequence[int] | None = None
    handle: Any = None


class Claim:
    """What an index claims for a block: `tokens` (one block, int32 bytes) after `before`, a claim or a namespace.

    Blocks with a common prefix share its claims, so that all contents together are no larger than the pool.
    """

    __slots__ = ("before", "tokens")

    def __init__(self, before: Claim | Namespace, tokens: bytes) -> None:
        self.before = before
        self.tokens = tokens

    def describe(self) -> tuple[Namespace, tuple[int, ...]]:
        """(namespace, all tokens). O(tokens)."""
        pieces = [self.tokens]
        before = self.before
        while isinstance(before, Claim):
            pieces.append(before.tokens)
            before = before.before
        return before, tuple(memoryview(b"".join(reversed(pieces))).cast("i"))


@dataclass(slots=True)
class StepView:
    """A dispatched step. arrays: its metadata as plain lists, made when asked for; None without BATCH.

    copies: (source, destination) blocks. starts: with admission by "step", for each request that the step admitted, the
    first position that it computes; requests that did not fit, at the end of the work, have none. padded: the same
    arrays filled up to so many rows and sequences, as a captured graph would read them; None without PADDING.
    """

    handle: Any
    copies: Sequence[tuple[int, int]] = ()
    arrays: Callable[[], StepArrays] | None = None
    starts: Sequence[int] = ()
    padded: Pad | None = None


@dataclass(slots=True)
class StepArrays:
    """A step's metadata as plain lists.

    For S sequences and T rows: tables [S] lists of blocks, context_lengths [S], cu_seqlens [S + 1], packed_rows [T],
    row_sequences [T], positions [T], slots [T] (-1 writes nothing).
    """

    tables: Sequence[Sequence[int]]
    context_lengths: Sequence[int]
    cu_seqlens: Sequence[int]
    packed_rows: Sequence[int]
    row_sequences: Sequence[int]
    positions: Sequence[int]
    slots: Sequence[int]


Pad = Callable[[int, int], StepArrays]
"""Rows and sequences, at least as many as the step has; its arrays filled up to so many."""


class Counts(NamedTuple):
    """A core's counters since it was made; None for what it does not count.

    queried: tokens of admitted requests, at their admission. hit: those of them that were hit. evicted: published
    blocks that were taken for other content. refused: operations refused because there were too few blocks, for now or
    for good. copied: blocks that were copied before a write, because others hold them."""

    queried: int | None = None
    hit: int | None = None
    evicted: int | None = None
    refused: int | None = None
    copied: int | None = None


@dataclass(slots=True)
class Inspection:
    """The core's whole bookkeeping, copied. Orders are None where the core has none to show.

    references [N]: reference count of each block. published [N]: whether the index names it. tables: by live request.
    lengths: by live request, (tokens, scheduled, computed). free, cached: in the order in which they would be taken.
    """

    references: list[int]
    published: list[bool]
    tables: dict[str, list[int]]
    lengths: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    free: list[int] | None = None
    cached: list[int] | None = None


class Numbers(dict[int, int]):
    """Numbers by first appearance: what is looked up and not there gets the next one. UNKNOWN stays what it is."""

    def __missing__(self, name: int) -> int:
        number = self[name] = UNKNOWN if name == UNKNOWN else len(self)
        return number


@dataclass(slots=True)
class Renaming:
    """New names, a one-to-one map for each: `blocks` [N] by block, `tokens` by token, `requests` by live request.

    order: the blocks in the order of their new names. tokens: of those not in it, `Numbers` makes up more."""

    blocks: Sequence[int]
    order: Sequence[int]
    tokens: Numbers
    requests: Mapping[str, Any]


def _not_written() -> NotImplementedError:
    """What a method raises whose capability is claimed, and that the adapter does not write."""
    return NotImplementedError()


class Target(Protocol):
    """One core, fresh and empty. Every method either does what it says or raises one of `refusals` and changes nothing.

    Any other exception is a violation (CRASH). Requests are strings; step handles are whatever `dispatch` put in its
    view. Anything that has these methods is a target; `Adapter` is this class as a base to derive from. The methods
    that not every core has are needed only with the capability that is named above them."""

    name: str
    capabilities: frozenset[Capability]
    policy: Policy
    refusals: tuple[type[Exception], ...]
    """Exceptions that mean "refused". `kind` names the reason."""

    def kind(self, error: Exception) -> str:
        raise NotImplementedError

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        """Admit; returns the hit tokens (0 with admission by "step"). `handle` is None or what an earlier `lookup` said
        in its answer."""
        raise NotImplementedError

    def append(self, request: str, tokens: Tokens) -> None:
        raise NotImplementedError

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        raise NotImplementedError

    def complete(self, handle: Any) -> None:
        raise NotImplementedError

    def free(self, request: str) -> None:
        raise NotImplementedError

    def table(self, request: str) -> list[int]:
        """The block table of a live request, as a list that the core will not change later."""
        raise NotImplementedError

    # LOOKUP
    def lookup(self, tokens: Tokens, namespace: Namespace) -> Found:
        raise _not_written()

    # FILL
    def fill(self, request: str, position: int, tokens: Tokens) -> None:
        raise _not_written()

    # TRUNCATE
    def truncate(self, request: str, length: int) -> None:
        raise _not_written()

    # FORK
    def fork(self, request: str, child: str) -> None:
        raise _not_written()

    # RESET
    def reset(self) -> None:
        raise _not_written()

    # INSPECT
    def counts(self) -> tuple[int, int, int]:
        """(free, cached, active) blocks, as the core counts them."""
        raise _not_written()

    def states(self, blocks: Sequence[int]) -> list[tuple[int, bool]]:
        """(reference count, published) of each of `blocks`."""
        raise _not_written()

    def inspect(self) -> Inspection:
        raise _not_written()

    # CONTENTS
    def contents(self) -> dict[int, Claim]:
        """For each published block: the namespace and the whole token history that the index claims for it."""
        raise _not_written()

    # CHECK
    def check(self) -> None:
        """The core's own invariant check; raises anything but a refusal if something is broken."""
        raise _not_written()

    # CLONE
    def clone(self) -> Target:
        """A target in the same state that goes on by itself. Earlier lookups' handles are worth nothing to it."""
        raise _not_written()

    def same_step(self, handle: Any) -> Any:
        """Of a fresh clone: its own handle for the step in flight that is `handle` in the target that was cloned."""
        raise _not_written()

    def canonical(self, renaming: Renaming | None = None) -> Any:
        """The whole state as nested tuples of plain values; equal exactly if the targets behave alike.

        With `renaming`, as if blocks, tokens and requests had those names: equal exactly if the targets behave alike
        up to names. No counter that only grows may be in it."""
        raise _not_written()

    # COUNTERS
    def counters(self) -> Counts:
        """What the core has counted."""
        raise _not_written()

    # FOOTPRINT
    def footprint(self) -> int:
        """How much the core holds, in entries of containers or in any other unit that grows with them."""
        raise _not_written()

    # KEYS
    def keys(self) -> Mapping[int, bytes]:
        """For each published block: the key under which other processes know its content."""
        raise _not_written()

    def noticed(self) -> dict[str, int]:
        """Counts of sometimes-events that only the core's side can see (hash collisions); {} if none."""
        return {}


class Adapter(Target):
    """A base for adapters: the usual refusal, a name, and no capability until some are claimed. A subclass sets
    `policy` and writes `allocate`, `append`, `dispatch`, `complete`, `free` and `table`, and the methods of the
    capabilities it claims."""

    name = ""
    capabilities = frozenset()
    refusals = (Refused,)

    def __init_subclass__(cls) -> None:
        cls.name = cls.name or cls.__name__

    def kind(self, error: Exception) -> str:
        assert isinstance(error, Refused)
        return error.kind

    def footprint(self) -> int:
        """Everything that the adapter's attributes reach. O(that)."""
        return entries(*vars(self).values())


TargetFactory = Callable[[Configuration], Target]
