"""Copies the write-ahead log into the database beside the commits. After a commit of thousands of rows that
takes seconds on a slow disk, and nobody who waits for a commit needs it."""

import logging
import sqlite3
import threading
from pathlib import Path

from fairlead.cluster.store.database import (
    BUSY_S,
    TROUBLE,
    printable,
)

ROWS = 1000  # that must have changed to make it worth while
PAGES = 16_000  # of the log: the writer copies what is left, which is little, and begins it anew
_log = logging.getLogger(__name__)


class Checkpointer:
    """A thread and a connection of its own, beside the one connection that writes."""

    def __init__(self, path: Path, writer: sqlite3.Connection) -> None:
        """path: of the database."""
        self._path = path
        self._writer = writer
        self._done = writer.total_changes
        self._news = threading.Event()
        self._closed = False
        writer.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")
        self._connection = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._thread = threading.Thread(target=self._run, name="checkpointer", daemon=True)
        self._thread.start()

    def committed(self) -> None:
        """Called by the writer behind each commit; returns at once."""
        if self._writer.total_changes - self._done >= ROWS:
            self._done = self._writer.total_changes
            self._news.set()

    def close(self) -> None:
        """What is under way is waited for."""
        self._closed = True
        self._news.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            if self._closed:
                return
            try:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except TROUBLE as problem:  # the log keeps everything, and the next commit tries again
                _log.warning("%s: %s", self._path, printable(problem))
