"""A check of whether the files of a state are still those that its server has written.

Somebody may copy another state over them, or move the directory away, while the server runs. What it would
commit then is lost, or mixed with what it never wrote.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairlead.cluster.store.marker import Mark, Marker
from fairlead.errors import RunError


class ReplacedError(RunError):
    """Another state is where that of this server was."""

    def __init__(self, directory: Path, what: str) -> None:
        super().__init__(
            f"{directory}: was replaced while this server used it ({what}); nothing more is acknowledged; "
            f"put its own files back, or see what `fairlead check {directory}` says of those that are there, "
            "and start the server again"
        )


class OwnFiles:
    """The database and the marker that a server has opened."""

    def __init__(self, database: Path, marker: Marker) -> None:
        """Both are there and open. Raises OSError."""
        self._directory = database.parent
        self._marker = marker
        self._opened = {path: os.stat(path) for path in (database, marker.path)}
        self._database = database
        self._lock = threading.Lock()
        self._is_copying = False  # the log into the database
        self._written = self._contents()  # the database, as this process wrote it last

    def check_names(self) -> None:
        """Raises ReplacedError where other files have their names, or none."""
        for path, opened in self._opened.items():
            try:
                same = os.path.samestat(opened, os.stat(path))
            except (FileNotFoundError, NotADirectoryError):
                same = False
            if not same:
                raise ReplacedError(self._directory, f"{path.name} is not the file that it opened")

    def check_contents(self) -> None:
        """Raises ReplacedError where somebody else has written to the database. SQLite would not notice: what
        is committed goes to its log, and it knows the pages of the database."""
        with self._lock:
            if not self._is_copying and self._contents() != self._written:
                what = f"{self._database.name} was written to by another process"
                raise ReplacedError(self._directory, what)

    def note_contents(self) -> None:
        """This process may have written to the database just now."""
        with self._lock:
            if not self._is_copying:
                self._note()

    @contextmanager
    def copying(self) -> Iterator[None]:
        """The block copies the log into the database, beside commits. Raises ReplacedError."""
        self.check_contents()
        with self._lock:
            self._is_copying = True
        try:
            yield
        finally:
            with self._lock:
                self._is_copying = False
                self._note()

    def _note(self) -> None:
        with suppress(OSError):  # it is not there: the next commit says so
            self._written = self._contents()

    def _contents(self) -> tuple[int, int]:
        """When the database was written last, and its size. Only checkpoints write to it."""
        found = os.stat(self._database)
        return found.st_mtime_ns, found.st_size

    def check_marker(self, newest: Mark) -> None:
        """Raises ReplacedError where another commit is the last that was acknowledged."""
        found = self._marker.read().mark
        if found is not None and found != newest:
            what = (
                f"{self._marker.path.name} names commit {found.number}, its own was {newest.number}"
            )
            raise ReplacedError(self._directory, what)

    def check_commit(self, found: Mark, newest: Mark) -> None:
        """Raises ReplacedError where the database does not end with the last commit."""
        if found != newest:
            name = f"the database ends at commit {found.number}, its own was {newest.number}"
            raise ReplacedError(self._directory, name)
