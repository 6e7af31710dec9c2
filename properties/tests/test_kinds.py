"""Records of operations and of moves: complete for every kind, and what is not known is an error."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import pytest

from properties import operations
from properties.coverage import NEEDS
from properties.moves import KINDS, MOVES, Moves, Swarm
from properties.operations import (
    OPERATIONS,
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Fork,
    Free,
    Lookup,
    Names,
    Operation,
    Reset,
    Truncate,
    for_every_kind,
)
from properties.operations.codec import check_fields
from properties.operations.kind import Kind, OfRequest, WithoutValues
from properties.session import Session
from properties.target import Adapter, Capability
from properties.targets.kvcore import make
from reference import PROPERTIES

EXAMPLES: dict[str, Operation] = {
    "lookup": Lookup((1, 0, 2), (("salt", "s"),), "m"),
    "allocate": Allocate("a", (1, 0, 2), (("salt", "s"),), "m"),
    "append": Append("a", (1, UNKNOWN)),
    "fill": Fill("a", 3, (2, 1)),
    "dispatch": Dispatch(1, (("a", 4), ("b", 1))),
    "complete": Complete(1),
    "truncate": Truncate("a", 2),
    "fork": Fork("a", "b"),
    "free": Free("a"),
    "reset": Reset(),
}

for_every_kind("the examples", EXAMPLES)
each = pytest.mark.parametrize("operation", EXAMPLES.values(), ids=EXAMPLES)


# ---- every kind ------------------------------------------------------------------------------------------------------


def test_a_kind_that_is_defined_is_listed() -> None:
    """A file of kinds that nobody imports, or a kind that `Operation` lacks, is found here."""
    modules = [
        importlib.import_module(f"{operations.__name__}.{module.name}")
        for module in pkgutil.iter_modules(operations.__path__)
    ]
    defined = {
        value.op
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Kind) and "op" in vars(value)
    }
    assert defined == set(OPERATIONS)


def test_descriptions_are_as_a_person_would_write_them() -> None:
    assert {kind: operation.describe() for kind, operation in EXAMPLES.items()} == {
        "lookup": "lookup [1 0 2] in salt='s' match m",
        "allocate": "allocate a [1 0 2] in salt='s' match m",
        "append": "append a [1 ?]",
        "fill": "fill a from 3 [2 1]",
        "dispatch": "dispatch step 1: a 4, b 1",
        "complete": "complete step 1",
        "truncate": "truncate a to 2",
        "fork": "fork a as b",
        "free": "free a",
        "reset": "reset",
    }


def test_of_many_tokens_the_first_are_shown_and_all_are_counted() -> None:
    assert Append("a", tuple(range(13))).describe() == "append a [0 1 2 3 4 5 6 7 8 9 10 11 … 13 tokens]"
    assert Append("a", tuple(range(12))).describe() == "append a [0 1 2 3 4 5 6 7 8 9 10 11]"


def test_what_stands_above_a_column_names_whom_it_is_about() -> None:
    assert {kind: operation.short() for kind, operation in EXAMPLES.items()} == {
        "lookup": "3 tokens",
        "allocate": "a",
        "append": "a +2",
        "fill": "a @3",
        "dispatch": "1: a b",
        "complete": "1",
        "truncate": "a → 2",
        "fork": "a → b",
        "free": "a",
        "reset": "",
    }


@each
def test_new_names_reach_every_request_that_is_named(operation: Operation) -> None:
    other = operation.renamed(Names(lambda name: name + "1", lambda name: name + "2", lambda step: step + 1))
    made = {"allocate": [0], "fork": [1]}.get(operation.op, [])
    assert other.requests() == tuple(
        name + ("2" if place in made else "1") for place, name in enumerate(operation.requests())
    )
    assert getattr(other, "step", 2) == 2
    same = Names(lambda name: name, lambda name: name)
    assert operation.renamed(same) == operation


@each
def test_without_a_request_nothing_names_it_any_more(operation: Operation) -> None:
    for request in operation.requests():
        left = operation.without(request)
        assert left is None or request not in left.requests()
    assert operation.without("nobody") == operation


@each
def test_what_is_plainer_is_of_the_same_kind_and_not_larger(operation: Operation) -> None:
    for plainer in operation.plainer():
        assert type(plainer) is type(operation)
        assert plainer != operation
        assert plainer.requests() == operation.requests() or operation.op == "dispatch"
        assert plainer.size() <= operation.size() or plainer.size()[0] < operation.size()[0]


@each
def test_scaling_by_one_and_taking_nothing_away_change_nothing(operation: Operation) -> None:
    assert operation.scaled(lambda count: count, 100) == operation
    assert operation.without_beginning(0) == operation


@each
def test_a_token_is_replaced_wherever_it_is_named(operation: Operation) -> None:
    named = operation.tokens_named()
    changed = operation.with_token(1, 7)
    assert list(changed.tokens_named()) == [7 if token == 1 else token for token in named]


def test_too_many_tokens_to_read_are_left_as_they_are() -> None:
    long = Append("a", (1,) * 257)
    assert long.tokens_named() == () and long.with_token(1, 0) == long
    assert len(Append("a", (1,) * 256).tokens_named()) == 256


def test_a_kind_needs_a_capability_exactly_if_a_target_may_lack_it() -> None:
    needs = {kind: record.needs.name for kind, record in OPERATIONS.items() if record.needs is not None}
    assert needs == {kind: kind.upper() for kind in ("lookup", "fill", "truncate", "fork", "reset")}


# ---- what is forgotten, and what is unknown --------------------------------------------------------------------------


def test_a_kind_whose_record_lacks_something_cannot_be_defined() -> None:
    with pytest.raises(TypeError) as error:

        class Touch(OfRequest):
            op: ClassVar[str] = "touch"
            reads_tables: ClassVar[bool] = True

            def describe(self) -> str:
                return "touch"

    said = str(error.value)
    assert all(lacking in said for lacking in ("'touch'", "needs", "short", "plainer", "size", "scaled"))
    assert "describe" not in said and "renamed" not in said


@dataclass(frozen=True, slots=True)
class Odd(WithoutValues, OfRequest):
    """A kind that no table knows, with a field that the format does not know."""

    op: ClassVar[str] = "odd"
    needs: ClassVar[Capability | None] = None
    reads_tables: ClassVar[bool] = False
    colour: str

    def describe(self) -> str:
        return "odd"

    def short(self) -> str:
        return "odd"


def test_a_field_that_the_format_does_not_know_is_said_by_name() -> None:
    check_fields(OPERATIONS.values())
    with pytest.raises(TypeError, match=r"'odd'.*colour"):
        check_fields([Odd])


def test_a_table_that_forgets_a_kind_or_has_one_too_many_is_an_error() -> None:
    assert for_every_kind("it", EXAMPLES) is EXAMPLES
    with pytest.raises(TypeError, match="it lacks fork, reset"):
        for_every_kind("it", {kind: 0 for kind in OPERATIONS if kind not in ("fork", "reset")})
    with pytest.raises(TypeError, match="it has odd"):
        for_every_kind("it", {**EXAMPLES, "odd": 0})
    with pytest.raises(TypeError, match="it has reset"):
        for_every_kind("it", EXAMPLES, but=("reset",))


def test_the_session_does_not_take_an_operation_that_it_does_not_know() -> None:
    session = Session(make(Configuration()))
    with pytest.raises(KeyError):
        session.apply(Odd("a", "red"))  # type: ignore[arg-type]
    assert session.applied == 0


def test_a_move_that_there_is_not_is_an_error() -> None:
    moves = Moves(Session(make(Configuration())), Swarm())
    with pytest.raises(KeyError):
        moves.make("odd", 0, 0, 0)


# ---- moves -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_operation_is_drawn_by_some_move() -> None:
    drawn = Counter(kind.op for move in MOVES.values() for kind in move.operations or ())
    assert set(drawn) == set(OPERATIONS)


def test_no_move_is_without_weight_and_each_stands_in_for_nothing_endlessly() -> None:
    assert all(weight > 0 for weight in KINDS.values())
    for move in MOVES.values():
        met = {move.name}
        while not move.required:
            move = MOVES[move.instead]
            assert move.name not in met
            met.add(move.name)


def test_a_walk_that_is_held_to_some_kinds_has_the_moves_that_are_made_of_them() -> None:
    assert [name for name, move in MOVES.items() if move.within(frozenset({"append", "fill"}))] == [
        "allocate",
        "dispatch",
        "append",
        "placeholder",
        "fill",
        "complete",
    ]
    assert not MOVES["invalid"].within(frozenset(OPERATIONS))


# ---- targets and properties ------------------------------------------------------------------------------------------


def test_every_property_says_what_it_needs() -> None:
    assert set(NEEDS) == set(PROPERTIES)


@pytest.mark.parametrize("method", ["append", "dispatch", "complete", "free", "table", "fork", "reset", "clone"])
def test_what_an_adapter_does_not_write_is_an_error_and_never_done(method: str) -> None:
    class Bare(Adapter):
        pass

    bare = Bare()  # type: ignore[abstract]
    arguments = {"append": ("a", (1,)), "dispatch": ((),), "complete": (1,), "fork": ("a", "b")}
    with pytest.raises(NotImplementedError):
        getattr(bare, method)(*arguments.get(method, ("a",) if method in ("free", "table") else ()))
    assert bare.capabilities == frozenset() and bare.name == "Bare" and bare.noticed() == {}
