"""SQLite as the store uses it: a file of ours or a clear refusal, durable commits, one sentence per error."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.errors import RunError, StoreError

WAL_KEPT = 64 << 20  # bytes that the write-ahead log may keep of the disk after a large transaction
BUSY_S = 10.0  # wait so long for a lock that somebody else holds, a backup for example


def connect(
    path: Path, application: int, schema: str, version: int, durable: bool
) -> sqlite3.Connection:
    """A connection to the database at ``path``, made if it is not there.

    application, version: numbers that tell our files from others and from later ones. durable: a commit
    returns when it is on the disk; if not, the last ones may be lost with the power, never torn.
    Raises RunError for a file that is damaged, foreign or of a later version.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as problem:
        raise RunError(f"{path}: cannot be opened ({problem.strerror})") from None
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        _prepare(connection, path, application, schema, version, durable)
    except sqlite3.Error as problem:
        connection.close()
        raise RunError(f"{path}: cannot be used as the state of a cluster ({problem})") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(
    connection: sqlite3.Connection,
    path: Path,
    application: int,
    schema: str,
    version: int,
    durable: bool,
) -> None:
    """Check what is there, or make it."""
    found = _pragma(connection, "application_id")
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not empty and found != application:
        raise RunError(f"{path}: is not a file of Fairlead's (application id {found})")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT}")
    if empty:
        _create(connection, application, schema, version)
        return
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    if row is None or row[0] != str(version):
        known = "nothing" if row is None else row[0]
        raise RunError(
            f"{path}: was written by another version of Fairlead (schema {known}, known is {version})"
        )
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise RunError(f"{path}: is damaged ({str(problem).splitlines()[-1]})")


def _create(connection: sqlite3.Connection, application: int, schema: str, version: int) -> None:
    """All tables in one transaction: a server that dies meanwhile leaves an empty file."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {application}")
    for statement in schema.split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('schema', ?)", (str(version),))
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def reader(path: Path) -> sqlite3.Connection:
    """A second connection, for reads beside the writer."""
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def written_whole(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """A transaction around the block: committed at its end, rolled back if anything fails.

    Raises StoreError where the disk is full or fails. The connection can be used again afterwards.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException as problem:
        _roll_back(connection)
        if isinstance(problem, sqlite3.Error):
            raise StoreError(f"{path}: cannot be written ({problem})") from problem
        raise


def _roll_back(connection: sqlite3.Connection) -> None:
    """SQLite has done so by itself after some errors."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:  # the next BEGIN says what is wrong
        pass


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raises StoreError where the block cannot read the database."""
    try:
        yield
    except sqlite3.Error as problem:
        raise StoreError(f"{path}: cannot be read ({problem})") from problem
