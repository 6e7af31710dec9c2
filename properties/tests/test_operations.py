"""Operations and configurations as JSON: what is written can be read, and what cannot be read is said exactly."""

from __future__ import annotations

import json
from array import array
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from properties.operations import (
    NAMESPACE_KINDS,
    OPERATIONS,
    SCHEMA,
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
    Malformed,
    Operation,
    Reset,
    Truncate,
    decode,
    encode,
)

from .support import TOUR, stumbling

EVERY_PART = tuple((kind, f"{kind} of mine") for kind in NAMESPACE_KINDS)

EXAMPLES: list[Operation] = [
    Lookup((1, 2, 3)),
    Lookup((1,), (("salt", ""),)),
    Lookup((1, 2), (("adapter", "x"), ("model", "ü\ud800 \"'\n")), "m"),
    Allocate("a", (0,)),
    Allocate("", (2**31 - 1, 0)),
    Allocate("r 1", (5, 6), EVERY_PART, "m"),
    Allocate("a", (5,), (), ""),
    Append("a", (7,)),
    Append("a", (UNKNOWN,)),
    Append("a", (UNKNOWN,) * 6),
    Append("a", (1, UNKNOWN, 2)),
    Fill("a", 3, (9, 9)),
    Fill("a", -1, (9,)),
    Dispatch(1, (("a", 2),)),
    Dispatch(-3, (("a", 2), ("b", 1 << 40), ("a", 0))),
    Dispatch(2, ()),
    Complete(1),
    Truncate("a", 4),
    Truncate("a", -4),
    Fork("a", "b"),
    Fork("a", "a"),
    Free("a"),
    Reset(),
    Allocate("bad", ()),
    Allocate("bad", ("x",)),
    Allocate("bad", (-5, 2**31, 0.5, "x", 3)),
    Append("bad", (1, 2, 3, "x", 4, 5, 6, 7, 8)),
    Append("bad", (None, True, False, 1.0)),
    Append("bad", (2**40, 2**40 + 1, 2**40 + 2, 2**40 + 3)),
]


def there_and_back(operation: Operation) -> Operation:
    return decode(json.loads(json.dumps(encode(operation))))


@pytest.mark.parametrize("operation", EXAMPLES, ids=repr)
def test_what_is_encoded_decodes_to_the_same_operation(operation: Operation) -> None:
    back = there_and_back(operation)
    assert back == operation
    assert type(back) is type(operation)
    assert encode(back) == encode(operation)
    for field in fields(operation):
        assert type(getattr(back, field.name)) is type(getattr(operation, field.name))


def test_the_examples_use_every_kind() -> None:
    assert {type(operation).op for operation in EXAMPLES} == set(OPERATIONS)


def test_whole_runs_come_back_as_they_were() -> None:
    operations = [*TOUR, *stumbling(1, 400)]
    assert [there_and_back(operation) for operation in operations] == operations


def test_the_types_of_invalid_tokens_survive() -> None:
    back = there_and_back(Append("a", (True, 1.0, 1, "1", None)))
    assert isinstance(back, Append)
    assert [type(token) for token in back.tokens] == [bool, float, int, str, type(None)]


def test_fields_at_their_default_are_left_out_and_others_are_not() -> None:
    assert encode(Lookup((1,))) == {"op": "lookup", "tokens": [1]}
    assert encode(Allocate("a", (1,))) == {"op": "allocate", "request": "a", "tokens": [1]}
    assert encode(Allocate("a", (1,), (("salt", ""),), "")) == {
        "op": "allocate",
        "request": "a",
        "tokens": [1],
        "namespace": {"salt": ""},
        "match": "",
    }
    assert encode(Dispatch(0, (("a", 1), ("b", 2)))) == {"op": "dispatch", "step": 0, "work": [["a", 1], ["b", 2]]}
    assert encode(Reset()) == {"op": "reset"}


def test_a_namespace_is_read_in_any_order_and_kept_sorted_by_kind() -> None:
    data = {"op": "lookup", "tokens": [1], "namespace": {"weights": "2", "adapter": "1"}}
    assert decode(data) == Lookup((1,), (("adapter", "1"), ("weights", "2")))
    assert decode({**data, "namespace": {}}) == Lookup((1,))


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "written"),
    [
        ((), []),
        ((4,), [4]),
        ((4, 5, 6), [4, 5, 6]),
        ((7, 7, 7), [7, 7, 7]),
        ((4, 5, 6, 7), [[4, 4]]),
        ((7, 7, 7, 7, 7), [[7, 5, 0]]),
        ((0, 3, 6, 9), [[0, 4, 3]]),
        ((9, 8, 7, 6, 5), [[9, 5, -1]]),
        ((9, 6, 3, 0), [[9, 4, -3]]),
        ((-1, -1, -1, -1), [[-1, 4, 0]]),
        ((1, 1, 2, 3, 4, 4), [1, [1, 4], 4]),
        ((1, 2, 3, 4, 4, 4, 4, 4), [[1, 4], [4, 4, 0]]),
        ((1, 2, 1, 2, 1, 2), [1, 2, 1, 2, 1, 2]),
        ((5, 0, 1, 2, 3, "x", 0, 2, 4, 6), [5, [0, 4], "x", [0, 4, 2]]),
        ((0.5, 1.5, 2.5, 3.5), [0.5, 1.5, 2.5, 3.5]),
        ((True, True, True, True), [True, True, True, True]),
    ],
    ids=str,
)
def test_evenly_spaced_tokens_become_runs_and_short_stretches_stay_lists(tokens: Any, written: list[Any]) -> None:
    data = encode(Append("a", tokens))
    assert data["tokens"] == written
    assert [type(item) for item in data["tokens"]] == [type(item) for item in written]
    assert decode(data) == Append("a", tokens)


def test_an_array_is_written_like_a_tuple() -> None:
    tokens = (1, 2, 3, 4, 9, 9, 9, 9, 9, 5, 3, 1, -1, 0)
    assert encode(Append("a", array("i", tokens))) == encode(Append("a", tokens))
    assert json.dumps(encode(Append("a", array("i", tokens)))) == json.dumps(encode(Append("a", tokens)))


def test_a_prompt_of_twelve_thousand_consecutive_ids_is_one_run() -> None:
    prompt = tuple(range(100, 12_100))
    data = encode(Allocate("a", prompt))
    assert data["tokens"] == [[100, 12_000]]
    back = decode(data)
    assert isinstance(back, Allocate)
    assert tuple(back.tokens) == prompt
    assert encode(back) == data
    assert decode(encode(back)) == back


def test_a_long_prompt_with_an_invalid_token_comes_back_too() -> None:
    prompt = (*range(5_000), 2**31, "x")
    assert there_and_back(Allocate("a", prompt)) == Allocate("a", prompt)


def test_a_run_of_no_tokens_is_read_as_none() -> None:
    assert decode({"op": "append", "request": "a", "tokens": [[5, 0], 1, [5, 0, 0]]}) == Append("a", (1,))


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [example for example in EXAMPLES if fields(example)], ids=repr)
def test_operations_are_frozen(operation: Operation) -> None:
    for field in fields(operation):
        with pytest.raises(FrozenInstanceError):
            setattr(operation, field.name, getattr(operation, field.name))
        with pytest.raises(FrozenInstanceError):
            delattr(operation, field.name)


def test_operations_hold_their_fields_and_nothing_else() -> None:
    for operation in EXAMPLES:
        assert not hasattr(operation, "__dict__")


def test_equal_operations_are_one_in_a_set_and_different_ones_are_not() -> None:
    again = [there_and_back(operation) for operation in EXAMPLES]
    assert len(set(EXAMPLES)) == len(EXAMPLES)
    assert set(EXAMPLES) == set(again)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Free("a"), Free("b")),
        (Free("a"), Fork("a", "a")),
        (Complete(1), Complete(2)),
        (Append("a", (1,)), Append("a", (1, 1))),
        (Fill("a", 1, (1,)), Fill("a", 2, (1,))),
        (Truncate("a", 1), Truncate("a", 2)),
        (Lookup((1,)), Allocate("a", (1,))),
        (Lookup((1,)), Lookup((1,), (("salt", ""),))),
        (Lookup((1,)), Lookup((1,), (), "")),
        (Dispatch(1, (("a", 1), ("b", 1))), Dispatch(1, (("b", 1), ("a", 1)))),
        (Reset(), Free("a")),
    ],
    ids=repr,
)
def test_operations_that_differ_in_anything_are_not_equal(one: Operation, other: Operation) -> None:
    assert one != other
    assert encode(one) != encode(other)


# ---- what cannot be read ---------------------------------------------------------------------------------------------

GOOD: dict[str, dict[str, Any]] = {
    "lookup": {"op": "lookup", "tokens": [1]},
    "allocate": {"op": "allocate", "request": "a", "tokens": [1]},
    "append": {"op": "append", "request": "a", "tokens": [1]},
    "fill": {"op": "fill", "request": "a", "position": 0, "tokens": [1]},
    "dispatch": {"op": "dispatch", "step": 1, "work": [["a", 1]]},
    "complete": {"op": "complete", "step": 1},
    "truncate": {"op": "truncate", "request": "a", "length": 1},
    "fork": {"op": "fork", "request": "a", "child": "b"},
    "free": {"op": "free", "request": "a"},
    "reset": {"op": "reset"},
}

OPTIONAL = {"lookup": ("namespace", "match"), "allocate": ("namespace", "match")}

A_STRING = (1, None, ["a"], True, {"a": "b"}, 0.5)
AN_INTEGER = ("1", None, [1], True, {"a": 1}, 0.5, 1.0)

WRONG: dict[str, tuple[str, tuple[Any, ...]]] = {
    "request": ("a string", A_STRING),
    "child": ("a string", A_STRING),
    "match": ("a string", A_STRING),
    "step": ("an integer", AN_INTEGER),
    "length": ("an integer", AN_INTEGER),
    "position": ("an integer", AN_INTEGER),
    "tokens": (
        "a list of token ids and runs [first, count] or [first, count, step]",
        (
            1,
            None,
            "1",
            {"1": 2},
            [[]],
            [[1]],
            [[1, 2, 3, 4]],
            [[1, -1]],
            [[1, 2**31 + 1]],
            [["x", 2]],
            [[1, "2"]],
            [[1, 2, 0.5]],
            [[1, True]],
            [[1, [2]]],
        ),
    ),
    "namespace": (
        "an object with string values and keys among adapter, media, model, salt, weights",
        (1, None, "salt", ["salt", "s"], [["salt", "s"]], {"tenant": "s"}, {"salt": 1}, {"salt": None}, {"Salt": "s"}),
    ),
    "work": (
        "a list of [request, count] pairs",
        (1, None, "", "ab", {}, {"a": 1}, [1], ["a"], [["a"]], [["a", 1, 2]], [["a", "1"]], [[1, 1]], [["a", True]]),
    ),
}


def refusal(data: Any) -> str:
    with pytest.raises(Malformed) as caught:
        decode(data)
    return str(caught.value)


def test_the_good_forms_are_read() -> None:
    assert set(GOOD) == set(OPERATIONS)
    for name, data in GOOD.items():
        assert decode(data).op == name
        assert encode(decode(data)) == data


WRONG_VALUES = [
    (name, field, value)
    for name in GOOD
    for field in (*[key for key in GOOD[name] if key != "op"], *OPTIONAL.get(name, ()))
    for value in WRONG[field][1]
]


@pytest.mark.parametrize(("name", "field", "value"), WRONG_VALUES, ids=repr)
def test_a_wrong_value_is_said_with_operation_field_finding_and_expectation(name: str, field: str, value: Any) -> None:
    message = refusal({**GOOD[name], field: value})
    assert message == f"{name}: {field} must be {WRONG[field][0]}, got {value!r:.80}"


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in GOOD for field in GOOD[name] if field != "op"])
def test_a_missing_field_is_named_with_its_operation(name: str, field: str) -> None:
    data = {key: value for key, value in GOOD[name].items() if key != field}
    assert refusal(data) == f"{name} lacks {field}"


def test_all_missing_fields_are_named() -> None:
    assert refusal({"op": "fill"}) == "fill lacks request, position, tokens"
    assert refusal({"op": "allocate", "match": "m", "namespace": {}}) == "allocate lacks request, tokens"


@pytest.mark.parametrize("name", GOOD)
def test_an_unknown_field_is_named_with_those_that_there_are(name: str) -> None:
    message = refusal({**GOOD[name], "colour": 1, "age": 2})
    known = [field.name for field in fields(OPERATIONS[name])]
    assert message == f"{name} has no fields ['age', 'colour']; it has {', '.join(known) or 'none'}"


@pytest.mark.parametrize("op", ["alocate", "", "ALLOCATE", None, 1, ["free"], {"free": 1}], ids=repr)
def test_an_unknown_operation_is_named_with_those_that_there_are(op: Any) -> None:
    message = refusal({"op": op, "request": "a"})
    assert message == f"unknown operation {op!r}; known are {', '.join(OPERATIONS)}"


@pytest.mark.parametrize("data", [None, 1, "free", [], ["op"], {}, {"request": "a"}], ids=repr)
def test_what_is_no_operation_at_all_is_shown(data: Any) -> None:
    assert refusal(data) == f'expected an object with "op", got {data!r}'


def test_long_findings_are_cut_short() -> None:
    assert len(refusal({"op": "free", "request": ["a"] * 1000})) < 150
    assert len(refusal(["a"] * 1000)) < 150


# ---- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(),
        Configuration(1, 1, 0, "last_token", False),
        Configuration(2**31 - 1, 2**31 - 1, 128, "last_block", True),
        Configuration(num_blocks=64, block_size=16, hash_bits=64),
    ],
    ids=str,
)
def test_a_configuration_comes_back_from_json(configuration: Configuration) -> None:
    data = configuration.to_json()
    assert list(data) == ["num_blocks", "block_size", "hash_bits", "reuse", "caching"]
    assert Configuration.from_json(json.loads(json.dumps(data))) == configuration


def test_fields_that_a_configuration_leaves_out_have_their_defaults() -> None:
    assert Configuration.from_json({}) == Configuration(8, 4, 128, "last_block", True)
    assert Configuration.from_json({"num_blocks": 3}) == Configuration(num_blocks=3)


INTEGERS = ("1", None, True, 1.0, [1], -1)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        *(("num_blocks", value, "an integer from 1 to 2147483647") for value in (*INTEGERS, 0, 2**31)),
        *(("block_size", value, "an integer from 1 to 2147483647") for value in (*INTEGERS, 0, 2**31)),
        *(("hash_bits", value, "an integer from 0 to 128") for value in (*INTEGERS, 129)),
        *(("reuse", value, "'last_block' or 'last_token'") for value in ("", "LAST_BLOCK", None, 1, ["last_block"])),
        *(("caching", value, "true or false") for value in (0, 1, None, "true", [])),
    ],
    ids=repr,
)
def test_an_invalid_field_of_a_configuration_is_named_with_what_it_may_be(
    field: str, value: Any, expected: str
) -> None:
    for make in (lambda: Configuration(**{field: value}), lambda: Configuration.from_json({field: value})):
        with pytest.raises(Malformed) as caught:
            make()
        assert str(caught.value) == f"configuration: {field} must be {expected}, got {value!r}"


def test_unknown_fields_of_a_configuration_are_named_with_those_that_there_are() -> None:
    with pytest.raises(Malformed) as caught:
        Configuration.from_json({"num_blocks": 1, "blocks": 2, "a": 3})
    known = ["block_size", "caching", "hash_bits", "num_blocks", "reuse"]
    assert str(caught.value) == f"configuration has unknown fields ['a', 'blocks']; known are {known}"


@pytest.mark.parametrize("data", [None, 8, "8 blocks", [8, 4]], ids=repr)
def test_a_configuration_that_is_no_object_is_shown(data: Any) -> None:
    with pytest.raises(Malformed) as caught:
        Configuration.from_json(data)
    assert str(caught.value) == f"configuration must be an object, got {data!r}"


def test_a_configuration_is_frozen_hashable_and_says_itself_in_a_line() -> None:
    configuration = Configuration(6, 2, 0, "last_token", False)
    with pytest.raises(FrozenInstanceError):
        configuration.num_blocks = 5  # type: ignore[misc]
    assert {configuration, Configuration(6, 2, 0, "last_token", False)} == {configuration}
    assert str(configuration) == "6 blocks of 2, last_token, no caching, 0-bit hash"
    assert str(Configuration()) == "8 blocks of 4, last_block, caching, 128-bit hash"


def test_the_schema_is_one_whose_corpus_is_kept() -> None:
    assert type(SCHEMA) is int and SCHEMA >= 1
