"""The contract in a dozen short scenarios: what to read first when a core fails, and what to step through.

Every one goes through the Session, so each checks every property on its way, and then one thing by name.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from properties.moves import Moves, Swarm
from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Fork,
    Free,
    Lookup,
    Namespace,
    Operation,
    Reset,
    Truncate,
)
from properties.session import Outcome, Session
from properties.target import Capability, TargetFactory

Start = Callable[..., Session]


@pytest.fixture
def start(target_factory: TargetFactory) -> Start:
    """Makes a session on a fresh target of 6 blocks of 4, or skips where a capability is missing, or where the core's
    policy is another one than `policy` says."""

    def make(*needs: Capability, policy: dict[str, object] = {}, **values: int) -> Session:  # noqa: B006
        session = Session(target_factory(Configuration(**{"num_blocks": 6, "block_size": 4, **values})))
        for capability in needs:
            if capability not in session.capabilities:
                pytest.skip(f"the core has no capability {capability.name}: {capability.value}")
        for name, wanted in policy.items():
            if (given := getattr(session.judge.policy, name)) != wanted:
                pytest.skip(f"the core's policy is {name} {given!r}, and this is about {wanted!r}")
        return session

    return make


def tokens(session: Session, blocks: int, more: int = 0, first: int = 0) -> tuple[int, ...]:
    """So many blocks of tokens, and `more`."""
    return tuple(range(first, first + blocks * session.judge.policy.block_size + more))


def step(session: Session, number: int, *requests: str) -> None:
    """Dispatch all that is left of `requests`, if anything is, and complete it."""
    left = {name: len(line.tokens) - line.scheduled for name, line in session.judge.sequences.items()}
    work = tuple((name, left[name]) for name in requests if left[name])
    if not work:
        return
    assert session.apply(Dispatch(number, work)).status == "done"
    assert session.apply(Complete(number)).status == "done"


def admit(session: Session, name: str, prompt: tuple[int, ...], space: Namespace = ()) -> int:
    """Allocate, with the step that the request waits for where the policy is so. Returns the hit tokens."""
    assert session.apply(Allocate(name, prompt, space)).status == "done"
    if session.judge.policy.admission == "step":
        step(session, 1000 + session.judge.dispatched, name)
    return session.judge.sequences[name].tables[0].written_from


def is_hit(session: Session, hit: int, prompt: tuple[int, ...]) -> bool:
    """Was all of a resident prompt hit but its last token? A core that need not hit everything (`Policy.complete`) is
    asked for no more than that."""
    due = len(prompt) - 1
    return hit == due if session.judge.policy.complete else hit <= due


def tables(session: Session) -> dict[str, list[int]]:
    return {request: list(session.target.table(request)) for request in session.judge.sequences}


def apply(session: Session, *operations: Operation) -> list[Outcome]:
    return [session.apply(operation) for operation in operations]


def test_a_finished_prompt_is_hit(start: Start) -> None:
    session = start()
    prompt = tokens(session, 2, 1)
    admit(session, "a", prompt)
    first = tables(session)["a"]
    step(session, 1, "a")
    session.apply(Free("a"))
    hit = admit(session, "b", prompt)
    assert is_hit(session, hit, prompt)
    blocks = hit // session.judge.policy.block_size
    assert tables(session)["b"][:blocks] == first[:blocks]
    session.drain()


def test_nothing_is_hit_before_its_step_completes(start: Start) -> None:
    session = start(policy={"publish": "completion"})
    prompt = tokens(session, 1, 1)
    apply(session, Allocate("a", prompt), Allocate("b", prompt))
    if Capability.OVERLAP in session.capabilities and session.judge.policy.admission == "request":
        apply(session, Dispatch(1, (("a", len(prompt)),)), Allocate("c", prompt), Complete(1))
        assert session.judge.sequences["c"].tables[0].written_from == 0
        session.apply(Free("c"))
    step(session, 2, "a", "b")
    assert session.judge.sequences["b"].tables[0].written_from == 0
    assert is_hit(session, admit(session, "d", prompt), prompt)
    session.drain()


def test_what_a_step_publishes_is_hit_in_the_same_step(start: Start) -> None:
    session = start(policy={"publish": "dispatch", "admission": "step", "complete": True})
    prompt = tokens(session, 1, 1)
    apply(session, Allocate("a", prompt), Allocate("b", prompt))
    step(session, 1, "a", "b")
    assert session.judge.sequences["b"].tables[0].written_from == len(prompt) - 1
    session.drain()


def test_live_requests_share_a_prefix(start: Start) -> None:
    session = start()
    prompt = tokens(session, 2, 1)
    admit(session, "a", prompt)
    step(session, 1, "a")
    hit = admit(session, "b", prompt)
    assert is_hit(session, hit, prompt)
    held, blocks = tables(session), hit // session.judge.policy.block_size
    assert held["a"][:blocks] == held["b"][:blocks]
    assert held["a"][2] != held["b"][2]
    apply(session, Free("a"), Append("b", tokens(session, 1)))
    step(session, 2, "b")
    session.drain()


def test_the_last_token_is_always_computed(start: Start) -> None:
    session = start()
    prompt = tokens(session, 2)
    admit(session, "a", prompt)
    step(session, 1, "a")
    session.apply(Allocate("b", prompt))
    assert session.judge.sequences["b"].scheduled < len(prompt)
    step(session, 2, "b")
    session.drain()


def test_a_refused_request_changes_nothing(start: Start) -> None:
    session = start(policy={"admission": "request"})
    capacity = session.judge.blocks.capacity
    session.apply(Allocate("a", tokens(session, capacity - 1)))
    step(session, 1, "a")
    before = tables(session)
    refusals = apply(
        session,
        Allocate("b", tokens(session, 2, first=100)),
        Allocate("c", tokens(session, capacity, 1)),
        Append("a", tokens(session, 1, 1)),
    )
    assert [outcome.status for outcome in refusals] == ["refused"] * 3
    assert tables(session) == before
    assert session.apply(Allocate("d", tokens(session, 1, first=100))).status == "done"
    session.drain()


def test_a_refused_step_changes_nothing(start: Start) -> None:
    session = start(policy={"admission": "step", "lookahead": 0})
    most = session.judge.max_tokens // session.judge.policy.block_size
    admit(session, "a", tokens(session, most - 1))
    before = tables(session)
    prompt = tokens(session, 2, first=100)
    apply(session, Allocate("b", prompt), Allocate("c", tokens(session, 1, first=200)))
    assert session.apply(Dispatch(2, (("b", len(prompt)),))).status == "refused"
    assert tables(session) == {**before, "b": [], "c": []}
    step(session, 3, "c")
    session.drain()


@pytest.mark.parametrize(
    "operation",
    [
        Allocate("a", (1, 2)),
        Allocate("new", ()),
        Allocate("new", (3, -2)),
        Append("nobody", (1,)),
        Append("a", ()),
        Free("nobody"),
        Free("gone"),
        Dispatch(9, ()),
        Dispatch(9, (("a", 1 << 20),)),
        Dispatch(9, (("a", 0),)),
        Dispatch(9, (("a", 1), ("a", 1))),
        Dispatch(9, (("a", 1), ("nobody", 1))),
        Complete(1),
        Complete(3),
        Lookup(()),
        Truncate("a", 1),
        Truncate("a", 1000),
        Fork("a", "busy"),
        Fork("a", "b"),
        Fork("nobody", "b"),
        Fill("a", 0, (1,)),
        Fill("a", 10_000, (1,)),
    ],
    ids=str,
)
def test_an_invalid_operation_is_refused_and_changes_nothing(start: Start, operation: Operation) -> None:
    session = start()
    apply(
        session,
        Allocate("gone", (1,)),
        Dispatch(1, (("gone", 1),)),
        Complete(1),
        Free("gone"),
        Allocate("a", tokens(session, 1, 2)),
        Allocate("busy", (5, 6)),
        Dispatch(2, (("busy", 1),)),
        Dispatch(3, (("busy", 1),)),
    )
    if Capability.OVERLAP not in session.capabilities:
        session.apply(Complete(2))
    before = tables(session)
    outcome = session.apply(operation)
    if outcome.status == "skipped":
        pytest.skip(f"{operation.op}: {outcome.detail}")
    assert outcome.status == "refused"
    assert tables(session) == before
    session.drain()


def test_a_block_is_taken_exactly_at_the_boundary(start: Start) -> None:
    session = start(policy={"lookahead": 0})
    groups = session.judge.policy.groups
    admit(session, "a", tokens(session, 1, -1))
    step(session, 1, "a")
    assert len(tables(session)["a"]) == groups
    for number, blocks in ((2, 1), (3, 2)):
        session.apply(Append("a", (7,)))
        step(session, number, "a")
        assert len(tables(session)["a"]) == blocks * groups
    session.drain()


def test_a_chunked_prefill_is_one_prompt(start: Start) -> None:
    session = start(policy={"chunks": True})
    prompt = tokens(session, 2, 1)
    session.apply(Allocate("a", prompt))
    for number in range(1, len(prompt) + 1):
        apply(session, Dispatch(number, (("a", 1),)), Complete(number))
    assert is_hit(session, admit(session, "b", prompt), prompt)
    session.drain()


def test_the_least_recently_released_is_evicted(start: Start) -> None:
    session = start(policy={"lookahead": 0, "groups": 1})
    capacity = session.judge.blocks.capacity
    size = session.judge.policy.block_size
    for number, name in enumerate(("old", "young"), 1):
        admit(session, name, tokens(session, 1, 1, first=number * 1000))
        step(session, number, name)
    apply(session, Free("old"), Free("young"))
    admit(session, "big", tokens(session, capacity - 1, first=5000))
    assert session.judge.blocks.available == 1
    session.apply(Free("big"))
    assert admit(session, "gone", tokens(session, 1, 1, first=1000)) == 0
    if session.judge.policy.exact and session.judge.policy.order == "free_first":
        assert admit(session, "kept", tokens(session, 1, 1, first=2000)) == size
    session.drain()


def test_what_a_step_uses_is_not_handed_out_before_it_completes(start: Start) -> None:
    session = start(Capability.OVERLAP, policy={"lifetime": "steps"})
    capacity = session.judge.blocks.capacity
    session.apply(Allocate("a", tokens(session, capacity)))
    apply(session, Dispatch(1, (("a", 1),)), Free("a"))
    assert session.apply(Allocate("b", (1,))).status == "refused"
    session.apply(Complete(1))
    assert session.apply(Allocate("b", (1,))).status == "done"
    session.drain()


def test_a_lookup_leaves_no_trace(start: Start) -> None:
    def play(session: Session, lookups: bool) -> list[dict[str, list[int]]]:
        seen = []
        for number, name in enumerate(("a", "b", "c"), 1):
            admit(session, name, tokens(session, 1, 1, first=10 * number))
            step(session, number, name)
            session.apply(Free(name))
            if lookups:
                session.apply(Lookup(tokens(session, 1, 1, first=10)))
        admit(session, "big", tokens(session, 4, first=500))
        seen.append(tables(session))
        session.drain()
        return seen

    # Where the order of blocks is the core's own affair, a lookup may count as a use.
    policy = {"exact": True}
    assert play(start(Capability.LOOKUP, policy=policy), True) == play(start(Capability.LOOKUP, policy=policy), False)


def test_a_match_saves_nothing_but_hashing(start: Start) -> None:
    session = start(Capability.LOOKUP, Capability.MATCH)
    prompt = tokens(session, 2, 1)
    session.apply(Lookup(prompt, match="early"))
    session.apply(Allocate("a", prompt))
    step(session, 1, "a")
    session.apply(Allocate("b", prompt, match="early"))
    assert session.judge.sequences["b"].scheduled == len(prompt) - 1
    assert session.apply(Allocate("c", (*prompt[:-1], 99), match="early")) == Outcome("refused", "MatchMismatch")
    session.drain()


def test_a_namespace_is_a_wall(start: Start) -> None:
    session = start(Capability.NAMESPACES)
    prompt = tokens(session, 1, 1)
    admit(session, "a", prompt)
    step(session, 1, "a")
    for name, space in (("b", (("salt", ""),)), ("c", (("adapter", "s"),)), ("d", (("salt", "s"),))):
        session.apply(Allocate(name, prompt, space))
        step(session, 2 + ord(name), name)
        session.apply(Free(name))
    assert session.judge.events["hit on an active block"] + session.judge.events["hit on a cached block"] == 0
    assert is_hit(session, admit(session, "e", prompt, (("salt", "s"),)), prompt)
    session.drain()


def test_a_fork_copies_before_it_writes(start: Start) -> None:
    session = start(Capability.FORK)
    session.apply(Allocate("a", tokens(session, 1, 1)))
    step(session, 1, "a")
    session.apply(Fork("a", "b"))
    assert tables(session)["a"] == tables(session)["b"]
    apply(session, Append("b", (8,)), Append("a", (9,)))
    held = tables(session)
    assert held["a"][0] == held["b"][0]
    assert held["a"][1] != held["b"][1]
    step(session, 2, "b", "a")
    assert session.judge.events["copy-on-write"] >= 1
    session.drain()


def test_a_rejected_draft_is_never_hit(start: Start) -> None:
    session = start(Capability.TRUNCATE)
    size, drafts = session.judge.policy.block_size, session.judge.policy.truncates == "placeholders"
    if drafts and Capability.FILL not in session.capabilities:
        pytest.skip(f"the core has no capability FILL: {Capability.FILL.value}, and cuts nothing else")
    admit(session, "a", (0,))
    step(session, 1, "a")
    session.apply(Append("a", (UNKNOWN if drafts else 1,) * size))
    step(session, 2, "a")
    assert session.apply(Truncate("a", 1)).status == "done"
    session.apply(Append("a", (1,) * size))  # known now, and not computed
    assert admit(session, "b", (0, *(1,) * size)) == 0
    assert session.apply(Truncate("a", 0)).status != "done"
    step(session, 3, "a", "b")
    session.drain()


def test_a_placeholder_is_no_content(start: Start) -> None:
    session = start(Capability.FILL)
    size = session.judge.policy.block_size
    admit(session, "a", (0,))
    step(session, 1, "a")
    session.apply(Append("a", (UNKNOWN,) * size))
    step(session, 2, "a")
    assert admit(session, "b", (0, *(1,) * size)) == 0
    apply(session, Free("b"), Fill("a", 1, (1,) * size), Append("a", (2,)))
    if session.judge.policy.publish == "dispatch":  # and not before
        step(session, 3, "a")
    assert admit(session, "c", (0, *(1,) * size)) > 0 or not session.judge.policy.complete
    session.drain()


def test_a_reset_forgets(start: Start) -> None:
    session = start(Capability.RESET)
    prompt = tokens(session, 1, 1)
    admit(session, "a", prompt)
    step(session, 1, "a")
    session.apply(Reset())
    assert admit(session, "b", prompt) == 0
    apply(session, Free("a"), Append("b", (1,)))
    step(session, 2, "b")
    session.drain()


def test_without_caching_nothing_is_hit(start: Start) -> None:
    session = start(caching=False)
    if session.judge.policy.caching:
        pytest.skip("the core cannot switch caching off")
    prompt = tokens(session, 1, 1)
    admit(session, "a", prompt)
    step(session, 1, "a")
    session.apply(Free("a"))
    assert admit(session, "b", prompt) == 0
    session.drain()


@pytest.mark.parametrize("hash_bits", [0, 1, 128])
@pytest.mark.parametrize("reuse", ["last_block", "last_token"])
def test_the_same_operations_give_the_same_run(target_factory: TargetFactory, hash_bits: int, reuse: str) -> None:
    """Two fresh targets: the same tables, outcomes and events after each of several hundred operations."""
    if Capability.HASH not in target_factory(Configuration()).capabilities and hash_bits != 128:
        pytest.skip("the core has no capability HASH: the hash's width can be chosen")
    configuration = Configuration(num_blocks=10, block_size=3, hash_bits=hash_bits, reuse=reuse)
    random = Random(f"contract/{hash_bits}/{reuse}")
    first, second = Session(target_factory(configuration)), Session(target_factory(configuration))
    moves = Moves(first, Swarm(lines=6))
    for _ in range(400):
        operation = moves.operation((random.randrange(100), *(random.randrange(100) for _ in range(3))))
        outcome = first.apply(operation)
        assert second.apply(operation) == outcome
        assert tables(second) == tables(first)
    assert dict(second.judge.events) == dict(first.judge.events)
    assert second.target.noticed() == first.target.noticed()
    first.drain()
    second.drain()
