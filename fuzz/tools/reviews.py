"""docs/mutants.toml: what is known of mutants that survive, and where their functions are now."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .changes import before, loosely, parts

__all__ = ["CLASSES", "Key", "Review", "entry", "module_of", "place", "read_reviews", "tidied", "write_reviews"]

Key = tuple[str, str, str]
"""Module, function, change."""


def module_of(file: str) -> str:
    """kvcore.pool for kvcore/pool.py."""
    return file.removesuffix(".py").replace("/", ".")


CLASSES = ("equivalent", "missed")


@dataclass(frozen=True)
class Review:
    """What is known of survivors of one function: `equivalent` (nothing that a caller sees or may rely on changes) or
    `missed` (it is wrong, and the suite does not see it), and why.

    changes: those that this is said of; as often as there are mutants that read the same. gone: the code that they
    change is no longer there, so the next run has to tell what became of them.
    """

    module: str
    function: str
    changes: tuple[str, ...]
    kind: str
    reason: str
    gone: bool = False

    @property
    def keys(self) -> list[Key]:
        return [(self.module, self.function, change) for change in self.changes]


def read_reviews(path: Path) -> list[Review]:
    """Raises ValueError for an entry without a class or a reason."""
    reviews = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", []):
        review = Review(
            entry["module"],
            entry["function"],
            tuple(entry["changes"]),
            entry["class"],
            entry["reason"].strip(),
            entry.get("gone", False),
        )
        if review.kind not in CLASSES or not review.reason:
            raise ValueError(f"{path.name}: {review.function}: the class must be one of {CLASSES}, with a reason")
        reviews.append(review)
    return reviews


HEAD = """\
# Survivors of the mutation tests (docs/mutants.md), each with its class and its reason.
#
# class: equivalent (nothing that a caller sees or may rely on changes) or missed (it is wrong, and the suite does not
# see it). changes: the expression, and what becomes of which part of it (fuzz/tools/changes.py); once for each mutant.
# gone: the code is no longer there, and the next run has to tell what became of the survivor.
"""


def write_reviews(path: Path, reviews: Sequence[Review]) -> None:
    """What `read_reviews` reads."""
    path.write_text("\n".join([HEAD, *map(entry, reviews)]), encoding="utf-8")


def entry(review: Review) -> str:
    """A review as docs/mutants.toml has it."""
    lines = ["[[survivor]]", f"module = {_toml(review.module)}", f"function = {_toml(review.function)}"]
    lines += ["changes = [", *(f"    {_toml(change)}," for change in review.changes), "]"]
    lines += [f"class = {_toml(review.kind)}", f"reason = {_toml(review.reason)}"]
    return "\n".join([*lines, *(["gone = true"] if review.gone else []), ""])


def _toml(text: str) -> str:
    """A literal string where that is possible, which needs no escapes."""
    return f"'{text}'" if "'" not in text and '"' in text else json.dumps(text, ensure_ascii=False)


def place(known: Iterable[tuple[str, str]], module: str, function: str) -> tuple[str, str] | None:
    """Where a reviewed function is now, among `known` modules and functions: where it was, or else in another module of
    the package, by its whole name or by its own; None if it is gone or there are several of that name."""
    package = module.partition(".")[0]
    own = {(where, name) for where, name in known if where.partition(".")[0] == package}
    if (module, function) in own:
        return module, function
    last = function.rpartition(".")[2]
    for named in (
        [one for one in own if one[1] == function],
        [one for one in own if one[1].rpartition(".")[2] == last and not last.startswith("__")],
    ):
        if named:
            return named[0] if len(named) == 1 else None
    return None


def tidied(reviews: Iterable[Review], sources: dict[tuple[str, str], str]) -> list[Review]:
    """The reviews as they are true of `sources`, the source of each function by its module and name."""
    result = []
    for review in reviews:
        where = place(sources, review.module, review.function)
        if where is None:
            result.append(replace(review, gone=True))
            continue
        exact = {*parts(sources[where])}
        loose = {loosely(part) for part in exact}
        there = [before(one) in exact or loosely(before(one)) in loose for one in review.changes]
        for gone in (False, True):
            changes = tuple(one for one, here in zip(review.changes, there, strict=True) if here != gone)
            if changes:
                result.append(replace(review, module=where[0], function=where[1], changes=changes, gone=gone))
    return result
