"""A function that runs a target, called in a process of its own: whatever that does to its process, the caller goes on.

    ask(function, value, seconds=60.0)      the answer; raises Ended
    each(function, values, seconds=60.0)    the answers or Ended, one after the other; one process for all that live

The function and its values are pickled. What it prints goes nowhere. A process takes half a second to start, or more if
the function imports torch.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from .output import print_to
from .processes import OUT_OF_MEMORY, die_with_parent, ended, follow_parent, limit_memory, say_where

__all__ = ["MEMORY", "Ended", "ask", "each"]

MEMORY = 4 << 30
"""Bytes that a child may write to."""

Value = TypeVar("Value")
Answer = TypeVar("Answer")


class Ended(Exception):
    """There is no answer. Says why, as the rest of a sentence: "was killed by SIGSEGV", "raised KeyError: 3"."""


def ask(function: Callable[[Value], Answer], value: Value, *, seconds: float, memory: int = MEMORY) -> Answer:
    """What `function(value)` returns. Raises Ended. O(start of a process)."""
    (answer,) = each(function, [value], seconds=seconds, memory=memory)
    if isinstance(answer, Ended):
        raise answer
    return answer


def each(
    function: Callable[[Value], Answer], values: Iterable[Value], *, seconds: float, memory: int = MEMORY
) -> Iterator[Answer | Ended]:
    """What `function` returns for each value, or why it does not, in `seconds` for each. One process for all, and a new
    one after each that ends."""
    context = multiprocessing.get_context("spawn")
    process: BaseProcess | None = None
    connection: Connection | None = None
    try:
        for value in values:
            if process is None or connection is None:
                connection, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, function, memory), daemon=True)
                process.start()
                theirs.close()
            with suppress(OSError):  # it is dead; that is seen below
                connection.send(value)
            answer: Answer | Ended
            ready = wait([connection, process.sentinel], seconds)
            if not ready:
                process.kill()
                answer = Ended(f"hung: no answer for {seconds:g} seconds")
            else:
                try:
                    answer = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    answer = Ended(ended(process.exitcode))
                else:
                    yield answer
                    continue
            process.join()
            connection.close()
            process = connection = None
            yield answer
    finally:
        if process is not None:
            process.kill()
            process.join()


def _serve(connection: Any, function: Callable[[Any], Any], memory: int) -> None:
    """What the child does."""
    print_to(None)
    follow_parent()
    die_with_parent()
    say_where()
    limit_memory(memory)
    while True:
        try:
            value = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = function(value)
        except MemoryError:
            answer = Ended(ended(OUT_OF_MEMORY))
        except (
            BaseException
        ) as error:  # SystemExit and KeyboardInterrupt are the target's: nobody else raises them here
            answer = Ended(f"raised {type(error).__name__}: {error}")
        connection.send(answer)
