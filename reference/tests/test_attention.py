"""Attention: small cases by hand, and what must hold whatever the numbers are."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from reference import attention

Tensor = list[list[list[float]]]
THREE_TO_ONE = math.log(3)  # two scores this far apart weigh 1/4 and 3/4


def rows(*numbers: float) -> Tensor:
    """One head of one element at each position."""
    return [[[number]] for number in numbers]


def drawn(random: Random, positions: int, heads: int, size: int) -> Tensor:
    return [[[random.gauss(0, 1) for _ in range(size)] for _ in range(heads)] for _ in range(positions)]


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> bool:
    flat_a, flat_b = ([x for row in t for head in row for x in head] for t in (a, b))
    return len(flat_a) == len(flat_b) and all(abs(x - y) <= tolerance for x, y in zip(flat_a, flat_b, strict=True))


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_two_keys_with_known_weights():
    assert close(attention(rows(1), rows(0, THREE_TO_ONE), rows(0, 4), scale=1), rows(3))
    assert close(attention(rows(1), rows(THREE_TO_ONE, 0), rows(0, 4), scale=1), rows(1))


def test_the_scale_multiplies_the_dot_product():
    assert close(attention(rows(2), rows(0, THREE_TO_ONE), rows(0, 4), scale=0.5), rows(3))
    assert close(attention(rows(1), rows(0, THREE_TO_ONE), rows(0, 4), scale=2), rows(3.6))


def test_the_dot_product_runs_over_all_elements():
    keys = [[[0.0, 0.0, 0.0]], [[THREE_TO_ONE, 5.0, -2.5]]]
    values = [[[0.0, 4.0, 8.0]], [[4.0, 4.0, 0.0]]]
    assert close(attention([[[1.0, 1.0, 2.0]]], keys, values, scale=1), [[[3.0, 4.0, 2.0]]])


def test_a_query_sees_no_later_key():
    assert attention(rows(0, 0, 0), rows(9, 9, 9), rows(1, 3, 8), scale=1) == rows(1, 2, 4)


def test_queries_are_the_last_positions():
    assert attention(rows(0, 0), rows(9, 9, 9), rows(1, 3, 8), scale=1) == rows(2, 4)


def test_a_window_counts_the_querys_own_position():
    values = rows(1, 3, 8, 10)
    assert attention(rows(0, 0, 0, 0), rows(9, 9, 9, 9), values, scale=1, window=2) == rows(1, 2, 5.5, 9)
    assert attention(rows(0, 0), rows(9, 9, 9, 9), values, scale=1, window=3) == rows(4, 7)


def test_the_cap_comes_after_the_scale():
    # Far above the cap, halved or not: the score is the cap.
    for scale in (1, 0.5):
        capped = attention(rows(1), rows(0, 1000), rows(0, 4), scale=scale, softcap=THREE_TO_ONE)
        assert close(capped, rows(3))
    # tanh(atanh(1/2)) of a cap of 2 ln 3
    score = 2 * THREE_TO_ONE * math.atanh(0.5)
    assert close(attention(rows(1), rows(0, score / 4), rows(0, 4), scale=4, softcap=2 * THREE_TO_ONE), rows(3))


def test_a_slope_takes_from_what_is_further_away():
    assert close(attention(rows(0), rows(5, 5), rows(0, 4), scale=1, slopes=[THREE_TO_ONE]), rows(3))
    # 1, 3 and 9 parts
    assert close(attention(rows(0), rows(5, 5, 5), rows(13, 0, 0), scale=1, slopes=[THREE_TO_ONE]), rows(1))


def test_a_slope_is_not_capped():
    assert close(attention(rows(7), rows(5, 9), rows(0, 4), scale=1, softcap=1e-15, slopes=[THREE_TO_ONE]), rows(3))


def test_every_query_head_has_its_own_slope():
    queries = [[[0.0], [0.0]]]
    assert close(attention(queries, rows(5, 5), rows(0, 4), scale=1, slopes=[0, THREE_TO_ONE]), [[[2.0], [3.0]]])


def test_neighbouring_query_heads_share_a_kv_head():
    queries = [[[0.0]] * 6]
    values = [[[1.0], [2.0]]]
    assert attention(queries, values, values, scale=1) == [[[1.0], [1.0], [1.0], [2.0], [2.0], [2.0]]]


def test_keys_are_shared_as_values_are():
    queries = [[[1.0], [1.0], [1.0], [1.0]]]
    keys = [[[0.0], [0.0]], [[0.0], [THREE_TO_ONE]]]
    values = [[[0.0], [0.0]], [[4.0], [4.0]]]
    assert close(attention(queries, keys, values, scale=1), [[[2.0], [2.0], [3.0], [3.0]]])


def test_no_query_reads_nothing():
    assert attention([], [], [], scale=1) == []
    assert attention([], rows(1, 2), rows(3, 4), scale=1, window=1, softcap=2, slopes=[1]) == []


# ---- whatever the numbers are ----------------------------------------------------------------------------------------

FEATURES: list[dict[str, Any]] = [
    {},
    {"window": 3},
    {"softcap": 1.5},
    {"slopes": [0.5, 0.25, 0.125, 0.0625]},
    {"window": 4, "softcap": 2.0, "slopes": [0.5, 0.25, 0.125, 0.0625]},
]


def test_equal_scores_give_the_mean():
    random = Random(1)
    for n in range(1, 8):
        values = drawn(random, n, 2, 3)
        key = drawn(random, 1, 2, 3)[0]
        read = attention(drawn(random, 1, 2, 3), [key] * n, values, scale=1)
        mean = [[math.fsum(row[head][d] for row in values) / n for d in range(3)] for head in range(2)]
        assert close(read, [mean])


def test_one_dominant_score_gives_its_value():
    random = Random(2)
    values = drawn(random, 6, 1, 3)
    for chosen in range(6):
        keys = [[[1000.0 if at == chosen else 0.0, 0.0, 0.0]] for at in range(6)]
        assert attention([[[1.0, 0.0, 0.0]]], keys, values, scale=1) == [values[chosen]]


@pytest.mark.parametrize("features", FEATURES)
def test_a_window_of_one_gives_the_own_value(features: dict[str, Any]):
    random = Random(3)
    queries, keys, values = drawn(random, 5, 4, 3), drawn(random, 7, 2, 3), drawn(random, 7, 2, 3)
    read = attention(queries, keys, values, scale=0.6, **{**features, "window": 1})
    assert read == [[row[0], row[0], row[1], row[1]] for row in values[2:]]


def test_a_window_of_all_is_none():
    random = Random(4)
    queries, keys, values = drawn(random, 4, 4, 3), drawn(random, 7, 2, 3), drawn(random, 7, 2, 3)
    everything = attention(queries, keys, values, scale=0.6)
    for window in (7, 8, 100):
        assert attention(queries, keys, values, scale=0.6, window=window) == everything
    assert attention(queries, keys, values, scale=0.6, window=6) != everything


@pytest.mark.parametrize("features", FEATURES)
def test_a_chunk_reads_what_the_whole_does(features: dict[str, Any]):
    """A prefill in chunks, down to one token a time, gives the same rows: exactly, since a row is computed alone."""
    random = Random(5)
    queries, keys, values = drawn(random, 9, 4, 3), drawn(random, 9, 2, 3), drawn(random, 9, 2, 3)
    whole = attention(queries, keys, values, scale=0.6, **features)
    for stop in range(1, 10):
        for start in range(stop):
            chunk = attention(queries[start:stop], keys[:stop], values[:stop], scale=0.6, **features)
            assert chunk == whole[start:stop]


@pytest.mark.parametrize("features", FEATURES)
def test_a_query_head_reads_alone(features: dict[str, Any]):
    random = Random(6)
    queries, keys, values = drawn(random, 3, 4, 3), drawn(random, 6, 2, 3), drawn(random, 6, 2, 3)
    whole = attention(queries, keys, values, scale=0.6, **features)
    for head in range(4):
        own = {**features, "slopes": [features["slopes"][head]]} if "slopes" in features else features
        alone = attention(
            [[row[head]] for row in queries],
            [[row[head // 2]] for row in keys],
            [[row[head // 2]] for row in values],
            scale=0.6,
            **own,
        )
        assert alone == [[row[head]] for row in whole]


def test_what_is_added_to_every_key_cancels():
    random = Random(7)
    queries, keys, values = drawn(random, 3, 4, 3), drawn(random, 6, 2, 3), drawn(random, 6, 2, 3)
    shift = [0.7, -1.1, 0.4]
    moved = [[[x + s for x, s in zip(head, shift, strict=True)] for head in row] for row in keys]
    for features in ({}, {"window": 3}, {"slopes": [0.5, 0.25, 0.125, 0.0625]}):
        before = attention(queries, keys, values, scale=0.6, **features)
        assert close(attention(queries, moved, values, scale=0.6, **features), before)
    capped = attention(queries, keys, values, scale=0.6, softcap=1.5)
    assert not close(attention(queries, moved, values, scale=0.6, softcap=1.5), capped, 1e-3)


@pytest.mark.parametrize("features", FEATURES)
def test_what_is_added_to_every_value_is_added_to_the_output(features: dict[str, Any]):
    random = Random(8)
    queries, keys, values = drawn(random, 3, 4, 3), drawn(random, 6, 2, 3), drawn(random, 6, 2, 3)
    moved = [[[x + 2.5 for x in head] for head in row] for row in values]
    before = attention(queries, keys, values, scale=0.6, **features)
    expected = [[[x + 2.5 for x in head] for head in row] for row in before]
    assert close(attention(queries, keys, moved, scale=0.6, **features), expected)


def test_the_order_of_the_keys_does_not_matter():
    random = Random(9)
    query, keys, values = drawn(random, 1, 4, 3), drawn(random, 8, 2, 3), drawn(random, 8, 2, 3)
    order = random.sample(range(8), 8)
    before = attention(query, keys, values, scale=0.6)
    assert attention(query, [keys[at] for at in order], [values[at] for at in order], scale=0.6) == before


def test_a_wide_cap_is_none_and_a_narrow_one_gives_the_mean():
    random = Random(10)
    queries, keys, values = drawn(random, 3, 4, 3), drawn(random, 6, 2, 3), drawn(random, 6, 2, 3)
    plain = attention(queries, keys, values, scale=0.6)
    assert close(attention(queries, keys, values, scale=0.6, softcap=1e9), plain)
    narrow = attention(queries, keys, values, scale=0.6, softcap=1e-14)
    assert close(narrow, attention(queries, keys, values, scale=0))
    assert not close(attention(queries, keys, values, scale=0.6, softcap=1.0), plain, 1e-3)


def test_slopes_of_zero_are_none_and_positions_count_from_the_query():
    random = Random(11)
    queries, keys, values = drawn(random, 3, 4, 3), drawn(random, 6, 2, 3), drawn(random, 6, 2, 3)
    assert attention(queries, keys, values, scale=0.6, slopes=[0.0] * 4) == attention(queries, keys, values, scale=0.6)
    slopes = [0.5, 0.25, 0.125, 0.0625]
    biased = attention(queries, keys, values, scale=0.6, slopes=slopes)
    # One more element of each key, its position, and of each query, the slope: the same up to a constant a row.
    wider = [[[*vector, slope / 0.6] for vector, slope in zip(row, slopes, strict=True)] for row in queries]
    longer = [[[*vector, float(at)] for vector in row] for at, row in enumerate(keys)]
    padded = [[[*vector, 0.0] for vector in row] for row in values]
    expected = [[vector[:3] for vector in row] for row in attention(wider, longer, padded, scale=0.6)]
    assert close(biased, expected)


@pytest.mark.parametrize("score", [1e4, -1e4, 1e300])
def test_large_scores_neither_overflow_nor_vanish(score: float):
    assert close(attention(rows(score), rows(1, 1), rows(0, 4), scale=1), rows(2))
    assert attention(rows(score), rows(0, 1), rows(0, 4), scale=1) == rows(4 if score > 0 else 0)
    assert attention(rows(score), rows(1, 0), rows(0, 4), scale=1) == rows(0 if score > 0 else 4)


# ---- bad input -------------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "queries": [[[1.0, 2.0]] * 4] * 2,
    "keys": [[[1.0, 2.0]] * 2] * 3,
    "values": [[[1.0, 2.0]] * 2] * 3,
    "scale": 1.0,
}
PAIR = [[1.0, 2.0]]


def test_the_good_input_is_good():
    assert attention(**GOOD) == [[[1.0, 2.0]] * 4] * 2


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"queries": [PAIR * 4, PAIR * 2]}, ("queries have 2 heads at position 1", "4 in the first")),
        ({"keys": [PAIR * 2, PAIR * 2, PAIR]}, ("keys have 1 heads at position 2", "all must agree")),
        (
            {"values": [PAIR * 2, PAIR * 2, [[1.0, 2.0], [1.0]]]},
            ("1 elements in head 1 at position 2", "2 in the first; all must agree"),
        ),
        ({"queries": [[]]}, ("queries have 0 heads", "at least 1")),
        ({"keys": [[]] * 3}, ("keys have 0 heads", "at least 1")),
        ({"keys": [[[], []]] * 3}, ("keys have 0 elements a head", "at least 1")),
        ({"keys": [PAIR * 2] * 2}, ("keys are [2, 2, 2], values [3, 2, 2]", "agree")),
        ({"values": [PAIR] * 3}, ("keys are [3, 2, 2], values [3, 1, 2]", "agree")),
        ({"queries": [PAIR * 4] * 4}, ("4 queries for 3 keys", "at most 3")),
        ({"keys": []}, ("keys are [0, 0, 0], values [3, 2, 2]; they", "agree")),
        ({"keys": [], "values": []}, ("2 queries for 0 keys", "at most 0")),
        ({"queries": [PAIR * 3]}, ("3 query heads for 2 kv heads", "multiple")),
        ({"queries": [PAIR]}, ("1 query heads for 2 kv heads", "multiple")),
        ({"queries": [[[1.0]] * 4]}, ("queries have 1 elements a head, keys 2", "agree")),
        ({"values": [[[1.0, math.inf]] * 2] * 3}, ("values are [1.0, inf] in head 0", "finite")),
        ({"scale": math.nan}, ("scale is nan", "finite")),
        ({"window": 0}, ("window is 0", "at least 1")),
        ({"window": -3}, ("window is -3", "at least 1")),
        ({"softcap": 0.0}, ("softcap is 0.0", "above 0")),
        ({"softcap": -1.0}, ("softcap is -1.0", "above 0")),
        ({"softcap": math.inf}, ("softcap is inf", "finite")),
        ({"softcap": math.nan}, ("softcap is nan", "finite")),
        ({"slopes": [1.0]}, ("1 slopes for 4 query heads", "each needs one")),
        ({"slopes": [1.0, 2.0, 3.0, math.nan]}, ("slopes are [1.0, 2.0, 3.0, nan]", "finite")),
    ],
)
def test_errors_say_what_was_given_and_what_is_allowed(bad: dict[str, Any], words: tuple[str, ...]):
    with pytest.raises(ValueError) as caught:
        attention(**{**GOOD, **bad})
    for part in words:
        assert part in str(caught.value)


def test_bad_settings_are_refused_without_queries_too():
    for bad in ({"window": 0}, {"softcap": 0.0}):
        with pytest.raises(ValueError):
            attention([], [], [], scale=1, **bad)
