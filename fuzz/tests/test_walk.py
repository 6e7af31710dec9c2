"""The swarm walk: a function of its seed, with its streams apart, and it reaches every hard state."""

from __future__ import annotations

from fuzz.engines.engine import Assignment
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.engines.walk import Limits, Walk, draw_configuration
from fuzz.runs.perform import perform
from fuzz.runs.values import Judging
from properties.operations import OPERATIONS, REUSES, Configuration
from properties.target import Capability, Target
from properties.targets import load
from properties.targets.kvcore import KvcoreTarget

ALL = frozenset(Capability)


def episode(seed: str) -> tuple[Configuration, list[object], list[object], object]:
    walk = Walk(seed, ALL)
    run = perform(load("kvcore"), walk.configuration, walk.operations)
    assert run.violation is None
    return walk.configuration, list(run.operations), list(run.outcomes), run.session.target.canonical()


def test_an_episode_is_a_function_of_its_seed() -> None:
    for number in range(20):
        assert episode(f"same/{number}") == episode(f"same/{number}")
    assert episode("same/0")[1] != episode("same/1")[1]


def test_the_configuration_has_a_stream_of_its_own() -> None:
    without = ALL - {Capability.FORK, Capability.FILL}
    assert all(Walk(f"{n}", ALL).configuration == Walk(f"{n}", without).configuration for n in range(50))


def test_limits_bound_what_is_drawn() -> None:
    for number in range(200):
        walk = Walk(str(number), ALL, Limits(max_blocks=5, max_block_size=4, long_episodes=False))
        assert walk.configuration.num_blocks <= 5
        assert walk.configuration.block_size <= 4
        assert walk.length < 200


def test_configurations_cover_the_ranges() -> None:
    from random import Random

    random = Random("configurations")
    drawn = [draw_configuration(random, ALL, Limits()) for _ in range(800)]
    assert {c.block_size for c in drawn} == {1, 2, 3, 4, 5, 8, 16}
    assert {c.hash_bits for c in drawn} >= {0, 1, 4, 128}
    assert min(c.num_blocks for c in drawn) == 1
    assert max(c.num_blocks for c in drawn) == 64
    assert {c.caching for c in drawn} == {True, False}
    assert {c.reuse for c in drawn} == {"last_block", "last_token"}


def test_every_hard_state_and_every_kind_of_operation_is_reached_without_a_violation() -> None:
    tally = Tally()
    found, following = WalkEngine().hunt(
        Assignment(load("kvcore"), "kvcore", "reach", Judging(), tally, clock=lambda: 0.0, deadline=1.0, count=1200)
    )
    assert found is None
    assert following == 1200
    assert tally.operations > 100_000
    policies = [KvcoreTarget(Configuration(reuse=reuse)).policy for reuse in REUSES]
    assert tally.ledger.missing(ALL, policies) == []
    assert set(tally.kinds) == set(OPERATIONS)
    refusals = set(tally.refused)
    assert refusals >= {
        "AlreadyCompleted",
        "DuplicateRequest",
        "EmptyDispatch",
        "InvalidCount",
        "InvalidFill",
        "InvalidLength",
        "InvalidTokens",
        "MatchMismatch",
        "NeverFits",
        "NotComputed",
        "NotNamed",
        "OutOfBlocks",
        "OutOfOrder",
        "RepeatedRequest",
        "UnknownRequest",
    }


def test_a_walk_may_be_held_to_some_kinds() -> None:
    kinds = frozenset({"append", "free"})
    for number in range(30):
        walk = Walk(str(number), ALL, kinds=kinds)
        run = perform(load("kvcore"), walk.configuration, walk.operations)
        assert {operation.op for operation in run.operations} <= kinds | {"allocate", "dispatch", "complete"}


def test_a_target_that_can_do_little_is_walked_all_the_same() -> None:
    class Plain(KvcoreTarget):
        capabilities = frozenset({Capability.BATCH})

    def make(configuration: Configuration) -> Target:
        return Plain(configuration)

    tally = Tally()
    found, _ = WalkEngine().hunt(
        Assignment(make, "plain", "1", Judging(), tally, clock=lambda: 0.0, deadline=1.0, count=60)
    )
    assert found is None
    assert set(tally.kinds) == {"allocate", "append", "dispatch", "complete", "free"}
    assert tally.skipped == {}
