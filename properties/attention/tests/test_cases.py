"""Cases are data: they survive JSON, are drawn alike everywhere, and reach the edges where the faults are."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from properties.attention.cases import Case, MalformedCase, draw, fit
from properties.attention.kernels import AXES
from properties.attention.world import World

DRAWN = [draw(random.Random(seed).randrange, tuple(AXES)) for seed in range(600)]


def test_a_case_survives_json() -> None:
    for case in DRAWN:
        assert Case.from_json(case.to_json()) == case
    assert Case().to_json() == "{}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "not JSON"),
        ("[]", "a case is an object"),
        ('{"heads": 2}', r"has no fields \['heads'\]"),
        ('{"sequences": [[1]]}', r"\[context, rows\] pairs"),
        ('{"sequences": [[3, 4]]}', "3 tokens cannot have 4 query rows"),
        ('{"axes": 3}', "rows and axes are lists"),
    ],
)
def test_what_is_no_case_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(MalformedCase, match=complaint):
        Case.from_json(text)


def test_the_first_choices_are_the_simplest_case() -> None:
    case = draw(lambda count: 0, tuple(AXES))
    assert case == Case(axes=case.axes, sequences=((1, 1),), rows=(16, 16), spare=1)


def test_the_hard_places_are_drawn() -> None:
    seen: Counter[str] = Counter()
    for case in DRAWN:
        queries = case.rows[1] // case.group
        for context, rows in case.sequences:
            seen["no rows"] += rows == 0
            seen["empty context"] += context == 0
            seen["decode"] += rows == 1 < context
            seen["whole prompt"] += rows == context > 1
            seen["chunk"] += 1 < rows < context
            seen["several programs"] += rows > queries
            seen["several leaves"] += context > case.leaf
            seen["a leaf exactly"] += context == case.leaf
            seen["one beyond a leaf"] += context == case.leaf + 1
            seen["one below a leaf"] += context == case.leaf - 1
            seen["partial last block"] += context % case.block_size != 0
            seen["window across leaves"] += case.window is not None and case.leaf < case.window < context
            seen["window within a tile"] += case.window is not None and case.window < case.tile < context
        seen["blocks not dividing tiles"] += case.tile % case.block_size != 0
        seen["a block wider than a tile"] += case.block_size > case.tile
        seen["odd group"] += case.group in (3, 5, 6, 7)
        seen["padded head dim"] += case.head_dim & (case.head_dim - 1) != 0
        seen["shared prefix"] += (
            case.shared > 0 and sum(context // case.block_size > 0 for context, _ in case.sequences) > 1
        )
        seen["fp8 by bytes"] += case.dtype == "float8_e4m3" and not case.native_fp8
        seen["no spare block"] += case.spare == 0
    assert not [name for name, count in seen.items() if count < 5], seen
    for name in ("dtype", "values", "layout", "filler", "window", "softcap", "alibi", "fused"):
        assert len({getattr(case, name) for case in DRAWN}) > 1, name
    assert {axis for case in DRAWN for axis in case.axes} == set(AXES)


def test_a_world_is_the_same_every_time_and_its_placement_keeps_the_rules() -> None:
    for case in DRAWN[:60]:
        world, again = World(case), World(case)
        for one, two in zip(
            world.keys + world.values + world.queries, again.keys + again.values + again.queries, strict=True
        ):
            assert one.equal(two)
        placement = world.place(0)
        assert placement == again.place(0)
        owners: dict[int, set[tuple[int, int]]] = {}
        for sequence, table in enumerate(placement.tables):
            context = case.sequences[sequence][0]
            assert len(table) == len(set(table)) == -(-context // case.block_size)
            for logical, block in enumerate(table):
                assert 0 <= block < placement.num_blocks
                owners.setdefault(block, set()).add((sequence, logical))
        for block, who in owners.items():
            # A block in two tables holds the same tokens of a common prefix: the same place in each, and full.
            assert len({logical for _, logical in who}) == 1, block
            if len(who) > 1:
                assert all(logical < case.shared for _, logical in who)


def test_common_prefixes_have_common_values() -> None:
    case = Case(sequences=((9, 1), (12, 1), (3, 1)), block_size=4, shared=2, dtype="float16")
    world = World(case)
    assert world.keys[0][:8].equal(world.keys[1][:8])
    assert not world.keys[0][8:9].equal(world.keys[1][8:9])
    tables = world.place(0).tables
    assert tables[0][:2] == tables[1][:2]
    assert tables[2][0] not in tables[0]


def test_a_case_is_brought_within_limits_and_what_was_changed_is_said() -> None:
    limits = {"head_dim": (32, 64), "alibi": (False,), "query rows": (0, 1), "window": (None, 8)}
    case = Case(sequences=((9, 4), (3, 0)), head_dim=16, alibi=True, window=8, seed=3)
    small, off = fit(case, limits)
    assert small == replace(case, sequences=((9, 1), (3, 0)), head_dim=64, alibi=False)
    assert off == ("head_dim 16", "alibi", "more than 1 query rows")
    assert fit(small, limits) == (small, ())
    assert fit(case, {}) == (case, ())
