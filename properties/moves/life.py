"""The moves of a request's life: it is admitted, scheduled, computed, grows, is forked, and ends.

A move that is impossible in the present state stands for one that makes it possible.
"""

from __future__ import annotations

from ..operations import Allocate, Append, Complete, Fork, Free, Operation
from .episode import Episode

__all__ = ["allocate", "append", "complete", "dispatch", "fork", "free"]

_COUNTS = (1, 1, 1, 2)


def allocate(episode: Episode, who: int, amount: int, value: int) -> Operation:
    live = episode.live
    if live and (
        len(live) >= episode.swarm.lines
        or (episode.session.judge.blocks.available <= episode.swarm.reserve and value & 7 < 7)
    ):  # a full pool refuses everything; let something else happen first
        return dispatch(episode, who, amount, value)
    return Allocate(episode.new_name(), episode.prompt(who, amount, value), episode.space(who))


def dispatch(episode: Episode, who: int, amount: int, value: int) -> Operation:
    """Everything unscheduled (value 0), or what `value` leaves in, in chunks if `amount` says so."""
    judge = episode.session.judge
    if len(judge.in_flight) >= episode.depth:
        return complete(episode, who, amount, value)
    chunk = amount >> 2 if amount & 3 == 3 and judge.policy.chunks else 0
    value = value & 31 if value >= 64 else 0
    work = []
    for request, sequence in judge.sequences.items():
        left = len(sequence.tokens) - sequence.scheduled
        if left:
            if not value & 1:
                work.append((request, left if not chunk or left == 1 else min(left, 1 + chunk % left)))
            value >>= 1
    if not work:
        if judge.in_flight:
            return complete(episode, who, amount, value)
        return append(episode, who, amount, value) if judge.sequences else episode.admission((0, who, amount, value))
    return episode.step(tuple(work))


def complete(episode: Episode, who: int, amount: int, value: int) -> Operation:
    for step, (passage, _) in episode.session.steps.items():
        if not passage.done:
            return Complete(step)
    return dispatch(episode, who, amount, value)


def append(episode: Episode, who: int, amount: int, value: int) -> Operation:
    if not episode.live:
        return episode.admission((0, who, amount, value))
    count = episode.growths[(amount >> 1) % len(episode.growths)] if amount & 1 else _COUNTS[amount >> 1 & 3]
    request = episode.request(who)
    if not episode.session.judge.blocks.available and value & 7 < 7:
        sequence = episode.live[request]
        if len(sequence.tokens) + count > len(sequence.tables[0].blocks) * episode.size:
            return free(episode, who, amount, value)  # a full pool again
    return Append(request, episode.tokens(count, value))


def fork(episode: Episode, who: int, amount: int, value: int) -> Operation:
    ready = [
        request
        for request, sequence in episode.live.items()
        if sequence.computed == len(sequence.tokens) and not sequence.in_flight and not sequence.num_placeholders
    ]
    if not ready or len(episode.live) >= episode.swarm.lines + 2:
        return complete(episode, who, amount, value)
    request, child = ready[who % len(ready)], episode.new_name()
    episode.begun = child if value & 1 else request
    return Fork(request, child)


def free(episode: Episode, who: int, amount: int, value: int) -> Operation:
    live = episode.live
    if not live:
        return episode.admission((0, who, amount, value))
    request = episode.freed = episode.request(who)
    sequence = live[request]
    if not sequence.num_placeholders:
        episode.remember(tuple(sequence.tokens))
    return Free(request)
