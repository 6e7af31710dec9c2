"""vLLM's and SGLang's kernels under the same checks as ours, what is known to break included.

A few cases each; docs/foreign-kernels.md has the survey. Skipped, saying what to install, where a package is not there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from properties.attention.cases import Case, fit
from properties.attention.checks import Checker, poison_is_seen
from properties.attention.interpret import prepare
from properties.attention.kernels import Cache, How, Spec, Step, Watch, unwatched
from properties.attention.world import World
from properties.targets import UnknownTarget, _kernel_imports, load_kernels, sglang_kernels, vllm_kernels
from reference import Bounds, Equivalence, Violation

COUNTEREXAMPLES = Path(__file__).parents[3] / "docs" / "counterexamples"
VLLM, SGLANG = "properties.targets.vllm_kernels:", "properties.targets.sglang_kernels:"

RAGGED = Case(
    sequences=((37, 5), (50, 1), (16, 16), (3, 0)),
    dtype="bfloat16",
    kv_heads=2,
    group=4,
    head_dim=40,
    block_size=16,
    shared=1,
    layout="slots first",
    filler="stale",
    spare=2,
    fused=True,
    seed=5,
)
DECODE = replace(RAGGED, sequences=((70, 1), (33, 1), (130, 1)))


def checker(name: str, *, sanitize: bool = True) -> Checker:
    prepare()
    try:
        return Checker(load_kernels(name)(), sanitize=sanitize)
    except UnknownTarget as error:
        pytest.skip(str(error))


def verdicts(name: str, case: Case) -> dict[str, Violation | None]:
    return checker(name).survey(case)


# ---- what holds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    "case", [RAGGED, DECODE, replace(RAGGED, window=20, softcap=30.0)], ids=["", "decode", "window"]
)
@pytest.mark.parametrize("name", ["vllm", "sglang", f"{SGLANG}deterministic"])
def test_right_and_within_bounds(name: str, case: Case, dtype: str) -> None:
    checked = checker(name)
    checked.check(replace(case, dtype=dtype))
    assert checked.counts.row_heads == case.row_heads
    assert checked.counts.accesses > 10_000
    assert not checked.counts.skipped


def test_an_fp8_cache_of_vllms() -> None:
    checked = checker("vllm")
    checked.check(replace(RAGGED, dtype="float8_e4m3", kv_heads=1))
    assert 0 < checked.counts.worst["float8_e4m3"] < 1


@pytest.mark.parametrize("name", ["vllm", "sglang"])
@pytest.mark.parametrize("axis", ["placement", "poison", "repeat"])
def test_where_blocks_lie_and_what_else_is_there_moves_no_bit(name: str, axis: str) -> None:
    checked = checker(name)
    checked.check(replace(RAGGED, axes=(axis,)))
    assert checked.counts.compared[axis] >= RAGGED.row_heads


def test_batch_invariant_vllm_keeps_its_bits_in_any_batch_and_chunk() -> None:
    checked = checker(f"{VLLM}batch_invariant")
    checked.check(replace(RAGGED, axes=("batch", "chunks")))
    assert set(checked.counts.compared) == {"batch", "chunks"}


def test_poison_shows_in_these_kernels() -> None:
    for name in ("vllm", "sglang"):
        poison_is_seen(checker(name).kernels, "bfloat16")


# ---- what does not: every claim of docs/foreign-kernels.md can be run again ------------------------------------------


CASES = [path for path in sorted(COUNTEREXAMPLES.glob("*.json")) if "case" in json.loads(path.read_text("utf-8"))]
"""The others are of whole cores."""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_counterexample_still_is_one(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    checked = checker(data["kernels"])
    case = Case.from_json(json.dumps(data["case"]))
    assert fit(case, checked.kernels.limits) == (case, ()), "what is written down is what is run"
    with pytest.raises(Violation) as caught:
        checked.check(case)
    assert caught.value.id == data["property"]
    if data["versions"] in checked.kernels.name:
        assert caught.value.message == data["message"]


def test_there_are_counterexamples_and_the_page_has_each() -> None:
    page = (COUNTEREXAMPLES.parent / "foreign-kernels.md").read_text(encoding="utf-8")
    names = [path.name for path in CASES]
    assert len(names) >= 10
    assert [name for name in names if name not in page] == []


# ---- what would be a fault of the adapter, or planted ----------------------------------------------------------------


class TableOffByOne(vllm_kernels.VllmKernels):
    """Every block table begins one block late."""

    def table(self, step: Step, block_size: int) -> torch.Tensor:
        return torch.roll(super().table(step, block_size), -1, dims=1)


class SlotsOffByOne(sglang_kernels.SglangKernels):
    """Every block table begins one block late."""

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, spec: Spec, how: How, out: torch.Tensor, watch: Watch
    ) -> None:
        tables = step.tables.copy()
        tables[:, :-1] = tables[:, 1:].clip(0)
        super().attend(queries, cache, replace(step, tables=tables), spec, how, out, watch)


@pytest.mark.parametrize("case", [RAGGED, DECODE], ids=["extend", "decode"])
@pytest.mark.parametrize(("name", "planted"), [("vllm", TableOffByOne), ("sglang", SlotsOffByOne)])
def test_a_block_table_off_by_one_is_caught(name: str, planted: Any, case: Case) -> None:
    checker(name)  # skips
    with pytest.raises(Bounds, match=r"of cache slot|nan"):
        Checker(planted()).check(replace(case, filler="zero"))
    with pytest.raises((Bounds, Equivalence)):
        Checker(planted(), sanitize=False).check(replace(case, filler="zero"))


def test_a_program_is_known_by_the_length_that_it_loads() -> None:
    """Both sequences' slots hold valid numbers; each program may read its own alone."""
    checker("vllm")

    class Swapped(vllm_kernels.VllmKernels):
        def table(self, step: Step, block_size: int) -> torch.Tensor:
            return super().table(step, block_size).flip(0)

    case = replace(RAGGED, sequences=((32, 2), (32, 2)), shared=0)
    with pytest.raises(Bounds, match="which works for sequence 0, to whom it is not allowed"):
        Checker(Swapped()).check(case)


@pytest.mark.parametrize(("name", "package"), [("vllm", "vllm"), ("sglang", "sglang")])
def test_the_package_is_left_as_it_was(name: str, package: str) -> None:
    before = {key: module for key, module in sys.modules.items() if key.partition(".")[0] == package}
    checker(name)
    after = {key: module for key, module in sys.modules.items() if key.partition(".")[0] == package}
    assert after == before


@pytest.mark.parametrize(("name", "requirement"), [("vllm", vllm_kernels.TESTED), ("sglang", sglang_kernels.TESTED)])
def test_a_missing_package_is_named_with_what_to_install(
    name: str, requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kernel_imports.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(UnknownTarget, match=f"pip install --no-deps {requirement}"):
        load_kernels(name)


def test_what_kernels_lack_is_switched_off_and_counted() -> None:
    checked = checker("sglang", sanitize=False)
    checked.check(replace(RAGGED, alibi=True, dtype="float8_e4m3", layout="unlike"))
    assert checked.counts.off == {"dtype float8_e4m3": 1, "layout unlike": 1, "alibi": 1}
    checked.check(replace(RAGGED, window=1))
    (reason,) = checked.counts.skipped
    assert "a window of one key" in reason
    assert checked.counts.cases == 1


# ---- the race --------------------------------------------------------------------------------------------------------


class OnlyTheFirst:
    """A kernel of which the first program of each kv head runs."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.kernel[(1, *grid[1:])]


def test_the_two_programs_that_write_a_row_of_vllms_write_other_bits_under_a_window() -> None:
    """Groups of 3: 16 lanes hold 5 queries and a third of the sixth, which the next program computes, too."""
    watched = checker(f"{VLLM}any_group", sanitize=False)
    kernels: Any = watched.kernels
    case = Case(sequences=((40, 8),), group=3, window=3, head_dim=32, block_size=16)
    kernel = kernels.unified.kernel_unified_attention
    different = []
    for seed in range(4):
        world = World(replace(case, seed=seed))
        placement = world.place(0)
        arena = world.arena(placement.num_blocks)
        watched.store(world, arena, placement)
        columns = len(placement.tables[0])
        table = world.table([(placement.tables[0], columns)], columns, placement.num_blocks)
        step = Step(table, [40], [8], [-1] * 8)
        outputs = []
        for which in (kernel, OnlyTheFirst(kernel)):
            kernels.unified.kernel_unified_attention = which
            out = torch.zeros(8, 3, 32)
            kernels.attend(world.packed(world.queries), arena.cache, step, world.spec, How(), out, unwatched)
            outputs.append(out)
        both, first = outputs
        assert torch.equal(both[:5], first[:5])
        assert first[5, 0].any(), "the first program writes the first head of the sixth query"
        assert not first[5, 1:].any()
        different.append(not torch.equal(both[5, 0], first[5, 0]))
    assert any(different)
