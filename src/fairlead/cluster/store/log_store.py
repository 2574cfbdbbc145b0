"""The output of jobs, as the server keeps it: one file per rank of an attempt, of each rank the newest bytes
over all attempts: a job that fails again and again would fill the disk else.

A piece that continues a file is appended; one from further back is cut to what is new; one from further on
(the agent's own file was cut) starts the file anew at its offset. So pieces may come twice or out of order.
"""

import codecs
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fairlead.cluster.protocol.messages import LogChunk
from fairlead.errors import InputError

# Attempt, rank, offset of the first byte that is kept.
_NAME = re.compile(r"(\d+)-(\d+)\.(\d+)\.log")
_CURSOR = re.compile(r"(\d{1,9})-(\d{1,9}):(\d{1,18})")
TAIL = "tail"
_DISCARDED = "discarded"  # file of the sentence that says why there is no older output
_NOTHING_YET = "0-0:0"  # a cursor behind that sentence: attempts count from 1
MAX_FILES = 1_000  # of a rank that are kept: short ones take room, too
_UTF_8 = codecs.getincrementaldecoder("utf-8")
_MAX_CHARACTER = 4  # bytes of a character
# A file that has not grown for so long: the rest of a character will not come
INCOMPLETE_TIMEOUT_S = 5.0


class _LogFile(NamedTuple):
    """A file of output."""

    attempt: int
    rank: int
    first: int  # offset of the first byte that is kept
    path: Path


class LogStore:
    """Files ``<directory>/<job>/<attempt>-<rank>.<first byte>.log``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, chunk: LogChunk, log_bytes: int) -> int:
        """Store a piece; returns the offset wanted next. log_bytes: so many bytes of a rank are kept, of all
        attempts together; up to twice as many until they are cut."""
        folder = self.directory / str(chunk.job)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = [file for file in self._files(chunk.job) if file.rank == chunk.rank]
        same = (file for file in kept if file.attempt == chunk.attempt)
        path, first = next(
            ((file.path, file.first) for file in same),
            (folder / f"{chunk.attempt}-{chunk.rank}.0.log", 0),
        )
        size = path.stat().st_size if path.exists() else 0
        end = first + size
        if chunk.offset > end:
            path = self._anew(folder, path, chunk, chunk.offset)
            end = chunk.offset
        data = chunk.data[end - chunk.offset :]
        if data:
            with path.open("ab") as file:
                file.write(data)
            end += len(data)
            self._shorten(chunk.job, chunk.rank, log_bytes)
        return end

    def _shorten(self, job: int, rank: int, log_bytes: int) -> None:
        """Keep the newest bytes of a rank's files once these have twice as many."""
        files = [file for file in self._files(job) if file.rank == rank]
        sizes = [file.path.stat().st_size for file in files]
        too_large = sum(sizes) > 2 * log_bytes
        left = log_bytes
        for newer, (file, size) in enumerate(zip(reversed(files), reversed(sizes), strict=True)):
            if newer >= MAX_FILES or (too_large and left <= 0):
                file.path.unlink()
            elif too_large and size > left:
                _cut(file, size - left)
            left -= size

    def _anew(self, folder: Path, path: Path, chunk: LogChunk, offset: int) -> Path:
        path.unlink(missing_ok=True)
        return folder / f"{chunk.attempt}-{chunk.rank}.{offset}.log"

    def read(self, job: int, cursor: str, limit: int) -> tuple[str, str]:
        """Output behind a cursor (``tail``: the end of the newest attempt), about so many bytes at most, and
        the cursor behind that: an offset for each rank of the newest attempt read, that of the last rank
        whose output was read at the end. If there are several files, a line names the file wherever another
        one begins or goes on. A character that is not whole yet is left for later. What was discarded is told
        at the beginning."""
        while True:
            with suppress(FileNotFoundError):  # of a file that was cut or left out meanwhile
                text, behind = self._read(job, cursor, limit)
                if cursor in ("", TAIL) and (why := self._discarded(job)):
                    return f"--- {why} ---\n{text}", behind or _NOTHING_YET
                return text, behind

    def jobs(self) -> list[int]:
        """Return the jobs of which there is something."""
        names = os.listdir(self.directory) if self.directory.is_dir() else []
        return [int(name) for name in names if name.isdecimal()]

    def size(self, job: int) -> int:
        """Return the bytes of output that are kept of a job."""
        total = 0
        for file in self._files(job):
            with suppress(FileNotFoundError):  # retention has removed it
                total += file.path.stat().st_size
        return total

    def discard(self, job: int, why: str) -> None:
        """Remove what is kept of a job; whoever reads its output from the beginning, or its end, is told why.
        What comes of it later is kept."""
        files = self._files(job)
        if files:
            with suppress(FileNotFoundError):  # retention has removed all of it
                (self.directory / str(job) / _DISCARDED).write_text(why)
        for file in files:
            file.path.unlink(missing_ok=True)

    def _discarded(self, job: int) -> str:
        path = self.directory / str(job) / _DISCARDED
        return path.read_text() if path.exists() else ""

    def _read(self, job: int, cursor: str, limit: int) -> tuple[str, str]:
        files = self._files(job)
        at = _tail(files, limit) if cursor == TAIL else _parse_cursor(cursor)
        known = set() if cursor == TAIL else set(at)
        newest = max((attempt for attempt, _ in at), default=0)
        last = next(reversed(at), None) if known or len(at) == 1 else None
        text: list[str] = []
        for attempt, rank, first, path in files:
            if attempt < newest or limit <= 0:
                continue
            offset = max(at.get((attempt, rank), 0), first)
            torn = offset > (at[attempt, rank] if (attempt, rank) in known else 0)
            piece, size = _characters(path, offset - first, limit, torn=torn)
            if size and (attempt, rank) != last:
                if len(files) > 1:
                    text.append("\n" * bool(text and not text[-1].endswith("\n")))
                    text.append(f"--- attempt {attempt}, rank {rank} ---\n")
                last = attempt, rank
            text += [piece] * bool(piece)
            limit -= size
            if size or (attempt, rank) in at:
                at[attempt, rank] = offset + size
        newest = max((attempt for attempt, _ in at), default=0)
        offsets = sorted(at.items(), key=lambda one: (one[0] == last, one[0]))
        behind = ",".join(f"{e}-{r}:{o}" for (e, r), o in offsets if e == newest)
        return "".join(text), behind

    def _files(self, job: int) -> list["_LogFile"]:
        """Return the files of a job, oldest attempts first."""
        folder = self.directory / str(job)
        names = os.listdir(folder) if folder.is_dir() else []
        matches = [(name, _NAME.fullmatch(name)) for name in names]
        return sorted(
            _LogFile(int(m[1]), int(m[2]), int(m[3]), folder / name)
            for name, m in matches
            if m is not None
        )


def _cut(file: "_LogFile", bytes_off: int) -> None:
    """Keep what is behind the first so many bytes."""
    first = file.first + bytes_off
    shorter = file.path.with_name(f"{file.attempt}-{file.rank}.{first}.log")
    with file.path.open("rb") as old, shorter.open("wb") as new:
        old.seek(bytes_off)
        shutil.copyfileobj(old, new)
    file.path.unlink()


def _characters(path: Path, offset: int, limit: int, *, torn: bool) -> tuple[str, int]:
    """The text at an offset, and its size in bytes: at most ``limit`` of them, but one character at least. A
    character whose rest is not there yet is left out, unless nothing has come for a while.
    torn: the offset may lie inside a character, which is passed over."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(max(limit, _MAX_CHARACTER))
        still = time.time() - os.fstat(file.fileno()).st_mtime > INCOMPLETE_TIMEOUT_S
        more = bool(file.read(1))
    begin = _character_tail(data) if torn else 0
    decoder = _UTF_8("replace")
    text = decoder.decode(data[begin:], final=still and not more)
    return text, len(data) - len(decoder.getstate()[0])


def _character_tail(data: bytes) -> int:
    """Return how many bytes at the beginning belong to a character that began before."""
    head = data[: _MAX_CHARACTER - 1]
    return next((i for i, byte in enumerate(head) if byte & 0xC0 != 0x80), len(head))


def _parse_cursor(cursor: str) -> dict[tuple[int, int], int]:
    """(attempt, rank) -> offset."""
    at = {}
    for part in cursor.split(",") if cursor else ():
        match = _CURSOR.fullmatch(part)
        if match is None:
            raise InputError(f"cursor: must be one that was given before, got {part[:80]!r}")
        at[int(match[1]), int(match[2])] = int(match[3])
    return at


def _tail(files: list[_LogFile], limit: int) -> dict[tuple[int, int], int]:
    """(attempt, rank) -> offset so that all ranks of the newest attempt share the limit."""
    newest = [file for file in files if file[0] == max(attempt for attempt, *_ in files)]
    return {
        (attempt, rank): max(first, first + path.stat().st_size - limit // len(newest))
        for attempt, rank, first, path in newest
    }
