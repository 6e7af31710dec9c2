"""Policies: what can be said, and what cannot be said together."""

from __future__ import annotations

import pytest

from reference import Policy


@pytest.mark.parametrize(
    "choice", ["reuse", "order", "duplicates", "publish", "admission", "lifetime"], ids=lambda choice: choice
)
def test_a_choice_that_there_is_not_is_named_with_those_that_there_are(choice: str) -> None:
    with pytest.raises(ValueError, match=rf"Policy\.{choice} is 'sometimes'; it can be '"):
        Policy(8, 4, **{choice: "sometimes"})


def test_the_default_is_kvcore_and_predicts_every_choice() -> None:
    policy = Policy(8, 4)
    assert (policy.admission, policy.publish, policy.lifetime) == ("request", "completion", "steps")
    assert policy.exact and policy.complete and policy.chunks and not policy.merges


@pytest.mark.parametrize("choice", [{"merges": True}, {"complete": False}], ids=str)
def test_what_cannot_be_predicted_must_not_be_promised(choice: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="say exact=False"):
        Policy(8, 4, **choice)
    assert not Policy(8, 4, exact=False, **choice).exact
