"""SQLite as the store uses it: a file of ours or a clear refusal, durable commits, one sentence per error."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import RunError, StoreError

MAX_WAL = 64 << 20  # bytes that the write-ahead log may keep of the disk after a large transaction
CACHE_KIB = (
    64 << 10
)  # of the writer: else a transaction of thousands of rows reads and writes pages twice
# What SQLite raises for a damaged file; the last where even what is wrong cannot be decoded.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
LOCK_TIMEOUT_S = 10.0  # wait so long for a lock that somebody else holds, a backup for example


@dataclass(frozen=True, kw_only=True)
class DatabaseLayout:
    """The layout of our files of a kind.

    application, version: numbers that tell them from others and from later ones. created: fills a new one,
    in the transaction that makes its tables. migrations: version -> brings a file of that version to this
    one. quick: look at the whole file when it is opened.
    """

    application: int
    version: int
    schema: str
    created: Callable[[sqlite3.Connection], None]
    migrations: Mapping[int, Callable[[sqlite3.Connection], None]] = field(default_factory=dict)
    quick: bool = True


def connect(path: Path, layout: DatabaseLayout, durable: bool) -> sqlite3.Connection:
    """A connection to the database at ``path``, made if it is not there.

    durable: a commit returns when it is on the disk; if not, the last ones may be lost with the power, never
    torn. Raises RunError for a file that is damaged, foreign or of a later version.
    """
    check_regular(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as problem:
        raise RunError(f"{path}: cannot be opened ({problem.strerror})") from None
    connection = sqlite3.connect(
        path,
        timeout=LOCK_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        _prepare(connection, path, layout, durable)
    except DATABASE_ERRORS as problem:
        connection.close()
        raise RunError(
            f"{path}: cannot be used as the state of a cluster ({printable(problem)})"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def check_regular(path: Path) -> None:
    """Raises RunError where something else than a file is at ``path``: reading a FIFO would never end."""
    if path.exists() and not path.is_file():
        raise RunError(
            f"{path}: cannot be used as the state of a cluster (it is not a regular file)"
        )


def is_database(path: Path) -> bool:
    """Return whether SQLite takes the file for one of its databases, as far as its beginning tells."""
    try:
        with closing(reader(path)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (RunError, sqlite3.OperationalError):  # it is no file, or something else is wrong
        return True
    except sqlite3.DatabaseError:
        return False
    return True


def set_aside(path: Path) -> str:
    """Give a damaged database a name that no other has. Returns that."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    path.replace(aside)
    for tail in ("-wal", "-shm"):
        path.with_name(path.name + tail).unlink(missing_ok=True)
    return aside.name


def printable(problem: object) -> str:
    """Return a message of SQLite, which may quote a damaged file, on one line."""
    return "".join(c if c.isprintable() else "?" for c in str(problem))


def _prepare(
    connection: sqlite3.Connection, path: Path, layout: DatabaseLayout, durable: bool
) -> None:
    """Check what is there, bring it up to date, or make it."""
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    version = layout.version if empty else version_of(connection, path, layout)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL}")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if empty:
        _create(connection, layout)
        return
    if layout.quick or version != layout.version:
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise RunError(f"{path}: is damaged ({printable(problem)})")
    if version != layout.version:
        connection.execute("BEGIN IMMEDIATE")
        layout.migrations[version](connection)
        connection.execute("COMMIT")


class ForeignFileError(RunError):
    """A database is no file of ours, or of a later version."""

    def __init__(self, path: Path, what: str) -> None:
        self.what = what
        super().__init__(f"{path}: {what}")


def version_of(connection: sqlite3.Connection, path: Path, layout: DatabaseLayout) -> int:
    """The version of a file of ours, this or one that can be brought up to it. Raises ForeignFileError."""
    found = _pragma(connection, "application_id")
    if found != layout.application:
        raise ForeignFileError(path, f"is not a file of Fairlead's (application id {found})")
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    for version in (layout.version, *layout.migrations):
        if row is not None and row[0] == str(version):
            return version
    known = "nothing" if row is None else printable(row[0])
    what = f"was written by another version of Fairlead (schema {known}, known is {layout.version})"
    raise ForeignFileError(path, what)


def _create(connection: sqlite3.Connection, layout: DatabaseLayout) -> None:
    """All tables in one transaction: a server that dies meanwhile leaves an empty file."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {layout.application}")
    for statement in layout.schema.split(";"):
        if statement.strip():
            connection.execute(statement.strip())
    layout.created(connection)
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def reader(path: Path) -> sqlite3.Connection:
    """A connection for reads, beside the writer or without one. The file must be there, and closing leaves
    it and its log as they are. Raises RunError where it is no file."""
    check_regular(path)
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=LOCK_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
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
        if isinstance(problem, DATABASE_ERRORS):
            raise StoreError(f"{path}: cannot be written ({printable(problem)})") from problem
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
    except DATABASE_ERRORS as problem:
        raise StoreError(f"{path}: cannot be read ({printable(problem)})") from problem
