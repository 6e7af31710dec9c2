"""Workers on a Ray cluster, for `fuzz run --engine ray`; an extra.

    with connected("head:6379", 8) as cluster:       # "" starts Ray on this machine
        workers = RayWorkers(cluster, 8, monotonic, supervised, gpus=1)

Each place is an actor that runs *one supervised process on its own machine*: the same `Workers` that a campaign without
a cluster has. So a process that is killed, hangs or runs out of memory there is a `Died` with the unit that it was at,
as it is here. Files go along with tasks and come back with results: no storage is shared. Ray itself tries nothing
again: neither actors nor tasks.

An actor that dies on a machine that lives is a death like any other; what its process was doing is fetched from there.
Where a machine is lost, nobody knows: the task is given out once more, and nothing else is lost.

Ray is imported only when a cluster is asked for.

Also imports: ray.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import Any

from ..engines.engine import Clock
from ..engines.registry import engine_of
from ..runs.counterexample import write
from .executor import BACK_OFF, Done, Executor, ExecutorLost, TaskResult
from .place import Answer, Here, Place, fetched
from .tasks import Died, Task

__all__ = ["Cluster", "NoCluster", "NoRay", "RayWorkers", "connected"]

_REACH = 10.0
"""Seconds in which a cluster's address must answer; Ray itself would try for many minutes."""

_FETCH = 10.0
"""Seconds to ask a machine what the process of a dead actor was doing."""

_STARTING = 10.0
"""Seconds in which an actor is there, if there is room for it; a campaign's end waits so long for one to go again."""

_STILLBORN = 3
"""Actors in a row that die in every place before they are there: the cluster cannot run this package."""

_STORE = 100 << 20
"""Bytes of the object store of a Ray that is started here: tasks and results are small."""


class NoRay(Exception):
    """Ray is not installed. Says how to."""


class NoCluster(Exception):
    """The cluster cannot be reached, or Ray cannot be started here. Says which, and why."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray that this process is connected to. own: it was started here, for this campaign."""

    ray: Any
    address: str
    own: bool

    def room(self, gpus: float = 0.0) -> int:
        """Workers of one CPU and `gpus` GPUs that there is room for now, all the cluster's resources taken together."""
        resources = self.ray.cluster_resources()
        cpus = int(resources.get("CPU", 0))
        return min(cpus, int(resources.get("GPU", 0) / gpus)) if gpus else cpus


@contextmanager
def connected(address: str, workers: int) -> Iterator[Cluster]:
    """A connection to the Ray at `address` ("head:6379", "auto"), ended afterwards; "" starts one
    on this machine with a CPU for each of `workers`, whether or not it has so many, and stops it. About 4 s.

    Raises NoRay and NoCluster.
    """
    if find_spec("ray") is None:
        raise NoRay("Ray is not installed: pip install 'kvcore[ray]', or leave --engine ray out")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a test tool tells nobody that it runs
    options: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": "ERROR"}
    if not address:
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 leaves little on a machine that does other work
        options |= {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE}
    elif address != "auto":
        _reached(address)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray's own, about its next versions
            import ray

            ray.init(**options)
    except Exception as error:  # of many kinds, among them AssertionError
        said = " ".join(str(error).split()) or type(error).__name__
        what = f"the Ray cluster {address!r} cannot be reached" if address else "Ray cannot be started on this machine"
        raise NoCluster(f"{what}: {said}") from error
    try:
        yield Cluster(ray, address, not address)
    finally:
        ray.shutdown()


def _reached(address: str) -> None:
    """Does anybody listen there? Raises NoCluster."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
    except (OSError, ValueError, OverflowError) as error:
        raise NoCluster(
            f"the Ray cluster {address!r} cannot be reached: {error}; give its head's host:port, or auto"
        ) from None


@dataclass(slots=True)
class _Seat:
    """One worker's place as it is seen from here: its actor, and what that is doing. awaited: its answer to come.
    since: when that was asked for."""

    actor: Any = None
    here: Here | None = None
    task: Task | None = None
    awaited: Any = None
    since: float = 0.0
    deaths: int = 0
    not_before: float = 0.0


class RayWorkers:
    """`count` places on a cluster, an `Executor`. make: makes the one supervised process of a place, on its machine; it
    is given a folder there. gpus: what each place takes of them, perhaps a part; Ray then sets CUDA_VISIBLE_DEVICES.
    hang: seconds without a word after which such a process is ended.

    A place that the cluster has no room for yet waits for it. What cannot go on at all raises ExecutorLost.
    """

    def __init__(
        self,
        cluster: Cluster,
        count: int,
        clock: Clock,
        make: Callable[[Path], Executor],
        *,
        gpus: float = 0.0,
        hang: float = 120.0,
    ) -> None:
        self._ray = cluster.ray
        self._clock = clock
        self._hang = hang
        self._make: Callable[[], Any] = lambda: (
            self._ray.remote(Place)
            .options(num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0, max_concurrency=1)
            .remote(make)
        )
        self._seats = [_Seat() for _ in range(count)]
        self._unsent: list[Done | Died] = []
        self._busy = 0.0
        self.idle()

    def busy(self) -> float:
        """Seconds that workers have spent on tasks, all together."""
        now = self._clock()
        return self._busy + sum(now - seat.since for seat in self._seats if seat.task is not None)

    def deaths(self) -> int:
        """The least number of processes in a row that any place has seen die before they finished a task."""
        return min(seat.deaths for seat in self._seats)

    def running(self) -> list[Task]:
        return [seat.task for seat in self._seats if seat.task is not None]

    def under_way(self) -> list[tuple[Task, int]]:
        """None can be asked: what they have done is on their machines."""
        return []

    def pids(self) -> list[int]:
        """Of the actors that are there, on whatever machine."""
        return [seat.here.pid for seat in self._seats if seat.here is not None]

    def idle(self) -> int:
        """How many tasks can be submitted now. Asks for actors whose time has come."""
        now = self._clock()
        for seat in self._seats:
            if seat.actor is None and now >= seat.not_before:
                seat.actor, seat.since = self._make(), now
                seat.awaited = seat.actor.here.remote()
        return sum(seat.here is not None and seat.task is None for seat in self._seats)

    def submit(self, task: Task) -> None:
        """Give it to an idle worker; there must be one."""
        seat = next(seat for seat in self._seats if seat.here is not None and seat.task is None)
        sent = _read_by(task)
        try:
            text = None if sent is None else sent.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            self._unsent.append(Done(task, TaskResult(task, error=f"{sent} cannot be read: {error}")))
            return
        seat.task, seat.since = task, self._clock()
        seat.awaited = seat.actor.perform.remote(task, text)

    def events(self, timeout: float) -> list[Done | Died]:
        """What has happened since; waits for something for at most `timeout` seconds. Raises ExecutorLost."""
        found, self._unsent = self._unsent, []
        waiting = {seat.awaited: seat for seat in self._seats if seat.awaited is not None}
        if found or not waiting:
            sleep(0 if found else timeout)
            return found
        with self._going_on():
            ready, rest = self._ray.wait(list(waiting), num_returns=1, timeout=timeout)
            if rest:
                ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for one in ready:
            found += self._taken(waiting[one])
        now = self._clock()
        for seat in self._seats:
            if seat.task is not None and now - seat.since > seat.task.seconds + 4 * self._hang + 60:
                # Its process would have been ended long before: the machine does not answer.
                found += self._bury(seat, None)
        return found

    def close(self, patience: float = 0.0) -> None:
        """End all: the idle at once, the others after `patience` seconds. What these have found is brought here."""
        until = self._clock() + patience
        with suppress(Exception):
            while self.running() and self._clock() < until:
                self.events(0.2)
        now = self._clock()
        # One that is just starting has a folder too, and ends as soon as it is there. One that has waited for longer
        # waits for room, and has none.
        idle = [
            seat.actor.end.remote()
            for seat in self._seats
            if seat.actor is not None and seat.task is None and (seat.here is not None or now - seat.since < _STARTING)
        ]
        left = []
        with suppress(Exception):
            for seat in self._seats:
                if seat.task is not None and seat.here is not None:
                    self._ray.kill(seat.actor)
                    left.append(self._asked(seat.here, seat.task, "was ended"))
            for one in self._ray.wait(left, num_returns=len(left), timeout=_FETCH)[0] if left else ():
                with suppress(Exception):
                    _unpacked(self._ray.get(one))
            if idle:
                self._ray.wait(idle, num_returns=len(idle), timeout=_STARTING)
        for seat in self._seats:
            if seat.actor is not None:
                with suppress(Exception):
                    self._ray.kill(seat.actor)
            seat.actor = seat.here = seat.task = seat.awaited = None

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        try:
            yield
        except (self._ray.exceptions.RaySystemError, ConnectionError) as error:
            raise ExecutorLost(f"the Ray cluster is lost: {error}; --resume goes on when it is back") from error

    def _taken(self, seat: _Seat) -> list[Done | Died]:
        """What a place's actor has answered, or what became of it."""
        exceptions, task = self._ray.exceptions, seat.task
        try:
            with self._going_on():
                value = self._ray.get(seat.awaited)
        except exceptions.RayTaskError as error:  # it lives, and this room's part of it has failed
            if task is None:
                return self._bury(seat, error)
            self._rest(seat)
            return [Done(task, TaskResult(task, error=str(error)))]
        except exceptions.RayError as error:
            return self._bury(seat, error)
        if task is None:
            seat.here, seat.awaited = value, None
            return []
        self._rest(seat)
        event: Done | Died = _unpacked(value)
        seat.deaths = seat.deaths + 1 if isinstance(event, Died) and event.unit < 0 else 0
        return [event]

    def _rest(self, seat: _Seat) -> None:
        self._busy += self._clock() - seat.since
        seat.task = seat.awaited = None

    def _bury(self, seat: _Seat, error: Exception | None) -> list[Done | Died]:
        """Its actor is dead, or is ended now."""
        with suppress(Exception):
            self._ray.kill(seat.actor)
        task, here = seat.task, seat.here
        seat.actor = seat.here = seat.awaited = seat.task = None
        seat.deaths += 1
        now = self._clock()
        seat.not_before = now + BACK_OFF[min(seat.deaths, len(BACK_OFF) - 1)]
        if here is None:
            self._never(error)
        if task is None or here is None:
            return []
        self._busy += now - seat.since
        how = "was ended with its Ray worker"
        if "NODE_OUT_OF_MEMORY" in str(error):
            how = "was ended by Ray: its machine was short of memory"
        answer = self._fetch(here, task, how)
        if answer is None:
            died = Died(task, "was lost with its machine", -1, 0, now - seat.since, here.pid, lost=True)
        else:
            event = _unpacked(answer)
            assert isinstance(event, Died)
            died = replace(event, seconds=now - seat.since, pid=here.pid)
        return [died]

    def _never(self, error: Exception | None) -> None:
        """An actor has died before it was there. If that is all that they do, there is no use in going on."""
        if all(seat.here is None and seat.deaths >= _STILLBORN for seat in self._seats):
            said = str(error).strip().splitlines() or [""]
            raise ExecutorLost(f"no worker can be started on the Ray cluster: {said[-1]}") from error

    def _asked(self, here: Here, task: Task, how: str) -> Any:
        """What `fetched` gives on a dead actor's machine, to come."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(here.node, soft=False)
        fetch = self._ray.remote(fetched).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        return fetch.remote(task, here.folder, how)

    def _fetch(self, here: Here, task: Task, how: str) -> Answer | None:
        """What a dead actor has left on its machine; None if that does not answer."""
        try:
            if not any(node["NodeID"] == here.node and node["Alive"] for node in self._ray.nodes()):
                return None
            answer = self._ray.get(self._asked(here, task, how), timeout=_FETCH)
        except Exception:  # whatever it is, nothing can be known
            return None
        assert isinstance(answer, Answer)
        return answer


def _read_by(task: Task) -> Path | None:
    """The file of this machine that the task reads."""
    if task.kind in ("settle", "verify"):
        return Path(task.path)
    stream = task.stream if task.kind == "hunt" else None
    if stream is not None and stream.trace and engine_of(stream.engine).reads_trace:
        return Path(stream.trace)
    return None


def _unpacked(answer: Answer) -> Done | Died:
    """The answer's files, put where those of a worker of this machine would be, and its event."""
    event, task = answer.event, answer.event.task
    unsaved: dict[str, str] = {}
    for name, hit in answer.hits.items():
        try:
            write(hit, Path(task.folder) / name)
        except OSError as error:
            unsaved[name] = str(error)
    if answer.written is not None:
        with suppress(OSError):  # then the finding is without its operations
            Path(task.path).write_text(answer.written, encoding="utf-8")
    if isinstance(event, Done):
        for number, found in enumerate(event.result.hits):
            name = Path(found.path).name
            if name in unsaved:  # the campaign makes room, and tries once more
                found = replace(found, path="", inline=answer.hits[name], error=unsaved[name])
            elif name:
                found = replace(found, path=str(Path(task.folder) / name))
            event.result.hits[number] = found
    return event
