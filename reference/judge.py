"""The judge: follows a core's choices and says whether they are sound.

    due = judge.before_append(request, tokens)      # the core has done nothing yet; due.refusal: what it must answer
    ...                                             # the core acts
    judge.after_append(due, table)                  # what it shows; judge.findings: what is wrong with that

Two methods for each operation. `before_...` says which refusal is due (None if the operation must succeed); nothing has
changed then. After the core has acted, `after_...` takes what it chose (hit tokens, block tables, a step's arrays),
accuses it where that is unsound, and moves on as if it were right. After a refusal nothing is called, but `no_room`
where a step was refused for want of blocks.

The judge never needs to see inside the core: it knows tables, and what was written where. What it *derives* (reference
counts, published blocks, free and cached counts) is there for the laws in `properties` to compare with the core's own
bookkeeping, where a core shows it. With `policy.exact` a predictor also says which block every choice had to be. There
is one model, not two: the predictor only orders blocks, and everything it is told comes from here.

Each question has a file:

    hits            what is a hit, and what must be hit         groups      which blocks does a query need
    publication     when is a block published                   blocks      who holds what; what is used again first
    admission       who may be refused: `whole_request`,        sequence    what is known of a request
                    `by_step`                                   stream      what do steps write, and read
    allocation      who gets which blocks                       batch       are a step's arrays right
    release         what goes when                              rollback    what can be cut

Cost: O(what the operation touches). A decode step does not look at its whole context: see `stream`. `walk` does; call
it now and then.
"""

from __future__ import annotations

from array import array
from collections import abc, defaultdict
from collections.abc import Hashable
from dataclasses import replace

from . import events, refusals
from .admission import admission_of
from .allocation import Allocation
from .batch import StepArrays, step_array_faults
from .blocks import Blocks
from .counted import Counted
from .due import Due
from .groups import group_of
from .histories import Histories
from .hits import Hits
from .policy import Policy
from .publication import Publication
from .release import Release
from .rollback import rollback_of
from .sequence import UNKNOWN, Sequence, Step, clone_all, new_tables, read_tokens
from .slots import Slots
from .stream import Stream
from .verdicts import Findings, Mapping

__all__ = ["Judge"]


class Judge:
    """The model of a correct core under `policy`. exact: whether to predict choices of blocks where the policy states
    them.

    sequences: live ones, by request. in_flight: steps, oldest first. dispatched: steps so far. max_tokens: how many
    tokens one request can have at most. blocks, slots, histories: the state of the pool. findings: violations so far;
    accuse(property, message) adds one. events: counts of what happened, for the ledger. counted: tokens, for counters.
    shortest(sequence): the least length that it can be cut to."""

    def __init__(self, policy: Policy, *, exact: bool = True) -> None:
        self.policy = policy = policy if exact or not policy.exact else replace(policy, exact=False)
        usable = [block for block in range(policy.num_blocks) if block not in policy.reserved]
        self.max_tokens = max(0, len(usable) // policy.groups * policy.block_size - policy.lookahead)
        self.histories = Histories()
        self.slots = Slots(policy.num_blocks)
        self.findings = Findings()
        self.events: defaultdict[str, int] = defaultdict(int)
        self.counted = Counted()
        self.blocks = Blocks(policy, usable, self.histories, self.events, self.findings)
        self.sequences: dict[str, Sequence] = {}
        self.in_flight: list[Step] = []
        self.dispatched = 0
        self._groups = tuple(group_of(window, policy.block_size, policy.null_block) for window in policy.windows)
        self._bind(0)

    def _bind(self, epoch: int) -> None:
        """Make the pieces that keep no state, but for the epoch."""
        policy, blocks, counts, findings = self.policy, self.blocks, self.events, self.findings
        self._size = policy.block_size
        self._merges = policy.merges
        self._whole_steps = not policy.chunks
        self.publication = Publication(policy, epoch, self.histories, self.slots, blocks, counts, findings)
        self.hits = Hits(policy, self.histories, self.slots, blocks, findings)
        self.release = Release(policy, blocks, counts)
        self.rollback = rollback_of(policy, blocks, self.release, counts, findings)
        self.stream = Stream(policy, self.sequences, self.histories, self.slots, blocks, self.publication, findings)
        self.allocation = Allocation(policy, self.sequences, blocks, self.hits, counts, self.counted, findings)
        self.admission = admission_of(
            policy, self.histories, blocks, self.hits, self.allocation, self.release, self.stream, counts, findings
        )
        self._computes = not self.admission.one_by_one
        self.accuse = findings.accuse
        self.shortest = self.rollback.shortest

    def clone(self) -> tuple[Judge, dict[int, Step]]:
        """A judge in the same state that goes on by itself, and its steps in flight by the `id` of this one's.

        Histories are shared, since they only grow and a number means the same for both. Events and findings begin anew.
        O(pool + all tables and tokens)."""
        other = Judge.__new__(Judge)
        other.policy = self.policy
        other.max_tokens = self.max_tokens
        other.histories = self.histories
        other.slots = self.slots.clone()
        other.findings, other.events = Findings(), defaultdict(int)
        other.counted = self.counted.clone()
        other.blocks = self.blocks.clone(other.events, other.findings)
        other.dispatched = self.dispatched
        other._groups = self._groups
        other.sequences, other.in_flight, steps = clone_all(self.sequences, self.in_flight)
        other._bind(self.publication.epoch)
        return other, steps

    def current(self, sequence: Sequence) -> bool:
        """Whether it still publishes: nothing was reset since it was allocated."""
        return sequence.epoch == self.publication.epoch

    def walk(self) -> None:
        """Verify the induction: every written position of every sequence is still where it belongs. O(all tables)."""
        self.stream.verify([*self.sequences.values(), *self.release.held_by_steps(self.in_flight)])

    # ---- lookup and allocate -----------------------------------------------------------------------------------------

    def before_lookup(self, tokens: abc.Sequence[int], namespace: Hashable) -> Due:
        due = Due(self.blocks)
        prompt = read_tokens(tokens)
        if prompt is None:
            due.refusal = refusals.INVALID_TOKENS
        else:
            due.sequence = self._new("lookup", namespace, prompt)
        return due

    def after_lookup(self, due: Due, hit_tokens: int, blocks: abc.Sequence[int] | None) -> None:
        """A lookup said that `hit_tokens` would be hit, in `blocks` (None if it does not say)."""
        self.hits.judge_lookup(due.sequence, hit_tokens, blocks)

    def before_allocate(self, request: str, tokens: abc.Sequence[int], namespace: Hashable) -> Due:
        due = Due(self.blocks)
        prompt = read_tokens(tokens)
        if prompt is None:
            due.refusal = refusals.INVALID_TOKENS
        elif request in self.sequences:
            due.refusal = refusals.DUPLICATE_REQUEST
        else:
            due.sequence = self._new(request, namespace, prompt)
            self.admission.before_allocate(due)
        return due

    def after_allocate(self, due: Due, hit_tokens: int, table: list[int]) -> None:
        """The request was admitted with `hit_tokens` from the cache and this block table."""
        if self.admission.after_allocate(due, hit_tokens, table):
            self.sequences[due.sequence.request] = due.sequence

    # ---- append, fill, truncate, fork, free, reset -------------------------------------------------------------------

    def before_append(self, request: str, tokens: abc.Sequence[int]) -> Due:
        due = self._due_of(request)
        if due.refusal is None:
            new = read_tokens(tokens, lowest=UNKNOWN)
            if new is None:
                due.refusal = refusals.INVALID_TOKENS
            else:
                due.tokens = new
                self.admission.before_append(due)
        return due

    def after_append(self, due: Due, table: list[int]) -> None:
        """The sequence has grown; this is its block table now."""
        if self.admission.after_append(due, table) and due.sequence.extend(due.tokens):
            self.events[events.PLACEHOLDER_APPENDED] += 1

    def before_fill(self, request: str, position: int, tokens: abc.Sequence[int]) -> Due:
        due = self._due_of(request)
        if due.refusal is None:
            names = read_tokens(tokens)
            if names is None:
                due.refusal = refusals.INVALID_TOKENS
            else:
                due.position, due.tokens = position, names
                own, end = due.sequence.tokens, position + len(names)
                if position < 0 or end > len(own) or any(token != UNKNOWN for token in own[position:end]):
                    due.refusal = refusals.INVALID_FILL
        return due

    def after_fill(self, due: Due) -> None:
        sequence, position, names = due.sequence, due.position, due.tokens
        sequence.tokens[position : position + len(names)] = names
        sequence.num_placeholders -= len(names)
        self.stream.name(sequence, position, names)
        self.publication.named(sequence)

    def before_truncate(self, request: str, length: int) -> Due:
        due = self._due_of(request)
        due.skip = ""
        if due.refusal is None:
            due.position = length
            if not due.sequence.base <= length <= len(due.sequence.tokens):
                due.refusal = refusals.INVALID_LENGTH
            elif length < self.rollback.shortest(due.sequence):
                due.skip = "cuts more than was rejected, and Policy.truncates is 'placeholders'"
        return due

    def after_truncate(self, due: Due, table: list[int]) -> None:
        """The sequence was cut; this is its block table now."""
        self.rollback.truncate(due.sequence, due.position, table)

    def before_fork(self, request: str, child: str) -> Due:
        due = self._due_of(request)
        if due.refusal is None:
            due.request, parent = child, due.sequence
            if child in self.sequences:
                due.refusal = refusals.DUPLICATE_REQUEST
            elif parent.in_flight or parent.computed < len(parent.tokens):
                due.refusal = refusals.NOT_COMPUTED
            elif parent.num_placeholders:
                due.refusal = refusals.NOT_NAMED
        return due

    def after_fork(self, due: Due, table: list[int]) -> None:
        """The child was made; this is its block table."""
        child = self.allocation.fork(due.sequence, due.request, table)
        if child is not None:
            self.sequences[child.request] = child

    def before_free(self, request: str) -> Due:
        return self._due_of(request)

    def after_free(self, due: Due) -> None:
        sequence = self.sequences.pop(due.sequence.request)
        sequence.freed = True
        self.release.freed(sequence)

    def before_reset(self) -> Due:
        return Due(self.blocks)

    def after_reset(self, due: Due) -> None:
        if self.sequences:
            self.events[events.RESET_WITH_LIVE_REQUESTS] += 1
        self.blocks.reset()
        self.publication.epoch += 1

    # ---- dispatch and complete ---------------------------------------------------------------------------------------

    def before_dispatch(self, work: abc.Sequence[tuple[str, int]]) -> Due:
        due = Due(self.blocks)
        due.skip, due.tables, due.work = "", (), (known := [])
        for request, count in work:
            sequence = self.sequences.get(request)
            if sequence is None:
                due.refusal = refusals.UNKNOWN_REQUEST
                return due
            if not 1 <= count <= len(sequence.tokens) - sequence.scheduled:
                due.refusal = refusals.INVALID_COUNT
                return due
            known.append((sequence, count))
        if not work:
            due.refusal = refusals.EMPTY_DISPATCH
        elif len(work) > 1 and len({request for request, _ in work}) < len(work):
            due.refusal = refusals.REPEATED_REQUEST
        else:
            self.admission.before_dispatch(due)
            if self._whole_steps and due.refusal is None and any(map(_is_part, known)):
                due.skip = "a part of what a request has left, and Policy.chunks is False"
        return due

    def no_room(self, due: Due) -> None:
        """The step was refused for want of blocks, and may be."""
        self.admission.no_room(due)

    def after_dispatch(
        self,
        due: Due,
        starts: abc.Sequence[int],
        tables: abc.Sequence[list[int]],
        copies: abc.Sequence[tuple[int, int]],
        arrays: StepArrays | None = None,
    ) -> Step:
        """A step was dispatched. starts: where it begins with each request that it admitted, and tables: their block
        tables now; where `due.tables` asks for them. copies: the (source, destination) block copies that it makes
        before it writes. arrays: what its kernels read, if the core shows it."""
        spans = self.admission.after_dispatch(due, starts, tables)
        step = Step(self.dispatched, spans)
        self.dispatched += 1
        for sequence, _, _ in spans:
            if sequence.pending is not None:
                step.copies.append((sequence.pending.source, sequence.pending.destination))
                sequence.pending = None
        if copies or step.copies:
            self.stream.copy(copies, step.copies)
        for sequence, start, end in spans:
            if self._computes:
                self.stream.compute(sequence, start, end)
            if sequence.num_placeholders and UNKNOWN in sequence.tokens[start:end]:
                self.events[events.PLACEHOLDER_DISPATCHED] += 1
            sequence.scheduled = end
            sequence.in_flight.append(step)
            if len(sequence.in_flight) > 1:
                self.events[events.SEVERAL_STEPS_OF_ONE_REQUEST_IN_FLIGHT] += 1
        self.in_flight.append(step)
        if arrays is not None:
            for fault in step_array_faults(step, arrays, self._size):
                self.accuse(Mapping, fault)
        return step

    def before_complete(self, step: Step) -> Due:
        due = Due(self.blocks)
        due.step, due.tables = step, ()
        if step.done:
            due.refusal = refusals.ALREADY_COMPLETED
        elif self.in_flight[0] is not step:
            due.refusal = refusals.OUT_OF_ORDER
        elif self._merges:
            due.tables = [
                sequence.request for sequence, _, _ in step.spans if self.sequences.get(sequence.request) is sequence
            ]
        return due

    def after_complete(self, due: Due, tables: abc.Sequence[list[int]] = ()) -> None:
        """The step is completed. tables: where `due.tables` asks for them."""
        step = due.step
        self.in_flight.pop(0)
        step.done = True
        if self.in_flight:
            self.events[events.COMPLETED_WITH_ANOTHER_STEP_IN_FLIGHT] += 1
        for sequence, start, end in step.spans:
            sequence.in_flight.pop(0)
            if end > start:
                sequence.computed = end
                self.publication.completed(sequence, end)
        self.release.completed(step)
        for request, table in zip(due.tables, tables, strict=True):
            if not self.allocation.replace(self.sequences[request], table):
                return

    # ---- what they share ---------------------------------------------------------------------------------------------

    def _new(self, request: str, namespace: Hashable, tokens: array[int]) -> Sequence:
        """A sequence that has no blocks yet."""
        tables = new_tables(self._groups, self.histories, namespace, tokens, self._size)
        return Sequence(request, namespace, tokens, tables, self.publication.epoch)

    def _due_of(self, request: str) -> Due:
        """With the live sequence of `request`; refused if there is none."""
        due = Due(self.blocks)
        sequence = self.sequences.get(request)
        if sequence is None:
            due.refusal = refusals.UNKNOWN_REQUEST
        else:
            due.sequence = sequence
        return due


def _is_part(work: tuple[Sequence, int]) -> bool:
    """Whether a step computes only a part of what a request has left."""
    sequence, count = work
    return count < len(sequence.tokens) - sequence.scheduled
