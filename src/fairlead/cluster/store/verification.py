"""Checks that the state of a cluster is whole and holds all that was acknowledged.

Everything is read: SQLite's own structures, the definition of every table, the checksum of every row, the
total of all rows, the chain of commits, and that it contains the commit of the marker.
"""

import itertools
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.store.checksums import Total, row_sum
from fairlead.cluster.store.database import (
    DATABASE_ERRORS,
    DatabaseLayout,
    printable,
    reader,
    version_of,
)
from fairlead.cluster.store.marker import Mark, MarkerContent
from fairlead.cluster.store.migrations import MIGRATIONS, SCHEMAS, StateSchema
from fairlead.cluster.store.schema import (
    APPLICATION,
    MAX_COMMITS,
    SCHEMA,
    TABLES,
    VERSION,
    Commit,
    SqlTable,
    objects,
)
from fairlead.errors import RunError

STRUCTURE_S = 10.0  # for SQLite's own look at a large file, when a server starts
_STEPS = 10_000  # of SQLite's machine between two looks at the clock


@dataclass(frozen=True, slots=True)
class Verified:
    """The commits and rows that were found whole. rows: table, as it is called now -> how many."""

    newest: Commit
    rows: dict[str, int]
    commits: int  # of the chain
    structure: bool  # SQLite's own structures were looked at to the end


class DamageError(RunError):
    """The state of a cluster is damaged, or lacks something. A message that says how to go on."""

    def __init__(self, path: Path, what: str, acceptable: bool = False) -> None:
        """acceptable: what is there is whole, so one may go on with it."""
        self.what = printable(what)
        folder = path.parent.absolute()
        ways = f"restore a backup with `fairlead restore --replace BACKUP {folder}`"
        if acceptable:
            ways += f", or go on with what is there by `fairlead restore --accept-loss {folder}`"
        super().__init__(f"{path}: {self.what}; {ways}")


def state_layout(created: Callable[[sqlite3.Connection], None]) -> DatabaseLayout:
    """Of ``state.db``. Its rows are verified by this module, its structure too."""
    return DatabaseLayout(
        application=APPLICATION,
        version=VERSION,
        schema=SCHEMA,
        created=created,
        migrations=MIGRATIONS,
        quick=False,
    )


def verify_file(path: Path, found: MarkerContent | None, limit_s: float | None = None) -> Verified:
    """See ``verify``. Nothing is written: what is refused stays as it was found."""
    try:
        with closing(reader(path)) as connection:
            connection.execute("BEGIN")  # one state of the file, whatever is written meanwhile
            return verify(connection, path, found, limit_s)
    except DATABASE_ERRORS as problem:
        raise unreadable(path, problem) from None


def unreadable(path: Path, problem: Exception) -> DamageError:
    """Return what SQLite raised for a file as a DamageError. problem: one of ``DATABASE_ERRORS``."""
    foreign = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
    what = "is no state of a cluster, or its beginning is damaged" if foreign else "is damaged"
    return DamageError(path, f"{what} ({problem})")


def verify(
    connection: sqlite3.Connection,
    path: Path,
    found: MarkerContent | None,
    limit_s: float | None = None,
) -> Verified:
    """Everything of a state of this version, or of one that can be migrated to it. Raises DamageError;
    sqlite3.Error too.

    found: its marker, None for a file that has none (a backup). limit_s: seconds for SQLite's own structures,
    None = until done.
    """
    there = objects(connection)
    if not there and found is not None and found.mark is not None and found.mark.number:
        raise missing(path, found.mark)
    schema = SCHEMAS[version_of(connection, path, state_layout(keep_empty))]
    if found is None:
        _check_length(connection, path)
    if there != _expected(schema):
        raise DamageError(path, "is damaged (the definition of a table is not that of its version)")
    commits = [
        Commit(*row)
        for row in connection.execute(
            "SELECT number, time_s, total, written, head FROM commits ORDER BY number"
        )
    ]
    _check_chain(path, commits)
    if found is not None:
        check_mark(path, found, commits)
    structure = _check_structure(connection, path, limit_s)
    total, rows = Total(), {}
    for table, present in zip(schema.tables, TABLES, strict=False):  # an earlier one has fewer
        rows[present.name] = _check_rows(connection, path, table, total)
    if total.value() != commits[-1].total:
        raise DamageError(path, f"is damaged (rows of commit {commits[-1].number} are missing)")
    return Verified(commits[-1], rows, len(commits), structure)


def check_mark(path: Path, found: MarkerContent, commits: list[Commit]) -> None:
    """Raises DamageError for a state that lacks a commit that was acknowledged, or may lack one."""
    mark, newest = found.mark, commits[-1]
    ends = f"ends at commit {newest.number} of {_time(newest.time_s)}"
    if mark is None:
        what = "is damaged" if found.exists else "is missing"
        raise DamageError(
            path, f"{ends}, but state.mark {what}, so that nobody knows what is missing", True
        )
    if newest.number < mark.number:
        count = mark.number - newest.number
        count_text = f"{count} commit is" if count == 1 else f"{count} commits are"
        raise DamageError(
            path, f"{ends}, but commit {mark.number} was acknowledged: {count_text} missing", True
        )
    if found.damaged and newest.number == mark.number:
        raise DamageError(
            path, f"{ends}, but state.mark is damaged, and may have named a later commit", True
        )
    known = {commit.number: commit.head for commit in commits}
    if mark.number in known and known[mark.number] != mark.head:
        raise DamageError(
            path, f"its commit {mark.number} is not the one that was acknowledged", True
        )


def missing(path: Path, mark: Mark | None) -> DamageError:
    """There is no database, though there was one."""
    what = "is missing" if not path.exists() else "is empty"
    number = "" if mark is None else f", but commit {mark.number} was acknowledged"
    wal, log = path.with_name(f"{path.name}-wal"), ""
    if path.exists():
        has_some = wal.exists() and wal.stat().st_size > 0
        where = "are in its log, state.db-wal" if has_some else "may have been in state.db-wal"
        log = f" (the newest commits {where}{'' if has_some else ', which is empty too'})"
    return DamageError(path, f"{what}{number}{log}")


def check_row(path: Path, table: SqlTable, row: tuple[object, ...]) -> None:
    """Raises DamageError for a row, its checksum last, that is not as it was written."""
    if row_sum(table.name, row[:-1]) != row[-1]:  # type: ignore[arg-type]
        key = ", ".join(str(value)[:60] for value in row[: table.keys])
        raise DamageError(path, f"a row is damaged ({table.name}, {key})")


def _check_chain(path: Path, commits: list[Commit]) -> None:
    if not commits:
        raise DamageError(path, "is damaged (it has no commit)")
    complete = len(commits) == min(commits[-1].number, MAX_COMMITS)
    first = commits[0]
    if first.number == 1:
        complete &= Commit.behind(None, first.time_s, first.total, first.written) == first
    for before, commit in itertools.pairwise(commits):
        complete &= Commit.behind(before, commit.time_s, commit.total, commit.written) == commit
    if not complete:
        raise DamageError(path, "is damaged (the chain of commits is broken)")


def _check_length(connection: sqlite3.Connection, path: Path) -> None:
    """Raises DamageError for a file without a log that goes on behind its last page, or ends within that:
    SQLite reads zeros for what is cut off there."""
    if path.with_name(f"{path.name}-wal").exists():
        return
    pages, page = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "page_size")
    )
    more = path.stat().st_size - pages * page
    if more:
        than = "more" if more > 0 else "fewer"
        raise DamageError(path, f"is damaged ({abs(more):,} bytes {than} than it holds)")


def _check_structure(connection: sqlite3.Connection, path: Path, limit_s: float | None) -> bool:
    """False when there was not enough time for all of it."""
    until = None if limit_s is None else time.monotonic() + limit_s
    late = until is not None and (lambda: time.monotonic() > until)
    if late:
        connection.set_progress_handler(late, _STEPS)
    try:
        found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        if until is None or time.monotonic() <= until:
            raise
        return False
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise DamageError(path, f"is damaged ({found})")
    return True


def _check_rows(connection: sqlite3.Connection, path: Path, table: SqlTable, total: Total) -> int:
    count = 0
    for row in connection.execute(f"{table.select} NOT INDEXED"):
        check_row(path, table, row)
        total.add(row[-1])
        count += 1
    return count


def _expected(schema: StateSchema) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as memory:
        for statement in schema.statements:
            memory.execute(statement)
        return objects(memory)


def _time(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def keep_empty(connection: sqlite3.Connection) -> None:
    """For a database that is there: nothing is put into a new one."""
    del connection
