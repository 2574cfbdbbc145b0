"""The tables of a cluster's state.

Every row has a checksum of its other columns beside it, in ``sum``. The table ``commits`` holds one row for
each of the newest commits: the total of the checksums of all rows then, one of what it wrote, and the head of
the chain of all commits so far.
"""

import sqlite3
from dataclasses import dataclass
from functools import cached_property

from fairlead.cluster.store.checksums import (
    EMPTY_SUM,
    Total,
    link,
    row_sum,
)

APPLICATION = 0x464C4431  # "FLD1"
VERSION = 5
MAX_COMMITS = 1024


@dataclass(frozen=True)
class SqlTable:
    """A table whose rows have checksums. The first ``keys`` columns are its primary key, the last one has
    most of a row and is in no index."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    @cached_property
    def select(self) -> str:
        """The beginning of a query for whole rows, the checksum last."""
        return f"SELECT {', '.join(self.columns)}, sum FROM {self.name}"

    @cached_property
    def put(self) -> str:
        """The statement that inserts or replaces a row, the checksum last."""
        key, others = self.columns[: self.keys], (*self.columns[self.keys :], "sum")
        marks = ", ".join("?" * (len(self.columns) + 1))
        changes = ", ".join(f"{column} = excluded.{column}" for column in others)
        return (
            f"INSERT INTO {self.name} VALUES ({marks}) "
            f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
        )

    @cached_property
    def find(self) -> str:
        """The query for the row with a key: all columns but the last, and the checksum."""
        where = " AND ".join(f"{column} = ?" for column in self.columns[: self.keys])
        return f"SELECT {', '.join(self.columns[:-1])}, sum FROM {self.name} WHERE {where}"

    @cached_property
    def find_all(self) -> str:
        """The query for what is there of many rows: all columns but the last, and the checksum. Its
        parameter is a JSON array of keys, each an array itself."""
        same = " AND ".join(
            f"t.{column} = json_extract(k.value, '$[{i}]')"
            for i, column in enumerate(self.columns[: self.keys])
        )
        columns = ", ".join(f"t.{column}" for column in self.columns[:-1])
        return (
            f"SELECT {columns}, t.sum FROM json_each(?) AS k CROSS JOIN {self.name} AS t ON {same}"
        )

    @cached_property
    def refresh(self) -> str:
        """The statement that replaces the last column and the checksum of a row: no index is touched. The
        key comes last."""
        where = " AND ".join(f"{column} = ?" for column in self.columns[: self.keys])
        return f"UPDATE {self.name} SET {self.columns[-1]} = ?, sum = ? WHERE {where}"


META = SqlTable("meta", ("key", "value"))
SEGMENTS = SqlTable("segments", ("number", "first_seq"))
JOURNAL = SqlTable("journal", ("seq", "segment", "record"))
JOBS = SqlTable("jobs", ("id", "state", "tenant", "open", "row"))
ATTEMPTS = SqlTable("attempts", ("job", "attempt", "open", "row"), keys=2)
NODES = SqlTable("nodes", ("name", "row"))
USERS = SqlTable("users", ("user", "row"))
KEYS = SqlTable("keys", ("number", "key", "ids"))
SEARCHES = SqlTable("searches", ("id", "tenant", "open", "row"))
TRIALS = SqlTable("trials", ("search", "number", "row"), keys=2)
# Later versions add theirs at the end: see ``migrations``
TABLES = (META, SEGMENTS, JOURNAL, JOBS, ATTEMPTS, NODES, USERS, KEYS, SEARCHES, TRIALS)

ATTEMPTS_SCHEMA = """
CREATE TABLE attempts (job INTEGER NOT NULL, attempt INTEGER NOT NULL, open INTEGER NOT NULL,
                       row BLOB NOT NULL, sum BLOB NOT NULL, PRIMARY KEY (job, attempt)) WITHOUT ROWID;
CREATE INDEX attempts_open ON attempts (job, attempt) WHERE open = 1;
"""
SEARCHES_SCHEMA = """
CREATE TABLE searches (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, open INTEGER NOT NULL,
                       row BLOB NOT NULL, sum BLOB NOT NULL);
CREATE INDEX searches_open ON searches (id) WHERE open = 1;
CREATE TABLE trials (search INTEGER NOT NULL, number INTEGER NOT NULL, row BLOB NOT NULL,
                     sum BLOB NOT NULL, PRIMARY KEY (search, number)) WITHOUT ROWID;
"""
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE segments (number INTEGER PRIMARY KEY, first_seq INTEGER NOT NULL, sum BLOB NOT NULL);
CREATE TABLE journal (seq INTEGER PRIMARY KEY, segment INTEGER NOT NULL, record BLOB NOT NULL,
                      sum BLOB NOT NULL);
CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL, tenant TEXT NOT NULL,
                   open INTEGER NOT NULL, row BLOB NOT NULL, sum BLOB NOT NULL);
CREATE INDEX jobs_open ON jobs (id) WHERE open = 1;
CREATE INDEX jobs_state ON jobs (state, id);
CREATE INDEX jobs_tenant ON jobs (tenant, id);
{ATTEMPTS_SCHEMA.strip()}
CREATE TABLE nodes (name TEXT PRIMARY KEY, row BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE users (user TEXT PRIMARY KEY, row BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, ids BLOB NOT NULL,
                   sum BLOB NOT NULL);
{SEARCHES_SCHEMA.strip()}
CREATE TABLE commits (number INTEGER PRIMARY KEY, time_s REAL NOT NULL, total BLOB NOT NULL,
                      written BLOB NOT NULL, head BLOB NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """A row of the table commits. head: of the chain, from the head before and the other fields."""

    number: int
    time_s: float  # wall clock
    total: bytes
    written: bytes
    head: bytes

    @classmethod
    def behind(
        cls, before: "Commit | None", time_s: float, total: bytes, written: bytes
    ) -> "Commit":
        """The commit that comes after this one, None: after none."""
        number = 1 if before is None else before.number + 1
        head = EMPTY_SUM if before is None else before.head
        return cls(number, time_s, total, written, link((head, number, time_s, total, written)))


def statements(schema: str) -> list[str]:
    """The statements of a schema."""
    return [text.strip() for text in schema.split(";") if text.strip()]


def objects(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Name and definition of every table and index."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    return set(connection.execute(query).fetchall())


def newest_commit(connection: sqlite3.Connection) -> Commit | None:
    """The last one, None before the first."""
    query = "SELECT number, time_s, total, written, head FROM commits ORDER BY number DESC LIMIT 1"
    row = connection.execute(query).fetchone()
    return None if row is None else Commit(*row)


def write_commit(connection: sqlite3.Connection, commit: Commit) -> None:
    """Write it down, and forget the oldest."""
    values = (commit.number, commit.time_s, commit.total, commit.written, commit.head)
    connection.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?)", values)
    connection.execute("DELETE FROM commits WHERE number <= ?", (commit.number - MAX_COMMITS,))


def commit_all_rows(connection: sqlite3.Connection, time_s: float, salt: bytes) -> None:
    """Begin the chain with all rows that there are, or continue it after all may have changed. salt: random,
    so that no two clusters have the same chain."""
    total = Total()
    for table in TABLES:
        for *_, checksum in connection.execute(table.select):
            total.add(checksum)
    write_commit(connection, Commit.behind(newest_commit(connection), time_s, total.value(), salt))


def write_schema(connection: sqlite3.Connection) -> None:
    """Write down which version this is."""
    row = ("schema", str(VERSION))
    connection.execute(META.put, (*row, row_sum(META.name, row)))
