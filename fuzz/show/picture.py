"""The picture of a counterexample: the pool over time, a row for each physical block, a column for each operation.

`picture` replays the counterexample strictly and returns plain data: what a block was after every operation, what each
request had, what is wrong and where. How it is drawn is in `layout`.

States that occur many times are stored once: `columns[i]["blocks"][n]` is the place in `cells` of the state of block
`blocks[n]`, and `columns[i]["requests"]` are places in `lines`. Of a small pool, `blocks` are all. Of a large one they
are those that have to do with what broke, and those that changed last before it; the others are counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from properties.operations import Allocate, Operation
from properties.session import Outcome, Session
from properties.target import Capability, TargetFactory
from reference import Judge, Violation
from reference import Sequence as Line

from ..runs.perform import Run, perform
from ..runs.values import Counterexample, names
from .timeline import describe, states

__all__ = ["NotDrawn", "named_blocks", "picture"]

MOST_OPERATIONS = 1_000
MOST_CELLS = 400_000
MOST_SLOTS = 40_000_000
"""Beyond these (blocks x operations, slots x operations) nobody could read the picture, and replay is slow."""

MOST_ROWS = 64
"""Blocks that are drawn at most."""

_SHOWN_TOKENS = 256
"""Of a request or a prefix; the rest is counted."""

_FEW_TOKENS = 32
"""The same where there are so many requests and blocks that they would be most of the page."""

_MANY_TOKENS = 10_000
"""All requests' tokens, or all prefixes', from which it is."""

_SHOWN_TEXT = 400
"""Characters of an operation; the file has the whole."""

_MOST_GLYPHS = 1_000
"""Signs for tokens at most: beyond them they are no shorter than the tokens."""


class NotDrawn(ValueError):
    """There is no picture of this counterexample. Says why."""


class _Store:
    """Equal values once, by number, in the order of their first appearance."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []
        """By number."""
        self._numbers: dict[str, int] = {}

    def put(self, value: dict[str, Any]) -> int:
        key = json.dumps(value)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
        return number


def picture(counterexample: Counterexample, factory: TargetFactory, *, drain: bool = True) -> dict[str, Any]:
    """Replay `counterexample` strictly on a target of `factory`; what happened, as JSON-ready data.

    Without `drain`, there is no drain phase; else it has columns only if the violation is there. A run that breaks
    nothing has `property` None. Raises NotDrawn for what is too large; an exception of the harness passes through.
    O(operations x pool)."""
    configuration, count = counterexample.configuration, len(counterexample.operations)
    blocks, size = configuration.num_blocks, configuration.block_size
    if count > MOST_OPERATIONS or blocks * count > MOST_CELLS or blocks * size * count > MOST_SLOTS:
        raise NotDrawn(f"{count:,} operations on {blocks:,} blocks of {size} are too many to draw; shrink it first")
    recorder = _Recorder()
    run = perform(
        factory,
        configuration,
        counterexample.operations,
        counterexample.judging,
        strict=True,
        drain=drain,
        watch=recorder.watch,
    )
    violation = run.violation
    recorder.finish(run)
    columns = recorder.columns
    if violation is None or run.at < count:
        columns = columns[:count]  # nobody asks how a drain phase went well
    if not columns:
        raise NotDrawn("it has no operations")
    for column in columns[count:]:
        column["drain"] = True
    at = len(columns) - 1 if violation is not None else None
    accused = columns[-1]["accused"]
    shown = _shown(columns, at, blocks, recorder.lines.values)
    start = [recorder.start[block] for block in shown]
    for column in columns:
        column["blocks"] = [column["blocks"][block] for block in shown]
        column["requests"].sort(key=lambda number: recorder.lines.values[number]["request"] not in accused)
    cells = _kept(recorder.cells.values, [start, *(column["blocks"] for column in columns)])
    lines = _kept(recorder.lines.values, [column["requests"] for column in columns])
    _shorten(cells, "prefix", slice(-_FEW_TOKENS, None))
    _shorten([line for line in lines if line["request"] not in accused], "tokens", slice(_FEW_TOKENS))
    return {
        "target": counterexample.target,
        "configuration": str(configuration),
        "num_blocks": blocks,
        "block_size": size,
        "property": violation.id if violation is not None else None,
        "statement": (type(violation).__doc__ or "").strip() if violation is not None else "",
        "message": violation.message if violation is not None else "",
        "expected": counterexample.property_id,
        "note": counterexample.note,
        "at": at,
        "drain_from": count if len(columns) > count else None,
        "left": max(count - len(columns), 0),
        "owners": names(run.operations[: len(columns)]),
        "glyphs": _glyphs([*cells, *lines]),
        "start": start,
        "blocks": shown,
        "cells": cells,
        "lines": lines,
        "columns": columns,
    }


def _shown(columns: Sequence[Mapping[str, Any]], at: int | None, count: int, lines: list[dict[str, Any]]) -> list[int]:
    """The blocks to draw, in ascending order. Of a large pool: those that are wrong, those of the accused requests,
    those that changed last before it, as many as there is room for."""
    if count <= MOST_ROWS:
        return list(range(count))
    found: dict[int, None] = {}
    last = columns[-1]
    if at is not None:
        found |= dict.fromkeys(map(int, last["violating"]))
        for number in last["requests"]:
            line = lines[number]
            if line["request"] in last["accused"]:
                found |= dict.fromkeys(reversed([*line["table"], *(line["core"] or ())]))
    for column in reversed(columns) if at is not None else columns:
        if len(found) >= MOST_ROWS:
            break
        found |= dict.fromkeys(column["changed"])
    found |= dict.fromkeys(range(4)) if not found else {}
    return sorted([block for block in found if 0 <= block < count][:MOST_ROWS])


def _kept(values: list[dict[str, Any]], places: Sequence[list[int]]) -> list[dict[str, Any]]:
    """Those of `values` that `places` name, which are changed to what they have then."""
    numbers: dict[int, int] = {}
    for row in places:
        row[:] = [numbers.setdefault(number, len(numbers)) for number in row]
    return [dict(values[number]) for number in numbers]


def _shorten(rows: list[dict[str, Any]], name: str, part: slice) -> None:
    """Leave only a part of the tokens of each where all together are too many."""
    if sum(len(row.get(name, ())) for row in rows) > _MANY_TOKENS:
        for row in rows:
            if name in row:
                row[name] = row[name][part]


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]} … ({len(text):,} characters in the file)"


class _Recorder:
    """Collects columns as a run goes: `watch` before each operation, `finish` after the last."""

    def __init__(self) -> None:
        self.cells = _Store()
        self.lines = _Store()
        self.columns: list[dict[str, Any]] = []
        self.start: list[int] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._before: list[int] = []
        self._pending: Operation | None = None

    def watch(self, run: Run, operation: Operation) -> None:
        if self._pending is None:
            self.start = self._before = self._places(run.session)
        else:
            self._settle(run.session, run.outcomes[-1], None)
        self._pending = operation

    def finish(self, run: Run) -> None:
        violation = run.violation
        if not self._before:  # not one operation
            self.start = self._before = self._places(run.session)
        if violation is not None and run.at < len(run.operations):
            self._settle(run.session, None, violation)
            return
        if self._pending is not None:
            self._settle(run.session, run.outcomes[-1], None)
        if violation is not None:  # not an operation but the state after all of them
            self._pending = None
            self._settle(run.session, None, violation)

    def _places(self, session: Session) -> list[int]:
        """Where each block's state is in `cells`. O(pool); what is new is O(its tokens)."""
        judge = session.judge
        count = judge.policy.num_blocks
        inside: Sequence[Any] = (None,) * count
        if Capability.INSPECT in session.capabilities:
            inside = session.target.states(range(count))
        holders, others = _holders(judge), _others(judge)
        places, new = [], {}
        for block, references in enumerate(judge.blocks.references):
            before, tokens = judge.slots.content(block)
            published = judge.blocks.published[block] is not None
            held = (*holders.get(block, ()), None, *others.get(block, ()))
            key = (references, published, held, before, tokens.tobytes(), inside[block])
            place = self._known.get(key)
            if place is None:
                new[block] = key
            places.append(-1 if place is None else place)
        for (block, key), cell in zip(new.items(), _cells(session, list(new), others), strict=True):
            places[block] = self._known[key] = self.cells.put(cell)
        return places

    def _settle(self, session: Session, outcome: Outcome | None, violation: Violation | None) -> None:
        operation = self._pending
        try:
            places = self._places(session)
        except Exception:
            # A core that is broken by now may fail to show itself; the last state that was seen stands.
            if violation is None:
                raise
            places = self._before
        violating: dict[int, list[str]] = {}
        requests = _requests(session.judge)
        if violation is not None:
            cells = [self.cells.values[place] for place in places]
            violating = _violating(session, cells, violation, requests, operation)
        kind, who = (operation.op, operation.short()) if operation is not None else ("end", "")
        self.columns.append(
            {
                "operation": _cut(describe(operation))
                if operation is not None
                else "everything is freed and completed",
                "kind": kind,
                "who": who,
                "outcome": outcome.status if outcome is not None else "violated",
                "reason": outcome.detail if outcome is not None else "",
                "drain": False,
                "changed": [block for block, place in enumerate(places) if place != self._before[block]],
                "violating": {str(block): reasons for block, reasons in sorted(violating.items())},
                "blocks": places,
                "accused": _accused(violation, violating, requests, operation),
                "requests": [self.lines.put(request) for request in requests],
                "flights": _flights(session),
            }
        )
        self._before = places


def _holders(judge: Judge) -> dict[int, list[str]]:
    """The requests that have each block in their table."""
    holders: dict[int, list[str]] = {}
    for request, line in judge.sequences.items():
        for block in line.table:
            holders.setdefault(block, []).append(request)
    return holders


def _others(judge: Judge) -> dict[int, list[str]]:
    """What else holds each block: pending copies, and steps in flight."""
    others: dict[int, list[str]] = {}
    for request, line in judge.sequences.items():
        if line.pending is not None:
            source, destination, _ = line.pending
            others.setdefault(source, []).append(f"a pending copy to block {destination} for {request}")
        for passage, cut in line.deferred:
            for block in cut:
                others.setdefault(block, []).append(f"step {passage.number}, cut from {request} in flight")
    freed: list[Line] = []
    for passage in judge.in_flight:
        for line, _, _ in passage.spans:
            if line.freed and not any(line is other for other in freed):
                freed.append(line)
                for block in line.table:
                    others.setdefault(block, []).append(f"{line.request}, freed in flight")
    return others


def _cells(session: Session, blocks: list[int], others: Mapping[int, list[str]]) -> list[dict[str, Any]]:
    """The state of each of `blocks` (see `timeline.states`), what else holds it, and the history that its content goes
    on from."""
    judge = session.judge
    rows = states(session, blocks)
    for row in rows:
        before, _ = judge.slots.content(row["block"])
        row["others"] = others.get(row["block"], [])
        if before >= 0:
            namespace, prefix = judge.histories.describe(before)
            row["prefix"] = [*prefix[-_SHOWN_TOKENS:]]
            row["prefix_length"] = len(prefix)
            row["namespace"] = ", ".join(f"{kind}={value!r}" for kind, value in namespace)  # type: ignore[attr-defined]
    return [{key: value for key, value in row.items() if key != "block"} for row in rows]


def _requests(judge: Judge) -> list[dict[str, Any]]:
    return [
        {
            "request": request,
            "tokens": line.tokens[:_SHOWN_TOKENS].tolist(),
            "length": len(line.tokens),
            "table": list(line.table),
            "scheduled": line.scheduled,
            "computed": line.computed,
            "core": None,
        }
        for request, line in judge.sequences.items()
    ]


def _flights(session: Session) -> list[str]:
    """Steps in flight, by the run's own numbers, in words."""
    return [
        f"step {number}: "
        + ", ".join(
            f"{line.request} {start}" + (f"–{end - 1}" if end - start > 1 else "")
            for line, start, end in passage.spans
            if end > start
        )
        + "".join(f", copies block {source} to {destination}" for source, destination in passage.copies)
        for number, (passage, _) in session.steps.items()
        if not passage.done
    ]


def _violating(
    session: Session,
    cells: list[dict[str, Any]],
    violation: Violation,
    requests: list[dict[str, Any]],
    operation: Operation | None,
) -> dict[int, list[str]]:
    """Why each block that has to do with `violation` has: the message names it, the core counts otherwise, or the
    core's table has it where the model's does not. Puts tables of the core that differ into `requests`.
    """
    reasons: dict[int, list[str]] = {}
    for block in named_blocks(violation.message, len(cells), session.judge.policy.block_size):
        reasons.setdefault(block, []).append("the message is about it")
    for block, cell in enumerate(cells):
        if "core" in cell:
            core = cell["core"]
            told = _counts(core["references"], core["published"])
            reasons.setdefault(block, []).append(f"the core says {told}, the model {_counts_of(cell)}")
    for block, told in _misfiled(session, cells):
        reasons.setdefault(block, []).append(told)
    known = {row["request"]: row for row in requests}
    for name in list(dict.fromkeys([*known, *names([operation] if operation is not None else [])])):
        try:
            table = [int(block) for block in session.target.table(name)]
        except Exception:  # not live in the core, or the core is too broken to say
            continue
        row = known.get(name)
        if row is None:
            # Not admitted by the model, since it stopped where the core went wrong.
            row = {"request": name, "tokens": [], "length": 0, "table": [], "scheduled": 0, "computed": 0, "core": None}
            if isinstance(operation, Allocate) and operation.request == name:
                row |= {"tokens": list(operation.tokens[:_SHOWN_TOKENS]), "length": len(operation.tokens)}
            requests.append(row)
            row["core"] = table
        elif table != row["table"]:
            row["core"] = table
            for block in sorted(set(table) ^ set(row["table"])):
                if 0 <= block < len(cells):
                    said = "has it, the model's does not" if block in table else "lacks it, the model's has it"
                    reasons.setdefault(block, []).append(f"the core's table of {name} {said}")
    return reasons


def _accused(
    violation: Violation | None,
    violating: dict[int, list[str]],
    requests: list[dict[str, Any]],
    operation: Operation | None,
) -> list[str]:
    """The requests that a violation is about: those that its message names; where it names nothing, the operation's."""
    if violation is None:
        return []
    named = [row["request"] for row in requests if repr(row["request"]) in violation.message]
    if named or violating or operation is None:
        return named
    own = names([operation])
    return [row["request"] for row in requests if row["request"] in own]


def _misfiled(session: Session, cells: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Blocks that a core's queues have and the model's states do not put there, or the other way about."""
    if Capability.INSPECT not in session.capabilities:
        return
    try:
        shown = session.target.inspect()
        queues = {"free": list(shown.free or ()), "cached": list(shown.cached or ())}
    except Exception:  # too broken to say
        return
    if shown.free is None or shown.cached is None:
        return
    reserved = session.judge.policy.reserved
    for block, cell in enumerate(cells):
        listed = [name for name, queue in queues.items() for one in queue if one == block]
        due = [] if cell["state"] == "active" else [cell["state"]]
        if listed != due and block not in reserved:
            told = " and ".join(listed) or "neither free nor cached"
            yield block, f"the core lists it as {told}, in the model it is {cell['state']}"


def _counts(references: int, published: bool) -> str:
    return f"{references} reference{'s' * (references != 1)}, {'published' if published else 'not published'}"


def _counts_of(cell: dict[str, Any]) -> str:
    return _counts(cell["references"], cell["published"])


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_ONE = re.compile(r"(?<!logical )\bblock (\d+)\b")
_LIST = re.compile(r"\[([-\d, ]*)\]")


def named_blocks(message: str, num_blocks: int, block_size: int = 1) -> list[int]:
    """Physical blocks that a violation's message is about, in ascending order.

    "block 3" and "blocks [0, 2]" are; of two tables, two orders or two lists of slots, what they differ in. Logical
    blocks and what is quoted (a request may be called anything) do not count. A message in other words names none."""
    text = _QUOTED.sub("", message)
    found = {int(number) for number in _ONE.findall(text)}
    lists = [[int(number) for number in one.split(",") if number.strip()] for one in _LIST.findall(text)]
    if " blocks [" in text and lists:
        found |= set(lists[0])
    elif "copies [" in text:
        pairs = re.findall(r"\((\d+), (\d+)\)|(;)", text)  # those made; those due
        made = {pair[:2] for pair in pairs[: next((at for at, pair in enumerate(pairs) if pair[2]), None)] if pair[0]}
        due = {pair[:2] for pair in pairs if pair[0]} - made
        found |= {int(block) for pair in made | due for block in pair}
    elif "table" in text and len(lists) == 2:
        found |= _difference(*lists)
    elif text.startswith("slots of") and len(lists) == 2:
        found |= {slot // block_size for slot in _difference(*lists) if slot >= 0}
    elif text.startswith("free [") and len(lists) == 4:  # both queues, and what they should be
        for shown, due_order in zip(lists[:2], lists[2:], strict=True):
            found |= next(({one, two} for one, two in zip(shown, due_order, strict=False) if one != two), set())
    return sorted(block for block in found if 0 <= block < num_blocks)


def _difference(shown: list[int], due: list[int]) -> set[int]:
    """What two lists have in different places, or only one of them has."""
    differing = {number for one, two in zip(shown, due, strict=False) if one != two for number in (one, two)}
    longer = shown if len(shown) > len(due) else due
    return differing | set(longer[min(len(shown), len(due)) :])


def _glyphs(holders: list[dict[str, Any]]) -> dict[str, str] | None:
    """Short signs for tokens, by token, where some have more than two digits; else None: they are their own signs. So
    they are where there are too many."""
    tokens = list(dict.fromkeys(token for one in holders for token in one["tokens"] if token >= 0))
    if all(token < 100 for token in tokens) or len(tokens) > _MOST_GLYPHS:
        return None
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return {
        str(token): letters[place % 26] + (str(place // 26) if place >= 26 else "")
        for place, token in enumerate(tokens)
    }
