"""What is a hit: which blocks a request must hit, and whether those that it hits are right.

A hit is a whole prefix: whole blocks whose K/V have been computed for this very history, in this namespace, still
published. All that is resident must be hit (where the policy is complete), but for the end of the prompt, of which at
least one token is left to compute: its last block ("last_block"), or its last token alone ("last_token").
"""

from __future__ import annotations

from collections import abc

from .blocks import Blocks
from .histories import Histories
from .policy import Policy
from .sequence import GroupTable, Sequence
from .slots import Slots
from .verdicts import Completeness, Exact, Findings, Freshness, History, Isolation, Mapping, Publish, Recompute

__all__ = ["Hits"]


class Hits:
    """Every method is O(the prompt), and reads only."""

    def __init__(
        self,
        policy: Policy,
        histories: Histories,
        slots: Slots,
        blocks: Blocks,
        findings: Findings,
    ) -> None:
        self._size = policy.block_size
        self._num_blocks = policy.num_blocks
        self._reserved = policy.reserved
        self._null = policy.null_block
        self._caching = policy.caching
        self._complete = policy.complete
        self._exact = policy.exact
        self._to_last_token = policy.reuse == "last_token"
        self._choose = self._active_owner if policy.duplicates == "active" else self._first_owner
        self._histories = histories
        self._slots = slots
        self._blocks = blocks
        self._findings = findings

    # ---- what must be hit --------------------------------------------------------------------------------------------

    def due(self, sequence: Sequence) -> list[list[int]]:
        """For each group, the blocks that a sequence without blocks must hit now; none for any other. As many as every
        group can hit."""
        tables, owners = sequence.tables, self._blocks.owners
        if sequence.admitted or not self._caching:
            return [[] for _ in tables]
        length = sequence.num_named if sequence.num_placeholders else len(sequence.tokens)
        most = (length if self._to_last_token else length - 1) // self._size
        while True:
            hits = most
            for table in tables:
                hits = table.group.longest_hit(table.histories, hits, owners)
            if hits == most or len(tables) == 1:
                break
            most = hits
        due = []
        for table in tables:
            due.append(table.group.hit(table.histories, hits, self._choose))
        return due

    def not_held(self, sequence: Sequence, hits: list[list[int]]) -> list[list[int]]:
        """The same contents, in blocks that nobody holds where there are any."""
        references, owners = self._blocks.references, self._blocks.owners
        return [
            [
                next((other for other in owners[history] if not references[other]), block)
                for history, block in zip(table.histories[1:], blocks, strict=False)
            ]
            for table, blocks in zip(sequence.tables, hits, strict=True)
        ]

    def _first_owner(self, history: int) -> int:
        return self._blocks.owners[history][0]

    def _active_owner(self, history: int) -> int:
        owners = self._blocks.owners[history]
        if len(owners) == 1:
            return owners[0]
        references = self._blocks.references
        return next((block for block in owners if references[block]), owners[0])

    # ---- what was hit ------------------------------------------------------------------------------------------------

    def num_blocks(self, sequence: Sequence, hit_tokens: int, table: abc.Sequence[int]) -> int:
        """How many table entries a hit of `hit_tokens` covers. Judges RECOMPUTE."""
        request, length, size = sequence.request, len(sequence.tokens), self._size
        accuse = self._findings.accuse
        if hit_tokens < 0:
            accuse(Recompute, f"{request!r}: {hit_tokens} hit tokens")
            return 0
        if hit_tokens >= length:
            accuse(Recompute, f"{request!r}: all {length} tokens are hit; the last must be computed")
        histories = sequence.tables[0].histories
        whole = self._to_last_token and hit_tokens == length - 1 and length % size == 0
        # Blocks of one slot: n - 1 hit tokens may be n - 1 blocks or n; the content of the last one tells.
        if whole and size == 1:
            published = self._blocks.published
            whole = 0 <= table[-1] < len(published) and published[table[-1]] == histories[-1]
        if whole:
            return length // size
        if hit_tokens % size:
            accuse(Recompute, f"{request!r}: {hit_tokens} hit tokens are not whole blocks of {size}")
        if hit_tokens // size > (length - 1) // size:
            accuse(Recompute, f"{request!r}: the last block of {length} tokens is reused under last_block")
        return min(hit_tokens // size, len(histories) - 1)

    def judge_lookup(self, sequence: Sequence, hit_tokens: int, blocks: abc.Sequence[int] | None) -> None:
        """A lookup said that `hit_tokens` of a new sequence would be hit, in `blocks` (None if it does not say)."""
        expected = self.due(sequence)
        known = [*blocks] if blocks is not None else expected[0]
        hits = self.num_blocks(sequence, hit_tokens, known or (-1,))
        if blocks is not None:
            if len(blocks) != hits * len(expected):
                self._findings.accuse(Mapping, f"lookup says {hit_tokens} hit tokens but names {len(blocks)} blocks")
            for at, (table, own) in enumerate(zip(sequence.tables, expected, strict=True)):
                self.judge(sequence, table, known[at * hits : (at + 1) * hits], own)
        elif hits < len(expected[0]):
            self._judge_incomplete(sequence, sequence.tables[0], hits, len(expected[0]))
        elif hits > len(expected[0]):
            self._findings.accuse(
                Publish, f"lookup says {hit_tokens} hit tokens; only {len(expected[0])} blocks can be hit"
            )

    def judge(self, sequence: Sequence, table: GroupTable, blocks: list[int], expected: list[int]) -> bool:
        """Whether `blocks` may be hit for the first blocks of `sequence` in one group. False if they are so wrong that
        nothing follows."""
        request, size, before = sequence.request, self._size, len(self._findings)
        slots, published, histories = self._slots, self._blocks.published, table.histories
        needed = table.group.first_needed_block(len(blocks) * size)
        for logical, block in enumerate(blocks):
            if logical < needed and block == self._null:
                continue
            if not 0 <= block < self._num_blocks or block in self._reserved:
                self._findings.accuse(
                    Mapping, f"{request!r}: logical block {logical} is in block {block}, which is none"
                )
                return False
            piece = sequence.tokens[logical * size : (logical + 1) * size]
            right = slots.holds(block, histories[logical], piece) and len(slots.content(block)[1]) == size
            if not right:
                self._accuse_content(sequence, table, logical, block)
            elif published[block] != histories[logical + 1]:
                withdrawn = self._blocks.withdrawn
                self._findings.accuse(
                    withdrawn.get(block, Publish),
                    f"{request!r} hits block {block} (logical {logical}); its content "
                    f"{'was withdrawn' if block in withdrawn else 'has not been published'}",
                )
        if len(self._findings) > before:
            return False
        if len(blocks) < len(expected):
            self._judge_incomplete(sequence, table, len(blocks), len(expected))
        elif self._exact and blocks != expected:
            self._findings.accuse(Exact, f"{request!r} hits blocks {blocks}; by the policy they are {expected}")
        return True

    def _judge_incomplete(self, sequence: Sequence, table: GroupTable, hits: int, expected: int) -> None:
        """Fewer blocks are hit than could be."""
        if not self._complete:
            return
        block = self._blocks.owners[table.histories[hits + 1]][0] if table.group.needs_all else -1
        self._findings.accuse(
            Completeness,
            f"{sequence.request!r} hits {hits} blocks of {sequence.tokens.tolist()[:32]}; {expected} are resident"
            + (f" (the next one in block {block})" if block >= 0 else " as far as the window reaches"),
        )

    def _accuse_content(self, sequence: Sequence, table: GroupTable, logical: int, block: int) -> None:
        """A hit block does not hold what it should: say whose content it is."""
        size, accuse = self._size, self._findings.accuse
        wanted = sequence.tokens[: (logical + 1) * size].tolist()
        before, own = self._slots.content(block)
        where = f"{sequence.request!r} hits block {block} (logical {logical}) for tokens {wanted[-64:]}"
        if before < 0 or len(own) < size:
            accuse(Freshness, f"{where}; only {len(own)} of its {size} slots are written")
            return
        namespace, history = self._histories.describe(before)
        mine, _ = self._histories.describe(table.histories[0])
        has = list(history) + own.tolist()
        if has == wanted and namespace != mine:
            accuse(Isolation, f"{where} in namespace {mine}; it was written in namespace {namespace}")
        else:
            accuse(History, f"{where}; it holds {has[-64:]}{f' in {namespace}' if namespace else ''}")
