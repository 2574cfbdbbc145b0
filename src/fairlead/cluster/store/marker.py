"""The marker of the last acknowledged commit, outside the database.

A small file with two records that are written in turn, so that a crash in the middle of a write leaves the
one before. A record holds the commit's number, the head of the chain of commits there, and a checksum. It is
written and synced behind the commit and ahead of its acknowledgement: a database may be ahead of its marker,
after a crash, but one that is behind has lost something.
"""

import errno
import os
import struct
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from fairlead.client.durable import make_durable
from fairlead.cluster.store.checksums import EMPTY_SUM, SIZE

NAME = "state.mark"
_MAGIC = b"FLMARK1\n"
_FIELDS = struct.Struct(f">8sQ{SIZE}s")  # magic, number, head
_SLOT = 4096  # bytes: no write to one record touches a sector of the other
_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Mark:
    """A commit: its number, and the head of the chain there. Number 0: none was acknowledged yet."""

    number: int
    head: bytes


NO_COMMIT = Mark(0, EMPTY_SUM)


@dataclass(frozen=True, slots=True)
class MarkerContent:
    """The content of a marker file."""

    exists: bool
    mark: Mark | None  # the newest whole record
    damaged: bool  # a record is there that is not whole


class Marker:
    """The file at ``path``. One process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def read(self) -> MarkerContent:
        """Return the content of the file. Raises OSError."""
        if self.path.exists() and not self.path.is_file():  # reading a FIFO would never end
            raise OSError(errno.EINVAL, "it is not a regular file")
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return MarkerContent(exists=False, mark=None, damaged=False)
        slots = [data[i * _SLOT : i * _SLOT + _FIELDS.size + SIZE] for i in range(_SLOTS)]
        marks = [mark for slot in slots if (mark := _decode(slot)) is not None]
        newest = max(marks, key=lambda mark: mark.number, default=None)
        return MarkerContent(exists=True, mark=newest, damaged=len(marks) < _SLOTS)

    def open(self) -> None:
        """Ready to be written; made with no commit if it is not there. Raises OSError."""
        found = self.path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if found:
            self._file = os.open(self.path, flags, 0o600)
            return
        partial = self.path.with_name(self.path.name + ".new")
        self._file = os.open(partial, flags | os.O_TRUNC, 0o600)
        self.reset(NO_COMMIT)
        partial.replace(self.path)
        make_durable(self.path.parent)

    def write(self, mark: Mark) -> None:
        """Durable when this returns. Space was set aside for it, so a full disk is no obstacle. Raises
        OSError."""
        os.pwrite(self._file, _encode(mark), mark.number % _SLOTS * _SLOT)
        os.fdatasync(self._file)

    def reset(self, mark: Mark) -> None:
        """Write the mark to both records, so that neither is an old one. Raises OSError."""
        for slot in range(_SLOTS):
            os.pwrite(self._file, _encode(mark).ljust(_SLOT, b"\0"), slot * _SLOT)
            os.fsync(self._file)

    def close(self) -> None:
        """A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def _encode(mark: Mark) -> bytes:
    fields = _FIELDS.pack(_MAGIC, mark.number, mark.head)
    return fields + blake2b(fields, digest_size=SIZE).digest()


def _decode(slot: bytes) -> Mark | None:
    """Return the mark of a record; None if the record is not whole."""
    fields, checksum = slot[: _FIELDS.size], slot[_FIELDS.size :]
    if len(checksum) != SIZE or blake2b(fields, digest_size=SIZE).digest() != checksum:
        return None
    magic, number, head = _FIELDS.unpack(fields)
    return Mark(number, head) if magic == _MAGIC else None
