"""Reads PTX: the text of one kernel to plain values. Nothing is interpreted here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .. import kernels

__all__ = ["Instruction", "Kernel", "Unsupported", "parse"]


class Unsupported(kernels.Unsupported):
    """Something in PTX that is not emulated. Says what and where; nothing is guessed."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. guard: the predicate that it runs under, "%p1" or "!%p1", "" if always. line: in the text."""

    opcode: str
    operands: tuple[str, ...]
    guard: str
    line: int

    @property
    def parts(self) -> list[str]:
        return self.opcode.replace("shared::cta", "shared").split(".")

    def refuse(self, why: str = "") -> Unsupported:
        guard = f"@{self.guard} " if self.guard else ""
        text = f"{guard}{self.opcode} {', '.join(self.operands)}"
        return Unsupported(f"line {self.line}: {text[:200]}{f': {why}' if why else ''}; not emulated")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry. parameters: (name, type). threads: of a CTA. widths: bits by register, 1 for predicates. symbols:
    shared variables and where they begin, the dynamic one behind the others; static: bytes of these others. labels:
    the instruction that each stands before. target: 80, 90, ..."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    threads: int
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    widths: dict[str, int]
    symbols: dict[str, int]
    static: int
    target: int


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IGNORED = re.compile(r"\.(?:loc|file|pragma|section)\b[^\n]*")
_LABEL = re.compile(r"([\w$]+):(?!:)")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([^;]*);")
_SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d*)\]\s*;")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{")
_STATEMENT = re.compile(r"(?:@(!?[%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_WORD = re.compile(r"[%$]?[A-Za-z_][\w$]*")


def parse(text: str) -> Kernel:
    """The one kernel of a module. Raises Unsupported for what is not understood. O(text)."""
    # Comments are blanked, so that positions still say which line they are on.
    text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    entries = list(_ENTRY.finditer(text))
    if len(entries) != 1 or re.search(r"\.func\b", text):
        raise Unsupported(f"a module with {len(entries)} kernels and perhaps functions; one kernel alone is emulated")
    (entry,) = entries
    target = re.search(r"\.target\s+sm_(\d+)", text)
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)(?:\s*,\s*1)*\s", entry[3])
    if target is None or threads is None:
        raise Unsupported("a kernel without .target or with several dimensions of threads")
    parameters = []
    for declared in filter(None, (part.split() for part in entry[2].split(","))):
        parameters.append((declared[-1], declared[1].lstrip(".")))
    symbols, static = _shared(text)
    body = _Body(text, entry.end())
    return Kernel(
        entry[1], tuple(parameters), int(threads[1]), tuple(body.instructions), body.labels, body.widths, symbols,
        static, int(target[1]),
    )  # fmt: skip


def _shared(text: str) -> tuple[dict[str, int], int]:
    symbols: dict[str, int] = {}
    at = 0
    for align, name, size in sorted(_SHARED.findall(text), key=lambda found: not found[2]):
        at += -at % int(align)
        symbols[name] = at
        at += int(size or 0)
    return symbols, at


class _Body:
    """What lies between a kernel's braces. Registers of an inner scope get names of their own."""

    def __init__(self, text: str, at: int) -> None:
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.widths: dict[str, int] = {}
        scopes: list[dict[str, str]] = [{}]
        opened = 0
        while True:
            while text[at].isspace():
                at += 1
            if text[at] == "{":
                opened += 1
                scopes.append({})
                at += 1
            elif text[at] == "}":
                scopes.pop()
                at += 1
                if not scopes:
                    return
            elif found := _IGNORED.match(text, at) or _SHARED.match(text, at):
                at = found.end()
            elif found := _REGISTERS.match(text, at):
                self._declare(found[1], found[2], scopes[-1], opened if len(scopes) > 1 else 0)
                at = found.end()
            elif found := _LABEL.match(text, at):
                self.labels[found[1]] = len(self.instructions)
                at = found.end()
            else:
                end = text.index(";", at)
                self._statement(text[at:end], scopes, text.count("\n", 0, at) + 1)
                at = end + 1

    def _declare(self, kind: str, names: str, scope: dict[str, str], number: int) -> None:
        digits = re.search(r"\d+", kind)
        bits = 1 if kind == "pred" else int(digits[0]) * (2 if kind.endswith("x2") else 1) if digits else 0
        if not bits:
            raise Unsupported(f"registers of type {kind}")
        for name in map(str.strip, names.split(",")):
            several = re.fullmatch(r"(.+)<(\d+)>", name)
            for own in [f"{several[1]}{at}" for at in range(int(several[2]))] if several else [name]:
                unique = f"{own}@{number}" if number else own
                scope[own] = unique
                self.widths[unique] = bits

    def _statement(self, text: str, scopes: list[dict[str, str]], line: int) -> None:
        found = _STATEMENT.fullmatch(text.strip())
        if found is None:
            raise Unsupported(f"line {line}: {text.strip()[:200]!r} is no instruction")

        def own(match: re.Match[str]) -> str:
            return next((scope[match[0]] for scope in reversed(scopes) if match[0] in scope), match[0])

        guard, opcode, rest = found.groups()
        operands = tuple(_WORD.sub(own, part) for part in _split(rest))
        self.instructions.append(Instruction(opcode, operands, _WORD.sub(own, guard or ""), line))


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        if sign in "{[(":
            depth += 1
        elif sign in "}])":
            depth -= 1
        elif sign == "," and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()] if text.strip() else []
