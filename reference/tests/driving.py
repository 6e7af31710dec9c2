"""A core that does what the judge expects, to be bent in one place by a test.

It has no bookkeeping of its own: it asks the judge's predictor which blocks come next, and copies where the judge says
that a copy is due. So a run through it must accuse nothing; a test that wants an accusation makes one choice itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from reference import Judge, Passage, Policy, Violation


def judge_of(num_blocks: int = 8, block_size: int = 4, **options: object) -> Judge:
    return Judge(Policy(num_blocks=num_blocks, block_size=block_size, **options))


def next_blocks(judge: Judge, count: int, pinned: Sequence[int] = ()) -> list[int]:
    """The next `count` new blocks, where `pinned` are hit first.

    By the stated order; where the policy leaves it open, another sound one: the free ones, then the cached ones
    with the longest histories, so that nothing is evicted before what extends it.
    """
    if judge.predictor is not None:
        blocks = judge.predictor.next(count + len(pinned))
    else:
        idle = [block for block, holders in enumerate(judge.references) if not holders]
        idle = [block for block in idle if block not in judge.policy.reserved]
        blocks = sorted(idle, key=lambda block: _length(judge, block), reverse=True)
    return [block for block in blocks if block not in pinned][:count]


def _length(judge: Judge, block: int) -> float:
    """How many tokens the content that `block` is published with has; more than any where it is not published."""
    history = judge.published[block]
    return float("inf") if history is None else len(judge.histories.describe(history)[1])


def allocate(judge: Judge, request: str, tokens: Sequence[int], namespace: Hashable = ()) -> list[int]:
    """Admit `request` as a correct core would. Returns its table."""
    assert judge.before_allocate(request, tokens, namespace) is None
    hit = list(judge._plan[2])
    size = judge.policy.block_size
    table = hit + next_blocks(judge, -(-len(tokens) // size) - len(hit), hit)
    judge.after_allocate(request, namespace, min(len(hit) * size, len(tokens) - 1), list(table))
    return table


def append(judge: Judge, request: str, tokens: Sequence[int]) -> list[int]:
    assert judge.before_append(request, tokens) is None
    line = judge.lines[request]
    size = judge.policy.block_size
    table = line.table.copy()
    copy = judge._must_copy(line)
    new = next_blocks(judge, -(-(len(line.tokens) + len(tokens)) // size) - len(table) + copy)
    if copy:
        table[-1] = new.pop(0)
    table += new
    judge.after_append(request, list(table))
    return table


def dispatch(judge: Judge, *work: tuple[str, int]) -> Passage:
    assert judge.before_dispatch(work) is None
    pending = [judge.lines[request].pending for request, _ in work]
    return judge.after_dispatch(work, [(due[0], due[1]) for due in pending if due is not None])


def dispatch_all(judge: Judge, *requests: str) -> Passage:
    lines = [judge.lines[request] for request in requests]
    return dispatch(judge, *((line.request, len(line.tokens) - line.scheduled) for line in lines))


def complete(judge: Judge, passage: Passage) -> None:
    assert judge.before_complete(passage) is None
    judge.after_complete(passage)


def run(judge: Judge, *requests: str) -> None:
    """Compute all that is left of each, in one step."""
    complete(judge, dispatch_all(judge, *requests))


def admit(judge: Judge, request: str, tokens: Sequence[int], namespace: Hashable = ()) -> list[int]:
    table = allocate(judge, request, tokens, namespace)
    run(judge, request)
    return table


def truncate(judge: Judge, request: str, length: int) -> list[int]:
    assert judge.before_truncate(request, length) is None
    line = judge.lines[request]
    table = line.table.copy()
    if line.pending is not None and length <= line.pending[2]:
        table[line.pending[2] // judge.policy.block_size] = line.pending[0]
    if judge.policy.leftover == "kept":
        table = line.whole.copy()
    else:
        del table[-(-length // judge.policy.block_size) :]
    judge.after_truncate(request, length, list(table))
    return table


def fork(judge: Judge, request: str, child: str) -> None:
    assert judge.before_fork(request, child) is None
    judge.after_fork(request, child, judge.lines[request].table.copy())


def fill(judge: Judge, request: str, position: int, tokens: Sequence[int]) -> None:
    assert judge.before_fill(request, position, tokens) is None
    judge.after_fill(request, position)


def free(judge: Judge, request: str) -> None:
    assert judge.before_free(request) is None
    judge.after_free(request)


def wait(judge: Judge, request: str, tokens: Sequence[int]) -> None:
    """`request` arrives; with admission by the step it has nothing yet."""
    assert judge.before_allocate(request, tokens, ()) is None
    judge.after_allocate(request, (), 0, [])


def grow(judge: Judge, request: str, tokens: Sequence[int]) -> None:
    """With admission by the step: tokens that have no blocks yet."""
    assert judge.before_append(request, tokens) is None
    judge.after_append(request, judge.lines[request].whole)


def fitting(judge: Judge, request: str, count: int) -> tuple[int, list[int]]:
    """With admission by the step: where a step of `request` alone begins, and its table then, by a correct core."""
    ahead, _ = judge.clone()
    line = ahead.lines[request]
    ahead._trim(line)
    hits = ahead._hits_of(line)[0]
    size = judge.policy.block_size
    start = len(hits) * size if line.waiting else line.scheduled
    table = line.table + hits
    new = ahead._blocks(max(line.scheduled + count, start + 1)) - len(table)
    return start, table + next_blocks(ahead, max(0, new), hits)


def step(judge: Judge, request: str, count: int) -> Passage:
    """With admission by the step: compute `count` more tokens of `request`, or one behind its hits."""
    work = ((request, count),)
    assert judge.before_dispatch(work) is None
    start, table = fitting(judge, request, count)
    return judge.after_dispatch(judge.take_blocks(work, [start], [table]), [])


def charged(judge: Judge) -> type[Violation] | None:
    """The property that the findings are charged to: the first in order of harm."""
    return min((type(found) for found in judge.findings), key=lambda kind: kind.rank, default=None)
