"""Candidates of the shrinker: simpler lists of operations, made from one that fails.

Each function makes a list, or some, and runs nothing. What an operation becomes is in its record, so that these hold
for every kind; the few that name kinds are about what only those do: a step's work, a fork's two requests, tokens that
an append could have brought with an earlier operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from properties.operations import (
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fork,
    Names,
    Namespace,
    Operation,
    WithPrompt,
)
from properties.session import Session

from ..runs.values import names


def size(configuration: Configuration, operations: Sequence[Operation]) -> tuple[int, ...]:
    """What "shorter" means: operations, then tokens and entries, then the pool, then values."""
    sizes = [operation.size() for operation in operations]
    return (
        len(operations),
        sum(tokens for tokens, _ in sizes),
        configuration.num_blocks + configuration.block_size,
        sum(values for _, values in sizes),
        128 - configuration.hash_bits,
        configuration.reuse != "last_block",
    )


def without_request(operations: Sequence[Operation], request: str) -> list[Operation]:
    """What is left where there is no such request."""
    left: list[Operation | None] = [operation.without(request) for operation in operations]
    return [operation for operation in left if operation is not None]


def filled(operations: Sequence[Operation], session: Session) -> Iterator[Operation]:
    """Every step schedules all that its requests have."""
    lines = session.judge.sequences
    for operation in operations:
        if isinstance(operation, Dispatch):
            work = [
                (name, len(lines[name].tokens) - lines[name].scheduled) if name in lines else (name, count)
                for name, count in operation.work
            ]
            operation = replace(operation, work=tuple((name, count) for name, count in work if count))
        yield operation


def plainer_configurations(configuration: Configuration) -> Iterator[Configuration]:
    simpler: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("hash_bits", (128, 0)),
        ("reuse", ("last_block",)),
        ("caching", (True,)),
        ("num_blocks", (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)),
        ("block_size", (1, 2, 3, 4)),
    )
    for name, values in simpler:
        present = getattr(configuration, name)
        for value in values:
            if value == present:
                break
            if type(value) is int and name != "hash_bits" and value > present:
                break
            yield replace(configuration, **{name: value})


def merged(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Lists with one operation less (or two), in which another does both their work."""
    for later, second in enumerate(operations):
        if isinstance(second, Append):
            for earlier in range(later - 1, -1, -1):
                first = operations[earlier]
                if isinstance(first, (Allocate, Append)) and first.request == second.request:
                    longer = replace(first, tokens=(*first.tokens, *second.tokens))
                    yield [*operations[:earlier], longer, *operations[earlier + 1 : later], *operations[later + 1 :]]
                    break
        elif isinstance(second, Dispatch) and len(second.work) == 1:
            request, count = second.work[0]
            for earlier in range(later - 1, -1, -1):
                first = operations[earlier]
                if isinstance(first, Dispatch) and request in dict(first.work):
                    work = tuple((name, own + count if name == request else own) for name, own in first.work)
                    rest = [
                        operation
                        for operation in operations[earlier + 1 :]
                        if operation is not second
                        and not (isinstance(operation, Complete) and operation.step == second.step)
                    ]
                    yield [*operations[:earlier], Dispatch(first.step, work), *rest]
                    break


def forks(operations: Sequence[Operation]) -> list[Fork]:
    return [operation for operation in operations if isinstance(operation, Fork)]


def as_one(operations: Sequence[Operation], fork: Fork) -> list[Operation]:
    """The fork's child and its parent made one request."""

    def name(request: str) -> str:
        return fork.request if request == fork.child else request

    joined: list[Operation] = []
    for operation in operations:
        operation = operation.renamed(Names(name, name))
        if isinstance(operation, Dispatch):
            operation = replace(operation, work=tuple(dict(operation.work).items()))
        if not (isinstance(operation, Fork) and operation.request == operation.child):
            joined.append(operation)
    return joined


def with_own_names(operations: Sequence[Operation]) -> list[Operation]:
    """No name twice: where one was used again, the operations that freed it were needed only for that."""
    current: dict[str, str] = {}

    def used(name: str) -> str:
        return current.get(name, name)

    def made(name: str) -> str:
        current[name] = f"{name}/{len(current)}" if name not in current else f"{current[name]}'"
        return current[name]

    return [operation.renamed(Names(used, made)) for operation in operations]


def with_plain_names(operations: Sequence[Operation]) -> list[Operation]:
    """Requests a, b, c and steps 1, 2, 3 in the order of their appearance."""
    requests = {old: chr(ord("a") + index) for index, old in enumerate(names(operations)) if index < 26}
    steps: dict[int, int] = {}

    def name(request: str) -> str:
        return requests.get(request, request)

    def step(number: int) -> int:
        return steps.setdefault(number, len(steps) + 1)

    return [operation.renamed(Names(name, name, step)) for operation in operations]


def namespaces(operations: Sequence[Operation]) -> list[Namespace]:
    """Those that are not the default, in the order of their appearance."""
    prompts = [operation for operation in operations if isinstance(operation, WithPrompt)]
    return list(dict.fromkeys(operation.namespace for operation in prompts if operation.namespace))


def without_namespace(operations: Sequence[Operation], namespace: Namespace) -> list[Operation]:
    """The default namespace wherever it was this one."""
    return [
        replace(operation, namespace=())
        if isinstance(operation, WithPrompt) and operation.namespace == namespace
        else operation
        for operation in operations
    ]


def tokens(operations: Sequence[Operation]) -> set[int]:
    """Those that a plainer one could stand for."""
    named = [token for operation in operations for token in operation.tokens_named()]
    return {token for token in named if type(token) is int and token > 0}


def scaled(operations: Sequence[Operation], old: Configuration, new: Configuration, up: bool) -> list[Operation]:
    """All lengths scaled from the old block size to the new, rounded up or down, and cut to what the new pool can
    hold.
    """

    def scale(count: int) -> int:
        scaled = -(-count * new.block_size // old.block_size) if up else count * new.block_size // old.block_size
        return max(scaled, min(count, 1))

    longest = new.num_blocks * new.block_size
    return [operation.scaled(scale, longest) for operation in operations]
