"""The audit log of a cluster: lines of JSON in files that are only ever appended to.

``audit.jsonl`` in the state directory is written now; when it has reached its size it becomes
``audit.jsonl.1``, that ``audit.jsonl.2``, and the oldest is removed. Several processes of a server write, one
at a time: whoever has locked the file. A line is whole: where a process was killed while it wrote one, the
rest of that line is left as it is, the next one begins on a line of its own, and readers skip the rest. All
that a stranger may write is escaped into ASCII, so that no name can end a line or reach a terminal.
"""

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from fairlead.client.durable import make_durable
from fairlead.cluster.protocol.audit import AuditEntry, AuditFilter, AuditPage, audit_time
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.errors import InputError, StoreError

NAME = "audit.jsonl"
MAX_SCANNED = 4 << 20  # bytes that are read for one page
_CURSOR = re.compile(r"(\d{1,20})-(\d{1,18})")
_NUMBERED = re.compile(re.escape(NAME) + r"\.(\d{1,6})")
_entry = msgspec.json.Decoder(AuditEntry)


class AuditLimits(NamedTuple):
    """The limits on how much of the log is kept."""

    file_bytes: int = 64 << 20  # after which a file is closed
    files: int = 16  # with the one that is written; at least 2


DEFAULT_LIMITS = AuditLimits()
NEVER_ROTATE = AuditLimits(file_bytes=1 << 62)


class AuditLog:
    """Appends entries. Any thread of any process may."""

    def __init__(self, directory: Path, limits: AuditLimits = DEFAULT_LIMITS) -> None:
        """directory: of the cluster's state."""
        self.path = directory / NAME
        self._limits = limits
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises StoreError where the file that is written now cannot be opened for that."""
        try:
            os.close(self._open())
        except OSError as problem:
            raise self._unwritable(problem) from problem

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Write entries; they are durable when it returns. Raises StoreError, and then has written none."""
        data = b"".join(_line(entry) for entry in entries)
        try:
            with self._lock, self._locked() as descriptor:
                self._write(descriptor, data)
        except OSError as problem:
            raise self._unwritable(problem) from problem

    def _unwritable(self, problem: OSError) -> StoreError:
        return StoreError(f"{self.path}: cannot be written ({problem.strerror})")

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, which nobody else writes or renames meanwhile."""
        while True:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not self._is_current(descriptor):  # another process has begun a new one
                    continue
                if os.fstat(descriptor).st_size >= self._limits.file_bytes:
                    self._rotate()
                    continue
                yield descriptor
                return
            finally:
                os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.path, flags, 0o600)

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        """Close the present file. Who is killed in between leaves a number out, and loses nothing."""
        older = [self.path, *(_numbered(self.path, n) for n in range(1, self._limits.files))]
        for number in reversed(range(len(older) - 1)):
            if older[number].exists():
                older[number].replace(older[number + 1])
        make_durable(self.path.parent)

    def _write(self, descriptor: int, data: bytes) -> None:
        size = os.fstat(descriptor).st_size
        if size == 0:
            self._own(descriptor)
            make_durable(self.path.parent)
        elif os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        try:
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)  # none of what was not written whole
            raise

    def _own(self, descriptor: int) -> None:
        """The superuser leaves a new file to the owner of the directory: the server writes it next."""
        if os.geteuid() == 0:
            owner = os.stat(self.path.parent)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _line(entry: AuditEntry) -> bytes:
    return json.dumps(msgspec.to_builtins(entry), ensure_ascii=True).encode() + b"\n"


def local_entry(action: str, about: str = "") -> AuditEntry:
    """The entry of something that was done at the server's machine, with no server asked: its author is the
    operating system's user."""
    return AuditEntry(
        time=audit_time(time.time()),
        user=f"uid {os.getuid()}",
        source="local",
        action=action,
        object=about,
        outcome="accepted",
    )


def read_audit(directory: Path, wanted: AuditFilter, cursor: str, limit: int) -> AuditPage:
    """A page of at most ``limit`` entries that are wanted, from the cursor on ("" = from the oldest that is
    kept, which is also where it goes on if the file of the cursor has been removed). Raises InputError for a
    cursor that was never given, StoreError where the files cannot be read."""
    inode, offset = _parse_cursor(cursor)
    entries: list[AuditEntry] = []
    left = MAX_SCANNED
    try:
        with ExitStack() as stack:
            files = _open_files(directory / NAME, stack)
            first = next((at for at, file in enumerate(files) if _inode(file) == inode), None)
            if first is None:
                first, offset = 0, 0
            for file in files[first:]:
                file.seek(offset)
                for line in file:
                    if not line.endswith(b"\n") and file is files[-1]:
                        break  # it is being written
                    if len(entries) >= limit or left <= 0:
                        return AuditPage(entries, f"{_inode(file)}-{offset}", True)
                    offset += len(line)
                    left -= len(line)
                    entry = _decode(line)
                    if entry is not None and wanted.matches(entry):
                        entries.append(entry)
                cursor, offset = f"{_inode(file)}-{offset}", 0
    except OSError as problem:
        raise StoreError(f"{directory / NAME}: cannot be read ({problem.strerror})") from problem
    return AuditPage(entries, cursor, False)


def _open_files(path: Path, stack: ExitStack) -> list[BinaryIO]:
    """The files that there are, oldest first. The newest is opened first: one whose name changes meanwhile is
    opened twice, under its old and its new number, and counts once."""
    files: dict[int, BinaryIO] = {}
    for name in _names(path):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        file = stack.enter_context(os.fdopen(descriptor, "rb"))
        files.setdefault(_inode(file), file)
    return list(reversed(files.values()))


def _names(path: Path) -> list[Path]:
    """Names that files of the log may have now, newest first: a number that was left out is none of them."""
    matches = [_NUMBERED.fullmatch(name) for name in os.listdir(path.parent)]
    numbers = sorted(int(match[1]) for match in matches if match is not None)
    after = numbers[-1] + 1 if numbers else 1  # the oldest, if it is renamed just now
    return [path, *(_numbered(path, number) for number in [*numbers, after])]


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _parse_cursor(cursor: str) -> tuple[int, int]:
    """Inode and offset; (0, 0) = from the oldest entry on."""
    if not cursor:
        return 0, 0
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InputError(f"cursor: must be one that was given before, got {cursor[:80]!r}")
    return int(found[1]), int(found[2])


def _decode(line: bytes) -> AuditEntry | None:
    """The entry of a line; None where a process was killed while it wrote it."""
    try:
        return _entry.decode(line)
    except UNREADABLE:
        return None
