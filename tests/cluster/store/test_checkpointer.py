"""The write-ahead log is copied into the database beside the commits."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from fairlead.cluster.store.checkpointer import (
    PAGES,
    ROWS,
    Checkpointer,
)


def left(path: Path) -> int:
    """Rows that the database has without its log."""
    copy = path.with_name(f"copy-{time.monotonic_ns()}.db")
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])
        except sqlite3.DatabaseError:  # copied amid the writing, or without the table yet
            return 0


def test_a_large_commit_reaches_the_database_without_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (x)")
        checkpointer = Checkpointer(path, writer, delay_s=0.0)
        try:
            assert writer.execute("PRAGMA wal_autocheckpoint").fetchone() == (PAGES,)
            writer.execute("INSERT INTO t VALUES (1)")
            checkpointer.committed()  # too little to be worth while
            assert left(path) == 0
            writer.execute("BEGIN")
            writer.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(ROWS)])
            writer.execute("COMMIT")
            checkpointer.committed()
            ends = time.monotonic() + 60.0
            while left(path) < ROWS + 1 and time.monotonic() < ends:
                time.sleep(0.02)
            assert left(path) == ROWS + 1
        finally:
            checkpointer.close()


def test_what_follows_a_large_commit_need_not_share_the_disk_with_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (x)")
        checkpointer = Checkpointer(path, writer, delay_s=3600.0)
        writer.execute("BEGIN")
        writer.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(ROWS)])
        writer.execute("COMMIT")
        checkpointer.committed()
        time.sleep(0.2)
        assert left(path) == 0
        began = time.monotonic()
        checkpointer.close()
        assert time.monotonic() - began < 60.0
