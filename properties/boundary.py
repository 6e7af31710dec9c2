"""The boundary between the harness and a target: what a target's methods return is what they must, or it is said.

What costs nothing is checked at every call (`Session`). The rest is checked here, in full, when something has gone
wrong inside the harness: then either an answer of the target was of the wrong shape, and that is said, or the harness
itself has failed. `told` makes the text of a target's exception fit to be kept and shown.
"""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterable, Iterator
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from reference import Crash, Policy, Violation

from .configuration import Configuration
from .target import Capability, Inspection, StepView, Target, TargetFactory

__all__ = [
    "BLOCKS",
    "FOUND",
    "KIND",
    "TOKENS",
    "UNMADE",
    "VIEW",
    "counts",
    "ended",
    "made",
    "no_target",
    "note_interrupts",
    "told",
    "users_own",
    "whole",
    "wrong",
    "wrong_answers",
]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What a terminal obeys and does not show, and halves of characters."""

_TEXT = 2_000
"""Characters of an exception's text, or of an answer, that are kept."""


def told(error: BaseException) -> str:
    """Its text, whatever that is: one that can be written in UTF-8, and not without end."""
    try:
        text = str(error)
    except BaseException as another:
        text = f"(its text cannot be had: {type(another).__name__})"
    return _fit(text)


def _fit(text: str) -> str:
    text = _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} ... ({len(text):,} characters)"


def shown(value: Any) -> str:
    """A value that a target has returned, in a few words."""
    try:
        text = repr(value)
    except BaseException as error:
        text = f"(it cannot be shown: {type(error).__name__})"
    text = _fit(text)
    kind = type(value).__name__
    return text if value is None or kind in ("bool", "int") else f"{kind} {text[:120]}"


def wrong(target: Any, method: str, value: Any, expected: str) -> Crash:
    """The violation that a method has returned what it may not."""
    name = getattr(target, "name", "") or type(target).__name__
    return Crash(f"{name}: {method} returned {shown(value)}; expected {expected}")


def ended(method: str, error: BaseException) -> Crash:
    """The violation that a method has ended in an exception: which, and where in the target's code. The traceback is
    kept beside it."""
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # what has taken it all is still in its variables
    where = _innermost(error.__traceback__)
    crash = Crash(f"{method} ended in {type(error).__name__}: {told(error)}{where}")
    crash.traceback = _fit("".join(traceback.format_exception(type(error), error, error.__traceback__)[-_FRAMES:]))
    return crash


_FRAMES = 12
"""Of a traceback, the innermost."""


def _innermost(at: TracebackType | None) -> str:
    """The file, the line and the function that an exception comes from; "" if it comes from no code of a target's."""
    found = ""
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename != _SESSION:
            found = f" (at {Path(code.co_filename).name}:{at.tb_lineno} in {code.co_name})"
        at = at.tb_next
    return found


_SESSION = str(Path(__file__).with_name("session.py"))


def whole(target: Any, method: str, value: Any, expected: str) -> int:
    """`value` as an int, which a NumPy integer can be, and a bool or a float cannot. Raises Crash."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise wrong(target, method, value, expected)
    try:
        return index(value)
    except TypeError:
        raise wrong(target, method, value, expected) from None


UNMADE = "the factory"
"""Begins the message of a violation that a target could not be made."""

BLOCKS = "a list of ints, the request's blocks, that the core will not change later"
TOKENS = "an int, the hit tokens (0 with admission by the step)"
VIEW = "a StepView, with the handle that complete gets"
FOUND = "a Found, with the hit tokens"
KIND = 'a str, the reason of the refusal: "OutOfBlocks", ...'


def wrong_answers(target: Target, requests: Iterable[str], view: StepView | None) -> Iterator[Crash]:
    """What is wrong with what the target shows now, of all that it can show. view: of its last step. O(all of it)."""
    for request in requests:
        table = target.table(request)
        if type(table) is not list or not _ints(table):
            yield wrong(target, f"table({request!r})", table, BLOCKS)
    if view is not None:
        yield from _wrong_view(target, view)
    can = target.capabilities
    if Capability.INSPECT in can:
        try:
            counts(target, target.counts())
        except Crash as crash:
            yield crash
        every = range(target.policy.num_blocks)
        states = target.states(every)
        if len(states) != len(every) or not all(isinstance(one, tuple) and len(one) == 2 for one in states):
            yield wrong(target, "states", states, "(reference count, published) of each block that was asked for")
        inspection = target.inspect()
        if not isinstance(inspection, Inspection):
            yield wrong(target, "inspect", inspection, "an Inspection")
        elif not len(inspection.references) == len(inspection.published) == len(every):
            yield wrong(target, "inspect", inspection, f"{len(every)} references and published flags")
    if Capability.CONTENTS in can and not isinstance(contents := target.contents(), dict):
        yield wrong(target, "contents", contents, "a dict: for each published block, its Claim")


def counts(target: Target, value: Any) -> tuple[int, int, int]:
    """`value`, if it is what `counts` has to return. Raises Crash."""
    if not isinstance(value, tuple) or len(value) != 3 or not _ints(value):
        raise wrong(target, "counts", value, "a tuple of three ints: free, cached and active blocks")
    return value


def _wrong_view(target: Target, view: StepView) -> Iterator[Crash]:
    if not isinstance(view.starts, (list, tuple)) or not _ints(view.starts):
        yield wrong(target, "dispatch", view.starts, "as starts: ints, the first position of each request")
    pairs = isinstance(view.copies, (list, tuple)) and all(
        isinstance(one, tuple) and len(one) == 2 and _ints(one) for one in view.copies
    )
    if not pairs:
        yield wrong(target, "dispatch", view.copies, "as copies: pairs of ints, source and destination block")
    if view.arrays is not None:
        arrays = view.arrays()
        for name in ("tables", "context_lengths", "cu_seqlens", "packed_rows", "row_sequences", "positions", "slots"):
            value = getattr(arrays, name, None)
            flat: Any = value
            if name == "tables" and isinstance(value, (list, tuple)):
                flat = [one for row in value for one in row]
            if not isinstance(flat, (list, tuple)) or not _ints(flat):
                yield wrong(target, "dispatch", value, f"as {name} of its arrays: a plain list of ints")


def _ints(values: Any) -> bool:
    return all(type(value) is int for value in values)


# ---- making a target -------------------------------------------------------------------------------------------------

_ALWAYS = ("allocate", "append", "dispatch", "complete", "free", "table", "kind", "noticed")

_WITH: dict[Capability, tuple[str, ...]] = {
    Capability.LOOKUP: ("lookup",),
    Capability.FILL: ("fill",),
    Capability.TRUNCATE: ("truncate",),
    Capability.FORK: ("fork",),
    Capability.RESET: ("reset",),
    Capability.INSPECT: ("counts", "states", "inspect"),
    Capability.CONTENTS: ("contents",),
    Capability.CHECK: ("check",),
    Capability.CLONE: ("clone", "same_step", "canonical"),
    Capability.COUNTERS: ("counters",),
    Capability.FOOTPRINT: ("footprint",),
    Capability.KEYS: ("keys",),
}
"""Methods that a capability needs."""


def no_target(value: Any) -> str:
    """Why `value` is no target; "" if it is one. O(capabilities)."""
    if value is None:
        return "None; expected a target (did it forget to return?)"
    kind = type(value).__name__
    if not isinstance(getattr(value, "policy", None), Policy):
        return f"a {kind} whose policy is {shown(getattr(value, 'policy', None))}; expected a reference.Policy"
    capabilities = getattr(value, "capabilities", None)
    if not isinstance(capabilities, (set, frozenset)) or not all(isinstance(one, Capability) for one in capabilities):
        return f"a {kind} whose capabilities are {shown(capabilities)}; expected a frozenset of Capability"
    refusals = getattr(value, "refusals", None)
    if not isinstance(refusals, tuple) or not all(isinstance(one, type) for one in refusals):
        return f"a {kind} whose refusals are {shown(refusals)}; expected a tuple of exception classes"
    if lacking := [name for name in _ALWAYS if not _written(value, name)]:
        return f"a {kind} without {', '.join(lacking)}; every target has {', '.join(_ALWAYS)}"
    for capability, names in _WITH.items():
        lacking = [name for name in names if not _written(value, name)]
        if capability in capabilities and lacking:
            return f"a {kind} that claims {capability.name} and does not write {', '.join(lacking)}"
    return ""


def _written(value: Any, name: str) -> bool:
    """Has it this method, other than as the protocol has it, which raises?"""
    method = getattr(value, name, None)
    unwritten = name != "noticed" and getattr(type(value), name, None) is getattr(Target, name)
    return callable(method) and not unwritten


def made(factory: TargetFactory, configuration: Configuration) -> Target:
    """The target of this configuration. If there is none, one that ends in that at its first operation: what a factory
    does in the middle of a run is a finding like any other."""
    try:
        target = factory(configuration)
    except (MemoryError, Violation):
        raise
    except BaseException as error:
        if users_own(error):
            raise
        return cast(Target, Unmade(configuration, ended(UNMADE, error)))
    wrong = no_target(target)
    return cast(Target, Unmade(configuration, Crash(f"{UNMADE} returned {wrong}"))) if wrong else target


class Unmade:
    """In the place of a target that could not be made. Whatever is done with it raises `why`."""

    name = "unmade"
    capabilities: frozenset[Capability] = frozenset()
    refusals: tuple[type[Exception], ...] = ()

    def __init__(self, configuration: Configuration, why: Crash) -> None:
        self.policy = Policy(configuration.num_blocks, configuration.block_size)
        self.why = why

    def __getattr__(self, name: str) -> Any:
        raise self.why

    def noticed(self) -> dict[str, int]:
        return {}


# ---- Ctrl-C, and a KeyboardInterrupt of the target's own ------------------------------------------------------------

_pressed = False


def note_interrupts() -> None:
    """From here on this process knows whether a KeyboardInterrupt is a user's Ctrl-C. For a main thread."""
    signal.signal(signal.SIGINT, _press)


def _press(*_: object) -> None:
    global _pressed
    _pressed = True
    raise KeyboardInterrupt


def users_own(error: BaseException) -> bool:
    """Has the user interrupted this process, as far as can be told? Else the target has raised it."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    handler = signal.getsignal(signal.SIGINT)
    return _pressed if handler is _press else handler is not signal.SIG_IGN
