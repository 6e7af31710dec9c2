"""When is a block published, so that others can hit it.

Only a full block is published, and only when all its tokens have names and all blocks before it have been published. A
block is published at the later of its completion and its last token's name: when the step that computes it completes,
or when the name comes. Where the policy publishes at dispatch: at the first dispatch of its request that finds it
named, and computes it or comes after that. With "either": at whatever comes first.

After a reset, older sequences run on and publish nothing.
"""

from __future__ import annotations

from collections import defaultdict

from . import events
from .blocks import Blocks
from .histories import Histories
from .policy import Policy
from .sequence import UNKNOWN, GroupTable, Sequence
from .slots import Slots
from .verdicts import Findings, Freshness

__all__ = ["Publication"]


class Publication:
    """epoch: how often the cache was reset. at_dispatch: whether anything is published at dispatch."""

    def __init__(
        self,
        policy: Policy,
        epoch: int,
        histories: Histories,
        slots: Slots,
        blocks: Blocks,
        counts: defaultdict[str, int],
        findings: Findings,
    ) -> None:
        self.epoch = epoch
        self._size = policy.block_size
        self._caching = policy.caching
        self.at_dispatch = policy.publish != "completion"
        self._at_completion = policy.publish != "dispatch"
        self._after_free = policy.lifetime == "steps"  # else the blocks are somebody else's by then
        self._histories = histories
        self._slots = slots
        self._blocks = blocks
        self._counts = counts
        self._findings = findings

    def dispatched(self, sequence: Sequence, start: int, end: int) -> None:
        """A step was dispatched that computes positions start to end."""
        if self.at_dispatch:
            self._publish(sequence, end, start)

    def completed(self, sequence: Sequence, end: int) -> None:
        """A step has computed all before `end`."""
        if (
            self._at_completion
            and end // self._size > sequence.tables[0].published
            and (self._after_free or not sequence.freed)
        ):
            self._publish(sequence, end)
            if sequence.freed:
                self._counts[events.PUBLISHED_AFTER_FREE] += 1

    def named(self, sequence: Sequence) -> None:
        """Placeholders got names."""
        if self._at_completion:
            self._publish(sequence, sequence.computed, sequence.computed)

    def _publish(self, sequence: Sequence, end: int, earlier: int = 0) -> None:
        """Publish the full, named blocks up to `end` that are not published yet. What lies before `earlier` has been
        computed for some time, and lacked but a name."""
        if sequence.epoch == self.epoch and self._caching:
            for table in sequence.tables:
                self._publish_in(table, sequence, end, earlier)

    def _publish_in(self, table: GroupTable, sequence: Sequence, end: int, earlier: int) -> None:
        size, histories = self._size, table.histories
        while table.published < end // size:
            logical = table.published
            piece = sequence.tokens[logical * size : (logical + 1) * size]
            if sequence.num_placeholders and UNKNOWN in piece:
                return
            if len(histories) == logical + 1:
                histories.append(self._histories.extend(histories[logical], piece.tobytes()))
            if logical < table.num_released:  # named so late that its window has passed
                table.published += 1
                self._counts[events.NAMED_BEHIND_THE_WINDOW] += 1
                continue
            block = table.blocks[logical]
            if not self._slots.holds(block, histories[logical], piece):
                before, own = self._slots.content(block)
                due = histories[logical]
                self._findings.accuse(
                    Freshness,
                    f"block {block} of {sequence.request!r} would be published with {piece.tolist()[:32]}"
                    f"{self._histories.told(due) if before != due else ''}; it holds {own.tolist()[:32]}"
                    f"{self._histories.told(before) if before != due else ''}",
                )
            table.published += 1
            if table.published * size <= earlier:
                self._counts[events.PUBLISHED_WHEN_NAMED] += 1
            if self._blocks.published[block] is None:
                self._blocks.publish(block, histories[logical + 1], histories[logical])
