"""What a target has instead of what was asked of it, and what a finding says of that."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.findings.signature import configuration_class, signature_of
from fuzz.runs.believe import as_believed, in_words
from fuzz.runs.values import Counterexample
from properties.operations import Allocate, Configuration
from properties.target import Target
from properties.targets.kvcore import KvcoreTarget

ASKED = Configuration(num_blocks=6, block_size=4, reuse="last_token", caching=False)


def stubborn(configuration: Configuration) -> Target:
    """A core with one block size and one reuse policy, whatever it is asked for."""
    return KvcoreTarget(Configuration(configuration.num_blocks, 2, configuration.hash_bits))


def test_a_finding_has_the_configuration_that_the_target_has() -> None:
    found = as_believed(Counterexample(ASKED, (Allocate("a", (1,)),)), stubborn)
    assert found.configuration == Configuration(num_blocks=6, block_size=2)
    assert found.policy == {}


def test_asking_for_different_things_that_are_ignored_makes_one_signature() -> None:
    asked = (ASKED, Configuration(num_blocks=3, reuse="last_token"), Configuration(num_blocks=9, caching=False))
    told = {
        signature_of(as_believed(Counterexample(one, (), property_id="HISTORY", message="x"), stubborn))
        for one in asked
    }
    assert [one.configuration for one in told] == [configuration_class(Configuration())]


def test_what_a_target_takes_stays_as_asked_and_its_policy_is_told() -> None:
    found = as_believed(Counterexample(ASKED, ()), KvcoreTarget)
    assert found.configuration == ASKED
    assert found.policy["reuse"] == "last_token"
    assert "reuse last_token" in in_words(found.policy)
    assert in_words({})


def moody(configuration: Configuration) -> Target:
    """Another core every time that it is asked for what it has."""
    return KvcoreTarget(Configuration(block_size=configuration.block_size + 1))


def dead(configuration: Configuration) -> Target:
    raise RuntimeError("no core today")


@pytest.mark.parametrize("factory", [moody, dead])
def test_a_finding_stays_replayable_as_it_was_found(factory: Any) -> None:
    assert as_believed(Counterexample(ASKED, ()), factory).configuration.num_blocks == ASKED.num_blocks
    assert as_believed(Counterexample(ASKED, ()), factory).configuration.block_size == ASKED.block_size
