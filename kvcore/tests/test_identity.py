"""What makes K/V interchangeable, alone: keys, encodings of namespaces, and tokens as they may be given."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xxhash

from kvcore import UNKNOWN, InvalidTokens, Namespace, weak_hash
from kvcore.identity import MAX_TOKEN, token_array

LARGE = 64  # from here on the smallest token is looked for by numpy


@pytest.mark.parametrize("bits", [0, 1, 7, 127, 128])
def test_a_weak_hash_keeps_the_lowest_bits(bits: int):
    for data in (b"", b"abc", bytes(100)):
        key = weak_hash(bits)(data)
        assert len(key) == 16
        assert int.from_bytes(key, "big") == xxhash.xxh3_128_intdigest(data) % 2**bits


def test_any_string_is_a_namespace_part():
    salts = ["", "a", "ä", "\ud800", "\udfff", "a\0b", "1:a"]
    assert len({Namespace(salt=salt).encoding for salt in salts}) == len(salts)


def test_parts_cannot_be_shifted_into_one_another():
    assert Namespace(model="a", salt="b").encoding != Namespace(model="ab").encoding
    assert Namespace(model="", weights="salt:1:x").encoding != Namespace(model="", salt="x").encoding


@pytest.mark.parametrize("make", [list, tuple, lambda tokens: array("i", tokens), lambda tokens: array("q", tokens)])
@pytest.mark.parametrize("count", [3, LARGE])
def test_tokens_are_copied_into_an_int32_array(make: Any, count: int):
    given = make(range(count))
    result = token_array(given)
    assert (result.typecode, result.tolist()) == ("i", list(range(count)))
    assert result is not given


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_numpy_integers_of_every_width_are_tokens(dtype: str):
    result = token_array(np.array([0, 1, 127], dtype=dtype))
    assert (result.typecode, result.tolist()) == ("i", [0, 1, 127])


@pytest.mark.parametrize(
    "tokens",
    [
        array("I", [2**31]),
        array("q", [2**31]),
        array("q", [-1]),
        array("i", [-1]),
        array("d", [1.0]),
        np.array([2**31]),
        np.array([2**31], dtype=np.uint32),
        np.array([-1]),
        np.array([-1], dtype=np.int32),
        [0] * LARGE + [-1],
        np.array([1.0]),
        np.array([True]),
        np.array(1),
        "12",
        b"12",
        {1, 2},
        iter([1]),
        None,
    ],
    ids=lambda tokens: type(tokens).__name__,
)
def test_what_is_no_token_is_refused(tokens: Any):
    with pytest.raises(InvalidTokens):
        token_array(tokens)


@pytest.mark.parametrize("make", [list, tuple, np.array])
@pytest.mark.parametrize("bad", [-1, 2**31])
def test_the_first_bad_token_is_named_and_no_good_one(make: Any, bad: int):
    with pytest.raises(InvalidTokens, match=rf"^token {bad} at position 3 is not allowed"):
        token_array(make([0, 5, MAX_TOKEN, bad, -7]))


class Odd:
    """Looks like an integer between all others, and is none when it is read."""

    def __index__(self) -> int:
        raise ValueError

    def __ge__(self, other: object) -> bool:
        return True

    __le__ = __ge__

    def __repr__(self) -> str:
        return "odd"


def test_what_cannot_be_read_for_no_known_reason_is_shown():
    with pytest.raises(InvalidTokens, match=r"^tokens \[odd\] cannot be read as a sequence of integers from 0 to "):
        token_array([Odd()])


def test_a_placeholder_is_a_token_only_where_it_may_be():
    assert token_array([0, UNKNOWN], placeholders=True).tolist() == [0, -1]
    assert token_array(np.array([0, UNKNOWN]), placeholders=True).tolist() == [0, -1]
    with pytest.raises(InvalidTokens, match=r"^token -1 at position 1 is not allowed; tokens are integers from 0"):
        token_array([0, UNKNOWN])
    with pytest.raises(InvalidTokens, match=r"^token -2 at position 1 is not allowed; tokens are integers from -1"):
        token_array([UNKNOWN, -2], placeholders=True)


@pytest.mark.parametrize("tokens", [[], (), array("i"), np.array([], dtype=np.int64), np.array([], dtype=np.int32)])
def test_no_tokens_are_refused(tokens: Sequence[int]):
    with pytest.raises(InvalidTokens, match=r"^tokens are empty; give at least one token$"):
        token_array(tokens)
