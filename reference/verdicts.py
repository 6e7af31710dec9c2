"""The properties: what can be wrong with a core, in order of harm.

One class each, so that Hypothesis, the shrinker and a reader tell them apart. An operation that breaks several is
charged to the first in this order: what corrupts an answer before what merely miscounts, and the prediction of exact
choices last, since a wrong choice of block is often only the first sign of something worse.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "PROPERTIES",
    "Admission",
    "Aliasing",
    "Bounds",
    "Completeness",
    "Conservation",
    "Counters",
    "Crash",
    "Equivalence",
    "Errors",
    "Eviction",
    "Exact",
    "Exclusive",
    "Findings",
    "Freshness",
    "Growth",
    "History",
    "Internal",
    "Isolation",
    "Keys",
    "Lifetime",
    "Mapping",
    "Ownership",
    "Publish",
    "Recompute",
    "References",
    "Release",
    "Rollback",
    "Violation",
]

PROPERTIES: dict[str, type[Violation]] = {}
"""By id, in order of harm."""


class Violation(AssertionError):
    """A property does not hold. `id` names it; the message says which, where and why."""

    id: ClassVar[str] = ""
    rank: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        cls.id = cls.__name__.upper()
        cls.rank = len(PROPERTIES)
        PROPERTIES[cls.id] = cls

    traceback: str = ""
    """Of the exception that it was found by, if there was one."""

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return f"{self.id}: {self.message}"


class Freshness(Violation):
    """No slot is read unless it was written for this very history and not overwritten since."""


class History(Violation):
    """A hit has the same full token history, under any hash function."""


class Isolation(Violation):
    """There is no hit across namespaces."""


class Aliasing(Violation):
    """A write goes only to blocks that its sequence holds, and never changes what another holder of one reads: a shared
    block is copied first.
    """


class Lifetime(Violation):
    """No block is reused while a dispatched step may read, write or copy from it."""


class Exclusive(Violation):
    """A step writes only blocks that its sequence holds alone and that are not published; no block goes to two
    tables.
    """


class Publish(Violation):
    """Only full blocks whose K/V have been computed can be hit, and only until the cache is reset."""


class Rollback(Violation):
    """After a truncation nothing beyond the accepted length is counted, or indexed on this request's account."""


class Mapping(Violation):
    """Slot, position, packed row and block table follow their formulas for every scheduled token; padding writes
    nowhere.
    """


class Recompute(Violation):
    """At least one token is left to compute after a hit, by the reuse policy."""


class Bounds(Violation):
    """Nothing past the context length influences an output, not even NaN or infinity; slot -1 and padding change
    nothing; no kernel touches what is not its own."""


class Equivalence(Violation):
    """Paged attention is the contiguous reference within the bound of its dtype, and bit for bit the same for one token
    however it was scheduled; what is stored and copied is exact."""


class Crash(Violation):
    """No operation ends in anything but success or a refusal."""


class Errors(Violation):
    """An invalid operation is refused, with the error that names its fault."""


class Admission(Violation):
    """A request is admitted, or a sequence grown, exactly if its blocks are there; what can never fit is told apart."""


class Completeness(Violation):
    """Content that is resident, with everything before it, is found."""


class Ownership(Violation):
    """The index names exactly the blocks that hold published content; on reallocation only this block's entry goes."""


class Release(Violation):
    """Every block comes back, exactly once, on finish, abort, preempt or error."""


class References(Violation):
    """A block's reference count is the number of block tables and pending copies that hold it."""


class Conservation(Violation):
    """Free + cached + active = total, each listed once; a refused operation changes nothing."""


class Eviction(Violation):
    """Least recently released first; no content's last block before the blocks that extend it."""


class Exact(Violation):
    """Where the policy is known, every choice of block is the predicted one."""


class Internal(Violation):
    """The core's own invariants hold."""


class Counters(Violation):
    """A counter says how often a thing has happened; a refused operation counts as a refusal and as nothing else."""


class Growth(Violation):
    """What a core holds is bounded by the pool and by what is alive; an operation's steps grow with what it touches,
    and neither with its square nor with the core's age."""


class Keys(Violation):
    """Where keys leave the process, one content has the same key in every process."""


class Findings(list[Violation]):
    """The violations found so far, in the order in which they were found."""

    def accuse(self, property_: type[Violation], message: str) -> None:
        self.append(property_(message))
