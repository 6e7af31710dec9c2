"""Policies: what can be said, and what cannot be said together."""

from __future__ import annotations

import pytest

from reference import Policy


@pytest.mark.parametrize(
    "choice",
    ["reuse", "order", "duplicates", "publish", "admission", "lifetime", "truncates", "leftover"],
    ids=lambda choice: choice,
)
def test_a_choice_that_there_is_not_is_named_with_those_that_there_are(choice: str) -> None:
    with pytest.raises(ValueError, match=rf"Policy\.{choice} is 'sometimes'; it can be '"):
        Policy(8, 4, **{choice: "sometimes"})


def test_the_default_is_kvcore_and_predicts_every_choice() -> None:
    policy = Policy(8, 4)
    assert (policy.admission, policy.publish, policy.lifetime) == ("request", "completion", "steps")
    assert (policy.truncates, policy.leftover, policy.lookahead) == ("tokens", "released", 0)
    assert policy.exact and policy.complete and policy.chunks and not policy.merges


@pytest.mark.parametrize("choice", [{"merges": True}, {"complete": False}], ids=str)
def test_what_cannot_be_predicted_must_not_be_promised(choice: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="say exact=False"):
        Policy(8, 4, **choice)
    assert not Policy(8, 4, exact=False, **choice).exact


DRAFTS = {"admission": "step", "truncates": "placeholders", "leftover": "kept"}


@pytest.mark.parametrize("choice", [{"admission": "request"}, {"truncates": "tokens"}], ids=str)
def test_what_others_may_hold_cannot_be_kept(choice: dict[str, str]) -> None:
    with pytest.raises(
        ValueError, match=r"^Policy\.leftover is 'kept' .* needs admission 'step' and truncates 'placeh"
    ):
        Policy(8, 4, **DRAFTS | choice)


@pytest.mark.parametrize("choice", [{"lookahead": -1}, {"lookahead": 1, "leftover": "released"}], ids=str)
def test_a_lookahead_needs_that_blocks_are_kept(choice: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=r"^Policy\.lookahead is -?1 with leftover '.*'; it is 0, or more with 'kept'$"
    ):
        Policy(8, 4, **DRAFTS | choice)
    assert Policy(8, 4, **DRAFTS, lookahead=2).lookahead == 2


def test_a_refusal_says_all_that_there_is() -> None:
    with pytest.raises(ValueError) as unknown:
        Policy(8, 4, order="newest")
    assert str(unknown.value) == ("Policy.order is 'newest'; it can be 'free_first', 'released', 'unpublished_first'")
    with pytest.raises(ValueError) as promised:
        Policy(8, 4, merges=True)
    assert str(promised.value) == "Policy.exact predicts every choice; with merges, or not complete, say exact=False"
    with pytest.raises(ValueError) as windows:
        Policy(8, 4, windows=(1,))
    assert str(windows.value) == (
        "Policy.windows are (1,); they need admission 'step', reuse 'last_block' and no merges, "
        "each is None or 2 and more, and with one that is not None there is one reserved block"
    )
    with pytest.raises(ValueError) as kept:
        Policy(8, 4, leftover="kept")
    assert str(kept.value) == (
        "Policy.leftover is 'kept' with admission 'request' and truncates 'tokens'; since "
        "others may hold what was published, it needs admission 'step' and truncates 'placeholders'"
    )
