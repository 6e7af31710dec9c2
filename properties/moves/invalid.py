"""Invalid calls: every kind of bad input there is, each of which must be refused.

A call is made from (episode, who, value); None where the present state has nothing to be wrong about.
"""

from __future__ import annotations

from typing import Any

from ..operations import Allocate, Append, Complete, Fill, Fork, Free, Lookup, Operation, Truncate
from ..target import Capability
from .episode import NAMESPACES, Episode

_BAD_TOKENS: tuple[tuple[Any, ...], ...] = ((), (-5,), (1 << 31,), (0, -2), (3, 1 << 40), ("x",))


def bad_request(episode: Episode, who: int, value: int) -> Operation | None:
    return Allocate(episode.request(who), episode.prompt(who, 0, value)) if episode.live else None


def bad_prompt(episode: Episode, who: int, value: int) -> Operation | None:
    return Allocate(episode.new_name(), _BAD_TOKENS[value % len(_BAD_TOKENS)])


def bad_lookup(episode: Episode, who: int, value: int) -> Operation | None:
    bad = _BAD_TOKENS[value % len(_BAD_TOKENS)]
    return Lookup(bad) if Capability.LOOKUP in episode.capabilities else None


def bad_append(episode: Episode, who: int, value: int) -> Operation | None:
    return Append(episode.request(who), _BAD_TOKENS[value % len(_BAD_TOKENS)])


def unknown_append(episode: Episode, who: int, value: int) -> Operation | None:
    return Append("nobody", (0,))


def over_dispatch(episode: Episode, who: int, value: int) -> Operation | None:
    sequence = episode.live.get(request := episode.request(who))
    left = len(sequence.tokens) - sequence.scheduled if sequence else 0
    return episode.step(((request, (left + 1, 0, -1, 1 << 20)[value & 3]),))


def half_bad_dispatch(episode: Episode, who: int, value: int) -> Operation | None:
    """Something valid first: none of it may have happened."""
    work = [(request, 1) for request, sequence in episode.live.items() if len(sequence.tokens) > sequence.scheduled]
    return episode.step((*work, ("nobody", 1)))


def empty_dispatch(episode: Episode, who: int, value: int) -> Operation | None:
    return episode.step(())


def repeated_dispatch(episode: Episode, who: int, value: int) -> Operation | None:
    for request, sequence in episode.live.items():
        if len(sequence.tokens) > sequence.scheduled:
            return episode.step(((request, 1), (request, 1)))
    return None


def complete_twice(episode: Episode, who: int, value: int) -> Operation | None:
    if value & 1 and len(episode.session.judge.in_flight) > 1:
        return complete_early(episode, who, value)
    done = [step for step, (passage, _) in episode.session.steps.items() if passage.done]
    return Complete(done[-1 - who % len(done)]) if done else None


def complete_early(episode: Episode, who: int, value: int) -> Operation | None:
    waiting = [step for step, (passage, _) in episode.session.steps.items() if not passage.done]
    return Complete(waiting[-1]) if len(waiting) > 1 else complete_twice(episode, who, value)


def bad_truncate(episode: Episode, who: int, value: int) -> Operation | None:
    if Capability.TRUNCATE not in episode.capabilities:
        return None
    sequence = episode.live.get(request := episode.request(who))
    return Truncate(request, (sequence.base - 1, len(sequence.tokens) + 1, -1)[value % 3] if sequence else 0)


def bad_fork(episode: Episode, who: int, value: int) -> Operation | None:
    """A name that is taken, or a parent that is not computed."""
    if Capability.FORK not in episode.capabilities:
        return None
    if value & 1:
        return Fork(episode.request(who), episode.request(who + 1))
    for request, sequence in episode.live.items():
        if sequence.in_flight or sequence.num_placeholders or sequence.computed < len(sequence.tokens):
            return Fork(request, episode.new_name())
    return Fork("nobody", episode.new_name())


def bad_fill(episode: Episode, who: int, value: int) -> Operation | None:
    """A position that is named, negative or beyond the end, or a name that is none."""
    if Capability.FILL not in episode.capabilities:
        return None
    sequence = episode.live.get(request := episode.request(who))
    length = len(sequence.tokens) if sequence else 1
    if value & 4:
        return Fill(request, max(0, length - 1), _BAD_TOKENS[value % len(_BAD_TOKENS)])
    return Fill(request, (0, length, -1, length - 1)[value & 3], (0, 0) if value & 8 else (0,))


def other_match(episode: Episode, who: int, value: int) -> Operation | None:
    """A match that was made for other tokens, or for another namespace."""
    if not episode.matches:
        return None
    name, tokens, space = episode.matches[who % len(episode.matches)]
    if value & 1 and Capability.NAMESPACES in episode.capabilities:
        return Allocate(episode.new_name(), tokens, NAMESPACES[1] if space != NAMESPACES[1] else (), name)
    return Allocate(episode.new_name(), (*tokens[:-1], tokens[-1] + 1), space, name)


def double_free(episode: Episode, who: int, value: int) -> Operation:
    return Free(episode.freed if episode.freed not in episode.live else "nobody")
