"""The engine `atheris`: coverage-guided, an optional extra. Atheris drives the allocator machine by `fuzz_one_input`.

A unit is a process of its own, since libFuzzer takes a process over and ends it: `python -m fuzz.engines.atheris
REQUEST`. It goes on with the corpus that the units before have left, so that, unlike any other engine's, what a unit
does depends on them; what it finds is a list of operations like any other, and needs neither bytes nor Atheris to be
replayed.

Also imports: atheris, hypothesis.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from properties.operations import Configuration, Operation
from properties.targets import load
from reference import Violation

from ..runs.counterexample import read, write
from ..runs.files import put
from ..runs.processes import ourselves
from ..runs.values import Counterexample, Judging, versions
from .engine import Assignment, Engine

__all__ = ["AtherisEngine"]

_BEGINNINGS = 16
"""Random inputs that a unit adds to the corpus."""

_SECONDS = 20.0
"""Of a unit, which takes a second or two to begin."""

_PATIENCE = 30.0
"""Seconds beyond its time after which a unit's process is ended: it is a hang."""


class AtherisEngine(Engine):
    """A unit is a process that fuzzes for some seconds."""

    name = "atheris"
    about = "coverage-guided; an extra"
    sliced = False
    extra = "atheris"

    def hunt(self, assignment: Assignment) -> tuple[Counterexample | None, int]:
        """One unit. Raises RuntimeError if its process dies."""
        unit, target = assignment.first, assignment.target
        assignment.begin(unit)
        corpus = assignment.kept / "corpus" / re.sub(r"\W+", "-", f"{target} {assignment.variant}")
        corpus.mkdir(parents=True, exist_ok=True)
        outcome = corpus.parent / f"{corpus.name}-{unit}-{os.getpid()}"
        seconds = min(_SECONDS, max(1.0, assignment.deadline - assignment.clock()))
        request = {
            "target": target,
            "judging": asdict(assignment.judging),
            "seed": f"{assignment.seed}/atheris/{unit}",
            "number": unit,
            "corpus": str(corpus),
            "outcome": str(outcome),
            "seconds": seconds,
        }
        command = [*ourselves("fuzz.engines.atheris"), json.dumps(request)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until = monotonic() + seconds + _PATIENCE
        said = ""
        try:
            while True:
                assignment.begin(unit)
                try:
                    _, said = child.communicate(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    if monotonic() > until:
                        child.kill()
        finally:
            child.kill()
            child.wait()
        counted, found = outcome.with_suffix(".counts"), outcome.with_suffix(".json")
        if not counted.exists():
            raise RuntimeError(f"Atheris ended with status {child.returncode}: {said.strip()[-400:]}")
        counts: dict[str, Any] = json.loads(counted.read_text(encoding="utf-8"))
        assignment.tally.add(self.name, **counts)
        assignment.progress()
        counterexample = read(found) if found.exists() else None
        counted.unlink()
        found.unlink(missing_ok=True)
        return counterexample, unit + 1


def _main(request: dict[str, Any]) -> None:
    """In the unit's process. Does not return."""
    import atheris
    from hypothesis.stateful import get_state_machine_test

    from properties.machines.allocator import AllocatorMachine, machine_for
    from properties.machines.profiles import settings_for

    target, outcome = request["target"], Path(request["outcome"])
    with atheris.instrument_imports(include=[target.partition(":")[0].split(".")[0]]):
        factory = load(target)
    judging = Judging(**request["judging"])
    counts: dict[str, Any] = {
        "operations": 0,
        "episodes": 0,
        "kinds": {},
        "refused": {},
        "skipped": {},
        "events": {},
    }
    deadline = monotonic() + request["seconds"]

    def tally(machine: AllocatorMachine) -> None:
        session = machine.session
        if session is None:
            return
        counts["operations"] += session.applied
        counts["episodes"] += 1
        for name, new in (
            ("kinds", session.kinds),
            ("refused", session.refused),
            ("skipped", session.skipped),
            ("events", machine.events),
        ):
            for key, count in new.items():
                counts[name][key] = counts[name].get(key, 0) + count

    def end() -> None:
        put(outcome.with_suffix(".counts"), json.dumps(counts))
        os._exit(0)  # libFuzzer would report and wait

    def record(configuration: Configuration, operations: list[Operation], violation: Violation) -> None:
        found = Counterexample(
            configuration,
            tuple(operations),
            target,
            property_id=violation.id,
            message=violation.message,
            at=len(operations) - 1,
            judging=judging,
            engine="atheris",
            seed=request["seed"],
            versions=versions(),
        )
        write(found, outcome.with_suffix(".json"))

    machine = machine_for(factory, record=record, tally=tally, outside=judging.outside, exact=judging.exact)
    test: Any = get_state_machine_test(machine, settings=settings_for("nightly"))
    one = test.hypothesis.fuzz_one_input
    parent = os.getppid()

    def try_one(data: bytes) -> None:
        if os.getppid() != parent:
            os._exit(1)  # the worker was killed
        if monotonic() > deadline:
            end()
        try:
            one(data)
        except Violation:
            end()

    seed = int.from_bytes(request["seed"].encode()[-4:], "big") % (1 << 31) or 1
    # An input must be long enough for a configuration and some operations; libFuzzer itself would begin with one byte.
    random, corpus = Random(request["seed"]), Path(request["corpus"])
    for number in range(_BEGINNINGS):
        (corpus / f"{request['number']}-{number}").write_bytes(random.randbytes(2048))
    flags = [f"-seed={seed}", "-max_len=8192", "-len_control=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], str(corpus), *flags], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
