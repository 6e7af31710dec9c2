"""The engine `namespaces`: a search for two namespaces that a core cannot tell apart (ISOLATION).

The walk has eight namespaces, and no two of them are alike in a way that a wrong key would confuse. Here each episode
has some hundred to two thousand. One prompt is published under as many as the pool holds, and then asked for under
others: whatever is hit there was written in another namespace. Each new namespace meets all that are resident, so that
a key of 16 bits is found in the first episode, and one of 24 in some dozen. One episode in five has those that a wrong
key confuses by what they say: parts joined with nothing between, cut off, left out, put in another order, normalized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from properties.operations import (
    NAMESPACE_KINDS,
    Allocate,
    Complete,
    Configuration,
    Dispatch,
    Free,
    Lookup,
    Namespace,
    Operation,
)
from properties.session import Session
from properties.target import Capability

from ..runs.perform import perform
from ..runs.values import Counterexample
from .engine import Assignment, Engine, with_violation

__all__ = ["NamespacesEngine", "alike"]

_BLOCKS = 512
_FILLED = 480
"""Namespaces that are published; the others are asked for."""

_MOST = 1600
_TOGETHER = 8
"""Requests of one step."""

_SEPARATORS = ("", " ", ",", ":", ";", "|", "/", "-", "_", "=", ".", "\0", "\x1f", "\n", "', '")


def alike() -> list[Namespace]:
    """Namespaces that are different and that a wrong key takes for the same: each only once, the default among them."""
    found: dict[Namespace, None] = {(): None}

    def add(**parts: str) -> None:
        found[tuple(sorted(parts.items()))] = None

    for text in ("", "s", "S", "s ", " s", "ss", "s\0", "\0s", "0", "00", "0.0", "-0", "1", "01", "-1", "-2", "1e0"):
        for kind in NAMESPACE_KINDS:
            add(**{kind: text})
    for text in ("None", "null", "False", "True", "nan", "()", "{}", "[]", "b's'", "'s'", '"s"'):
        add(salt=text)
    # One text in several normal forms, widths and cases; what no encoding takes; what an encoding cuts or replaces.
    for text in (
        "\u00e9",
        "e\u0301",
        "\u212b",
        "\u00c5",
        "A\u030a",
        "\uff53",
        "\u017f",
        "\u00df",
        "ss",
        "\u0130",
        "i\u0307",
    ):
        add(salt=text)
    for text in ("\ud800", "\ud801", "\udc80", "?", "\ufffd", "\\ud800", "\U00010000"):
        add(salt=text)
    for separator in _SEPARATORS:
        add(adapter=f"a{separator}b", salt="c")
        add(adapter="a", salt=f"b{separator}c")
        add(adapter=f"a{separator}b{separator}c")
        add(salt=f"a{separator}b{separator}c")
        add(adapter=f"a{separator}salt{separator}b")
    add(adapter="a", salt="b")
    add(adapter="b", salt="a")
    for one in NAMESPACE_KINDS:
        for other in NAMESPACE_KINDS:
            if one < other:
                add(**{one: "s", other: "s"})
                add(**{one: "s", other: ""})
                add(**{one: "", other: "s"})
    for length in (8, 16, 32, 64, 128, 256, 1024):
        for end in "ab":
            add(salt="x" * (length - 1) + end)
            add(salt="x" * length + end)
            add(salt=end + "x" * length)
    return list(found)


def _alike(random: Random) -> Iterator[Namespace]:
    spaces = alike()
    random.shuffle(spaces)
    yield from spaces


def _long(random: Random) -> Iterator[Namespace]:
    """One part, much of it common to all."""
    kind, size = random.choice(NAMESPACE_KINDS), random.choice((0, 8, 16, 32, 64, 128, 256))
    before = random.random() < 0.5
    while True:
        own = f"{random.getrandbits(32):08x}"
        yield ((kind, "x" * size + own if before else own + "x" * size),)


def _joined(random: Random) -> Iterator[Namespace]:
    """Two parts of few letters."""
    first, second = sorted(random.sample(NAMESPACE_KINDS, 2))
    while True:
        yield tuple((kind, "".join(random.choices("ab", k=random.randrange(8)))) for kind in (first, second))


def _parts(random: Random) -> Iterator[Namespace]:
    """Any parts, each with one of a few values."""
    while True:
        kinds = sorted(random.sample(NAMESPACE_KINDS, random.randint(1, len(NAMESPACE_KINDS))))
        yield tuple((kind, random.choice(("", "0", "1", "a", "b", "ab"))) for kind in kinds)


_FAMILIES: tuple[Callable[[Random], Iterator[Namespace]], ...] = (_alike, _long, _joined, _long, _parts)


def _drawn(random: Random, family: Callable[[Random], Iterator[Namespace]]) -> list[Namespace]:
    """Up to `_MOST` of the family, each once."""
    found: dict[Namespace, None] = {}
    for tries, space in enumerate(family(random)):
        found[space] = None
        if len(found) == _MOST or tries > 4 * _MOST:
            break
    return list(found)


def _operations(session: Session, spaces: Sequence[Namespace], random: Random) -> Iterator[Operation]:
    """Publish one prompt under the first of `spaces`, and ask for it under the others."""
    size = session.judge.policy.block_size
    prompt = tuple(random.randrange(1000) for _ in range(size + 1))
    looks = Capability.LOOKUP in session.capabilities
    filled = len(spaces) if not looks else min(_FILLED, len(spaces))
    step = 0
    for at in range(0, filled, _TOGETHER):
        names = [f"r{number}" for number in range(min(_TOGETHER, filled - at))]
        for name, space in zip(names, spaces[at:filled], strict=False):
            yield Allocate(name, prompt, space)
        live = session.judge.sequences
        for name in names:  # each for itself where the pool is small
            if name in live:
                step += 1
                yield Dispatch(step, ((name, len(prompt) - live[name].scheduled),))
                yield Complete(step)
        for name in names:
            yield Free(name)
    for space in spaces[filled:]:
        yield Lookup(prompt, space)


class NamespacesEngine(Engine):
    """A unit is an episode: one family of namespaces."""

    name = "namespaces"
    about = "a search for two namespaces that the target cannot tell apart"
    share = 4.0
    planned = 3.0
    units = 8
    capability = Capability.NAMESPACES

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        factory, judging, tally = assignment.factory, assignment.judging, assignment.tally
        clock, deadline, last = assignment.clock, assignment.deadline, assignment.last
        number = assignment.first
        if not self.fits(factory):
            return None, number + 1
        while clock() < deadline and number < last:
            assignment.begin(number)
            seed = f"{assignment.seed}/namespaces/{number}"
            random = Random(seed)
            family = _FAMILIES[number % len(_FAMILIES)]
            spaces = _drawn(random, family)
            configuration = Configuration(num_blocks=_BLOCKS, block_size=random.choice((1, 2, 4)))

            def operations(
                session: Session, spaces: Sequence[Namespace] = spaces, random: Random = random
            ) -> Iterator[Operation]:
                return _operations(session, spaces, random)

            run = perform(factory, configuration, operations, judging)
            session = run.session
            tally.add(self.name, session.applied, session.kinds, session.refused, session.skipped, run.events)
            number += 1
            assignment.progress()
            if run.violation is not None:
                where = Counterexample(
                    configuration, (), assignment.target, judging=judging, engine=self.name, seed=seed
                )
                return with_violation(where, run.violation, run.operations, run.at), number
        return None, number
