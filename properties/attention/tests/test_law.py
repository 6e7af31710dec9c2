"""The law beside the allocator: it follows a session, and sees a wrong block by its numbers alone, and by its tags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from properties.attention.kernels import Cache, Kernels
from properties.attention.law import ROWS, KernelLaw, shape_for
from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fork,
    Free,
    Operation,
    Truncate,
)
from properties.session import Session
from properties.target import StepArrays
from properties.targets import load
from reference import Equivalence, Freshness

from .support import Plain

CONFIGURATION = Configuration(num_blocks=8, block_size=2)


def session_of(
    kernels: Kernels | None = None, configuration: Configuration = CONFIGURATION
) -> tuple[Session, KernelLaw]:
    law = KernelLaw(kernels or Plain(), configuration, sanitize=False)
    return Session(load("kvcore")(configuration), laws=(law,)), law


def done(session: Session, *operations: Operation) -> None:
    for operation in operations:
        assert session.apply(operation).status == "done", operation


LIFE = (
    Allocate("a", (1, 2, 3, 4, 5)),
    Dispatch(1, (("a", 3),)),
    Dispatch(2, (("a", 2),)),
    Complete(1),
    Complete(2),
    Allocate("b", (1, 2, 3, 4, 5)),
    Dispatch(3, (("b", 1),)),
    Complete(3),
    Fork("a", "c"),
    Append("a", (6,)),
    Append("c", (7,)),
    Dispatch(4, (("a", 1), ("c", 1))),
    Complete(4),
    Append("c", (8, 9)),
    Truncate("c", 6),
    Append("c", (8,)),
    Dispatch(5, (("c", 1),)),
    Complete(5),
    Free("a"),
    Free("b"),
    Free("c"),
)


def test_a_life_with_hits_forks_copies_and_truncation_passes() -> None:
    session, law = session_of()
    done(session, *LIFE)
    session.drain()
    assert law.steps > 5
    # "b" computed its last token again, warm, in another batch: its bits are those of "a".
    assert law.compared > sum(len(output) for output in law._outputs.values())


@pytest.mark.parametrize("number", range(12))
def test_every_shape_passes(number: int) -> None:
    configuration = replace(CONFIGURATION, num_blocks=8 + number)
    session, _ = session_of(configuration=configuration)
    done(session, *LIFE)


def test_shapes_cover_every_dtype_and_feature() -> None:
    shapes = [
        shape_for(Configuration(num_blocks=blocks, block_size=size)) for blocks in range(1, 30) for size in range(1, 9)
    ]
    for name, values in (
        ("dtype", {"float32", "float16", "bfloat16", "float8_e4m3"}),
        ("kv_heads", {1, 2}),
        ("group", {1, 2, 3, 5}),
        ("head_dim", {16, 24}),
        ("window", {None, 5, 20}),
        ("softcap", {None, 30.0}),
        ("alibi", {True, False}),
    ):
        assert {getattr(shape, name) for shape in shapes} == values, name


def test_placeholders_are_left_out_and_said() -> None:
    session, _ = session_of()
    done(session, Allocate("a", (1,)))
    outcome = session.apply(Append("a", (UNKNOWN,)))
    assert (outcome.status, outcome.detail) == ("skipped", "no capability FILL")


def after_two(kernels: Kernels | None = None) -> tuple[KernelLaw, Any, StepArrays]:
    """Two requests of three tokens are computed; then "a" dispatches one more. The law's view of that step."""
    session, law = session_of(kernels)
    done(
        session,
        Allocate("a", (1, 2, 3)),
        Allocate("b", (4, 5, 6)),
        Dispatch(1, (("a", 3), ("b", 3))),
        Complete(1),
        Append("a", (7,)),
        Dispatch(2, (("a", 1),)),
    )
    assert session.step is not None
    passage, _, arrays, _ = session.step
    return law, passage, arrays


def test_a_block_of_another_request_is_seen_by_its_tag() -> None:
    law, passage, arrays = after_two()
    wrong = replace(arrays, tables=[[2, *arrays.tables[0][1:]]])
    with pytest.raises(Freshness, match="'a', position 0: the tag of its slot is"):
        law._run(passage, (), wrong)


class Unaudited(Plain):
    def audit(self, tags: torch.Tensor, tables: Any, block_size: int, expected: Any, watch: Any) -> list[int]:
        return [-1 for own in expected for _ in own]


def test_a_block_of_another_request_is_seen_by_its_numbers() -> None:
    law, passage, arrays = after_two(Unaudited())
    wrong = replace(arrays, tables=[[2, *arrays.tables[0][1:]]])
    with pytest.raises(Equivalence, match="over its own history it is"):
        law._run(passage, (), wrong)


def test_a_token_with_other_bits_than_before_is_seen() -> None:
    runs = []

    def lie(out: torch.Tensor, *_: Any) -> None:
        runs.append(out)
        if len(runs) == 3:
            out.view(torch.int32)[-1, 0, 0] += 1

    session, _ = session_of(Plain(lie))
    done(session, *LIFE[:6])
    with pytest.raises(Equivalence, match="'b', position 4: other bits than when the same history was computed before"):
        session.apply(LIFE[6])


def test_what_is_freed_or_evicted_is_full_of_nan_and_what_is_held_is_not() -> None:
    session, law = session_of()
    keys = law.arena.cache.keys

    def poisoned() -> set[int]:
        return {block for block in range(8) if (keys.view(torch.uint8)[block] == 0xFF).all()}

    assert poisoned() == set(range(8))
    done(session, Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 3),)))
    assert poisoned() == {2, 3, 4, 5, 6, 7}
    done(session, Complete(1), Free("a"))
    # Block 0 is cached and keeps its content; block 1 was never full.
    assert poisoned() == {1, 2, 3, 4, 5, 6, 7}
    done(session, Allocate("b", tuple(range(50, 66))))
    assert poisoned() == set(range(8))


def test_long_steps_are_stored_whole_and_attended_at_their_end() -> None:
    attended: list[int] = []

    def note(out: torch.Tensor, *_: Any) -> None:
        attended.append(len(out))

    session, law = session_of(Plain(note), Configuration(num_blocks=16, block_size=4))
    done(session, Allocate("a", tuple(range(40))), Dispatch(1, (("a", 40),)))
    assert attended == [ROWS]
    assert (law.tags != 0).sum() == 40


def test_kernels_that_do_not_support_the_shape_are_not_run() -> None:
    session, law = session_of(Plain(refuses="no"))
    done(session, *LIFE[:5])
    assert (law.steps, law.skipped) == (0, "no")


def test_copies_move_the_tags(kernels: Kernels) -> None:
    """On the real kernels: a fork's copy carries K/V and tags along, and the audit agrees."""
    law = KernelLaw(kernels, CONFIGURATION)
    session = Session(load("kvcore")(CONFIGURATION), laws=(law,))
    done(session, *LIFE)
    assert isinstance(law.arena.cache, Cache)
    assert law.launches.accesses > 0
