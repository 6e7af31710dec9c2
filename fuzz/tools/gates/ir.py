"""Reads Triton's IR, the one before any layout: how addresses and masks are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["read_ttir"]


@dataclass(eq=False)
class _Value:
    """One value of an IR text: what made it, of what."""

    op: str
    operands: list[_Value]
    line: str


_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_CACHES = ("k_ptr", "v_ptr", "key_cache_ptr", "value_cache_ptr", "cache_ptr")
_LENGTHS = ("context_ptr", "slot_ptr", "cu_expected_ptr", "words")
"""What the mask of a table or of K/V has to depend on: the context, the slots to write, or a block's size."""


def read_ttir(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(narrow, unmasked) of a `Report`, by following values through Triton's IR, the one before any layout.

    The address of K/V may contain no 32-bit multiplication: `block * stride` passes 2**31 in a cache of a few GB. What
    is loaded and the position in the context end the search: they are 32-bit numbers by contract.
    """
    scopes: list[dict[str, _Value]] = [{}]
    openers: list[_Value | None] = [None]
    narrow: set[str] = set()
    unmasked: set[str] = set()

    def find(name: str) -> _Value | None:
        for scope in reversed(scopes):
            for candidate in (name, name.split("#")[0]):
                if candidate in scope:
                    return scope[candidate]
        return None

    def values(names: Iterable[str]) -> list[_Value]:
        return [value for name in names if (value := find(name)) is not None]

    for raw in text.splitlines():
        if "tt.func" in raw:
            arguments = re.findall(r"%(\w+): (?:!tt\.ptr<\w+>|\w+)", raw)
            scopes.append({f"%{name}": _Value("argument", [], name) for name in arguments})
            openers.append(None)
            continue
        line = re.sub(r"\s+loc\(.*$", "", raw.strip())
        if line.startswith("^bb"):
            scopes[-1].update({name: _Value("block argument", [], line) for name in _NAME.findall(line)})
            continue
        if line.startswith("}"):
            scopes.pop()
            opener = openers.pop()
            if line.endswith("{"):
                scopes.append({})
                openers.append(opener)
            continue
        left, equals, right = line.partition(" = ")
        if not equals or not left.startswith("%"):
            left, right = "", line
        op = right.split("(")[0].split(" ")[0].strip('"')
        if op == "scf.yield" and openers[-1] is not None:
            openers[-1].operands += values(_NAME.findall(right))
        iterated = dict(re.findall(r"(%[\w$.-]+) = (%[\w$.#-]+)", right)) if op == "scf.for" else {}
        value = _Value(op, values(name for name in _NAME.findall(right) if name not in iterated), right)
        if left:
            scopes[-1][left.split(":")[0]] = value
        if op in ("tt.load", "tt.store"):
            _judge_access(value, narrow, unmasked)
        if line.endswith("{"):
            inner = {name: _Value("iterated", [*values([start]), value], line) for name, start in iterated.items()}
            if op == "scf.for":
                inner[_NAME.findall(right)[0]] = _Value("position", [], line)
            scopes.append(inner)
            openers.append(value)
    return tuple(sorted(narrow)), tuple(sorted(unmasked))


def _cone(value: _Value, *, through_loads: bool) -> Iterator[_Value]:
    """Everything that `value` was made of."""
    seen: set[_Value] = set()
    todo = [value]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            yield current
            if current is value or through_loads or current.op != "tt.load":
                todo += current.operands


def _pointer(address: _Value) -> str:
    """The argument that an address was made from."""
    while address.op != "argument" and address.operands:
        address = address.operands[0]
    return address.line


def _judge_access(access: _Value, narrow: set[str], unmasked: set[str]) -> None:
    address = access.operands[0]
    pointer = _pointer(address)
    if pointer in _CACHES and any(
        part.op in ("arith.muli", "arith.shli") and not part.line.endswith("i64>") and not part.line.endswith("i64")
        for part in _cone(address, through_loads=False)
    ):
        narrow.add(pointer)
    if "tensor<" not in access.line.split(" : ")[-1]:
        return
    # tt.load pointer, mask, other; tt.store pointer, value, mask
    place = 1 if access.op == "tt.load" else 2
    if len(access.operands) <= place:
        unmasked.add(pointer)
    elif pointer in (*_CACHES, "table_ptr"):
        known = {
            _pointer(part.operands[0])
            for part in _cone(access.operands[place], through_loads=True)
            if part.op == "tt.load"
        }
        known |= {part.line for part in _cone(access.operands[place], through_loads=True) if part.op == "argument"}
        if not known.intersection(_LENGTHS):
            unmasked.add(pointer)
