"""The boundary: what a target answers wrongly is said with its adapter, its method, what came and what was expected;
what it raises is said with the place in its code; and neither is ever taken for a failure of the harness."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from properties import boundary
from properties.boundary import ended, made, no_target, noticed, told, users_own, whole
from properties.operations import Allocate, Append, Complete, Configuration, Dispatch, Free, Lookup
from properties.session import Session
from properties.target import Adapter, Capability, Claim, StepView, Target
from properties.targets.kvcore import KvcoreTarget
from reference import Crash, Policy, Violation

from .support import TOUR, Factory, ctrl_c, drive, session_of

# ---- one mistake each ------------------------------------------------------------------------------------------------


def answering(method: str, change: Callable[[Any], Any]) -> type[KvcoreTarget]:
    """kvcore's adapter, whose `method` answers with what `change` makes of the right answer."""

    def answer(self: Any, *values: Any) -> Any:
        return change(getattr(KvcoreTarget, method)(self, *values))

    return type("Mistaken", (KvcoreTarget,), {method: answer})


def with_part(**changes: Any) -> Callable[[Any], Any]:
    return lambda answer: replace(answer, **changes)


def with_arrays(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(view: StepView) -> StepView:
        assert view.arrays is not None
        arrays = view.arrays()
        new = replace(arrays, **{name: change(getattr(arrays, name)) for name, change in changes.items()})
        return replace(view, arrays=lambda: new)

    return changed


def without_last(values: Any) -> Any:
    return values[:-1]


MISTAKES: dict[str, tuple[str, Callable[[Any], Any], tuple[str, ...]]] = {
    "no hits": ("allocate", lambda _: None, ("None", "an int")),
    "float hits": ("allocate", float, ("float 0.0", "an int")),
    "NaN hits": ("allocate", lambda _: float("nan"), ("float nan",)),
    "hits in text": ("allocate", str, ("str '0'",)),
    "a bool for hits": ("allocate", bool, ("False",)),
    "no table": ("table", lambda _: None, ("None", "a list of ints")),
    "a tuple for a table": ("table", tuple, ("tuple (", "a list of ints")),
    "an array for a table": ("table", np.array, ("ndarray", "a list of ints")),
    "a table of Nones": ("table", lambda table: [None] * len(table), ("list [None", "a list of ints")),
    "a table of texts": ("table", lambda table: list(map(str, table)), ("a list of ints",)),
    "a table of tables": ("table", lambda table: [[block] for block in table], ("a list of ints",)),
    "no answer to a lookup": ("lookup", lambda _: None, ("None", "a Found")),
    "a lookup's hits alone": ("lookup", lambda found: found.tokens, ("lookup returned 0", "a Found")),
    "a lookup with float hits": ("lookup", with_part(tokens=0.0), ("float 0.0",)),
    "a lookup with one block": ("lookup", with_part(blocks=5), ("blocks 5",)),
    "no view": ("dispatch", lambda _: None, ("None", "a StepView")),
    "a handle for a view": ("dispatch", lambda view: view.handle, ("a StepView",)),
    "no copies": ("dispatch", with_part(copies=None), ("copies None", "pairs")),
    "copies of one block": ("dispatch", with_part(copies=[0]), ("copies list [0]", "pairs")),
    "copies as lists": ("dispatch", with_part(copies=[[0, 1]]), ("copies list [[0, 1]]", "pairs")),
    "no arrays with BATCH": ("dispatch", with_part(arrays=None), ("arrays None", "BATCH")),
    "arrays that return nothing": ("dispatch", with_part(arrays=lambda: None), ("arrays None", "BATCH")),
    "arrays that are no function": ("dispatch", lambda view: replace(view, arrays=view.arrays()), ("a StepArrays",)),
    "slots as an array": ("dispatch", with_arrays(slots=np.array), ("slots ndarray", "a plain list of ints")),
    "no positions": ("dispatch", with_arrays(positions=lambda _: None), ("positions None",)),
    "tables of Nones": ("dispatch", with_arrays(tables=lambda rows: [None for _ in rows]), ("lists of ints",)),
    "no counts": ("counts", lambda _: None, ("None", "three ints")),
    "two counts": ("counts", without_last, ("tuple (", "three ints")),
    "counts in text": ("counts", lambda counts: tuple(map(str, counts)), ("three ints",)),
    "no states": ("states", lambda _: None, ("None", "reference count")),
    "states without flags": ("states", lambda states: [count for count, _ in states], ("reference count",)),
    "too few states": ("states", without_last, ("was asked for 8 blocks",)),
    "no inspection": ("inspect", lambda _: None, ("None", "an Inspection")),
    "references as an array": (
        "inspect",
        lambda seen: replace(seen, references=np.array(seen.references)),
        ("ndarray",),
    ),
    "too few references": ("inspect", with_part(references=[]), ("0 references", "8 blocks")),
    "no tables": ("inspect", with_part(tables=None), ("tables None",)),
    "lengths without requests": ("inspect", with_part(lengths={"z": (0, 0, 0)}), ("lengths dict",)),
    "a queue of lists": ("inspect", lambda seen: replace(seen, free=[[one] for one in seen.free]), ("free list",)),
    "contents as a list": ("contents", list, ("list", "a dict")),
    "contents without claims": (
        "contents",
        lambda contents: {block: claim.describe() for block, claim in contents.items()},
        ("a Claim",),
    ),
    "claims of lists": (
        "contents",
        lambda contents: {block: Claim(claim.before, [1]) for block, claim in contents.items()},  # type: ignore[arg-type]
        ("a Claim",),
    ),
    "no counters": ("counters", lambda _: None, ("None", "a Counts")),
    "two counters": ("counters", lambda counts: tuple(counts)[:2], ("tuple (", "a Counts")),
    "counters in text": ("counters", lambda counts: tuple(map(str, counts)), ("a Counts of ints",)),
}


def broken(factory: Factory, **options: Any) -> Violation:
    """The violation that a tour through all operations, and the drain phase after it, ends in."""
    session = session_of(factory, **options)
    try:
        drive(session, *TOUR)
        session.drain()
    except Violation as violation:
        return violation
    raise AssertionError("nothing is found")


@pytest.mark.parametrize("every", [1, 8], ids=["compared at once", "compared late"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_answer_is_said_with_adapter_method_what_came_and_what_was_expected(mistake: str, every: int) -> None:
    method, change, texts = MISTAKES[mistake]
    violation = broken(answering(method, change), every=every)
    assert violation.id == "CRASH", violation
    assert violation.message.startswith(f"kvcore: {method}"), violation.message
    for text in texts:
        assert text in violation.message
    assert "\n" not in violation.message


def test_a_wrong_answer_is_told_without_the_size_of_it() -> None:
    """So that one bug has one message, however large the pool is."""
    few, many = (broken(answering("states", dict), num_blocks=blocks) for blocks in (60, 90))
    assert len(few.message) < 200
    assert few.message.replace("60", "N") == many.message.replace("90", "N")


def test_what_is_not_looked_at_is_not_blamed() -> None:
    wrong = answering("inspect", lambda _: None)
    session = session_of(wrong, outside=True)
    drive(session, *TOUR)
    session.drain()


@pytest.mark.parametrize("method", ["allocate", "lookup"])
def test_the_hits_may_be_an_integer_of_numpy(method: str) -> None:
    change = np.int64 if method == "allocate" else lambda found: replace(found, tokens=np.int64(found.tokens))
    session = session_of(answering(method, change))
    drive(session, *TOUR)
    session.drain()


def test_a_table_that_the_core_goes_on_with_is_found() -> None:
    class Kept(KvcoreTarget):
        def __init__(self, configuration: Configuration) -> None:
            super().__init__(configuration)
            self.kept: dict[str, list[int]] = {}

        def table(self, request: str) -> list[int]:
            table = self.kept.setdefault(request, [])
            table[:] = super().table(request)
            return table

    violation = broken(Kept)
    assert violation.id == "CRASH"
    assert "will not change later" in violation.message


def test_a_failure_of_the_harness_is_not_blamed_on_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(session.judge, "after_allocate", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        session.apply(Allocate("a", (1, 2)))


# ---- what a target raises --------------------------------------------------------------------------------------------


def raising(method: str, error: BaseException) -> type[KvcoreTarget]:
    def fail(*_: object) -> Any:
        raise error

    return type("Raising", (KvcoreTarget,), {method: fail})


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), RecursionError(), Mute()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("method", ["append", "table", "counts", "inspect", "contents", "counters", "noticed"])
def test_whatever_a_method_raises_is_a_crash_that_says_which_and_where(method: str, error: BaseException) -> None:
    session = session_of(raising(method, error))

    def tour() -> None:
        drive(session, *TOUR)
        session.noticed()

    with ctrl_c(heard=False), pytest.raises(Crash, match=f"{method} ended in {type(error).__name__}:") as found:
        tour()
    assert "test_boundary.py" in found.value.message
    assert "in fail)" in found.value.message
    assert "in fail\n" in found.value.traceback


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), ValueError("no")], ids=repr)
def test_whatever_the_cores_own_check_raises_is_internal(error: BaseException) -> None:
    with ctrl_c(heard=False):
        assert broken(raising("check", error)).id == "INTERNAL"


@pytest.mark.parametrize("error", [SystemExit(0), AttributeError("kind")], ids=repr)
def test_a_refusal_whose_kind_cannot_be_told_is_a_crash(error: BaseException) -> None:
    session = session_of(raising("kind", error), num_blocks=1)
    with pytest.raises(Crash, match="allocate ended in"):
        session.apply(Allocate("a", tuple(range(99))))


def test_a_method_without_a_name_is_told_by_the_name_that_it_is_called_by() -> None:
    class Partial(KvcoreTarget):
        def __init__(self, configuration: Configuration) -> None:
            super().__init__(configuration)
            self.table = functools.partial(self._fail, "table")  # type: ignore[method-assign]

        def _fail(self, *_: object) -> Any:
            raise KeyError(3)

    assert broken(Partial).message.startswith("table ended in KeyError: 3 (at test_boundary.py:")


def test_the_place_of_an_exception_is_the_targets_and_never_the_harness() -> None:
    def call() -> None:
        raise ValueError("here")

    with pytest.raises(ValueError, match="here") as deeper:
        call()
    assert "in call)" in ended("allocate", deeper.value).message
    with pytest.raises(ValueError, match="there") as caught:
        raise ValueError("there")
    assert ended("allocate", caught.value).message == "allocate ended in ValueError: there"


@pytest.mark.parametrize("text", ["\ud800", "\x1b[31mred", "x" * 10_000, "two\nlines"])
def test_an_exceptions_text_can_be_kept_and_shown(text: str) -> None:
    kept = told(ValueError(text))
    kept.encode()
    assert "\x1b" not in kept
    assert len(kept) < 2_100


def test_ctrl_c_is_the_users_where_this_process_hears_it() -> None:
    with ctrl_c(heard=True):
        assert users_own(KeyboardInterrupt())
        assert not users_own(SystemExit())
    with ctrl_c(heard=False):
        assert not users_own(KeyboardInterrupt())


# ---- making a target -------------------------------------------------------------------------------------------------


class Least(Adapter):
    """What every target has."""

    def __init__(self) -> None:
        self.policy = Policy(4, 4)

    def _pass(self, *_: object) -> Any: ...

    allocate = append = dispatch = complete = free = table = _pass


def lacking(**attributes: Any) -> Any:
    return type("Lacking", (Least,), attributes)()


class NoPolicy(Least):
    def __init__(self) -> None: ...


class Unreadable(Least):
    @property
    def policy(self) -> Policy:  # type: ignore[override]
        raise RuntimeError("not yet")

    def __init__(self) -> None: ...


class Impossible(Least):
    capabilities = frozenset({Capability.MATCH})

    def __init__(self) -> None:
        self.policy = Policy(4, 4, admission="step")


class Nameless:
    def __init__(self) -> None:
        self.policy, self.capabilities, self.refusals = Policy(4, 4), frozenset[Capability](), (ValueError,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "forget to return"),
        ("{}", "a str whose policy"),
        (NoPolicy(), "policy is None"),
        (Unreadable(), "RuntimeError: not yet"),
        (Nameless(), "without a name"),
        (lacking(capabilities=["INSPECT"]), "capabilities are list"),
        (lacking(capabilities=frozenset({"INSPECT"})), "capabilities are frozenset"),
        (lacking(refusals=ValueError), "refusals are"),
        (lacking(table=None), "without table"),
        (lacking(capabilities=frozenset({Capability.INSPECT})), "claims INSPECT and does not write counts, states"),
        (lacking(capabilities=frozenset({Capability.CLONE})), "claims CLONE and does not write clone"),
        (Impossible(), "there can be no MATCH"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_something_is_no_target_is_said(value: Any, text: str) -> None:
    assert text in no_target(value)


def test_what_has_all_that_it_claims_is_a_target() -> None:
    assert no_target(Least()) == ""
    assert no_target(KvcoreTarget(Configuration())) == ""


@pytest.mark.parametrize("factory", [lambda _: None, lambda _: Unreadable(), lambda _: 1 // 0, lambda _: exit(0)])
def test_a_target_that_cannot_be_made_crashes_at_its_first_operation(
    factory: Callable[[Configuration], Target],
) -> None:
    """In the middle of a run that is a finding like any other: it has a configuration, and it replays."""
    session = Session(made(factory, Configuration(num_blocks=3, block_size=2)))
    assert (session.judge.policy.num_blocks, session.judge.policy.block_size) == (3, 2)
    assert session.noticed() == {}
    for operation in (Allocate("a", (1,)), Free("a")):
        with pytest.raises(Crash, match=r"the factory (returned|ended in)"):
            session.apply(operation)


# ---- the checks themselves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, True, 1.0, float("nan"), "1", [1]])
def test_what_is_no_integer_is_refused(value: Any) -> None:
    with pytest.raises(Crash):
        whole(Least(), "allocate", value, boundary.TOKENS)


@pytest.mark.parametrize("value", [None, [1], {"event": "often"}])
def test_what_a_target_has_noticed_are_counts(value: Any) -> None:
    with pytest.raises(Crash, match="noticed returned"):
        noticed(Least(), value)


@pytest.mark.parametrize("clone", [lambda self: None, lambda self: self], ids=["nothing", "itself"])
def test_a_clone_is_another_target(clone: Any) -> None:
    session = session_of(type("Cloning", (KvcoreTarget,), {"clone": clone}))
    with pytest.raises(Crash, match="clone returned"):
        session.clone()


def test_a_session_goes_on_as_it_was_where_every_answer_is_right() -> None:
    """The checks change nothing: the same outcomes as ever."""
    session = session_of()
    outcomes = drive(
        session,
        Lookup((1,)),
        Allocate("a", (1, 2)),
        Append("a", (3,)),
        Dispatch(1, (("a", 3),)),
        Complete(1),
        Free("a"),
    )
    assert {outcome.status for outcome in outcomes} == {"done"}
