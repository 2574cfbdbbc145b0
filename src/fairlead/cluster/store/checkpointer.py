"""Copies the write-ahead log into the database beside the commits. After a commit of thousands of rows that
takes seconds on a slow disk, and nobody who waits for a commit needs it."""

import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fairlead.cluster.store.database import (
    DATABASE_ERRORS,
    LOCK_TIMEOUT_S,
    printable,
)
from fairlead.cluster.store.replaced import ReplacedError

ROWS = 1000  # that must have changed to make it worth while
# Behind a commit of so many rows: that of a round is followed by those of what its orders bring, and each of
# them would wait for the disk while it syncs what is copied.
DELAY_S = 5.0
PAGES = 16_000  # of the log: the writer copies what is left, which is little, and begins it anew
_log = logging.getLogger(__name__)


class Checkpointer:
    """A thread and a connection of its own, beside the one connection that writes."""

    def __init__(
        self,
        path: Path,
        writer: sqlite3.Connection,
        delay_s: float = DELAY_S,
        copying: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """path: of the database; delay_s: from a large commit until it is copied; copying: around each
        copy."""
        self._copying = copying
        self._path = path
        self._delay_s = delay_s
        self._writer = writer
        self._done = writer.total_changes
        self._news = threading.Event()
        self._closed = threading.Event()
        writer.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")
        self._connection = sqlite3.connect(
            path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._thread = threading.Thread(target=self._run, name="checkpointer", daemon=True)
        self._thread.start()

    def committed(self) -> None:
        """Called by the writer behind each commit; returns at once."""
        if self._writer.total_changes - self._done >= ROWS:
            self._done = self._writer.total_changes
            self._news.set()

    def close(self) -> None:
        """Wait for what is under way, then end."""
        self._closed.set()
        self._news.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while True:
            self._news.wait()
            if self._closed.wait(self._delay_s):
                return
            self._news.clear()
            try:
                with self._copying():
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except (
                *DATABASE_ERRORS,
                OSError,
                ReplacedError,  # the next commit is refused
            ) as problem:  # the log keeps everything, and the next commit tries again
                _log.warning("%s: %s", self._path, printable(problem))
