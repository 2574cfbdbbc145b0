"""The outcomes of forecasts about jobs, on disk: a file of its own that does not grow for ever.

Only jobs that have ended are in it. Each commit is whole but not synced; a file that is damaged, or that
another version has written, is set aside, and the log says so: forecasts then begin with what is assumed of
them.
"""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fairlead.cluster.forecasting.calibration import ForecastOutcome
from fairlead.cluster.store.database import (
    DatabaseLayout,
    connect,
    readable,
    written_whole,
)
from fairlead.errors import RunError, StoreError

_log = logging.getLogger(__name__)
APPLICATION = 0x464C4446  # "FLDF"
VERSION = 2  # 1: without ``running``, by which outcomes are told apart
ROWS = 5_000  # newest that are kept
UNUSED_SUFFIX = ".unused"  # behind the name of a file that cannot be used

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE outcomes (number INTEGER PRIMARY KEY, outcome BLOB NOT NULL);
"""


def _created(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('schema', ?)", (str(VERSION),))


_LAYOUT = DatabaseLayout(application=APPLICATION, version=VERSION, schema=_SCHEMA, created=_created)


class Outcomes:
    """See the module. Any thread may call it. Raises StoreError where the disk fails."""

    def __init__(self, path: Path, rows: int = ROWS) -> None:
        self.path = path
        self.rows = rows
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the file, or make it."""
        try:
            self._connection = self._connect()
        except RunError as problem:
            aside = self._aside()
            _log.warning(
                "%s: what forecasts were worth is learned anew; the file is kept as %s",
                problem,
                aside.name,
            )
            for tail in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + tail).replace(f"{aside}{tail}")
            self._connection = self._connect()

    def _aside(self) -> Path:
        """A name that nothing has."""
        aside, number = self.path.with_name(self.path.name + UNUSED_SUFFIX), 1
        while os.path.lexists(aside):
            number += 1
            aside = self.path.with_name(f"{self.path.name}{UNUSED_SUFFIX}-{number}")
        return aside

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, _LAYOUT, durable=False)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def add(self, outcomes: Sequence[ForecastOutcome]) -> None:
        """Add some, and forget the oldest of many."""
        with self._lock:
            connection = self._opened()
            with written_whole(connection, self.path):
                connection.executemany(
                    "INSERT INTO outcomes (outcome) VALUES (?)",
                    ((msgspec.msgpack.encode(outcome),) for outcome in outcomes),
                )
                connection.execute(
                    "DELETE FROM outcomes WHERE number <= (SELECT max(number) FROM outcomes) - ?",
                    (self.rows,),
                )

    def all(self) -> list[ForecastOutcome]:
        """Oldest first."""
        decoder = msgspec.msgpack.Decoder(ForecastOutcome)
        with self._lock, readable(self.path):
            rows = self._opened().execute("SELECT outcome FROM outcomes ORDER BY number").fetchall()
        return [decoder.decode(row) for (row,) in rows]

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path}: is closed")
        return self._connection
