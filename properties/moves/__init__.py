"""Moves: from four small integers to one operation in the present state.

A move is (kind, who, amount, value), each 0 to 99. Whatever draws the integers (the Hypothesis machine, which also
shrinks them, and the swarm walk in `fuzz`), what they mean is plain Python, here: `who` is an index into what is live,
`amount` a length among those around block boundaries, `value` picks tokens. Zero is the simplest meaning everywhere. An
impossible move is replaced by one that makes it possible, so that hardly any is wasted: a fork of nothing computed
completes a step, a truncation of nothing appended appends.

`kinds` has the table of moves and what it takes to add one; `life` the moves of a request's life, `stories` those that
go on with what others began, `invalid` the calls that must be refused, `episode` the values that all are made of.

A `Swarm` says which kinds an episode leaves out and how it is shaped (Groce et al., "Swarm testing", ISSTA 2012). It
never leaves out allocate, dispatch and complete.

Imports: properties, reference.
"""

from __future__ import annotations

from .episode import NAMESPACES, Swarm
from .kinds import KINDS, MOVES, OPTIONAL, Move, Moves

__all__ = ["KINDS", "MOVES", "NAMESPACES", "OPTIONAL", "Move", "Moves", "Swarm"]
