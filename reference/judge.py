"""The judge: follows a core's choices and says whether they are sound.

For each operation the Session asks twice. `before_*` says which refusal is due (None if the operation must succeed);
nothing has changed yet. After the core has acted, `after_*` takes what it chose (hit tokens, block tables, a step's
arrays), accuses it where that is unsound, and moves on as if it were right. The judge never needs to see inside the
core: it knows tables, and what was written where. What it *derives* (reference counts, published blocks, free and
cached counts) is there for the laws in `properties` to compare with the core's own bookkeeping, where a core shows it.

With `policy.exact` a predictor also says which block every choice had to be. There is one model, not two: the predictor
only orders blocks, and everything it is told comes from here.

Cost: O(what the operation touches). A decode step does not look at its whole context, because reads are kept right by
induction: a table entry is verified when it is taken (a hit's content, a new block's emptiness of holders), and nothing
may be overwritten while anyone else holds it. `walk` verifies the induction in full; call it now and then.

Rules where the design leaves a choice, all of them kvcore's too:

- "held by somebody else" counts tables (those of freed requests in flight included) and pending copies alike: a tail is
  copied at append exactly if its block has more than one reference.
- A published tail, partly used after a truncation and held by nobody else by then, leaves the index at append.
- When the last active owner of a content is rolled back, the first cached duplicate counts as released now, so that it
  stays younger than what others have built on the content.
- A copy's source, and what a truncation cut off in flight, may be released when nobody holds their prefix any more;
  what
  of it is cached then counts as released after them.
- A truncation that cuts all tokens that a pending copy was made for undoes the copy: the table gets the source back.
- A block is published at the later of its completion and its last token's name. (Where the policy publishes at
  dispatch: at the first dispatch of its request that finds it named, and computes it or comes after that.)

This room may not know: any core, or how operations are made.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable, Sequence

from .histories import Histories
from .policy import Policy
from .predictor import Predictor
from .slots import Slots
from .verdicts import (
    Admission,
    Aliasing,
    Completeness,
    Eviction,
    Exact,
    Exclusive,
    Freshness,
    History,
    Isolation,
    Lifetime,
    Mapping,
    Publish,
    Recompute,
    Rollback,
    Violation,
)

__all__ = ["Judge", "Line", "Passage"]

UNKNOWN = -1
MAX_TOKEN = 2**31 - 1


class Line:
    """One sequence as the judge sees it (a "line" of tokens; `Sequence` is Python's).

    chain[i] is the history up to the end of logical block i - 1; chain[0] the namespace. It reaches as far as blocks
    are known to be full and named. Counters as in the core: 0 <= computed <= scheduled <= len(tokens). waiting: blocks
    are taken by steps, and it has had none. skipped: table entries behind the window. parts: one for each group of
    layers, this one first; the others have tables, chains, `published`, `written_from` and `skipped` of their own, and
    nothing else. unnamed: how many of the tokens are placeholders; every part knows. window: this part's."""

    __slots__ = (
        "base",
        "chain",
        "computed",
        "cut",
        "epoch",
        "flights",
        "freed",
        "namespace",
        "parts",
        "pending",
        "published",
        "request",
        "scheduled",
        "skipped",
        "table",
        "tokens",
        "unnamed",
        "waiting",
        "window",
        "written_from",
    )

    def __init__(self, request: str, namespace: Hashable, tokens: array[int], chain: list[int], epoch: int) -> None:
        self.request = request
        self.namespace = namespace
        self.tokens = tokens
        self.chain = chain
        self.epoch = epoch
        self.base = len(tokens)
        self.table: list[int] = []
        self.scheduled = 0
        self.skipped = 0
        self.computed = 0
        self.published = 0
        self.written_from = 0
        self.unnamed = 0
        self.freed = False
        self.waiting = False
        self.window: int | None = None
        self.parts: list[Line] = [self]
        self.pending: tuple[int, int, int] | None = None  # source, destination, length when the table was switched
        self.flights: list[Passage] = []
        self.cut: list[tuple[Passage, list[int]]] = []  # blocks cut off, and the last step that may touch them

    def clone(self, lines: dict[int, Line], passages: dict[int, Passage]) -> Line:
        """A copy in the steps that `passages` names by the `id` of this one's. Enters itself in `lines` likewise."""
        other = Line.__new__(Line)
        lines[id(self)] = other
        other.request = self.request
        other.namespace = self.namespace
        other.tokens = self.tokens[:]
        other.chain = self.chain.copy()
        other.epoch = self.epoch
        other.base = self.base
        other.table = self.table.copy()
        other.scheduled = self.scheduled
        other.skipped = self.skipped
        other.computed = self.computed
        other.published = self.published
        other.written_from = self.written_from
        other.unnamed = self.unnamed
        other.freed = self.freed
        other.waiting = self.waiting
        other.window = self.window
        other.parts = [other]
        for part in self.parts[1:]:
            twin = part.clone({}, passages)
            twin.tokens = other.tokens
            other.parts.append(twin)
        other.pending = self.pending
        other.flights = [passages[id(passage)] for passage in self.flights]
        other.cut = [(passages[id(passage)], blocks) for passage, blocks in self.cut]  # the blocks never change
        return other

    @property
    def named(self) -> int:
        """How many tokens there are before the first placeholder. O(them) where there is one."""
        return self.tokens.index(UNKNOWN) if self.unnamed else len(self.tokens)

    @property
    def whole(self) -> list[int]:
        """The tables of all parts, one after the other, as the core shows them."""
        return self.table if len(self.parts) == 1 else [block for part in self.parts for block in part.table]


class Passage:
    """One dispatched step. `spans` are [line, start, end], clipped by truncations."""

    __slots__ = ("copies", "done", "number", "spans")

    def __init__(self, number: int, spans: list[tuple[Line, int, int]]) -> None:
        self.number = number
        self.spans = spans
        self.copies: list[tuple[int, int]] = []
        self.done = False


class Judge:
    """The model of a correct core under `policy`.

    references, published: what each block must have; published holds history numbers, None where not published.
    capacity, room: blocks that can be handed out, and how many tokens of one request they can hold.
    idle, cached: how many blocks have no holder, and how many of those are published.
    touched: blocks whose references or publication the last operation changed.
    dispatched: steps so far. findings: violations found so far. events: counts of what happened, for the ledger.
    may_refuse: whether the operation at hand may be refused for want of blocks although all that could be hit would
    leave enough, since the core need not hit all of it (`Policy.complete`). Whoever applies operations clears it.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._size = policy.block_size
        usable = [block for block in range(policy.num_blocks) if block not in policy.reserved]
        self.capacity = len(usable)
        self.room = max(0, len(usable) // policy.groups * policy.block_size - policy.lookahead)
        self._null = next(iter(policy.reserved)) if policy.windowed else -1
        self.histories = Histories()
        self.slots = Slots(policy.num_blocks)
        self.predictor = Predictor(usable, policy.order) if policy.exact else None
        self.references = [0] * policy.num_blocks
        self.published: list[int | None] = [None] * policy.num_blocks
        self.owners: dict[int, list[int]] = {}
        self._extensions: dict[int, int] = defaultdict(int)  # published blocks that extend a history
        self._withdrawn: dict[int, type[Violation]] = {}  # why a block that still holds its content may not be hit
        self.idle = len(usable)
        self.cached = 0
        self.lines: dict[str, Line] = {}
        self.in_flight: list[Passage] = []
        self.dispatched = 0
        self._epoch = 0
        self.touched: list[int] = []
        self.findings: list[Violation] = []
        self.events: dict[str, int] = defaultdict(int)
        self.may_refuse = False
        self._plan: tuple[array[int], list[int], list[int]] = (array("i"), [], [])

    def clone(self) -> tuple[Judge, dict[int, Passage]]:
        """A judge in the same state that goes on by itself, and its steps in flight by the `id` of this one's.

        Histories are shared, since they only grow and a number means the same for both. Events and findings begin anew.
        O(pool + all tables and tokens)."""
        other = Judge.__new__(Judge)
        other.policy = self.policy
        other._size = self._size
        other.capacity = self.capacity
        other.room = self.room
        other._null = self._null
        other.histories = self.histories
        other.slots = self.slots.clone()
        other.predictor = self.predictor.clone() if self.predictor is not None else None
        other.references = self.references.copy()
        other.published = self.published.copy()
        other.owners = {history: blocks.copy() for history, blocks in self.owners.items()}
        other._extensions = self._extensions.copy()
        other._withdrawn = self._withdrawn.copy()
        other.idle = self.idle
        other.cached = self.cached
        other.dispatched = self.dispatched
        other._epoch = self._epoch
        other.touched = []
        other.findings = []
        other.events = defaultdict(int)
        other.may_refuse = False
        other._plan = (array("i"), [], [])
        passages: dict[int, Passage] = {}
        for passage in self.in_flight:
            passages[id(passage)] = twin = Passage(passage.number, [])
            twin.copies = passage.copies  # never changed once it is there
        lines: dict[int, Line] = {}
        other.lines = {name: line.clone(lines, passages) for name, line in self.lines.items()}
        for passage in self.in_flight:
            passages[id(passage)].spans = [
                (lines.get(id(line)) or line.clone(lines, passages), start, end) for line, start, end in passage.spans
            ]
        other.in_flight = [passages[id(passage)] for passage in self.in_flight]
        return other, passages

    def current(self, line: Line) -> bool:
        """Whether `line` still publishes: nothing was reset since it was allocated."""
        return line.epoch == self._epoch

    def accuse(self, property_: type[Violation], message: str) -> None:
        self.findings.append(property_(message))

    # ---- lookup and allocate -----------------------------------------------------------------------------------------

    def before_lookup(self, tokens: Sequence[int]) -> str | None:
        return "InvalidTokens" if self.read(tokens) is None else None

    def after_lookup(
        self, tokens: Sequence[int], namespace: Hashable, hit_tokens: int, blocks: Sequence[int] | None
    ) -> None:
        """A lookup said that `hit_tokens` would be hit, in `blocks` (None if it does not say)."""
        prompt = self.read(tokens)
        assert prompt is not None
        line = self._line("lookup", namespace, prompt, self._chain(prompt, namespace))
        expected = self._hits_of(line)
        known = [*blocks] if blocks is not None else expected[0]
        hits = self._hit_blocks(line, hit_tokens, known or (-1,))
        if blocks is not None:
            if len(blocks) != hits * len(expected):
                self.accuse(Mapping, f"lookup says {hit_tokens} hit tokens but names {len(blocks)} blocks")
            for at, (part, due) in enumerate(zip(line.parts, expected, strict=True)):
                self._judge_hits(part, known[at * hits : (at + 1) * hits], due)
        elif hits < len(expected[0]):
            self._incomplete(line, hits, len(expected[0]))
        elif hits > len(expected[0]):
            self.accuse(Publish, f"lookup says {hit_tokens} hit tokens; only {len(expected[0])} blocks can be hit")

    def _line(self, request: str, namespace: Hashable, tokens: array[int], chain: list[int]) -> Line:
        """A new line that waits, with all its parts."""
        line = Line(request, namespace, tokens, chain, self._epoch)
        line.waiting = True
        line.window, *others = self.policy.windows
        for group, window in enumerate(others, 1):
            space = (f"group {group}", namespace)
            part = Line(request, space, tokens, self._chain(tokens, space), self._epoch)
            part.window = window
            line.parts.append(part)
        return line

    def before_allocate(self, request: str, tokens: Sequence[int], namespace: Hashable) -> str | None:
        prompt = self.read(tokens)
        if prompt is None:
            return "InvalidTokens"
        if request in self.lines:
            return "DuplicateRequest"
        chain = self._chain(prompt, namespace)
        if self.policy.admission == "step":
            self._plan = (prompt, chain, [])
            return None
        needed = -(-len(prompt) // self._size)
        hits = self._expected_hits(prompt, chain)
        self._plan = (prompt, chain, hits)
        self.may_refuse = not self.policy.complete and needed > self.idle
        if needed > self.capacity:
            self.events["never fits"] += 1
            return "NeverFits"
        references = self.references
        missing = needed - sum(1 for block in hits if references[block]) - self.idle
        if missing > 0:
            self.events["refused for one block" if missing == 1 else "refused for several blocks"] += 1
            return "OutOfBlocks"
        return None

    def after_allocate(self, request: str, namespace: Hashable, hit_tokens: int, table: list[int]) -> None:
        """The request was admitted with `hit_tokens` from the cache and this block table."""
        prompt, chain, expected = self._plan
        line = self._line(request, namespace, prompt, chain)
        if self.policy.admission == "step":
            if table or hit_tokens:
                self.accuse(
                    Admission, f"{request!r} waits for its first step and has blocks {table}, {hit_tokens} hit tokens"
                )
        else:
            line.waiting = False
            if not self._admit(line, hit_tokens, table, len(prompt), [expected]):
                return
        self.lines[request] = line

    def _admit(self, line: Line, hit_tokens: int, table: list[int], end: int, expected: list[list[int]]) -> bool:
        """`line` gets `table` for its tokens up to `end`, of which `hit_tokens` are hit. False if nothing follows."""
        size, parts = self._size, line.parts
        length = self._blocks(end)
        needed = length * len(parts)
        line.table = table
        if len(table) != needed:
            self.accuse(Admission, f"{line.request!r} has {end} tokens and {len(table)} blocks; {needed} are needed")
            return False
        hits = self._hit_blocks(line, hit_tokens, table)
        for at, (part, due) in enumerate(zip(parts, expected, strict=True)):
            part.table = table[at * length : (at + 1) * length] if len(parts) > 1 else table
            if not self._judge_hits(part, part.table[:hits], due):
                return False
        for part in parts:
            part.skipped = self._behind(part, hits * size)
            if part.skipped:
                self.events["hit only in the window"] += 1
            for block in part.table[part.skipped : hits]:
                self._hold(block, hit=True)
        for part in parts:
            self._hand_out(part, part.table[hits:])
            part.published = hits
            part.written_from = hits * size
        line.scheduled = line.computed = hit_tokens
        if hits * size == len(line.tokens):
            self.events["whole prompt hit"] += 1
        return True

    def _hit_blocks(self, line: Line, hit_tokens: int, table: Sequence[int]) -> int:
        """How many table entries the hit covers. Judges RECOMPUTE."""
        length, size = len(line.tokens), self._size
        if hit_tokens < 0:
            self.accuse(Recompute, f"{line.request!r}: {hit_tokens} hit tokens")
            return 0
        if hit_tokens >= length:
            self.accuse(Recompute, f"{line.request!r}: all {length} tokens are hit; the last must be computed")
        whole = self.policy.reuse == "last_token" and hit_tokens == length - 1 and length % size == 0
        # Blocks of one slot: n - 1 hit tokens may be n - 1 blocks or n; the content of the last one tells.
        if whole and size == 1:
            whole = 0 <= table[-1] < len(self.published) and self.published[table[-1]] == line.chain[-1]
        if whole:
            return length // size
        if hit_tokens % size:
            self.accuse(Recompute, f"{line.request!r}: {hit_tokens} hit tokens are not whole blocks of {size}")
        if hit_tokens // size > (length - 1) // size:
            self.accuse(Recompute, f"{line.request!r}: the last block of {length} tokens is reused under last_block")
        return min(hit_tokens // size, len(line.chain) - 1)

    def _judge_hits(self, line: Line, blocks: list[int], expected: list[int]) -> bool:
        """Whether `blocks` may be hit for the first blocks of `line`. False if they are so wrong that nothing
        follows.
        """
        size, before = self._size, len(self.findings)
        skipped = self._behind(line, len(blocks) * size)
        for logical, block in enumerate(blocks):
            if logical < skipped and block == self._null:
                continue
            if not 0 <= block < self.policy.num_blocks or block in self.policy.reserved:
                self.accuse(Mapping, f"{line.request!r}: logical block {logical} is in block {block}, which is none")
                return False
            piece = line.tokens[logical * size : (logical + 1) * size]
            right = self.slots.holds(block, line.chain[logical], piece) and len(self.slots.content(block)[1]) == size
            if not right:
                self._accuse_content(line, logical, block)
            elif self.published[block] != line.chain[logical + 1]:
                self.accuse(
                    self._withdrawn.get(block, Publish),
                    f"{line.request!r} hits block {block} (logical {logical}); its content "
                    f"{'was withdrawn' if block in self._withdrawn else 'has not been published'}",
                )
        if len(self.findings) > before:
            return False
        if len(blocks) < len(expected):
            self._incomplete(line, len(blocks), len(expected))
        elif self.predictor is not None and blocks != expected:
            self.accuse(Exact, f"{line.request!r} hits blocks {blocks}; by the policy they are {expected}")
        return True

    def _incomplete(self, line: Line, hits: int, expected: int) -> None:
        if not self.policy.complete:
            return
        block = self.owners[line.chain[hits + 1]][0] if line.window is None else -1
        self.accuse(
            Completeness,
            f"{line.request!r} hits {hits} blocks of {line.tokens.tolist()[:32]}; {expected} are resident"
            + (f" (the next one in block {block})" if block >= 0 else " as far as the window reaches"),
        )

    def _accuse_content(self, line: Line, logical: int, block: int) -> None:
        """A hit block does not hold what it should: say whose content it is."""
        size = self._size
        wanted = line.tokens[: (logical + 1) * size].tolist()
        before, own = self.slots.content(block)
        where = f"{line.request!r} hits block {block} (logical {logical}) for tokens {wanted[-64:]}"
        if before < 0 or len(own) < size:
            self.accuse(Freshness, f"{where}; only {len(own)} of its {size} slots are written")
            return
        namespace, history = self.histories.describe(before)
        has = list(history) + own.tolist()
        if has == wanted and namespace != line.namespace:
            self.accuse(Isolation, f"{where} in namespace {line.namespace}; it was written in namespace {namespace}")
        else:
            self.accuse(History, f"{where}; it holds {has[-64:]}{f' in {namespace}' if namespace else ''}")

    # ---- append, fill, truncate, fork, free, reset -------------------------------------------------------------------

    def before_append(self, request: str, tokens: Sequence[int]) -> str | None:
        line = self.lines.get(request)
        if line is None:
            return "UnknownRequest"
        new = self.read(tokens, lowest=UNKNOWN)
        if new is None:
            return "InvalidTokens"
        self._plan = (new, [], [])
        if self.policy.admission == "step":
            return None
        length = len(line.tokens)
        blocks = -(-(length + len(new)) // self._size)
        needed = blocks - len(line.table) + self._must_copy(line)
        if needed and blocks > self.capacity:
            self.events["never fits"] += 1
            return "NeverFits"
        if needed > self.idle:
            self.events["append refused"] += 1
            return "OutOfBlocks"
        return None

    def after_append(self, request: str, table: list[int]) -> None:
        """The sequence has grown; this is its block table now."""
        line = self.lines[request]
        new = self._plan[0]
        old, length = line.table, len(line.tokens)
        if self.policy.admission == "step":
            if table != line.whole:
                self.accuse(
                    Mapping, f"append changed the table of {request!r} from {line.whole} to {table} before any step"
                )
            self._extend(line, new)
            return
        needed = -(-(length + len(new)) // self._size)
        if len(table) != needed:
            self.accuse(
                Admission, f"{request!r} has {length + len(new)} tokens and {len(table)} blocks; {needed} are needed"
            )
            return
        kept = len(old)
        if table[:kept] != old:
            if table[: kept - 1] != old[:-1] or length % self._size == 0:
                self.accuse(Mapping, f"append changed the table of {request!r} from {old} to {table}")
                return
            kept -= 1  # the tail was switched: copy-on-write
        switched = kept < len(old)
        if self._must_copy(line):
            if not switched and self.predictor is not None:
                self.accuse(Aliasing, f"append to {request!r} keeps its tail block {old[-1]}, which others hold too")
                return
            self.events["copy-on-write"] += 1
            if length % self._size == self._size - 1:
                self.events["copy-on-write at the last slot"] += 1
        elif switched and self.predictor is not None:
            self.accuse(Exact, f"append to {request!r} replaced its tail block {old[-1]}, which nobody else holds")
            return
        line.table = table
        self._hand_out(line, table[kept:])
        if switched:
            line.pending = (old[-1], table[kept], length)
        elif length % self._size and self.published[old[-1]] is not None:
            self._withdraw(old[-1], Rollback)
            self.events["published tail withdrawn at append"] += 1
        self._extend(line, new)

    def _extend(self, line: Line, new: array[int]) -> None:
        line.tokens.extend(new)
        if UNKNOWN in new:
            self._unnamed(line, new.count(UNKNOWN))
            self.events["placeholder appended"] += 1

    @staticmethod
    def _unnamed(line: Line, more: int) -> None:
        """`line` has so many more placeholders."""
        for part in line.parts:
            part.unnamed += more

    def _must_copy(self, line: Line) -> bool:
        return bool(len(line.tokens) % self._size) and self.references[line.table[-1]] > 1

    def before_fill(self, request: str, position: int, tokens: Sequence[int]) -> str | None:
        line = self.lines.get(request)
        if line is None:
            return "UnknownRequest"
        names = self.read(tokens)
        if names is None:
            return "InvalidTokens"
        self._plan = (names, [], [])
        end = position + len(names)
        if position < 0 or end > len(line.tokens) or any(token != UNKNOWN for token in line.tokens[position:end]):
            return "InvalidFill"
        return None

    def after_fill(self, request: str, position: int) -> None:
        line, names, size = self.lines[request], self._plan[0], self._size
        line.tokens[position : position + len(names)] = names
        self._unnamed(line, -len(names))
        for part in line.parts:
            for at, token in enumerate(names[: max(0, line.scheduled - position)], position):
                self.slots.name(part.table[at // size], at % size, token)
            # What is written behind the new names has another history now.
            for logical in range(position // size + 1, -(-line.scheduled // size)):
                self.slots.rename(part.table[logical], self._history(part, logical))
        if self.policy.publish != "dispatch":
            self._publish(line, line.computed, line.computed)

    def before_truncate(self, request: str, length: int) -> str | None:
        line = self.lines.get(request)
        if line is None:
            return "UnknownRequest"
        return None if line.base <= length <= len(line.tokens) else "InvalidLength"

    def shortest(self, line: Line) -> int:
        """The least length that `line` can be cut to under the policy; its own where nothing can be cut."""
        if self.policy.truncates == "tokens":
            return line.base
        named = line.named
        if not line.flights:
            return named
        if line.unnamed < len(line.tokens) - named:  # a name behind a placeholder is one of a position
            return max(named, line.scheduled)
        return max(named, line.scheduled - max(0, line.computed - named))

    def after_truncate(self, request: str, length: int, table: list[int]) -> None:
        """The sequence was cut to `length` tokens; this is its block table now."""
        line, size = self.lines[request], self._size
        if length == len(line.tokens):
            if table != line.whole:
                self.accuse(Rollback, f"truncating {request!r} to its own length changed its table to {table}")
            return
        tables = [part.table.copy() for part in line.parts]
        cut: list[int] = []
        if line.pending is not None and length <= line.pending[2]:
            source, destination, at = line.pending
            tables[0][at // size] = source
            cut.append(destination)
            line.pending = None
            self.events["copy undone by truncation"] += 1
        if self.policy.leftover == "released":
            for own in tables:
                keep = -(-length // size)
                cut += reversed(own[keep:])
                del own[keep:]
        expected = [block for own in tables for block in own]
        if table != expected:
            self.accuse(Rollback, f"{request!r} cut to {length} tokens has table {table}; it should be {expected}")
            return
        cut_into = [block for own in tables for block in own[length // size :][:1]] if length % size else []
        for block in cut + cut_into:
            if self.references[block] > 1:
                self.events["truncated into a shared block"] += 1
            elif self.published[block] is not None:
                self._withdraw(block, Rollback)
                self.events["published block rolled back"] += 1
        if line.computed > length:
            self.events["computed tokens rolled back"] += 1
        if line.unnamed:
            self._unnamed(line, -line.tokens[length:].count(UNKNOWN))
        del line.tokens[length:]
        # Drafts that are rejected while later steps are in flight: those compute what comes after the accepted ones.
        down = max(0, line.scheduled - length) if line.flights and self.policy.truncates == "placeholders" else 0
        line.scheduled = min(line.scheduled, length)
        line.computed = min(line.computed - down, length)
        for part, own in zip(line.parts, tables, strict=True):
            part.table = own
            del part.chain[length // size + 1 :]
            part.published = min(part.published, length // size)
        for passage in line.flights:
            passage.spans = [
                (other, min(start - down, length), min(end - down, length)) if other is line else (other, start, end)
                for other, start, end in passage.spans
            ]
        if line.flights and (cut or down):
            self.events["truncated while in flight"] += 1
        if not line.flights or self.policy.lifetime == "stream":
            for block in cut:
                self._let_go(block)
            if self.predictor is not None:
                self.predictor.settle()
        elif cut:
            line.cut.append((line.flights[-1], cut))

    def before_fork(self, request: str, child: str) -> str | None:
        line = self.lines.get(request)
        if line is None:
            return "UnknownRequest"
        if child in self.lines:
            return "DuplicateRequest"
        if line.flights or line.computed < len(line.tokens):
            return "NotComputed"
        return "NotNamed" if line.unnamed else None

    def after_fork(self, request: str, child: str, table: list[int]) -> None:
        """`child` was made from `request`; this is the child's block table."""
        parent = self.lines[request]
        if table != parent.table:
            self.accuse(Mapping, f"fork {child!r} of {request!r} has table {table}, its parent {parent.table}")
            return
        line = Line(child, parent.namespace, parent.tokens[:], parent.chain.copy(), parent.epoch)
        line.table = table
        line.scheduled = line.computed = parent.computed
        line.published = parent.published
        line.written_from = parent.written_from
        for block in table:
            self._hold(block)
        self.lines[child] = line
        self.events["fork"] += 1
        if len(line.tokens) % self._size:
            self.events["fork with a shared tail"] += 1

    def before_free(self, request: str) -> str | None:
        return None if request in self.lines else "UnknownRequest"

    def after_free(self, request: str) -> None:
        line = self.lines.pop(request)
        line.freed = True
        if line.flights:
            self.events["freed while in flight"] += 1
        if not line.flights or self.policy.lifetime == "stream":
            self._release(line)

    def after_reset(self) -> None:
        for block, history in enumerate(self.published):
            if history is not None:
                self.published[block] = None
                self._withdrawn[block] = Publish
                self.touched.append(block)
        if self.lines:
            self.events["reset with live requests"] += 1
        self.owners.clear()
        self._extensions.clear()
        self.cached = 0
        self._epoch += 1
        if self.predictor is not None:
            self.predictor.reset()

    # ---- dispatch and complete ---------------------------------------------------------------------------------------

    def before_dispatch(self, work: Sequence[tuple[str, int]]) -> str | None:
        for request, count in work:
            line = self.lines.get(request)
            if line is None:
                return "UnknownRequest"
            if not 1 <= count <= len(line.tokens) - line.scheduled:
                return "InvalidCount"
        if not work:
            return "EmptyDispatch"
        if len({request for request, _ in work}) < len(work):
            return "RepeatedRequest"
        if self.policy.admission == "step":
            line, count = self.lines[work[0][0]], work[0][1]
            missing, most = self._misses(line, count, self._due(line))
            if missing > 0:
                self.events["refused for one block" if missing == 1 else "refused for several blocks"] += 1
                return "OutOfBlocks"
            self.may_refuse = most > 0
        return None

    def after_no_room(self, work: Sequence[tuple[str, int]]) -> None:
        """The step that was to begin with the first of `work` was refused for want of blocks."""
        self._trim(self.lines[work[0][0]])

    def _behind(self, part: Line, position: int) -> int:
        """How many blocks lie wholly before the window of the query at `position`."""
        window = part.window
        return max(0, position + 1 - window) // self._size if window is not None else 0

    def _blocks(self, end: int) -> int:
        """How many blocks a step that computes up to `end` needs in each part's table."""
        return -(-(end + self.policy.lookahead) // self._size)

    @staticmethod
    def _final(line: Line) -> int:
        """The first position whose query may still come: not computed, or to be computed again if it is rejected."""
        return min(line.computed, line.named)

    def _due(self, line: Line) -> int:
        """How many blocks become free when `line` lets go what lies behind its windows."""
        if not self.policy.windowed:
            return 0
        final = self._final(line)
        going = [part.table[part.skipped : self._behind(part, final)] for part in line.parts]
        return sum(self.references[block] == 1 for blocks in going for block in blocks)

    def _trim(self, line: Line) -> None:
        """`line` lets go what lies behind the windows of its first token that is not computed, or not named."""
        if line.waiting or not self.policy.windowed:
            return
        final = self._final(line)
        for part in line.parts:
            behind = self._behind(part, final)
            if behind <= part.skipped:
                continue
            for logical in range(behind - 1, part.skipped - 1, -1):
                self._let_go(part.table[logical])
            part.table = [self._null] * behind + part.table[behind:]
            part.skipped = behind
            self.events["let go behind the window"] += 1
            if self.predictor is not None:
                self.predictor.settle()

    def _hits_of(self, line: Line) -> list[list[int]]:
        """For each part of a waiting request, the blocks that it must hit now; none for any other request."""
        parts = line.parts
        if not line.waiting or not self.policy.caching:
            return [[] for _ in parts]
        size, tokens = self._size, line.tokens[: line.named] if line.unnamed else line.tokens
        for part in parts:
            for at in range(len(part.chain) - 1, len(tokens) // size):  # what was appended while it waited
                piece = tokens[at * size : (at + 1) * size]
                part.chain.append(self.histories.extend(part.chain[at], piece.tobytes()))
        if len(parts) == 1 and line.window is None:
            return [self._expected_hits(tokens, line.chain)]
        hits = (len(tokens) - 1) // size
        for part in parts:
            if part.window is None:
                there = (at for at, history in enumerate(part.chain[1 : hits + 1]) if not self.owners.get(history))
                hits = next(there, hits)
        while hits:
            owned = [
                [self.owners.get(history) for history in part.chain[self._behind(part, hits * size) + 1 : hits + 1]]
                for part in parts
            ]
            if all(map(all, owned)):
                return [[self._null] * (hits - len(part)) + [own[0] for own in part if own] for part in owned]
            hits -= 1
        return [[] for _ in parts]

    def _missing(self, line: Line, count: int, hits: list[list[int]], due: int = 0) -> int:
        """How many blocks too few there are to schedule `line` for `count` more tokens; not above 0 if it fits.

        A waiting request's hits count as scheduled, and one token at least is computed. due: blocks that become free
        first."""
        length = self._blocks(max(line.scheduled + count, len(hits[0]) * self._size + 1))
        missing = -self.idle - due
        for part, blocks in zip(line.parts, hits, strict=True):
            active = sum(1 for block in blocks if block == self._null or self.references[block])
            missing += max(0, length - len(part.table)) - active
        return missing

    def _misses(self, line: Line, count: int, due: int = 0) -> tuple[int, int]:
        """`_missing`, least and most over what may be hit: all that is resident or, as the policy says, less.

        A hit that `count` covers saves blocks that are active; one beyond it adds what is computed after it. So the
        least is where both meet (or the next, which adds nothing where the lookahead has it), and the most at one of
        the ends."""
        hits = self._hits_of(line)
        if self.policy.complete:
            missing = self._missing(line, count, hits, due)
            return missing, missing
        covered = (line.scheduled + count - 1) // self._size
        least = min(
            self._missing(line, count, [blocks[:at] for blocks in hits], due)
            for at in range(covered, covered + 1 + bool(self.policy.lookahead))
        )
        # Where a content is in several blocks, one that nobody holds may be hit.
        spare = [
            [
                block if block == self._null else self._spare(history, block)
                for history, block in zip(part.chain[1:], blocks, strict=False)
            ]
            for part, blocks in zip(line.parts, hits, strict=True)
        ]
        none: list[list[int]] = [[] for _ in hits]
        most = max(self._missing(line, count, none, due), self._missing(line, count, spare, due))
        if self.policy.windowed:  # a shorter hit has other blocks in its window, which nobody may hold
            longest = max(count, len(hits[0]) * self._size + 1 - line.scheduled)
            most = max(most, self._missing(line, longest, none, due))
        return least, most

    def _spare(self, history: int, block: int) -> int:
        """A block with this content that nobody holds, or `block` if there is none."""
        return next((other for other in self.owners[history] if not self.references[other]), block)

    def take_blocks(
        self, work: Sequence[tuple[str, int]], starts: Sequence[int], tables: Sequence[list[int]]
    ) -> Sequence[tuple[str, int]]:
        """With admission by "step", before `after_dispatch`: the step admitted the first `len(starts)` of `work`, each
        to be computed from its start on, and these are their block tables now. Returns the work as admitted.

        Each is admitted, written and, where the policy says so, published before the next one is looked up. (Where not
        all that is resident need be hit, an earlier lookup is as good.)"""
        admitted: list[tuple[str, int]] = []
        idle, most = self.idle, -self.capacity
        if len(starts) < len(work) and not self.policy.complete:
            # It may have been looked up, and what it would hit kept for it, before the others took their blocks.
            request, count = work[len(starts)]
            most = self._misses(self.lines[request], count)[1]
        for (request, count), start, table in zip(work, starts, tables, strict=False):
            line = self.lines[request]
            self._trim(line)
            hits = self._hits_of(line)
            taken = hits if self.policy.complete else [part[: start // self._size] for part in hits]
            if self._missing(line, count, taken) > 0:
                self.accuse(Admission, f"the step admits {request!r}, for which there are not enough blocks")
            end = min(max(line.scheduled + count, start + 1), len(line.tokens))
            if line.waiting:
                line.waiting = False
                if not self._admit(line, start, table, end, hits):
                    return admitted
            elif not self._grow(line, start, end, table):
                return admitted
            admitted.append((request, end - line.scheduled))
            self._compute(line, line.scheduled, end)
        if len(starts) < len(work):
            request, count = work[len(starts)]
            line = self.lines[request]
            self._trim(line)
            if max(self._misses(line, count)[1], most + idle - self.idle) <= 0:
                self.accuse(Admission, f"the step leaves out {request!r}, for which there are enough blocks")
        return admitted

    def _grow(self, line: Line, start: int, end: int, table: list[int]) -> bool:
        """The step computes `line`, which has blocks already, from `start` to `end` in `table`. False if nothing
        follows."""
        parts, request, size = line.parts, line.request, self._size
        length = max(self._blocks(end), len(line.table))  # what a truncation left over is kept
        tables = [table[at * length : (at + 1) * length] for at in range(len(parts))]
        for part, own in zip(parts, tables, strict=True):
            if self.policy.windowed and self._null in own[part.skipped :]:
                at = own.index(self._null, part.skipped)
                self.accuse(
                    Freshness,
                    f"the step computes {request!r} from {start} on and reads positions {at * size} on from the "
                    f"reserved block {self._null}: table {table}",
                )
                return False
        if (
            start != line.scheduled
            or len(table) != length * len(parts)
            or any(own[: len(part.table)] != part.table for part, own in zip(parts, tables, strict=True))
        ):
            self.accuse(
                Mapping,
                f"the step computes {request!r} from {start} to {end} in table {table}; it was scheduled up to "
                f"{line.scheduled}, in table {line.whole}",
            )
            return False
        if self._blocks(start) < min(-(-end // size), len(line.table)):
            self.events["kept block used again"] += 1
        for part, own in zip(parts, tables, strict=True):
            old, part.table = len(part.table), own
            self._hand_out(part, own[old:])
        return True

    def after_dispatch(self, work: Sequence[tuple[str, int]], copies: Sequence[tuple[int, int]]) -> Passage:
        """A step was dispatched that makes these (source, destination) block copies before it writes."""
        spans = []
        due = []
        for request, count in work:
            line = self.lines[request]
            spans.append((line, line.scheduled, line.scheduled + count))
            if line.pending is not None:
                due.append((line.pending[0], line.pending[1]))
                line.pending = None
        passage = Passage(self.dispatched, spans)
        self.dispatched += 1
        passage.copies = due
        if list(copies) != due:
            missing = [pair for pair in due if pair not in copies]
            if missing:
                self.accuse(Aliasing, f"the step does not carry the copies {missing}; it carries {list(copies)}")
            else:
                self.accuse(Exclusive, f"the step carries copies {list(copies)}; due are {due}")
        for source, destination in copies:
            if 0 <= source < self.policy.num_blocks and 0 <= destination < self.policy.num_blocks:
                self.slots.copy(source, destination)
        for line, start, end in spans:
            if UNKNOWN in line.tokens[start:end] if line.unnamed else False:
                self.events["placeholder dispatched"] += 1
            if self.policy.admission == "request":
                self._compute(line, start, end)
            line.scheduled = end
            line.flights.append(passage)
            if len(line.flights) > 1:
                self.events["several steps of one request in flight"] += 1
        self.in_flight.append(passage)
        return passage

    def _compute(self, line: Line, start: int, end: int) -> None:
        """A step that is dispatched computes positions start to end of `line`, in all its parts."""
        for part in line.parts:
            self._write(part, start, end)
        if self.policy.publish != "completion":
            self._publish(line, end, start)

    def _write(self, line: Line, start: int, end: int) -> None:
        """The stream writes positions start to end of `line`. Judges who may write there, and what is read below."""
        size, table = self._size, line.table
        position = max(start, line.written_from)
        while position < end:
            logical, offset = divmod(position, size)
            stop = min(end, (logical + 1) * size)
            block = table[logical]
            if self.references[block] != 1:
                self.accuse(
                    Aliasing,
                    f"the step writes position {position} of {line.request!r} into block {block}, "
                    f"which {self.references[block]} tables and copies hold",
                )
            before = self._history(line, logical)
            if offset and not self.slots.holds(block, before, line.tokens[logical * size : position]):
                self.accuse(
                    Freshness,
                    f"{line.request!r} reads positions {logical * size} to {position - 1} from block {block}, "
                    f"which holds {self.slots.content(block)[1].tolist()[:offset]}",
                )
            self.slots.write(block, offset, before, line.tokens[position:stop])
            position = stop

    def _history(self, line: Line, logical: int) -> int:
        """The history before logical block `logical`: also where placeholders keep `chain` from reaching so far."""
        size, chain = self._size, line.chain
        if logical < len(chain):
            return chain[logical]
        history = chain[-1]
        for at in range(len(chain) - 1, logical):
            piece = line.tokens[at * size : (at + 1) * size]
            history = self.histories.extend(history, piece.tobytes())
            if line.unnamed == 0:
                chain.append(history)
        return history

    def judge_batch(
        self,
        passage: Passage,
        tables: Sequence[Sequence[int]],
        context_lengths: Sequence[int],
        cu_seqlens: Sequence[int],
        packed_rows: Sequence[int],
        row_sequences: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
    ) -> None:
        """MAPPING: compare a step's arrays with their formulas. O(scheduled tokens + table entries)."""
        size = self._size
        spans = passage.spans
        total = sum(end - start for _, start, end in spans)
        if not len(tables) == len(context_lengths) == len(cu_seqlens) - 1 == len(spans) or not (
            len(packed_rows) == len(row_sequences) == len(positions) == len(slots) == total
        ):
            self.accuse(
                Mapping,
                f"a step of {len(spans)} sequences and {total} tokens has {len(tables)} tables, {len(context_lengths)} "
                f"context lengths, {len(cu_seqlens)} cu_seqlens and {len(positions)} positions, {len(slots)} slots, "
                f"{len(packed_rows)} packed rows, {len(row_sequences)} row sequences",
            )
            return
        if packed_rows != list(range(total)):
            self.accuse(Mapping, f"packed rows are {list(packed_rows)[:32]}, not 0 to {total - 1}")
        row = 0
        for index, (line, start, end) in enumerate(spans):
            after = row + end - start
            name = line.request
            if cu_seqlens[index] != row or cu_seqlens[index + 1] != after:
                self.accuse(
                    Mapping,
                    f"cu_seqlens has {name!r} at {cu_seqlens[index]} to {cu_seqlens[index + 1]}, not {row} to {after}",
                )
            if context_lengths[index] != end:
                self.accuse(Mapping, f"context length of {name!r} is {context_lengths[index]}, not {end}")
            table, width = line.table, len(line.table)
            shown = tables[index]
            if shown[:width] != table or any(block != -1 for block in shown[width:]):
                self.accuse(Mapping, f"the step's block table of {name!r} is {list(shown)}, its table {table}")
            if positions[row:after] != list(range(start, end)):
                self.accuse(
                    Mapping, f"positions of {name!r} are {list(positions[row:after])[:32]}, not {start} to {end - 1}"
                )
            if row_sequences[row:after] != [index] * (end - start):
                self.accuse(
                    Mapping, f"rows {row} to {after - 1} belong to sequence {index}, not {row_sequences[row:after]}"
                )
            position = start
            while position < end:
                logical = position // size
                stop = min(end, (logical + 1) * size)
                first = table[logical] * size + position % size
                expected = list(range(first, first + stop - position))
                if position < line.written_from:
                    kept = min(stop, line.written_from) - position
                    expected[:kept] = [-1] * kept
                at = row + position - start
                if slots[at : at + stop - position] != expected:
                    self.accuse(
                        Mapping,
                        f"slots of {name!r} for positions {position} to {stop - 1} are "
                        f"{list(slots[at : at + stop - position])[:32]}, not {expected[:32]}",
                    )
                position = stop
            row = after

    def before_complete(self, passage: Passage) -> str | None:
        if passage.done:
            return "AlreadyCompleted"
        return None if self.in_flight[0] is passage else "OutOfOrder"

    def after_complete(self, passage: Passage) -> None:
        self.in_flight.pop(0)
        passage.done = True
        if self.in_flight:
            self.events["completed with another step in flight"] += 1
        for line, start, end in passage.spans:
            line.flights.pop(0)
            if end > start:
                line.computed = end
                if (
                    self.policy.publish != "dispatch"
                    and end // self._size > line.published
                    and not (line.freed and self.policy.lifetime == "stream")
                ):
                    self._publish(line, end)
                    if line.freed:
                        self.events["published after free"] += 1
        for source, _ in passage.copies:
            self._let_go_alone(source)
        for line, _, _ in passage.spans:
            while line.cut and line.cut[0][0] is passage:
                for block in line.cut.pop(0)[1]:
                    self._let_go_alone(block)
            if line.freed and not line.flights and self.policy.lifetime == "steps":
                self._release(line)
        if self.predictor is not None:
            self.predictor.settle()

    def after_merge(self, passage: Passage, tables: Sequence[list[int] | None]) -> None:
        """The core may have merged duplicates: these are the tables of the completed step's requests now, None for
        requests that were freed."""
        for (line, _, _), table in zip(passage.spans, tables, strict=True):
            if table is None or table == line.table:
                continue
            old, line.table = line.table, table
            changed = [at for at, pair in enumerate(zip(old, table, strict=False)) if pair[0] != pair[1]]
            if len(table) != len(old) or changed[-1] >= line.computed // self._size:
                self.accuse(Mapping, f"completing a step changed the table of {line.request!r} from {old} to {table}")
                return
            if self._judge_hits(line, table[: changed[-1] + 1], []):
                for at in changed:
                    self._hold(table[at], hit=True)
                    self._let_go(old[at])

    # ---- the whole state ---------------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Verify the induction: every written position of every sequence is still where it belongs. O(all tables)."""
        size = self._size
        lines = list(self.lines.values())
        for passage in self.in_flight if self.policy.lifetime == "steps" else ():
            lines += [line for line, _, _ in passage.spans if line.freed]
        for whole, line in [(each, part) for each in lines for part in each.parts]:
            written = max(whole.scheduled, line.written_from)
            for logical in range(line.skipped, -(-written // size)):
                piece = line.tokens[logical * size : min(written, (logical + 1) * size)]
                block = line.table[logical]
                pending = line.pending
                if pending is not None and pending[1] == block:
                    block = pending[0]  # the copy has not been made
                if not self.slots.holds(block, self._history(line, logical), piece):
                    self.accuse(
                        Freshness,
                        f"{line.request!r} would read positions {logical * size} on from block {block}, which holds "
                        f"{self.slots.content(block)[1].tolist()[:32]} and not {piece.tolist()[:32]}",
                    )

    def read(self, tokens: Sequence[int], lowest: int = 0) -> array[int] | None:
        """`tokens` as an array, or None if they are not acceptable."""
        try:
            result = array("i", tokens) if type(tokens) is not array else tokens[:]
        except (TypeError, OverflowError):
            return None
        return result if result and min(result) >= lowest else None

    def _chain(self, tokens: array[int], namespace: Hashable) -> list[int]:
        """History numbers after 0, 1, ... full blocks."""
        size = self._size
        extend = self.histories.extend
        history = self.histories.root(namespace)
        chain = [history]
        for start in range(0, len(tokens) - size + 1, size):
            history = extend(history, tokens[start : start + size].tobytes())
            chain.append(history)
        return chain

    def _expected_hits(self, tokens: array[int], chain: list[int]) -> list[int]:
        """The blocks that a request must hit: active owners first, then the earliest published."""
        if not self.policy.caching:
            return []
        limit = len(tokens) if self.policy.reuse == "last_token" else len(tokens) - 1
        hits = []
        for history in chain[1 : limit // self._size + 1]:
            owners = self.owners.get(history)
            if not owners:
                break
            block = owners[0]
            if len(owners) > 1 and self.policy.duplicates == "active":
                block = next((other for other in owners if self.references[other]), block)
            hits.append(block)
        return hits

    def _hand_out(self, line: Line, blocks: list[int]) -> None:
        """`line` was given these as new blocks, which its table has already."""
        if self.predictor is not None:
            predicted = self.predictor.next(len(blocks))
            # Fewer are predicted only where more was handed out than there is; that is judged below.
            if blocks != predicted and len(predicted) == len(blocks):
                at = next(i for i, pair in enumerate(zip(blocks, predicted, strict=True)) if pair[0] != pair[1])
                kind = Eviction if self.published[predicted[at]] is not None else Exact
                self.accuse(
                    kind, f"{line.request!r} takes new blocks {blocks}; by the order of release they are {predicted}"
                )
        for block in blocks:
            if not 0 <= block < self.policy.num_blocks or block in self.policy.reserved:
                self.accuse(Mapping, f"{line.request!r} is given block {block}, which does not exist or is reserved")
                continue
            if self.references[block]:
                self._accuse_holders(line, block, twice=line.table.count(block) > 1)
            history = self.published[block]
            if history is not None:
                self._evict(block, history)
            self._withdrawn.pop(block, None)
            self._hold(block)

    def _accuse_holders(self, line: Line, block: int, twice: bool) -> None:
        """A block is handed out that somebody holds."""
        if twice:
            self.accuse(Exclusive, f"{line.request!r} is given block {block} twice")
            return
        for other in self.lines.values():
            if any(block in part.table for part in other.parts if part is not line):
                self.accuse(Exclusive, f"{line.request!r} is given block {block}, which {other.request!r} holds")
                return
        self.accuse(Lifetime, f"{line.request!r} is given block {block}, which a step in flight or a pending copy uses")

    def _evict(self, block: int, history: int) -> None:
        self._withdraw(block, Publish)
        del self._withdrawn[block]
        self.events["evicted"] += 1
        if self.owners.get(history):
            self.events["evicted one of two owners"] += 1
        elif (
            self._extensions.get(history)
            and self.policy.complete
            and self.policy.duplicates != "last"
            and not self.policy.windowed
        ):
            self.accuse(Eviction, f"block {block} is taken while blocks that extend its content are still cached")
        if any(self.references[other] > 1 for other in self.owners.get(self.histories.parent(history), ())):
            self.events["evicted while its prefix is shared"] += 1

    def _hold(self, block: int, hit: bool = False) -> None:
        """One more holder."""
        if self.references[block] == 0:
            self.idle -= 1
            if self.published[block] is not None:
                self.cached -= 1
            if self.predictor is not None:
                self.predictor.taken(block)
            if hit:
                self.events["hit on a cached block"] += 1
        elif hit:
            self.events["hit on an active block"] += 1
        self.references[block] += 1
        self.touched.append(block)

    def _let_go(self, block: int) -> None:
        """One holder less."""
        self.references[block] -= 1
        self.touched.append(block)
        if self.references[block] == 0:
            published = self.published[block] is not None
            self.idle += 1
            self.cached += published
            if self.predictor is not None:
                self.predictor.released(block, published)

    def _let_go_alone(self, block: int) -> None:
        """The same where the holder may no longer hold what comes before: that counts as released, too, if it is
        cached.
        """
        self._let_go(block)
        history = self.published[block]
        if history is None or self.references[block]:
            return
        history = self.histories.parent(history)
        while self.histories.parent(history) >= 0:
            owners = self.owners.get(history, [])
            if any(self.references[other] for other in owners):
                return
            if owners and self.predictor is not None:
                self.predictor.refreshed(owners[0])
            history = self.histories.parent(history)

    def _release(self, line: Line) -> None:
        if line.pending is not None:
            self.events["pending copy cancelled by free"] += 1
            self._let_go(line.pending[0])
            line.pending = None
        for part in line.parts:
            for block in reversed(part.table[part.skipped :]):
                self._let_go(block)
            if self.predictor is not None:
                self.predictor.settle()

    def _publish(self, line: Line, end: int, earlier: int = 0) -> None:
        """Publish the full, named blocks of `line` that are not published yet, up to `end`. What lies before `earlier`
        has been computed for some time, and lacked but a name."""
        if line.epoch != self._epoch or not self.policy.caching:
            return
        for part in line.parts:
            self._publish_part(part, end, earlier)

    def _publish_part(self, line: Line, end: int, earlier: int) -> None:
        size = self._size
        while line.published < end // size:
            logical = line.published
            piece = line.tokens[logical * size : (logical + 1) * size]
            if line.unnamed and UNKNOWN in piece:
                return
            if len(line.chain) == logical + 1:
                line.chain.append(self.histories.extend(line.chain[logical], piece.tobytes()))
            if logical < line.skipped:  # named so late that its window has passed
                line.published += 1
                self.events["named behind the window"] += 1
                continue
            block, history = line.table[logical], line.chain[logical + 1]
            if not self.slots.holds(block, line.chain[logical], piece):
                self.accuse(
                    Freshness,
                    f"block {block} of {line.request!r} would be published with {piece.tolist()[:32]}; "
                    f"it holds {self.slots.content(block)[1].tolist()[:32]}",
                )
            line.published += 1
            if line.published * size <= earlier:
                self.events["published when named"] += 1
            if self.published[block] is None:
                owners = self.owners.setdefault(history, [])
                if owners:
                    self.events["published a duplicate"] += 1
                    if self.policy.duplicates == "last":
                        self._withdraw(owners[0], Publish)
                        owners = self.owners.setdefault(history, [])
                owners.append(block)
                self.published[block] = history
                self._extensions[line.chain[logical]] += 1
                self._withdrawn.pop(block, None)
                self.touched.append(block)

    def _withdraw(self, block: int, reason: type[Violation]) -> None:
        """`block` leaves the index; a hit on what it still holds would break `reason`."""
        history = self.published[block]
        assert history is not None
        self.published[block] = None
        self.touched.append(block)
        self._withdrawn[block] = reason
        owners = self.owners[history]
        owners.remove(block)
        if not owners:
            del self.owners[history]
            if reason is Rollback and self._extensions.get(history):
                self.events["rolled back under what extends it"] += 1
        elif reason is Rollback and not any(self.references[other] for other in owners):
            self.events["duplicate refreshed by a rollback"] += 1
            if self.predictor is not None:
                self.predictor.refreshed(owners[0])
        before = self.histories.parent(history)
        self._extensions[before] -= 1
        if not self._extensions[before]:
            del self._extensions[before]
        if self.references[block] == 0:
            self.cached -= 1
