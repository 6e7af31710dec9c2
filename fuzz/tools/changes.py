"""What a mutant changes, told so that a rename or a moved file does not make it another change.

A change is the smallest part of a function's syntax tree that differs, and the expression that it stands in:
`self.num_blocks * self.block_size :: * => /`. The rest of the line, its layout and its place in the file do not count.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

__all__ = ["before", "change", "functions", "loosely", "parts"]

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.BitXor: "^",
    ast.MatMult: "@",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.UAdd: "+",
    ast.USub: "-",
    ast.Invert: "~",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}

_LONGEST = 100
"""Characters of one side; what is longer is cut in the middle."""


def change(original: str, mutated: str) -> str:
    """How two versions of a function differ; "" if they do not. Raises SyntaxError for what is no Python."""
    old, new = (ast.parse(textwrap.dedent(text)) for text in (original, mutated))
    return _told(old, new, None)


def _told(old: ast.AST, new: ast.AST, around: ast.AST | None) -> str:
    """The change of one node, inside the expression or statement `around`."""
    pairs = _differing(old, new)
    if pairs is None:
        dropped = _dropped(old, new)
        return _in(around, _text(old), _text(new)) if dropped is None else _in(old, _text(dropped), "nothing")
    if not pairs:
        return ""
    before, after = pairs[0]
    if len(pairs) > 1 or not isinstance(before, ast.AST) or not isinstance(after, ast.AST):
        return _in(around, _text(old), _text(new))
    if type(before) in _SYMBOLS and type(after) in _SYMBOLS:
        return _in(around if isinstance(old, ast.UnaryOp) else old, _SYMBOLS[type(before)], _SYMBOLS[type(after)])
    # Neither a sign nor a keyword says where it is.
    says = isinstance(old, ast.expr | ast.stmt) and not isinstance(old, ast.UnaryOp | ast.Slice)
    return _told(before, after, old if says else around)


def _differing(old: ast.AST, new: ast.AST) -> list[tuple[object, object]] | None:
    """The pairs of children that differ; None if the two are not of one shape."""
    if type(old) is not type(new):
        return None
    pairs: list[tuple[object, object]] = []
    for name in old._fields:
        left, right = getattr(old, name, None), getattr(new, name, None)
        if not isinstance(left, list) or not isinstance(right, list):
            left, right = [left], [right]
        if len(left) != len(right):
            return None
        pairs += [(one, other) for one, other in zip(left, right, strict=True) if _differ(one, other)]
    return pairs


def _dropped(old: ast.AST, new: ast.AST) -> ast.AST | None:
    """The argument that a call has lost, if that is all."""
    if not isinstance(old, ast.Call) or not isinstance(new, ast.Call):
        return None
    before, after = [*old.args, *old.keywords], [*new.args, *new.keywords]
    if len(before) != len(after) + 1:
        return None
    at = next((number for number, one in enumerate(after) if _differ(before[number], one)), len(after))
    return before[at]


def _differ(one: object, other: object) -> bool:
    if isinstance(one, ast.AST) and isinstance(other, ast.AST):
        return ast.dump(one) != ast.dump(other)
    return one != other or type(one) is not type(other)


def _in(around: ast.AST | None, before: str, after: str) -> str:
    told = f"{_cut(before)} => {_cut(after)}"
    small = isinstance(around, ast.expr | ast.AugAssign | ast.Return | ast.Assign | ast.AnnAssign)
    return f"{_cut(_text(around))} :: {told}" if small and around is not None else told


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _cut(text: str) -> str:
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"


_KEPT = "and|or|not|in|is|if|else|for|None|True|False|self|lambda"
_NAME = re.compile(rf"""(?<![\w.'"])(?!(?:{_KEPT})\b)[A-Za-z_]\w*\b(?!\()""")


def loosely(told: str) -> str:
    """A change without the names of variables: equal for two that differ by the rename of a local."""
    return _NAME.sub("_", told)


def functions(path: Path) -> dict[str, str]:
    """The source of each function and method of a module, by its name within the module. O(size)."""
    text = path.read_text(encoding="utf-8")
    found = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                found[prefix + node.name] = ast.get_source_segment(text, node) or ""

    walk(ast.parse(text).body, "")
    return found


def before(told: str) -> str:
    """The part of a change that must be in the function as it is: the expression around, or what is replaced."""
    return re.split(" :: | => ", told)[0]


def parts(source: str) -> Iterator[str]:
    """All that `before` could give, for the changes of one function."""
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, ast.expr | ast.stmt | ast.arg | ast.arguments):
            yield _cut(_text(node))
        elif type(node) in _SYMBOLS:
            yield _SYMBOLS[type(node)]
