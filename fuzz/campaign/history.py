"""The memory of a folder of campaigns: when, with what seed, how fast, and what was found. One SQLite file.

Summaries go in, as they are written to JSON; rows come out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["BadHistory", "Campaign", "DamagedHistory", "History", "bars"]

_SCHEMA = """
create table if not exists campaigns (
    id integer primary key, name text not null, seed text not null, began text not null, ended text,
    status integer, complaint text not null default '', targets text not null, workers integer not null,
    budget real not null, seconds real not null default 0, operations integer not null default 0,
    busy real not null default 0, version text not null default '', command text not null default '');
create table if not exists rates (
    campaign integer not null references campaigns, engine text not null, operations integer not null,
    seconds real not null, primary key (campaign, engine));
create table if not exists findings (
    campaign integer not null references campaigns, signature text not null, property text not null,
    message text not null, status text not null, hits integer not null, replays text not null,
    directory text not null, primary key (campaign, signature));
"""

_VERSION = 2
"""1 had no column `command`; a file of that version is brought up to this one when it is opened."""

KILLED = "killed: it never said how it ended"


class BadHistory(ValueError):
    """The file is no history, or a newer version's. Says which."""


class DamagedHistory(BadHistory):
    """It is no history of any version, or SQLite cannot read it any more."""


@dataclass
class Campaign:
    """One row, with its rates by engine (operations, worker seconds) and its findings (signature, property, message,
    status, hits; also those that the baseline knows and it did not meet). status: None while it runs, or if it was
    killed. command: what repeats it; "" if nothing does."""

    id: int
    name: str
    seed: str
    began: str
    ended: str | None
    status: int | None
    complaint: str
    targets: str
    workers: int
    budget: float
    seconds: float
    operations: int
    busy: float
    command: str = ""
    rates: dict[str, tuple[int, float]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.operations / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _COLUMNS},
            "operations_per_second": round(self.rate),
            "engines": {
                engine: {"operations": operations, "seconds": round(seconds, 3)}
                for engine, (operations, seconds) in self.rates.items()
            },
            "findings": self.findings,
        }


_COLUMNS = (
    "id",
    "name",
    "seed",
    "began",
    "ended",
    "status",
    "complaint",
    "targets",
    "workers",
    "budget",
    "seconds",
    "operations",
    "busy",
    "command",
)


class History:
    """The file at `path`, made when it is first needed. Every method opens it anew: a campaign may be killed at any
    time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self.path, timeout=10.0)) as connection, connection:
                version = connection.execute("pragma user_version").fetchone()[0]
                if version > _VERSION:
                    raise BadHistory(f"{self.path} is of a newer version of this tool")
                connection.executescript(_SCHEMA)
                if version == 1:
                    connection.execute("alter table campaigns add column command text not null default ''")
                if version != _VERSION:
                    connection.execute(f"pragma user_version = {_VERSION}")
                yield connection
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                # A full disk, or a folder that cannot be written: for the caller like any other file.
                raise OSError(f"{self.path}: {error}") from error
            raise DamagedHistory(f"{self.path} is no history of campaigns: {error}") from error

    def begin(self, summary: dict[str, Any], began: str, version: str = "") -> int:
        """Note that a campaign has begun; those that were still running were killed. Raises OSError, BadHistory."""
        with self._open() as connection:
            connection.execute("update campaigns set ended = began, complaint = ? where ended is null", (KILLED,))
            row = connection.execute(
                "insert into campaigns (name, seed, began, targets, workers, budget, version, command) "
                "values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    summary["name"],
                    summary["seed"],
                    began,
                    ", ".join(summary["targets"]),
                    summary["workers"],
                    summary["budget_seconds"],
                    version,
                    summary["command"],
                ),
            )
            return int(row.lastrowid or 0)

    def progress(self, campaign: int, operations: int, seconds: float) -> None:
        """What is known should it be killed now."""
        with self._open() as connection:
            connection.execute(
                "update campaigns set operations = ?, seconds = ? where id = ?", (operations, seconds, campaign)
            )

    def end(self, campaign: int, summary: dict[str, Any], ended: str) -> None:
        """Note how it ended. `summary` is the one that is written as JSON."""
        with self._open() as connection:
            connection.execute(
                "update campaigns set ended = ?, status = ?, complaint = ?, seconds = ?, operations = ?, busy = ? "
                "where id = ?",
                (
                    ended,
                    summary["status"],
                    summary["complaint"],
                    summary["seconds"],
                    summary["operations"],
                    summary["busy"],
                    campaign,
                ),
            )
            connection.executemany(
                "insert or replace into rates values (?, ?, ?, ?)",
                [(campaign, engine, row["operations"], row["seconds"]) for engine, row in summary["engines"].items()],
            )
            connection.executemany(
                "insert or replace into findings values (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        campaign,
                        entry["signature"]["id"],
                        entry["property"],
                        entry["message"],
                        entry["status"],
                        entry["hits"],
                        entry["replays"],
                        entry["directory"],
                    )
                    for entry in summary["findings"]
                ],
            )
            # What the baseline knows and this campaign did not meet: replayed, and clean or failing still.
            connection.executemany(
                "insert or ignore into findings values (?, ?, ?, ?, ?, 0, '', '')",
                [
                    (campaign, entry["signature"], entry["property"], entry["message"], entry["status"])
                    for entry in summary["replayed"]
                ],
            )

    def campaigns(self, last: int = 0) -> list[Campaign]:
        """Oldest first; the `last` so many, 0 for all. Raises OSError, BadHistory."""
        with self._open() as connection:
            rows = connection.execute(
                f"select {', '.join(_COLUMNS)} from campaigns order by id desc limit ?", (last or -1,)
            ).fetchall()
            found = [Campaign(*row) for row in reversed(rows)]
            for campaign in found:
                for engine, operations, seconds in connection.execute(
                    "select engine, operations, seconds from rates where campaign = ? order by engine", (campaign.id,)
                ):
                    campaign.rates[engine] = (operations, seconds)
                campaign.findings = [
                    dict(zip(("signature", "property", "message", "status", "hits", "replays"), row, strict=True))
                    for row in connection.execute(
                        "select signature, property, message, status, hits, replays from findings where campaign = ? "
                        "order by property, signature",
                        (campaign.id,),
                    )
                ]
            return found


_BARS = "▁▂▃▄▅▆▇█"


def bars(values: Sequence[float]) -> str:
    """A curve of one character a value, from 0 to the largest.

    >>> bars([0, 1, 2, 4])
    '▁▂▄█'
    """
    top = max(values, default=0.0)
    return "".join(_BARS[min(7, int(value / top * 7 + 1e-9))] if top > 0 else _BARS[0] for value in values)
