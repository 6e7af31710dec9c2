"""What the tests of this room share: sessions on kvcore, and a tour through every kind of operation."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Fork,
    Free,
    Lookup,
    Operation,
    Reset,
    Truncate,
)
from properties.session import Outcome, Session
from properties.target import Target
from properties.targets.kvcore import KvcoreTarget
from reference import Violation

SALT = (("salt", "s"),)

Factory = Callable[[Configuration], Target]


def session_of(
    factory: Factory = KvcoreTarget,
    num_blocks: int = 8,
    block_size: int = 4,
    *,
    outside: bool = False,
    exact: bool = True,
    every: int = 1,
    **configuration: Any,
) -> Session:
    """A session on a fresh target that compares everything after every operation (or after every `every`)."""
    target = factory(Configuration(num_blocks=num_blocks, block_size=block_size, **configuration))
    return Session(target, outside=outside, exact=exact, walk_every=every, contents_every=every, check_every=every)


def drive(session: Session, *operations: Operation) -> list[Outcome]:
    return [session.apply(operation) for operation in operations]


def done(session: Session, *operations: Operation) -> Session:
    """Apply operations that must all succeed."""
    for operation in operations:
        outcome = session.apply(operation)
        assert outcome == ("done", ""), f"{operation}: {outcome}"
    return session


def charged(session: Session, *operations: Operation) -> Violation:
    """The violation that the last of the operations ends in; the ones before it must succeed."""
    done(session, *operations[:-1])
    try:
        outcome = session.apply(operations[-1])
    except Violation as violation:
        return violation
    raise AssertionError(f"{operations[-1]} broke nothing: {outcome}")


def admit(request: str, tokens: tuple[int, ...], step: int, namespace: tuple[tuple[str, str], ...] = ()) -> Any:
    """Operations that allocate a request and compute all of it, when nothing of it is cached."""
    return (
        Allocate(request, tokens, namespace),
        Dispatch(step, ((request, len(tokens)),)),
        Complete(step),
    )


PROMPT = (1, 2, 3, 4, 5, 6)

TOUR: tuple[Operation, ...] = (
    Lookup(PROMPT),
    Allocate("a", PROMPT),
    Dispatch(1, (("a", 4),)),
    Dispatch(2, (("a", 2),)),
    Complete(1),
    Complete(2),
    Lookup(PROMPT, (), "m"),
    Allocate("b", PROMPT, (), "m"),
    Allocate("n", PROMPT, SALT),
    Lookup(PROMPT, SALT),
    Append("a", (UNKNOWN,)),
    Fill("a", 6, (7,)),
    Dispatch(3, (("a", 1), ("b", 2), ("n", 6))),
    Complete(3),
    Append("a", (8, 9)),
    Truncate("a", 7),
    Fork("a", "c"),
    Append("c", (9,)),
    Dispatch(4, (("c", 1),)),
    Complete(4),
    Free("a"),
    Reset(),
    Free("c"),
    Free("b"),
    Free("n"),
    Free("n"),
)
"""Every kind of operation, each optional field, two steps in flight, and a double free at the end; all the others are
valid on a full target. Needs seven blocks of four.
"""


def stumbling(seed: int, length: int) -> list[Operation]:
    """Operations drawn without a look at the state: about half of them are invalid where they stand."""
    random = Random(seed)

    def name() -> str:
        return random.choice("abcd")

    def tokens(most: int) -> tuple[int, ...]:
        return tuple(random.choice((0, 0, 1)) for _ in range(random.randint(1, most)))

    step = 0
    operations: list[Operation] = []
    for _ in range(length):
        namespace = random.choice(((), (), SALT))
        match = random.choice((None, "m"))
        operation: Operation
        roll = random.randrange(20)
        if roll < 4:
            operation = Allocate(name(), tokens(9), namespace, match)
        elif roll < 6:
            operation = Lookup(tokens(9), namespace, match)
        elif roll < 8:
            operation = Append(name(), random.choice((tokens(3), (UNKNOWN,))))
        elif roll < 11:
            step += 1
            operation = Dispatch(step, ((name(), random.randint(1, 3)),))
        elif roll < 14:
            operation = Complete(random.randint(max(1, step - 2), step + 1))
        elif roll < 15:
            operation = Truncate(name(), random.randint(1, 10))
        elif roll < 16:
            operation = Fork(name(), name())
        elif roll < 17:
            operation = Fill(name(), random.randint(0, 9), (0,))
        elif roll < 19:
            operation = Free(name())
        else:
            operation = random.choice((Reset(), Append(name(), (-5,)), Dispatch(0, ())))
        operations.append(operation)
    return operations


def record(operations: Iterable[Operation], **options: Any) -> list[Any]:
    """Everything that can be seen of a run: after each operation its outcome, the tables and the canonical state; then
    the counts.
    """
    session = session_of(**options)
    seen: list[Any] = []
    for operation in operations:
        outcome = session.apply(operation)
        tables = {request: session.target.table(request) for request in session.judge.sequences}
        seen.append((tuple(outcome), tables, session.target.canonical()))
    seen.append((dict(session.judge.events), session.target.noticed(), session.applied, session.kinds))
    seen.append((session.refused, session.skipped))
    return seen


def digest() -> str:
    """A hash of several runs, the same in every process."""
    runs = [record(TOUR)]
    for seed in range(8):
        runs.append(record(stumbling(seed, 60), num_blocks=5, block_size=2, hash_bits=seed % 2, reuse="last_token"))
    return hashlib.sha256(repr(runs).encode()).hexdigest()


@contextmanager
def ctrl_c(*, heard: bool) -> Iterator[None]:
    """Where Ctrl-C is for this process, or is not, as in a worker; however the tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler if heard else signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
