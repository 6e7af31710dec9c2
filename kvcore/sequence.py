"""One request's logical view of the cache, and the steps that carry it.

The life of a token: appended (it has a place in a table) -> scheduled (a dispatched step computes it) -> computed (that
step has completed). The life of the blocks follows: a table covers all tokens, computed or not; full computed blocks
are published. Three counters say where each sequence stands, and always 0 <= computed <= scheduled <= len(tokens).

This room may not know: the pool, the index. It holds state; `manager.py` moves it.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable

from .batch import Batch
from .identity import Namespace

__all__ = ["Flight", "PendingCopy", "Sequence", "Step"]


class PendingCopy:
    """A copy-on-write that no step carries yet. It holds the reference on `source` that the table gave up.

    `length` is the sequence's length when the table was switched: as long as tokens beyond it are left, the copy is needed.
    """

    __slots__ = ("destination", "length", "source")

    def __init__(self, source: int, destination: int, length: int) -> None:
        self.source = source
        self.destination = destination
        self.length = length


class Flight:
    """Positions start to end of one sequence in one dispatched step. A truncation clips it, so that it counts no more."""

    __slots__ = ("end", "sequence", "source", "start", "step")

    def __init__(self, step: int, sequence: Sequence, start: int, end: int, source: int) -> None:
        self.step = step
        self.sequence = sequence
        self.start = start
        self.end = end
        self.source = source  # the source block of the copy that the step carries for this sequence, or -1


class Sequence:
    """A request in the cache. Read it freely; only the manager changes it.

    request: the id given at allocation or fork.
    namespace: what else its K/V depend on.
    tokens: all tokens, int32; `UNKNOWN` where not named yet.
    table: the block table, physical blocks in logical order, int32; len(table) = ceil(len(tokens) / block_size).
    num_hit_tokens: tokens taken from the cache at allocation.
    base: length at allocation or fork; truncation stops there.
    scheduled, computed: see the head of this module.
    published: leading blocks that this sequence has published or found published.
    """

    __slots__ = (
        "base",
        "computed",
        "deferred",
        "epoch",
        "flights",
        "freed",
        "links",
        "namespace",
        "num_hit_tokens",
        "pending",
        "published",
        "request",
        "scheduled",
        "table",
        "tokens",
        "unnamed",
        "written_from",
    )

    def __init__(
        self,
        request: Hashable,
        namespace: Namespace,
        tokens: array[int],
        table: array[int],
        epoch: int,
    ) -> None:
        self.request = request
        self.namespace = namespace
        self.tokens = tokens
        self.table = table
        self.epoch = epoch  # of the manager's resets; an older sequence never publishes again
        self.base = len(tokens)
        self.num_hit_tokens = 0
        self.scheduled = 0
        self.computed = 0
        self.published = 0
        self.written_from = 0  # positions below have their K/V in the cache since allocation
        self.unnamed = 0  # how many tokens are UNKNOWN
        self.freed = False
        self.pending: PendingCopy | None = None
        self.flights: list[Flight] = []  # oldest first
        self.deferred: list[tuple[int, list[int]]] = []  # (step, blocks cut off while it was in flight)
        self.links: list[bytes] = []  # of the prompt's full blocks (see `prefix.py`), until they are published

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return (
            f"<Sequence {self.request!r}: {len(self.tokens)} tokens, {self.scheduled} scheduled, "
            f"{self.computed} computed, table {self.table.tolist()}>"
        )


class Step:
    """One dispatched step. Run `copies`, then the kernels on `batch`; then give it to `BlockManager.complete`.

    number: order of dispatch, from 0.
    requests: ids in the order of the batch.
    copies: (source, destination) blocks to copy whole before anything is written.
    batch: the metadata arrays, or None if it was dispatched with batch=False.
    """

    __slots__ = ("batch", "completed", "copies", "flights", "number")

    def __init__(
        self, number: int, flights: list[Flight], copies: tuple[tuple[int, int], ...], batch: Batch | None
    ) -> None:
        self.number = number
        self.flights = flights
        self.copies = copies
        self.batch = batch
        self.completed = False

    @property
    def requests(self) -> list[Hashable]:
        return [flight.sequence.request for flight in self.flights]

    def __repr__(self) -> str:
        return f"<Step {self.number}: {self.requests!r}{', completed' if self.completed else ''}>"
