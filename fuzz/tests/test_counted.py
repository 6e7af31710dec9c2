"""Engines for what bookkeeping does not show: long-lived cores, namespaces that collide, keys of another process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import pytest
from typer.testing import CliRunner

import kvcore.batch
from fuzz.campaign.checks import checks_of
from fuzz.campaign.plan import CampaignPlan
from fuzz.campaign.probe import probe
from fuzz.cli import app
from fuzz.engines.endurance import EnduranceEngine
from fuzz.engines.engine import Assignment, Engine
from fuzz.engines.keys import KeysEngine
from fuzz.engines.namespaces import NamespacesEngine, alike
from fuzz.engines.swarm import WalkEngine
from fuzz.engines.tally import Tally
from fuzz.runs.counterexample import read, write
from fuzz.runs.perform import perform
from fuzz.runs.values import Counterexample, Judging
from fuzz.zoo.planting import Change, planted
from kvcore import Namespace
from properties.operations import Allocate, Configuration
from properties.target import Capability, Target, TargetFactory
from properties.targets.kvcore import KvcoreTarget

ENCODING = '        object.__setattr__(self, "encoding", b"".join(parts))\n'
TAGGED = '            parts.append(b"%s:%d:%s" % (part.name.encode(), len(raw), raw))\n'
SEQUENCES = "        self._sequences: dict[Hashable, Sequence] = {}\n"
ADMITTED = "        self._sequences[request] = sequence\n        self._counters.queried_tokens += length\n"
SEEDED = "fuzz.tests.seeded:make"


def hunt(
    engine: Engine,
    factory: TargetFactory,
    *,
    target: str = "kvcore",
    first: int = 0,
    count: int = 1,
    seconds: float = 60.0,
) -> tuple[Counterexample | None, Tally]:
    tally = Tally()
    deadline = monotonic() + seconds
    found, _ = engine.hunt(
        Assignment(factory, target, "1", Judging(), tally, monotonic, deadline, first=first, count=count)
    )
    return found, tally


def encoded(expression: str) -> Sequence[Change]:
    return [Change("identity.py", ENCODING, f'        object.__setattr__(self, "encoding", {expression})\n')]


# ---- namespaces ------------------------------------------------------------------------------------------------------


def test_kvcore_tells_all_namespaces_apart() -> None:
    found, tally = hunt(NamespacesEngine(), KvcoreTarget, count=5)
    assert found is None
    assert tally.episodes == 5 and tally.operations > 5000
    assert tally.kinds["lookup"] > 1000


@pytest.mark.parametrize(
    ("changes", "within"),
    [
        pytest.param(encoded('xxhash.xxh3_128_digest(b"".join(parts))[:1]'), 1, id="8 bits"),
        pytest.param(encoded('xxhash.xxh3_128_digest(b"".join(parts))[:2]'), 5, id="16 bits"),
        pytest.param(encoded('b"".join(parts[:1])'), 1, id="first part"),
        pytest.param([Change("identity.py", TAGGED, "            parts.append(raw)\n")], 1, id="joined"),
    ],
)
def test_namespaces_that_a_key_confuses_are_found(changes: Sequence[Change], within: int) -> None:
    found, _ = hunt(NamespacesEngine(), planted(changes), count=within)
    assert found is not None and found.property_id == "ISOLATION"


def test_each_of_the_alike_namespaces_is_another_one() -> None:
    spaces = alike()
    assert len(spaces) == len(set(spaces)) > 150
    assert len({Namespace(**dict(space)).encoding for space in spaces}) == len(spaces)
    assert all(list(space) == sorted(space) for space in spaces)


def test_a_file_keeps_every_alike_namespace(tmp_path: Path) -> None:
    """What no encoding of text takes, too."""
    operations = tuple(Allocate(f"r{number}", (1,), space) for number, space in enumerate(alike()))
    path = write(Counterexample(Configuration(), operations), tmp_path / "alike.json")
    assert read(path).operations == operations


def test_the_engine_leaves_a_target_without_namespaces_alone() -> None:
    class Plain(KvcoreTarget):
        capabilities = KvcoreTarget.capabilities - {Capability.NAMESPACES}

    found, tally = hunt(NamespacesEngine(), Plain)
    assert (found, tally.operations) == (None, 0)


# ---- padding ---------------------------------------------------------------------------------------------------------

EXTENDED = {
    "context_lengths": ("wanted_rows, 0", "wanted_rows, 1"),
    "cu_seqlens": ("int(self.cu_seqlens[-1])", "0"),
    "packed_rows": ("wanted_tokens, -1", "wanted_tokens, 0"),
    "row_sequences": ("wanted_tokens, -1", "wanted_tokens, 0"),
    "slot_mapping": ("wanted_tokens, -1", "wanted_tokens, 0"),
}


@pytest.mark.parametrize("name", EXTENDED)
def test_padding_that_somebody_would_read_is_found(name: str) -> None:
    (line,) = [one for one in inspect.getsource(kvcore.batch).splitlines(True) if f"            {name}=_extend" in one]
    factory = planted([Change("batch.py", line, line.replace(*EXTENDED[name]))])
    found, _ = hunt(WalkEngine(), factory, count=50)
    assert found is not None and found.property_id == "MAPPING"
    assert "filled up by" in found.message
    again = perform(factory, found.configuration, found.operations, found.judging)
    assert again.violation is not None and str(again.violation) == f"MAPPING: {found.message}"


# ---- what grows ------------------------------------------------------------------------------------------------------


def test_kvcore_does_not_grow() -> None:
    for unit, operations in ((0, 300), (1, 100_000)):
        found, tally = hunt(EnduranceEngine(), KvcoreTarget, first=unit)
        assert found is None
        assert tally.operations > operations
        assert not tally.refused or unit


def test_a_dictionary_that_forgets_nothing_is_found() -> None:
    factory = planted(
        [
            Change("manager.py", SEQUENCES, f"{SEQUENCES}        self._begun: dict[Hashable, int] = {{}}\n"),
            Change("manager.py", ADMITTED, f"        self._begun[request] = self._next_step\n{ADMITTED}"),
        ]
    )
    found, tally = hunt(EnduranceEngine(), factory, first=1)
    assert found is not None and found.property_id == "GROWTH"
    assert "entries" in found.message
    assert tally.operations < 30_000
    again = perform(factory, found.configuration, found.operations, found.judging)
    assert again.violation is not None and again.violation.id == "GROWTH"


def test_steps_that_grow_with_age_are_found_where_the_memory_is_not_seen() -> None:
    factory = planted(
        [
            Change("manager.py", SEQUENCES, f"{SEQUENCES}        self._before: list[Hashable] = []\n"),
            Change(
                "manager.py",
                ADMITTED,
                "        if not any(one == request for one in self._before):\n"
                f"            self._before.append(request)\n{ADMITTED}",
            ),
        ]
    )

    def blind(configuration: Configuration) -> Target:
        target = factory(configuration)
        target.footprint = lambda: 1000  # type: ignore[method-assign]
        return target

    before = sys.gettrace()
    found, _ = hunt(EnduranceEngine(), blind, first=1)
    if before is not None:
        pytest.skip("somebody traces this test, so that no steps are counted")
    assert found is not None and found.property_id == "GROWTH"
    assert "steps" in found.message
    assert sys.gettrace() is None


def test_steps_that_grow_with_the_square_of_a_request_are_found_and_stay_found(tmp_path: Path) -> None:
    sequence = "        sequence = Sequence(request, namespace, prompt, blocks, self._epoch)\n"
    compared = "        assert not any(one == two for at, one in enumerate(blocks) for two in blocks[:at])\n"
    factory = planted([Change("manager.py", sequence, compared + sequence)])
    if sys.gettrace() is not None:
        pytest.skip("somebody traces this test, so that no steps are counted")
    found, _ = hunt(EnduranceEngine(), factory)
    assert found is not None and found.property_id == "GROWTH"
    assert "allocate takes" in found.message
    kept = read(write(found, tmp_path / "squared.json"))
    again = perform(factory, kept.configuration, kept.operations, kept.judging)
    assert again.violation is not None and str(again.violation) == f"GROWTH: {found.message}"


def test_a_long_episode_meets_no_request_twice() -> None:
    found, tally = hunt(EnduranceEngine(), KvcoreTarget, first=1, seconds=0.5)
    assert found is None and tally.operations
    kept: list[str] = []

    class Noting(KvcoreTarget):
        def allocate(self, request, tokens, namespace, handle):  # type: ignore[no-untyped-def]
            hit = super().allocate(request, tokens, namespace, handle)
            kept.append(request)
            return hit

    hunt(EnduranceEngine(), Noting, first=1, seconds=0.5)
    assert len(kept) == len(set(kept)) > 100


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_kvcore_has_the_same_keys_in_every_process() -> None:
    found, tally = hunt(KeysEngine(), KvcoreTarget)
    assert found is None and tally.operations


def test_keys_of_one_process_are_found_and_stay_found(tmp_path: Path) -> None:
    from .seeded import make

    found, _ = hunt(KeysEngine(), make, target=SEEDED)
    assert found is not None and found.property_id == "KEYS"
    path = write(found, tmp_path / "keys.json")
    assert read(path).judging.keys == SEEDED
    assert CliRunner().invoke(app, ["replay", str(path)]).exit_code == 1


# ---- what is said of them --------------------------------------------------------------------------------------------


def test_what_only_an_engine_checks_is_not_checked_without_it() -> None:
    def unchecked(**engines: float) -> dict[str, str]:
        return checks_of(CampaignPlan(engines=engines, kernels=""), probe(["kvcore"])).unchecked

    assert {"GROWTH", "KEYS"} <= unchecked(walk=1.0).keys()
    assert "endurance" in unchecked(walk=1.0)["GROWTH"]
    assert {"GROWTH", "KEYS"}.isdisjoint(unchecked(walk=1.0, endurance=1.0, keys=1.0))
    assert "KEYS" in unchecked(keys=0.0, endurance=1.0)
