"""Samples of a live cluster over time, for its plots: a file that does not grow for ever.

The newest are all there; of the older ones one in ten; of the oldest none. Each commit is whole but not
synced, so that a sample costs no wait for the disk.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from fairlead.cluster.protocol.api_models import Sample
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.cluster.store.database import (
    DATABASE_ERRORS,
    DatabaseLayout,
    connect,
    readable,
    reader,
    set_aside,
    written_whole,
)
from fairlead.errors import RunError, StoreError

APPLICATION = 0x464C4453  # "FLDS"
VERSION = 2
RAW = 10_000  # newest samples that are all kept
THINNING_FACTOR = 10  # of older ones, one in so many is
ROWS = 100_000  # and so many in all

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (number INTEGER PRIMARY KEY, time_s REAL NOT NULL, sample BLOB NOT NULL);
CREATE INDEX samples_time ON samples (time_s);
"""


def _created(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('schema', ?)", (str(VERSION),))


_LAYOUT = DatabaseLayout(application=APPLICATION, version=VERSION, schema=_SCHEMA, created=_created)
_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class Samples:
    """See the module. Any thread may call it. A file that is damaged is set aside: plots are no reason for
    a cluster not to start."""

    def __init__(
        self, path: Path, raw: int = RAW, every: int = THINNING_FACTOR, rows: int = ROWS
    ) -> None:
        self.path = path
        self.raw, self.every, self.rows = raw, every, rows
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Sample)

    def __enter__(self) -> "Samples":
        try:
            self._connection = self._connect()
        except RunError as problem:
            self._start_anew(problem)
        return self

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, _LAYOUT, durable=False)

    def _start_anew(self, problem: Exception) -> None:
        """Set a damaged file aside, under a name that no other has, and begin another."""
        self._close()
        aside = set_aside(self.path)
        self._connection = self._connect()
        _log.warning("%s; it is now %s, and the plots begin anew", problem, aside)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._close()

    def add(self, sample: Sample) -> None:
        """Add one, and thin out those that it makes old. Raises StoreError."""
        with self._lock:
            self._despite_damage(lambda: self._add(sample))

    def _add(self, sample: Sample) -> None:
        connection = self._opened()
        with written_whole(connection, self.path):
            added = connection.execute(
                "INSERT INTO samples (time_s, sample) VALUES (?, ?)",
                (sample.time_s, self._encoder.encode(sample)),
            )
            self._thin(connection, added.lastrowid or 0)

    def _thin(self, connection: sqlite3.Connection, newest: int) -> None:
        """Thin out old rows: at most two go for one that comes."""
        old = newest - self.raw
        oldest = old - (self.rows - self.raw) * self.every
        if old % self.every:
            connection.execute("DELETE FROM samples WHERE number = ?", (old,))
        connection.execute("DELETE FROM samples WHERE number <= ?", (oldest,))

    def since(self, since_s: float) -> list[Sample]:
        """Return the samples from this time on, oldest first. Raises StoreError."""
        with self._lock:
            return self._despite_damage(lambda: self._since(since_s))

    def _since(self, since_s: float) -> list[Sample]:
        with readable(self.path):
            rows = self._opened().execute(
                "SELECT sample FROM samples WHERE time_s >= ? ORDER BY time_s", (since_s,)
            )
            return [self._decoder.decode(sample) for (sample,) in rows]

    def _despite_damage(self, do: Callable[[], _Result]) -> _Result:
        """Once more with a new file where the old one turns out to be damaged."""
        try:
            return do()
        except StoreError as problem:
            cause = problem.__cause__
            if type(cause) is not sqlite3.DatabaseError:
                raise  # a full disk, for example: the file is as it was
            self._start_anew(problem)
        except UNREADABLE as problem:
            self._start_anew(RunError(f"{self.path}: a sample is damaged ({problem})"))
        return do()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path}: is closed")
        return self._connection


def is_whole(path: Path) -> bool:
    """Return whether SQLite can read the file. Nothing is written."""
    try:
        with closing(reader(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except (RunError, *DATABASE_ERRORS):  # the first where it is no file
        return False
