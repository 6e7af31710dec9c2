"""The checks, tried with kernels that lie: each lie is charged to its property, and the truth passes everywhere."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from properties.attention.cases import Case, draw
from properties.attention.checks import Blind, Checker, poison_is_seen
from properties.attention.kernels import AXES, DTYPES, Cache, How, Step, Unsupported
from properties.attention.launch import _UNWRITTEN
from properties.attention.oracle import exact
from properties.attention.tolerance import tolerance
from reference import Bounds, Crash, Equivalence

from .support import Plain

CASE = Case(
    sequences=((21, 21), (40, 3), (5, 0)),
    dtype="bfloat16",
    kv_heads=2,
    group=2,
    head_dim=16,
    block_size=4,
    shared=1,
    spare=3,
    tile=16,
    leaf=32,
    rows=(16, 32),
)


def check(kernels: Plain, case: Case = CASE) -> Checker:
    checker = Checker(kernels, sanitize=False)
    checker.check(case)
    return checker


def with_axis(axis: str) -> Case:
    return Case(**{name: getattr(CASE, name) for name in Case.__slots__} | {"axes": (axis,)})


@pytest.mark.parametrize("seed", range(40))
def test_right_kernels_pass(seed: int) -> None:
    choose = random.Random(seed).randrange
    check(Plain(), draw(choose, tuple(AXES), budget=12))


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_compares_something(axis: str) -> None:
    counts = check(Plain(), with_axis(axis)).counts
    assert counts.compared == {axis: counts.compared[axis]}
    assert counts.compared[axis] >= 3 * 4
    assert counts.row_heads == 24 * 4


def nudge(out: torch.Tensor) -> None:
    """The least change there is: one bit of one element."""
    out.view(torch.int32)[-1, 0, 0] += 1


LIES: dict[str, Any] = {
    "schedule": lambda out, step, how, cache: nudge(out) if how.schedule == "split" else None,
    "rows": lambda out, step, how, cache: nudge(out) if how.rows[0] > 16 else None,
    "order": lambda out, step, how, cache: nudge(out) if how.shuffle is not None else None,
    "placement": lambda out, step, how, cache: nudge(out) if cache.keys.shape[0] > 20 else None,
    "batch": lambda out, step, how, cache: nudge(out) if len(step.lengths) == 1 else None,
    "chunks": lambda out, step, how, cache: nudge(out) if len(step.lengths) > 3 else None,
    "padding": lambda out, step, how, cache: nudge(out) if how.padded else None,
    "copies": lambda out, step, how, cache: nudge(out) if cache.keys.shape[0] > 20 else None,
}


@pytest.mark.parametrize("axis", LIES)
def test_one_bit_is_seen_along_every_axis(axis: str) -> None:
    with pytest.raises(Equivalence, match="have other bits"):
        check(Plain(LIES[axis]), with_axis(axis))


def test_one_bit_is_seen_in_a_second_run() -> None:
    runs = []

    def lie(out: torch.Tensor, *_: Any) -> None:
        runs.append(out)
        if len(runs) == 2:
            nudge(out)

    with pytest.raises(Equivalence, match="with a second run"):
        check(Plain(lie), with_axis("repeat"))


def test_what_unused_slots_hold_must_not_show() -> None:
    def lie(out: torch.Tensor, step: Step, how: How, cache: Cache) -> None:
        spare = cache.keys.view(torch.uint8).flatten(1)
        if (spare == 0x3C).all(1).any():
            nudge(out)

    with pytest.raises(Bounds, match="unused slots full of 0x3C"):
        check(Plain(lie), with_axis("poison"))


def off_by(part: float) -> Any:
    return lambda out, *_: out[20, 0].mul_(1 + part)


@pytest.mark.parametrize(("dtype", "part"), [("float32", 1e-6), ("float16", 4e-3), ("bfloat16", 3e-2)])
def test_an_error_beyond_the_dtypes_own_is_seen(dtype: str, part: float) -> None:
    case = Case(**{name: getattr(CASE, name) for name in Case.__slots__} | {"dtype": dtype})
    check(Plain(off_by(part / 100)), case)
    with pytest.raises(Equivalence, match="times the error that"):
        check(Plain(off_by(part)), case)


def test_nan_and_rows_that_nobody_wrote_are_told_apart() -> None:
    def infinite(out: torch.Tensor, *_: Any) -> None:
        out[3, 1, 2] = float("inf")

    def unwritten(out: torch.Tensor, *_: Any) -> None:
        out[3, 1].view(torch.int32).fill_(_UNWRITTEN)

    with pytest.raises(Bounds, match="row 3, head 1, dim 2 is inf"):
        check(Plain(infinite))
    with pytest.raises(Equivalence, match="row 3, head 1 of the output was not written"):
        check(Plain(unwritten))


def test_whatever_else_is_written_is_seen() -> None:
    def into_the_cache(out: torch.Tensor, step: Step, how: How, cache: Cache) -> None:
        cache.values.view(torch.uint8)[-1] = 0

    def beyond_the_output(out: torch.Tensor, *_: Any) -> None:
        memory = torch.empty(0, dtype=torch.float32).set_(out.untyped_storage())
        memory[out.storage_offset() + out.numel()] = 1.0

    with pytest.raises(Bounds, match="changed the cache"):
        check(Plain(into_the_cache))
    with pytest.raises(Bounds, match="outside its output"):
        check(Plain(beyond_the_output))


class Misstoring(Plain):
    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong = wrong

    def store(
        self, keys: torch.Tensor, values: torch.Tensor, cache: Cache, slots: Any, *rest: Any, **more: Any
    ) -> None:
        slots = list(slots)
        if self.wrong == "padding written":
            slots[slots.index(-1)] = cache.keys.shape[0] * cache.keys.shape[2] - 1
        elif self.wrong == "one row lost":
            slots[0] = -1
        elif self.wrong == "planes swapped":
            keys, values = values, keys
        super().store(keys, values, cache, slots, *rest, **more)


@pytest.mark.parametrize(
    ("wrong", "kind"), [("padding written", Bounds), ("one row lost", Equivalence), ("planes swapped", Equivalence)]
)
def test_storing_is_exact(wrong: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="storing"):
        check(Misstoring(wrong), Case(sequences=((9, 2),), block_size=4, spare=2, seed=4))


class Miscopying(Plain):
    def copy(self, cache: Cache, pairs: Any, watch: Any) -> None:
        super().copy(cache, [(destination, source) for source, destination in pairs], watch)


def test_copying_is_exact() -> None:
    with pytest.raises((Equivalence, Bounds), match="copying"):
        check(Miscopying(), with_axis("copies"))


def test_kernels_that_raise_have_crashed() -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("by nothing")

    with pytest.raises(Crash, match="the kernels ended in ZeroDivisionError: by nothing"):
        check(Plain(fail))


def test_a_case_that_is_not_supported_is_counted_and_not_checked() -> None:
    counts = check(Plain(refuses="no such head dim")).counts
    assert (counts.cases, counts.skipped) == (0, {"no such head dim": 1})


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_seen_in_right_kernels(dtype: str) -> None:
    poison_is_seen(Plain(), dtype)


def test_kernels_that_hide_poison_are_called_blind() -> None:
    def hide(out: torch.Tensor, *_: Any) -> None:
        out.nan_to_num_(0.0)

    with pytest.raises(Blind, match="does not show"):
        poison_is_seen(Plain(hide), "bfloat16")


class Partial(Plain):
    """Has no copies, and runs no batch of one sequence."""

    limits: Mapping[str, tuple[Any, ...]] = {"head_dim": (32,)}

    def copy(self, cache: Cache, pairs: Any, watch: Any) -> None:
        raise Unsupported("no copies")

    def attend(self, queries: torch.Tensor, cache: Cache, step: Step, *rest: Any) -> None:
        if len(step.lengths) == 1:
            raise Unsupported("no single sequence")
        super().attend(queries, cache, step, *rest)


def test_what_is_not_supported_is_skipped_and_the_rest_is_checked() -> None:
    checker = check(Partial(), replace(CASE, axes=("copies", "repeat", "batch")))
    assert checker.counts.skipped == {"copies: no copies": 1, "batch: no single sequence": 1}
    assert checker.counts.compared["repeat"] == 24 * 4
    assert checker.counts.off == {"head_dim 16": 1}
    assert checker.counts.cases == 1
    checker.check(replace(CASE, sequences=((4, 4),)))
    assert checker.counts.skipped["no single sequence"] == 1
    assert checker.counts.cases == 1


def test_a_survey_gives_every_verdict_by_itself() -> None:
    def lie(out: torch.Tensor, step: Step, how: How, cache: Cache) -> None:
        if how.schedule == "split":
            nudge(out)

    verdicts = Checker(Plain(lie), sanitize=False).survey(replace(CASE, axes=("schedule", "placement", "batch")))
    assert list(verdicts) == ["run", "oracle", "schedule", "placement", "batch"]
    assert verdicts["run"] is verdicts["oracle"] is verdicts["placement"] is None
    assert isinstance(verdicts["schedule"], Equivalence)
    assert isinstance(verdicts["batch"], Equivalence)
    assert "copies" not in Checker(Partial(), sanitize=False).survey(replace(CASE, axes=("copies",)))

    def wrong(out: torch.Tensor, *_: object) -> None:
        out.mul_(2.0)

    verdicts = Checker(Plain(wrong), sanitize=False).survey(replace(CASE, axes=("repeat",)))
    assert isinstance(verdicts["oracle"], Equivalence)
    assert verdicts["repeat"] is None


def test_arithmetic_that_kernels_state_widens_the_bound_and_no_more() -> None:
    """Values are alike: ours cancel the weights' rounding there, an unrounded denominator does not."""
    torch.manual_seed(0)
    exacts = [exact(torch.randn(2, 1, 8), torch.randn(9, 1, 8), torch.ones(9, 1, 8), scale=1.0)]
    (ours,) = tolerance(exacts, torch.bfloat16)
    (theirs,) = tolerance(exacts, torch.bfloat16, {"unrounded denominator"})
    assert (ours < theirs).all()
    assert (theirs <= ours + 4.001 * 2.0**-8).all()
    (ours,) = tolerance(exacts, torch.float32)
    (theirs,) = tolerance(exacts, torch.float32, {"float32 sums"})
    assert (ours < theirs).all()
    assert (theirs < 1e-4).all()
