"""What the judge knows of a request: its sequence, its block tables, and the steps that carry it.

    position   0                written_from        computed        scheduled          len(tokens)
               |---- hit ------------|---- computed ----|---- in flight ----|---- not scheduled ----|

    blocks     [ released  |  published  |  full or partly written  |  taken, not yet written ]
               0      num_released   published                 ceil(scheduled / size)     len(blocks)

All intervals are half-open, and 0 <= computed <= scheduled <= len(tokens). A hit is computed from the start; where the
whole prompt is hit, its last token is computed again and written nowhere, so that `written_from` is one more than
`computed`.

Who owns the blocks of a sequence, from the left: blocks that were released (a window passed them) are nobody's; the
table has the reserved block in their places. Blocks that were hit or forked are shared with others. The rest are the
sequence's alone until they are published; from then on others may hit them. Nobody writes to a shared block: where
tokens would be appended to one, a pending copy takes its place first. Blocks that a truncation cut off belong to the
steps in flight (`deferred`).
"""

from __future__ import annotations

from array import array
from collections import abc
from collections.abc import Hashable
from typing import NamedTuple

from .groups import Group
from .histories import Histories

__all__ = [
    "MAX_TOKEN",
    "UNKNOWN",
    "GroupTable",
    "PendingCopy",
    "Sequence",
    "Span",
    "Step",
    "clone_all",
    "new_tables",
    "others_of",
    "read_tokens",
]

UNKNOWN = -1
"""A placeholder: a token that has a position, and no name yet."""

MAX_TOKEN = 2**31 - 1
"""The largest token."""


class PendingCopy(NamedTuple):
    """The next step that carries the request copies `source` to `destination` first.

    length: of the sequence when its table was switched."""

    source: int
    destination: int
    length: int


class GroupTable:
    """The block table of one sequence in one group of layers.

    blocks: one for each logical block. histories[i]: the history up to the end of logical block i - 1; the first is the
    namespace's. They reach as far as blocks are known to be full and named. num_released: blocks before the window,
    which were released. published: blocks that were published, or hit. written_from: positions before it are hit, and
    written by nobody on this request's account."""

    __slots__ = ("blocks", "group", "histories", "num_released", "published", "written_from")

    def __init__(self, group: Group, histories: list[int]) -> None:
        self.group = group
        self.blocks: list[int] = []
        self.histories = histories
        self.num_released = 0
        self.published = 0
        self.written_from = 0

    def clone(self) -> GroupTable:
        other = GroupTable(self.group, self.histories.copy())
        other.blocks = self.blocks.copy()
        other.num_released = self.num_released
        other.published = self.published
        other.written_from = self.written_from
        return other


class Sequence:
    """One request's tokens and counters.

    base: length at allocate, which no truncation goes below. epoch: how often the cache had been reset then.
    admitted: it has its first blocks (where steps take them, it has none before its first step). num_placeholders: how
    many of the tokens have no name. tables: one for each group of layers. in_flight: steps that carry it, oldest first.
    deferred: blocks that were cut off, with the last step that may use them. freed: only steps in flight use it yet."""

    __slots__ = (
        "admitted",
        "base",
        "computed",
        "deferred",
        "epoch",
        "freed",
        "in_flight",
        "namespace",
        "num_placeholders",
        "pending",
        "request",
        "scheduled",
        "tables",
        "tokens",
    )

    def __init__(
        self, request: str, namespace: Hashable, tokens: array[int], tables: list[GroupTable], epoch: int
    ) -> None:
        self.request = request
        self.namespace = namespace
        self.tokens = tokens
        self.tables = tables
        self.epoch = epoch
        self.base = len(tokens)
        self.scheduled = 0
        self.computed = 0
        self.num_placeholders = 0
        self.admitted = False
        self.freed = False
        self.pending: PendingCopy | None = None
        self.in_flight: list[Step] = []
        self.deferred: list[tuple[Step, list[int]]] = []

    def clone(self, steps: dict[int, Step]) -> Sequence:
        """A copy in the steps that `steps` names by the `id` of this one's. O(tokens + tables)."""
        tables = [table.clone() for table in self.tables]
        other = Sequence(self.request, self.namespace, self.tokens[:], tables, self.epoch)
        other.base = self.base
        other.scheduled = self.scheduled
        other.computed = self.computed
        other.num_placeholders = self.num_placeholders
        other.admitted = self.admitted
        other.freed = self.freed
        other.pending = self.pending
        other.in_flight = [steps[id(step)] for step in self.in_flight]
        other.deferred = [(steps[id(step)], blocks) for step, blocks in self.deferred]  # the blocks never change
        return other

    def extend(self, new: array[int]) -> bool:
        """`new` tokens come at the end. Whether there is a placeholder among them."""
        self.tokens.extend(new)
        if UNKNOWN not in new:
            return False
        self.num_placeholders += new.count(UNKNOWN)
        return True

    @property
    def num_named(self) -> int:
        """How many tokens there are before the first placeholder. O(them) where there is one."""
        return self.tokens.index(UNKNOWN) if self.num_placeholders else len(self.tokens)

    @property
    def table(self) -> list[int]:
        """The blocks of all groups, one group after the other, as the core shows them. Not to be changed."""
        tables = self.tables
        return tables[0].blocks if len(tables) == 1 else [block for table in tables for block in table.blocks]


class Step:
    """One dispatched step. spans: (sequence, start, end) of positions, clipped by truncations. copies: (source,
    destination) of the block copies that it makes before it writes."""

    __slots__ = ("copies", "done", "number", "spans")

    def __init__(self, number: int, spans: list[Span]) -> None:
        self.number = number
        self.spans = spans
        self.copies: list[tuple[int, int]] = []
        self.done = False


Span = tuple[Sequence, int, int]
"""A sequence, and the positions from where to where."""


def new_tables(
    groups: abc.Sequence[Group], histories: Histories, namespace: Hashable, tokens: array[int], block_size: int
) -> list[GroupTable]:
    """Tables without blocks. Histories are a group's own, since one block never holds what two groups compute."""
    tables = []
    for number, group in enumerate(groups):
        space = (f"group {number}", namespace) if number else namespace
        tables.append(GroupTable(group, histories.along(tokens, space, block_size)))
    return tables


def clone_all(
    sequences: dict[str, Sequence], in_flight: list[Step]
) -> tuple[dict[str, Sequence], list[Step], dict[int, Step]]:
    """Copies of live sequences and of the steps in flight, which share what these share; and the steps by the `id` of
    the old ones. O(all tables and tokens)."""
    steps: dict[int, Step] = {}
    for step in in_flight:
        steps[id(step)] = twin = Step(step.number, [])
        twin.copies = step.copies  # never changed once it is there
    twins = {id(sequence): sequence.clone(steps) for sequence in sequences.values()}
    for step in in_flight:
        for sequence, start, end in step.spans:
            if id(sequence) not in twins:  # freed
                twins[id(sequence)] = sequence.clone(steps)
            steps[id(step)].spans.append((twins[id(sequence)], start, end))
    return {name: twins[id(sequence)] for name, sequence in sequences.items()}, [*steps.values()], steps


def read_tokens(tokens: object, lowest: int = 0) -> array[int] | None:
    """`tokens` as an array of its own, or None if they are not acceptable: none, too large, or below `lowest`."""
    try:
        result = array("i", tokens) if type(tokens) is not array else tokens[:]  # type: ignore[call-overload]
    except (TypeError, OverflowError):
        return None
    return result if result and min(result) >= lowest else None


def others_of(block: int, sequence: Sequence, sequences: abc.Mapping[str, Sequence]) -> str:
    """Names of the other live sequences that have a block, for a message; "" if there are none. O(all tables)."""
    return ", ".join(
        repr(other.request)
        for other in sequences.values()
        if other is not sequence and any(block in table.blocks for table in other.tables)
    )
