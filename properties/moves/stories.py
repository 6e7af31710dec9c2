"""Stories: moves that go on with what earlier ones began.

Some hard states need several operations in the right order, which single moves rarely meet: content that is built on
what is then rolled back, shared tails and pending copies, drafts that are proposed, computed, accepted and rejected.
"""

from __future__ import annotations

from reference import Sequence as CachedSequence

from ..operations import UNKNOWN, Allocate, Append, Fill, Free, Lookup, Operation, Truncate
from .episode import Episode
from .life import append, complete, dispatch, fork

__all__ = ["story"]


def story(episode: Episode, who: int, amount: int, value: int) -> Operation:
    """Go on with what the last fork or truncation began: shared tails, copies that pend, and what undoes them."""
    if (
        who >= 50
        and "truncate" not in episode.off
        and not episode.drafts
        and (step := tower(episode, amount, value)) is not None
    ):
        return step
    request = episode.begun
    sequence = episode.live.get(request)
    if sequence is None:
        return fork(episode, who, amount, value) if "fork" not in episode.off else append(episode, who, amount, value)
    if episode.drafts:
        return verify(episode, request, sequence, amount, value)
    if sequence.pending is None:
        tail = sequence.tables[0].blocks[-1:]
        if value < 30 and tail and episode.session.judge.blocks.references[tail[0]] > 1:
            for other, sharing in episode.live.items():
                if sharing is not sequence and tail[0] in sharing.tables[0].blocks:
                    return Free(other)
        # Often what was cut off once more, as a draft model proposes it again.
        again = episode.cut if amount & 1 else ()
        return Append(request, again or episode.tokens(1 + (amount >> 1 & 1), value))
    if value < 40 and len(sequence.tokens) > sequence.base and "truncate" not in episode.off:
        return episode.cut_to(
            request, sequence, len(sequence.tokens) - 1 - amount % (len(sequence.tokens) - sequence.base)
        )
    return Free(request) if value < 60 else dispatch(episode, who, amount, 0)


def tower(episode: Episode, amount: int, value: int) -> Operation | None:
    """A step of this story: build a request on all blocks of another, see it through and free it; roll back what it
    was built on; compute that again, and ask for the whole."""
    if episode.upon is not None:
        under, upon = episode.live.get(episode.under), episode.live.get(episode.upon.request)
        if under is None or (upon is None and len(under.tokens) == under.base):
            episode.upon = None
        elif upon is None:
            return episode.cut_to(episode.under, under, under.base)
        elif upon.in_flight or upon.scheduled < len(upon.tokens):
            return dispatch(episode, 0, 0, 0)
        else:
            return Free(episode.upon.request)
    sequence = episode.live.get(episode.under)
    if sequence is not None and episode.whole is not None:
        if len(sequence.tokens) == sequence.base and episode.cut:
            return Append(episode.under, episode.cut)
        if sequence.in_flight or sequence.scheduled < len(sequence.tokens):
            return dispatch(episode, 0, 0, 0)
        whole, episode.whole = episode.whole, None
        return Allocate(episode.new_name(), whole.tokens, whole.namespace)
    return begin_tower(episode, amount, value)


def begin_tower(episode: Episode, amount: int, value: int) -> Operation | None:
    """The next story's first step, if a live request has full generated blocks."""
    size = episode.size
    for request, sequence in episode.live.items():
        whole = sequence.tables[0].published * size
        if whole > sequence.base and not sequence.num_placeholders and whole + size < episode.pool:
            tokens = (*sequence.tokens[:whole], *episode.tokens(size + (amount & 1), value))
            episode.under = request
            episode.upon = episode.whole = Allocate(episode.new_name(), tokens, episode.space_of(sequence))
            episode.remember(tokens)
            return episode.upon
    return None


def verify(episode: Episode, request: str, sequence: CachedSequence, amount: int, value: int) -> Operation:
    """The next thing that happens to a request with drafts: they are proposed, computed, and some of the first are
    accepted and the rest rejected, or all of them at once."""
    judge, named = episode.session.judge, sequence.num_named
    if value >= 80 and "lookup" not in episode.off:  # what does the index have of it by now?
        return Lookup((*sequence.tokens[:named], *episode.tokens(1, value)), episode.space_of(sequence))
    if sequence.computed > named:  # a verdict is due
        shortest = judge.shortest(sequence)
        if (value & 1 or "fill" in episode.off) and shortest < len(sequence.tokens):
            return Truncate(request, shortest)
        if "fill" not in episode.off:
            due = sequence.tokens[named : sequence.computed]
            run = next((at for at, token in enumerate(due) if token != UNKNOWN), len(due))
            return Fill(request, named, episode.tokens(1 + amount % run, value))
    if sequence.scheduled < len(sequence.tokens):
        if not judge.blocks.available and len(sequence.tokens) > len(sequence.tables[0].blocks) * episode.size:
            return Free(request)  # it can only be refused
        return dispatch(episode, 0, amount | 3 if value & 2 else 0, 0)  # a part of it, half the time
    if sequence.in_flight and (value < 20 or len(judge.in_flight) >= episode.depth):
        return complete(episode, 0, amount, value)
    count = episode.proposed(amount)
    if sequence.num_placeholders:
        return Append(request, (UNKNOWN,) * count)
    if value & 1:
        return Append(request, episode.tokens(count, value))
    return Append(request, (*episode.tokens(amount & 1, value), *(UNKNOWN,) * count))
