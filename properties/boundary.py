"""The boundary between the harness and a target: what a target's methods return is what they must, or it is said.

What costs nothing is checked at every call (`Session`). The rest is checked here, in full, when something has gone
wrong inside the harness: then either an answer of the target was of the wrong shape, and that is said, or the harness
itself has failed. `told` makes the text of a target's exception fit to be kept and shown.
"""

from __future__ import annotations

import importlib
import re
import signal
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from reference import Crash, Policy, Violation

from .configuration import Configuration
from .coverage import require_possible
from .target import Capability, Claim, Counts, Found, Inspection, StepArrays, StepView, Target, TargetFactory

__all__ = [
    "ARRAYS",
    "BLOCKS",
    "COPIES",
    "FOUND",
    "KIND",
    "TOKENS",
    "UNMADE",
    "VIEW",
    "are_pairs",
    "called",
    "cloned",
    "counted",
    "counts",
    "ended",
    "made",
    "no_target",
    "note_interrupts",
    "noticed",
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
    if value is None or kind in ("bool", "int"):
        return text
    if len(text) <= _SHOWN:
        return f"{kind} {text}"
    # Never a part of a list: how long that is differs from run to run, and messages of one bug shall be alike.
    return f"{kind} of {len(value)} entries" if isinstance(value, (list, tuple, dict)) else f"a {kind}"


_SHOWN = 120
"""Characters of a value that are shown."""


def wrong(target: Any, method: str, value: Any, expected: str, part: str = "") -> Crash:
    """The violation that a method has returned what it may not. part: which of what it has returned `value` is."""
    return Crash(f"{_name(target)}: {method} returned {part}{part and ' '}{shown(value)}; expected {expected}")


def _name(target: Any) -> str:
    return str(getattr(target, "name", "") or type(target).__name__)


def ended(method: str, error: BaseException) -> Crash:
    """The violation that a method has ended in an exception: which, and where in the target's code. The traceback is
    kept beside it."""
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # what has taken it all is still in its variables
    text, where = told(error), _innermost(error.__traceback__)
    crash = Crash(f"{method} ended in {type(error).__name__}: {text}{where if text else where.lstrip()}")
    crash.traceback = _fit("".join(traceback.format_exception(type(error), error, error.__traceback__)[-_FRAMES:]))
    return crash


def called(target: Any, look: Callable[..., Any]) -> str:
    """What the protocol calls this method of the target's, whatever it is called there. O(methods)."""
    own = (name for name in (*_ALWAYS, *(name for names in _WITH.values() for name in names)))
    known = next((name for name in own if getattr(target, name, None) == look), "")
    return known or getattr(look, "__name__", type(look).__name__)


_FRAMES = 12
"""Of a traceback, the innermost."""


def _innermost(at: TracebackType | None) -> str:
    """The file, the line and the function that an exception comes from; "" if it comes from no code of a target's."""
    found = ""
    at = at.tb_next if at is not None else None  # the first is the caller, who has caught it
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename not in _OURS and not code.co_filename.startswith("<frozen"):
            found = f" (at {Path(code.co_filename).name}:{at.tb_lineno} in {code.co_name})"
        at = at.tb_next
    return found


_OURS = frozenset(
    {
        *(str(Path(__file__).with_name(name)) for name in ("session.py", "boundary.py")),
        str(Path(__file__).parent / "targets" / "__init__.py"),
        str(importlib.__file__),
    }
)
"""Files that a target is called or imported from."""


def whole(target: Any, method: str, value: Any, expected: str) -> int:
    """`value` as an int, which a NumPy integer can be, and a bool or a float cannot. Raises Crash."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise wrong(target, method, value, expected)
    try:
        return index(value)
    except BaseException as error:
        if users_own(error):
            raise
        raise wrong(target, method, value, expected) from None


UNMADE = "the factory"
"""Begins the message of a violation that a target could not be made."""

BLOCKS = "a list of ints, the request's blocks, that the core will not change later"
TOKENS = "an int, the hit tokens (0 with admission by the step)"
VIEW = "a StepView, with the handle that complete gets"
COPIES = "pairs of ints, (source, destination) blocks"
ARRAYS = "a function that returns the StepArrays, since BATCH is claimed"
PADDED = "a function of rows and sequences that returns the StepArrays filled up, since PADDING is claimed"
FOUND = "a Found, with an int, the hit tokens"
KIND = 'a str, the reason of the refusal: "OutOfBlocks", ...'

See = Callable[..., Any]
"""`Session.see`: calls a method of the target with values. Raises Crash for whatever that raises."""


def wrong_answers(
    target: Target,
    see: See,
    can: Collection[Capability],
    live: Collection[str],
    named: Collection[str],
    last: StepView | Found | None,
) -> Iterator[Crash]:
    """What is wrong with what the target shows now, of all that it can show.

    live: requests. named: those that the last operation is about, live or not. last: what the last step or lookup has
    returned. O(all of it)."""
    for request in dict.fromkeys((*live, *named)):
        try:
            table = see(target.table, request)
        except Crash:
            if request in live:
                raise
            continue
        if type(table) is not list or not _ints(table):
            yield wrong(target, f"table({request!r})", table, BLOCKS)
    if isinstance(last, Found):
        if not (last.blocks is None or (_sequence(last.blocks) and _ints(last.blocks))):
            yield wrong(target, "lookup", last.blocks, "a list of ints, or None", "blocks")
    elif last is not None:
        yield from _wrong_view(target, see, last, Capability.BATCH in can)
    if Capability.INSPECT in can:
        yield from _wrong_inspection(target, see)
    if Capability.CONTENTS in can:
        contents = see(target.contents)
        if not isinstance(contents, dict) or not _ints(contents):
            yield wrong(target, "contents", contents, "a dict: for each published block, its Claim")
        else:
            yield from (
                wrong(target, "contents", claim, _CLAIM, "for a block")
                for claim in contents.values()
                if _no_claim(claim)
            )
    if Capability.COUNTERS in can:
        counted(target, see(target.counters))
    if Capability.FOOTPRINT in can and type(size := see(target.footprint)) is not int:
        yield wrong(target, "footprint", size, "an int, how much the core holds")
    if Capability.KEYS in can and not (isinstance(keys := see(target.keys), dict) and _ints(keys)):
        yield wrong(target, "keys", keys, "a dict: for each published block, its key")


def counts(target: Target, value: Any) -> tuple[int, int, int]:
    """`value`, if it is what `counts` has to return. Raises Crash."""
    if not isinstance(value, tuple) or len(value) != 3 or not _ints(value):
        raise wrong(target, "counts", value, "a tuple of three ints: free, cached and active blocks")
    return value


def counted(target: Target, value: Any) -> Counts:
    """`value` as what `counters` has to return. Raises Crash."""
    if not isinstance(value, tuple) or len(value) != len(Counts._fields):
        raise wrong(target, "counters", value, "a Counts")
    if not all(one is None or type(one) is int for one in value):
        raise wrong(target, "counters", value, "a Counts of ints, None for what the core does not count")
    return Counts(*value)


def noticed(target: Target, value: Any) -> dict[str, int]:
    """`value`, if it is what `noticed` has to return. Raises Crash."""
    if not isinstance(value, dict) or not _ints(value.values()):
        raise wrong(target, "noticed", value, "a dict: for each event, an int, how often")
    return value


def cloned(target: Target, value: Any) -> Target:
    """`value`, if it may be a clone. Raises Crash."""
    if value is None or value is target:
        raise wrong(target, "clone", value, "another target in the same state")
    return cast(Target, value)


def are_pairs(value: Any) -> bool:
    """Are these pairs of ints, in a list or a tuple?"""
    return _sequence(value) and all(isinstance(one, tuple) and len(one) == 2 and _ints(one) for one in value)


def _wrong_view(target: Target, see: See, view: StepView, batches: bool) -> Iterator[Crash]:
    if not _sequence(view.starts) or not _ints(view.starts):
        yield wrong(target, "dispatch", view.starts, "ints, the first position of each request", "starts")
    if not are_pairs(view.copies):
        yield wrong(target, "dispatch", view.copies, COPIES, "copies")
    if not batches:
        return
    arrays = see(view.arrays)
    for name in (entry.name for entry in fields(StepArrays)):
        value: Any = getattr(arrays, name, None)
        rows = value if name == "tables" else [value]
        if not _sequence(rows) or not all(_sequence(row) and _ints(row) for row in rows):
            lists = "lists of ints" if name == "tables" else "a plain list of ints"
            yield wrong(target, "dispatch", value, lists, f"arrays with {name}")


def _wrong_inspection(target: Target, see: See) -> Iterator[Crash]:
    counts(target, see(target.counts))
    blocks = target.policy.num_blocks
    states = see(target.states, range(blocks))
    if not _sequence(states) or not all(isinstance(one, tuple) and len(one) == 2 for one in states):
        yield wrong(target, "states", states, "a list: (reference count, published) of each block that was asked for")
    elif len(states) != blocks:
        yield Crash(f"{_name(target)}: states returned {len(states)} entries, and was asked for {blocks} blocks")
    shown = see(target.inspect)
    if not isinstance(shown, Inspection):
        yield wrong(target, "inspect", shown, "an Inspection")
        return
    for name in ("references", "published", "free", "cached"):
        value: Any = getattr(shown, name)
        flags = name == "published"
        if value is None and name in ("free", "cached"):
            continue
        if not isinstance(value, list) or not (flags or _ints(value)):
            yield wrong(target, "inspect", value, f"a list of {'bools' if flags else 'ints'}", name)
        elif name in ("references", "published") and len(value) != blocks:
            yield Crash(f"{_name(target)}: inspect returned {len(value)} {name}; there are {blocks} blocks")
    if not isinstance(shown.tables, dict) or not all(type(table) is list for table in shown.tables.values()):
        yield wrong(target, "inspect", shown.tables, "a dict: for each live request, a list of ints", "tables")
    elif shown.lengths and (not isinstance(shown.lengths, dict) or set(shown.lengths) != set(shown.tables)):
        yield wrong(target, "inspect", shown.lengths, "a dict: for each live request, three ints", "lengths")


_CLAIM = "a Claim: the tokens' int32 bytes, after a Claim or a namespace"


def _no_claim(claim: Any) -> bool:
    return not (
        isinstance(claim, Claim) and isinstance(claim.tokens, bytes) and isinstance(claim.before, (Claim, tuple))
    )


def _sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


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
    try:
        return _lacking(value, kind)
    except BaseException as error:  # a property of its own
        if users_own(error):
            raise
        return f"a {kind}, and {ended('reading its attributes', error).message}"


def _lacking(value: Any, kind: str) -> str:
    if not isinstance(getattr(value, "policy", None), Policy):
        return f"a {kind} whose policy is {shown(getattr(value, 'policy', None))}; expected a reference.Policy"
    if not hasattr(value, "name"):
        return f"a {kind} without a name; expected a str"
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
    try:
        require_possible(value.name, frozenset(capabilities), value.policy)
    except ValueError as error:
        return f"a {kind} that cannot be: {error}"
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
    why = no_target(target)
    return cast(Target, Unmade(configuration, Crash(f"{UNMADE} returned {why}"))) if why else target


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
