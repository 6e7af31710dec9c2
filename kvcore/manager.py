"""The block manager: which physical block holds which tokens of which request, and when that may change.

An engine calls, in a loop: `allocate` new requests, `append` sampled or draft tokens, `dispatch` a step, run its copies
and kernels, `complete` it; `truncate` rejected drafts; `free` what is finished. Several steps may be in flight.

Rules that everything here follows (each is a property that the harness checks):

- All or nothing. Everything is validated before anything is changed. A call that raises has changed nothing, except
  that a refusal is counted.
- Nothing is written into a block that is published or that another holder references. A shared tail is copied at
  append. A published tail that is this sequence's alone (after a truncation) leaves the index at append.
- A block is published when its K/V have been computed (`complete`) *and* all its tokens are named, not before.
- A block that a dispatched step reads, writes or copies from is not handed out before the step completes. If a sequence
  is freed or truncated in flight, its blocks are kept until the last step that carries it completes.

Costs: lookup and allocate O(blocks of the request), append and dispatch O(new tokens), free O(its blocks). Nothing is
O(pool) except the constructor, `reset` and `check`. There is no clock and no randomness.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Hashable, Iterable
from typing import NoReturn

from .batch import build
from .config import CacheConfig, ReusePolicy
from .errors import (
    AlreadyCompleted,
    CacheError,
    DuplicateRequest,
    EmptyDispatch,
    ForeignStep,
    InvalidCount,
    InvalidFill,
    InvalidLength,
    InvalidNamespace,
    MatchMismatch,
    NeverFits,
    NotComputed,
    NotNamed,
    OutOfBlocks,
    OutOfOrder,
    Refusal,
    RepeatedRequest,
    UnknownRequest,
)
from .identity import MAX_TOKEN, UNKNOWN, Namespace, Tokens, token_array
from .invariants import check
from .pool import BlockPool, Discard
from .prefix import Content, Root
from .sequence import PendingCopy, Sequence, Step
from .statistics import Counters, Statistics

__all__ = ["BlockManager", "PrefixMatch"]

DEFAULT_NAMESPACE = Namespace()


class PrefixMatch:
    """What `lookup` found. Pass it to `allocate` to save hashing the tokens again; it is verified again there.

    num_tokens: tokens that would be hit now.
    blocks: the physical blocks that hold them.
    """

    __slots__ = ("_links", "_manager", "_namespace", "_tokens", "blocks", "num_tokens")

    def __init__(self, manager: BlockManager, tokens: array[int], namespace: Namespace) -> None:
        self._manager = manager
        self._tokens = tokens
        self._namespace = namespace
        self._links: list[bytes] = []
        self.num_tokens = 0
        self.blocks: tuple[int, ...] = ()


class BlockManager:
    """A prefix-caching block allocator over `config.num_blocks` blocks.

    After vLLM's PagedAttention (Kwon et al., SOSP 2023) and its v1 block pool, and nano-vllm's block manager; where
    the rules differ from those, the head of the module says so.
    """

    def __init__(self, config: CacheConfig, on_discard: Discard | None = None) -> None:
        """on_discard: for debugging, called with blocks whose content is gone for good (they became free, or are taken
        for other content) before anybody else gets them; `KVStorage.poison` fills them with NaN. It must not raise or
        call the manager. O(num_blocks).
        """
        self.config = config
        self._block_size = config.block_size
        self._block_bytes = 4 * config.block_size
        self._pool = BlockPool(config.num_blocks, on_discard)
        self._sequences: dict[Hashable, Sequence] = {}
        self._in_flight: deque[Step] = deque()
        self._next_step = 0
        self._mark = object()  # on every step, to tell another manager's
        self._epoch = 0
        self._counters = Counters()

    # ---- reading -----------------------------------------------------------------------------------------------------

    def lookup(self, tokens: Tokens, namespace: Namespace = DEFAULT_NAMESPACE) -> PrefixMatch:
        """What `allocate` would take from the cache. Reads only: no state, eviction order or counter changes.

        Raises InvalidTokens, InvalidNamespace. O(blocks of the request), and the duplicates met on the way.
        """
        match = self._match(token_array(tokens), namespace)
        match.blocks = tuple(self._hits(match))
        match.num_tokens = self._hit_tokens(len(match._tokens), len(match.blocks))
        return match

    def sequence(self, request: Hashable) -> Sequence:
        """The live sequence with this id. Raises UnknownRequest. O(1)."""
        sequence = self._sequences.get(request)
        if sequence is None:
            self._unknown(request)
        return sequence

    def statistics(self) -> Statistics:
        """A snapshot of states and counters. O(live requests)."""
        pool = self._pool
        free, cached = len(pool.free), pool.num_cached
        block_size = self._block_size
        counters = self._counters
        return Statistics(
            free_blocks=free,
            cached_blocks=cached,
            active_blocks=self.config.num_blocks - free - cached,
            requests=len(self._sequences),
            steps_in_flight=len(self._in_flight),
            empty_tail_slots=sum(-len(sequence.tokens) % block_size for sequence in self._sequences.values()),
            queried_tokens=counters.queried_tokens,
            hit_tokens=counters.hit_tokens,
            evicted_tokens=pool.evictions * block_size,
            refusals=counters.refusals,
            copied_blocks=counters.copied_blocks,
        )

    def check(self) -> None:
        """Walk every internal invariant; raises Corrupted for the first that is broken. O(pool + index + tables)."""
        check(self._pool, self._sequences, self._in_flight, self.config, self._epoch)

    # ---- changing ----------------------------------------------------------------------------------------------------

    def allocate(
        self,
        request: Hashable,
        tokens: Tokens,
        namespace: Namespace = DEFAULT_NAMESPACE,
        match: PrefixMatch | None = None,
    ) -> Sequence:
        """Admit a request: pin what the cache holds of its prompt, take new blocks for all the rest at once.

        A hit on an active block costs nothing of what is available, a hit on a cached block and a miss cost one each.
        `match` (from `lookup` for the same tokens and namespace) saves the hashing.

        Raises InvalidTokens, InvalidNamespace, DuplicateRequest, MatchMismatch, NeverFits (larger than the whole pool),
        OutOfBlocks (wait). O(blocks of the request).
        """
        if isinstance(match, PrefixMatch) and isinstance(tokens, array) and tokens == match._tokens:
            prompt = match._tokens[:]  # read and found valid by lookup
        else:
            prompt = token_array(tokens)
        if request in self._sequences:
            raise DuplicateRequest(f"request {request!r} is live; free it first or use another id")
        if match is None:
            match = self._match(prompt, namespace)
        else:
            self._verify(match, prompt, namespace)
        pool = self._pool
        length = len(prompt)
        num_blocks = -(-length // self._block_size)
        if num_blocks > pool.num_blocks:
            self._refuse(NeverFits, request, f"needs {num_blocks} blocks for {length} tokens", "reject it")
        blocks = self._hits(match)
        hits = len(blocks)
        misses = num_blocks - hits
        revived = list(map(pool.references.__getitem__, blocks)).count(0)
        if misses + revived > pool.available:
            self._refuse(OutOfBlocks, request, f"needs {misses + revived} blocks", "wait until others are freed")

        pool.pin(blocks)
        blocks += pool.take(misses)
        sequence = Sequence(request, namespace, prompt, blocks, self._epoch)
        sequence.links = match._links
        hit_tokens = self._hit_tokens(length, hits)
        sequence.num_hit_tokens = sequence.scheduled = sequence.computed = hit_tokens
        sequence.published = hits
        sequence.written_from = hits * self._block_size
        self._sequences[request] = sequence
        self._counters.queried_tokens += length
        self._counters.hit_tokens += hit_tokens
        return sequence

    def append(self, request: Hashable, tokens: Tokens) -> None:
        """Add decode or draft tokens (or `UNKNOWN` placeholders) and take every block that they need.

        If the tail block is partly used and shared (with another table, or a copy that waits for its step),
        the table is switched to a new block here; the next step that carries this request carries the copy.

        Raises UnknownRequest, InvalidTokens, NeverFits, OutOfBlocks (free, preempt or wait). O(tokens).
        """
        sequence = self._sequences.get(request)
        if sequence is None:
            self._unknown(request)
        own, table, pool = sequence.tokens, sequence.table, self._pool
        length = len(own)
        new: list[int] | array[int]
        if type(tokens) is list and len(tokens) == 1 and type(token := tokens[0]) is int and 0 <= token <= MAX_TOKEN:
            # An engine's decode step, nearly always into a tail that is this sequence's alone and has room.
            if length % self._block_size and pool.references[table[-1]] == 1 and pool.index.held[table[-1]] is None:
                own.append(token)
                return
            new = tokens
        else:
            new = token_array(tokens, placeholders=True)
        num_blocks = -(-(length + len(new)) // self._block_size)
        needed = num_blocks - len(table)
        tail = -1
        copies = 0
        if length % self._block_size:
            tail = table[-1]
            if pool.references[tail] > 1:
                copies = 1
        if needed + copies:
            if num_blocks > pool.num_blocks:
                self._refuse(NeverFits, request, f"would need {num_blocks} blocks in all", "finish it, or reject it")
            if needed + copies > pool.available:
                self._refuse(
                    OutOfBlocks, request, f"needs {needed + copies} more blocks", "wait, or free or preempt a request"
                )
            taken = pool.take(needed + copies)
            if copies:
                sequence.packed = None
                table[-1] = taken[0]
                sequence.pending = PendingCopy(tail, taken[0], length)
                self._counters.copied_blocks += 1
                table.extend(taken[1:])
            else:
                table.extend(taken)
                if sequence.packed is not None:
                    sequence.packed.extend(taken)
        if tail >= 0 and not copies:
            # After a truncation into a shared block whose other holders have gone, the tail may still be published.
            pool.roll_back(tail)
        own.extend(new)
        if UNKNOWN in new:
            sequence.unnamed += new.count(UNKNOWN)

    def fill(self, request: Hashable, position: int, tokens: Tokens) -> None:
        """Name the placeholders from `position` on. Blocks that waited only for their names are published now.

        Raises UnknownRequest, InvalidTokens, InvalidFill (a position does not exist or is named already). O(tokens).
        """
        sequence = self._sequences.get(request)
        if sequence is None:
            self._unknown(request)
        names = token_array(tokens)
        if type(position) is not int:
            raise InvalidFill(f"request {request!r}: position must be an int, got {position!r}")
        end = position + len(names)
        own = sequence.tokens
        if not 0 <= position < end <= len(own) or any(token != UNKNOWN for token in own[position:end]):
            raise InvalidFill(
                f"request {request!r}: positions {position} to {end - 1} are not all placeholders; "
                f"it has {len(own)} tokens, {sequence.unnamed} of them unnamed"
            )
        own[position:end] = names
        sequence.unnamed -= len(names)
        self._publish(sequence)

    def dispatch(self, work: Iterable[tuple[Hashable, int]], *, batch: bool = True) -> Step:
        """Schedule the next n unscheduled tokens of each (request, n); takes no block.

        Later steps may be dispatched before this one completes; they may read what it writes, as on one stream.
        With batch=False the metadata arrays are not built.

        Raises UnknownRequest or InvalidCount (for the first entry that has one), EmptyDispatch, RepeatedRequest.
        O(sequences) and array operations of O(scheduled tokens + table entries).
        """
        live = self._sequences
        sequences: list[Sequence] = []
        starts: list[int] = []
        ends: list[int] = []
        for entry in work:
            try:
                request, count = entry
            except (TypeError, ValueError):
                raise InvalidCount(f"a step is made of (request, count) pairs, got {entry!r}") from None
            sequence = live.get(request)
            if sequence is None:
                self._unknown(request)
            start = sequence.scheduled
            if type(count) is not int or not 0 < count <= len(sequence.tokens) - start:
                raise InvalidCount(
                    f"request {request!r}: cannot schedule {count!r} tokens; {len(sequence.tokens) - start} are "
                    "unscheduled, give a Python int from 1 to that (append first if it is 0)"
                )
            sequences.append(sequence)
            starts.append(start)
            ends.append(start + count)
        if not sequences:
            raise EmptyDispatch("a step needs at least one (request, count); skip the step instead")
        if len(set(sequences)) < len(sequences):
            request = next(own.request for place, own in enumerate(sequences) if own in sequences[:place])
            raise RepeatedRequest(f"request {request!r} appears twice in one step; give the sum of its counts once")

        step = Step(self._mark, self._next_step, sequences, starts, ends)
        cached_beyond = []
        for place, sequence in enumerate(sequences):
            sequence.scheduled = ends[place]
            sequence.flights.append((step, place))
            if sequence.pending is not None:
                step.copies += ((sequence.pending.source, sequence.pending.destination),)
                sequence.pending = None
            if starts[place] < sequence.written_from:
                cached_beyond.append((place, sequence.written_from))
        if batch:
            tables = [sequence.packed_table() for sequence in sequences]
            step.batch = build(tables, starts, ends, cached_beyond, self._block_size)
        self._next_step += 1
        self._in_flight.append(step)
        return step

    def complete(self, step: Step) -> None:
        """The step's K/V are written: count and publish them, then give back what waited for it.

        Positions cut off since the dispatch do not count. Raises ForeignStep, AlreadyCompleted, OutOfOrder.
        O(sequences of the step + blocks published or given back).
        """
        in_flight = self._in_flight
        if not in_flight or in_flight[0] is not step:
            self._reject(step)
        in_flight.popleft()
        step.completed = True
        block_size = self._block_size
        waiting = []
        for sequence, start, end in zip(step.sequences, step.starts, step.ends, strict=True):
            del sequence.flights[0]
            if end > start:
                sequence.computed = end
                if end // block_size > sequence.published:
                    self._publish(sequence)
            if sequence.freed or sequence.deferred:
                waiting.append(sequence)
        release_alone = self._pool.release_alone
        release_alone([source for source, _ in step.copies])
        for sequence in waiting:
            while sequence.deferred and sequence.deferred[0][0] <= step.number:
                release_alone(sequence.deferred.pop(0)[1])
            if sequence.freed and not sequence.flights:
                self._release(sequence)

    def truncate(self, request: Hashable, num_tokens: int) -> None:
        """Cut the sequence to `num_tokens`, to reject draft tokens. The least is its length at allocation (or fork).

        Blocks that are cut off or cut into leave the index, unless another holder has them. What a step in flight
        computes beyond `num_tokens` will not count. A copy that only cut tokens needed is undone.

        Raises UnknownRequest, InvalidLength. O(tokens and blocks cut off + steps in flight of the request).
        """
        sequence = self._sequences.get(request)
        if sequence is None:
            self._unknown(request)
        tokens, table, pool = sequence.tokens, sequence.table, self._pool
        if type(num_tokens) is not int or not sequence.base <= num_tokens <= len(tokens):
            raise InvalidLength(
                f"request {request!r}: cannot truncate to {num_tokens!r} tokens; "
                f"give an integer from {sequence.base} (its length at allocation or fork) to {len(tokens)}"
            )
        if num_tokens == len(tokens):
            return
        block_size = self._block_size
        cut = []
        pending = sequence.pending
        if pending is not None and num_tokens <= pending.length:
            table[pending.length // block_size] = pending.source
            cut.append(pending.destination)
            sequence.pending = None
        keep = -(-num_tokens // block_size)
        cut += reversed(table[keep:])
        references = pool.references
        for block in cut:
            if references[block] == 1:
                pool.roll_back(block)
        if num_tokens % block_size and references[table[keep - 1]] == 1:
            pool.roll_back(table[keep - 1])
        if sequence.unnamed:
            sequence.unnamed -= tokens[num_tokens:].count(UNKNOWN)
        del tokens[num_tokens:]
        del table[keep:]
        sequence.packed = None
        sequence.scheduled = min(sequence.scheduled, num_tokens)
        sequence.computed = min(sequence.computed, num_tokens)
        sequence.published = min(sequence.published, num_tokens // block_size)
        for step, place in sequence.flights:
            step.starts[place] = min(step.starts[place], num_tokens)
            step.ends[place] = min(step.ends[place], num_tokens)
        if not sequence.flights:
            pool.release(cut)
        elif cut:
            sequence.deferred.append((sequence.flights[-1][0].number, cut))

    def fork(self, request: Hashable, child: Hashable) -> Sequence:
        """A second sequence `child` with the same tokens in the same blocks; takes no block.

        Raises UnknownRequest, DuplicateRequest, NotComputed, NotNamed. O(blocks of the request).
        """
        parent = self._sequences.get(request)
        if parent is None:
            self._unknown(request)
        if child in self._sequences:
            raise DuplicateRequest(f"request {child!r} is live; free it first or use another id")
        if parent.flights or parent.computed < len(parent.tokens):
            raise NotComputed(
                f"request {request!r} has {parent.computed} of {len(parent.tokens)} tokens computed and "
                f"{len(parent.flights)} steps in flight; dispatch and complete all before a fork"
            )
        if parent.unnamed:
            raise NotNamed(f"request {request!r} has {parent.unnamed} placeholders; fill them before a fork")
        sequence = Sequence(child, parent.namespace, parent.tokens[:], parent.table.copy(), parent.epoch)
        sequence.scheduled = sequence.computed = parent.computed
        sequence.published = parent.published
        sequence.written_from = parent.written_from
        self._pool.pin(sequence.table)
        self._sequences[child] = sequence
        return sequence

    def free(self, request: Hashable) -> None:
        """Finish, abort or preempt: the id can be used again at once; the blocks come back tail first.

        They come back now, or when the last step in flight that carries the request completes.
        Raises UnknownRequest (also for a double free). O(blocks of the request).
        """
        sequence = self._sequences.pop(request, None)
        if sequence is None:
            self._unknown(request)
        sequence.freed = True
        if not sequence.flights:
            self._release(sequence)

    def reset(self) -> None:
        """Forget all cached content, because the weights changed. Live sequences go on, but publish nothing any more.

        O(num_blocks).
        """
        self._epoch += 1
        self._pool.forget()

    # ---- the pieces --------------------------------------------------------------------------------------------------

    def _match(self, tokens: array[int], namespace: Namespace) -> PrefixMatch:
        if not isinstance(namespace, Namespace):
            raise InvalidNamespace(f"namespace must be a kvcore.Namespace, got {namespace!r}")
        match = PrefixMatch(self, tokens, namespace)
        if self.config.caching:
            hash_function = self.config.hash_function
            size = self._block_bytes
            data = tokens.tobytes()
            key = hash_function(namespace.encoding)
            add = match._links.append
            for begin in range(0, len(data) - size + 1, size):
                link = key + data[begin : begin + size]
                key = hash_function(link)
                add(link)
        return match

    def _verify(self, match: PrefixMatch, tokens: array[int], namespace: Namespace) -> None:
        if not isinstance(namespace, Namespace):
            raise InvalidNamespace(f"namespace must be a kvcore.Namespace, got {namespace!r}")
        if not isinstance(match, PrefixMatch) or match._manager is not self:
            raise MatchMismatch(f"{match!r} is no match of this manager; pass what its lookup returned, or None")
        if match._tokens != tokens or match._namespace != namespace:
            raise MatchMismatch("the match was made for other tokens or another namespace; look up again")

    def _hits(self, match: PrefixMatch) -> list[int]:
        """Blocks that can be hit now, by the reuse policy. Verified here whatever the age of the match. O(hits)."""
        length = len(match._tokens)
        limit = length if self.config.reuse is ReusePolicy.LAST_TOKEN else length - 1
        links = match._links[: limit // self._block_size]
        if not links:
            return []
        index = self._pool.index
        return index.walk(index.root(match._namespace.encoding), links, self._pool.references)

    def _hit_tokens(self, length: int, hits: int) -> int:
        """At least the last token is left to compute, even where its block is hit."""
        return min(hits * self._block_size, length - 1)

    def _publish(self, sequence: Sequence) -> None:
        """Publish the full, computed, named blocks of `sequence` that are not published yet. O(those)."""
        if sequence.epoch != self._epoch or not self.config.caching:
            return
        block_size = self._block_size
        first, last = sequence.published, sequence.computed // block_size
        if first >= last:
            return
        index = self._pool.index
        table, tokens = sequence.table, sequence.tokens
        parent: Root | Content
        if first:
            before = index.held[table[first - 1]]
            assert before is not None
            parent, link = before, before[1]
        else:
            parent = index.root(sequence.namespace.encoding)
            link = parent.encoding
        links = sequence.links[first:last]
        if len(links) < last - first:
            # Generated tokens: what the prompt's lookup did not hash.
            hash_function = self.config.hash_function
            key = hash_function(links[-1] if links else link)
            for logical in range(first + len(links), last):
                part = tokens[logical * block_size : (logical + 1) * block_size]
                if sequence.unnamed and UNKNOWN in part:
                    last = logical
                    break
                link = key + part.tobytes()
                key = hash_function(link)
                links.append(link)
        if last >= len(sequence.links):
            sequence.links = []
        index.publish(table[first:last], parent, links)
        sequence.published = last

    def _release(self, sequence: Sequence) -> None:
        if sequence.pending is not None:
            self._pool.release((sequence.pending.source,))
            sequence.pending = None
        self._pool.release(reversed(sequence.table))

    def _unknown(self, request: Hashable) -> NoReturn:
        raise UnknownRequest(f"no live request {request!r}; allocate it first (or it was freed before)")

    def _refuse(self, error: type[Refusal], request: Hashable, need: str, advice: str) -> NoReturn:
        self._counters.refusals += 1
        raise error(
            f"request {request!r} {need}; {self._pool.available} of {self._pool.num_blocks} are available; {advice}"
        )

    def _reject(self, step: Step) -> NoReturn:
        error: CacheError
        if not isinstance(step, Step) or step.origin is not self._mark:
            error = ForeignStep(f"{step!r} is not a step in flight of this manager; pass what dispatch returned")
        elif step.completed:
            error = AlreadyCompleted(f"step {step.number} has been completed; complete each step once")
        else:
            oldest = self._in_flight[0].number
            error = OutOfOrder(f"step {step.number} cannot complete before step {oldest}; complete that one first")
        raise error
