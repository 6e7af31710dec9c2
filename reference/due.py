"""What is due of one operation: what `Judge.before_...` says and `Judge.after_...` takes back.

Nothing has changed when it is made. It is good for one operation, and until the next one.
"""

from __future__ import annotations

from array import array
from collections import abc

from .blocks import Blocks
from .sequence import Sequence, Step

__all__ = ["Due"]


class Due:
    """refusal: the one that is due; None if the operation must succeed. may_refuse: it may be refused for want of
    blocks although all that could be hit would leave enough, since the core need not hit all of it
    (`Policy.complete`). changed: blocks whose references or publication the operation has changed.

    Of a step and of a truncation: skip: why a core with this policy is not asked to do it; "" if it is. Of a step and
    of its completion: tables: the requests whose tables `after_...` must be given.

    The rest says what the operation is about. Each is there where the operation has such a thing, and no fault in it
    is found before. sequence: of the request, or the new one. tokens: appended, or names. position: the first one
    named, or the length to cut to. hits: for each group, the blocks that must be hit. request: of a fork's child. work:
    (sequence, number of tokens) for each request of a step. step: the one to complete."""

    __slots__ = (
        "changed",
        "hits",
        "may_refuse",
        "position",
        "refusal",
        "request",
        "sequence",
        "skip",
        "step",
        "tables",
        "tokens",
        "work",
    )

    changed: list[int]
    sequence: Sequence
    tokens: array[int]
    position: int
    hits: list[list[int]]
    request: str
    step: Step
    work: abc.Sequence[tuple[Sequence, int]]
    skip: str
    tables: abc.Sequence[str]

    def __init__(self, blocks: Blocks) -> None:
        self.changed = blocks.changed = []
        self.refusal: str | None = None
        self.may_refuse = False
