"""One request's logical view of the cache, and the steps that carry it.

The life of a token: appended (it has a place in a table) -> scheduled (a dispatched step computes it) -> computed (that
step has completed). The life of the blocks follows: a table covers all tokens, computed or not; full computed blocks
are published. Three counters say where each sequence stands, and always 0 <= computed <= scheduled <= len(tokens).

It holds state; `manager.py` moves it.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable

from .batch import Batch
from .identity import Namespace

__all__ = ["PendingCopy", "Sequence", "Step"]


class PendingCopy:
    """A copy-on-write that no step carries yet. It holds the reference on `source` that the table gave up.

    `length` is the sequence's length when the table was switched. The copy is needed as long as the sequence is longer.
    """

    __slots__ = ("destination", "length", "source")

    def __init__(self, source: int, destination: int, length: int) -> None:
        self.source = source
        self.destination = destination
        self.length = length


class Sequence:
    """A request in the cache. Read it freely; only the manager changes it.

    request: the id given at allocation or fork.
    namespace: what else its K/V depend on.
    tokens: all tokens, int32; `UNKNOWN` where not named yet.
    table: the block table, physical blocks in logical order; len(table) = ceil(len(tokens) / block_size).
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
        "packed",
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
        table: list[int],
        epoch: int,
    ) -> None:
        self.request = request
        self.namespace = namespace
        self.tokens = tokens
        self.table = table
        self.packed: array[int] | None = None  # `table` as int32, made for the first batch, kept up by appends
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
        self.flights: list[tuple[Step, int]] = []  # steps in flight that carry it, and its place there; oldest first
        self.deferred: list[tuple[int, list[int]]] = []  # (step, blocks cut off while it was in flight)
        self.links: list[bytes] = []  # of the prompt's full blocks (see `prefix.py`), until they are published

    def packed_table(self) -> array[int]:
        """The table as an int32 array, for batches. O(1); O(blocks) the first time and after a cut or a copy."""
        if self.packed is None:
            self.packed = array("i", self.table)
        return self.packed

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return (
            f"<Sequence {self.request!r}: {len(self.tokens)} tokens, {self.scheduled} scheduled, "
            f"{self.computed} computed, table {self.table}>"
        )


class Step:
    """One dispatched step. Run `copies`, then the kernels on `batch`; then give it to `BlockManager.complete`.

    number: order of dispatch, from 0.
    sequences: in the order of the batch.
    starts, ends: the positions that are computed for each. A truncation clips them: cut tokens no longer count.
    copies: (source, destination) blocks to copy whole before anything is written.
    batch: the metadata arrays, or None if it was dispatched with batch=False.
    """

    __slots__ = ("batch", "completed", "copies", "ends", "number", "origin", "sequences", "starts")

    def __init__(
        self, origin: object, number: int, sequences: list[Sequence], starts: list[int], ends: list[int]
    ) -> None:
        self.origin = origin  # the manager's own mark
        self.number = number
        self.sequences = sequences
        self.starts = starts
        self.ends = ends
        self.copies: tuple[tuple[int, int], ...] = ()
        self.batch: Batch | None = None
        self.completed = False

    def __repr__(self) -> str:
        requests = [sequence.request for sequence in self.sequences]
        return f"<Step {self.number}: {requests!r}{', completed' if self.completed else ''}>"
