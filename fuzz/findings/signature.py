"""What makes two findings one: the signature.

A signature is (property, kind of divergence, kind of operation at the violation, class of the configuration, target).
The kind of divergence is the message without everything that differs in another run of the same bug: numbers, names,
ids, lists, addresses, paths. Seeds, line numbers, sizes and the way of finding are never in it.

One bug has several signatures: several operations meet it, and it breaks several properties, in several configurations.
Each of these is a *symptom*, and `akin` says which symptoms count as one bug. That is a guess from outside, by what
they end as when shrunk further, by their operations, and by the code that these run through (`places`).
docs/campaigns.md says how often it was wrong when measured.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from properties.operations import Configuration, Operation

from ..runs.values import Counterexample
from .likeness import likeness

__all__ = [
    "Signature",
    "Symptom",
    "akin",
    "configuration_class",
    "divergence",
    "reworded",
    "signature_of",
    "symptom_of",
]

DRAIN = "drain"
"""Takes the place of the kind of operation if the state after all of them is at fault."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "ADDRESS"),
    (re.compile(r"(?:/[^\s/'\"]+)+/"), ""),  # folders; a file's own name stays
    # A quote begins a name; after a letter it is an apostrophe.
    (re.compile(r"(?<![A-Za-z])b?'(?:\\.|[^'\\])*'|(?<![A-Za-z])b?\"(?:\\.|[^\"\\])*\""), "NAME"),
    (re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"), "N"),
    (re.compile(r"\b(?:True|False|None)\b"), "N"),
    # What is left of lists and mappings holds nothing but the above. Innermost first, so the rule is applied again.
    (re.compile(r"[\[({](?:N|NAME|LIST|[\s,:=])*[\])}]"), "LIST"),
    (re.compile(r"[\[({](?:N|NAME|LIST|[\s,:=])*[\])}]"), "LIST"),
    (re.compile(r"[\[({](?:N|NAME|LIST|[\s,:=])*[\])}]"), "LIST"),
    (re.compile(r"\bLIST(?:[\s,]+LIST)+"), "LIST"),
    # Histories and holders are told of where they help a reader; versions before this did not tell of them.
    (re.compile(r", after (?:LIST(?: \(N tokens\))?|nothing that was written)(?: in namespace (?:LIST|NAME))?"), ""),
    (re.compile(r"; (?:others: NAME(?:, NAME)*|it was given back)$"), ""),
    (re.compile(r"\s+"), " "),
)


_PLACE = " (at "
"""Begins what a CRASH says of the place in the target's code."""


_RENAMED = {
    ("OWNERSHIP", "the index claims LIST for block N, which holds LIST"): (
        "ISOLATION",
        "the index claims block N for namespace LIST; it was written in LIST",
    ),
}
"""What is told in other words since a version, and is another property now: (property, divergence) by the old one."""


def divergence(message: str) -> str:
    """The kind of divergence that `message` tells of. O(message).

    >>> divergence("'r0' hits block 8 (logical 3) for tokens [0, 1]; it holds [2]")
    'NAME hits block N (logical N) for tokens LIST; it holds LIST'
    """
    for pattern, put in _RULES:
        message = pattern.sub(put, message)
    return message.strip()


def configuration_class(configuration: Configuration) -> str:
    """The part of a configuration that tells bugs apart: its rules, without sizes.

    >>> configuration_class(Configuration(num_blocks=7))
    'last_block, caching'
    """
    return f"{configuration.reuse}, {'caching' if configuration.caching else 'no caching'}"


@dataclass(frozen=True, slots=True)
class Signature:
    """See the head of this module."""

    property_id: str
    divergence: str
    operation: str
    configuration: str
    target: str

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that are this signature's on every machine."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """What a finding's folder is called."""
        return f"{self.property_id}-{self.id}"

    def __str__(self) -> str:
        return f"{self.property_id} at {self.operation} on {self.target} ({self.configuration}): {self.divergence}"

    def to_json(self) -> dict[str, str]:
        return {
            "id": self.id,
            "property": self.property_id,
            "divergence": self.divergence,
            "operation": self.operation,
            "configuration": self.configuration,
            "target": self.target,
        }

    @classmethod
    def from_json(cls, data: Any) -> Signature:
        """What `to_json` wrote. Raises KeyError or TypeError."""
        return cls(
            str(data["property"]),
            str(data["divergence"]),
            str(data["operation"]),
            str(data["configuration"]),
            str(data["target"]),
        )

    def alike(self, other: Signature) -> bool:
        """Do both tell of the same divergence of the same property, perhaps met by another operation?"""
        if (self.property_id, self.target) != (other.property_id, other.target):
            return False
        one, two = sorted((self.divergence, other.divergence), key=len)
        # Where in the target's code an exception comes from, older versions did not tell.
        return one == two or (_PLACE not in one and two.startswith(f"{one}{_PLACE}"))


def reworded(stored: Signature, now: Signature) -> bool:
    """Is `now`, which the operations of `stored` have, the same finding told in other words? The same operation must
    break the same property, or one that it was renamed to."""
    if (stored.operation, stored.target) != (now.operation, now.target):
        return False
    return stored.property_id == now.property_id or (
        _RENAMED.get((stored.property_id, stored.divergence)) == (now.property_id, now.divergence)
    )


def signature_of(found: Counterexample) -> Signature:
    """The signature of a counterexample: of a shrunk one it is the bug's, of any other a first guess. O(message)."""
    return Signature(
        found.property_id or "",
        divergence(found.message),
        _kind(found.operations, found.at),
        configuration_class(found.configuration),
        found.target,
    )


def _kind(operations: Sequence[Operation], at: int | None) -> str:
    return operations[at].op if at is not None and 0 <= at < len(operations) else DRAIN


@dataclass(frozen=True, slots=True)
class Symptom:
    """One way to meet a bug.

    leads_to: the signature that its counterexample ends at where any violation will do; None if that was not tried.
    kinds: of its operations, in the order of the alphabet, a lookup taken for the allocation that hits the same; () if
    it was not shrunk at all. shrunk: to the end. places: see `places.places_of`; none where nobody could tell.
    """

    signature: Signature
    leads_to: Signature | None = None
    kinds: tuple[str, ...] = ()
    shrunk: bool = False
    places: Mapping[str, int] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        leads = self.leads_to
        return {
            "signature": self.signature.to_json(),
            "leads_to": leads.to_json() if leads is not None else None,
            "kinds": list(self.kinds),
            "shrunk": self.shrunk,
            **({"places": dict(self.places)} if self.places else {}),
        }

    @classmethod
    def from_json(cls, data: Any) -> Symptom:
        """What `to_json` wrote. Raises KeyError or TypeError."""
        leads = data["leads_to"]
        return cls(
            Signature.from_json(data["signature"]),
            Signature.from_json(leads) if leads is not None else None,
            tuple(str(kind) for kind in data["kinds"]),
            bool(data["shrunk"]),
            {str(place): int(weight) for place, weight in data.get("places", {}).items()},
        )


def symptom_of(
    found: Counterexample,
    signature: Signature | None = None,
    *,
    end: Counterexample | None = None,
    shrunk: bool = True,
    places: Mapping[str, int] | None = None,
) -> Symptom:
    """The symptom of a counterexample that was shrunk, perhaps to the end. end: what `shrink.slipped` made of it.
    O(operations)."""
    kinds = sorted(operation.counts_as or operation.op for operation in found.operations)
    leads_to = signature_of(end) if end is not None else None
    return Symptom(signature or signature_of(found), leads_to, tuple(kinds), shrunk, places or {})


def akin(one: Symptom, other: Symptom) -> bool:
    """Are both of one bug, as far as can be told? Symmetric, not transitive. O(operations + places).

    Always, if they are met by the same operation, and one of them leads to the other's divergence there. Where the code
    that they run through is known, also if some of what is unusual in it is common to both (`likeness`): nearly all; or
    half of it, and their operations are of the same kinds; or a little, and one of them leads to the other's
    divergence, or both lead to the same.

    Where it is not known:

    - They tell of the same divergence of the same property, and their operations are the same but for one or two, or
      one in another's place: the same fault, met by another operation or in another configuration. A symptom that was
      not shrunk to the end may have more.
    - They are of the same operations in another order: what is freed, then completed, or completed, then freed.
    """
    if one.signature.target != other.signature.target:
        return False
    if _leads(one, other) or _leads(other, one):
        return True
    if one.places and other.places:
        return _akin_by_places(one, other)
    if one.signature.alike(other.signature) and (_near(one, other) or not (one.shrunk and other.shrunk)):
        return True
    return bool(one.kinds) and one.kinds == other.kinds


_ALONE, _SAME_KINDS, _AS_MANY, _SAME_END = 0.85, 0.55, 0.45, 0.1
"""How much must be common to two: if nothing else speaks for it; of operations of the same kinds; of as many of each
kind; of those that lead to the same. The last two were chosen on every third bug of the zoo, the first two when it was
known which of all were missed."""


def _akin_by_places(one: Symptom, other: Symptom) -> bool:
    enough = [_ALONE]
    if one.kinds and set(one.kinds) == set(other.kinds):
        enough.append(_AS_MANY if one.kinds == other.kinds else _SAME_KINDS)
    if _same_end(one, other):
        enough.append(_SAME_END)
    return likeness(one.places, other.places) >= min(enough)


def _same_end(one: Symptom, other: Symptom) -> bool:
    """Does one of them lead to the other's divergence, or do both lead to the same, by whatever operation?"""
    ends = (one.leads_to, other.signature), (other.leads_to, one.signature), (one.leads_to, other.leads_to)
    return any(first is not None and second is not None and first.alike(second) for first, second in ends)


def _leads(one: Symptom, other: Symptom) -> bool:
    """Does the one end as the other, with nothing but the operation that met it? What is met elsewhere is more often
    another bug, which a shorter list only laid bare."""
    end = one.leads_to
    if end is None or not end.alike(other.signature):
        return False
    return end.operation == one.signature.operation == other.signature.operation


def _near(one: Symptom, other: Symptom) -> bool:
    """The same operations but for two, one in another's place counted as two."""
    first, second = Counter(one.kinds), Counter(other.kinds)
    return ((first - second) + (second - first)).total() <= 2
