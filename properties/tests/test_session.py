"""The session: what it applies, skips and refuses, what it compares when, whom it charges, and how it drains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reference
from kvcore.state import inside
from properties import laws as own
from properties.coverage import unchecked
from properties.laws import Bookkeeping, Growing, Internals, Padding
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
    Operation,
    Reset,
    Truncate,
)
from properties.session import Outcome, Session
from properties.target import Capability, Found, Inspection, StepView
from properties.targets import kvcore as adapter
from properties.targets.kvcore import KvcoreTarget
from reference import PROPERTIES, Policy, Violation

from .support import PROMPT, SALT, TOUR, admit, charged, ctrl_c, done, drive, session_of, stumbling

ALL = frozenset(Capability)


def without(*capabilities: Capability) -> type[KvcoreTarget]:
    """kvcore, said to be able to do less."""
    return type("Lacking", (KvcoreTarget,), {"capabilities": ALL - set(capabilities)})


# ---- tolerance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        Append("nobody", (1,)),
        Append("nobody", (-5,)),
        Fill("nobody", 0, (1,)),
        Dispatch(1, (("nobody", 1),)),
        Truncate("nobody", 1),
        Fork("nobody", "child"),
        Free("nobody"),
    ],
    ids=repr,
)
def test_an_unknown_request_is_applied_and_refused_alike(operation: Operation) -> None:
    session = session_of()
    assert session.apply(operation) == ("refused", "UnknownRequest")
    assert session.refused == {"UnknownRequest": 1}
    assert (session.applied, session.kinds, session.skipped) == (1, {operation.op: 1}, {})


ONE = (Allocate("a", (1, 2)), Allocate("b", (1, 2)), Dispatch(1, (("a", 2),)), Dispatch(2, (("b", 2),)))


@pytest.mark.parametrize(
    ("before", "operation", "kind"),
    [
        ((), Lookup(()), "InvalidTokens"),
        ((), Allocate("a", ("x",)), "InvalidTokens"),
        ((), Allocate("a", (-5,)), "InvalidTokens"),
        ((), Allocate("a", (UNKNOWN,)), "InvalidTokens"),
        (ONE, Allocate("a", (2**31,)), "InvalidTokens"),
        (ONE, Allocate("a", (1,)), "DuplicateRequest"),
        ((), Allocate("a", (1,) * 33), "NeverFits"),
        (ONE, Allocate("c", (1,) * 28), "OutOfBlocks"),
        (ONE, Append("a", (0.5,)), "InvalidTokens"),
        (ONE, Append("a", ()), "InvalidTokens"),
        (ONE, Append("a", (1,) * 31), "NeverFits"),
        (ONE, Append("a", (1,) * 30), "OutOfBlocks"),
        (ONE, Fill("a", 0, (UNKNOWN,)), "InvalidTokens"),
        (ONE, Fill("a", 0, (1,)), "InvalidFill"),
        (ONE, Fill("a", -1, (1,)), "InvalidFill"),
        (ONE, Dispatch(3, ()), "EmptyDispatch"),
        (ONE, Dispatch(3, (("a", 1),)), "InvalidCount"),
        (ONE, Dispatch(3, (("a", 0),)), "InvalidCount"),
        ((Allocate("a", (1, 2)),), Dispatch(1, (("a", 1), ("a", 1))), "RepeatedRequest"),
        (ONE, Complete(2), "OutOfOrder"),
        ((*ONE, Complete(1)), Complete(1), "AlreadyCompleted"),
        (ONE, Truncate("a", 1), "InvalidLength"),
        (ONE, Truncate("a", 3), "InvalidLength"),
        (ONE, Fork("a", "c"), "NotComputed"),
        (ONE, Fork("a", "b"), "DuplicateRequest"),
        (
            (*admit("a", (1,), 1), Append("a", (UNKNOWN,)), Dispatch(2, (("a", 1),)), Complete(2)),
            Fork("a", "c"),
            "NotNamed",
        ),
        ((Lookup((1, 2), (), "m"),), Allocate("a", (1, 3), (), "m"), "MatchMismatch"),
        ((Lookup((1, 2), (), "m"),), Allocate("a", (1, 2), SALT, "m"), "MatchMismatch"),
    ],
    ids=repr,
)
def test_what_is_invalid_is_refused_with_its_own_error(
    before: tuple[Operation, ...], operation: Operation, kind: str
) -> None:
    session = done(session_of(), *before)
    state = session.target.canonical()
    assert session.apply(operation) == ("refused", kind)
    assert session.target.canonical() == state
    session.drain()


def test_a_step_that_there_is_not_is_skipped_and_said() -> None:
    session = session_of()
    assert session.apply(Complete(7)) == ("skipped", "there is no such step")
    assert session.apply(Complete(8)) == ("skipped", "there is no such step")
    assert session.skipped == {"there is no such step": 2}
    assert (session.applied, session.kinds, session.refused) == (0, {}, {})


def test_a_step_of_a_refused_dispatch_is_no_step() -> None:
    session = session_of()
    assert session.apply(Dispatch(1, (("nobody", 1),))).status == "refused"
    assert session.apply(Complete(1)) == ("skipped", "there is no such step")


def test_a_step_number_that_exists_already_is_skipped_and_said() -> None:
    session = done(session_of(), Allocate("a", (1, 2, 3)), Dispatch(1, (("a", 1),)))
    before = session.target.inspect().lengths
    assert session.apply(Dispatch(1, (("a", 1),))) == ("skipped", "step 1 exists already")
    done(session, Complete(1))
    assert session.apply(Dispatch(1, (("a", 1),))) == ("skipped", "step 1 exists already")
    assert session.skipped == {"step 1 exists already": 2}
    assert before["a"][1] == session.target.inspect().lengths["a"][1] == 1
    done(session, Dispatch(2, (("a", 2),)), Complete(2))


def test_a_run_with_a_line_removed_still_means_something() -> None:
    for missing in range(len(TOUR)):
        session = session_of()
        drive(session, *TOUR[:missing], *TOUR[missing + 1 :])
        session.drain()


@pytest.mark.parametrize("seed", range(20))
def test_operations_drawn_blindly_are_judged_and_drained(seed: int) -> None:
    session = session_of(num_blocks=5, block_size=2, hash_bits=seed % 3, reuse=("last_block", "last_token")[seed % 2])
    statuses = Counter(outcome.status for outcome in drive(session, *stumbling(seed, 50)))
    assert statuses["done"] and statuses["refused"]
    session.drain()


def test_an_unknown_match_is_no_match() -> None:
    session = done(session_of(), Allocate("a", (1, 2), (), "never made"))
    assert session.judge.events["allocated with an earlier match"] == 0


def test_an_old_match_is_verified_again() -> None:
    session = done(session_of(), *admit("a", PROMPT, 1), Lookup(PROMPT, (), "m"), Free("a"), Reset())
    done(session, Allocate("b", PROMPT, (), "m"))
    assert session.judge.events["allocated with an earlier match"] == 1
    assert session.judge.sequences["b"].computed == 0


# ---- capabilities ----------------------------------------------------------------------------------------------------

SWITCHED_OFF: dict[Capability, Callable[[Operation], bool]] = {
    Capability.LOOKUP: lambda operation: isinstance(operation, Lookup),
    Capability.FILL: lambda operation: (
        isinstance(operation, Fill) or (isinstance(operation, Append) and UNKNOWN in operation.tokens)
    ),
    Capability.TRUNCATE: lambda operation: isinstance(operation, Truncate),
    Capability.FORK: lambda operation: isinstance(operation, Fork),
    Capability.RESET: lambda operation: isinstance(operation, Reset),
    Capability.NAMESPACES: lambda operation: isinstance(operation, Lookup | Allocate) and bool(operation.namespace),
    Capability.OVERLAP: lambda operation: operation == Dispatch(2, (("a", 2),)),
    Capability.REFUSES: lambda operation: operation is TOUR[-1],
}
"""What is skipped in the tour. The other capabilities switch no operation off."""


@pytest.mark.parametrize("capability", Capability, ids=lambda capability: capability.name)
def test_a_capability_that_is_lacking_switches_off_exactly_its_operations(capability: Capability) -> None:
    session = session_of(without(capability))
    off = SWITCHED_OFF.get(capability, lambda operation: False)
    reason = f"no capability {capability.name}"
    outcomes = drive(session, *TOUR)
    skipped = [operation for operation, outcome in zip(TOUR, outcomes, strict=True) if outcome.detail == reason]
    assert skipped == [operation for operation in TOUR if off(operation)]
    assert session.skipped.get(reason, 0) == len(skipped)
    # Else only what names a step whose dispatch was skipped, or refused since its request was skipped.
    # A match that cannot be passed on is said; the request itself is allocated.
    assert set(session.skipped) <= {reason, "there is no such step", "a match not passed on: no capability MATCH"}
    session.drain()


@pytest.mark.parametrize(
    ("capability", "method"),
    [
        (Capability.LOOKUP, "lookup"),
        (Capability.FILL, "fill"),
        (Capability.TRUNCATE, "truncate"),
        (Capability.FORK, "fork"),
        (Capability.RESET, "reset"),
        (Capability.INSPECT, "counts"),
        (Capability.INSPECT, "states"),
        (Capability.INSPECT, "inspect"),
        (Capability.INSPECT, "contents"),
        (Capability.CHECK, "check"),
        (Capability.CLONE, "clone"),
        (Capability.CLONE, "same_step"),
        (Capability.CLONE, "canonical"),
    ],
)
def test_a_method_that_a_target_does_not_have_is_never_called(capability: Capability, method: str) -> None:
    def absent(*_: Any) -> None:
        raise NotImplementedError(method)

    target = type("Lacking", (KvcoreTarget,), {"capabilities": ALL - {capability}, method: absent})
    session = session_of(target)
    drive(session, *TOUR)
    session.drain()


def test_without_namespaces_the_default_one_still_works() -> None:
    session = session_of(without(Capability.NAMESPACES))
    assert session.apply(Allocate("a", (1,), SALT)) == ("skipped", "no capability NAMESPACES")
    assert session.apply(Lookup((1,), SALT)) == ("skipped", "no capability NAMESPACES")
    done(session, Allocate("a", (1,)), Lookup((1,)))


def test_without_overlap_one_step_at_a_time_still_works() -> None:
    session = done(session_of(without(Capability.OVERLAP)), Allocate("a", (1, 2)), Dispatch(1, (("a", 1),)))
    assert session.apply(Dispatch(2, (("a", 1),))) == ("skipped", "no capability OVERLAP")
    done(session, Complete(1), Dispatch(2, (("a", 1),)), Complete(2))


def test_without_match_the_target_is_given_none() -> None:
    given = []

    class Watching(KvcoreTarget):
        capabilities = ALL - {Capability.MATCH}

        def allocate(self, request: str, tokens: Any, namespace: Any, handle: Any) -> int:
            given.append(handle)
            return super().allocate(request, tokens, namespace, handle)

    session = done(session_of(Watching), Lookup((1, 2), (), "m"), Allocate("a", (1, 3), (), "m"))
    assert given == [None]
    assert session.judge.events["allocated with an earlier match"] == 0


def test_without_batch_a_step_shows_nothing_but_handle_and_copies() -> None:
    class Plain(KvcoreTarget):
        capabilities = ALL - {Capability.BATCH}

        def dispatch(self, work: Any) -> StepView:
            view = super().dispatch(work)
            return StepView(view.handle, view.copies)

    session = session_of(Plain)
    drive(session, *TOUR)
    session.drain()
    assert session.judge.events["copy-on-write"] == 1


def forged_arrays(view: StepView, **wrong: Any) -> StepView:
    arrays = view.arrays()
    copies = wrong.pop("copies", view.copies)
    return StepView(view.handle, copies, lambda: replace(arrays, **wrong))


class WrongArrays(KvcoreTarget):
    def dispatch(self, work: Any) -> StepView:
        return forged_arrays(super().dispatch(work), positions=[99])


def test_arrays_of_a_target_that_has_none_are_not_judged() -> None:
    class Modest(WrongArrays):
        capabilities = ALL - {Capability.BATCH}

    operations = (Allocate("a", (1,)), Dispatch(1, (("a", 1),)))
    done(session_of(Modest), *operations)
    assert charged(session_of(WrongArrays), *operations).id == "MAPPING"


def test_without_inspection_or_check_the_laws_that_need_them_are_left_out() -> None:
    def laws(session: Session) -> list[type]:
        return [type(law) for law in session.laws]

    assert laws(session_of()) == [Bookkeeping, Internals, own.Counting, Growing, Padding]
    assert laws(session_of(without(Capability.INSPECT))) == [Internals, own.Counting, Growing, Padding]
    assert laws(session_of(without(Capability.CHECK))) == [Bookkeeping, own.Counting, Growing, Padding]
    assert laws(session_of(without(Capability.CHECK, Capability.INSPECT))) == [own.Counting, Growing, Padding]
    assert laws(session_of(without(Capability.COUNTERS, Capability.FOOTPRINT))) == [Bookkeeping, Internals, Padding]
    assert laws(session_of(without(Capability.PADDING))) == [Bookkeeping, Internals, own.Counting, Growing]
    assert laws(session_of(outside=True)) == [Padding]


def test_what_is_not_checked_is_said_with_the_reason_in_the_order_of_harm() -> None:
    policy = Policy(8, 4)
    inexact = replace(policy, exact=False)
    assert list(unchecked(ALL, policy)) == ["BOUNDS", "EQUIVALENCE"]
    assert unchecked(ALL, policy, kernels=True) == {}
    assert unchecked(ALL, inexact, kernels=True) == {"EXACT": "the order of blocks is not predicted"}
    dropping = unchecked(ALL, replace(inexact, complete=False), kernels=True)
    assert list(dropping) == ["COMPLETENESS", "EVICTION", "EXACT"]
    windowed = Policy(8, 4, reserved=frozenset({0}), admission="step", windows=(4,))
    assert list(unchecked(ALL, windowed, kernels=True)) == ["EVICTION"]
    nothing = unchecked(frozenset(), inexact)
    assert list(nothing) == [name for name in PROPERTIES if name in nothing]
    assert nothing["ISOLATION"] == "the target has no capability NAMESPACES: namespaces"
    outside = unchecked(session_of(outside=True).capabilities, policy)
    inside = ["OWNERSHIP", "REFERENCES", "CONSERVATION", "INTERNAL", "COUNTERS", "GROWTH"]
    assert list(outside) == ["BOUNDS", "EQUIVALENCE", *inside]
    # Whatever a target lacks, the harm itself is looked for.
    assert not {"FRESHNESS", "HISTORY", "EXCLUSIVE", "PUBLISH", "COMPLETENESS", "ADMISSION"} & set(nothing)


# ---- outside, exact --------------------------------------------------------------------------------------------------


class Miscounting(KvcoreTarget):
    """Its bookkeeping is right and what it shows of it is not."""

    def counts(self) -> tuple[int, int, int]:
        free, cached, active = super().counts()
        return free - 1, cached, active + 1

    def check(self) -> None:
        raise RuntimeError("broken")


def test_judged_from_the_outside_what_a_core_shows_of_itself_does_not_matter() -> None:
    assert charged(session_of(Miscounting), Allocate("a", (1,))).id == "CONSERVATION"
    session = session_of(Miscounting, outside=True)
    drive(session, *TOUR)
    session.drain()
    inside = {Capability.INSPECT, Capability.CONTENTS, Capability.CHECK, Capability.COUNTERS, Capability.FOOTPRINT}
    assert session.capabilities == ALL - inside


class Backwards(KvcoreTarget):
    """Takes the free blocks from the other end: another policy, and a sound one."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        inside(self.manager).pool.free.reverse()


def test_without_prediction_another_order_of_blocks_is_no_violation() -> None:
    assert charged(session_of(Backwards), TOUR[1]).id == "EXACT"
    session = session_of(Backwards, exact=False)
    assert session.judge.blocks.predictor is None
    drive(session, *TOUR)
    session.drain()


def test_without_prediction_every_other_rule_of_the_policy_is_kept() -> None:
    class Reserving(KvcoreTarget):
        def __init__(self, configuration: Configuration) -> None:
            super().__init__(configuration)
            self.policy = Policy(8, 4, frozenset({0}), caching=False, reuse="last_token", exact=True)

    policy = session_of(Reserving, exact=False).judge.policy
    assert policy == replace(Reserving(Configuration()).policy, exact=False)


def test_a_target_that_cannot_be_predicted_is_not_predicted() -> None:
    class Free(Backwards):
        def __init__(self, configuration: Configuration) -> None:
            super().__init__(configuration)
            self.policy = replace(self.policy, exact=False)

    session = session_of(Free)
    assert session.judge.blocks.predictor is None
    drive(session, *TOUR)
    session.drain()


# ---- who is charged --------------------------------------------------------------------------------------------------


class Forging(KvcoreTarget):
    """Tells these tables in place of its own."""

    forged: dict[str, list[int]] = {}  # noqa: RUF012
    extra: dict[str, Any] = {}  # noqa: RUF012

    def table(self, request: str) -> list[int]:
        return list(self.forged[request]) if request in self.forged else super().table(request)

    def dispatch(self, work: Any) -> StepView:
        return forged_arrays(super().dispatch(work), **self.extra)


def forging(extra: dict[str, Any] | None = None, **forged: list[int]) -> type[KvcoreTarget]:
    return type("Forger", (Forging,), {"forged": forged, "extra": extra or {}})


@pytest.mark.parametrize(
    ("target", "operations", "first", "also"),
    [
        (  # a held block, which is not the predicted one either
            forging(b=[0]),
            (Allocate("a", (1,)), Allocate("b", (2,))),
            "EXCLUSIVE",
            {"EXACT"},
        ),
        (  # a held block and one that does not exist
            forging(b=[9, 0]),
            (Allocate("a", (1,)), Allocate("b", (2, 2, 2, 2, 2))),
            "EXCLUSIVE",
            {"EXACT", "MAPPING"},
        ),
        (  # no copy, and so the tokens before are not there
            forging({"copies": ()}),
            (*admit("a", (1,), 1), Fork("a", "b"), Append("b", (2,)), Dispatch(2, (("b", 1),))),
            "FRESHNESS",
            {"ALIASING"},
        ),
        (  # copies that nothing asked for, in wrong arrays
            forging({"copies": ((0, 5),), "positions": [7]}),
            (Allocate("a", (1,)), Dispatch(1, (("a", 1),))),
            "EXCLUSIVE",
            {"MAPPING"},
        ),
    ],
    ids=["EXCLUSIVE EXACT", "EXCLUSIVE MAPPING EXACT", "FRESHNESS ALIASING", "EXCLUSIVE MAPPING"],
)
def test_the_charge_goes_to_the_first_in_the_order_of_harm(
    target: type[KvcoreTarget], operations: tuple[Operation, ...], first: str, also: set[str]
) -> None:
    session = session_of(target)
    violation = charged(session, *operations)
    assert violation.id == first
    found = [finding.id for finding in session.judge.findings]
    assert also < set(found)
    ranks = [PROPERTIES[name].rank for name in found]
    assert violation.rank == min(ranks)
    # The order of finding is not what decides: in one case at least the first found is not the charged one.
    assert violation in session.judge.findings


def test_the_first_found_is_not_charged_if_something_worse_was_found_later() -> None:
    session = session_of(forging({"copies": ()}))
    violation = charged(session, *admit("a", (1,), 1), Fork("a", "b"), Append("b", (2,)), Dispatch(2, (("b", 1),)))
    assert [finding.id for finding in session.judge.findings] == ["ALIASING", "FRESHNESS"]
    assert violation.id == "FRESHNESS"


def test_what_was_admitted_without_room_is_charged_with_the_harm_that_it_did() -> None:
    class Overbooking(KvcoreTarget):
        def allocate(self, request: str, tokens: Any, namespace: Any, handle: Any) -> int:
            try:
                return super().allocate(request, tokens, namespace, handle)
            except self.refusals:
                return 0

        def table(self, request: str) -> list[int]:
            return super().table(request) if request in inside(self.manager).sequences else [0]

    session = session_of(Overbooking, num_blocks=1)
    assert charged(session, Allocate("a", (1,)), Allocate("b", (2,))).id == "EXCLUSIVE"
    assert "ADMISSION" in {finding.id for finding in session.judge.findings}


# ---- when everything is compared -------------------------------------------------------------------------------------


class Counting(KvcoreTarget):
    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.asked: Counter[str] = Counter()

    def inspect(self) -> Inspection:
        self.asked["walk"] += 1
        return super().inspect()

    def contents(self) -> Any:
        self.asked["contents"] += 1
        return super().contents()

    def check(self) -> None:
        self.asked["check"] += 1
        super().check()


def asked(walk: int, contents: int, check: int, operations: int) -> list[Counter[str]]:
    """How often each was asked, after each of so many lookups."""
    session = Session(Counting(Configuration()), walk_every=walk, contents_every=contents, check_every=check)
    seen = []
    for _ in range(operations):
        done(session, Lookup((1,)))
        seen.append(session.target.asked.copy())
    return seen


def test_walks_happen_at_intervals() -> None:
    seen = asked(4, 8, 12, 24)
    assert [counts["walk"] for counts in seen] == [n // 4 for n in range(1, 25)]
    assert [counts["contents"] for counts in seen] == [n // 8 for n in range(1, 25)]
    assert [counts["check"] for counts in seen] == [n // 12 for n in range(1, 25)]


def test_every_operation_is_walked_where_that_is_asked_for() -> None:
    assert asked(1, 1, 1, 5)[-1] == {"walk": 5, "contents": 5, "check": 5}


def test_intervals_between_walks_are_not_shorter_for_what_is_dearer() -> None:
    assert asked(5, 7, 11, 30)[-1] == {"walk": 6, "contents": 3, "check": 2}


def test_the_default_intervals_are_32_128_and_256() -> None:
    session = Session(Counting(Configuration()))
    done(session, *[Lookup((1,))] * 256)
    assert session.target.asked == {"walk": 8, "contents": 2, "check": 1}


def test_each_refusal_is_followed_by_a_walk() -> None:
    session = Session(Counting(Configuration()), walk_every=100)
    for number in range(1, 4):
        session.apply(Free("nobody"))
        assert session.target.asked["walk"] == number
    session.apply(Complete(1))
    assert session.target.asked["walk"] == 3, "what is skipped has touched nothing"


def test_what_the_walk_finds_of_the_past_is_found_at_the_next_interval() -> None:
    session = Session(KvcoreTarget(Configuration()), walk_every=3)
    done(session, Lookup((1,)))
    inside(session.target.manager).pool.references[5] = 1
    done(session, Lookup((1,)))
    with pytest.raises(reference.References):
        session.apply(Lookup((1,)))


def refusing(spoil: Callable[[KvcoreTarget], Any]) -> type[KvcoreTarget]:
    """kvcore that changes something whenever it refuses an allocation."""

    class Spoiling(KvcoreTarget):
        def allocate(self, request: str, tokens: Any, namespace: Any, handle: Any) -> int:
            try:
                return super().allocate(request, tokens, namespace, handle)
            except self.refusals:
                spoil(self)
                raise

    return Spoiling


SPOILT: dict[str, tuple[str, Callable[[KvcoreTarget], Any]]] = {
    "a block is lost from the free ones": ("CONSERVATION", lambda target: inside(target.manager).pool.free.popleft()),
    "a block is free twice": ("CONSERVATION", lambda target: inside(target.manager).pool.free.append(7)),
    "a free block is pinned": ("REFERENCES", lambda target: inside(target.manager).pool.references.__setitem__(7, 1)),
    "a hit stays pinned": ("REFERENCES", lambda target: inside(target.manager).pool.pin((0,))),
    "a published block is forgotten": ("OWNERSHIP", lambda target: inside(target.manager).pool.index.remove((0,))),
    "a half admitted request stays": (
        "CONSERVATION",
        lambda target: inside(target.manager).sequences.__setitem__("half", inside(target.manager).sequences["a"]),
    ),
    "the other request has lost its table": (
        "MAPPING",
        lambda target: inside(target.manager).sequences["a"].table.reverse(),
    ),
    "the other request has lost a count": (
        "ROLLBACK",
        lambda target: setattr(inside(target.manager).sequences["a"], "computed", 4),
    ),
    "the free blocks are in another order": ("EXACT", lambda target: inside(target.manager).pool.free.rotate()),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_target_that_changes_something_when_it_refuses_is_caught(how: str) -> None:
    expected, spoil = SPOILT[how]
    session = session_of(refusing(spoil), every=100)
    assert charged(session, *admit("a", PROMPT, 1), Allocate("b", (1,) * 40)).id == expected


def test_a_block_lost_at_a_refusal_is_missed_also_where_no_queue_is_shown() -> None:
    class Queueless(refusing(lambda target: inside(target.manager).pool.free.popleft())):  # type: ignore[misc]
        def inspect(self) -> Inspection:
            return replace(super().inspect(), free=None, cached=None)

    session = session_of(Queueless)
    assert charged(session, *admit("a", PROMPT, 1), Allocate("b", (1,) * 40)).id == "CONSERVATION"


# ---- crashes and wrong refusals --------------------------------------------------------------------------------------

METHODS = {
    "lookup": Lookup(PROMPT),
    "allocate": Allocate("b", PROMPT),
    "append": Append("a", (1,)),
    "fill": Fill("a", 6, (1,)),
    "dispatch": Dispatch(3, (("a", 1),)),
    "complete": Complete(2),
    "truncate": Truncate("a", 6),
    "fork": Fork("a", "c"),
    "free": Free("a"),
    "reset": Reset(),
}

# "a" has a placeholder at position 6 that step 2 carries.
READY = (*admit("a", PROMPT, 1), Append("a", (UNKNOWN, 8)), Dispatch(2, (("a", 1),)))


def failing(method: str, error: BaseException) -> type[KvcoreTarget]:
    """kvcore whose method raises, once `target.fails` is set."""

    def act(self: Any, *values: Any) -> Any:
        if getattr(self, "fails", False):
            raise error
        return getattr(KvcoreTarget, method)(self, *values)

    act.__name__ = method
    return type("Failing", (KvcoreTarget,), {method: act})


def broken(method: str, error: BaseException) -> Session:
    session = done(session_of(failing(method, error), every=100), *READY)
    session.target.fails = True
    return session


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", [IndexError("list index"), AssertionError("x"), RecursionError()], ids=repr)
def test_an_exception_that_is_no_refusal_is_a_crash(method: str, error: Exception) -> None:
    with pytest.raises(reference.Crash) as caught:
        broken(method, error).apply(METHODS[method])
    assert caught.value.message.startswith(f"{method} ended in {type(error).__name__}: {error}")
    assert f"{Path(__file__).name}:" in caught.value.message, "where in the target's code"
    assert type(error).__name__ in caught.value.traceback
    assert caught.value.__cause__ is error


def test_an_operation_in_which_the_core_finds_itself_corrupted_is_a_crash() -> None:
    error = adapter.kvcore.Corrupted("clause", "torn")
    with pytest.raises(reference.Crash, match="append ended in Corrupted"):
        broken("append", error).apply(METHODS["append"])


@pytest.mark.parametrize("method", ["table", "states", "counts"])
def test_an_exception_while_a_target_shows_what_it_chose_is_a_crash(method: str) -> None:
    with pytest.raises(reference.Crash):
        broken(method, KeyError("a")).apply(METHODS["append"])


@pytest.mark.parametrize("method", ["inspect", "contents"])
def test_an_exception_while_everything_is_compared_is_a_crash(method: str) -> None:
    session = broken(method, KeyError("a"))
    with pytest.raises(reference.Crash):
        drive(session, *[Reset()] * 200)  # until the histories are due


def test_an_interrupt_passes() -> None:
    with ctrl_c(heard=True), pytest.raises(KeyboardInterrupt):
        broken("append", KeyboardInterrupt()).apply(METHODS["append"])


class Naming(KvcoreTarget):
    """Names every refusal alike."""

    named = "OutOfBlocks"

    def kind(self, error: Exception) -> str:
        return self.named


def naming(named: str, *lacking: Capability) -> type[KvcoreTarget]:
    return type("Named", (Naming,), {"named": named, "capabilities": ALL - set(lacking)})


@pytest.mark.parametrize(
    ("named", "operation", "expected", "says"),
    [
        ("UnknownRequest", Append("a", (-5,)), "ERRORS", "refused with UnknownRequest"),
        ("InvalidTokens", Free("nobody"), "ERRORS", "UnknownRequest is due"),
        ("OutOfBlocks", Allocate("b", (1,) * 33), "ADMISSION", "NeverFits is due"),
        ("NeverFits", Allocate("b", (1,) * 32), "ADMISSION", "OutOfBlocks is due"),
        ("InvalidTokens", Allocate("b", (1,) * 32), "ADMISSION", "OutOfBlocks is due"),
        ("OutOfBlocks", Append("a", (-5,)), "ADMISSION", "InvalidTokens is due"),
        ("NeverFits", Allocate("a", (1,)), "ADMISSION", "DuplicateRequest is due"),
    ],
)
def test_a_refusal_of_the_wrong_kind_is_accused(named: str, operation: Operation, expected: str, says: str) -> None:
    violation = charged(session_of(naming(named)), Allocate("a", PROMPT), operation)
    assert violation.id == expected
    assert says in violation.message


@pytest.mark.parametrize(
    "operation", [Append("a", (-5,)), Free("nobody"), Allocate("a", (1,)), Dispatch(1, ())], ids=repr
)
def test_a_target_without_errors_may_refuse_with_any_kind(operation: Operation) -> None:
    session = done(session_of(naming("Refused", Capability.ERRORS)), Allocate("a", PROMPT))
    assert session.apply(operation) == ("refused", "Refused")
    assert session.refused == {"Refused": 1}


@pytest.mark.parametrize("named", ["Refused", "NeverFits"])
def test_a_target_without_errors_must_still_tell_when_there_is_no_room(named: str) -> None:
    session = session_of(naming(named, Capability.ERRORS))
    assert charged(session, Allocate("a", PROMPT), Allocate("b", (1,) * 32)).id == "ADMISSION"


REFUSED = {
    "OutOfBlocks": "ADMISSION",
    "NeverFits": "ADMISSION",
    "InvalidTokens": "ERRORS",
    "UnknownRequest": "ERRORS",
    "Refused": "ERRORS",
}


@pytest.mark.parametrize("lacking", [(), (Capability.ERRORS,)], ids=["with ERRORS", "without ERRORS"])
@pytest.mark.parametrize("named", REFUSED)
def test_a_valid_operation_that_is_refused_is_accused(named: str, lacking: tuple[Capability, ...]) -> None:
    class Refusing(naming(named, *lacking)):  # type: ignore[misc]
        def append(self, request: str, tokens: Any) -> None:
            raise self.refusals[0]("no")

    assert charged(session_of(Refusing), Allocate("a", PROMPT), Append("a", (1,))).id == REFUSED[named]


def test_a_reset_that_is_refused_is_accused() -> None:
    class Refusing(KvcoreTarget):
        def reset(self) -> None:
            raise self.refusals[0]("not now")

    assert charged(session_of(Refusing), Reset()).id == "ERRORS"


ACCEPTED = {
    "lookup": (Lookup((-5,)), "ERRORS"),
    "allocate": (Allocate("a", (1,)), "ERRORS"),
    "append": (Append("a", (-5,)), "ERRORS"),
    "fill": (Fill("a", 0, (1,)), "ERRORS"),
    "dispatch": (Dispatch(9, (("a", 99),)), "ERRORS"),
    "complete": (Complete(1), "ERRORS"),
    "truncate": (Truncate("a", 99), "ERRORS"),
    "fork": (Fork("a", "a"), "ERRORS"),
    "free": (Free("nobody"), "RELEASE"),
}


@pytest.mark.parametrize("lacking", [(), (Capability.ERRORS,)], ids=["with ERRORS", "without ERRORS"])
@pytest.mark.parametrize("method", ACCEPTED)
def test_an_invalid_operation_that_is_accepted_is_accused(method: str, lacking: tuple[Capability, ...]) -> None:
    def accept(self: Any, *values: Any) -> Any:
        try:
            return getattr(KvcoreTarget, method)(self, *values)
        except self.refusals:
            return {"lookup": Found(0), "allocate": 0, "dispatch": StepView(None)}.get(method)

    target = type("Accepting", (KvcoreTarget,), {method: accept, "capabilities": ALL - set(lacking)})
    operation, expected = ACCEPTED[method]
    assert charged(session_of(target), *READY, operation).id == expected


# ---- drain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"reuse": "last_token"}, {"caching": False}, {"num_blocks": 7, "block_size": 1}]
)
def test_a_drain_frees_and_completes_everything_and_admits_the_whole_pool_twice(options: dict[str, Any]) -> None:
    session = session_of(**options)
    done(session, Allocate("a", (1, 2, 3)), Allocate("b", (1, 2)), Dispatch(3, (("a", 2),)), Dispatch(4, (("b", 1),)))
    applied: list[Operation] = []

    def act(operation: Operation) -> Outcome:
        applied.append(operation)
        outcome = session.apply(operation)
        assert outcome.status == "done"
        return outcome

    session.drain(act)
    size = session.judge.policy.num_blocks * session.judge.policy.block_size
    assert applied[:4] == [Free("a"), Free("b"), Complete(3), Complete(4)]
    cold, warm = applied[4:8], applied[8:]
    assert [operation.op for operation in cold] == ["allocate", "dispatch", "complete", "free"]
    assert [operation.op for operation in warm] == ["allocate", "dispatch", "complete", "free"]
    assert isinstance(cold[0], Allocate) and isinstance(warm[0], Allocate)
    assert len(cold[0].tokens) == size
    assert cold[0].tokens == warm[0].tokens
    assert isinstance(cold[1], Dispatch) and isinstance(warm[1], Dispatch)
    assert cold[1].work[0][1] == size
    block_size = session.judge.policy.block_size
    left = {"last_block": block_size, "last_token": 1}[options.get("reuse", "last_block")]
    assert warm[1].work[0][1] == (left if options.get("caching", True) else size), "a warm repeat hits"
    assert session.judge.sequences == {} and session.judge.blocks.available == session.judge.policy.num_blocks
    assert session.target.counts()[2] == 0


def test_a_drained_session_can_go_on_and_be_drained_again() -> None:
    session = done(session_of(), *admit("a", PROMPT, 1))
    session.drain()
    done(session, *admit("a", PROMPT, 100))
    session.drain()


def test_a_large_pool_is_drained_too() -> None:
    done(session_of(num_blocks=300, block_size=16), *admit("a", PROMPT, 1)).drain()


def test_the_drain_walks_even_where_nothing_was_applied() -> None:
    session = Session(Counting(Configuration()))
    inside(session.target.manager).pool.references[3] = 1
    with pytest.raises(reference.References):
        session.drain()


class Leaking(KvcoreTarget):
    """One block does not come back from `free`; its bookkeeping says that somebody holds it."""

    def free(self, request: str) -> None:
        block = self.table(request)[0]
        super().free(request)
        inside(self.manager).pool.pin((block,))


def test_a_leak_is_seen_at_once_by_its_reference() -> None:
    assert charged(session_of(Leaking), Allocate("a", (1,)), Free("a")).id == "REFERENCES"


def test_a_leak_is_seen_from_the_outside_when_the_whole_pool_is_asked_for() -> None:
    session = done(session_of(Leaking, outside=True), Allocate("a", (1,)), Free("a"), Allocate("b", (1,)), Free("b"))
    with pytest.raises(reference.Admission, match="refused with OutOfBlocks"):
        session.drain()


def test_a_block_that_is_not_back_when_all_is_drained_is_a_violation_of_release() -> None:
    class Queueless(KvcoreTarget):
        def inspect(self) -> Inspection:
            return replace(super().inspect(), free=None, cached=None)

    session = done(session_of(Queueless, every=100), *admit("a", PROMPT, 1), Free("a"))
    inside(session.target.manager).pool.free.popleft()
    with pytest.raises(reference.Release, match="the core counts 6 free, 1 cached, 1 active"):
        session.drain()


def test_a_drain_whose_operations_are_lost_leaves_blocks_held() -> None:
    session = done(session_of(), Allocate("a", PROMPT))
    with pytest.raises(reference.Release, match="all is freed and completed, and 2 blocks are still held"):
        session.drain(lambda operation: None)


def test_a_warm_repeat_that_does_not_hit_is_a_violation() -> None:
    class Forgetful(KvcoreTarget):
        def __init__(self, configuration: Configuration) -> None:
            super().__init__(replace(configuration, caching=False))
            self.policy = replace(self.policy, caching=True)

    session = session_of(Forgetful, outside=True)
    with pytest.raises(reference.Completeness):
        session.drain()


# ---- counts ----------------------------------------------------------------------------------------------------------


def test_what_was_applied_refused_and_skipped_is_counted() -> None:
    session = session_of(without(Capability.RESET))
    outcomes = drive(
        session,
        Allocate("a", PROMPT),
        Allocate("a", PROMPT),
        Allocate("b", (-5,)),
        Allocate("b", (-6,)),
        Dispatch(1, (("a", 6),)),
        Dispatch(1, (("a", 6),)),
        Complete(1),
        Complete(2),
        Reset(),
        Reset(),
        Free("a"),
        Free("a"),
    )
    assert [outcome.status for outcome in outcomes] == [
        *("done", "refused", "refused", "refused", "done", "skipped"),
        *("done", "skipped", "skipped", "skipped", "done", "refused"),
    ]
    assert session.applied == 8
    assert session.kinds == {"allocate": 4, "dispatch": 1, "complete": 1, "free": 2}
    assert session.refused == {"DuplicateRequest": 1, "InvalidTokens": 2, "UnknownRequest": 1}
    assert session.skipped == {"step 1 exists already": 1, "there is no such step": 1, "no capability RESET": 2}


def test_an_outcome_says_status_and_detail() -> None:
    session = session_of()
    outcome = session.apply(Free("a"))
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.detail) == ("refused", "UnknownRequest")
    assert session.apply(Reset()) == Outcome("done", "")


def test_the_operation_that_breaks_something_is_not_counted() -> None:
    session = session_of(failing("append", ZeroDivisionError()))
    done(session, Allocate("a", (1,)))
    session.target.fails = True
    with pytest.raises(Violation):
        session.apply(Append("a", (1,)))
    assert (session.applied, session.kinds) == (1, {"allocate": 1})
