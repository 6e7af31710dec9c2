"""Makes `multi_turn.jsonl`, a small request trace in Mooncake's format: `python -m fuzz.tools.make_trace [FILE]`.

What production traces have, in little: four tenants with system prompts of different lengths that all their requests
share; conversations whose every turn extends the former prompt, its answer and a new question; turns asked again and
conversations that branch from an earlier turn; long documents with several questions to each; tiny requests that share
nothing. Requests of different conversations interleave. Every prompt ends in a partial block of the trace's unit (512
tokens).

Ids follow the format's rule, that equal ids are equal tokens after an equal prefix, with the finest sharing that it
allows: a block that a later turn fills up keeps its id, since the tokens of the shorter prompt are the first ones of
the longer. Where two prompts differ inside a block, only one of them may keep the id; the other gets a new one, and
shares up to that block.

Lengths and the order are drawn from one stream seeded with SEED; the file is the same on every machine. This module may
not know: pools, targets, schedules.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

__all__ = ["OUTPUT", "SEED", "make"]

SEED = 20250
UNIT = 512
REQUESTS = 300
OUTPUT = Path(__file__).parents[1] / "traces" / "multi_turn.jsonl"

_SYSTEM = (0, 1, 2, 4)
"""Whole blocks that each tenant's system prompt fills. Those of 0 blocks end within the first, and cannot be shared."""


@dataclass
class _Text:
    """A prompt: `length` tokens in `ids`; `grown`: its last, partial block has gone on in some other prompt."""

    length: int
    ids: list[int]
    grown: bool = False
    answer: int = 0


@dataclass
class _Conversation:
    system: list[int]
    left: int
    turns: list[_Text] = field(default_factory=list)


class _Maker:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._next_id = 0
        self._systems = [[self._new_id() for _ in range(blocks)] for blocks in _SYSTEM]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _between(self, low: int, high: int) -> int:
        # Not `randint`: `random()` is the one method whose stream Python promises to keep.
        return low + int(self._random.random() * (high - low + 1))

    def _extend(self, text: _Text, tokens: int) -> _Text:
        """`text` and `tokens` more. Keeps the id of a partial last block for the first prompt that goes on in it."""
        length = text.length + tokens
        length += not length % UNIT
        ids = text.ids.copy()
        if text.length % UNIT:
            if text.grown:
                ids[-1] = self._new_id()
            text.grown = True
        while len(ids) * UNIT < length:
            ids.append(self._new_id())
        return _Text(length, ids)

    def _start(self, conversation: _Conversation) -> _Text:
        system = _Text(len(conversation.system) * UNIT, conversation.system)
        if self._random.random() < 0.15:  # a long document
            return self._extend(system, self._between(2500, 7000))
        return self._extend(system, self._between(20, 900))

    def _turn(self, conversation: _Conversation) -> _Text:
        turns = conversation.turns
        if not turns:
            return self._start(conversation)
        roll = self._random.random()
        if roll < 0.08:  # the same again
            return turns[-1]
        before = turns[-1]
        if roll < 0.25:  # a branch from an earlier turn
            before = turns[self._between(0, len(turns) - 1)]
        return self._extend(before, before.answer + self._between(5, 250))

    def requests(self) -> list[dict[str, object]]:
        lines: list[dict[str, object]] = []
        open_conversations: list[_Conversation] = []
        timestamp = 0
        while len(lines) < REQUESTS:
            timestamp += self._between(0, 400)
            if self._random.random() < 0.12:  # tiny, and alone
                text = self._extend(_Text(0, []), self._between(1, 40))
            else:
                while len(open_conversations) < 12:
                    system = self._systems[self._between(0, len(_SYSTEM) - 1)]
                    open_conversations.append(_Conversation(system, self._between(1, 9)))
                conversation = open_conversations[self._between(0, len(open_conversations) - 1)]
                text = self._turn(conversation)
                conversation.turns.append(text)
                conversation.left -= 1
                if not conversation.left:
                    open_conversations.remove(conversation)
            text.answer = text.answer or self._between(1, 120)
            lines.append(
                {
                    "timestamp": timestamp,
                    "input_length": text.length,
                    "output_length": text.answer,
                    "hash_ids": text.ids,
                }
            )
        return lines


def make(seed: int = SEED) -> str:
    """The trace as JSON lines. O(its tokens / 512)."""
    return "".join(json.dumps(line) + "\n" for line in _Maker(seed).requests())


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT).write_text(make(), encoding="utf-8", newline="\n")
