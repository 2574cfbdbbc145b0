"""Samples of a live cluster over time, for its plots: a file that does not grow for ever.

The newest are all there; of the older ones one in ten; of the oldest none. Each commit is whole but not
synced, so that a sample costs no wait for the disk.
"""

import sqlite3
import threading
from pathlib import Path

import msgspec

from fairlead.errors import RunError, StoreError
from fairlead.live.database import connect, readable, written_whole
from fairlead.live.views import Sample

APPLICATION = 0x464C4453  # "FLDS"
VERSION = 1
RAW = 10_000  # newest samples that are all kept
EVERY = 10  # of older ones, one in so many is
ROWS = 100_000  # and so many in all

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (number INTEGER PRIMARY KEY, time_s REAL NOT NULL, sample BLOB NOT NULL);
CREATE INDEX samples_time ON samples (time_s);
"""


class Samples:
    """See the module. Any thread may call it. A file that is damaged is set aside: plots are no reason for
    a cluster not to start."""

    def __init__(self, path: Path, raw: int = RAW, every: int = EVERY, rows: int = ROWS) -> None:
        self.path = path
        self.raw, self.every, self.rows = raw, every, rows
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Sample)

    def __enter__(self) -> "Samples":
        try:
            self._connection = self._connect()
        except RunError:
            self.path.replace(self.path.with_name(self.path.name + ".damaged"))
            for tail in ("-wal", "-shm"):
                self.path.with_name(self.path.name + tail).unlink(missing_ok=True)
            self._connection = self._connect()
        return self

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, APPLICATION, _SCHEMA, VERSION, durable=False)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def add(self, sample: Sample) -> None:
        """Add one, and thin out those that it makes old. Raises StoreError."""
        with self._lock:
            connection = self._opened()
            with written_whole(connection, self.path):
                added = connection.execute(
                    "INSERT INTO samples (time_s, sample) VALUES (?, ?)",
                    (sample.time_s, self._encoder.encode(sample)),
                )
                self._thin(connection, added.lastrowid or 0)

    def _thin(self, connection: sqlite3.Connection, newest: int) -> None:
        """At most two rows go for one that comes."""
        old = newest - self.raw
        oldest = old - (self.rows - self.raw) * self.every
        if old % self.every:
            connection.execute("DELETE FROM samples WHERE number = ?", (old,))
        connection.execute("DELETE FROM samples WHERE number <= ?", (oldest,))

    def since(self, since_s: float) -> list[Sample]:
        """Those from this time on, oldest first. Raises StoreError."""
        with self._lock, readable(self.path):
            rows = self._opened().execute(
                "SELECT sample FROM samples WHERE time_s >= ? ORDER BY time_s", (since_s,)
            )
            return [self._decoder.decode(sample) for (sample,) in rows]

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path}: is closed")
        return self._connection
