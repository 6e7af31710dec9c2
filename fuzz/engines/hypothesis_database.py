"""Where Hypothesis keeps what it found, for campaigns whose workers share it: a folder, or a Redis (an extra).

A Redis that is lost costs a warning and nothing else: every campaign can do without it.

It is imported only when a database is asked for.

Also imports: hypothesis, redis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import TypeVar
from urllib.parse import urlsplit

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

__all__ = ["examples"]

Result = TypeVar("Result")

_ANSWER = 2.0
"""Seconds in which a Redis must answer."""

_AGAIN = 60.0
"""Seconds for which one that did not answer is left alone: a worker waits for it a thirtieth of its time at most."""

_opened: dict[tuple[str, str], ExampleDatabase] = {}


def examples(name: str, part: str, warn: Callable[[str], None]) -> ExampleDatabase:
    """The database called `name`: the URL of a Redis, or a folder. Opened once a process. warn: given a sentence
    whenever it is lost. part: which of its parts, each on its own: an example that does not fail on one target is
    deleted, and may be all that is known of another's bug."""
    database = _opened.get((name, part))
    if database is None:
        if "://" in name:
            database = _Shared(name, part)
        else:
            database = DirectoryBasedExampleDatabase(Path(name) / re.sub(r"\W+", "-", part))
        _opened[name, part] = database
    if isinstance(database, _Shared):
        database.warn = warn
    return database


class _Shared(ExampleDatabase):
    """One in a Redis, which is empty while that does not answer."""

    def __init__(self, url: str, part: str) -> None:
        super().__init__()
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import RedisError
        from redis.retry import Retry

        client = Redis.from_url(
            url, socket_connect_timeout=_ANSWER, socket_timeout=_ANSWER, retry=Retry(NoBackoff(), 0)
        )
        self.warn: Callable[[str], None] = lambda _: None
        self._database = RedisExampleDatabase(client, key_prefix=f"hypothesis-example:{part}:".encode())
        self._errors = (RedisError, OSError)
        self._name = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
        self._not_before = 0.0

    def _tried(self, use: Callable[[], Result], otherwise: Result) -> Result:
        if monotonic() < self._not_before:
            return otherwise
        try:
            return use()
        except self._errors as error:
            self._not_before = monotonic() + _AGAIN
            self.warn(f"the example database {self._name} does not answer, and Hypothesis goes on without: {error}")
            return otherwise

    def fetch(self, key: bytes) -> Iterable[bytes]:
        return self._tried(lambda: list(self._database.fetch(key)), [])

    def save(self, key: bytes, value: bytes) -> None:
        self._tried(lambda: self._database.save(key, value), None)

    def delete(self, key: bytes, value: bytes) -> None:
        self._tried(lambda: self._database.delete(key, value), None)

    def move(self, src: bytes, dest: bytes, value: bytes) -> None:
        self._tried(lambda: self._database.move(src, dest, value), None)
