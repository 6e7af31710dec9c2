"""vLLM issue 51902: a decode row's bits changed when an unrelated prefill in its batch grew from 9 to 10 tokens.

That kernel chose the width of its tiles by the batch's longest chunk, in batch-invariant mode too. Here is the same
pair, made harder: chunks are cut where no tile is, the decode is split, and programs hold other numbers of rows.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from properties.attention.cases import Case
from properties.attention.checks import Checker, Piece
from properties.attention.kernels import How, Kernels
from properties.attention.world import World
from reference import Equivalence

TILE, LEAF = 16, 32
DECODE, PREFILL = 0, 1
CONTEXTS = {"several leaves": 4 * LEAF + 7, "whole leaves": 3 * LEAF}
BEFORE = 37
"""Tokens of the other sequence that were computed earlier: its prefill begins within a tile."""
LENGTHS = (8, 9, 10)
"""Of its prefill. With 4 heads in a group and programs of 16 rows, more than 8 tokens go to the lane of many rows."""
TILINGS = ((16, 32), (32, 64))
SCHEDULES = ("mixed", "split")
"""The decode is split in both."""


class Pair:
    """A sequence of `context` tokens that decodes, and another one that prefills."""

    def __init__(self, kernels: Kernels, dtype: str, context: int) -> None:
        case = Case(
            sequences=((context, 1), (BEFORE + max(LENGTHS), max(LENGTHS))),
            dtype=dtype,
            kv_heads=1,
            group=4,
            head_dim=32,
            block_size=5,
            filler="stale",
            seed=51902,
        )
        self.checker = Checker(kernels, sanitize=False)
        self.world = World(case)
        self.placement = self.world.place(0)
        self.arena = self.world.arena(self.placement.num_blocks)
        # As a scheduler without rules for cuts would write them.
        for spans in zip(
            ((0, 13), (13, 50), (50, context - 1), (context - 1, context)),
            ((0, 0), (0, 21), (21, BEFORE), (BEFORE, BEFORE + max(LENGTHS))),
            strict=True,
        ):
            self.checker.store(self.world, self.arena, self.placement, spans)

    def run(self, length: int | None, rows: tuple[int, ...], schedule: str) -> list[torch.Tensor]:
        """The bits of the decode row and of `length` rows of the prefill; None: the decode row is alone."""
        pieces = [Piece(DECODE, 0, 1), *([] if length is None else [Piece(PREFILL, 0, length)])]
        how = How(schedule, rows, tile=TILE, leaf=LEAF)
        outputs = self.checker.attend(self.world, self.arena, self.placement, pieces, how)
        return [output.contiguous().view(torch.int32) for output in outputs]


def compare(kernels: Kernels, dtype: str, context: int) -> int:
    """How many row-heads were compared. Raises Equivalence."""
    pair = Pair(kernels, dtype, context)
    (alone,) = pair.run(None, TILINGS[0], "direct")
    _, longest = pair.run(max(LENGTHS), TILINGS[0], "direct")
    runs = {place: pair.run(place[2], *place[:2]) for place in itertools.product(TILINGS, SCHEDULES, LENGTHS)}
    compared = 0
    for number, what in enumerate(("decode row", "prefill")):
        for (rows, schedule, length), outputs in runs.items():
            found, wanted = outputs[number], (alone, longest[:length])[number]
            compared += found.shape[0] * found.shape[1]
            if not torch.equal(found, wanted):
                raise Equivalence(
                    f"the {what} has other bits where the prefill has {length} tokens, in programs of {rows} rows, "
                    f"schedule {schedule}"
                )
    return compared


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_decode_row_keeps_its_bits_beside_a_prefill_that_grows(kernels: Kernels, dtype: str, context: str) -> None:
    row_heads = len(TILINGS) * len(SCHEDULES) * sum(1 + length for length in LENGTHS) * 4
    assert compare(kernels, dtype, CONTEXTS[context]) == row_heads
