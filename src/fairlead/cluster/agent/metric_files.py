"""Metrics of jobs: files to which rank 0 adds a line for each report, passed on to the server as they grow.

The files are the jobs' own, and may be anything at any time: no more than a piece of one is looked at at
once, and it is the server that reads what is in it.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.agent.launch import REPORTS, metrics_path
from fairlead.cluster.agent.server_client import AgentClient, RefusedError
from fairlead.cluster.agent.untrusted_files import opened
from fairlead.cluster.protocol.messages import LARGEST_METRICS, AttemptKey, MetricChunk

_ROUND = 8  # pieces of one file before it is another's turn
_MAX_FILE = 1 << 40  # bytes; what is longer is none of ``fairlead.client.report``
_JOB = re.compile(r"\d{1,15}")
_FILE = re.compile(r"(\d{1,9})-0\.metrics")  # attempt


@dataclass
class _MetricFile:
    key: AttemptKey
    path: Path
    acknowledged: int = 0  # offset that the server wants next
    refused: bool = False

    def piece(self) -> bytes:
        """Whole lines that are to be told next; b"": there are none. A line that is longer than a piece is
        told in parts, of which the server makes nothing."""
        if self.acknowledged > _MAX_FILE:
            return b""
        try:
            with opened(self.path, of_folder=True) as descriptor:
                data = os.pread(descriptor, LARGEST_METRICS, self.acknowledged)
        except OSError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        return data if not whole and len(data) == LARGEST_METRICS else whole


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

    def follow(self, job: int, attempt: int) -> None:
        """From now on what this attempt reports is told."""
        path = metrics_path(self._state, job, attempt)
        self._files[job, attempt] = _MetricFile((job, attempt), path)

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
                    file.acknowledged = (await client.metrics(chunk)).offset
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
