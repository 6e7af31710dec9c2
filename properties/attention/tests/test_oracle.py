"""The oracle: the same as the reference, in every combination, and its three measures are what they say."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
import torch

from properties.attention import oracle
from properties.attention.oracle import Exact, exact
from reference import attention

CASES = 60
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def case(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(queries, keys, values; settings) drawn from the seed. Every ratio of heads comes with every feature."""
    random = Random(seed)
    generator = torch.Generator().manual_seed(seed)
    group = (1, 2, 3, 5, 6, 7)[seed % 6]
    kv_heads, size, n = random.randint(1, 3), random.randint(1, 16), random.randint(1, 12)
    q = random.choice((1, n, random.randint(1, n)))
    query_heads = group * kv_heads
    dtype = random.choice(FLOATS)

    def draw(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * spread).to(dtype)

    spread = random.choice((0.1, 1.0, 4.0))
    tensors = {"queries": draw(q, query_heads, size), "keys": draw(n, kv_heads, size)}
    spread = random.choice((0.01, 1.0, 100.0))
    tensors["values"] = draw(n, kv_heads, size)
    features = seed // 6  # bits, so that 48 seeds are all combinations with all ratios
    settings = {
        "scale": random.choice((size**-0.5, 0.3, 1.0)),
        "window": random.randint(1, n + 1) if features & 1 else None,
        "softcap": random.choice((0.5, 5.0, 50.0)) if features & 2 else None,
        "slopes": [random.uniform(0, 1) for _ in range(query_heads)] if features & 4 else None,
    }
    return tensors, settings


@pytest.fixture(params=range(CASES))
def drawn(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], dict[str, Any], Exact]:
    """A case and what the oracle says, in pieces of one row, of a few or all at once."""
    tensors, settings = case(request.param)
    n, query_heads = len(tensors["keys"]), tensors["queries"].shape[1]
    monkeypatch.setattr(oracle, "_SCORES", (1, 3 * n * query_heads, 2**20)[request.param % 5 % 3])
    return tensors, settings, exact(**tensors, **settings)


def scores_of(tensors: dict[str, Any], settings: dict[str, Any], row: int, head: int) -> dict[int, float]:
    """By plain loops: the keys that a row sees, and their scores."""
    queries, keys, _ = (tensor.double().tolist() for tensor in tensors.values())
    shared = head // (len(queries[0]) // len(keys[0]))
    position = len(keys) - len(queries) + row
    scores = {}
    for at, key in enumerate(keys):
        if at <= position and (settings["window"] is None or position - at < settings["window"]):
            score = settings["scale"] * sum(a * b for a, b in zip(queries[row][head], key[shared], strict=True))
            if settings["softcap"] is not None:
                score = settings["softcap"] * math.tanh(score / settings["softcap"])
            if settings["slopes"] is not None:
                score += settings["slopes"][head] * (at - position)
            scores[at] = score
    return scores


# ---- against the reference and plain loops ---------------------------------------------------------------------------


def test_the_output_is_the_references(drawn):
    tensors, settings, found = drawn
    expected = torch.tensor(
        attention(*(tensor.double().tolist() for tensor in tensors.values()), **settings), dtype=torch.float64
    )
    assert found.output.shape == expected.shape
    assert ((found.output - expected).abs() <= 1e-12 * found.reach[..., None]).all()


def test_the_measures_are_those_of_plain_loops(drawn):
    tensors, settings, found = drawn
    values = tensors["values"].double().tolist()
    q, query_heads, size = tensors["queries"].shape
    for row in range(q):
        for head in range(query_heads):
            scores = scores_of(tensors, settings, row, head)
            shared = head // (query_heads // len(values[0]))
            peak = max(abs(score) for score in scores.values()) / math.log(2)
            reach = max(abs(element) for at in scores for element in values[at][shared])
            assert found.peak[row, head].item() == pytest.approx(peak, rel=1e-12, abs=1e-13)
            assert found.reach[row, head].item() == reach
            weights = {at: math.exp(score - max(scores.values())) for at, score in scores.items()}
            total = sum(weights.values())
            for d in range(size):
                mean = sum(weight / total * values[at][shared][d] for at, weight in weights.items())
                squares = [(weight / total * (values[at][shared][d] - mean)) ** 2 for at, weight in weights.items()]
                assert abs(found.mixture[row, head, d].item() - math.sqrt(sum(squares))) <= 1e-12 * reach


def test_what_is_found_is_float64_and_contiguous(drawn):
    tensors, _, found = drawn
    q, query_heads, size = tensors["queries"].shape
    for field, shape in (("output", (q, query_heads, size)), ("peak", (q, query_heads))):
        assert getattr(found, field).shape == shape
    assert found.mixture.shape == found.output.shape and found.reach.shape == found.peak.shape
    for field in fields(found):
        tensor = getattr(found, field.name)
        assert tensor.dtype is torch.float64 and tensor.is_contiguous()


def test_the_cases_cover_every_ratio_with_every_combination():
    seen, ratios, sizes = set(), set(), set()
    for seed in range(CASES):
        tensors, settings = case(seed)
        ratio = tensors["queries"].shape[1] // tensors["keys"].shape[1]
        seen.add((ratio, *(settings[name] is None for name in ("window", "softcap", "slopes"))))
        ratios.add(ratio)
        sizes.add(tensors["keys"].shape[2])
    assert ratios == {1, 2, 3, 5, 6, 7} and len(seen) == 6 * 8 and {1, 16} <= sizes


# ---- whatever the numbers are ----------------------------------------------------------------------------------------


def test_mixture_is_how_far_errors_in_the_weights_move_the_output():
    """Each weight off by a relative error of its own: the outputs' spread, against the first-order prediction."""
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(n, 1, 5, generator=generator, dtype=torch.float64) for n in (1, 7, 7))
    found = exact(queries, keys, values, scale=0.5)
    weights = (0.5 * keys[:, 0] @ queries[0, 0]).softmax(0)
    wrong = weights * (1 + 1e-4 * torch.randn(4000, 7, generator=generator, dtype=torch.float64))
    outputs = wrong @ values[:, 0] / wrong.sum(1, keepdim=True)
    measured = (outputs - found.output[-1, 0]).pow(2).mean(0).sqrt() / 1e-4
    assert torch.allclose(measured, found.mixture[-1, 0], rtol=0.1)


def test_equal_values_have_no_mixture():
    """To the last digits: by way of differences of squares it would be 1e-8 of the reach."""
    tensors, settings = case(9)
    tensors["values"] = torch.full_like(tensors["values"].double(), 1 / 3)
    assert exact(**tensors, **settings).mixture.max() < 1e-15


def test_small_differences_of_large_values_keep_their_digits():
    queries, keys = torch.zeros(1, 1, 1), torch.zeros(2, 1, 1)
    values = torch.tensor([1e6, 1e6 + 2**-10], dtype=torch.float64).view(2, 1, 1)
    found = exact(queries, keys, values, scale=1)
    assert found.mixture.item() == pytest.approx(2**-11 / math.sqrt(2), rel=1e-6)


def test_queries_are_the_last_positions():
    values = torch.tensor([1.0, 3.0, 8.0, -20.0]).view(4, 1, 1)
    found = exact(torch.zeros(2, 1, 1), torch.ones(4, 1, 1), values, scale=1)
    assert found.output.flatten().tolist() == [4, -2]
    assert found.reach.flatten().tolist() == [8, 20]


def test_a_piece_reads_what_the_whole_does(monkeypatch: pytest.MonkeyPatch):
    """In pieces of one row, of two and all at once; also where a window leaves the first keys out."""
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(150, 4, 8, generator=generator)
    keys, values = (torch.randn(200, 2, 8, generator=generator) for _ in range(2))
    for window in (None, 1, 7):
        settings = {"scale": 0.4, "window": window, "slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])}
        whole = exact(queries, keys, values, **settings)
        for rows in (1, 2, 64):
            monkeypatch.setattr(oracle, "_SCORES", rows * 200 * 4)
            pieces = exact(queries, keys, values, **settings)
            for field in fields(Exact):
                assert torch.allclose(getattr(pieces, field.name), getattr(whole, field.name), rtol=1e-12, atol=1e-13)
            alone = exact(queries[-1:], keys, values, **settings)
            assert torch.allclose(alone.output, whole.output[-1:], rtol=1e-12, atol=1e-13)
        monkeypatch.undo()


def test_views_and_parameters_are_read_as_they_are():
    tensors, settings = case(8)
    before = exact(**tensors, **settings)
    strided = {name: torch.stack([tensor, tensor + 1], -1)[..., 0].requires_grad_() for name, tensor in tensors.items()}
    assert not strided["queries"].is_contiguous()
    kept = {name: tensor.clone() for name, tensor in strided.items()}
    after = exact(**strided, **settings)
    assert torch.equal(after.output, before.output) and not after.output.requires_grad
    assert all(torch.equal(strided[name], kept[name]) for name in strided)


def test_eight_bit_floats_are_exact_too():
    tensors, settings = case(11)
    small = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors.items()}
    wide = {name: tensor.double() for name, tensor in small.items()}
    assert torch.equal(exact(**small, **settings).output, exact(**wide, **settings).output)


def test_what_the_oracle_is_given_stays():
    tensors, settings = case(12)
    wide = {name: tensor.double() for name, tensor in tensors.items()}  # converted to nothing else, so not copied
    kept = {name: tensor.clone() for name, tensor in wide.items()}
    exact(**wide, **settings)
    assert all(torch.equal(wide[name], kept[name]) for name in wide)


def test_large_scores_neither_overflow_nor_vanish():
    keys = torch.tensor([0.0, 1.0]).view(2, 1, 1)
    values = torch.tensor([0.0, 4.0]).view(2, 1, 1)
    found = exact(torch.full((1, 1, 1), 1e4), keys, values, scale=1)
    assert found.output.item() == 4 and found.mixture.item() == 0
    assert found.peak.item() == pytest.approx(1e4 / math.log(2))


@pytest.mark.parametrize("n", [0, 3])
def test_no_query_reads_nothing(n: int):
    found = exact(torch.zeros(0, 6, 5), torch.zeros(n, 2, 5), torch.zeros(n, 2, 5), scale=1, window=1, slopes=[1] * 6)
    assert found.output.shape == found.mixture.shape == (0, 6, 5)
    assert found.peak.shape == found.reach.shape == (0, 6)
    assert {getattr(found, field.name).dtype for field in fields(found)} == {torch.float64}


# ---- bad input -------------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "queries": torch.ones(2, 4, 2),
    "keys": torch.ones(3, 2, 2),
    "values": torch.ones(3, 2, 2),
    "scale": 1.0,
}


def test_the_good_input_is_good():
    assert torch.equal(exact(**GOOD).output, torch.ones(2, 4, 2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"queries": torch.ones(2, 8)}, ("queries are [2, 8]", "[positions, heads >= 1, elements >= 1]")),
        ({"queries": torch.ones(2, 0, 2)}, ("queries are [2, 0, 2]", "heads >= 1")),
        ({"keys": torch.ones(3, 0, 2)}, ("keys are [3, 0, 2]", "heads >= 1")),
        ({"values": torch.ones(3, 2, 0)}, ("values are [3, 2, 0]", "elements >= 1")),
        ({"keys": torch.ones(3, 2, 2, dtype=torch.int64)}, ("keys are torch.int64", "floating")),
        ({"values": torch.full((3, 2, 2), math.nan)}, ("values have elements", "not finite")),
        ({"keys": torch.ones(2, 2, 2)}, ("keys are [2, 2, 2], values [3, 2, 2]", "agree")),
        ({"values": torch.ones(3, 1, 2)}, ("keys are [3, 2, 2], values [3, 1, 2]", "agree")),
        ({"queries": torch.ones(4, 4, 2)}, ("4 queries for 3 keys", "at most 3")),
        ({"queries": torch.ones(2, 3, 2)}, ("3 query heads for 2 kv heads", "multiple")),
        ({"queries": torch.ones(2, 1, 2)}, ("1 query heads for 2 kv heads", "multiple")),
        ({"queries": torch.ones(2, 4, 1)}, ("queries have 1 elements a head, keys 2", "agree")),
        ({"scale": math.inf}, ("scale is inf", "finite")),
        ({"window": 0}, ("window is 0", "at least 1")),
        ({"window": -3}, ("window is -3", "at least 1")),
        ({"softcap": 0.0}, ("softcap is 0.0", "above 0")),
        ({"softcap": -1.0}, ("softcap is -1.0", "above 0")),
        ({"softcap": math.nan}, ("softcap is nan", "finite")),
        ({"slopes": [1.0]}, ("slopes are [1] for 4 query heads", "each needs one")),
        ({"slopes": torch.ones(4, 1)}, ("slopes are [4, 1] for 4 query heads", "each needs one")),
        ({"slopes": [1.0, 2.0, 3.0, math.nan]}, ("slopes are [1.0, 2.0, 3.0, nan]", "finite")),
    ],
)
def test_errors_say_what_was_given_and_what_is_allowed(bad: dict[str, Any], words: tuple[str, ...]):
    with pytest.raises(ValueError) as caught:
        exact(**{**GOOD, **bad})
    for part in words:
        assert part in str(caught.value)


def test_an_answer_does_not_change():
    with pytest.raises(AttributeError):
        replace(exact(**GOOD)).output = None
