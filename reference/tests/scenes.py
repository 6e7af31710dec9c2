"""Scenes that several tests begin with, and cores that say what a test wants, whatever is right."""

from __future__ import annotations

from reference import Judge

from .driving import admit, allocate, fork, judge_of, run

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def say(judge: Judge, request: str, tokens: list[int], hit_tokens: int, table: list[int], space: object = ()) -> Judge:
    """The core admits `request` like this, whatever is right."""
    due = judge.before_allocate(request, tokens, space)
    assert due.refusal in (None, "OutOfBlocks")
    judge.after_allocate(due, hit_tokens, table)
    return judge


def lookup_says(
    judge: Judge, tokens: list[int], hit_tokens: int, blocks: list[int] | None, space: object = ()
) -> Judge:
    due = judge.before_lookup(tokens, space)
    assert due.refusal is None
    judge.after_lookup(due, hit_tokens, blocks)
    return judge


def cut_says(judge: Judge, request: str, length: int, table: list[int]) -> Judge:
    due = judge.before_truncate(request, length)
    assert due.refusal is None
    judge.after_truncate(due, table)
    return judge


def with_prompt(**options: object) -> Judge:
    """PROMPT is computed by "a" in blocks 0, 1, 2 of 4."""
    judge = judge_of(**options)
    assert admit(judge, "a", PROMPT) == [0, 1, 2]
    assert judge.findings == []
    return judge


def forked(**options: object) -> Judge:
    """ "c" is a fork of "p": 6 tokens in blocks 0 and 1 of 4."""
    judge = judge_of(**options)
    admit(judge, "p", [1, 2, 3, 4, 5, 6])
    fork(judge, "p", "c")
    return judge


def two_owners(**options: object) -> Judge:
    """ "a" and "b" have computed the same full block in blocks 0 and 1."""
    judge = judge_of(**options)
    for request in "ab":
        allocate(judge, request, [1, 2, 3, 4])
    run(judge, "a", "b")
    return judge
