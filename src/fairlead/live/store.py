"""What a live cluster knows, on disk: its journal, jobs, nodes and users.

A directory with ``state.db`` (SQLite, WAL, synced at every commit), ``samples.db`` (see ``samples``) and
``server.lock``. What a transaction wrote is there after a crash once its block has ended; nothing is there
in halves. One thread writes; any thread reads, and sees what has been committed.

The journal is kept in segments. A segment begins with all that is needed to start from it (the records
of setup and state), so older ones are deleted, all but a few, and the file does not grow with time.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlead.errors import RunError
from fairlead.live.database import connect, readable, reader, written_whole
from fairlead.live.rows import OPEN_STATES, JobRow, NodeRow, StintRow, UserRow
from fairlead.live.samples import Samples
from fairlead.live.views import Sample
from fairlead.live.wrong import UNREADABLE

APPLICATION = 0x464C4431  # "FLD1"
VERSION = 1
KEYS_KEPT = 100_000  # newest keys of submissions
_CHUNK = 256  # journal records read at once

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE segments (number INTEGER PRIMARY KEY, first_seq INTEGER NOT NULL);
CREATE TABLE journal (seq INTEGER PRIMARY KEY, segment INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL, tenant TEXT NOT NULL,
                   open INTEGER NOT NULL, row BLOB NOT NULL);
CREATE INDEX jobs_open ON jobs (id) WHERE open = 1;
CREATE INDEX jobs_state ON jobs (state, id);
CREATE INDEX jobs_tenant ON jobs (tenant, id);
CREATE TABLE stints (job INTEGER NOT NULL, epoch INTEGER NOT NULL, open INTEGER NOT NULL,
                     row BLOB NOT NULL, PRIMARY KEY (job, epoch)) WITHOUT ROWID;
CREATE INDEX stints_open ON stints (job, epoch) WHERE open = 1;
CREATE TABLE nodes (name TEXT PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE users (user TEXT PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, ids BLOB NOT NULL);
"""

_Row = TypeVar("_Row")
_encode = msgspec.msgpack.Encoder().encode


class Transaction:
    """Changes that become durable together. Made by ``Store.transaction``."""

    def __init__(self, connection: sqlite3.Connection, keep_segments: int) -> None:
        self._connection = connection
        self._keep = keep_segments

    def append(self, records: Sequence[bytes]) -> None:
        """Journal records, behind those of the newest segment."""
        number = self._newest()
        if number is None:
            raise RunError("the journal has no segment yet to append records to")
        self._write(number, records)

    def new_segment(self, records: Sequence[bytes]) -> int:
        """Begin a segment with these records, delete the oldest, and return the number of the new one."""
        newest = self._newest()
        number = 0 if newest is None else newest + 1
        last = self._one("SELECT max(seq) FROM journal")
        first = 0 if last is None else last + 1
        self._connection.execute("INSERT INTO segments VALUES (?, ?)", (number, first))
        self._write(number, records)
        self._forget(number - self._keep)
        return number

    def put_jobs(self, rows: Iterable[JobRow]) -> None:
        """Insert or replace."""
        self._connection.executemany(
            "INSERT INTO jobs VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "state = excluded.state, tenant = excluded.tenant, open = excluded.open, row = excluded.row",
            ((row.id, row.state, row.tenant, row.open, _encode(row)) for row in rows),
        )

    def put_stints(self, rows: Iterable[StintRow]) -> None:
        """Insert or replace."""
        self._connection.executemany(
            "INSERT OR REPLACE INTO stints VALUES (?, ?, ?, ?)",
            ((row.job, row.epoch, row.ended_s is None, _encode(row)) for row in rows),
        )

    def put_node(self, row: NodeRow) -> None:
        """Insert or replace."""
        self._put("INSERT OR REPLACE INTO nodes VALUES (?, ?)", row.name, _encode(row))

    def delete_node(self, name: str) -> None:
        """Nothing happens if it is not there."""
        self._put("DELETE FROM nodes WHERE name = ?", name)

    def put_user(self, row: UserRow) -> None:
        """Insert or replace."""
        self._put("INSERT OR REPLACE INTO users VALUES (?, ?)", row.user, _encode(row))

    def delete_user(self, user: str) -> None:
        """Nothing happens if they are not there."""
        self._put("DELETE FROM users WHERE user = ?", user)

    def put_key(self, key: str, ids: Sequence[int]) -> None:
        """Remember which jobs a submission with this key made; the oldest of many keys are forgotten."""
        self._put("INSERT INTO keys (key, ids) VALUES (?, ?)", key, _encode(list(ids)))
        self._put("DELETE FROM keys WHERE number <= (SELECT max(number) FROM keys) - ?", KEYS_KEPT)

    def set_meta(self, key: str, value: str) -> None:
        """Insert or replace."""
        self._put("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)

    def _newest(self) -> int | None:
        return self._one("SELECT max(number) FROM segments")

    def _one(self, query: str) -> int | None:
        value: int | None = self._connection.execute(query).fetchone()[0]
        return value

    def _put(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, values)

    def _write(self, segment: int, records: Sequence[bytes]) -> None:
        self._connection.executemany(
            "INSERT INTO journal (segment, record) VALUES (?, ?)",
            ((segment, record) for record in records),
        )

    def _forget(self, number: int) -> None:
        """Delete this segment and those before it."""
        oldest = "(SELECT first_seq FROM segments WHERE number = ?)"
        self._put(f"DELETE FROM journal WHERE seq < {oldest}", number + 1)
        self._put("DELETE FROM segments WHERE number <= ?", number)


class Store:
    """See the module. Raises RunError in ``open`` for a directory that cannot be used, and StoreError
    later where the disk is full or fails; a transaction is then undone as a whole."""

    def __init__(self, directory: str | Path, keep_segments: int = 2) -> None:
        """keep_segments: how many segments of the journal to keep, the newest included."""
        self.directory = Path(directory)
        self.path = self.directory / "state.db"
        self.keep_segments = keep_segments
        self._closing = ExitStack()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._samples = Samples(self.directory / "samples.db")

    def open(self) -> "Store":
        """Lock the directory and open its files, or make them."""
        _make(self.directory)
        with ExitStack() as stack:
            stack.callback(os.close, _lock(self.directory))
            self._writer = connect(self.path, APPLICATION, _SCHEMA, VERSION, durable=True)
            stack.callback(self._writer.close)
            self._reader = reader(self.path)
            stack.callback(self._reader.close)
            stack.enter_context(self._samples)
            _sync(self.directory)
            self._closing = stack.pop_all()
        return self

    def close(self) -> None:
        """Close the files and leave the directory to others; a second call does nothing."""
        with self._writing, self._reading:
            self._closing.close()

    def __enter__(self) -> "Store":
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Changes made in the block are durable when it has ended, or none of them is."""
        with self._writing, written_whole(self._writer, self.path):
            yield Transaction(self._writer, self.keep_segments)

    # --- reads -----------------------------------------------------------------------------------
    def segment(self) -> tuple[int, Iterator[bytes]]:
        """Number and records of the newest segment; (-1, nothing) where there is none."""
        rows = self._rows("SELECT number, first_seq FROM segments ORDER BY number DESC LIMIT 1")
        if not rows:
            return -1, iter(())
        number, first = rows[0]
        return number, self._records(number, first)

    def _records(self, number: int, seq: int) -> Iterator[bytes]:
        query = (
            "SELECT seq, record FROM journal WHERE seq >= ? AND segment = ? ORDER BY seq LIMIT ?"
        )
        while rows := self._rows(query, seq, number, _CHUNK):
            for _, record in rows:
                yield record
            seq = rows[-1][0] + 1

    def open_jobs(self) -> list[JobRow]:
        """Those that have not ended, in order of id."""
        return self._decoded(JobRow, "SELECT row FROM jobs WHERE open = 1 ORDER BY id")

    def job(self, number: int) -> JobRow | None:
        """The job of this id."""
        found = self._decoded(JobRow, "SELECT row FROM jobs WHERE id = ?", number)
        return found[0] if found else None

    def jobs(
        self, state: str = "", tenant: str = "", after: int = -1, limit: int = 1000
    ) -> list[JobRow]:
        """Those behind id ``after`` in order of id. state: "" = all, "open" = not ended."""
        where, values = ["id > ?"], [after]  # type: tuple[list[str], list[object]]
        if state == "open" or state in OPEN_STATES:
            where.append("open = 1")  # few beside those of the past: the index to go by
        if state not in ("", "open"):
            where.append("+state = ?" if state in OPEN_STATES else "state = ?")
            values.append(state)
        if tenant:
            where.append("tenant = ?" if not state else "+tenant = ?")
            values.append(tenant)
        query = f"SELECT row FROM jobs WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        return self._decoded(JobRow, query, *values, limit)

    def last_job(self) -> int:
        """The largest id that was ever given to a job; -1 = none."""
        last: int | None = self._rows("SELECT max(id) FROM jobs")[0][0]
        return -1 if last is None else last

    def ended(self) -> dict[str, int]:
        """State -> how many jobs have ended in it."""
        query = "SELECT state, count(*) FROM jobs WHERE open = 0 GROUP BY state"
        return dict(self._rows(query))

    def records(self) -> int:
        """How many records the journal ever had."""
        last: int | None = self._rows("SELECT max(seq) FROM journal")[0][0]
        return 0 if last is None else last + 1

    def stints(self, job: int) -> list[StintRow]:
        """All starts of a job, in order."""
        return self._decoded(StintRow, "SELECT row FROM stints WHERE job = ? ORDER BY epoch", job)

    def open_stints(self) -> list[StintRow]:
        """The starts that have not ended, in order of job and start."""
        query = "SELECT row FROM stints WHERE open = 1 ORDER BY job, epoch"
        return self._decoded(StintRow, query)

    def nodes(self) -> list[NodeRow]:
        """In order of name."""
        return self._decoded(NodeRow, "SELECT row FROM nodes ORDER BY name")

    def users(self) -> list[UserRow]:
        """In order of name."""
        return self._decoded(UserRow, "SELECT row FROM users ORDER BY user")

    def key(self, key: str) -> list[int] | None:
        """The jobs of the submission that carried this key; None = there was none."""
        found = self._decoded(list[int], "SELECT ids FROM keys WHERE key = ?", key)
        return found[0] if found else None

    def meta(self, key: str) -> str | None:
        """What ``set_meta`` has set."""
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return rows[0][0] if rows else None

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reading, readable(self.path):
            return self._reader.execute(query, values).fetchall()

    def _decoded(self, kind: type[_Row], query: str, *values: object) -> list[_Row]:
        decoder = msgspec.msgpack.Decoder(kind)
        try:
            return [decoder.decode(row) for (row,) in self._rows(query, *values)]
        except UNREADABLE as problem:
            raise RunError(f"{self.path}: a row is damaged ({problem})") from None

    # --- samples ---------------------------------------------------------------------------------
    def add_sample(self, sample: Sample) -> None:
        """One round, for the plots. Not synced: the newest may be lost with the power."""
        self._samples.add(sample)

    def samples(self, since_s: float = 0.0) -> list[Sample]:
        """Those from this time on; the older, the fewer."""
        return self._samples.since(since_s)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sync(directory.parent)
    except FileExistsError:
        raise RunError(f"{directory}: cannot be used as a state directory (it is a file)") from None
    except OSError as problem:
        said = problem.strerror
        raise RunError(f"{directory}: cannot be used as a state directory ({said})") from None


def _sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock(directory: Path) -> int:
    """The file that one server holds; the kernel lets go of it however that server ends."""
    try:
        lock = os.open(directory / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise RunError(f"{directory}: cannot be used as a state directory ({problem})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise RunError(f"{directory}: another server is using this state directory") from None
    return lock
