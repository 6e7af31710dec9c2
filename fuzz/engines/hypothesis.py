"""The engine `hypothesis`: chunks of examples of the stateful machine, which Hypothesis generates.

Hypothesis only generates: what it finds is shrunk as a list of operations like anything else, and kept in its database,
if the plan names one, for later campaigns.

Also imports: hypothesis.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ..runs.perform import perform
from ..runs.values import Counterexample
from .engine import Assignment, Engine, with_violation

__all__ = ["HypothesisEngine"]

_MORE = 3
"""Properties that are looked for behind the first, in the same chunk."""

_CHUNK = 40
"""Examples of one run of Hypothesis: about a second, so that a turn ends on time."""


class HypothesisEngine(Engine):
    """A unit is a chunk of examples, seeded by the seed and its number."""

    name = "hypothesis"
    about = "Hypothesis's stateful machine"
    share = 30.0
    planned = 30.0
    units = 2
    extra = "test"
    package = "hypothesis"
    audited = 1

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        """At least one chunk. Lengths are mixed as long episodes are: 50 steps mostly, 200 now and then; always 200
        under the soak profile."""
        from hypothesis import Phase, settings

        from properties.machines.profiles import settings_for

        clock, deadline, last = assignment.clock, assignment.deadline, assignment.last
        database = _database(assignment)
        first = number = assignment.first
        # The import alone may have used the turn up.
        while number == first or (clock() < deadline and number < last):
            assignment.begin(number)
            steps = settings_for("soak" if number % 8 == 7 else assignment.profile).stateful_step_count
            chosen = settings(
                settings_for("nightly"),
                max_examples=_CHUNK * 50 // steps,
                stateful_step_count=steps,
                phases=(Phase.generate,),
                database=database,
            )
            seed = f"{assignment.seed}/hypothesis/{number}"
            chunk = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
            found = self._chunk(assignment, seed, chosen, chunk)
            if found is not None:
                self._behind(assignment, found, seed, chosen, chunk)
            number += 1
            assignment.progress()
            if found is not None:
                return found, number
        return None, number

    def recall(self, assignment: Assignment) -> Counterexample | None:
        """Examples that are in the database, whoever put them there: ten, or up to the first that fails. Nothing is
        generated. What does not fail any more, Hypothesis deletes."""
        if not assignment.database:
            return None
        from unittest import SkipTest

        from hypothesis import Phase, settings

        from properties.machines.allocator import SHARD
        from properties.machines.profiles import settings_for

        database = _database(assignment)
        chosen = settings(settings_for("nightly"), max_examples=SHARD, phases=(Phase.reuse,), database=database)
        try:
            return self._chunk(assignment, "database", chosen, 0)
        except SkipTest:  # how Hypothesis says that there was none
            return None

    def _behind(self, assignment: Assignment, found: Counterexample, seed: str, chosen: Any, number: int) -> None:
        """The same chunk again, past what it has found: a bug that every example meets must not hide the next."""
        passed: frozenset[str] = frozenset()
        for _ in range(_MORE):
            passed |= {found.property_id or ""}
            assignment.begin(assignment.first)
            another = self._chunk(assignment, seed, chosen, number, passed)
            if another is None or another.property_id in passed:
                return
            assignment.also(another)
            found = another

    def _chunk(
        self, assignment: Assignment, seed: str, chosen: Any, number: int, passed: frozenset[str] = frozenset()
    ) -> Counterexample | None:
        """One run of Hypothesis under the settings `chosen`. seed: what a counterexample says of where it is from.
        passed: properties whose violations are passed over."""
        from properties.machines.allocator import run_machine

        factory, judging = assignment.factory, assignment.judging
        report = run_machine(factory, chosen, number, outside=judging.outside, exact=judging.exact, passed=passed)
        assignment.tally.add(
            self.name,
            report.operations,
            report.kinds,
            report.refused,
            report.skipped,
            report.events,
            report.examples,
        )
        if report.violation is None:
            return None
        assert report.configuration is not None
        # Once more, for what the drain phase did if it was that which showed the fault.
        run = perform(factory, report.configuration, report.counterexample, judging)
        where = Counterexample(
            report.configuration, (), assignment.target, judging=judging, engine=self.name, seed=seed
        )
        at = run.at if run.violation is not None else None
        return with_violation(where, run.violation or report.violation, run.operations, at)


def _database(assignment: Assignment) -> Any:
    """Hypothesis's, or None."""
    if not assignment.database:
        return None
    from .hypothesis_database import examples

    return examples(assignment.database, f"{assignment.target} {assignment.variant}", assignment.warn)
