"""The schemas of a cluster's state that can be read, and the way from each to the present one."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from fairlead.cluster.store.checksums import SIZE, Value, row_sum
from fairlead.cluster.store.schema import (
    ATTEMPTS,
    ATTEMPTS_SCHEMA,
    JOBS,
    SCHEMA,
    SEARCHES_SCHEMA,
    TABLES,
    VERSION,
    SqlTable,
    commit_all_rows,
    statements,
    write_schema,
)

_BATCH = 1000  # rows of jobs read at once

# Until version 3 an attempt was called a stint, and its number an epoch.
_NAMES = {"epoch": "attempt"}
_JOB_NAMES = {"credited": "acknowledged_steps", "kind": "rates_family"}  # fields of jobs alone
_STINTS = SqlTable("stints", ("job", "epoch", "open", "row"), keys=2)
_STINTS_SCHEMA = """
CREATE TABLE stints (job INTEGER NOT NULL, epoch INTEGER NOT NULL, open INTEGER NOT NULL,
                     row BLOB NOT NULL, sum BLOB NOT NULL, PRIMARY KEY (job, epoch)) WITHOUT ROWID;
CREATE INDEX stints_open ON stints (job, epoch) WHERE open = 1;
"""


class StateSchema(NamedTuple):
    """The tables of a version. tables: in the order of ``schema.TABLES``, of which they are the first."""

    statements: list[str]
    tables: tuple[SqlTable, ...]


_SCHEMA_4 = SCHEMA.replace(SEARCHES_SCHEMA.strip(), "")
_TABLES_4 = TABLES[:8]  # there were no searches
SCHEMAS: Mapping[int, StateSchema] = {
    3: StateSchema(
        statements(_SCHEMA_4.replace(ATTEMPTS_SCHEMA.strip(), _STINTS_SCHEMA.strip())),
        tuple(_STINTS if table is ATTEMPTS else table for table in _TABLES_4),
    ),
    4: StateSchema(statements(_SCHEMA_4), _TABLES_4),
    VERSION: StateSchema(statements(SCHEMA), TABLES),
}


def _from_3(connection: sqlite3.Connection) -> None:
    """Rename the table of attempts, and fields of rows that have other names now."""
    for statement in statements(ATTEMPTS_SCHEMA):
        connection.execute(statement)
    connection.executemany(ATTEMPTS.put, _renamed_attempts(connection))
    connection.execute(f"DROP TABLE {_STINTS.name}")
    last = -1
    while rows := connection.execute(
        f"{JOBS.select} WHERE id > ? ORDER BY id LIMIT ?", (last, _BATCH)
    ).fetchall():
        connection.executemany(JOBS.put, [_renamed_job(row[:-1]) for row in rows])
        last = rows[-1][0]
    _from_4(connection)


def _from_4(connection: sqlite3.Connection) -> None:
    """Make the tables of searches."""
    for statement in statements(SEARCHES_SCHEMA):
        connection.execute(statement)
    write_schema(connection)
    commit_all_rows(connection, time.time(), os.urandom(SIZE))


def _renamed_attempts(connection: sqlite3.Connection) -> Iterator[tuple[Value, ...]]:
    for *columns, row, _ in connection.execute(_STINTS.select):
        fields = _renamed(msgspec.msgpack.decode(row))
        yield _with_sum(ATTEMPTS, (*columns, msgspec.msgpack.encode(fields)))


def _renamed_job(columns: tuple[Value, ...]) -> tuple[Value, ...]:
    *columns_before, row = columns
    assert isinstance(row, bytes)
    fields = _renamed(msgspec.msgpack.decode(row), {**_NAMES, **_JOB_NAMES})
    fields["recent_failures"] = [_renamed(failure) for failure in fields["recent_failures"]]
    return _with_sum(JOBS, (*columns_before, msgspec.msgpack.encode(fields)))


def _renamed(fields: dict[str, Any], names: Mapping[str, str] = _NAMES) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in fields.items()}


def _with_sum(table: SqlTable, columns: tuple[Value, ...]) -> tuple[Value, ...]:
    return (*columns, row_sum(table.name, columns))


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {3: _from_3, 4: _from_4}
