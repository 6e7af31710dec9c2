"""What each layer of checks adds: for every planted fault of the kernels, the first layer that kills it.

    python -m fuzz.tools.kernel_layers --write docs/generated/kernel-faults.md

Layers are cumulative, from what a naive suite does up to all that `make test` does; only survivors go on to the next.
The page also says which case of the commit profile kills a fault: the tests begin with that one, and search the others
where it no longer does. Every fault is tried in a process of its own, because without the sanitizer a wild store goes
where it likes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from properties.attention.interpret import prepare

prepare()

import torch  # noqa: E402
from hypothesis import Phase, settings  # noqa: E402

from fuzz.zoo import Bug, kernel_bugs  # noqa: E402
from fuzz.zoo.planting import plant  # noqa: E402
from properties.attention.cases import Case, draw  # noqa: E402
from properties.attention.checks import Checker, Piece  # noqa: E402
from properties.attention.kernels import AXES, How, Spec, Step, unwatched  # noqa: E402
from properties.attention.launch import Launches  # noqa: E402
from properties.attention.law import kernel_laws  # noqa: E402
from properties.attention.oracle import exact  # noqa: E402
from properties.attention.tests import test_large as large  # noqa: E402
from properties.attention.world import NAN, Arena, Placement, World  # noqa: E402
from properties.machines import run_machine, seed_for, settings_for  # noqa: E402
from properties.machines.attention import run_cases  # noqa: E402
from properties.suite.test_attention import BUDGET, CASES, EXAMPLES  # noqa: E402
from properties.targets import load  # noqa: E402
from properties.targets.kvcore_kernels import KvcoreKernels  # noqa: E402
from reference import Equivalence, Freshness, Violation  # noqa: E402

__all__ = ["alarms", "commit_cases", "kernels_with", "machine", "main", "recorded", "scenarios", "violation"]

PAGE = Path(__file__).parents[2] / "docs" / "generated" / "kernel-faults.md"
SAMPLE = 40
"""Cases of one layer."""

LIMIT = 180
"""CPU seconds for one fault in one layer; a kernel that loops for ever is killed."""


def kernels_with(fault: Bug) -> KvcoreKernels:
    return KvcoreKernels(plant(fault.changes))


# ---- the commit profile ----------------------------------------------------------------------------------------------


def commit_cases() -> list[Case]:
    """The cases of the suite's search under the commit profile, in its order."""
    cases: list[Case] = []
    collector: Any = SimpleNamespace(check=cases.append)
    run_cases(KvcoreKernels(), collector, commit_settings(), seed_for("commit"), BUDGET["commit"])
    return cases


def commit_settings(*, shrink: bool = False) -> settings:
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    return settings(settings_for("commit"), max_examples=CASES["commit"], phases=phases)


def cheap_first(cases: Sequence[Case]) -> list[int]:
    """The places of the cases, each only once, by about how many tiles all their runs compute."""

    def tiles(place: int) -> int:
        case = cases[place]
        queries = max(case.rows[0] // case.group, 1)
        return sum(
            -(-rows // queries) * (1 + min(context, (case.window or context) + rows) // case.tile)
            for context, rows in case.sequences
        ) * (case.kv_heads * (1 + len(case.axes)))

    distinct = {case.to_json(): place for place, case in reversed(list(enumerate(cases)))}
    return sorted(distinct.values(), key=lambda place: (tiles(place), place))


def violation(kernels: KvcoreKernels, case: Case) -> Violation | None:
    try:
        Checker(kernels).check(case)
    except Violation as found:
        return found
    return None


def machine(kernels: KvcoreKernels) -> Violation | None:
    """What the allocator's machine finds with these kernels beside it, under the commit profile."""
    examples, steps = EXAMPLES["commit"]
    chosen = settings(
        settings_for("commit"), max_examples=examples, stateful_step_count=steps, phases=(Phase.generate,)
    )
    return run_machine(load("kvcore"), chosen, seed_for("commit"), laws=kernel_laws(kernels)).violation


# ---- beyond 2**31, where only kvcore can be asked --------------------------------------------------------------------


def _moved(kernels: KvcoreKernels, move: Callable[[Any], None]) -> None:
    """Three sequences, split, with the device plan's tensors moved somewhere else."""
    setting = large.Setting(heads=1, group=2, dim=16, block_size=4, blocks=64)
    cache = setting.small()
    kernels.store(setting.keys, setting.values, cache, setting.slots(setting.near), unwatched)
    count = 3
    step = Step(
        torch.tensor([setting.near] * count, dtype=torch.int32).numpy(),
        [large.TOKENS] * count,
        [large.ROWS] * count,
        [-1] * (count * large.ROWS),
    )
    how = How("split", (16, 16), tile=large.TILE, leaf=large.LEAF)
    plan = kernels._plan(cache, step, setting.spec, how, torch.bfloat16)
    move(plan)
    out = torch.empty((count * large.ROWS, *setting.queries.shape[1:]))
    kernels.kernels.paged_attention(torch.cat([setting.queries] * count), cache.keys, cache.values, plan, out=out)
    large.same("split attention", out, torch.cat([setting.right(kernels, "split")] * count))


def partials(kernels: KvcoreKernels) -> None:
    """Partials numbered so high that their elements are beyond 2**31."""

    def move(plan: Any) -> None:
        for place, (work, merges, workspace) in enumerate(zip(plan.works, plan.merges, plan.workspaces, strict=True)):
            count, heads, rows, dim = workspace[2].shape
            first = large.BEYOND // (heads * rows * dim) + 3
            work[:, 3][work[:, 3] >= 0] += first
            merges[:, 2] += first
            shapes = ((heads, rows), (heads, rows), (heads, rows, dim))
            plan.workspaces[place] = tuple(
                large.unbacked((first + count) * torch.Size(shape).numel(), torch.float32).view(-1, *shape)
                for shape in shapes
            )

    _moved(kernels, move)


def tables(kernels: KvcoreKernels) -> None:
    """Rows of the block table 2**30 entries apart."""

    def move(plan: Any) -> None:
        plan.tables = large.spread(plan.tables, (2**30 + 64, 1))

    _moved(kernels, move)


SCENARIOS: dict[str, Callable[[KvcoreKernels], None]] = {
    **large.SCENARIOS,
    "partials": partials,
    "tables": tables,
}


def scenarios(kernels: KvcoreKernels, chosen: Sequence[str] = tuple(SCENARIOS)) -> tuple[str, str]:
    """The property that one of them breaks and what happened, or ("", ""). In forks of this process."""
    for name in chosen:
        found, message = large.outcome(partial(SCENARIOS[name], kernels))
        if found:
            return found, f"{name}: {message}"
    return "", ""


# ---- the audit's own control -----------------------------------------------------------------------------------------


def alarms(kernels: KvcoreKernels) -> None:
    """Tags that are wrong must be found, and no others. Raises Freshness.

    Beyond the tags lies memory that says what is expected, for an audit that looks there.
    """
    size, count, length = 4, 100, 300
    slots = count * size
    expected = list(range(1, length + 1))
    memory = torch.zeros(slots + 64, dtype=torch.int64)
    tags = memory[:slots]
    table = torch.randperm(count, generator=torch.Generator().manual_seed(1))[: length // size].to(torch.int32)
    places = torch.arange(length)
    at = table[places // size].long() * size + places % size
    tags[at] = torch.tensor(expected)
    stale = [0, 5, 126, 127, 128, 200, 299]
    tags[at[stale]] = 10**6
    outside = 100  # a block that is just beyond the pool
    table[outside // size] = count
    memory[slots : slots + size] = torch.tensor(expected[outside : outside + size])
    found = kernels.audit(tags, table[None].numpy(), size, [expected], unwatched)
    wanted = {*stale, *range(outside, outside + size)}
    if {place for place, tag in enumerate(found) if tag != -1} != wanted:
        raise Freshness("the audit says yes to tags that are wrong, or no to right ones")


# ---- layers ----------------------------------------------------------------------------------------------------------


class Loose(Launches):
    """Launches that look at nothing."""

    def store(self, world: World, arena: Arena, keys: Any, values: Any, slots: Any, *rest: Any) -> None:
        self._launch(lambda watch: self.kernels.store(keys, values, arena.cache, slots, watch), list)

    def copy(self, arena: Arena, pairs: Any) -> None:
        self._launch(lambda watch: self.kernels.copy(arena.cache, pairs, watch), list)

    def attend(
        self, world: World, arena: Arena, queries: Any, step: Step, how: How, spec: Spec | None = None
    ) -> torch.Tensor:
        out = torch.zeros(queries.shape)
        self._launch(
            lambda watch: self.kernels.attend(queries, arena.cache, step, spec or world.spec, how, out, watch),
            list,
        )
        return out


class Partial(Checker):
    """A checker with the layers up to `level` (of the first seven, see LAYERS)."""

    def __init__(self, kernels: KvcoreKernels, level: int) -> None:
        super().__init__(kernels, sanitize=level >= 7)
        self.level = level
        if level < 4:
            self.launches = Loose(kernels, sanitize=False)

    def check(self, case: Case) -> None:
        if self.level >= 6:
            super().check(case)
            return
        world = World(case)
        placement = world.place(0)
        pieces = [Piece(number, 0, rows) for number, (_, rows) in enumerate(case.sequences)]
        how = How("direct", case.rows, tile=case.tile, leaf=case.leaf, native_fp8=case.native_fp8)
        arena = self._stored(world, placement, placement.num_blocks)
        for schedule in ("direct", "split") if self.level > 1 else ("direct",):
            self.right(world, self.attend(world, arena, placement, pieces, replace(how, schedule=schedule)))
        if self.level < 2 or case.layout not in ("heads first", "interleaved"):
            return
        # Every second block is copied, and the sources are written over.
        count = placement.num_blocks
        held = sorted({block for table in placement.tables for block in table})[::2]
        if not held:
            return
        moved = {block: count + number for number, block in enumerate(held)}
        arena = self._stored(world, placement, count + len(held))
        self.launches.copy(arena, list(moved.items()))
        for cache in (arena.cache.keys, arena.cache.values):
            cache.view(torch.uint8)[held] = self._filling
        tables = tuple(tuple(moved.get(block, block) for block in table) for table in placement.tables)
        self.right(world, self.attend(world, arena, Placement(count + len(held), tables), pieces, how))

    @property
    def _filling(self) -> int:
        return 0 if self.level < 4 else NAN

    def _stored(self, world: World, placement: Placement, num_blocks: int) -> Arena:
        arena = world.arena(num_blocks, self._filling)
        if self.level >= 4:
            self.store(world, arena, placement)
            return arena
        # Every token once and nothing else: no slot -1.
        size = world.case.block_size
        slots: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for sequence, (context, _) in enumerate(world.case.sequences):
            own = placement.slots(sequence, 0, context, size)
            slots |= dict(zip(own, zip(world.keys[sequence], world.values[sequence], strict=True), strict=True))
        if slots:
            keys, values = (torch.stack(data) for data in zip(*slots.values(), strict=True))
            self.launches.store(world, arena, keys, values, list(slots))
        return arena

    def right(self, world: World, outputs: Sequence[torch.Tensor]) -> None:
        if self.level >= 5:
            super().right(world, outputs)
            return
        spec = world.spec
        for number, output in enumerate(outputs):
            wanted = exact(
                world.queries[number],
                world.stored_keys[number],
                world.stored_values[number],
                scale=spec.scale,
                window=spec.window,
                softcap=spec.softcap,
                slopes=spec.slopes,
            ).output
            # As vLLM's test of its unified kernel allows.
            if not ((output.double() - wanted).abs() <= 1.5e-2 + 1e-2 * wanted.abs()).all():
                raise Equivalence(f"sequence {number} is not close to what it should be")


def restricted(case: Case, level: int) -> Case:
    """The case as a suite of this level would have it."""
    if level > 4:
        return case
    if level > 2:
        return replace(case, values="normal")
    plain = replace(
        case,
        dtype="bfloat16" if case.dtype == "float8_e4m3" else case.dtype,
        head_dim=1 << (case.head_dim.bit_length() - 1),
        group=1 << (case.group.bit_length() - 1),
        block_size=16,
        shared=0,
        window=None,
        softcap=None,
        alibi=False,
        values="normal",
        layout="heads first",
        filler="zero",
        spare=1,
        fused=False,
        axes=(),
    )
    if level == 2:
        return plain
    whole = tuple((min(context, 50),) * 2 for context, _ in case.sequences if context)
    return replace(plain, sequences=whole or ((5, 5),))


LAYERS = (
    "whole prompts, zeros where nothing was written, direct, vLLM's tolerance",
    "chunks, decode and split programs, copies",
    "window, softcap, ALiBi, FP8, any head dim, group, block size and strides",
    "NaN and red zones, every byte that is written, slot -1",
    "the tight tolerance; large, tiny and equal numbers",
    "the axes: float32 bits, run by run",
    "the sanitizer",
    "the allocator's machine, tags, the audit's control",
    "beyond 2**31 elements",
)
"""From 1; each with all that come before it."""


class Kill(NamedTuple):
    layer: int
    property_id: str
    cases: int


@dataclass
class Entry:
    """What became of a fault. cheapest: the cheapest case of the commit profile that kills it; first: how many cases
    were tried until then, the cheapest first. kill None, tried empty: no layers were tried."""

    name: str
    kill: Kill | None = None
    first: int | None = None
    cheapest: int | None = None
    property_id: str = ""
    message: str = ""
    tried: list[int] = field(default_factory=list)


def sample() -> list[Case]:
    choose = Random("kernel layers").randrange
    return [draw(choose, tuple(AXES), 12) for _ in range(SAMPLE)]


def _limited(act: Callable[[], None]) -> tuple[str, str]:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        act()

    return large.outcome(limited)


class Found(Exception):
    """Carries a number out of a fork."""


def _layer(kernels: KvcoreKernels, level: int) -> tuple[str, int]:
    """The property that this layer says is broken, or "", and after how many cases."""
    if level == 8:
        for number, control in enumerate((lambda: alarms(kernels), lambda: _raise(machine(kernels)))):
            found, _ = _limited(control)
            if found:
                return found, number + 1
        return "", 2
    if level == 9:
        return scenarios(kernels)[0], len(SCENARIOS)
    drawn = sample()
    done = multiprocessing.Value("i", 0)  # survives a process that dies

    def act() -> None:
        for case in drawn:
            done.value += 1
            Partial(kernels, level).check(restricted(case, level))

    found, _ = _limited(act)
    return found, done.value


def _raise(found: Violation | None) -> None:
    if found is not None:
        raise found


def examine(fault: Bug, levels: Sequence[int]) -> Entry:
    """All layers until the first that kills it, and the commit profile's cases. Minutes."""
    entry = Entry(fault.title)
    kernels = kernels_with(fault)
    for level in levels:
        entry.tried.append(level)
        killed_by, tried = _layer(kernels, level)
        if killed_by:
            entry.kill = Kill(level, killed_by, tried)
            break
    if fault.by in ("cases", "nothing"):
        cases = commit_cases()
        for tried, place in enumerate(cheap_first(cases), 1):
            found = violation(kernels, cases[place])
            if found is not None:
                entry.first, entry.cheapest = tried, place
                entry.property_id, entry.message = found.id, str(found)
                break
    return entry


# ---- the page --------------------------------------------------------------------------------------------------------

_INTRODUCTION = """# Planted faults of the kernels

{total} ways in which paged attention kernels have been wrong, or could be, each planted in a copy of kvcore's source
(`fuzz/zoo/kernels`, one file each) and given to the checks of `properties/attention`. Names with a number are of the
class of that public issue. {wrong} can change a result or touch what they must not; {harmless} cannot, and must
survive: each is a promise of the design, such as that the order of the work list or a hidden leaf moves no bit.

**First layer**: checks in layers, each with all that come before it, from what a usual suite of a kernel does up to all
that `make test` does; the first that kills the fault, with {sample} generated cases for each of the first seven, and
after how many of them. A kernel that dies or raises is killed as well (CRASH, or BOUNDS by a signal). **Commit**: the
property that the commit profile's cases (`properties/suite/test_attention.py`, seed {seed}) charge it to; how many of
them were tried, the cheapest first; and the number of the case that kills it, with which
`fuzz/tests/test_kernel_faults.py` begins. A dash under first layer: not tried in
layers when this page was made; {layered} were.

This page is made by `python -m fuzz.tools.kernel_layers --write docs/generated/kernel-faults.md` (hours of one core,
`--workers` for more; `--results FILE` keeps what is done).
"""


def _ratio(count: int, of: int) -> str:
    return f"{count} ({count / of:.0%})"


def page(entries: dict[str, Entry]) -> str:
    wrong = [fault for fault in kernel_bugs() if fault.by != "nothing"]
    harmless = [fault for fault in kernel_bugs() if fault.by == "nothing"]
    died = [fault.title for fault in harmless if entries[fault.title].first is not None]
    assert not died, f"these should survive and do not: {died}"
    lines = [
        _INTRODUCTION.format(
            total=len(kernel_bugs()),
            wrong=len(wrong),
            harmless=len(harmless),
            sample=SAMPLE,
            seed=seed_for("commit"),
            layered=sum(1 for fault in wrong if entries[fault.title].tried),
        )
    ]
    lines += ["## What each layer adds", "", "| layer | checks added | kills | of all |", "|---|---|---|---|"]
    layered = [fault for fault in wrong if entries[fault.title].tried]
    killed = 0
    for level, what in enumerate(LAYERS, 1):
        here = sum(1 for fault in layered if (kill := entries[fault.title].kill) and kill.layer == level)
        killed += here
        lines.append(f"| {level} | {what} | {here} | {_ratio(killed, max(len(layered), 1))} |")
    lines.append("")
    left = [fault.title for fault in layered if entries[fault.title].kill is None]
    if left:
        lines += [
            f"Not killed with {SAMPLE} cases: {'; '.join(left)}.",
            "",
        ]
    lines += _early(wrong, entries)
    lines += ["## The faults", ""]
    for area in dict.fromkeys(fault.kind for fault in wrong):
        name = area.removeprefix("kernels: ")
        lines += [f"### {name[0].upper()}{name[1:]}", "", _HEADER, "|---|---|---|---|"]
        lines += [_row(fault, entries[fault.title]) for fault in wrong if fault.kind == area]
        lines.append("")
    lines += ["## What must survive, and does", "", "| change | why no result can change |", "|---|---|"]
    lines += [f"| {fault.kind.removeprefix('kernels: ')}: {fault.title} | {fault.why} |" for fault in harmless]
    return "\n".join([*lines, ""])


_HEADER = "| fault | first layer | cases | commit |"
_COMMIT = re.compile(r"^\| (.+?) \| .+ \| [A-Z]+ \((\d+), (\d+)\) \|$", re.MULTILINE)


def _early(wrong: Sequence[Bug], entries: dict[str, Entry]) -> list[str]:
    firsts = sorted(first for fault in wrong if (first := entries[fault.title].first) is not None)
    if not firsts:
        return []
    within = sum(1 for first in firsts if first < 10)
    return [
        f"In the commit profile, {len(firsts)} are killed by its {CASES['commit']} cases; the cheapest first, half of "
        f"them by number {firsts[len(firsts) // 2]}, {within} within the first nine, the last by number {firsts[-1]}.",
        "",
    ]


_BY = {"machine": "the machine", "large": "beyond 2**31", "control": "the audit's control", "cases": "-"}


def _row(fault: Bug, entry: Entry) -> str:
    layer, cases = ("-", "-") if entry.kill is None else (f"{entry.kill.layer}: {entry.kill.property_id}", "")
    if entry.kill is not None:
        cases = str(entry.kill.cases) if entry.kill.layer < 8 else ""
    commit = _BY[fault.by]
    if entry.first is not None:
        commit = f"{entry.property_id} ({entry.first}, {entry.cheapest})"
    return f"| {fault.title} | {layer} | {cases} | {commit} |"


def recorded() -> dict[str, int]:
    """From the page: the cheapest case of the commit profile that kills a fault."""
    if not PAGE.exists():
        return {}
    return {name: int(cheapest) for name, _, cheapest in _COMMIT.findall(PAGE.read_text(encoding="utf-8"))}


# ---- the command -----------------------------------------------------------------------------------------------------


def _levels(fault: Bug) -> tuple[int, ...]:
    return () if fault.by == "nothing" else tuple(range(1, len(LAYERS) + 1))


def _examine(place: int) -> Entry:
    return examine(kernel_bugs()[place], _levels(kernel_bugs()[place]))


def _load(path: Path | None) -> Iterator[Entry]:
    if path is None or not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        kill = data.pop("kill")
        yield Entry(**data, kill=None if kill is None else Kill(*kill))


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz.tools.kernel_layers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--results", type=Path, help="what is done, one fault a line; read first, then added to")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--large", action="store_true", help="only the scenarios beyond 2**31, for their faults, as JSON"
    )
    chosen = parser.parse_args()
    if chosen.large:
        for fault in kernel_bugs():
            if fault.by == "large":
                print(json.dumps([fault.title, *scenarios(kernels_with(fault), (fault.where,))]), flush=True)
        print(json.dumps(["", *scenarios(KvcoreKernels())]), flush=True)
        return
    names = {fault.title for fault in kernel_bugs()}
    entries = {entry.name: entry for entry in _load(chosen.results) if entry.name in names}
    left = [place for place, fault in enumerate(kernel_bugs()) if fault.title not in entries]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.workers, mp_context=context) as pool:
        for entry in pool.map(_examine, left):
            entries[entry.name] = entry
            kill = entry.kill
            print(entry.name, "-" if kill is None else tuple(kill), entry.property_id, entry.first, flush=True)
            if chosen.results is not None:
                with chosen.results.open("a", encoding="utf-8") as file:
                    data = {name: getattr(entry, name) for name in Entry.__dataclass_fields__}
                    file.write(json.dumps(data) + "\n")
    if chosen.write is not None:
        chosen.write.write_text(page(entries), encoding="utf-8")


if __name__ == "__main__":
    main()
