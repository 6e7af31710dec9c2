"""`python -m fuzz gpu`, as far as a machine without a device can tell: every part runs in Triton's interpreter.

The numbers mean nothing there. That the parts run, find what is planted, survive what kills a worker, and that tables,
file and plots say what was found, does not need a device.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fuzz.cli import app
from fuzz.gpu import parts, plots, report, supervise
from fuzz.gpu.results import BadResults, Results

torch = pytest.importorskip("torch")
knobs = pytest.importorskip("triton").knobs

from fuzz.gpu import __main__ as worker  # noqa: E402
from fuzz.gpu import bits, correctness, launches, measure, session, sizes  # noqa: E402
from fuzz.gpu.data import Pool, Segment, World, exact, half_ulps  # noqa: E402
from kvcore.kernels import AttentionSpec  # noqa: E402

ROOT = Path(__file__).parents[2]
ALL = tuple(part.name for part in parts.PARTS)
CPU = torch.device("cpu")

interpreted = pytest.mark.skipif(not knobs.runtime.interpret, reason="needs TRITON_INTERPRET=1")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")


@pytest.fixture(scope="module")
def interpreter() -> Iterator[None]:
    """Triton's interpreter with a dot whose bits do not depend on its shape, as a matrix unit's do not."""
    repairs = pytest.importorskip("properties.attention.repairs")
    before = repairs.installed()
    repairs.install(dot="sequential")
    yield
    repairs.uninstall()
    if before is not None:
        repairs.install(dot=before)


class Pretended(str):
    """A CPU that says it is a CUDA device, so that what is only done for one is done: torch takes it for a name."""

    type = "cuda"
    index = 0


@contextlib.contextmanager
def pretending() -> Iterator[Any]:
    """torch.cuda for a `Pretended`: events read the wall clock, a graph replays kvcore's launches."""

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = time.perf_counter()

        def elapsed_time(self, other: Event) -> float:
            return 1000 * (other.at - self.at)

    class Graph:
        replays = 0
        launches: Any = ()

        def replay(self) -> None:
            Graph.replays += 1
            for launch in self.launches:
                launch()

    @contextlib.contextmanager
    def graph(made: Graph) -> Iterator[None]:
        with launches.recorded() as seen:
            yield
        made.launches = seen

    facts = SimpleNamespace(
        name="Pretended H200", major=9, minor=0, multi_processor_count=132, total_memory=2**37, L2_cache_size=2**26
    )
    stream = SimpleNamespace(wait_stream=lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in {
            "Event": Event,
            "CUDAGraph": Graph,
            "graph": graph,
            "Stream": lambda _: stream,
            "current_stream": lambda _: stream,
            "stream": lambda _: contextlib.nullcontext(),
            "current_device": lambda: 0,
            "set_device": lambda _: None,
            "synchronize": lambda _: None,
            "empty_cache": lambda: None,
            "get_device_properties": lambda _: facts,
            "mem_get_info": lambda _: (2**36, 2**37),
            "_sleep": lambda _: None,
        }.items():
            patch.setattr(torch.cuda, name, stand_in)
        patch.setattr(measure, "_FLUSH", 16)
        patch.setattr(measure, "_FEWEST", 1)
        yield Graph


def perform(
    path: Path, chosen: tuple[str, ...], small: sizes.Sizes = sizes.TINY, device: Any = CPU
) -> tuple[Results, list[str]]:
    """A worker's run on the CPU: (what it found, the lines that it showed)."""
    results = Results.fresh(path / "results.json", "test", 1, chosen)
    lines: list[str] = []
    session.run(device, results, chosen, until=time.monotonic() + 300, sizes=small, say=lines.append, seconds=0.01)
    return results, lines


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory, interpreter: None) -> tuple[Results, list[str]]:
    with pretending() as graphs:
        results = perform(tmp_path_factory.mktemp("gpu"), ALL, device=Pretended("cpu"))
    assert graphs.replays >= 8
    return results


def shown(results: Results) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        report.show(results, console)
    return capture.get()


# ---- all parts -------------------------------------------------------------------------------------------------------


@interpreted
def test_every_part_runs_and_every_check_holds(dry: tuple[Results, list[str]]) -> None:
    results, lines = dry
    assert {part["name"]: part["status"] for part in results.data["parts"]} == dict.fromkeys(ALL, "done")
    assert [check for check in results.data["checks"] if check["holds"] is not True] == []
    assert results.broken == results.failed == []
    assert len(results.data["checks"]) > 40
    assert {row["part"] for row in results.data["rows"]} == {"rates", "decode", "prefill", "tax", "moves"}
    assert {row["who"] for row in results.data["rows"]} >= {"kvcore", "sdpa flash", "sdpa math", "leaves of 512"}
    assert {row["axis"] for row in results.data["tables"]["bits"]} == set(bits.AXES)
    assert all(row["compared"] > 0 and not row["differing"] for row in results.data["tables"]["bits"])
    assert any("row-heads compared, 0 differ" in line for line in lines)
    measured = {goal["name"] for goal in results.data["goals"] if goal["measured"] is not None}
    assert measured >= {"decode-uniform", "decode-fp8", "prefill-rate", "prefill-flash", "prefill-chunked", "copy"}


@interpreted
def test_the_file_and_the_table_say_it(dry: tuple[Results, list[str]], tmp_path: Path) -> None:
    results, _ = dry
    read = Results.load(results.path)
    assert read.data == json.loads(json.dumps(results.data))
    assert "NaN" not in results.path.read_text()
    assert "Infinity" not in results.path.read_text()
    text = shown(read)
    assert text == shown(results)
    for words in ("one data set, many schedules", "Decode", "sdpa flash", "TFLOP/s", "leaves of 512", "Aimed at"):
        assert words in text
    total = sum(row["compared"] for row in read.data["tables"]["bits"])
    assert f"{total:,}" in text
    checks = len(read.data["checks"])
    assert text.rstrip().endswith(f"{checks:,} of {checks:,} checks hold")


@interpreted
def test_plots_come_from_the_file_alone(dry: tuple[Results, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = plots.draw(Results.load(dry[0].path), tmp_path)
    assert [path.name for path in written] == ["decode.png", "prefill.png", "price.png", "goals.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


# ---- what is planted is found ----------------------------------------------------------------------------------------

SMALL_BITS = replace(sizes.TINY, settings=(replace(sizes.TINY.settings[0], lengths=(20, 3), group=1),), row_heads=1)


@interpreted
def test_one_bit_is_found_and_ends_with_1(interpreter: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attend, calls = Pool.attend, []

    def plant(self: Pool, queries: Any, plan: Any, **options: Any) -> Any:
        out = attend(self, queries, plan, **options)
        calls.append(1)
        if len(calls) == 4:
            out.view(torch.int32)[2, 0, 5] ^= 1
        return out

    monkeypatch.setattr(Pool, "attend", plant)
    results, _ = perform(tmp_path, ("bits",), SMALL_BITS)
    (broken,) = results.broken
    assert broken["name"] == "bits: schedule"
    assert broken["differing"] == 1
    assert broken["compared"] > 20
    assert "whole prompts, mixed" in broken["said"]
    assert "1 of" in shown(results)
    monkeypatch.setattr(supervise, "watch", lambda *_, **__: results)
    ended = CliRunner().invoke(app, ["gpu", "--out", str(tmp_path)])
    assert ended.exit_code == 1, ended.output
    assert "1 check failed" in ended.output


@interpreted
def test_a_wrong_output_and_a_stray_write_are_found(
    interpreter: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(sizes.TINY, most_cases=2, most_sequences=3)
    attend, write = Pool.attend, World.write

    def off(self: Pool, queries: Any, plan: Any, **options: Any) -> Any:
        out = attend(self, queries, plan, **options)
        out[0] += out[0].abs().max() / 50
        return out

    def stray(self: World) -> None:
        write(self)
        idle = sorted(set(range(self.storage.config.num_blocks)) - {block for table in self.tables for block in table})
        self.storage.values(0)[idle[0]] = 1

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "attend", off)
        results, _ = perform(tmp_path, ("correctness",), few)
    assert len(results.broken) == 2
    with monkeypatch.context() as patch:
        patch.setattr(World, "write", stray)
        results, _ = perform(tmp_path, ("correctness",), few)
    assert len(results.broken) == 2
    assert all("slots that are nobody's" in check["said"] for check in results.broken)


@interpreted
def test_a_part_that_fails_leaves_the_others_alone(
    interpreter: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setitem(session._RUN, "rates", fail)
    results, _ = perform(tmp_path, ("rates", "moves"))
    assert [part["status"] for part in results.data["parts"]] == ["failed", "done"]
    assert "planted" in results.part("rates")["notes"][0]
    assert "failed to run: rates" in shown(results)


def test_a_lost_device_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(context: Any) -> None:
        context.check("planted", True, "seen")
        monkeypatch.setattr(torch.cuda, "synchronize", fail)
        fail(None)

    def fail(_: object) -> None:
        raise RuntimeError("an illegal memory access was encountered\nmore")

    monkeypatch.setitem(session._RUN, "rates", lose)
    with pretending(), pytest.raises(session.DeviceLost, match=r"illegal memory access was encountered$"):
        perform(tmp_path, ("rates", "moves"), device=Pretended("cpu"))
    kept = Results.load(tmp_path / "results.json")
    assert [part["status"] for part in kept.data["parts"]] == ["failed", "pending"]
    assert [check["name"] for check in kept.data["checks"]] == ["planted"]


def test_without_time_parts_are_skipped_and_said(tmp_path: Path) -> None:
    results = Results.fresh(tmp_path / "results.json", "test", 0, ALL)
    session.run(CPU, results, ALL, until=time.monotonic() + 1, sizes=sizes.TINY, say=lambda _: None)
    assert {part["status"] for part in results.data["parts"]} == {"skipped"}
    assert "nothing was run" in shown(results)


# ---- the command line ------------------------------------------------------------------------------------------------


def fuzz(*arguments: object) -> Any:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(argument) for argument in arguments])


def test_without_a_device_it_says_so_and_ends_with_4(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "gpu", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    assert done.returncode == 4, done.stdout + done.stderr
    assert "no device" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_usage(tmp_path: Path) -> None:
    assert fuzz("gpu", "--only", "nonsense").exit_code == 2
    assert fuzz("gpu", "--minutes", "-1").exit_code == 2
    missing = fuzz("gpu", "--plots", tmp_path / "none.json")
    assert missing.exit_code == 2
    other = tmp_path / "other.json"
    other.write_text('{"schema": 99}')
    assert fuzz("gpu", "--plots", other).exit_code == 2
    with pytest.raises(BadResults, match="schema 99"):
        Results.load(other)


def test_without_matplotlib_it_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    results = Results.fresh(tmp_path / "results.json", "test", 8, ALL)
    results.flush()
    said = fuzz("gpu", "--plots", results.path)
    assert said.exit_code == 0
    assert f"python -m fuzz gpu --plots {results.path}" in said.output


@pytest.mark.parametrize(
    ("status", "holds", "code"),
    [("done", True, 0), ("cut", None, 0), ("done", False, 1), ("failed", True, 3), ("skipped", None, 4)],
)
def test_exit_statuses(
    status: str, holds: bool | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results.fresh(tmp_path / "results.json", "test", 8, ("bits",))
    results.part("bits")["status"] = status
    results.check("bits", "planted", holds, "seen")
    monkeypatch.setattr(supervise, "watch", lambda *_, **__: results)
    ended = fuzz("gpu", "--out", tmp_path, "--json")
    assert ended.exit_code == code
    assert json.loads(ended.stdout)["checks"][0]["name"] == "planted"


def test_ctrl_c_ends_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervise, "watch", interrupted)
    ended = fuzz("gpu", "--out", tmp_path)
    assert ended.exit_code == 130
    assert "interrupted" in ended.output


def test_what_is_run() -> None:
    assert parts.chosen(()) == ALL
    assert parts.chosen([parts.Name.decode]) == ("rates", "decode")
    assert parts.chosen([parts.Name.bits]) == ("bits",)
    assert {name.value for name in parts.Name} == set(ALL)
    assert parts.limit("rates", 480, ALL[1:]) == pytest.approx(480 * 15 / sum(part.share for part in parts.PARTS))
    assert parts.limit("large", 77, ()) == 77


# ---- watching over workers -------------------------------------------------------------------------------------------

WORKER = """
import json, os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from fuzz.gpu.results import Results
asked = json.loads(sys.argv[1])
path = Path(asked["path"])
kind = {kind!r}
if kind == "no device":
    sys.exit(4)
if kind == "stillborn":
    sys.exit(9)
results = Results.load(path) if asked["resume"] else Results.fresh(path, asked["run"], 1, tuple(asked["parts"]))
for name in asked["parts"]:
    part = results.part(name)
    part.update(status="running", limit=0.0)
    results.flush()
    if name == "bits" and kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "bits" and kind == "hangs":
        time.sleep(60)
    part["status"] = "done"
    results.check(name, name, True, "seen")
    if name == "bits" and kind == "lost":
        part["status"] = "failed"
        results.flush()
        sys.exit(70)
results.flush()
"""


def watched(kind: str, tmp_path: Path, minutes: float = 1) -> tuple[Results, list[str]]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(root=str(ROOT), kind=kind))
    said: list[str] = []
    results = supervise.watch(
        tmp_path / "out" / "results.json",
        ("rates", "bits", "units"),
        minutes,
        say=said.append,
        command=(sys.executable, str(script)),
    )
    return results, said


@pytest.mark.parametrize(("kind", "note"), [("dies", "killed by signal 9"), ("lost", "")])
def test_another_worker_goes_on_where_one_died(kind: str, note: str, tmp_path: Path) -> None:
    results, said = watched(kind, tmp_path)
    assert [part["status"] for part in results.data["parts"]] == ["done", "failed", "done"]
    assert any("goes on with units" in line for line in said)
    assert note in "".join(results.part("bits")["notes"])
    assert Results.load(results.path).data == results.data
    assert [check["name"] for check in results.data["checks"] if check["name"] != "bits"] == ["rates", "units"]


def test_a_worker_that_never_comes_back_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_PATIENCE", 0.2)
    results, _ = watched("hangs", tmp_path)
    assert [part["status"] for part in results.data["parts"]] == ["done", "failed", "done"]


def test_the_time_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_ENDING", 0.2)
    start = time.monotonic()
    results, _ = watched("hangs", tmp_path, minutes=0.03)
    assert time.monotonic() - start < 10
    assert [part["status"] for part in results.data["parts"]] == ["done", "cut", "skipped"]


def test_no_worker_at_all(tmp_path: Path) -> None:
    with pytest.raises(supervise.NoDevice):
        watched("no device", tmp_path)
    with pytest.raises(supervise.WorkerFailed, match="status 9"):
        watched("stillborn", tmp_path)


def test_what_a_worker_does_with_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"path": str(tmp_path / "results.json"), "run": "r", "parts": ["rates", "bits"], "minutes": 1}
    request |= {"until": time.time() + 60, "resume": False, "quiet": False}
    done: list[Any] = []

    def run(device: Any, results: Results, chosen: Any, *, until: float, say: Any) -> None:
        done.append((device.type, [part["name"] for part in results.data["parts"]], chosen))
        assert 50 < until - time.monotonic() < 61
        say("[bold]going[/]")
        results.flush()
        if len(done) == 2:
            raise session.DeviceLost("gone [x]")

    monkeypatch.setattr(session, "run", run)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert worker.main(json.dumps(request)) == 4
    assert "Tesla T4 has compute capability 7.5" in capsys.readouterr().out
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert worker.main(json.dumps(request)) == 0
    assert capsys.readouterr().out == "going\n"
    request |= {"resume": True, "parts": ["bits"], "quiet": True}
    assert worker.main(json.dumps(request)) == supervise.LOST
    assert "gone [x]" in capsys.readouterr().err
    assert done == [("cuda", ["rates", "bits"], ["rates", "bits"]), ("cuda", ["rates", "bits"], ["bits"])]


# ---- its pieces ------------------------------------------------------------------------------------------------------


def test_all_pairs_occur_in_the_cases() -> None:
    axes = sizes.FULL.axes
    chosen = correctness.cases(axes)
    assert chosen == correctness.cases(axes)
    assert len(chosen) < 60
    for left in axes:
        for right in axes:
            if left < right:
                seen = {(getattr(case, left), getattr(case, right)) for case in chosen}
                assert len(seen) == len(axes[left]) * len(axes[right])


def test_the_oracle_is_the_reference() -> None:
    oracle = pytest.importorskip("properties.attention.oracle")
    spec = AttentionSpec(6, 2, 8, window=9, softcap=3.0, slopes=sizes.slopes(6))
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(shape, generator=generator) for shape in ((7, 6, 8), (20, 2, 8), (20, 2, 8)))
    right = oracle.exact(
        queries, keys, values, scale=spec.softmax_scale, window=9, softcap=3.0, slopes=spec.slopes
    ).output
    ours = exact(queries, keys, values, torch.arange(13, 20), spec)
    torch.testing.assert_close(ours, right, rtol=1e-12, atol=1e-12)
    # Some rows alone.
    few = exact(queries[[1, 5]], keys, values, torch.tensor([14, 18]), spec)
    torch.testing.assert_close(few, right[[1, 5]], rtol=1e-12, atol=1e-12)


def test_half_ulps() -> None:
    right = torch.tensor([[[1.0, 0.25], [3.0, -5.0], [0.0, 0.0], [2.0**-20, 0.0]]], dtype=torch.float64)
    found = half_ulps(right.to(torch.bfloat16), right, torch.bfloat16)
    assert found.tolist() == [[0.0, 0.0, 0.0, 0.0]]
    off = right + torch.tensor([[[2.0**-8, 0], [0, 2.0**-6], [0, 0], [2.0**-28, 0]]], dtype=torch.float64)
    assert half_ulps(off, right, torch.bfloat16).tolist() == [[1.0, 1.0, 0.0, 1.0]]
    assert half_ulps(off, right, torch.float16)[0, 0].item() == 8.0
    off[0, 1, 1] = torch.nan
    assert half_ulps(off, right, torch.bfloat16).isnan().tolist() == [[False, True, False, False]]


def test_differing_counts_rows_and_heads() -> None:
    base = torch.arange(24.0).view(4, 2, 3)
    rows = torch.tensor([3, 1, 1])
    out = base[rows].clone()
    assert bits.differing(out, base, rows) == 0
    out.view(torch.int32)[1, 1] ^= 1
    assert bits.differing(out, base, rows) == 1
    out[:] = torch.nan
    assert bits.differing(out, base, rows) == 6


@interpreted
def test_segments_are_rows_of_the_same_world(interpreter: None) -> None:
    spec = AttentionSpec(2, 1, 16)
    world = World(
        spec, [9, 1, 30], sizes.Format("float32"), CPU, block_size=4, spare=2, poison=True,
        cut=(sizes.TINY.tree, sizes.TINY.tiles),
    )  # fmt: skip
    segments = [Segment(2, 11, 30), Segment(0, 0, 9), Segment(1, 0, 1)]
    assert world.rows(segments).tolist() == [*range(21, 40), *range(9), 9]
    assert world.batch(segments).slot_mapping.max() == -1
    assert world.batch(world.whole(), write=True).slot_mapping.min() >= 0
    with launches.recorded() as seen:
        out = world.attend(world.queries[world.rows(segments)], world.plan(segments, schedule="split"))
    assert [type(launch.kernel).__name__ for launch in seen] == ["InterpretedFunction"] * len(seen)
    assert len(seen) >= 2
    right = torch.cat([world.exact(segment) for segment in segments])
    assert half_ulps(out, right, torch.float32).max() <= correctness.LIMITS[torch.float32]
    before = out.clone()
    seen[0].arguments[1].zero_()
    for launch in seen:
        launch()
    assert torch.equal(out, before)
    keys, values = Pool(spec, [8, 8], sizes.Format("float32"), CPU, block_size=4).contiguous()
    assert keys.shape == values.shape == (2, 1, 8, 16)


class _Clock:
    """Stands for torch.cuda: calls take the time that they add to `now`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capturing: bool = True) -> None:
        self.now = 0.0
        self.recording: list[Any] | None = None
        self.capturing = capturing
        clock = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = clock.now

            def elapsed_time(self, other: Event) -> float:
                return 1000 * (other.at - self.at)

        class Graph:
            def replay(self) -> None:
                for seconds in self.calls:
                    clock.now += seconds

        @contextlib.contextmanager
        def graph(made: Any) -> Iterator[None]:
            clock.recording = []
            yield
            if not clock.capturing:
                clock.recording = None
                raise RuntimeError("operation not permitted\nmore")
            made.calls, clock.recording = clock.recording, None

        stream = SimpleNamespace(wait_stream=lambda _: None)
        for name, stand_in in {
            "Event": Event,
            "CUDAGraph": Graph,
            "graph": graph,
            "Stream": lambda _: stream,
            "current_stream": lambda _: stream,
            "stream": lambda _: contextlib.nullcontext(),
            "synchronize": lambda _: None,
            "_sleep": lambda _: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)

    def call(self, seconds: float) -> None:
        if self.recording is not None:
            self.recording.append(seconds)
        else:
            self.now += seconds


def test_the_stopwatch_times_graphs_of_short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    stopwatch = measure.Stopwatch(torch.device("cuda"), 0.05)
    many = [lambda: clock.call(10e-6)] * 4
    timing = stopwatch.time(many, working_set=10**8)
    assert timing.seconds == pytest.approx(10e-6)
    assert timing.how == "events, graph of 200 calls"
    # Too little data for the caches to be cold: flushed, and only once through.
    stopwatch._scratch = torch.empty(1)
    timing = stopwatch.time(many[:1], working_set=10**6)
    assert timing.seconds == pytest.approx(10e-6)
    assert timing.how == "events, graph, 256 MB written before"
    long = stopwatch.race({"a": [lambda: clock.call(0.02)], "b": [lambda: clock.call(0.03)]}, working_set=10**9)
    assert [timing.seconds for timing in long.values()] == pytest.approx([0.02, 0.03])
    assert long["a"].how == "events"
    assert long["a"].rounds == long["b"].rounds == 7
    assert stopwatch.complaints == []


def test_what_cannot_be_captured_is_said_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch, capturing=False)
    stopwatch = measure.Stopwatch(torch.device("cuda"), 0.05)
    timing = stopwatch.time([lambda: clock.call(1e-3)] * 2, working_set=10**9)
    assert timing.seconds == pytest.approx(1e-3)
    assert timing.how == "events"
    assert stopwatch.complaints == ["no CUDA graph: operation not permitted; launched one by one instead"]


def test_lengths_of_the_settings_have_the_edges() -> None:
    for setting in sizes.FULL.settings:
        assert {1, 63, 64, 65, 511, 512, 513, 1025} <= set(setting.lengths)
        assert setting.spec.group == setting.group
    # Enough comparisons in a few rounds of the first setting.
    first = sizes.FULL.settings[0]
    assert sum(first.lengths) * first.kv_heads * first.group * 20 > 2.5e7
    assert np.prod([sum(first.lengths), 32, 128, 4]) < 2**30, "an output takes less than a GB"
