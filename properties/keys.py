"""KEYS: the keys of a target's published blocks, compared with those that another process has for the same content.

The other process has another hash seed (PYTHONHASHSEED), as every process of a service has unless somebody sets it. It
is told contents, publishes each on a target of its own, and says their keys. Only a target that claims KEYS is asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from reference import Crash, Keys

from .laws import AtWalks
from .laws.law import Seen
from .operations import Allocate, Complete, Configuration, Dispatch, Free
from .session import Session
from .target import Capability
from .targets import load

__all__ = ["SameKeys", "answer"]

_SECONDS = 120.0
_TURNS = 8
"""Processes that one session begins, at most."""

_MARK = "keys:"
"""How the line with the answer begins: a target may print, too."""


class SameKeys(AtWalks):
    """At each walk, what has been published since the last. target: the factory's name."""

    needs = frozenset({Capability.KEYS})
    excludes: frozenset[Capability] = frozenset()

    def __init__(self, target: str, configuration: Configuration) -> None:
        self._target = target
        self._configuration = configuration
        self._known: dict[str, str] = {}
        self._turns = 0

    def walk(self, seen: Seen, operations: int) -> None:
        own = {content: key for content, key in _keys(seen).items() if content not in self._known}
        if not own or self._turns >= _TURNS:
            return
        self._turns += 1
        self._known |= own
        other = _elsewhere(self._target, self._configuration, list(own))
        for content, key in own.items():
            if content in other and other[content] != key:
                raise Keys(
                    f"the key of {content} is {key} here and {other[content]} in a process with another hash seed"
                )


def _keys(seen: Seen) -> dict[str, str]:
    """The key of each published content. O(pool + tokens)."""
    published, histories = seen.judge.blocks.published, seen.judge.histories
    found = {}
    for block, key in seen.see(seen.target.keys).items():
        history = published[block]
        if history is not None:
            found[json.dumps(histories.describe(history))] = key.hex() if isinstance(key, bytes) else repr(key)
    return found


def _elsewhere(target: str, configuration: Configuration, contents: list[str]) -> dict[str, str]:
    """The keys of `contents` in another process. Raises Crash if it does not answer."""
    asked = {"target": target, "configuration": configuration.to_json(), "contents": contents}
    code = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import answer; answer()"
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(sys.path)],
            input=json.dumps(asked),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Crash(f"in a process with another hash seed the target takes more than {_SECONDS:g} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not lines:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise Crash(f"a process with another hash seed ended with status {done.returncode} and said {said:.200}")
    answered: dict[str, str] = json.loads(lines[-1].removeprefix(_MARK))
    return answered


def answer() -> None:
    """The other process: reads what is asked from its input, and prints the answer as its last line."""
    asked: dict[str, Any] = json.loads(sys.stdin.read())
    session = Session(load(asked["target"])(Configuration.from_json(asked["configuration"])))
    judge, step = session.judge, 0
    found: dict[str, str] = {}
    for content in asked["contents"]:
        space, tokens = json.loads(content)
        # One token more, since the last block of a prompt may not be hit, and need not be published.
        session.apply(Allocate("one", (*tokens, 0), tuple(map(tuple, space))))
        while "one" in judge.sequences and (left := len(tokens) + 1 - judge.sequences["one"].scheduled):
            step += 1
            session.apply(Dispatch(step, (("one", left),)))
            session.apply(Complete(step))
        found |= _keys(session)
        session.apply(Free("one"))
    print(f"\n{_MARK}{json.dumps(found)}")
