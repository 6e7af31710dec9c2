"""A core that does what the judge expects, to be bent in one place by a test.

It has no bookkeeping of its own: it asks the judge's predictor which blocks come next, and copies where the judge says
that a copy is due. So a run through it must accuse nothing; a test that wants an accusation makes one choice itself.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Hashable
from types import SimpleNamespace

from reference import Judge, Policy, Sequence, Step, Violation


def judge_of(num_blocks: int = 8, block_size: int = 4, **options: object) -> Judge:
    return Judge(Policy(num_blocks=num_blocks, block_size=block_size, **options))


def next_blocks(judge: Judge, count: int, pinned: abc.Sequence[int] = ()) -> list[int]:
    """The next `count` new blocks, where `pinned` are hit first.

    By the stated order; where the policy leaves it open, another sound one: the free ones, then the cached ones
    with the longest histories, so that nothing is evicted before what extends it.
    """
    if judge.blocks.predictor is not None:
        blocks = judge.blocks.predictor.next(count + len(pinned))
    else:
        unused = [block for block, holders in enumerate(judge.blocks.references) if not holders]
        unused = [block for block in unused if block not in judge.policy.reserved]
        blocks = sorted(unused, key=lambda block: _length(judge, block), reverse=True)
    return [block for block in blocks if block not in pinned][:count]


def _length(judge: Judge, block: int) -> float:
    """How many tokens the content that `block` is published with has; more than any where it is not published."""
    history = judge.blocks.published[block]
    return float("inf") if history is None else len(judge.histories.describe(history)[1])


# ---- admission for the whole request ---------------------------------------------------------------------------------


def allocate(judge: Judge, request: str, tokens: abc.Sequence[int], namespace: Hashable = ()) -> list[int]:
    """Admit `request` as a correct core would. Returns its table."""
    due = judge.before_allocate(request, tokens, namespace)
    assert due.refusal is None
    (hit,) = due.hits
    size = judge.policy.block_size
    table = hit + next_blocks(judge, -(-len(tokens) // size) - len(hit), hit)
    judge.after_allocate(due, min(len(hit) * size, len(tokens) - 1), list(table))
    return table


def append(judge: Judge, request: str, tokens: abc.Sequence[int]) -> list[int]:
    due = judge.before_append(request, tokens)
    assert due.refusal is None
    sequence = due.sequence
    size, length = judge.policy.block_size, len(sequence.tokens)
    table = sequence.table.copy()
    copy = bool(length % size) and judge.blocks.references[table[-1]] > 1
    new = next_blocks(judge, -(-(length + len(tokens)) // size) - len(table) + copy)
    if copy:
        table[-1] = new.pop(0)
    table += new
    judge.after_append(due, list(table))
    return table


def dispatch(judge: Judge, *work: tuple[str, int]) -> Step:
    due = judge.before_dispatch(work)
    assert due.refusal is None
    pending = [judge.sequences[request].pending for request, _ in work]
    return judge.after_dispatch(due, (), (), [copy[:2] for copy in pending if copy is not None])


def dispatch_all(judge: Judge, *requests: str) -> Step:
    sequences = [judge.sequences[request] for request in requests]
    return dispatch(judge, *((one.request, len(one.tokens) - one.scheduled) for one in sequences))


def complete(judge: Judge, step: Step) -> None:
    due = judge.before_complete(step)
    assert due.refusal is None
    judge.after_complete(due, [judge.sequences[request].table for request in due.tables])


def merge(judge: Judge, step: Step, tables: abc.Sequence[list[int]]) -> None:
    """The step completes, and these are the tables of its live requests then."""
    due = judge.before_complete(step)
    assert due.refusal is None
    judge.after_complete(due, tables)


def run(judge: Judge, *requests: str) -> None:
    """Compute all that is left of each, in one step."""
    complete(judge, dispatch_all(judge, *requests))


def admit(judge: Judge, request: str, tokens: abc.Sequence[int], namespace: Hashable = ()) -> list[int]:
    table = allocate(judge, request, tokens, namespace)
    run(judge, request)
    return table


# ---- everything else -------------------------------------------------------------------------------------------------


def truncate(judge: Judge, request: str, length: int) -> list[int]:
    due = judge.before_truncate(request, length)
    assert due.refusal is None
    sequence = due.sequence
    table = sequence.table.copy()
    if sequence.pending is not None and length <= sequence.pending.length:
        table[sequence.pending.length // judge.policy.block_size] = sequence.pending.source
    if judge.policy.leftover == "released":
        del table[-(-length // judge.policy.block_size) :]
    judge.after_truncate(due, list(table))
    return table


def fork(judge: Judge, request: str, child: str) -> None:
    due = judge.before_fork(request, child)
    assert due.refusal is None
    judge.after_fork(due, due.sequence.table.copy())


def fill(judge: Judge, request: str, position: int, tokens: abc.Sequence[int]) -> None:
    due = judge.before_fill(request, position, tokens)
    assert due.refusal is None
    judge.after_fill(due)


def free(judge: Judge, request: str) -> None:
    due = judge.before_free(request)
    assert due.refusal is None
    judge.after_free(due)


def reset(judge: Judge) -> None:
    judge.after_reset(judge.before_reset())


def arrays(**shown: object) -> SimpleNamespace:
    """A step's arrays, as a core shows them."""
    return SimpleNamespace(**shown)


# ---- admission by the step -------------------------------------------------------------------------------------------


def wait(judge: Judge, request: str, tokens: abc.Sequence[int], namespace: Hashable = ()) -> None:
    """`request` arrives; with admission by the step it has nothing yet."""
    due = judge.before_allocate(request, tokens, namespace)
    assert due.refusal is None
    judge.after_allocate(due, 0, [])


def grow(judge: Judge, request: str, tokens: abc.Sequence[int]) -> None:
    """With admission by the step: tokens that have no blocks yet."""
    due = judge.before_append(request, tokens)
    assert due.refusal is None
    judge.after_append(due, judge.sequences[request].table)


def due_hits(judge: Judge, request: str) -> list[list[int]]:
    """For each group, the blocks that `request` must hit when it is dispatched now."""
    return judge.admission.due_hits(judge.sequences[request])


def fitting(judge: Judge, request: str, count: int) -> tuple[int, list[int]]:
    """With admission by the step: where a step of `request` alone begins, and its table then, by a correct core."""
    ahead, _ = judge.clone()
    sequence: Sequence = ahead.sequences[request]
    ahead.release.release_outside_window(sequence)
    (hits,) = due_hits(ahead, request)
    start = sequence.scheduled if sequence.admitted else len(hits) * judge.policy.block_size
    table = sequence.table + hits
    new = ahead.allocation.num_blocks(max(sequence.scheduled + count, start + 1)) - len(table)
    return start, table + next_blocks(ahead, max(0, new), hits)


def step(judge: Judge, request: str, count: int) -> Step:
    """With admission by the step: compute `count` more tokens of `request`, or one behind its hits."""
    start, table = fitting(judge, request, count)
    return take(judge, ((request, count),), [start], [table])


def take(
    judge: Judge, work: abc.Sequence[tuple[str, int]], starts: abc.Sequence[int], tables: abc.Sequence[list[int]]
) -> Step:
    """With admission by the step: a step that fits is dispatched, and the core begins at `starts`, in `tables`."""
    due = judge.before_dispatch(work)
    assert due.refusal is None
    return judge.after_dispatch(due, starts, tables, [])


def charged(judge: Judge) -> type[Violation] | None:
    """The property that the findings are charged to: the first in order of harm."""
    return min((type(found) for found in judge.findings), key=lambda kind: kind.rank, default=None)
