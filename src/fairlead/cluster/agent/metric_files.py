"""Metrics of jobs: files to which rank 0 adds a line for each report, passed on to the server as they grow.
One that is written anew, as a shell's ``>`` does, is told from its beginning: of what was in it between two
looks only the last is known.

The files are the jobs' own, and may be anything at any time: no more than a piece of one is looked at at
once, and it is the server that reads what is in it.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fairlead.cluster.agent.launch import REPORTS, metrics_path
from fairlead.cluster.agent.server_client import AgentClient, RefusedError
from fairlead.cluster.agent.untrusted_files import opened
from fairlead.cluster.protocol.messages import LARGEST_METRICS, AttemptKey, MetricChunk

_ROUND = 8  # pieces of one file before it is another's turn
_MAX_FILE = 1 << 40  # bytes; what is longer is none of ``fairlead.client.report``
_KNOWN = 256  # bytes before what is told next, by which a file is known that was written anew
_JOB = re.compile(r"\d{1,15}")
_FILE = re.compile(r"(\d{1,9})-0\.metrics")  # attempt


class _MetricFile:
    """What is told of a file is a stream of its own: where a program writes its file anew, the stream goes on
    with what the file has then."""

    def __init__(self, key: AttemptKey, path: Path) -> None:
        self.key = key
        self.acknowledged = 0  # offset in the stream that the server wants next
        self.refused = False
        self.is_over = False  # no program writes to it any more
        self._path = path
        self._begin = 0  # offset in the stream of the first byte of the file as it is
        self._told = b""  # the end of what was told of the file as it is, as far as is known
        self._closes = False  # the last piece has a newline that the file lacks

    def piece(self) -> bytes:
        """Whole lines that are to be told next; b"": there are none. A line that is longer than a piece is
        told in parts, of which the server makes nothing. Once no program writes to it the last line counts,
        too, where its newline is missing."""
        self._closes = False
        try:
            with opened(self._path, of_folder=True) as descriptor:
                data = self._next(descriptor)
        except OSError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole or not data:
            return whole
        if len(data) == LARGEST_METRICS:
            return data
        self._closes = self.is_over
        return data + b"\n" if self.is_over else b""

    def _next(self, descriptor: int) -> bytes:
        """Return what follows in the file; all of it where it was written anew."""
        at = self.acknowledged - self._begin
        if at > _MAX_FILE:
            return b""
        size, told = os.fstat(descriptor).st_size, self._told
        if at == size + 1 and self.is_over and not told:
            return b""  # an earlier agent has told it, with its last newline
        if at < 0 or size < at or os.pread(descriptor, len(told), at - len(told)) != told:
            self._begin, self._told, at = self.acknowledged, b"", 0
        return os.pread(descriptor, LARGEST_METRICS, at)

    def acknowledge(self, data: bytes, offset: int) -> None:
        """The server has been told a piece, and wants this offset in the stream next."""
        took = offset - self.acknowledged
        self.acknowledged = offset
        if took != len(data):  # it knew of this before, or knows of less
            self._told = b""
            return
        if self._closes:
            self._begin, data = self._begin + 1, data[:-1]
        self._told = (self._told + data)[-_KNOWN:]


class MetricFiles:
    """The files of all attempts of which rank 0 is here."""

    def __init__(self, state: Path) -> None:
        """state: of the agent."""
        self._state = state
        self._files: dict[AttemptKey, _MetricFile] = {}

    def inherit(self) -> None:
        """Tell also what earlier agents left untold: the server says what it has of it."""
        for folder in _entries(self._state / REPORTS, _JOB):
            for path in _entries(folder, _FILE):
                found = _FILE.fullmatch(path.name)
                assert found is not None
                self.follow(int(folder.name), int(found[1]))
                self.end((int(folder.name), int(found[1])))

    def follow(self, job: int, attempt: int) -> None:
        """From now on what this attempt reports is told."""
        path = metrics_path(self._state, job, attempt)
        self._files[job, attempt] = _MetricFile((job, attempt), path)

    def end(self, key: AttemptKey) -> None:
        """The program of an attempt has ended: the last line of its file is whole."""
        if (file := self._files.get(key)) is not None:
            file.is_over = True

    def forget(self, key: AttemptKey) -> None:
        """Its file is removed, or about to be."""
        self._files.pop(key, None)

    def has_untold(self, job: int) -> bool:
        """Return whether something that a job has reported is still to be told. The server may have it from
        an earlier agent."""
        files = (file for key, file in self._files.items() if key[0] == job)
        return any(not file.refused and file.piece() for file in files)

    async def send(self, client: AgentClient, node: str, incarnation: str) -> bool:
        """Tell some pieces of each that has grown. Returns whether all is told. Raises UnreachableError,
        RegisterAgainError."""
        left = False
        for file in list(self._files.values()):
            for _ in range(_ROUND):
                data = b"" if file.refused else file.piece()
                if not data:
                    break
                job, attempt = file.key
                chunk = MetricChunk(
                    node=node,
                    incarnation=incarnation,
                    job=job,
                    attempt=attempt,
                    offset=file.acknowledged,
                    data=data,
                )
                before = file.acknowledged
                try:
                    file.acknowledge(data, (await client.metrics(chunk)).offset)
                except RefusedError:  # a server of an earlier version, too
                    file.refused = True
                if file.acknowledged <= before:
                    break
            else:
                left = True
        return not left


def _entries(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if name.fullmatch(path.name))
