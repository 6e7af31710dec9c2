"""A clone goes on by itself, and the canonical form is all that the future depends on."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

from kvcore import BlockManager, CacheConfig
from kvcore.state import canonical, clone, inside, same_step


def busy() -> BlockManager:
    """Two requests with a prefix in common, one of them forked, a step in flight and a request freed in it."""
    manager = BlockManager(CacheConfig(num_blocks=16, block_size=2))
    manager.allocate("a", [1, 2, 3, 4, 5])
    manager.complete(manager.dispatch([("a", 5)]))
    manager.fork("a", "b")
    manager.append("b", [6])
    manager.allocate("c", [1, 2, 3, 4, 9])
    manager.dispatch([("b", 1), ("c", 1)])
    manager.free("c")
    return manager


def go_on(manager: BlockManager) -> None:
    (step,) = inside(manager).in_flight
    manager.complete(step)
    manager.append("a", [7, 8])
    manager.free("b")
    manager.allocate("d", [1, 2, 3, 4, 5, 6])


def test_the_same_calls_give_the_same_form() -> None:
    assert canonical(busy()) == canonical(busy())
    assert {canonical(busy()): 1}[canonical(busy())] == 1


def test_a_clone_has_the_form_of_its_original_and_goes_on_by_itself() -> None:
    original = busy()
    before = canonical(original)
    other = clone(original)
    assert canonical(other) == before
    go_on(other)
    other.check()
    assert canonical(other) != before
    assert canonical(original) == before
    go_on(original)
    assert canonical(original) == canonical(other)


def test_a_step_is_found_again_in_a_clone() -> None:
    original = busy()
    (step,) = inside(original).in_flight
    other = clone(original)
    twin = same_step(other, step)
    assert twin is not step
    other.complete(twin)
    assert not inside(other).in_flight
    assert inside(original).in_flight


def test_a_clone_may_count_with_a_hash_of_its_own() -> None:
    original = busy()
    other = clone(original, lambda data: data[-16:])
    assert other.config.hash_function is not original.config.hash_function
    assert clone(original).config is original.config


def test_nothing_that_changes_is_shared() -> None:
    """Whoever adds a list or a dict to a class of the core and forgets it in `clone` learns it here."""
    original = busy()
    mine, theirs = list(changeable(original)), {id(one) for one in changeable(clone(original))}
    assert len(mine) > 15
    assert [one for one in mine if id(one) in theirs - constants(original)] == []


def constants(manager: BlockManager) -> set[int]:
    """The ids of what is made once and never changed: the links of prompts and what steps show."""
    steps = list(inside(manager).in_flight)
    known = [*inside(manager).sequences.values(), *(sequence for step in steps for sequence in step.sequences)]
    return {id(one) for one in (*(sequence.links for sequence in known), *(step.copies for step in steps))}


def changeable(root: object) -> list[Any]:
    """Every list, array, dict, set and deque that can be reached by attributes of kvcore's objects."""
    found: dict[int, Any] = {}
    todo, seen = [root], set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, list | array | dict | set | deque):
            found[id(one)] = one
            if not isinstance(one, array):
                todo += one.values() if isinstance(one, dict) else one
        elif isinstance(one, tuple):
            todo += one
        elif type(one).__module__ in ("kvcore.manager", "kvcore.pool", "kvcore.prefix", "kvcore.sequence"):
            names = [*vars(one)] if hasattr(one, "__dict__") else type(one).__slots__  # type: ignore[attr-defined]
            todo += [getattr(one, name) for name in names]
    return list(found.values())
