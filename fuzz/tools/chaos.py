"""A campaign on two workers in which everything goes wrong that can, at random, and the account of it at the end.

    python -m fuzz.tools.chaos --seconds 3600 --actions 200
    python -m fuzz.tools.chaos --seconds 120 --actions 12 --seed 1

Workers and the supervisor are killed, interrupted, stopped for a while and continued; the disk is filled and freed.
What has ended is resumed. Targets are kvcore, kvcore with planted bugs, and one that ends its process. At the end every
planted bug must be among the findings, none twice, and nothing else.

The disk is a tmpfs that is mounted for it, so this needs root.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Annotated, Any

import typer

from properties.operations import Configuration
from properties.targets.kvcore import KvcoreTarget

__all__ = ["Exits", "main"]

_PLANTED = {
    "fuzz.zoo:NV-1": {"OWNERSHIP"},
    "fuzz.zoo:NV-7": {"OWNERSHIP", "PUBLISH", "FRESHNESS"},
    "fuzz.zoo:NV-3": {"RECOMPUTE"},
    "fuzz.zoo:KC-30": {"ALIASING"},
    "fuzz.tools.chaos:Exits": {"CRASH"},
}
"""By target, the properties that its bug may be met as."""

_DISK = 48 << 20
"""Bytes of the disk."""

_ENDS = (0, 1, 3, 4, 130, -signal.SIGKILL)
"""Statuses with which a campaign may end that is treated like this: never 2."""


class Exits(KvcoreTarget):
    """kvcore that ends its process when a pool of three blocks is reset."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self._three = configuration.num_blocks == 3

    def reset(self) -> None:
        if self._three:
            os._exit(0)
        super().reset()


@dataclass
class Night:
    """A campaign that is begun again whenever it has ended. folder: on the disk. said: what each of its runs has said
    last."""

    folder: Path
    plan: Path
    process: subprocess.Popen[str] | None = None
    ended: list[int] = field(default_factory=list)
    log: Path = Path()

    def go_on(self) -> bool:
        """Begin, or go on if it has ended. False once all of its budget is done."""
        if self.process is not None and self.process.poll() is None:
            return True
        if self.process is not None:
            self.ended.append(self.process.returncode)
        resume = ["--resume"] if self._cut_short() else []
        if not resume and (self.folder / "campaign.json").exists():
            return False
        command = [
            sys.executable,
            "-m",
            "fuzz",
            "run",
            "--campaign",
            str(self.plan),
            "--out",
            str(self.folder),
            *resume,
        ]
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"---- {' '.join(command)}\n")
            log.flush()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True, start_new_session=True
            )
        return True

    def _cut_short(self) -> bool:
        try:
            return not json.loads((self.folder / "campaign.json").read_text(encoding="utf-8"))["ended"]
        except (OSError, ValueError, KeyError):
            return False

    def workers(self) -> list[int]:
        if self.process is None:
            return []
        try:
            listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            return [int(one) for one in listed if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
        except OSError:
            return []


class Chaos:
    """What is done to a night, one action after the other."""

    def __init__(self, night: Night, disk: Path, draw: random.Random) -> None:
        self._night, self._disk, self._random = night, disk, draw
        self.done: Counter[str] = Counter()

    def act(self) -> None:
        """One action. Ends with everything running again and the disk free."""
        actions = {
            "killed a worker": lambda: self._to_worker(signal.SIGKILL),
            "terminated a worker": lambda: self._to_worker(signal.SIGTERM),
            "stopped a worker and continued it": lambda: self._stopped(self._a_worker()),
            "killed the supervisor": lambda: self._to_supervisor(signal.SIGKILL),
            "terminated the supervisor": lambda: self._to_supervisor(signal.SIGTERM),
            "interrupted the supervisor": lambda: self._to_supervisor(signal.SIGINT),
            "stopped the supervisor and continued it": lambda: self._stopped(self._supervisor()),
            "filled the disk and freed it": self._fill,
        }
        name = self._random.choice(sorted(actions))
        if actions[name]():
            self.done[name] += 1

    def _supervisor(self) -> int:
        process = self._night.process
        return process.pid if process is not None and process.poll() is None else 0

    def _a_worker(self) -> int:
        workers = self._night.workers()
        return self._random.choice(workers) if workers else 0

    def _to_worker(self, number: int) -> bool:
        return self._send(self._a_worker(), number)

    def _to_supervisor(self, number: int) -> bool:
        pid = self._supervisor()
        if not self._send(pid, number):
            return False
        assert self._night.process is not None
        with suppress(subprocess.TimeoutExpired):
            self._night.process.wait(40)
        return True

    def _send(self, pid: int, number: int) -> bool:
        if not pid:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def _stopped(self, pid: int) -> bool:
        if not self._send(pid, signal.SIGSTOP):
            return False
        sleep(self._random.uniform(0.5, 8.0))
        return self._send(pid, signal.SIGCONT)

    def _fill(self) -> bool:
        filler = self._disk / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * (1 << 16))
                file.flush()
        sleep(self._random.uniform(1.0, 6.0))
        filler.unlink(missing_ok=True)
        return True


def _account(folder: Path) -> tuple[list[str], dict[str, list[str]]]:
    """(what is wrong with the findings, the names of all by target)."""
    found: dict[str, list[str]] = {}
    wrong = []
    for path in sorted((folder / "findings").glob("*")):
        try:
            data = json.loads((path / "counterexample.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            wrong.append(f"lost: {path.name} cannot be read: {error}")
            continue
        found.setdefault(data["target"], []).append(path.name)
        if data["property"] not in _PLANTED.get(data["target"], set()):
            wrong.append(f"false: {data['property']} on {data['target']}: {data['message']}")
    for target in _PLANTED:
        names = found.get(target, [])
        if not names:
            wrong.append(f"lost: nothing is found on {target}")
        if len(names) > 1:
            wrong.append(f"twice: {target} has {', '.join(names)}")
    left = [path.name for path in folder.rglob("*.partial")]
    if left:
        wrong.append(f"left behind: {', '.join(left)}")
    return wrong, found


def _run(
    seconds: Annotated[float, typer.Option(help="Of all.")] = 3600.0,
    actions: Annotated[int, typer.Option(min=0, help="How often something goes wrong.")] = 200,
    seed: Annotated[int, typer.Option(help="What goes wrong, and when.")] = 1,
    log: Annotated[Path | None, typer.Option(help="Keep what the campaign's runs say in this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the account as JSON.")] = False,
) -> None:
    """Run it. Status 1 if a finding is lost, twice or false, or if a run of the campaign ended as none may."""
    draw = random.Random(seed)
    with TemporaryDirectory(prefix="chaos-") as place:
        disk = Path(place) / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "chaos", str(disk)], check=True)
        try:
            _chaos(Path(place), disk, draw, seconds, actions, log, as_json)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=False)


def _chaos(
    place: Path, disk: Path, draw: random.Random, seconds: float, actions: int, log: Path | None, as_json: bool
) -> None:
    plan = place / "chaos.toml"
    targets = ", ".join(f'"{target}"' for target in ("kvcore", *_PLANTED))
    plan.write_text(
        f"targets = [{targets}]\nbudget = {seconds:.0f}\nworkers = 2\nshrink = 10\nhang = 30\n"
        "[engines]\nwalk = 3\nhypothesis = 1\n",
        encoding="utf-8",
    )
    night = Night(disk / "night", plan, log=log or place / "log.txt")
    chaos = Chaos(night, disk, draw)
    began = monotonic()
    for number in range(actions):
        until = began + (number + draw.random()) * seconds / max(1, actions)
        while monotonic() < until:
            night.go_on()
            sleep(0.2)
        chaos.act()
    # What is left of the budget is done in peace, and everything is settled.
    while night.go_on():
        sleep(0.5)
    wrong, found = _account(night.folder)
    wrong += [f"a run of the campaign ended with status {status}" for status in night.ended if status not in _ENDS]
    account: dict[str, Any] = {
        "seconds": round(monotonic() - began),
        "actions": dict(sorted(chaos.done.items())),
        "runs": dict(sorted(Counter(night.ended).items())),
        "found": found,
        "wrong": wrong,
    }
    if as_json:
        print(json.dumps(account, indent=2))
    else:
        for name, value in account.items():
            print(f"{name}: {value}")
    if wrong:
        raise typer.Exit(1)


def main() -> None:
    typer.run(_run)


if __name__ == "__main__":
    main()
