"""The changes that a transaction of the store may make, with the checksums of all that it writes."""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from fairlead.cluster.store.checksums import (
    SIZE,
    Total,
    Value,
    row_sum,
)
from fairlead.cluster.store.rows import (
    AttemptRow,
    JobRow,
    NodeRow,
    SearchRow,
    TrialRow,
    UserRow,
)
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
    Commit,
    SqlTable,
    newest_commit,
    write_commit,
)
from fairlead.errors import RunError

MAX_KEYS = 100_000  # newest keys of submissions

_encode = msgspec.msgpack.Encoder().encode


class Transaction:
    """Changes that become durable together. Made by ``Store.transaction``."""

    def __init__(self, connection: sqlite3.Connection, keep_segments: int) -> None:
        self._connection = connection
        self._keep = keep_segments
        self.before = newest_commit(connection)
        self._total = Total() if self.before is None else Total(self.before.total)
        self._written = blake2b(digest_size=SIZE)  # of the checksums that came and went

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
        self._put(SEGMENTS, number, self._next("seq", JOURNAL))
        self._write(number, records)
        self._forget(number - self._keep)
        return number

    def put_jobs(self, rows: Iterable[JobRow]) -> None:
        """Insert or replace."""
        self._put_all(
            JOBS, [(row.id, row.state, row.tenant, int(row.open), _encode(row)) for row in rows]
        )

    def put_attempts(self, rows: Iterable[AttemptRow]) -> None:
        """Insert or replace."""
        self._put_all(
            ATTEMPTS,
            [(row.job, row.attempt, int(row.ended_s is None), _encode(row)) for row in rows],
        )

    def delete_jobs(self, ids: Sequence[int]) -> None:
        """Delete jobs with their attempts; nothing happens for those that are not there."""
        for id_ in ids:
            self._delete(ATTEMPTS, "job = ?", id_)
            self._delete(JOBS, "id = ?", id_)

    def put_node(self, row: NodeRow) -> None:
        """Insert or replace."""
        self._put(NODES, row.name, _encode(row))

    def delete_node(self, name: str) -> None:
        """Nothing happens if it is not there."""
        self._delete(NODES, "name = ?", name)

    def put_user(self, row: UserRow) -> None:
        """Insert or replace."""
        self._put(USERS, row.user, _encode(row))

    def delete_user(self, user: str) -> None:
        """Nothing happens if they are not there."""
        self._delete(USERS, "user = ?", user)

    def put_key(self, key: str, ids: Sequence[int]) -> None:
        """Remember which jobs a submission with this key made; the oldest of many keys are forgotten."""
        number = self._next("number", KEYS)
        self._put(KEYS, number, key, _encode(list(ids)))
        self._delete(KEYS, "number <= ?", number - MAX_KEYS)

    def put_search(self, row: SearchRow) -> None:
        """Insert or replace."""
        self._put(SEARCHES, row.id, row.tenant, int(row.open), _encode(row))

    def put_trial(self, row: TrialRow) -> None:
        """Insert or replace."""
        self._put(TRIALS, row.search, row.number, _encode(row))

    def delete_searches(self, ids: Sequence[int]) -> None:
        """Delete searches with their trials; nothing happens for those that are not there."""
        for id_ in ids:
            self._delete(TRIALS, "search = ?", id_)
            self._delete(SEARCHES, "id = ?", id_)

    def set_meta(self, key: str, value: str) -> None:
        """Insert or replace."""
        self._put(META, key, value)

    def delete_meta(self, key: str) -> None:
        """Nothing happens if it is not there."""
        self._delete(META, "key = ?", key)

    def seal(self) -> Commit:
        """The last change: the commit itself, as the next link of the chain."""
        commit = Commit.behind(
            self.before, time.time(), self._total.value(), self._written.digest()
        )
        write_commit(self._connection, commit)
        return commit

    def _newest(self) -> int | None:
        return self._one("SELECT max(number) FROM segments")

    def _next(self, column: str, table: SqlTable) -> int:
        last = self._one(f"SELECT max({column}) FROM {table.name}")
        return 0 if last is None else last + 1

    def _one(self, query: str) -> int | None:
        value: int | None = self._connection.execute(query).fetchone()[0]
        return value

    def _write(self, segment: int, records: Sequence[bytes]) -> None:
        first = self._next("seq", JOURNAL)
        rows = [(first + i, segment, record) for i, record in enumerate(records)]
        sums = [row_sum(JOURNAL.name, row) for row in rows]
        self._connection.executemany(
            "INSERT INTO journal VALUES (?, ?, ?, ?)",
            ((*row, checksum) for row, checksum in zip(rows, sums, strict=True)),
        )
        self._count_added(*sums)

    def _forget(self, number: int) -> None:
        """Delete this segment and those before it."""
        oldest = "(SELECT first_seq FROM segments WHERE number = ?)"
        self._delete(JOURNAL, f"seq < {oldest}", number + 1)
        self._delete(SEGMENTS, "number <= ?", number)

    def _put(self, table: SqlTable, *values: Value) -> None:
        self._put_all(table, [values])

    def _put_all(self, table: SqlTable, rows: Sequence[tuple[Value, ...]]) -> None:
        """Insert or replace. Of rows with the same key the last one counts. At the end of a round thousands
        of jobs change in nothing that an index is about: they cost a fourth of others."""
        if not rows:
            return
        rows = list({row[: table.keys]: row for row in rows}.values())
        sums = [row_sum(table.name, row) for row in rows]
        there = self._existing(table, [row[: table.keys] for row in rows])
        refreshed, statement = [], []
        for row, checksum in zip(rows, sums, strict=True):
            key = row[: table.keys]
            if key in there and there[key][:-1] == row[:-1]:
                refreshed.append((row[-1], checksum, *key))
            else:
                statement.append((*row, checksum))
        self._connection.executemany(table.refresh, refreshed)
        self._connection.executemany(table.put, statement)
        self._count_removed(*(found[-1] for found in there.values()))
        self._count_added(*sums)

    def _existing(
        self, table: SqlTable, keys: Sequence[tuple[Value, ...]]
    ) -> dict[tuple[Value, ...], tuple[Any, ...]]:
        """Key -> the row with that key, but with its checksum in place of the last column."""
        if len(keys) == 1:
            found = self._connection.execute(table.find, keys[0])
        else:
            found = self._connection.execute(table.find_all, (msgspec.json.encode(keys).decode(),))
        return {row[: table.keys]: row for row in found}

    def _delete(self, table: SqlTable, where: str, *values: Value) -> None:
        query = f"DELETE FROM {table.name} WHERE {where} RETURNING sum"
        for (checksum,) in self._connection.execute(query, values).fetchall():
            self._count_removed(checksum)

    def _count_added(self, *checksums: bytes) -> None:
        for checksum in checksums:
            self._total.add(checksum)
        self._written.update(b"".join(checksums))

    def _count_removed(self, *checksums: bytes) -> None:
        for checksum in checksums:
            self._total.remove(checksum)
        self._written.update(b"".join(checksums))
