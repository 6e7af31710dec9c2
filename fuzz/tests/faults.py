"""Faults planted by hand: ways in which real block managers have been wrong, as changes of kvcore's source.

`full` lists the properties that may catch the fault with everything seen and predicted. `blind` lists those that must
catch it with the core judged from the outside and nothing predicted, as if the model shared the mistake about the order
of blocks: the harm itself is then the only witness. `minimum` is the length of the shortest counterexample known, in
either mode."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.planting import Change

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    name: str
    changes: tuple[Change, ...]
    full: frozenset[str]
    blind: frozenset[str]
    minimum: tuple[int, int]
    seed: str = "1"


def _fault(name: str, full: str, blind: str, minimum: tuple[int, int], *changes: Change, seed: str = "1") -> Fault:
    return Fault(name, changes, frozenset(full.split()), frozenset(blind.split()), minimum, seed)


_REMOVE = """            if not more or link not in more:
                del first[link]
                continue
            others = more[link]
            if first[link] == block:
                first[link] = others.pop(0)
            else:
                others.remove(block)
            if not others:
                del more[link]
"""

FAULTS: tuple[Fault, ...] = (
    _fault(
        "mapping deleted without the ownership check (a half of the mend of nano-vllm issue 163)",
        "OWNERSHIP COMPLETENESS",
        "COMPLETENESS",
        (5, 6),
        Change("prefix.py", _REMOVE, "            first.pop(link, None)\n            more.pop(link, None)\n"),
    ),
    _fault(
        "own tokens compared, the prefix before them not (nano-vllm issue 163 with a weak hash)",
        "OWNERSHIP HISTORY ISOLATION",
        "HISTORY ISOLATION",
        (3, 4),
        Change("prefix.py", "            if content[0] is not parent:\n                break\n", ""),
        Change("prefix.py", "if content is not None and content[0] is parent:", "if content is not None:"),
    ),
    _fault(
        "hash not removed on reallocation (nano-vllm issue 163)",
        "OWNERSHIP",
        "PUBLISH HISTORY FRESHNESS ISOLATION COMPLETENESS ROLLBACK",
        (5, 8),
        Change("pool.py", "            self.index.remove(taken[-missing:])\n", ""),
    ),
    _fault(
        "reference count not raised on a shared hit",
        "REFERENCES",
        "EXCLUSIVE LIFETIME EVICTION",
        (4, 6),
        Change("pool.py", "            references[block] += 1\n", "            references[block] = 1\n"),
    ),
    _fault(
        "hit on a cached block not taken off the free list (TensorRT-LLM PR 12667)",
        "CONSERVATION",
        "EXCLUSIVE LIFETIME ADMISSION",
        (5, 6),
        Change(
            "pool.py",
            "            if not references[block]:\n                before,",
            "            if False:\n                before,",
        ),
    ),
    _fault(
        "partly computed block published",
        "OWNERSHIP FRESHNESS",
        "FRESHNESS PUBLISH",
        (3, 5),
        Change(
            "manager.py", "if end // block_size > sequence.published:", "if -(-end // block_size) > sequence.published:"
        ),
        Change(
            "manager.py",
            "first, last = sequence.published, sequence.computed // block_size",
            "first = sequence.published\n"
            "        last = min(-(-sequence.computed // block_size), len(sequence.tokens) // block_size)",
        ),
    ),
    _fault(
        "published before completion (nano-vllm PR 209)",
        "OWNERSHIP PUBLISH",
        "PUBLISH",
        (2, 3),
        Change(
            "manager.py",
            "            sequence.scheduled = ends[place]\n",
            "            sequence.scheduled = ends[place]\n"
            "            sequence.computed, computed = ends[place], sequence.computed\n"
            "            self._publish(sequence)\n"
            "            sequence.computed = computed\n",
        ),
    ),
    _fault(
        "block reused while a step is in flight (vLLM PR 45357)",
        "LIFETIME REFERENCES CONSERVATION",
        "LIFETIME",
        (3, 4),
        Change(
            "manager.py",
            "        sequence.freed = True\n        if not sequence.flights:\n            self._release(sequence)\n",
            "        self._release(sequence)\n",
        ),
    ),
    _fault(
        "truncation leaves the index",
        "OWNERSHIP ROLLBACK",
        "ROLLBACK EXCLUSIVE",
        (5, 6),
        Change(
            "manager.py",
            "        for block in cut:\n            if references[block] == 1:\n"
            "                pool.roll_back(block)\n",
            "",
        ),
        Change(
            "manager.py",
            "        if num_tokens % block_size and references[table[keep - 1]] == 1:\n"
            "            pool.roll_back(table[keep - 1])\n",
            "",
        ),
        seed="2",  # one in four meets MAPPING or COMPLETENESS first, by a longer way
    ),
    _fault(
        "fork without copy",
        "ALIASING",
        "ALIASING ADMISSION",
        (5, 5),
        Change("manager.py", "                copies = 1\n", "                copies = 0\n"),
    ),
    _fault(
        "refusal that leaks a block (vLLM issue 11562)",
        "REFERENCES CONSERVATION",
        "ADMISSION EXCLUSIVE RELEASE",
        (4, 6),
        Change(
            "manager.py",
            "        revived = list(map(pool.references.__getitem__, blocks)).count(0)\n",
            "        revived = list(map(pool.references.__getitem__, blocks)).count(0)\n"
            "        available = pool.available\n        pool.pin(blocks)\n",
        ),
        Change("manager.py", "if misses + revived > pool.available:", "if misses + revived > available:"),
        Change(
            "manager.py",
            "\n        pool.pin(blocks)\n        blocks += pool.take(misses)\n",
            "\n        blocks += pool.take(misses)\n",
        ),
    ),
    _fault(
        "free in forward order (nano-vllm 59aa3ff)",
        "EXACT EVICTION",
        "EVICTION",
        (2, 5),
        Change("manager.py", "release(reversed(sequence.table))", "release(sequence.table)"),
    ),
    _fault(
        "what is rolled back loses its identity (found in kvcore itself)",
        "OWNERSHIP COMPLETENESS INTERNAL",
        "COMPLETENESS",
        (13, 13),
        Change(
            "prefix.py",
            "self._adopt(parent, link) if orphans and link in orphans else (parent, link)",
            "(parent, link)",
        ),
    ),
    _fault(
        "a duplicate left by a rollback keeps its age (found in kvcore and its model alike)",
        "EXACT EVICTION",
        "EVICTION",
        (7, 12),
        Change("pool.py", "self._refresh(self.index.withdraw(block))", "self.index.withdraw(block)"),
        seed="5",
    ),
)
