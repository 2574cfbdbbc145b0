"""The state of a live cluster, on disk: its journal, jobs, nodes and users.

A directory with ``state.db`` (SQLite, WAL, synced at every commit), ``state.mark`` (see ``marker``),
``samples.db`` (see ``samples``) and ``server.lock``. What a transaction wrote is there after a crash once
its block has ended; nothing is there in halves. One thread writes; any thread reads, and sees what has been
committed. A state that is damaged, or lacks what was acknowledged, is refused when it is opened; a row that
is damaged later, when it is read.

The journal is kept in segments. A segment begins with all that is needed to start from it (the records
of setup and state), so older ones are deleted, all but a few, and the file does not grow with time.
"""

import fcntl
import json
import logging
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlead.client.durable import make_durable
from fairlead.cluster.protocol.api_models import Sample
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.cluster.store.checkpointer import Checkpointer
from fairlead.cluster.store.checksums import SIZE
from fairlead.cluster.store.database import (
    DATABASE_ERRORS,
    connect,
    readable,
    reader,
    version_of,
    written_whole,
)
from fairlead.cluster.store.marker import NAME as MARKER
from fairlead.cluster.store.marker import (
    NO_COMMIT,
    Mark,
    Marker,
    MarkerContent,
)
from fairlead.cluster.store.removed import REMOVED, read_removed
from fairlead.cluster.store.replaced import OwnFiles
from fairlead.cluster.store.rows import (
    OPEN_STATES,
    AttemptRow,
    JobRow,
    NodeRow,
    SearchRow,
    TrialRow,
    UserRow,
)
from fairlead.cluster.store.samples import Samples
from fairlead.cluster.store.schema import (
    ATTEMPTS,
    JOBS,
    JOURNAL,
    KEYS,
    META,
    NODES,
    SEARCHES,
    SEGMENTS,
    TRIALS,
    USERS,
    VERSION,
    Commit,
    SqlTable,
    commit_all_rows,
    newest_commit,
    write_schema,
)
from fairlead.cluster.store.transaction import Transaction as Transaction
from fairlead.cluster.store.verification import (
    STRUCTURE_S,
    DamageError,
    check_row,
    missing,
    state_layout,
    verify_file,
)
from fairlead.errors import RunError, StoreError

NAME = "state.db"
RESTORING = "state.db.new"  # what a restore makes ``state.db`` of
LOCK = "server.lock"
_CHUNK = 256  # journal records read at once

_Row = TypeVar("_Row")
_log = logging.getLogger(__name__)


class Store:
    """See the module. Raises RunError in ``open`` for a directory that cannot be used, and StoreError
    later where the disk is full or fails; a transaction is then undone as a whole. ReplacedError where the
    files are no longer those that it wrote."""

    def __init__(self, directory: str | Path, keep_segments: int = 2) -> None:
        """keep_segments: how many segments of the journal to keep, the newest included."""
        self.directory = Path(directory)
        self.path = self.directory / NAME
        self.marker = Marker(self.directory / MARKER)
        self.keep_segments = keep_segments
        self._closing = ExitStack()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._own_files: OwnFiles
        self.newest: Commit | None = None  # that is durable and marked; None = it is not open
        self._marks = True  # can the marker be written?
        self._samples = Samples(self.directory / "samples.db")

    def open(self) -> "Store":
        """Lock the directory and open its files, or make them."""
        _make(self.directory)
        with ExitStack() as stack:
            stack.callback(os.close, lock(self.directory))
            self._writer = self._open_state()
            stack.callback(self._writer.close)
            self._checkpointer = Checkpointer(
                self.path, self._writer, copying=self._own_files.copying
            )
            stack.callback(self._checkpointer.close)
            stack.callback(self.marker.close)
            self._reader = reader(self.path)
            stack.callback(self._reader.close)
            stack.enter_context(self._samples)
            make_durable(self.directory)
            self._closing = stack.pop_all()
        return self

    def open_for_reading(self) -> "Store":
        """Read beside the server that has the directory, what it has committed; nothing can be written."""
        with readable(self.path):
            self._reader = reader(self.path)
        self._closing.callback(self._reader.close)
        return self

    def _open_state(self) -> sqlite3.Connection:
        """The database, verified and level with its marker. Raises RunError."""
        found = self._find_mark()
        version = self._version(found)
        if version:
            verify_file(self.path, found, STRUCTURE_S)
        self._prepare_marker(found, new=version == 0)
        writer = connect(self.path, state_layout(_begin), durable=True)
        try:
            if version not in (0, VERSION):
                _log.info("%s: brought from schema %d to %d", self.path, version, VERSION)
                verify_file(self.path, None, STRUCTURE_S)
            self.newest = newest_commit(writer)
            self._level_marker(found, self.newest)
            self._own_files = OwnFiles(self.path, self.marker)
        except BaseException:
            writer.close()
            raise
        return writer

    def _find_mark(self) -> MarkerContent:
        try:
            return self.marker.read()
        except OSError as problem:
            raise RunError(f"{self.marker.path}: cannot be read ({problem.strerror})") from None

    def _version(self, found: MarkerContent) -> int:
        """Schema of the database; 0 = there is none yet. Raises DamageError where there was one."""
        try:
            there = self.path.exists() and self.path.stat().st_size > 0
        except OSError as problem:
            raise RunError(f"{self.path}: cannot be read ({problem.strerror})") from None
        log = self.path.with_name(NAME + "-wal")
        if not there:
            fresh = not found.exists or (found.mark is not None and found.mark.number == 0)
            if not fresh or (log.exists() and log.stat().st_size > 0):
                raise missing(self.path, found.mark)
            if self.path.with_name(RESTORING).exists():
                raise DamageError(self.path, "is missing: a restore was begun, and not completed")
            return 0
        return self._schema_of_file(found)

    def _schema_of_file(self, found: MarkerContent) -> int:
        try:
            with closing(reader(self.path)) as connection:
                empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if empty and found.mark is not None and found.mark.number:
                    raise missing(self.path, found.mark)
                return 0 if empty else version_of(connection, self.path, state_layout(_begin))
        except DATABASE_ERRORS as problem:
            what = f"cannot be used as the state of a cluster ({problem})"
            if found.exists:
                raise DamageError(self.path, what) from None
            raise RunError(f"{self.path}: {what}") from None

    def _prepare_marker(self, found: MarkerContent, *, new: bool) -> None:
        """Make the marker before the first commit that it is to mark. Raises RunError."""
        try:
            if new and found.exists and (found.mark is None or found.mark.number):
                raise DamageError(self.path, "is of an earlier version than its state.mark")
            self.marker.open()
        except OSError as problem:
            self.marker.close()
            raise RunError(f"{self.marker.path}: cannot be made ({problem.strerror})") from None

    def _level_marker(self, found: MarkerContent, newest: Commit | None) -> None:
        """After a crash the database may be ahead by a commit; a torn record is written anew."""
        assert newest is not None
        mark = Mark(newest.number, newest.head)
        if found.damaged or found.mark != mark:
            try:
                self.marker.reset(mark)
            except OSError as problem:
                self.marker.close()
                text = f"{self.marker.path}: cannot be written ({problem.strerror})"
                raise RunError(text) from None

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
        with self._writing:
            self._check_own_files()
            with written_whole(self._writer, self.path):
                transaction = Transaction(self._writer, self.keep_segments)
                self._own_files.check_commit(_mark_of(transaction.before), _mark_of(self.newest))
                yield transaction
                commit = transaction.seal()
            self._own_files.note_contents()  # a large log was copied with the commit
            self._mark(commit)
            self.newest = commit
            self._checkpointer.committed()

    def _check_own_files(self) -> None:
        """Raises ReplacedError, or StoreError where that cannot be seen just now."""
        try:
            self._own_files.check_names()
            self._own_files.check_contents()
            if self._marks:
                self._own_files.check_marker(_mark_of(self.newest))
        except OSError as problem:
            raise StoreError(f"{self.directory}: cannot be read ({problem.strerror})") from problem

    def _mark(self, commit: Commit) -> None:
        """The commit is durable, so it stands even if this fails; then only the guard against losing it is
        behind."""
        try:
            self.marker.write(_mark_of(commit))
            self._marks = True
        except OSError as problem:
            if self._marks:
                _log.error(
                    "%s: cannot be written (%s); commits are durable, but if the newest were lost "
                    "nobody would notice",
                    self.marker.path,
                    problem.strerror,
                )
            self._marks = False

    # --- reads -----------------------------------------------------------------------------------
    def segment(self) -> tuple[int, Iterator[bytes]]:
        """Number and records of the newest segment; (-1, nothing) where there is none."""
        rows = self._read(SEGMENTS, "ORDER BY number DESC LIMIT 1")
        if not rows:
            return -1, iter(())
        number, first, _ = rows[0]
        return number, self._records(number, first)

    def _records(self, number: int, seq: int) -> Iterator[bytes]:
        query = "WHERE seq >= ? AND segment = ? ORDER BY seq LIMIT ?"
        while rows := self._read(JOURNAL, query, seq, number, _CHUNK):
            for _, _, record, _ in rows:
                yield record
            seq = rows[-1][0] + 1

    def open_jobs(self) -> list[JobRow]:
        """Return the jobs that have not ended, in order of id."""
        return self._decoded(JobRow, JOBS, "WHERE open = 1 ORDER BY id")

    def job(self, number: int) -> JobRow | None:
        """The job of this id."""
        found = self._decoded(JobRow, JOBS, "WHERE id = ?", number)
        return found[0] if found else None

    def jobs(
        self,
        state: str = "",
        tenant: str = "",
        after: int = -1,
        limit: int = 1000,
        below: int | None = None,
    ) -> list[JobRow]:
        """Those behind id ``after``, and before id ``below`` if it is given, in order of id. state: "" =
        all, "open" = not ended."""
        where, values = ["id > ?"], [after]  # type: tuple[list[str], list[object]]
        if below is not None:
            where.append("id < ?")
            values.append(below)
        if state == "open" or state in OPEN_STATES:
            where.append("open = 1")  # few beside those of the past: the index to go by
        if state not in ("", "open"):
            where.append("+state = ?" if state in OPEN_STATES else "state = ?")
            values.append(state)
        if tenant:
            where.append("tenant = ?" if not state else "+tenant = ?")
            values.append(tenant)
        query = f"WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        return self._decoded(JobRow, JOBS, query, *values, limit)

    def jobs_of(self, ids: Iterable[int]) -> list[JobRow]:
        """Those of these ids that there are, in order of id."""
        which = "WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
        return self._decoded(JobRow, JOBS, which, json.dumps(list(ids)))

    def newest_ended_jobs(self, limit: int) -> list[int]:
        """Return the ids of at most ``limit`` jobs that have ended, the largest first."""
        query = "SELECT id FROM jobs WHERE open = 0 ORDER BY id DESC LIMIT ?"
        return [job for (job,) in self._rows(query, limit)]

    def open_job_sums(self) -> dict[int, bytes]:
        """Job that has not ended -> checksum of its row, which changes when the row does."""
        return dict(self._rows("SELECT id, sum FROM jobs WHERE open = 1"))

    def last_job(self) -> int:
        """The largest id that was ever given to a job; -1 = none."""
        last: int | None = self._rows("SELECT max(id) FROM jobs")[0][0]
        return -1 if last is None else last

    def ended(self) -> dict[str, int]:
        """State -> how many jobs have ended in it, with those that were removed since."""
        query = "SELECT state, count(*) FROM jobs WHERE open = 0 GROUP BY state"
        removed = read_removed(self.meta(REMOVED))
        return dict(Counter(dict(self._rows(query))) + Counter(removed))

    def records(self) -> int:
        """Return how many records the journal ever had."""
        last: int | None = self._rows("SELECT max(seq) FROM journal")[0][0]
        return 0 if last is None else last + 1

    def attempts(self, job: int) -> list[AttemptRow]:
        """All starts of a job, in order."""
        return self._decoded(AttemptRow, ATTEMPTS, "WHERE job = ? ORDER BY attempt", job)

    def last_attempts(self, job: int, count: int) -> list[AttemptRow]:
        """The last so many starts of a job, in order."""
        which = "WHERE job = ? ORDER BY attempt DESC LIMIT ?"
        return self._decoded(AttemptRow, ATTEMPTS, which, job, count)[::-1]

    def open_attempts(self) -> list[AttemptRow]:
        """The starts that have not ended, in order of job and start."""
        return self._decoded(AttemptRow, ATTEMPTS, "WHERE open = 1 ORDER BY job, attempt")

    def open_attempt_keys(self) -> list[tuple[int, int]]:
        """Job and number of the attempts that have not ended, in this order."""
        return self._rows("SELECT job, attempt FROM attempts WHERE open = 1 ORDER BY job, attempt")

    def attempts_of(self, keys: Iterable[tuple[int, int]]) -> list[AttemptRow]:
        """Those of these jobs and numbers that there are."""
        which = "WHERE (job, attempt) IN (SELECT value->>0, value->>1 FROM json_each(?))"
        return self._decoded(AttemptRow, ATTEMPTS, which, json.dumps(list(keys)))

    def nodes(self) -> list[NodeRow]:
        """Return the nodes in order of name."""
        return self._decoded(NodeRow, NODES, "ORDER BY name")

    def users(self) -> list[UserRow]:
        """Return the users in order of name."""
        return self._decoded(UserRow, USERS, "ORDER BY user")

    def searches(self, tenant: str = "", *, open_only: bool = False) -> list[SearchRow]:
        """Return the searches in order of id. tenant: "" = of all tenants."""
        which = "WHERE (? = '' OR tenant = ?)" + " AND open = 1" * open_only + " ORDER BY id"
        return self._decoded(SearchRow, SEARCHES, which, tenant, tenant)

    def search(self, number: int) -> SearchRow | None:
        """The search of this id."""
        found = self._decoded(SearchRow, SEARCHES, "WHERE id = ?", number)
        return found[0] if found else None

    def trials(self, search: int) -> list[TrialRow]:
        """Return the trials of a search in order of number."""
        return self._decoded(TrialRow, TRIALS, "WHERE search = ? ORDER BY number", search)

    def key(self, key: str) -> list[int] | None:
        """The jobs of the submission that carried this key; None = there was none."""
        found = self._decoded(list[int], KEYS, "WHERE key = ?", key)
        return found[0] if found else None

    def meta(self, key: str) -> str | None:
        """Return the value that ``set_meta`` has set; None = none."""
        rows = self._read(META, "WHERE key = ?", key)
        return rows[0][1] if rows else None

    def metas(self, prefix: str, limit: int = -1) -> list[tuple[str, str]]:
        """Key and value of what ``set_meta`` has set under keys that begin like this, in order of key. limit:
        at most so many, -1 = all."""
        where = "WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        behind = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        return [(key, value) for key, value, _ in self._read(META, where, prefix, behind, limit)]

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reading, readable(self.path):
            return self._reader.execute(query, values).fetchall()

    def _read(self, table: SqlTable, which: str, *values: object) -> list[tuple[Any, ...]]:
        """Whole rows, their checksums last. Raises DamageError for one that is not as it was written."""
        rows = self._rows(f"{table.select} {which}", *values)
        for row in rows:
            check_row(self.path, table, row)
        return rows

    def _decoded(
        self, kind: type[_Row], table: SqlTable, which: str, *values: object
    ) -> list[_Row]:
        """The contents of rows: what is in the last column before the checksum."""
        decoder = msgspec.msgpack.Decoder(kind)
        try:
            return [decoder.decode(row[-2]) for row in self._read(table, which, *values)]
        except UNREADABLE as problem:
            raise RunError(f"{self.path}: a row of {table.name} is not known ({problem})") from None

    # --- samples ---------------------------------------------------------------------------------
    def add_sample(self, sample: Sample) -> None:
        """One round, for the plots. Not synced: the newest may be lost with the power."""
        self._samples.add(sample)

    def samples(self, since_s: float = 0.0) -> list[Sample]:
        """Return the samples from this time on; the older, the fewer."""
        return self._samples.since(since_s)


def _mark_of(commit: Commit | None) -> Mark:
    return NO_COMMIT if commit is None else Mark(commit.number, commit.head)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_durable(directory.parent)
    except FileExistsError:
        raise RunError(f"{directory}: cannot be used as a state directory (it is a file)") from None
    except OSError as problem:
        said = problem.strerror
        raise RunError(f"{directory}: cannot be used as a state directory ({said})") from None


def lock(directory: Path) -> int:
    """The file that one server holds; the kernel lets go of it however that server ends."""
    check_lock(directory)
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise RunError(f"{directory / LOCK}: cannot be opened ({problem.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RunError(f"{directory}: a server is using this state directory") from None
    return descriptor


def check_unused(directory: Path) -> None:
    """Raises RunError where a server has this directory; nothing is made."""
    if (directory / LOCK).exists():
        os.close(lock(directory))


def check_lock(directory: Path) -> None:
    """Raises RunError where something stands in the place of the lock file that no server can lock."""
    path = directory / LOCK
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise RunError(f"{path}: is not a regular file, so no server can start; remove it")
    if not os.access(path, os.R_OK | os.W_OK):
        raise RunError(f"{path}: cannot be opened (Permission denied), so no server can start")


def _begin(connection: sqlite3.Connection) -> None:
    """The first rows of a new state."""
    write_schema(connection)
    commit_all_rows(connection, time.time(), os.urandom(SIZE))
